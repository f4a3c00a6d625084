"""The ledger: the records that the brokers acknowledged, one line of JSON each, in a file that survives the producer.

    {"begin": {"topic", "topic_id", "start_offsets", "replay"}}      the replay that the ledger belongs to
    {"order_id", "kind", "partition", "offset", "total_cents", "lines"}                one acknowledged record
        "reason": the rule that a malformed record breaks
        "found": true     a crash lost the acknowledgement; the record was found in the log afterwards
        "again": true     sent again after a crash, though it may have been in flight: a second copy can appear
    {"order_id", "kind", "refused": "MSG_SIZE_TOO_LARGE"}            never acknowledged, and never will be
    {"resumed": {"acknowledged"}}                                    a later run continues from here
    {"end": {...}}                                                   everything was sent; the totals

A line is written after its acknowledgement arrived, never before: a listed record is in the log, or the brokers lost
it. Lines of one partition are in order of offset. A kill can cut the last line; the next start drops it, and its record
is among those looked for in the log. A lock on the file admits one writing process.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from barnabas.orders.books import Books
from barnabas.orders.errors import OrdersError
from barnabas.orders.faults import MALFORMED


class Entry(NamedTuple):
    """The result of one record: acknowledged at an offset, or refused (then partition and offset are -1)."""

    order_id: int
    kind: str
    partition: int = -1
    offset: int = -1
    total_cents: int = 0
    lines: int = 0
    reason: str | None = None
    found: bool = False
    again: bool = False
    refused: str | None = None

    def line(self) -> str:
        if self.refused is not None:
            return f'{{"order_id":{self.order_id},"kind":"{self.kind}","refused":{json.dumps(self.refused)}}}\n'
        more = f',"reason":"{self.reason}"' if self.reason else ""
        more += ',"found":true' if self.found else ""
        more += ',"again":true' if self.again else ""
        return (
            f'{{"order_id":{self.order_id},"kind":"{self.kind}","partition":{self.partition},"offset":{self.offset},'
            f'"total_cents":{self.total_cents},"lines":{self.lines}{more}}}\n'
        )


@dataclass(slots=True)
class Contents:
    """The contents of a ledger."""

    begin: dict[str, Any] | None = None
    entries: list[Entry] = field(default_factory=list)
    #: The number of runs after the first.
    resumed: int = 0
    end: dict[str, Any] | None = None
    #: The file size up to the last complete line.
    size_bytes: int = 0

    @property
    def topic(self) -> str:
        assert self.begin is not None
        return str(self.begin["topic"])

    @property
    def start_offsets(self) -> dict[int, int]:
        """Returns the end offset of each partition before the first record of the replay."""
        assert self.begin is not None
        return {int(number): offset for number, offset in self.begin["start_offsets"].items()}

    @property
    def end_offsets(self) -> dict[int, int]:
        """Returns the offset after the last acknowledged record of each partition."""
        ends = self.start_offsets
        for entry in self.acknowledged():
            ends[entry.partition] = max(ends.get(entry.partition, 0), entry.offset + 1)
        return ends

    def acknowledged(self) -> Iterator[Entry]:
        return (entry for entry in self.entries if entry.refused is None)

    def refused(self) -> Iterator[Entry]:
        return (entry for entry in self.entries if entry.refused is not None)

    def books(self) -> Books:
        """Returns the books of acknowledged good orders; copies count as duplicates."""
        books = Books()
        for entry in self.acknowledged():
            if entry.kind != MALFORMED:
                books.enter(entry.order_id, entry.lines, entry.total_cents)
        return books


def read_ledger(path: Path) -> Contents:
    """Returns a ledger's contents, without an incomplete last line.

    Raises:
        OrdersError: the file does not exist, or it is not a ledger.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise OrdersError(f"cannot read the ledger {path}: {error.strerror}") from error
    contents = _parse(data, path)
    if contents.begin is None:
        raise OrdersError(f"the ledger {path} is empty", "`barnabas orders replay --ledger FILE` writes one")
    return contents


def _parse(data: bytes, path: Path) -> Contents:
    contents = Contents()
    for number, line in enumerate(data.splitlines(keepends=True), 1):
        if not line.endswith(b"\n"):
            break
        try:
            document = json.loads(line)
            if number == 1:
                contents.begin = document["begin"]
            elif "order_id" in document:
                contents.entries.append(Entry(**document))
            elif "resumed" in document:
                contents.resumed += 1
            else:
                contents.end = document["end"]
        except (ValueError, KeyError, TypeError) as error:
            raise OrdersError(
                f"{path} is not a ledger of `barnabas orders replay`: line {number}",
                "choose another file with --ledger",
            ) from error
        contents.size_bytes += len(line)
    return contents


class Ledger:
    """A ledger open for writing. `contents`: its contents at the time it was opened."""

    def __init__(self, path: Path) -> None:
        """Opens or creates the file and locks it.

        Raises:
            OrdersError: the file cannot be written, is not a ledger, or another process writes it.
        """
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise OrdersError(f"cannot write the ledger {path}: {error.strerror}") from error
        try:
            self._lock()
            self.contents = _parse(path.read_bytes(), path)
            os.ftruncate(self._fd, self.contents.size_bytes)
            os.lseek(self._fd, 0, os.SEEK_END)
        except BaseException:
            os.close(self._fd)
            raise
        self._pending: list[str] = []

    def _lock(self) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise OrdersError(
                f"another replay is writing the ledger {self.path}", "wait for it, or choose another file with --ledger"
            ) from error

    def enter(self, entry: Entry) -> None:
        self._pending.append(entry.line())

    def note(self, document: dict[str, Any]) -> None:
        """Writes a line that describes the replay, not a record: begin, resumed or end."""
        self._pending.append(json.dumps(document, separators=(",", ":")) + "\n")

    def flush(self) -> None:
        """Hands all lines to the operating system, so that they survive the end of this process.

        Raises:
            OrdersError: the disk took only a part. The next start recovers the rest from the log.
        """
        if not self._pending:
            return
        data = "".join(self._pending).encode()
        self._pending.clear()
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError as error:
            raise OrdersError(
                f"cannot write the ledger {self.path}: {error.strerror}",
                "free some space and run the same command again: it continues where the ledger ends",
            ) from error

    def sync(self) -> None:
        """Flushes, and syncs the file to disk."""
        self.flush()
        os.fsync(self._fd)

    def close(self) -> None:
        """Flushes and syncs the remaining lines, and releases the lock."""
        try:
            self.sync()
        finally:
            os.close(self._fd)
