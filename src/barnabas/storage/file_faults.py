"""Findings of `verify`: faults, each with its place, and notes on unusual states that are not faults."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class FileFaultKind(StrEnum):
    """The kind of a fault or note; the names are part of the JSON that scripts read."""

    TORN = "torn"  # the file ends inside a batch
    HEADER = "header"  # no batch can begin like this
    CHECKSUM = "checksum"
    OFFSET = "offset"  # offsets that go back, or reach into the next segment
    RECORDS = "records"  # the checksum is right, but the records differ from the header
    GAP = "gap"  # offsets are missing, as after compaction
    INDEX = "index"
    TIME_INDEX = "time-index"
    TXN_INDEX = "txn-index"
    PRODUCERS = "producers"
    EPOCHS = "epochs"
    CHECKPOINT = "checkpoint"
    MISSING = "missing"
    LEFTOVER = "leftover"
    UNREADABLE = "unreadable"


class FileFault(NamedTuple):
    """A fault or note in a file. `position` is the byte in the file, `offset` that of the affected records; None if
    there is none.
    """

    path: str
    kind: FileFaultKind
    message: str
    position: int | None = None
    offset: int | None = None
    is_note: bool = False

    @property
    def text(self) -> str:
        place = "" if self.position is None else f", byte {self.position}"
        offset = "" if self.offset is None else f", offset {self.offset}"
        return f"{self.path}{place}{offset}: {self.message}"
