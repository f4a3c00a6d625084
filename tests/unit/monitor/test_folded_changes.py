"""The lines about changes: many partitions of a topic that changed for one cause share a line."""

from __future__ import annotations

from dataclasses import replace

from tests.support.watched import T0, changed, look, partition

from barnabas.monitor.changes import Change
from barnabas.monitor.folded_changes import FOLDED_FROM, change_lines
from barnabas.monitor.lines import change_line
from barnabas.monitor.partition_state import PartitionState
from barnabas.monitor.severity import Severity

FENCED = "broker 2 was fenced: no process listens at its address"


def loss(count: int, topic: str = "__consumer_offsets") -> list[Change]:
    """Returns the changes of partitions that lose broker 2; every third one was led by it."""
    before, after = [], []
    for number in range(count):
        leader = number % 3 + 1
        was = partition(f"{topic}-{number}", leader=leader, min_isr=1)
        before.append(was)
        after.append(replace(was, leader=3 if leader == 2 else leader, leader_epoch=1, isr=(1, 3)))
    return changed(look(*before), look(*after))


def caused(changes: list[Change], text: str = FENCED, at_ms: int = T0) -> list[Change]:
    return [replace(change, events=({"text": text},), time_ms=at_ms) for change in changes]


def texts(changes: list[Change]) -> list[str]:
    return [line.text.partition("Z  ")[2] for line in change_lines(changes)]


def test_the_loss_of_a_broker_is_one_line_for_each_topic() -> None:
    assert len(loss(50)) == 50
    assert texts([*caused(loss(50)), *caused(loss(6, "orders"))]) == [
        "NOTICE    __consumer_offsets: 50 partitions  isr-shrink (33), leader-change (17): leader 2 -> 3 (17), "
        f"a new epoch of the same leader (33), 2 left the ISR, now under-replicated, because {FENCED}",
        "NOTICE    orders: 6 partitions  isr-shrink (4), leader-change (2): leader 2 -> 3 (2), "
        f"a new epoch of the same leader (4), 2 left the ISR, now under-replicated, because {FENCED}",
    ]


def test_a_few_partitions_keep_a_line_each_with_all_they_say() -> None:
    few = caused(loss(FOLDED_FROM - 1))
    assert [line.text for line in change_lines(few)] == [change_line(change) for change in few]
    assert len(change_lines(caused(loss(FOLDED_FROM)))) == 1


def test_another_cause_has_its_own_line_and_offsets_are_ranges() -> None:
    def back(number: int, leader: int) -> Change:
        was = partition(f"t-{number}", leader=leader, isr=(1, 3))
        text = f"broker 2 caught up with leader {leader}: log end offset {number}, the leader's {number}"
        return caused(changed(look(was), look(replace(was, isr=(1, 2, 3)))), text)[0]

    assert texts([back(number, 1 + 2 * (number % 2)) for number in range(10)]) == [
        "ok        t: 5 partitions  isr-expand: 2 joined the ISR, now in sync, because broker 2 caught up with leader "
        "1: log end offset 0..8, the leader's 0..8",
        "ok        t: 5 partitions  isr-expand: 2 joined the ISR, now in sync, because broker 2 caught up with leader "
        "3: log end offset 1..9, the leader's 1..9",
    ]


def test_without_a_journal_the_topic_alone_decides_and_the_worst_severity_is_shown() -> None:
    def gone(state: PartitionState, number: int) -> PartitionState:
        return replace(state, leader=-1, isr=(2,), leader_epoch=1) if number < 2 else replace(state, isr=(1, 3))

    before = [partition(f"t-{number}", isr=(2,) if number < 2 else (1, 2, 3)) for number in range(5)]
    after = [gone(state, number) for number, state in enumerate(before)]
    (line,) = change_lines(changed(look(*before), look(*after)))
    assert line.severity is Severity.CRITICAL
    assert line.text.endswith(
        "CRITICAL  t: 5 partitions  offline (2), isr-shrink (3): leader 1 -> none (2), 2 left the ISR (3), "
        "now offline (2), now at min ISR (3)"
    )


def test_changes_that_are_apart_and_a_partitions_second_change_are_not_mixed() -> None:
    first, later = caused(loss(5)), caused(loss(5), at_ms=T0 + 1_001)
    assert len(change_lines([*first, *later])) == 2
    again = caused(loss(5))
    assert [text.split("  ")[1] for text in texts([*first, *again])] == [texts(first)[0].split("  ")[1]] * 2


def test_brokers_and_topics_keep_their_own_lines_in_their_places() -> None:
    broker = Change("broker-gone", "broker 2", T0, "is gone", Severity.ERROR)
    created = [
        Change("topic-created", "t", T0, "was created with 1 partition", topic="t", created=(partition("t-0"),))
        for _ in range(5)
    ]
    lines = texts([broker, *caused(loss(5)), *created])
    assert lines[0] == "ERROR     broker 2  broker-gone: is gone"
    assert "5 partitions" in lines[1]
    assert len(lines) == 2 + len(created)
