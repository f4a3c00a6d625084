"""The header with which the sink marks each record: `barnabas.origin` = query id / batch id / task / index / hash.

Spark writes a micro-batch again after a failure, and a task when it is retried: some records are written twice. The
second copy has the same origin: the same query and batch, the same task, the same index in it, and the same content
(`hash` is the CRC-32C of key and value, so that two different records never have one origin, even if a plan returns its
rows in another order the second time). A reader that drops repeated origins (`dropReplays`) never drops a record that
it has not seen.
"""

from __future__ import annotations

from barnabas.records.checksum import crc32c

HEADER = "barnabas.origin"


def prefix(query_id: str, batch_id: int, task: int) -> str:
    """Returns the common beginning of the origins of one task."""
    return f"{query_id}/{batch_id}/{task}/"


def origin(start: str, index: int, key: bytes | None, value: bytes | None) -> bytes:
    """Returns the origin of one record. `start` is a `prefix`."""
    return f"{start}{index}/{crc32c(value or b'', crc32c(key or b'')):x}".encode()
