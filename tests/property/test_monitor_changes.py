"""The changes between two polls: replayed over the first one they give the second; equal polls have no changes."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.support.watched import T0, Watched, changed, explained, look, partition, table_of

from barnabas.monitor.changes import Change
from barnabas.monitor.delta import Delta
from barnabas.monitor.partition_state import Key, PartitionState
from barnabas.monitor.severity import Severity
from barnabas.monitor.table import ClusterTable

BROKERS = (1, 2, 3, 4)


@st.composite
def states(draw: st.DrawFn, name: str, topic_id: bytes) -> PartitionState:
    replicas = tuple(draw(st.lists(st.sampled_from(BROKERS), min_size=1, max_size=3, unique=True)))
    isr = tuple(draw(st.lists(st.sampled_from(replicas), unique=True)))
    leader = draw(st.sampled_from((*isr, -1)))
    epoch, min_isr = draw(st.integers(0, 3)), draw(st.integers(1, 3))
    return partition(name, leader=leader, epoch=epoch, replicas=replicas, isr=isr, min_isr=min_isr, topic_id=topic_id)


@st.composite
def looks(draw: st.DrawFn) -> Delta:
    found = []
    for topic in draw(st.lists(st.sampled_from("abc"), unique=True)):
        topic_id = draw(st.sampled_from((b"1", b"2")))
        count = draw(st.integers(1, 3))
        found += [draw(states(f"{topic}-{index}", topic_id)) for index in range(count)]
    brokers = tuple(draw(st.lists(st.sampled_from(BROKERS), unique=True)))
    problems = {broker: "silent" for broker in brokers if draw(st.booleans())}
    return look(*found, brokers=brokers, problems=problems, controller=draw(st.sampled_from((-1, 1, 2))))


def contents(table: ClusterTable) -> dict[Key, PartitionState]:
    return {state.key: state for state in table.values()}


def replayed(partitions: dict[Key, PartitionState], changes: list[Change]) -> dict[Key, PartitionState]:
    """Returns the states of the partitions after these changes."""
    found = dict(partitions)
    for change in changes:
        if change.kind == "topic-deleted":
            found = {key: state for key, state in found.items() if key.topic != change.topic}
        elif change.after is not None:
            found[change.after.key] = change.after
        elif change.created:
            found |= {state.key: state for state in change.created}
        elif change.before is not None:
            found.pop(change.before.key, None)
    return found


def told(state: PartitionState) -> tuple[object, ...]:
    """Returns what changes are about: neither the order of an ISR nor silent brokers."""
    return (
        state.topic_id,
        state.leader,
        state.leader_epoch,
        state.replicas,
        frozenset(state.isr),
        state.min_isr_in_force,
    )


@given(looks(), looks())
def test_replaying_the_changes_gives_what_was_seen(before: Delta, after: Delta) -> None:
    table = ClusterTable()
    table.apply(before)
    first = contents(table)
    changes = changed(before, after)
    table.apply(after)
    found = replayed(first, changes)
    assert {key: told(state) for key, state in found.items()} == {
        key: told(state) for key, state in contents(table).items()
    }


@given(looks())
def test_an_unchanged_state_reports_no_change(seen: Delta) -> None:
    assert changed(seen, seen) == []


@given(looks(), looks())
def test_every_change_can_be_shown(before: Delta, after: Delta) -> None:
    for change in changed(before, after):
        shown = change.to_json()
        assert shown["severity"] in {severity.name.lower() for severity in Severity}
        assert change.subject
        assert change.text


@given(looks(), looks())
def test_severities_of_columns_are_those_of_the_values(before: Delta, after: Delta) -> None:
    table = ClusterTable()
    for each in (before, after):
        table.apply(each)
        by_row = dict(zip(table.rows.tolist(), table.severities().tolist(), strict=True))
        rows = table.in_order().tolist()
        assert [by_row[row] for row in rows] == [state.severity for state in table.values()]


@given(st.lists(states("t-0", b"1"), min_size=2, max_size=6), st.data())
def test_no_change_is_lost_or_reported_twice(course_of_one: list[PartitionState], data: st.DataObject) -> None:
    """Each difference between two polls is reported once, in order, whatever the journal contains, and when."""
    watched = Watched(wait_ms=100, has_journal=True)
    came = []
    expected = []
    previous = None
    for number, state in enumerate(course_of_one):
        now_ms = T0 + 1000 * number
        if previous is not None and state.leader_epoch < previous.leader_epoch:
            continue  # an answer that is older
        events: list[Any] = []
        if previous is not None:
            # The known min ISR stays until another one is reported.
            after = partition_with(state, previous.min_isr)
            expected += [change.text for change in changed(look(previous), look(after))]
            if data.draw(st.booleans()):
                events = [explained(number, previous, after, f"cause {number}", at_ms=now_ms)]
            state = after
        came += watched.seen(look(state, at_ms=now_ms), events)
        previous = state
    came += watched.course.explained([], T0 + 1_000_000)
    assert [change.text for change in came] == expected


def partition_with(state: PartitionState, min_isr: int | None) -> PartitionState:
    known = next(table_of(state).values())
    return partition(
        str(state.key),
        leader=state.leader,
        epoch=state.leader_epoch,
        replicas=state.replicas,
        isr=state.isr,
        min_isr=known.min_isr if known.min_isr is not None else min_isr,
        topic_id=state.topic_id,
    )
