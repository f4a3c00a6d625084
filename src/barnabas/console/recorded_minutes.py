"""The minutes of a history file: the moments that each of them has, and the partitions that were under min ISR or
offline in it, whether anything changed or not.

    minutes = RecordedMinutes()
    minutes.read(history)                    again and again: reads some more minutes, the newest first
    minutes.moments(from_ms)                 how many moments each minute has
    minutes.troubled(from_ms, sees_topic)    partitions by minute

A file of days is not read in one go: between two reads, moments of it are shown.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

from barnabas.console.troubled_minutes import MINUTE_MS, minute_of, troubled_topics
from barnabas.history.gaps import Gap
from barnabas.history.reader import History

#: The time that one read takes for the states of moments, and the pause after it.
_READ_S: Final = 0.1
_PAUSE_S: Final = 1.0
#: The number of moments of a minute whose states are read: the last one, and some before it.
_MOMENTS_MAX: Final = 4

#: Partitions by topic.
Counts = Mapping[str, int]


class RecordedMinutes:
    """`until_ms`: the time up to which states are read; None for the whole file."""

    def __init__(self, until_ms: int | None = None) -> None:
        self._wanted_until_ms = until_ms
        self._until_ms = 0
        self._moments: dict[int, int] = {}
        #: The minute from which on moments are not counted yet.
        self._counted = 0
        #: The largest numbers in each minute that was read, and those at its end.
        self._most: dict[int, Counts] = {}
        self._last: dict[int, Counts] = {}
        self._gaps: list[Gap] = []
        self._next_s = 0.0

    def moments(self, from_ms: int) -> dict[int, int]:
        """Returns the moments of each minute that had any, from the minute of a time on."""
        return {minute: count for minute, count in self._moments.items() if minute + MINUTE_MS > from_ms}

    def read(self, history: History) -> None:
        """Counts the new moments, and reads the states of some more minutes. Raises HistoryError."""
        _, last_ms = history.span()
        self._moments |= Counter(minute_of(time_ms) for time_ms in history.times(self._counted, last_ms))
        self._counted = minute_of(last_ms)
        self._until_ms = last_ms if self._wanted_until_ms is None else min(last_ms, self._wanted_until_ms)
        self._gaps = sorted(history.gaps())
        begin_s = time.monotonic()
        if begin_s < self._next_s:
            return
        left = {minute for minute in self._moments if minute <= self._until_ms} - self._last.keys()
        for minute in sorted(left, reverse=True):
            if time.monotonic() - begin_s > _READ_S:
                break
            self._read_minute(history, minute)
        self._next_s = time.monotonic() + _PAUSE_S

    def troubled(self, from_ms: int, sees_topic: Callable[[str], bool]) -> dict[int, int]:
        """Returns the partitions under min ISR or offline of each minute that had any and was read."""
        found: dict[int, int] = {}
        known = sorted(self._moments.keys() & self._last.keys() | {self._until_ms + MINUTE_MS})
        every = sorted(minute for minute in self._moments if minute <= self._until_ms)
        followers = dict(pairwise([*every, minute_of(self._until_ms) + MINUTE_MS]))
        before: tuple[int, Counts] = (-MINUTE_MS, {})
        for minute in known[:-1]:
            # The state before the first moment of a minute is the one at the end of the minute before.
            old = before[1] if before[0] == minute and not self._is_gap(minute) else {}
            names = {name for name in (*old, *self._most[minute]) if sees_topic(name)}
            if count := sum(max(old.get(name, 0), self._most[minute].get(name, 0)) for name in names):
                found[minute] = count
            end = followers[minute]
            remain = sum(count for name, count in self._last[minute].items() if sees_topic(name))
            for first, past in _outside(self._gaps, minute + MINUTE_MS, end) if remain else ():
                found |= dict.fromkeys(range(first, past, MINUTE_MS), remain)
            before = (end, self._last[minute])
        return {minute: count for minute, count in found.items() if minute + MINUTE_MS > from_ms}

    def _is_gap(self, time_ms: int) -> bool:
        return any(gap.covers(time_ms) for gap in self._gaps)

    def _read_minute(self, history: History, minute: int) -> None:
        times = [each for each in history.times(minute, minute + MINUTE_MS - 1) if each <= self._until_ms]
        most: Counter[str] = Counter()
        last: Counts = {}
        for time_ms in _some(times):
            last = troubled_topics(history.at(time_ms))
            most |= Counter(last)
        self._most[minute], self._last[minute] = most, last


def _outside(gaps: Sequence[Gap], first: int, past: int) -> Iterator[tuple[int, int]]:
    """Yields parts of the minutes from one to another, the last one excluded, that begin in no gap."""
    for gap in gaps:
        end_ms = past if gap.end_ms is None else gap.end_ms
        if end_ms <= first or gap.begin_ms >= past:
            continue
        if gap.begin_ms >= first:
            yield first, minute_of(gap.begin_ms) + MINUTE_MS
        first = -(-end_ms // MINUTE_MS) * MINUTE_MS
    if first < past:
        yield first, past


def _some(times: Sequence[int]) -> list[int]:
    """Returns some of several times, in order, the last one always."""
    distinct = sorted(set(times))
    step = -(-len(distinct) // _MOMENTS_MAX) or 1
    return distinct[::-1][::step][::-1]
