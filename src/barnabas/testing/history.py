"""`History`: records what clients send, receive and read, for `barnabas check`; docs/check.md describes the format.

Wrapped clients are used as before: calls that are not recorded go directly to the client. Any thread can write.
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
    """A file of operations; a temporary one, removed by `close`, if no path is given."""

    def __init__(self, path: Path | str | None = None) -> None:
        self._temporary = path is None
        self.path = Path(path if path is not None else tempfile.mkstemp(prefix="history-", suffix=".jsonl")[1])
        self._file: IO[str] = self.path.open("w", encoding="utf-8")
        self._lock = threading.Lock()
        self._drains = 0

    def note(self, process: str | int, type_: str, f: str, **fields: Any) -> None:
        """Writes one operation as a line of the file. Values can be bytes; those that are not UTF-8 become {"base64":
        ...}.
        """
        with self._lock:
            operation = {"time": time.time_ns() // 1000, "process": process, "type": type_, "f": f, **fields}
            self._file.write(json.dumps(operation, default=plain) + "\n")

    def sent(self, process: str | int, topic: str, value: Any, partition: int | None = None, **fields: Any) -> None:
        """Records a value that is about to be sent. `idempotent=False`: the producer can write the value twice."""
        known = {} if partition is None or partition < 0 else {"partition": partition}
        self.note(process, "invoke", "send", topic=topic, value=value, **known, **fields)

    def acked(self, process: str | int, topic: str, value: Any, partition: int, offset: int | None) -> None:
        self.note(process, "ok", "send", topic=topic, value=value, partition=partition, offset=offset)

    def failed(self, process: str | int, topic: str, value: Any, error: object = None) -> None:
        """Records that the value was definitely not written."""
        self.note(process, "fail", "send", topic=topic, value=value, error=str(error))

    def unknown(self, process: str | int, topic: str, value: Any, error: object = None) -> None:
        """Records that it is unknown whether the value was written."""
        self.note(process, "info", "send", topic=topic, value=value, error=str(error))

    def polled(self, process: str | int, records: Iterable[Polled], **fields: Any) -> None:
        """Records what a poll returned, in the order returned. An empty poll is not recorded."""
        found: dict[str, list[list[Any]]] = {}
        for topic, partition, offset, value in records:
            found.setdefault(f"{topic}-{partition}", []).append([offset, value])
        if found:
            self.note(process, "ok", "poll", records=found, **fields)

    def producer(self, producer: Any, process: str | int, *, idempotent: bool = True) -> Any:
        """Returns a recorded `confluent_kafka.Producer`; it can be transactional."""
        return RecordedProducer(self, producer, process, idempotent)

    def consumer(self, consumer: Any, process: str | int, *, isolation: str = "read_committed") -> Any:
        """Returns a recorded `confluent_kafka.Consumer`. `isolation`: its configured isolation level."""
        return RecordedConsumer(self, consumer, process, isolation)

    def aio_producer(self, producer: Any, process: str | int, *, idempotent: bool = True) -> Any:
        """Returns a recorded `aiokafka.AIOKafkaProducer`; it can be transactional."""
        return AioRecordedProducer(self, producer, process, idempotent)

    def aio_consumer(self, consumer: Any, process: str | int, *, isolation: str = "read_uncommitted") -> Any:
        """Returns an `aiokafka.AIOKafkaConsumer` with `getone` and `getmany` recorded. `isolation`: as configured."""
        return AioRecordedConsumer(self, consumer, process, isolation)

    def drain(
        self,
        bootstrap: str,
        topics: Iterable[str],
        *,
        timeout_s: float = 60,
        properties: Mapping[str, Any] | None = None,
    ) -> int:
        """Reads all partitions from beginning to end as another process of the history, and returns the number of
        records.

        Raises:
            TimeoutError: the end was not reached in time.
        """
        self._drains += 1
        return drain(self, f"drain-{self._drains}", bootstrap, list(topics), timeout_s, dict(properties or {}))

    def verdict(self) -> Verdict:
        """Returns the verdict of `barnabas check` on the operations written so far."""
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
    """Converts bytes to a value that JSON can represent: text, or {"base64": ...}."""
    if isinstance(value, bytes | bytearray | memoryview):
        data = bytes(value)
        try:
            return data.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(data).decode("ascii")}
    raise TypeError(f"{value!r} cannot be recorded")
