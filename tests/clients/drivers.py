"""Seven Kafka clients behind one small interface: create a topic, produce records, consume records.

confluent-kafka, aiokafka and kafka-python run in this process. kcat is called once per group of records that it can
write in one call. The Java client, franz-go and kafkajs are separate programs that read a JSON object per line from
stdin and answer with one per line; byte strings are encoded in base 64:

    {"op": "create",  "bootstrap": b, "topic": t, "partitions": n}                         -> {}
    {"op": "produce", "bootstrap": b, "topic": t, "codec": c, "records": [record...]}      -> {"offsets": [...]}
    {"op": "consume", "bootstrap": b, "topic": t, "partition": p, "count": n,
                      "offset": o or "timestamp": ms}                                      -> {"records": [record...]}
    {"op": "tool", "class": name, "args": [...], "stdin": text}   (Java only)   -> {"code": n, "out": text, "err": text}
    {"op": "transact", "bootstrap": b, "topic": t, "partitions": n, "transactionalId": i, "count": n, "seed": s}
                                          (Java only)   -> {"committed": [number...], "done": n, "failure": text if any}

An answer with "error" is a failure. For a protected listener, commands to Java have "settings", and those to the others
"security" (`protection.py`).
"""

from __future__ import annotations

import base64
import json
import subprocess
import threading
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Protocol

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@dataclass(frozen=True)
class Record:
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int | None = None
    partition: int = 0
    offset: int = field(default=-1, compare=False)


@dataclass(frozen=True)
class Traits:
    """The kinds of records that a client can write; it must be able to read all kinds."""

    binary: bool = True
    timestamps: bool = True
    null_headers: bool = True
    repeated_headers: bool = True
    neither_key_nor_value: bool = True


class ClientFailure(AssertionError):
    """A client reported an error."""


class Client(Protocol):
    name: str
    traits: Traits

    def create_topic(self, topic: str, partitions: int) -> None: ...

    def produce(self, topic: str, codec: str, records: Sequence[Record]) -> list[int]:
        """Produces, waits for all acknowledgements, and returns the offsets in the order of the records."""

    def consume(
        self, topic: str, partition: int, count: int, *, offset: int = 0, timestamp: int | None = None
    ) -> list[Record]:
        """Returns the next `count` records from the offset, or from the first record that is not older than the
        timestamp.
        """


Clients = Callable[[str], Client]


@dataclass(frozen=True)
class ToolResult:
    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        return self.out + self.err


@dataclass(frozen=True)
class TransactResult:
    #: The numbers of the transactions whose commit was answered.
    committed: list[int]
    done: int
    failure: str | None


class ProcessClient:
    """A client in another program, driven by JSON lines."""

    def __init__(self, name: str, command: Sequence[str], bootstrap: str, traits: Traits) -> None:
        self.name = name
        self.traits = traits
        self._bootstrap = bootstrap
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._is_shared = False
        self._security: dict[str, Any] = {}
        self._turn = threading.Lock()

    def at(self, bootstrap: str, **security: Any) -> ProcessClient:
        """Returns the same process as a client of another cluster; closing that client does nothing. `security` are
        fields of its commands."""
        made = copy(self)
        made._bootstrap, made._is_shared, made._security = bootstrap, True, security
        return made

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        if self._is_shared:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def create_topic(self, topic: str, partitions: int) -> None:
        self._call(op="create", topic=topic, partitions=partitions)

    def produce(self, topic: str, codec: str, records: Sequence[Record]) -> list[int]:
        answer = self._call(op="produce", topic=topic, codec=codec, records=[_to_json(each) for each in records])
        return list(answer["offsets"])

    def consume(
        self, topic: str, partition: int, count: int, *, offset: int = 0, timestamp: int | None = None
    ) -> list[Record]:
        start = {"offset": offset} if timestamp is None else {"timestamp": timestamp}
        answer = self._call(op="consume", topic=topic, partition=partition, count=count, **start)
        return [_from_json(each) for each in answer["records"]][:count]

    def tool(self, main: str, *args: str, stdin: str = "") -> ToolResult:
        answer = self._call(op="tool", args=args, stdin=stdin, **{"class": main})
        return ToolResult(answer["code"], answer["out"], answer["err"])

    def transact(
        self, topic: str, transactional_id: str, count: int, *, partitions: int = 1, seed: int = 1
    ) -> TransactResult:
        """Runs transactions of which half are aborted: empty, right after `send`, or after a flush. Their values are
        `transactional id:number:index`.
        """
        named = {"transactionalId": transactional_id, "partitions": partitions, "count": count, "seed": seed}
        answer = self._call(op="transact", topic=topic, **named)
        return TransactResult(answer["committed"], answer["done"], answer.get("failure"))

    def _call(self, **command: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._turn:
            self._process.stdin.write(json.dumps({"bootstrap": self._bootstrap, **self._security, **command}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        if not line:
            raise ClientFailure(f"{self.name} ended with code {self._process.wait()} at {command['op']}")
        answer: dict[str, Any] = json.loads(line)
        if answer.get("error"):
            raise ClientFailure(f"{self.name} {command['op']}: {answer['error']}")
        return answer


def _to_json(record: Record) -> dict[str, Any]:
    return {
        "partition": record.partition,
        "timestamp": record.timestamp,
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": [[name, _text(value)] for name, value in record.headers],
    }


def _from_json(node: dict[str, Any]) -> Record:
    return Record(
        partition=node["partition"],
        offset=node["offset"],
        timestamp=node["timestamp"],
        key=_bytes(node["key"]),
        value=_bytes(node["value"]),
        headers=tuple((name, _bytes(value)) for name, value in node["headers"] or ()),
    )


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
