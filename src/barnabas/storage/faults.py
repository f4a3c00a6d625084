"""What `verify` finds: faults, each with its place, and notes on what is unusual but no fault."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class FaultKind(StrEnum):
    """What is wrong; the names are part of the JSON that scripts read."""

    TORN = "torn"  # the file ends inside a batch
    HEADER = "header"  # no batch can begin like this
    CHECKSUM = "checksum"
    OFFSET = "offset"  # offsets that go back, or reach into the next segment
    RECORDS = "records"  # a batch with the right checksum whose records are not what its header says
    GAP = "gap"  # offsets that are nowhere: as compaction leaves them
    INDEX = "index"
    TIME_INDEX = "time-index"
    TXN_INDEX = "txn-index"
    PRODUCERS = "producers"
    EPOCHS = "epochs"
    CHECKPOINT = "checkpoint"
    MISSING = "missing"
    LEFTOVER = "leftover"
    UNREADABLE = "unreadable"


class Fault(NamedTuple):
    """`position` is the byte in the file, `offset` that of the records concerned; None where there is none."""

    path: str
    kind: FaultKind
    message: str
    position: int | None = None
    offset: int | None = None
    is_note: bool = False

    @property
    def text(self) -> str:
        place = "" if self.position is None else f", byte {self.position}"
        offset = "" if self.offset is None else f", offset {self.offset}"
        return f"{self.path}{place}{offset}: {self.message}"
