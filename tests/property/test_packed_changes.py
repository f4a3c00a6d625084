"""Packed changes tell what single ones tell: the same partitions, kinds, states, causes, events of the time line and
lanes, after any sequence of decisions, written in bulk or one by one, looked at as often as one likes.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.support.watched import T0, look_at

from barnabas.console.occurrences import Occurrences
from barnabas.monitor import course as course_module
from barnabas.monitor import packed_changes as packed_module
from barnabas.monitor.availability import Availability
from barnabas.monitor.changes import Change, Event
from barnabas.monitor.course import Course
from barnabas.monitor.journal_events import JournalEvents
from barnabas.monitor.table import ClusterTable
from barnabas.testing.phantom_state import PhantomState

TOPICS, PARTITIONS, BROKERS = 20, 4, 4
Step = tuple[str, int]
STEPS = st.lists(
    st.tuples(st.sampled_from(["kill", "start", "elect", "one", "look", "look", "tell"]), st.integers(1, 1_000)),
    min_size=3,
    max_size=14,
)


class Watcher:
    """A course with its table and time line. `packs` as the console, else as the command."""

    def __init__(self, state: PhantomState, *, packs: bool, is_exact: bool) -> None:
        self.table = ClusterTable()
        self.course = Course(self.table, packs=packs, wait_ms=0)
        self.course.has_journal = True
        self.occurrences = Occurrences()
        self.availability = Availability(self.table)
        self.changes: list[Change] = []
        self.packed_rows = 0
        self._journal = JournalEvents(self.table, None, T0) if is_exact else None
        self.table.apply(look_at(state, T0, range(1, BROKERS + 1)))
        self.table.subscribe(self.course.seen)

    def look(self, state: PhantomState, now_ms: int) -> None:
        self.table.apply(look_at(state, now_ms, range(1, BROKERS + 1)))

    def tell(self, events: list[Event], now_ms: int) -> None:
        if self._journal is not None:
            self._journal.apply(events)
        self._take(self.course.explained(events, now_ms))

    def _take(self, changes: list[Change]) -> None:
        self.changes += changes
        for change in changes:
            self.availability.count(change)
        self.occurrences.add(changes)
        new = self.course.packed()
        for packed in new:
            self.packed_rows += len(packed)
            parts = list(packed.in_parts())
            places = [(each.topic, each.before and each.before.partition) for part in parts for each in part]
            assert places == sorted(places)
            assert all(one[-1].topic != other[0].topic for one, other in pairwise(parts)), "a topic is in one part"
            self.changes += [change for part in parts for change in part]
            self.availability.count_packed(packed)
        self.occurrences.add_packed(new)


def decide(state: PhantomState, step: Step) -> None:
    kind, number = step
    broker = 1 + number % BROKERS
    if kind == "kill" and len(state.alive) > 1:
        state.kill(broker)
    elif kind == "start":
        state.start(broker)
    elif kind == "elect":
        state.elect_preferred()
    elif kind == "one":
        name = f"topic-{number % TOPICS:05}"
        row = state.topics[name].partitions[number % PARTITIONS]
        if len(row.isr) > 1 and row.leader != row.isr[-1]:
            state.shrink_isr(name, number % PARTITIONS, row.isr[-1])


def lanes(watcher: Watcher, topic: str, place: int) -> list[Any]:
    return [
        (each.time_ms, each.leader, each.leader_epoch, set(each.isr), each.replicas, each.cause, each.codes)
        for each in watcher.occurrences.course(topic, place, T0)
    ]


def told(changes: list[Change]) -> Counter[Any]:
    return Counter(
        (
            each.subject,
            each.kind,
            str(each.before),
            str(each.after),
            each.cause,
            codes(each),
            each.severity,
            each.time_ms,
        )
        for each in changes
        if each.before is not None
    )


def codes(change: Change) -> tuple[str | None, ...]:
    return tuple(event.get("cause") for event in change.events)


def shown(occurrences: Occurrences) -> Counter[Any]:
    names = ("kind", "subject", "topic", "severity", "cause", "count", "time_ms")
    return Counter(
        (*(event.shown[name] for name in names), *sorted(event.shown["text"].split(", ")))
        for event in occurrences.events
    )


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(course_module, "PACKED_FROM", 1)
    monkeypatch.setattr(packed_module, "_PART_ROWS", 5)


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize("is_exact", [False, True], ids=["looks", "journal"])
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=STEPS)
@example(steps=[("kill", 1), ("start", 1), ("kill", 1)])
def test_packed_changes_tell_what_single_ones_tell(is_exact: bool, steps: list[Step]) -> None:
    events: list[Event] = []
    clock = [T0]
    state = PhantomState(
        topics=TOPICS,
        partitions=PARTITIONS,
        replication=3,
        brokers=BROKERS,
        now_ms=lambda: clock[0],
        on_events=lambda new: events.extend(new),
    )
    packs, singles = (Watcher(state, packs=each, is_exact=is_exact) for each in (True, False))
    for step in [*steps, ("look", 1), ("tell", 1), ("tell", 1)]:
        clock[0] += 100
        decide(state, step)
        for watcher in (packs, singles):
            if step[0] == "look":
                watcher.look(state, clock[0])
            if step[0] == "tell":
                watcher.tell(list(events), clock[0])
        if step[0] == "tell":
            events.clear()
    assert told(packs.changes) == told(singles.changes)
    assert packs.availability.elections == singles.availability.elections
    assert shown(packs.occurrences) == shown(singles.occurrences)
    for topic, index, _ in state.every():
        assert lanes(packs, topic.name, index) == lanes(singles, topic.name, index)
        one, other = (each.occurrences.last_cause(topic.name, index) for each in (packs, singles))
        assert (one is None) == (other is None)


def test_few_changes_are_not_packed() -> None:
    state = PhantomState(topics=TOPICS, partitions=PARTITIONS, replication=3, brokers=BROKERS)
    watcher = Watcher(state, packs=True, is_exact=False)
    state.kill(2)
    watcher.look(state, T0 + 1)
    watcher.tell([], T0 + 2)
    assert watcher.packed_rows == 0
    assert len(watcher.changes) > 20


def test_the_changes_of_a_thousand_partitions_are_packed() -> None:
    state = PhantomState(topics=600, partitions=PARTITIONS, replication=3, brokers=BROKERS)
    watcher = Watcher(state, packs=True, is_exact=False)
    state.kill(2)
    watcher.look(state, T0 + 1)
    watcher.tell([], T0 + 2)
    assert watcher.packed_rows > 1_000
    (packed, *_) = watcher.occurrences.events
    assert packed.shown["count"] > 500
