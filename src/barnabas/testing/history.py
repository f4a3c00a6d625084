"""`History`: writes down what clients do and are told, for `barnabas check`; docs/check.md has the form.

Clients are wrapped and used as ever; what is not written down goes straight to them. Any thread may write.
"""

from __future__ import annotations

import base64
import json
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from barnabas.histories import Verdict, judge
from barnabas.testing.recorders import (
    AioRecordedConsumer,
    AioRecordedProducer,
    RecordedConsumer,
    RecordedProducer,
    drain,
)

#: (topic, partition, offset, value)
Polled = tuple[str, int, int, Any]


class History:
    """A file of operations; a temporary one, removed on `close`, when no path is given."""

    def __init__(self, path: Path | str | None = None) -> None:
        self._temporary = path is None
        self.path = Path(path if path is not None else tempfile.mkstemp(prefix="history-", suffix=".jsonl")[1])
        self._file: IO[str] = self.path.open("w", encoding="utf-8")
        self._lock = threading.Lock()
        self._drains = 0

    def note(self, process: str | int, type_: str, f: str, **fields: Any) -> None:
        """One line. Values may be bytes; those that are not UTF-8 become {"base64": ...}."""
        with self._lock:
            operation = {"time": time.time_ns() // 1000, "process": process, "type": type_, "f": f, **fields}
            self._file.write(json.dumps(operation, default=plain) + "\n")

    def sent(self, process: str | int, topic: str, value: Any, partition: int | None = None, **fields: Any) -> None:
        """Is about to be sent. `idempotent=False`: by a producer that may write it twice."""
        known = {} if partition is None or partition < 0 else {"partition": partition}
        self.note(process, "invoke", "send", topic=topic, value=value, **known, **fields)

    def acked(self, process: str | int, topic: str, value: Any, partition: int, offset: int | None) -> None:
        self.note(process, "ok", "send", topic=topic, value=value, partition=partition, offset=offset)

    def failed(self, process: str | int, topic: str, value: Any, error: object = None) -> None:
        """It certainly was not written."""
        self.note(process, "fail", "send", topic=topic, value=value, error=str(error))

    def unknown(self, process: str | int, topic: str, value: Any, error: object = None) -> None:
        """Nobody knows whether it was written."""
        self.note(process, "info", "send", topic=topic, value=value, error=str(error))

    def polled(self, process: str | int, records: Iterable[Polled], **fields: Any) -> None:
        """In the order in which they were given. Nothing is written for no records."""
        found: dict[str, list[list[Any]]] = {}
        for topic, partition, offset, value in records:
            found.setdefault(f"{topic}-{partition}", []).append([offset, value])
        if found:
            self.note(process, "ok", "poll", records=found, **fields)

    def producer(self, producer: Any, process: str | int, *, idempotent: bool = True) -> Any:
        """A `confluent_kafka.Producer` that is recorded; also a transactional one."""
        return RecordedProducer(self, producer, process, idempotent)

    def consumer(self, consumer: Any, process: str | int, *, isolation: str = "read_committed") -> Any:
        """A `confluent_kafka.Consumer` that is recorded. `isolation`: as it was configured."""
        return RecordedConsumer(self, consumer, process, isolation)

    def aio_producer(self, producer: Any, process: str | int, *, idempotent: bool = True) -> Any:
        """An `aiokafka.AIOKafkaProducer` that is recorded; also a transactional one."""
        return AioRecordedProducer(self, producer, process, idempotent)

    def aio_consumer(self, consumer: Any, process: str | int, *, isolation: str = "read_uncommitted") -> Any:
        """An `aiokafka.AIOKafkaConsumer` that is recorded: `getone` and `getmany`. `isolation`: as configured."""
        return AioRecordedConsumer(self, consumer, process, isolation)

    def drain(
        self,
        bootstrap: str,
        topics: Iterable[str],
        *,
        timeout_s: float = 60,
        properties: Mapping[str, Any] | None = None,
    ) -> int:
        """Read all partitions from beginning to end, as another process of the history; how many records there are.
        Raises TimeoutError if the end is not reached in time."""
        self._drains += 1
        return drain(self, f"drain-{self._drains}", bootstrap, list(topics), timeout_s, dict(properties or {}))

    def verdict(self) -> Verdict:
        """On what has been written so far."""
        with self._lock:
            self._file.flush()
        with self.path.open(encoding="utf-8") as lines:
            return judge(lines)

    def close(self) -> None:
        self._file.close()
        if self._temporary:
            self.path.unlink(missing_ok=True)

    def __enter__(self) -> History:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def plain(value: object) -> object:
    """Bytes as JSON holds them."""
    if isinstance(value, bytes | bytearray | memoryview):
        data = bytes(value)
        try:
            return data.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(data).decode("ascii")}
    raise TypeError(f"{value!r} cannot be written down")
