"""What the turn at hand does, counted where it is done, for a host that gives work a price.

A real host needs none of this: its clock sees how long a turn takes. In the simulator code takes no time by itself, so
the work is counted (`simulation/cpu.py`). What is counted is the work and not the pauses in it: a loop over rows that
gives way to nobody counts as much as one that does. Without a meter a count costs one call that does nothing.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, Protocol


class Work(IntEnum):
    #: Requests that the produce shortcut serves, and all others.
    SHORTCUT = 0
    REQUEST = 1
    #: Bytes of fields that are made into messages, or made from them, at one go: handlers included.
    DECODED_BYTE = 2
    ENCODED_BYTE = 3
    #: Units of `broker.steps`.
    UNIT = 4
    #: Rows of a request that its handler goes through in parts (`COUNTED_ROWS`).
    ROW = 5
    #: Records that are walked over, and bytes of batches that are unpacked.
    RECORD = 6
    UNPACKED_BYTE = 7


#: Rows are counted so many at a time; fewer are part of what a request costs.
COUNTED_ROWS: Final = 100


class Meter(Protocol):
    def add(self, work: Work, count: int) -> None: ...


#: Of the turn at hand, if anybody counts.
meter: Meter | None = None


def add(work: Work, count: int) -> None:
    """So much of it was done."""
    if meter is not None:
        meter.add(work, count)


def swap(new: Meter | None) -> Meter | None:
    """Count with `new` from now on; returns who counted before."""
    global meter
    before, meter = meter, new
    return before
