"""The minutes of a history file: the moments that each of them has, and the partitions that were under min ISR or
offline in it.

    minutes = RecordedMinutes()
    minutes.read(history)                    again and again: reads on, for a short time at most
    minutes.counts(from_ms), minutes.troubled

A file of days is not read in one go: between two reads, moments of it are shown.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from barnabas.console.troubled_minutes import MINUTE_MS, TroubledMinutes, minute_of, troubled_topics
from barnabas.history.gaps import Gap
from barnabas.history.reader import History

#: The time that one read takes for the states of moments.
_READ_S: Final = 0.1
#: The number of moments of a minute whose states are read: the last one, and some before it.
_MOMENTS_MAX: Final = 8


class RecordedMinutes:
    """`until_ms`: the time up to which states are read; None for the whole file."""

    def __init__(self, until_ms: int | None = None) -> None:
        self.troubled = TroubledMinutes()
        self._until_ms = until_ms
        self._moments: dict[int, int] = {}
        #: The minute from which on moments are not counted yet.
        self._counted = 0
        #: The last minute whose states were read, and how many partitions of each topic were in trouble at its end.
        self._read = -1
        self._present: Mapping[str, int] = {}

    def counts(self, from_ms: int) -> dict[int, int]:
        """Returns the moments of each minute that had any, from the minute of a time on."""
        return {minute: count for minute, count in self._moments.items() if minute + MINUTE_MS > from_ms}

    def read(self, history: History) -> None:
        """Counts the new moments, and reads the next states. Raises HistoryError."""
        first_ms, last_ms = history.span()
        self._moments |= Counter(minute_of(time_ms) for time_ms in history.times(self._counted, last_ms))
        self._counted = minute_of(last_ms)
        until_ms = last_ms if self._until_ms is None else min(last_ms, self._until_ms)
        gaps, begin_s = history.gaps(), time.monotonic()
        for minute in sorted(minute for minute in self._moments if self._read < minute <= until_ms):
            if time.monotonic() - begin_s > _READ_S:
                return
            self._remain(minute, gaps)
            times = [each for each in history.times(minute, minute + MINUTE_MS - 1) if first_ms <= each <= until_ms]
            for time_ms in _some(times):
                self._present = troubled_topics(history.at(time_ms))
                self.troubled.note(time_ms, self._present)
            self._read = minute
        self._remain(minute_of(until_ms), gaps)

    def _remain(self, until: int, gaps: Sequence[Gap]) -> None:
        """Notes the trouble of the minutes after the last one that was read, in which nothing changed."""
        if self._present and self._read < until:
            for first, last in _outside(gaps, self._read + MINUTE_MS, until):
                self.troubled.remain(first, last, self._present)
        self._read = max(self._read, until)


def _outside(gaps: Sequence[Gap], first: int, last: int) -> Iterator[tuple[int, int]]:
    """Yields the first and the last of the minutes from one to another that begin in no gap."""
    for gap in sorted(gaps):
        end_ms = last + MINUTE_MS if gap.end_ms is None else gap.end_ms
        if end_ms <= first or gap.begin_ms >= last:
            continue
        if gap.begin_ms >= first:
            yield first, minute_of(gap.begin_ms)
        first = -(-end_ms // MINUTE_MS) * MINUTE_MS
    if first <= last:
        yield first, last


def _some(times: Sequence[int]) -> list[int]:
    """Returns some of several times, in order, the last one always."""
    distinct = sorted(set(times))
    step = -(-len(distinct) // _MOMENTS_MAX) or 1
    return distinct[::-1][::step][::-1]
