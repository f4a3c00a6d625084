"""Limited log lines for frequent events: one line in ten seconds for each cause, with a count.

    reports.report("metadata log full", "the metadata log cannot be written: ...", error)   ERROR, limited
    reports.inform("quorum leader", "node 2 leads epoch 7")                                 INFO, limited
    reports.over("metadata log full", "the metadata log can be written again")              INFO, if it was reported

The first line of a cause is written immediately. Events within `interval_ms` after a line are counted, and the next
line of that cause, or the line that ends it, contains the count.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final

from barnabas.common.host import Clock, FaultHandler

INTERVAL_MS: Final = 10_000
#: With more causes than this the oldest is dropped: peers can choose the names of causes.
_CAUSES_MAX: Final = 1_000


class _Cause:
    __slots__ = ("left_out", "since_ms", "written_ms")

    def __init__(self, now_ms: int) -> None:
        #: The time of the first line since the last `over`.
        self.since_ms = now_ms
        self.written_ms = now_ms
        self.left_out = 0


class LimitedReports:
    """The reports of one part of the broker; each part has its own causes."""

    __slots__ = ("_causes", "_clock", "_faults", "_interval_ms")

    def __init__(self, faults: FaultHandler, clock: Clock, interval_ms: int = INTERVAL_MS) -> None:
        self._faults = faults
        self._clock = clock
        self._interval_ms = interval_ms
        self._causes: dict[Hashable, _Cause] = {}

    def report(self, cause: Hashable, message: str, error: BaseException | None = None) -> None:
        """Reports a fault, unless a line of this cause was written less than `interval_ms` ago."""
        self._write(cause, message, lambda text: self._faults.report(text, error))

    def inform(self, cause: Hashable, message: str) -> None:
        """Writes an INFO line, limited to one per cause and interval like those of `report`."""
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
        """Writes one INFO line that this cause is over, if it was reported before. Returns whether it was."""
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
    """Returns the suffix that counts the lines left out before this one."""
    return f" ({left_out} more in the last {span_ms / 1_000:.0f} s)" if left_out else ""
