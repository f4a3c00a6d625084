"""Limited log lines for frequent events: one line in ten seconds for each cause, with a count.

    reports.report("metadata log full", "the metadata log cannot be written: ...", error)   ERROR, limited
    reports.inform("quorum leader", "node 2 leads epoch 7")                                 INFO, limited
    reports.over("metadata log full", "the metadata log can be written again")              INFO, if it was reported

The first line of a cause is written immediately. Events within `interval_ms` after a line are counted, and the next
line of that cause, or the line that ends it, contains the count. `LineLimit` is the same for a log of one's own.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final

from barnabas.common.host import Clock, FaultHandler

INTERVAL_MS: Final = 10_000
#: With more causes than this the oldest is dropped: peers can choose the names of causes.
CAUSES_MAX: Final = 1_000


class _Cause:
    __slots__ = ("left_out", "since_ms", "written_ms")

    def __init__(self, now_ms: int) -> None:
        #: The time of the first line since the last `over`.
        self.since_ms = now_ms
        self.written_ms = now_ms
        self.left_out = 0


class LineLimit:
    """Decides which lines are written: the first of a cause, then one per interval."""

    __slots__ = ("_causes", "_causes_max", "_interval_ms", "_now_ms")

    def __init__(
        self, now_ms: Callable[[], int], interval_ms: int = INTERVAL_MS, *, causes_max: int = CAUSES_MAX
    ) -> None:
        self._now_ms = now_ms
        self._interval_ms = interval_ms
        self._causes_max = causes_max
        self._causes: dict[Hashable, _Cause] = {}

    def __len__(self) -> int:
        """Returns how many causes are remembered."""
        return len(self._causes)

    def suffix(self, cause: Hashable) -> str | None:
        """Returns the text to append to a line of this cause, which counts those left out; None to leave it out."""
        now_ms = self._now_ms()
        known = self._causes.get(cause)
        if known is None:
            if len(self._causes) >= self._causes_max:
                del self._causes[next(iter(self._causes))]
            self._causes[cause] = _Cause(now_ms)
            return ""
        if now_ms - known.written_ms < self._interval_ms:
            known.left_out += 1
            return None
        text = _counted(known.left_out, now_ms - known.written_ms)
        known.written_ms, known.left_out = now_ms, 0
        return text

    def over(self, cause: Hashable) -> str | None:
        """Forgets a cause. Returns the text to append to the line that ends it; None if it was not reported."""
        known = self._causes.pop(cause, None)
        if known is None:
            return None
        now_ms = self._now_ms()
        lasted_s = (now_ms - known.since_ms) / 1_000
        return f", after {lasted_s:.1f} s{_counted(known.left_out, now_ms - known.written_ms)}"

    def is_known(self, cause: Hashable) -> bool:
        """Returns whether this cause was reported and is not over."""
        return cause in self._causes


class LimitedReports:
    """The reports of one part of the broker; each part has its own causes."""

    __slots__ = ("_faults", "_limit")

    def __init__(self, faults: FaultHandler, clock: Clock, interval_ms: int = INTERVAL_MS) -> None:
        self._faults = faults
        self._limit = LineLimit(clock.now_ms, interval_ms)

    def report(self, cause: Hashable, message: str, error: BaseException | None = None) -> None:
        """Reports a fault, unless a line of this cause was written less than `interval_ms` ago."""
        suffix = self._limit.suffix(cause)
        if suffix is not None:
            self._faults.report(message + suffix, error)

    def inform(self, cause: Hashable, message: str) -> None:
        """Writes an INFO line, limited to one per cause and interval like those of `report`."""
        suffix = self._limit.suffix(cause)
        if suffix is not None:
            self._faults.inform(message + suffix)

    def over(self, cause: Hashable, message: str) -> bool:
        """Writes one INFO line that this cause is over, if it was reported before. Returns whether it was."""
        suffix = self._limit.over(cause)
        if suffix is None:
            return False
        self._faults.inform(message + suffix)
        return True

    def is_reported(self, cause: Hashable) -> bool:
        """Whether this cause was reported and is not over."""
        return self._limit.is_known(cause)


def _counted(left_out: int, span_ms: int) -> str:
    """Returns the suffix that counts the lines left out before this one."""
    return f" ({left_out} more in the last {span_ms / 1_000:.0f} s)" if left_out else ""
