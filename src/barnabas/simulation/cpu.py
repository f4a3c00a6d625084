"""The CPU cost of code in the simulated world: a price for each kind of work, so that a long turn delays others.

Code runs at one moment of virtual time. Its work is counted (`common.effort`), and the process is busy for the cost of
that work: its clock advances immediately, its responses leave later, and its other events wait. Counts depend on the
run alone, so the same seed gives the same times on every machine.

Programs of clients, checkers, and the start of a node cost nothing: no node waits for them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from barnabas.common import effort
from barnabas.common.effort import Work

T = TypeVar("T")

#: Measured and printed by `tools/measure_effort.py`, and rounded: one core of a virtual machine with two (x86-64),
#: CPython 3.11, the compiled walk. A turn consists of a wake-up by the system, one read and one write.
TURN_NS: Final = 25_000
_TURN_US: Final = TURN_NS // 1_000
#: Prices of a byte in picoseconds. A received byte is also checked and written to a file.
RECEIVED_BYTE_PS: Final = 450
SENT_BYTE_PS: Final = 400
PRICES_NS: Final[dict[Work, int]] = {
    Work.SHORTCUT: 12_000,
    Work.REQUEST: 28_000,
    Work.DECODED_BYTE: 50,
    Work.ENCODED_BYTE: 90,
    Work.UNIT: 100_000,
    Work.ROW: 4_000,
    Work.RECORD: 8,
    Work.UNPACKED_BYTE: 2,
}


class Cpu:
    """The CPU time of one thread (`effort.Meter`): calls `charge` with the microseconds that its work takes."""

    __slots__ = ("_charge", "_rest_ns", "total_us")

    def __init__(self, charge: Callable[[int], None]) -> None:
        self._charge = charge
        self._rest_ns = 0
        self.total_us = 0

    def add(self, work: Work, count: int) -> None:
        self.spend_ns(PRICES_NS[work] * count)

    def received(self, size_bytes: int) -> None:
        self.spend_ns(size_bytes * RECEIVED_BYTE_PS // 1_000)

    def sent(self, size_bytes: int) -> None:
        self.spend_ns(size_bytes * SENT_BYTE_PS // 1_000)

    def spend_ns(self, duration_ns: int) -> None:
        whole_us, self._rest_ns = divmod(self._rest_ns + duration_ns, 1_000)
        if whole_us:
            self.total_us += whole_us
            self._charge(whole_us)

    def turn(self, callback: Callable[[], object]) -> None:
        """Runs a callback as one separate wake-up of this thread."""
        self.total_us += _TURN_US
        self._charge(_TURN_US)
        before = effort.swap(self)
        try:
            callback()
        finally:
            effort.swap(before)

    def run(self, work: Callable[[], T]) -> T:
        """Runs work of this thread and charges it with the counted effort."""
        before = effort.swap(self)
        try:
            return work()
        finally:
            effort.swap(before)
