"""The causes of changes: observed changes matched with the events of the journal (docs/explain.md).

An event arrives shortly after its change, so a change waits for it for a limited time and is then shown with or without
a cause. If the cluster turns out to have no journal, nothing waits. The order is kept: a change never overtakes an
earlier one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Final

import numpy as np

from barnabas.common.bulk_events import is_bulk
from barnabas.monitor.changes import Change, Event
from barnabas.monitor.columns import UNKNOWN
from barnabas.monitor.packed_causes import explain
from barnabas.monitor.packed_changes import Cause, PackedChanges
from barnabas.monitor.partition_state import PartitionState
from barnabas.monitor.recent_bulk_events import RecentBulkEvents

#: The journal is created about a second after the first change that needs it.
WAIT_MS: Final = 4_000
_EVENTS_MAX: Final = 20_000
#: Ids that are remembered, to recognize a second copy.
_IDS_MAX: Final = 60_000
#: Partitions of packed changes that are looked up one by one.
_SINGLES_MAX: Final = 2_000
#: The topic and partition that an event is about; None for any other subject.
_Subject = tuple[str, int] | None
_BROKER_KINDS: Final = {
    "broker-gone": frozenset({"broker-fenced", "controlled-shutdown", "broker-unregistered"}),
    "broker-there": frozenset({"broker-unfenced", "broker-registered"}),
}
#: Changes that no journal explains.
_SELF_EVIDENT: Final = frozenset({"broker-silent", "broker-answers", "broker-moved", "unreachable", "reachable"})
#: Changes that a journal explains, but that do not cause its creation.
_QUIET: Final = frozenset(
    {"topic-created", "partitions-added", "topic-deleted", "min-isr-changed", "controller-change"}
)


class RecentEvents:
    """The recent events of a cluster's journal. An event that explained a change of a subject explains no later change
    of the same subject.
    """

    def __init__(self) -> None:
        self._order: deque[_Subject] = deque()
        self._by_subject: dict[_Subject, deque[tuple[int, Event]]] = {}
        self._bulks = RecentBulkEvents()
        self._known: dict[str, None] = {}
        self._count = 0
        #: Subject of a change -> number of the last event that explained one. Partitions have none: what explained a
        #: change of a partition is dropped.
        self._used: dict[str, int] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_subject.values())) + len(self._bulks)

    def add(self, events: Iterable[Event]) -> None:
        """Adds an event, in the order of the journal; an event can arrive twice."""
        for event in events:
            if event["id"] in self._known:
                continue
            if len(self._known) == _IDS_MAX:
                del self._known[next(iter(self._known))]
            self._known[event["id"]] = None
            if is_bulk(event):
                self._bulks.add(self._count, event)
                self._count += 1
                continue
            if len(self._order) == _EVENTS_MAX:
                self._drop_first(self._order.popleft())
            subject = _subject(event)
            self._order.append(subject)
            self._by_subject.setdefault(subject, deque()).append((self._count, event))
            self._count += 1

    def explain(self, change: Change) -> Change | None:
        """Returns the change with its events and the time of the last one; None if the journal has no cause for it
        (yet).
        """
        if change.before is not None and change.after is not None and change.kind != "min-isr-changed":
            found = self._explain_partition(change.before, change.after, change.time_ms)
        else:
            found = self._explain_other(change)
        if not found:
            return None
        events = tuple(event for _, event in found)
        return replace(change, events=events, time_ms=events[-1]["time_ms"])

    def explain_packed(self, packed: PackedChanges) -> None:
        """Finds the causes of packed changes that have none yet."""
        # A decision of few partitions is not written in bulk: its partitions are looked up one by one.
        for place in self._with_own_events(packed):
            (change,) = packed.changes([place])
            assert change.before is not None, "it is a changed partition"
            assert change.after is not None, "it is a changed partition"
            events = [event for _, event in self._explain_partition(change.before, change.after, change.time_ms)]
            if events:
                texts = tuple(str(event["text"]) for event in events)
                codes = tuple(str(event["cause"]) if event.get("cause") else None for event in events)
                packed.cause[place] = packed.number_of(Cause(texts, codes, int(events[-1]["time_ms"])))
        explain(packed, self._bulks.newest_first)

    def forget_used(self) -> None:
        """Drops what can explain no further change."""
        self._bulks.forget_used()

    def _with_own_events(self, packed: PackedChanges) -> list[int]:
        """Returns the places of partitions without a cause that have events of their own."""
        numbers = packed.numbers_by_name() if self._by_subject else {}
        own = [
            (numbers[key[0]], key[1])
            for key in islice(reversed(self._by_subject), _SINGLES_MAX)
            if key is not None and key[0] in numbers
        ]
        if not own:
            return []
        topics, partitions = np.array(own, np.int32).T
        places = packed.find(topics, partitions)
        places = places[places != UNKNOWN]
        found: list[int] = places[packed.cause[places] == UNKNOWN].tolist()
        return found

    def _explain_partition(
        self, before: PartitionState, after: PartitionState, time_ms: int
    ) -> list[tuple[int, Event]]:
        key = after.topic, after.partition
        own = self._by_subject.get(key, deque())
        packed = self._bulks.of_partition(*key)
        found = _of_partition(sorted([*own, *packed], key=_number) if packed else list(own), before, after, time_ms)
        while found and own and own[0][0] <= found[-1][0]:
            own.popleft()
        if found and packed:
            self._bulks.use(*key, found[-1][0])
        if not own:
            self._by_subject.pop(key, None)
        return found

    def _explain_other(self, change: Change) -> list[tuple[int, Event]]:
        after = self._used.get(change.subject, -1)
        for number, event in reversed(self._by_subject.get(None, ())):
            if number > after and _is_of(event, change):
                self._used[change.subject] = number
                return [(number, event)]
        return []

    def _drop_first(self, subject: _Subject) -> None:
        events = self._by_subject.get(subject)
        if events:
            events.popleft()
            if not events:
                del self._by_subject[subject]


def _number(numbered: tuple[int, Event]) -> int:
    return numbered[0]


def _subject(event: Event) -> _Subject:
    """Returns the partition that an event is about; None for an event about anything else."""
    is_of_states = isinstance(event.get("before"), dict) and isinstance(event.get("after"), dict)
    return (str(event["topic"]), int(event["partition"])) if is_of_states and "partition" in event else None


def _of_partition(
    own: list[tuple[int, Event]], before: PartitionState, after: PartitionState, time_ms: int
) -> list[tuple[int, Event]]:
    """Returns the events from the one that left the old state to the one that reached the new state. If several reached
    it, that is the last one until the change was seen, or the last of all where the clocks differ.
    """
    reaching = [place for place in range(len(own)) if _agrees(own[place][1]["after"], after)]
    if not reaching:
        return []
    last = max((place for place in reaching if own[place][1]["time_ms"] <= time_ms), default=reaching[-1])
    first = next((place for place in range(last, -1, -1) if _agrees(own[place][1]["before"], before)), last)
    return own[first : last + 1]


def _agrees(event: Event, state: PartitionState) -> bool:
    return (
        event.get("leader") == state.leader
        and event.get("leader_epoch") == state.leader_epoch
        and set(event.get("isr", ())) == set(state.isr)
        and list(event.get("replicas", ())) == list(state.replicas)
    )


def _is_of(event: Event, change: Change) -> bool:
    kind = str(event["kind"])
    if change.kind in _BROKER_KINDS:
        return kind in _BROKER_KINDS[change.kind] and event.get("broker") == change.broker
    if change.kind == "controller-change":
        return kind == "controller-change" and event.get("controller") == change.broker
    if change.kind == "min-isr-changed":
        return kind == "config-changed" and event.get("name") == change.topic
    if event.get("topic") != change.topic:
        return False
    if change.kind == "topic-deleted":
        return kind == "topic-deleted"
    first = event.get("first_partition")
    partition = change.created[0].partition if change.created else 0
    return first is not None and first <= partition < first + event["partitions"]


class Pending:
    """The observed changes that wait for their causes."""

    def __init__(self, *, wait_ms: int = WAIT_MS) -> None:
        self._wait_ms = wait_ms
        self._waiting: deque[tuple[int, Change | PackedChanges]] = deque()
        #: Packed changes that can be shown.
        self.packed: list[PackedChanges] = []
        #: Whether the cluster has a journal; None while this is unknown.
        self._has_journal: bool | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, changes: Iterable[Change | PackedChanges], now_ms: int) -> None:
        self._waiting.extend((now_ms + self._wait_ms, change) for change in changes)

    def take(self, journal: RecentEvents, now_ms: int, *, has_journal: bool, at_once: bool = False) -> list[Change]:
        """Removes and returns the changes that can be shown now; all of them with `at_once`, if the journal cannot be
        read. Packed ones go to `packed`.
        """
        parts = self.taking(journal, now_ms, has_journal=has_journal, at_once=at_once)
        return [change for part in parts for change in part]

    def taking(
        self, journal: RecentEvents, now_ms: int, *, has_journal: bool, at_once: bool = False
    ) -> Iterator[list[Change]]:
        """Yields what `take` returns, in parts, one for each version whose changes are packed."""
        if has_journal:
            self._has_journal = True
        ready: list[Change] = []
        while self._waiting:
            deadline_ms, change = self._waiting[0]
            explained = _explained(change, journal)
            if explained is None and not at_once and self._may_come(change):
                if now_ms < deadline_ms:
                    break
                if self._has_journal is None:
                    self._has_journal = False
            self._waiting.popleft()
            shown = explained or change
            if isinstance(shown, PackedChanges):
                self.packed.append(shown)
                yield ready
                ready = []
            else:
                ready.append(shown)
        yield ready
        journal.forget_used()

    def _may_come(self, change: Change | PackedChanges) -> bool:
        """Whether the journal can still deliver a cause of the change."""
        if not isinstance(change, PackedChanges):
            if change.kind in _SELF_EVIDENT:
                return False
            if change.kind in _QUIET:
                return self._has_journal is True
        return self._has_journal is not False


def _explained(change: Change | PackedChanges, journal: RecentEvents) -> Change | PackedChanges | None:
    """Returns a change with its cause; None if there is none yet."""
    if isinstance(change, PackedChanges):
        journal.explain_packed(change)
        return change if not change.unexplained else None
    return None if change.kind in _SELF_EVIDENT else journal.explain(change)
