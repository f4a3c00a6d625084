"""The output of a watch, snapshot after snapshot, with and without the journal's causes."""

from __future__ import annotations

from tests.support.watched import T0, explained, partition, snapshot, told_of_broker

from barnabas.monitor.changes import Change, diff
from barnabas.monitor.course import Course
from barnabas.monitor.lines import change_line
from barnabas.monitor.partition_state import BrokerState
from barnabas.monitor.severity import Severity

WAIT_MS = 4_000
SOUND = partition()
FAILED_OVER = partition(leader=2, epoch=1, isr=(2, 3))


def kinds(changes: list[Change]) -> list[tuple[str, str]]:
    return [(change.subject, change.kind) for change in changes]


def test_a_failover_is_one_change_of_the_partition() -> None:
    changes = diff(snapshot(SOUND), snapshot(FAILED_OVER, brokers=(2, 3)))
    assert kinds(changes) == [("broker 1", "broker-gone"), ("orders-0", "leader-change")]
    assert changes[1].text == "leader 1 -> 2 (epoch 0 -> 1), ISR 1,2,3 -> 2,3, now at min ISR"
    assert changes[1].severity is Severity.WARNING


def test_each_kind_of_change_has_its_name() -> None:
    def kind(before: object, after: object) -> str:
        ((_, found),) = kinds(diff(snapshot(before), snapshot(after)))  # type: ignore[arg-type]
        return found

    assert kind(SOUND, partition(isr=(1, 2))) == "isr-shrink"
    assert kind(partition(isr=(1,)), SOUND) == "isr-expand"
    assert kind(partition(isr=(1, 2)), partition(isr=(1, 3))) == "isr-change"
    assert kind(SOUND, partition(leader=-1, epoch=1, isr=(1,))) == "offline"
    assert kind(partition(leader=-1, epoch=1), partition(epoch=2)) == "online"
    assert kind(SOUND, partition(epoch=2)) == "leader-epoch"
    assert kind(SOUND, partition(epoch=2, isr=(1, 2))) == "isr-shrink"
    assert kind(SOUND, partition(replicas=(1, 2, 3, 4))) == "replicas-changed"
    assert kind(SOUND, partition(min_isr=1)) == "min-isr-changed"


def test_the_order_of_an_isr_and_what_replicas_lack_are_no_change() -> None:
    assert diff(snapshot(SOUND), snapshot(partition(isr=(3, 1, 2)))) == []


def test_a_topic_is_created_deleted_and_made_anew() -> None:
    one = partition("t-0", topic_id=b"1"), partition("t-1", topic_id=b"1")
    other = partition("t-0", topic_id=b"2")
    (created,) = diff(snapshot(), snapshot(*one))
    assert (created.kind, created.text, len(created.created)) == ("topic-created", "was created with 2 partitions", 2)
    assert kinds(diff(snapshot(*one), snapshot())) == [("t", "topic-deleted")]
    assert kinds(diff(snapshot(*one), snapshot(other))) == [("t", "topic-deleted"), ("t", "topic-created")]
    assert kinds(diff(snapshot(one[0]), snapshot(*one))) == [("t", "partitions-added")]


def test_a_silent_leader_is_critical() -> None:
    after = snapshot(SOUND)
    brokers = {**after.brokers, 1: after.brokers[1]._replace(problem="connection refused")}
    (change,) = diff(snapshot(SOUND), type(after)(T0, "watched", 1, brokers, after.partitions))
    assert (change.kind, change.severity) == ("broker-silent", Severity.CRITICAL)
    assert change.text == "does not answer: connection refused; it leads 1 partition"


def test_a_broker_that_moved_is_told() -> None:
    after = snapshot(SOUND)
    brokers = {**after.brokers, 3: BrokerState(3, "elsewhere", 9003)}
    (change,) = diff(snapshot(SOUND), type(after)(T0, "watched", 1, brokers, after.partitions))
    assert (change.kind, change.text) == ("broker-moved", "moved from host:9003 to elsewhere:9003")


def test_a_change_waits_for_its_cause_and_takes_the_journals_time() -> None:
    course = Course(wait_ms=WAIT_MS)
    assert course.seen(snapshot(SOUND, has_journal=True)) == []
    assert course.seen(snapshot(FAILED_OVER, at_ms=T0 + 1000, has_journal=True)) == []
    assert course.waits
    (change,) = course.explained([explained(7, SOUND, FAILED_OVER, "broker 1 was fenced", at_ms=T0 + 300)], T0 + 1500)
    assert (change.time_ms, change.cause) == (T0 + 300, "broker 1 was fenced")
    assert change_line(change).endswith("now at min ISR, because broker 1 was fenced")
    assert not course.waits


def test_without_a_cause_the_line_comes_in_the_end() -> None:
    course = Course(wait_ms=WAIT_MS)
    course.seen(snapshot(SOUND, has_journal=True))
    course.seen(snapshot(FAILED_OVER, at_ms=T0 + 1000, has_journal=True))
    assert course.explained([], T0 + 1000 + WAIT_MS - 1) == []
    (change,) = course.explained([], T0 + 1000 + WAIT_MS)
    assert (change.time_ms, change.cause) == (T0 + 1000, None)


def test_a_cluster_that_has_no_journal_is_waited_for_once() -> None:
    course = Course(wait_ms=WAIT_MS)
    course.seen(snapshot(SOUND))
    # Nothing that would bring a journal into being: no reason to wait.
    assert len(course.seen(snapshot(SOUND, partition("new-0"), at_ms=T0 + 100))) == 1
    assert course.seen(snapshot(FAILED_OVER, partition("new-0"), at_ms=T0 + 200)) == []
    assert len(course.explained([], T0 + 200 + WAIT_MS)) == 1
    assert len(course.seen(snapshot(SOUND, partition("new-0"), at_ms=T0 + 9000))) == 0, "an older epoch is passed over"
    assert len(course.seen(snapshot(partition(epoch=2), partition("new-0"), at_ms=T0 + 9000))) == 1


def test_a_journal_that_comes_into_being_is_waited_for_again() -> None:
    course = Course(wait_ms=WAIT_MS)
    course.seen(snapshot(SOUND))
    course.seen(snapshot(FAILED_OVER, at_ms=T0 + 200))
    course.explained([], T0 + 200 + WAIT_MS)
    assert course.seen(snapshot(partition(epoch=2), at_ms=T0 + 9000, has_journal=True)) == []


def test_several_events_between_two_looks_are_all_told() -> None:
    course = Course(wait_ms=WAIT_MS)
    course.seen(snapshot(SOUND, has_journal=True))
    between = partition(leader=2, epoch=1, isr=(2, 3))
    after = partition(leader=1, epoch=2, isr=(2, 3, 1))
    events = [explained(3, SOUND, between, "broker 1 left"), explained(5, between, after, "broker 1 is back")]
    (change,) = course.seen(snapshot(after, at_ms=T0 + 50, has_journal=True), events)
    assert change.cause == "broker 1 left; then broker 1 is back"
    assert [event["id"] for event in change.events] == ["3:orders-0", "5:orders-0"]


def test_an_event_explains_one_change_only() -> None:
    """The same ISR comes and goes: what made it the first time did not make it the second time."""
    course = Course(wait_ms=WAIT_MS)
    smaller = partition(isr=(1, 2))
    course.seen(snapshot(SOUND, has_journal=True))
    (first,) = course.seen(
        snapshot(smaller, at_ms=T0 + 10, has_journal=True), [explained(1, SOUND, smaller, "3 fell behind")]
    )
    (back,) = course.seen(
        snapshot(SOUND, at_ms=T0 + 20, has_journal=True), [explained(2, smaller, SOUND, "3 caught up")]
    )
    assert (first.cause, back.cause) == ("3 fell behind", "3 caught up")
    assert course.seen(snapshot(smaller, at_ms=T0 + 30, has_journal=True)) == []
    (again,) = course.explained([explained(3, SOUND, smaller, "3 fell behind anew")], T0 + 40)
    assert again.cause == "3 fell behind anew"


def test_brokers_have_causes_too() -> None:
    course = Course(wait_ms=WAIT_MS)
    course.seen(snapshot(has_journal=True))
    (change,) = course.seen(
        snapshot(brokers=(1, 3), at_ms=T0 + 10, has_journal=True),
        [told_of_broker(4, "broker-fenced", 2, "its process is gone")],
    )
    assert (change.subject, change.cause) == ("broker 2", "its process is gone")


def test_when_nobody_answers_it_says_so_once_and_keeps_nothing_back() -> None:
    course = Course(wait_ms=WAIT_MS)
    course.seen(snapshot(SOUND, has_journal=True))
    course.seen(snapshot(partition(isr=(1,)), at_ms=T0 + 10, has_journal=True))
    changes = course.unreachable("host:9001: connection refused", T0 + 20)
    assert kinds(changes) == [("orders-0", "isr-shrink"), ("cluster", "unreachable")]
    assert changes[1].severity is Severity.CRITICAL
    assert course.unreachable("host:9001: connection refused", T0 + 1000) == []
    assert course.problem is not None

    changes = course.seen(snapshot(partition(isr=(1,)), at_ms=T0 + 5_020, has_journal=True))
    assert kinds(changes) == [("cluster", "reachable")]
    assert changes[0].text == "answers again after 5.0 s"
    assert course.problem is None


def test_an_answer_that_is_behind_changes_nothing_back() -> None:
    course = Course(wait_ms=0)
    course.seen(snapshot(SOUND))
    assert len(course.seen(snapshot(FAILED_OVER, at_ms=T0 + 10))) == 1
    assert course.seen(snapshot(SOUND, at_ms=T0 + 20)) == []
    assert course.snapshot is not None
    assert next(iter(course.snapshot.partitions.values())).leader == 2
