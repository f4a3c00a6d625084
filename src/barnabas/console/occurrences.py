"""The events of the time line: the changes that the watch saw, with their causes, and those of the journal before it.

Changes of many partitions by one decision are one event. The newest events are kept, and their total is counted.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, OrderedDict, deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from operator import attrgetter
from typing import Any, Final, NamedTuple

import numpy as np

from barnabas.console.packed_events import joined_parts, moves_text, packed_event, packed_groups
from barnabas.console.packed_lanes import NO_EVENT, Lane, PackedLanes
from barnabas.console.troubled_minutes import MINUTE_MS, TroubledMinutes, is_troubled, minute_of
from barnabas.monitor.changes import Change, state_json
from barnabas.monitor.merged_texts import merged, skeleton
from barnabas.monitor.packed_changes import PackedChanges
from barnabas.monitor.partition_state import PartitionState
from barnabas.monitor.severity import Severity

#: The maximum number of events that are kept.
KEPT: Final = 20_000
#: The number of changes with the same time and cause from which on they are shown as one event.
_FOLDED_FROM: Final = 8
_SAMPLE: Final = 20
#: The number of states of single partitions that are kept for the lanes of the time line.
_LANES_KEPT: Final = 100_000
_MINUTES_KEPT: Final = 7 * 24 * 60
#: The number of minutes that the page shows.
_MINUTES_SHOWN: Final = 24 * 60

Key = tuple[str, int]
_time_of: Final = attrgetter("time_ms")


@dataclass(slots=True)
class Occurrence:
    """An event. `shown` is what the page gets. `troubled`: how many partitions it left under min ISR or offline."""

    id: int
    time_ms: int
    kind: str
    topic: str | None
    broker: int | None
    severity: Severity
    shown: dict[str, Any]
    troubled: int = 0

    @property
    def text(self) -> str:
        return f"{self.shown['subject']} {self.shown['text']} {self.shown['cause'] or ''}".lower()


class _Caused(NamedTuple):
    """A change with its cause, which takes long to join."""

    change: Change
    cause: str | None


class Occurrences:
    def __init__(self) -> None:
        self.events: list[Occurrence] = []
        self.total = 0
        self._ids = count(1)
        self._minutes: OrderedDict[int, list[int]] = OrderedDict()
        self._lanes: dict[Key, list[Lane]] = {}
        self._lane_order: deque[Key] = deque()
        #: The state of a partition before the first of its lanes.
        self._before: dict[Key, Lane] = {}
        #: The time of the last lane that is no longer kept; 0 while all are.
        self._cut_ms = 0
        self._packed = PackedLanes()
        self.troubled = TroubledMinutes()

    @property
    def last_id(self) -> int:
        return self.events[-1].id if self.events else 0

    @property
    def is_cut(self) -> bool:
        return self.total > len(self.events)

    def add(self, changes: Iterable[Change]) -> list[Occurrence]:
        """Adds changes in their order. Returns the new events."""
        known, found = list(changes), []
        events: dict[int, tuple[Occurrence, str | None]] = {}
        for group in _groups(known):
            event = self._occurrence(group)
            self._keep(event)
            found.append(event)
            events.update((id(change), (event, cause)) for change, cause in group)
        # Two changes of a partition can belong to groups whose order is another one.
        for change in known:
            self._keep_lanes(change, *events[id(change)])
        return found

    def after(self, event_id: int) -> list[Occurrence]:
        """Returns the events with a higher id, oldest first."""
        return self.events[bisect_left(self.events, event_id + 1, key=lambda each: each.id) :]

    def add_packed(self, changes: Sequence[PackedChanges]) -> list[Occurrence]:
        """Adds the changes of very many partitions, those of one step. Returns the new events."""
        return [event for some in self.adding_packed(changes) for event in some]

    def adding_packed(self, changes: Sequence[PackedChanges]) -> Iterator[list[Occurrence]]:
        """Adds what `add_packed` adds, and yields the new events, in parts of some milliseconds of work."""
        for packed, parts in joined_parts(changes):
            yield []
            numbers = np.zeros(len(packed), np.int32)
            for places, few in packed_groups(packed, _FOLDED_FROM):
                if few:
                    yield self.add(packed.changes(places.tolist()))
                    numbers[places] = -1
                    continue
                shown = packed_event(packed, places, next(self._ids))
                numbers[places] = shown["id"]
                severity = Severity[shown["severity"].upper()]
                event = Occurrence(shown["id"], shown["time_ms"], shown["kind"], shown["topic"], None, severity, shown)
                event.troubled = int(np.count_nonzero(packed.severities()[places] >= Severity.ERROR))
                self._keep(event)
                yield [event]
            begin = 0
            for part in parts:
                self._packed.add(part, numbers[begin : begin + len(part)])
                begin += len(part)
                yield []

    def lanes(self, topic: str, partition: int) -> list[Lane]:
        """Returns the states of a partition by the time of their causes, because a poll sees a change late."""
        own, packed = self._parts(topic, partition)
        return sorted([*own, *packed], key=_time_of)

    def _parts(self, topic: str, partition: int) -> tuple[list[Lane], list[Lane]]:
        """Returns the states after single changes, and those after changes of very many partitions."""
        return self._lanes.get((topic, partition), []), self._packed.of(topic, partition)

    def course(self, topic: str, partition: int, begun_ms: int) -> list[Lane]:
        """Returns the states of a partition, oldest first, with the one before the first change as far as it is known:
        since `begun_ms`, when the watch began, or since the oldest change that is kept.
        """
        own, packed = self._parts(topic, partition)
        found = sorted([*own, *packed], key=_time_of)
        if not found:
            return []
        is_own = not packed or (bool(own) and own[0].time_ms <= packed[0].time_ms)
        before = self._before.get((topic, partition)) if is_own else self._packed.before(topic, partition)
        if before is None:
            return found
        return [replace(before, time_ms=min(self.complete_from(begun_ms), found[0].time_ms)), *found]

    def complete_from(self, begun_ms: int) -> int:
        """Returns the time from which on all changes of the watch that began at `begun_ms` are kept."""
        return max(begun_ms, self._cut_ms, self._packed.cut_ms)

    def last_cause(self, topic: str, partition: int) -> Lane | None:
        found = self.lanes(topic, partition)
        return found[-1] if found else None

    def minutes(self, from_ms: int = 0) -> list[list[int]]:
        """Returns [minute, events, partitions under min ISR or offline] of the last minutes that had any."""
        troubled = self.troubled_minutes(from_ms)
        known = {minute for minute in self._minutes if minute + MINUTE_MS > from_ms} | troubled.keys()
        found = []
        for minute in sorted(known)[-_MINUTES_SHOWN:]:
            events, least = self._minutes.get(minute, (0, 0))
            found.append([minute, events, max(least, troubled.get(minute, 0))])
        return found

    def troubled_minutes(self, from_ms: int) -> dict[int, int]:
        """Returns the partitions under min ISR or offline of each minute that had any, from that of a time on."""
        return self.troubled.counts(from_ms, lambda _topic: True)

    def kinds(self, events: Iterable[Occurrence]) -> dict[str, int]:
        return dict(Counter(each.kind for each in events).most_common())

    def _keep(self, event: Occurrence) -> None:
        self.events.append(event)
        self.total += 1
        counts = self._minutes.setdefault(minute_of(event.time_ms), [0, 0])
        counts[0] += int(event.shown["count"])
        counts[1] = max(counts[1], event.troubled)
        if len(self._minutes) > _MINUTES_KEPT:
            del self._minutes[min(self._minutes)]
        if len(self.events) > KEPT:
            del self.events[: KEPT // 10]

    def _keep_lanes(self, change: Change, event: Occurrence, cause: str | None) -> None:
        codes = tuple(event.shown["codes"])
        for state in _states(change):
            key = (state.topic, state.partition)
            if key not in self._lanes and change.before is not None:
                self._before[key] = _lane(change.before, 0, None, (), NO_EVENT)
            self._lanes.setdefault(key, []).append(_lane(state, change.time_ms, cause, codes, event.id))
            self._lane_order.append(key)
        while len(self._lane_order) > _LANES_KEPT:
            self._forget(self._lane_order.popleft())

    def _forget(self, key: Key) -> None:
        """Forgets the first lane of a partition."""
        lanes = self._lanes[key]
        first = lanes.pop(0)
        self._cut_ms = max(self._cut_ms, first.time_ms)
        self._before.pop(key, None)
        if not lanes:
            del self._lanes[key]
        elif not self._packed.cut_ms and not self._packed.of(*key):
            # No packed change lies between the two lanes.
            self._before[key] = replace(first, cause=None, codes=(), id=NO_EVENT)

    def _occurrence(self, changes: list[_Caused]) -> Occurrence:
        event_id, (first, cause) = next(self._ids), changes[0]
        severity = max(change.severity for change, _ in changes)
        shown: dict[str, Any] = {
            "id": event_id,
            "time_ms": max(change.time_ms for change, _ in changes),
            "kind": first.kind,
            "subject": first.subject,
            "topic": first.topic,
            "partition": None,
            "broker": first.broker,
            "severity": severity.name.lower(),
            "text": first.text,
            "cause": cause,
            "codes": codes_of(first),
            "before": None,
            "after": None,
            "count": len(changes),
        }
        if len(changes) > 1:
            topics = {change.topic for change, _ in changes}
            shown |= {
                "subject": f"{len(changes):,} partitions",
                "topic": topics.pop() if len(topics) == 1 else None,
                "text": _folded_text(changes),
                "cause": None if cause is None else merged(list({each or "": None for _, each in changes})),
                "sample": [
                    {"topic": each.topic, "partition": each.after.partition}
                    for each, _ in changes[:_SAMPLE]
                    if each.after is not None
                ],
            }
        else:
            state = first.after or first.before
            shown |= {
                "partition": None if state is None else state.partition,
                "before": state_json(first.before),
                "after": state_json(first.after),
            }
        troubled = sum(is_troubled(state.severity) for change, _ in changes for state in _states(change))
        return Occurrence(
            event_id, shown["time_ms"], first.kind, shown["topic"], first.broker, severity, shown, troubled
        )


def codes_of(change: Change) -> list[str]:
    return [str(event["cause"]) for event in change.events if event.get("cause")]


def _lane(state: PartitionState, time_ms: int, cause: str | None, codes: tuple[str, ...], event: int) -> Lane:
    return Lane(time_ms, state.leader, state.leader_epoch, state.isr, state.replicas, cause, codes, event)


def _states(change: Change) -> Collection[PartitionState]:
    return change.created or ((change.after,) if change.after is not None else ())


def _groups(changes: Iterable[Change]) -> Iterator[list[_Caused]]:
    """Yields the changes that make one event each: many partitions with the same kind and cause are one. Causes that
    differ only in offsets and delays are the same.
    """
    skeletons: dict[str | None, str | None] = {None: None}
    many: dict[tuple[str, str | None], list[_Caused]] = {}
    for change in changes:
        caused = _Caused(change, change.cause)
        if change.before is None or change.after is None:
            yield from _folded(many)
            many = {}
            yield [caused]
            continue
        cause = caused.cause
        if cause is not None and cause not in skeletons:
            skeletons[cause] = skeleton(cause)
        many.setdefault((change.kind, skeletons[cause]), []).append(caused)
    yield from _folded(many)


def _folded(many: dict[tuple[str, str | None], list[_Caused]]) -> Iterator[list[_Caused]]:
    for group in many.values():
        if len(group) >= _FOLDED_FROM:
            yield group
        else:
            yield from ([caused] for caused in group)


def _folded_text(changes: Sequence[_Caused]) -> str:
    """Returns the moves of many partitions, the most frequent first."""
    kinds: Counter[tuple[Any, ...]] = Counter()
    samples: dict[tuple[Any, ...], Change] = {}
    for change, _ in changes:
        before, after = change.before, change.after
        assert before is not None, "only changed partitions are folded"
        assert after is not None, "only changed partitions are folded"
        key = (before.leader, before.isr, after.leader, after.isr, after.replicas, after.min_isr, after.silent)
        kinds[key] += 1
        samples.setdefault(key, change)
    return moves_text((samples[key], partitions) for key, partitions in kinds.items())
