"""The header by which the sink marks each record: `barnabas.origin` = query id / batch id / task / index / hash.

Spark writes a micro-batch again after a failure, and a task when it is retried: some records come twice. The second
copy has the same origin: the same query and batch, the same task, the same place in it, and the same content (`hash` is
the CRC-32C of key and value, so that a plan whose rows come in another order the second time has no two different
records of one origin). A reader that drops what it has seen (`dropReplays`) never drops a record that it has not.
"""

from __future__ import annotations

from crc32c import crc32c

HEADER = "barnabas.origin"


def prefix(query_id: str, batch_id: int, task: int) -> str:
    """What all records of one task begin with."""
    return f"{query_id}/{batch_id}/{task}/"


def origin(start: str, index: int, key: bytes | None, value: bytes | None) -> bytes:
    """`start` is a `prefix`."""
    return f"{start}{index}/{crc32c(value or b'', crc32c(key or b'')):x}".encode()
