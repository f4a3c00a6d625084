"""Counters of the work of the current turn, for a host that charges time for work.

A real host needs none of them: its clock measures a turn. In the simulator code takes no time by itself, so work is
counted (`simulation/cpu.py`). The counters measure the work and not its pauses: a loop over rows that never yields
counts as much as one that does. Without a meter, a count costs one call that does nothing.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, Protocol


class Work(IntEnum):
    #: Requests that take the produce shortcut, and all other requests.
    SHORTCUT = 0
    REQUEST = 1
    #: Bytes of fields that are decoded or encoded in one piece, handlers included.
    DECODED_BYTE = 2
    ENCODED_BYTE = 3
    #: Units of `broker.requests.steps`.
    UNIT = 4
    #: Rows of a request that its handler processes in parts (`COUNTED_ROWS`).
    ROW = 5
    #: The number of records scanned, and of uncompressed bytes of batches.
    RECORD = 6
    UNPACKED_BYTE = 7


#: The batch size for counting rows; fewer are part of the cost of a request.
COUNTED_ROWS: Final = 100


class Meter(Protocol):
    def add(self, work: Work, count: int) -> None: ...


#: The meter of the current turn, if any.
meter: Meter | None = None


def add(work: Work, count: int) -> None:
    """Adds this amount of work to the current meter."""
    if meter is not None:
        meter.add(work, count)


def swap(new: Meter | None) -> Meter | None:
    """Makes `new` the meter that counts work from now on; returns the previous meter."""
    global meter
    before, meter = meter, new
    return before
