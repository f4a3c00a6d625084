"""The minutes of the time line: their events, and the partitions that were under min ISR or offline in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pytest
from tests.support.console_server import RunningConsole, target_of
from tests.support.watched import look, partition, table_of

from barnabas.console.occurrences import Occurrences
from barnabas.console.state import ConsoleOptions, clock_ms
from barnabas.console.troubled_minutes import MINUTE_MS, TroubledMinutes, minute_of
from barnabas.monitor.changes import Change, changes_of, partition_change
from barnabas.monitor.partition_state import PartitionState
from barnabas.monitor.severity import Severity
from barnabas.monitor.table import ClusterTable
from barnabas.testing.phantom import PhantomCluster

WELL, ORDERS = partition("orders-0"), partition("orders-0", isr=(1,))
STATES = {
    Severity.OK: WELL,
    Severity.NOTICE: partition("orders-0", isr=(1, 2), min_isr=1),
    Severity.WARNING: partition("orders-0", isr=(1, 2)),
    Severity.ERROR: ORDERS,
    Severity.CRITICAL: partition("orders-0", leader=-1, isr=(1,)),
}


def changed(minute: int, was: PartitionState, now: PartitionState) -> Change:
    return partition_change(was, now, minute * MINUTE_MS + 1_000)


def noted(*counts: tuple[int, Mapping[str, int]]) -> TroubledMinutes:
    found = TroubledMinutes()
    for minute, some in counts:
        found.note(minute * MINUTE_MS + 500, some)
    return found


def by_minute(minutes: TroubledMinutes, *, since: int = 0, only: str = "") -> dict[int, int]:
    found = minutes.counts(since * MINUTE_MS, lambda topic: only in topic)
    return {minute // MINUTE_MS: partitions for minute, partitions in found.items()}


@pytest.mark.parametrize("severity", Severity)
def test_a_minute_counts_partitions_that_an_event_leaves_under_min_isr(severity: Severity) -> None:
    known = Occurrences()
    state = STATES[severity]
    assert state.severity is severity
    known.add(
        [
            changed(1, partition("orders-0", isr=(1, 3)), state),
            Change("broker-gone", "broker 2", 61_000, "is gone", Severity.ERROR),
        ]
    )
    assert known.minutes() == [[60_000, 2, int(severity >= Severity.ERROR)]]


def test_minutes_in_which_partitions_remain_under_min_isr_count_without_an_event() -> None:
    known = Occurrences()
    known.add([changed(1, WELL, ORDERS)])
    for minute in (1, 2, 3):
        known.troubled.note(minute * MINUTE_MS, {"orders": 1})
    known.troubled.note(4 * MINUTE_MS, {})
    known.add([changed(4, ORDERS, WELL)])
    assert [[minute // MINUTE_MS, *rest] for minute, *rest in known.minutes()] == [
        [1, 1, 1],
        [2, 0, 1],
        [3, 0, 1],
        [4, 1, 0],
    ]
    assert [minute // MINUTE_MS for minute, *_ in known.minutes(3 * MINUTE_MS)] == [3, 4]


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([(5, {"a": 1}), (5, {"a": 3}), (5, {"a": 2})], {5: 3}),
        ([(5, {"a": 2}), (6, {"a": 2}), (7, {"a": 2})], {5: 2, 6: 2, 7: 2}),
        ([(5, {"a": 2}), (6, {"a": 2}), (6, {"a": 3}), (7, {"a": 3}), (7, {"a": 1})], {5: 2, 6: 3, 7: 3}),
        ([(5, {"a": 3}), (6, {"a": 3}), (6, {"a": 1}), (7, {"a": 1})], {5: 3, 6: 3, 7: 1}),
        ([(5, {"a": 1}), (9, {"a": 1})], {5: 1, 9: 1}),
        ([(5, {"a": 1, "b": 2}), (6, {"b": 2}), (7, {})], {5: 3, 6: 2}),
        ([(5, {"a": 1}), (4, {"a": 7}), (6, {"a": 1})], {5: 7, 6: 1}),
    ],
)
def test_a_minute_has_the_largest_number_of_partitions(
    counts: Sequence[tuple[int, Mapping[str, int]]], expected: Mapping[int, int]
) -> None:
    assert by_minute(noted(*counts)) == expected


def test_the_minutes_of_some_topics_and_from_a_time_on() -> None:
    minutes = noted(*((minute, {"shop": 1, "secret": 5}) for minute in range(3, 8)), (8, {"secret": 5}))
    assert by_minute(minutes, only="shop") == dict.fromkeys(range(3, 8), 1)
    assert by_minute(minutes, since=6) == {6: 6, 7: 6, 8: 5}
    assert by_minute(minutes, only="other") == {}


def test_the_oldest_spans_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.console.troubled_minutes._KEPT", 3)
    assert by_minute(noted(*((minute, {"a": 1}) for minute in range(0, 20, 2)))) == {14: 1, 16: 1, 18: 1}
    assert by_minute(noted(*((minute, {"a": 1}) for minute in range(500)))) == dict.fromkeys(range(500), 1)


def test_the_changes_before_a_moment_tell_how_long_partitions_were_in_trouble() -> None:
    lonely = partition("lonely-0", isr=(1,))
    flapping = partition("flapping-0")
    short = replace(flapping, isr=(1,))
    table = table_of(lonely, WELL, flapping)
    changes = [
        changed(10, flapping, short),
        changed(10, short, flapping),
        changed(10, flapping, short),
        changed(11, short, flapping),
        changed(14, ORDERS, WELL),
    ]
    minutes = TroubledMinutes()
    minutes.fill(changes, table, 15 * MINUTE_MS)
    assert by_minute(minutes, only="lonely") == dict.fromkeys(range(10, 16), 1)
    assert by_minute(minutes, only="flapping") == {10: 1, 11: 1}
    assert by_minute(minutes, only="orders") == dict.fromkeys(range(10, 15), 1), "it was so before the first change"


def test_a_topic_is_in_trouble_from_its_creation_to_its_deletion() -> None:
    table = ClusterTable()
    table.apply(look(partition("other-0")))
    found = []
    for minute, states in ((3, [partition("other-0"), ORDERS]), (6, [partition("other-0")])):
        change_set = table.apply(look(*states, at_ms=minute * MINUTE_MS))
        assert change_set is not None
        found += changes_of(change_set, table)
    minutes = TroubledMinutes()
    minutes.fill(found, table, 9 * MINUTE_MS)
    assert by_minute(minutes) == {3: 1, 4: 1, 5: 1, 6: 1}


@pytest.fixture
def hours(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Provides by how much the clock of the console is ahead, which a test changes."""
    ahead_ms = [0]
    monkeypatch.setattr("barnabas.console.state.clock_ms", lambda: clock_ms() + ahead_ms[0])
    return ahead_ms


@pytest.fixture
def early(hours: list[int], phantom: PhantomCluster) -> Iterator[RunningConsole]:
    with RunningConsole([target_of(phantom)], ConsoleOptions(interval_s=0.1, budget_share=1.0)) as running:
        running.filled()
        yield running


def test_the_time_line_has_the_minutes_in_which_nothing_changed_and_is_told_of_them(
    early: RunningConsole, phantom: PhantomCluster, hours: list[int]
) -> None:
    phantom.change(lambda state: state.shrink_isr("topic-00003", 1, 1))
    phantom.change(lambda state: state.shrink_isr("topic-00003", 1, 2))
    early.until(lambda: bool(early.get("overview")["severity"] == "error"), "it is under min ISR")
    early.until(lambda: bool(early.get("timeline")["total"]), "the event is there")
    begin = minute_of(clock_ms())
    with early.live("timeline", severity="critical") as messages:
        assert next(messages)[1] == "hello"
        for _ in range(3):
            hours[0] += MINUTE_MS
            assert next(data for _, event, data in messages if event == "events") == {"events": []}
    minutes = {minute: (events, partitions) for minute, events, partitions in early.get("timeline")["minutes"]}
    quiet = [minute for minute, (events, partitions) in minutes.items() if (events, partitions) == (0, 1)]
    assert len(quiet) >= 3
    assert min(quiet) >= begin
