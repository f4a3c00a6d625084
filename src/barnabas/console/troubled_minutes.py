"""The minutes in which partitions were under min ISR or offline, by topic, whether anything changed in them or not.

    minutes = TroubledMinutes()
    minutes.note(now_ms, {"orders": 3})      again and again: what is so now
    minutes.counts(from_ms, sees_topic)      partitions by minute

A topic that stays as it is needs one span, however long. A minute in which nothing was noted, because the console did
not run, is in none.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from barnabas.monitor.changes import Change
from barnabas.monitor.partition_state import PartitionState
from barnabas.monitor.severity import Severity
from barnabas.monitor.table import ClusterTable

MINUTE_MS: Final = 60_000
#: The number of spans that are kept, of all topics.
_KEPT: Final = 50_000

Key = tuple[str, int]


@dataclass(slots=True)
class _Span:
    """Minutes, the first and the last included, and the partitions in each of them."""

    first: int
    last: int
    partitions: int


class TroubledMinutes:
    def __init__(self) -> None:
        self._spans: dict[str, deque[_Span]] = {}
        #: The topic of each span, oldest first.
        self._order: deque[str] = deque()
        #: The last minute with trouble.
        self.last_ms = 0

    def note(self, now_ms: int, counts: Mapping[str, int]) -> None:
        """Notes how many partitions of each topic are under min ISR or offline now. A minute has the largest number."""
        minute = minute_of(now_ms)
        for topic, partitions in counts.items():
            self._note(topic, minute, partitions)
        if counts:
            self.last_ms = max(self.last_ms, minute)
        self._forget()

    def fill(self, changes: Iterable[Change], table: ClusterTable, until_ms: int) -> None:
        """Notes what the changes before a moment tell, of which `table` is the state then."""
        spans, begin_ms = _spans_of(changes, until_ms)
        unchanged = Counter(
            state.topic for state in table.values(troubled_rows(table)) if (state.topic, state.partition) not in spans
        )
        for topic, partitions in unchanged.items():
            self._add(topic, _Span(minute_of(begin_ms), minute_of(until_ms), partitions))
        for (topic, _), own in spans.items():
            for span in own:
                self._add(topic, span)
        self._forget()

    def counts(self, from_ms: int, sees_topic: Callable[[str], bool]) -> dict[int, int]:
        """Returns the partitions of each minute that had any, from the minute of a time on."""
        found = [span for topic, spans in self._spans.items() if sees_topic(topic) for span in spans]
        found = [span for span in found if span.last + MINUTE_MS > from_ms]
        if not found:
            return {}
        first, last = min(span.first for span in found), max(span.last for span in found)
        steps = np.zeros((last - first) // MINUTE_MS + 2, np.int64)
        np.add.at(steps, [(span.first - first) // MINUTE_MS for span in found], [span.partitions for span in found])
        np.add.at(steps, [(span.last - first) // MINUTE_MS + 1 for span in found], [-span.partitions for span in found])
        partitions = np.cumsum(steps)
        return {
            minute: int(partitions[place])
            for place in np.flatnonzero(partitions).tolist()
            if (minute := first + place * MINUTE_MS) + MINUTE_MS > from_ms
        }

    def _note(self, topic: str, minute: int, partitions: int) -> None:
        spans = self._spans.get(topic)
        last = spans[-1] if spans else None
        # A clock that goes back makes no earlier minute.
        minute = minute if last is None else max(minute, last.last)
        if last is not None and last.last == minute:
            if partitions <= last.partitions:
                return
            if last.first == minute:
                last.partitions = partitions
                return
            last.last = minute - MINUTE_MS
        elif last is not None and last.last == minute - MINUTE_MS and last.partitions == partitions:
            last.last = minute
            return
        self._add(topic, _Span(minute, minute, partitions))

    def _add(self, topic: str, span: _Span) -> None:
        self._spans.setdefault(topic, deque()).append(span)
        self._order.append(topic)

    def _forget(self) -> None:
        while len(self._order) > _KEPT:
            topic = self._order.popleft()
            self._spans[topic].popleft()
            if not self._spans[topic]:
                del self._spans[topic]


def minute_of(time_ms: int) -> int:
    return time_ms - time_ms % MINUTE_MS


def is_troubled(severity: Severity) -> bool:
    return severity >= Severity.ERROR


def troubled_rows(table: ClusterTable) -> list[int]:
    found: list[int] = table.rows[table.severities() >= Severity.ERROR].tolist()
    return found


def troubled_topics(table: ClusterTable) -> dict[str, int]:
    """Returns how many partitions of each topic are under min ISR or offline."""
    numbers = np.bincount(table.states.topic[troubled_rows(table)])
    return {table.topics.by_number[number].name: int(numbers[number]) for number in np.flatnonzero(numbers).tolist()}


def _spans_of(changes: Iterable[Change], until_ms: int) -> tuple[dict[Key, list[_Span]], int]:
    """Returns the spans of each partition that changed, and the time of the first change."""
    spans: dict[Key, list[_Span]] = {}
    since: dict[Key, int] = {}
    begin_ms: int | None = None

    def end(key: Key, time_ms: int) -> None:
        begin = minute_of(since.pop(key))
        own = spans[key]
        if own and own[-1].last >= begin:
            own[-1].last = minute_of(time_ms)
        else:
            own.append(_Span(begin, minute_of(time_ms), 1))

    for change in changes:
        begin_ms = change.time_ms if begin_ms is None else begin_ms
        if change.kind == "topic-deleted":
            for key in [key for key in since if key[0] == change.topic]:
                end(key, change.time_ms)
        for key, before, after in _states(change):
            if key not in spans:
                spans[key] = []
                if before is not None and is_troubled(before.severity):
                    since[key] = begin_ms
            is_now = after is not None and is_troubled(after.severity)
            if key in since and not is_now:
                end(key, change.time_ms)
            elif is_now:
                since.setdefault(key, change.time_ms)
    for key in list(since):
        end(key, until_ms)
    return spans, until_ms if begin_ms is None else begin_ms


def _states(change: Change) -> Iterable[tuple[Key, PartitionState | None, PartitionState | None]]:
    """Yields each partition of a change with its state before and after."""
    for state in change.created:
        yield (state.topic, state.partition), None, state
    known = change.after or change.before
    if known is not None:
        yield (known.topic, known.partition), change.before, change.after
