"""Log lines of what may happen many times a second: one line in ten seconds for each cause, with a count.

    reports.report("metadata log full", "the metadata log takes no records: ...", error)    ERROR, limited
    reports.inform("quorum leader", "node 2 leads epoch 7")                                 INFO, limited
    reports.over("metadata log full", "the metadata log takes records again")               INFO, if it was reported

The first line of a cause is written at once. What comes within `interval_ms` after a written line is counted, and the
next line of that cause, or the line that ends it, tells how many were left out.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final

from barnabas.common.host import Clock, FaultHandler

INTERVAL_MS: Final = 10_000
#: Beyond this many causes the oldest is forgotten: causes may have names that peers choose.
_CAUSES_MAX: Final = 1_000


class _Cause:
    __slots__ = ("left_out", "since_ms", "written_ms")

    def __init__(self, now_ms: int) -> None:
        #: When the first line since the last `over` was written.
        self.since_ms = now_ms
        self.written_ms = now_ms
        self.left_out = 0


class LimitedReports:
    """One for each part of the broker that reports; its causes are its own."""

    __slots__ = ("_causes", "_clock", "_faults", "_interval_ms")

    def __init__(self, faults: FaultHandler, clock: Clock, interval_ms: int = INTERVAL_MS) -> None:
        self._faults = faults
        self._clock = clock
        self._interval_ms = interval_ms
        self._causes: dict[Hashable, _Cause] = {}

    def report(self, cause: Hashable, message: str, error: BaseException | None = None) -> None:
        """Report a fault, unless one of this cause was written less than `interval_ms` ago."""
        self._write(cause, message, lambda text: self._faults.report(text, error))

    def inform(self, cause: Hashable, message: str) -> None:
        """Write an INFO line, limited in the same way."""
        self._write(cause, message, self._faults.inform)

    def _write(self, cause: Hashable, message: str, write: Callable[[str], None]) -> None:
        now_ms = self._clock.now_ms()
        known = self._causes.get(cause)
        if known is None:
            if len(self._causes) >= _CAUSES_MAX:
                del self._causes[next(iter(self._causes))]
            self._causes[cause] = _Cause(now_ms)
            write(message)
        elif now_ms - known.written_ms < self._interval_ms:
            known.left_out += 1
        else:
            text = f"{message}{_counted(known.left_out, now_ms - known.written_ms)}"
            known.written_ms, known.left_out = now_ms, 0
            write(text)

    def over(self, cause: Hashable, message: str) -> bool:
        """Write one INFO line if this cause was reported since it was last over. Whether it was."""
        known = self._causes.pop(cause, None)
        if known is None:
            return False
        now_ms = self._clock.now_ms()
        lasted_s = (now_ms - known.since_ms) / 1_000
        self._faults.inform(f"{message}, after {lasted_s:.1f} s{_counted(known.left_out, now_ms - known.written_ms)}")
        return True

    def is_reported(self, cause: Hashable) -> bool:
        """Whether this cause was reported and is not over."""
        return cause in self._causes


def _counted(left_out: int, span_ms: int) -> str:
    """What is added to a line for those that were left out before it."""
    return f" ({left_out} more in the last {span_ms / 1_000:.0f} s)" if left_out else ""
