"""kcat, the command line client on librdkafka, through its pipes.

kcat writes text: it cannot set timestamps, and headers and partition are those of a whole call. So records are written
in runs that share them, and a record without key or value in a separate call.
"""

from __future__ import annotations

import itertools
import json
import subprocess
from collections.abc import Iterator, Sequence
from typing import Any

from tests.clients.drivers import ClientFailure, Record, Traits
from tests.clients.protection import Protection

WAIT_S = 120


class Kcat:
    name = "kcat"
    traits = Traits(binary=False, timestamps=False)

    def __init__(self, bootstrap: str, protection: Protection | None = None) -> None:
        self._bootstrap = bootstrap
        settings = {} if protection is None else protection.librdkafka()
        self._settings = [word for key, value in settings.items() for word in ("-X", f"{key}={value}")]

    def create_topic(self, topic: str, partitions: int) -> None:
        """Creates a topic by a request for its metadata, as kcat has no other way; Kafka creates topics
        automatically.
        """
        for _ in range(100):
            listed = json.loads(self._run("-L", "-J", "-t", topic, "-X", "allow.auto.create.topics=true"))
            (found,) = listed["topics"]
            if len(found["partitions"]) == partitions and all(each["leader"] >= 0 for each in found["partitions"]):
                return
        raise ClientFailure(f"kcat: topic {topic} was not created: {found}")

    def produce(self, topic: str, codec: str, records: Sequence[Record]) -> list[int]:
        for (partition, headers, *_), run in itertools.groupby(records, _shape):
            flags = [flag for name, value in headers for flag in ("-H", _header(name, value))]
            lines = "".join(_lines(run))
            where = ("-t", topic, "-p", str(partition), "-K", "\\t", "-Z", "-z", codec)
            self._run("-P", *where, *flags, "-X", "linger.ms=20", "-X", "message.max.bytes=2000000", stdin=lines)
        return []

    def consume(
        self, topic: str, partition: int, count: int, *, offset: int = 0, timestamp: int | None = None
    ) -> list[Record]:
        start = str(offset) if timestamp is None else f"s@{timestamp}"
        out = self._run("-C", "-t", topic, "-p", str(partition), "-o", start, "-c", str(count), "-J", "-e")
        return [_record(json.loads(line)) for line in out.splitlines()]

    def _run(self, *args: str, stdin: str = "") -> str:
        command = ["kcat", "-b", self._bootstrap, "-m", str(WAIT_S), "-q", *self._settings, *args]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=WAIT_S, check=False)
        if done.returncode != 0 or "% ERROR" in done.stderr:
            raise ClientFailure(f"{' '.join(command)} ended with {done.returncode}: {done.stderr}")
        return done.stdout


def _shape(record: Record) -> tuple[Any, ...]:
    return record.partition, record.headers


def _header(name: str, value: bytes | None) -> str:
    return name if value is None else f"{name}={value.decode()}"


def _lines(records: Iterator[Record]) -> Iterator[str]:
    """Yields lines. With -Z an empty key or value is written as null; kcat cannot write an empty one in the same
    call.
    """
    for record in records:
        assert record.key != b""
        assert record.value != b""
        yield f"{(record.key or b'').decode()}\t{(record.value or b'').decode()}\n"


def _record(node: dict[str, Any]) -> Record:
    flat = node.get("headers") or []
    return Record(
        partition=node["partition"],
        offset=node["offset"],
        timestamp=node["ts"],
        key=_bytes(node["key"]),
        value=_bytes(node["payload"]),
        headers=tuple((name, _bytes(value)) for name, value in zip(flat[::2], flat[1::2], strict=True)),
    )


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()
