"""The causes of changes: observed changes matched with the events of the journal (docs/explain.md).

An event arrives shortly after its change, so a change waits for it for a limited time and is then shown with or without
a cause. If the cluster turns out to have no journal, nothing waits. The order is kept: a change never overtakes an
earlier one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from barnabas.monitor.changes import Change, Event
from barnabas.monitor.partition_state import PartitionState

#: The journal is created about a second after the first change that needs it.
WAIT_MS: Final = 4_000
_EVENTS_MAX: Final = 20_000
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
        self._events: deque[tuple[int, Event]] = deque(maxlen=_EVENTS_MAX)
        self._known: set[str] = set()
        self._count = 0
        #: Subject of a change -> number of the last event that explained one.
        self._used: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._events)

    def add(self, events: Iterable[Event]) -> None:
        """Adds an event, in the order of the journal; an event can arrive twice."""
        for event in events:
            if event["id"] in self._known:
                continue
            if len(self._events) == _EVENTS_MAX:
                self._known.discard(self._events[0][1]["id"])
            self._known.add(event["id"])
            self._events.append((self._count, event))
            self._count += 1

    def explain(self, change: Change) -> Change | None:
        """Returns the change with its events and the time of the last one; None if the journal has no cause for it
        (yet).
        """
        after = self._used.get(change.subject, -1)
        candidates = [(number, event) for number, event in self._events if number > after]
        if change.before is not None and change.after is not None and change.kind != "min-isr-changed":
            found = _of_partition(candidates, change.before, change.after)
        else:
            found = next(([entry] for entry in reversed(candidates) if _is_of(entry[1], change)), [])
        if not found:
            return None
        self._used[change.subject] = found[-1][0]
        events = tuple(event for _, event in found)
        return replace(change, events=events, time_ms=events[-1]["time_ms"])


def _of_partition(
    candidates: list[tuple[int, Event]], before: PartitionState, after: PartitionState
) -> list[tuple[int, Event]]:
    """Returns the events from the one that left the old state to the one that reached the new state."""
    own = [(number, event) for number, event in candidates if _concerns(event, after)]
    last = next((place for place in reversed(range(len(own))) if _agrees(own[place][1]["after"], after)), None)
    if last is None:
        return []
    first = next((place for place in range(last, -1, -1) if _agrees(own[place][1]["before"], before)), last)
    return own[first : last + 1]


def _concerns(event: Event, state: PartitionState) -> bool:
    return (
        event.get("topic") == state.topic
        and event.get("partition") == state.partition
        and isinstance(event.get("before"), dict)
        and isinstance(event.get("after"), dict)
    )


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
        self._waiting: deque[tuple[int, Change]] = deque()
        #: None while this is unknown.
        self._has_journal: bool | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, changes: Iterable[Change], now_ms: int) -> None:
        self._waiting.extend((now_ms + self._wait_ms, change) for change in changes)

    def take(self, journal: RecentEvents, now_ms: int, *, has_journal: bool, at_once: bool = False) -> list[Change]:
        """Removes and returns the changes that can be shown now; all of them with `at_once`, if the journal cannot be
        read.
        """
        if has_journal:
            self._has_journal = True
        ready = []
        while self._waiting:
            deadline_ms, change = self._waiting[0]
            explained = None if change.kind in _SELF_EVIDENT else journal.explain(change)
            if explained is None and not at_once and self._may_come(change):
                if now_ms < deadline_ms:
                    break
                if self._has_journal is None:
                    self._has_journal = False
            self._waiting.popleft()
            ready.append(explained or change)
        return ready

    def _may_come(self, change: Change) -> bool:
        """Whether the journal can still deliver a cause of the change."""
        if change.kind in _SELF_EVIDENT:
            return False
        return self._has_journal is True or (self._has_journal is None and change.kind not in _QUIET)
