"""The changes between two snapshots, replayed over the first one, give the second; equal snapshots have no changes."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.support.watched import T0, explained, partition, snapshot

from barnabas.monitor.changes import diff, replayed
from barnabas.monitor.course import Course
from barnabas.monitor.partition_state import PartitionState
from barnabas.monitor.severity import Severity
from barnabas.monitor.snapshot import Snapshot

BROKERS = (1, 2, 3, 4)


@st.composite
def states(draw: st.DrawFn, name: str, topic_id: bytes) -> PartitionState:
    replicas = tuple(draw(st.lists(st.sampled_from(BROKERS), min_size=1, max_size=3, unique=True)))
    isr = tuple(draw(st.lists(st.sampled_from(replicas), unique=True)))
    leader = draw(st.sampled_from((*isr, -1)))
    epoch, min_isr = draw(st.integers(0, 3)), draw(st.sampled_from((None, 1, 2, 3)))
    return partition(name, leader=leader, epoch=epoch, replicas=replicas, isr=isr, min_isr=min_isr, topic_id=topic_id)


@st.composite
def looks(draw: st.DrawFn) -> Snapshot:
    found = []
    for topic in draw(st.lists(st.sampled_from("abc"), unique=True)):
        topic_id = draw(st.sampled_from((b"1", b"2")))
        count = draw(st.integers(1, 3))
        found += [draw(states(f"{topic}-{index}", topic_id)) for index in range(count)]
    brokers = tuple(draw(st.lists(st.sampled_from(BROKERS), unique=True)))
    return snapshot(*found, brokers=brokers, controller=draw(st.sampled_from((-1, 1, 2))))


@given(looks(), looks())
def test_replaying_the_changes_gives_what_was_seen(before: Snapshot, after: Snapshot) -> None:
    found = replayed(before.partitions, diff(before, after))
    assert found.keys() == after.partitions.keys()
    for key, state in after.partitions.items():
        # What is no change (the order of an ISR) may be as it was.
        assert diff(snapshot(found[key]), snapshot(state)) == []
        assert found[key].severity is state.severity


@given(looks())
def test_nothing_changed_nothing_told(look: Snapshot) -> None:
    assert diff(look, look) == []


@given(looks(), looks())
def test_every_change_can_be_shown(before: Snapshot, after: Snapshot) -> None:
    for change in diff(before, after):
        shown = change.to_json()
        assert shown["severity"] in {severity.name.lower() for severity in Severity}
        assert change.subject
        assert change.text


@given(st.lists(states("t-0", b"1"), min_size=2, max_size=6), st.data())
def test_no_change_is_lost_or_told_twice(course_of_one: list[PartitionState], data: st.DataObject) -> None:
    """Each difference between two snapshots is reported once, in order, whatever the journal contains, and when."""
    course = Course(wait_ms=100)
    came = []
    expected = []
    previous = None
    for number, state in enumerate(course_of_one):
        now_ms = T0 + 1000 * number
        if previous is not None and state.leader_epoch < previous.leader_epoch:
            continue  # an answer that is older
        look = snapshot(state, at_ms=now_ms, has_journal=True)
        events: list[Any] = []
        if previous is not None:
            expected += [change.text for change in diff(snapshot(previous), look)]
            if data.draw(st.booleans()):
                events = [explained(number, previous, state, f"cause {number}", at_ms=now_ms)]
        came += course.seen(look, events)
        previous = state
    came += course.explained([], T0 + 1_000_000)
    assert [change.text for change in came] == expected
