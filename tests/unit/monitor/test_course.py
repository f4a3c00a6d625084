"""The output of a watch, look after look, with and without the journal's causes."""

from __future__ import annotations

from tests.support.watched import T0, Watched, changed, explained, look, partition, told_of_broker

from barnabas.monitor.changes import Change
from barnabas.monitor.lines import change_line
from barnabas.monitor.partition_state import BrokerState
from barnabas.monitor.severity import Severity
from barnabas.testing.packed_events import packed

WAIT_MS = 4_000
SOUND = partition()
FAILED_OVER = partition(leader=2, epoch=1, isr=(2, 3))


def kinds(changes: list[Change]) -> list[tuple[str, str]]:
    return [(change.subject, change.kind) for change in changes]


def test_a_failover_is_one_change_of_the_partition() -> None:
    changes = changed(look(SOUND), look(FAILED_OVER, brokers=(2, 3)))
    assert kinds(changes) == [("broker 1", "broker-gone"), ("orders-0", "leader-change")]
    assert changes[1].text == "leader 1 -> 2 (epoch 0 -> 1), ISR 1,2,3 -> 2,3, now at min ISR"
    assert changes[1].severity is Severity.WARNING


def test_each_kind_of_change_has_its_name() -> None:
    def kind(before: object, after: object) -> str:
        ((_, found),) = kinds(changed(look(before), look(after)))  # type: ignore[arg-type]
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
    assert changed(look(SOUND), look(partition(isr=(3, 1, 2)))) == []


def test_a_topic_is_created_deleted_and_made_anew() -> None:
    one = partition("t-0", topic_id=b"1"), partition("t-1", topic_id=b"1")
    other = partition("t-0", topic_id=b"2")
    (created,) = changed(look(), look(*one))
    assert (created.kind, created.text, len(created.created)) == ("topic-created", "was created with 2 partitions", 2)
    assert kinds(changed(look(*one), look())) == [("t", "topic-deleted")]
    assert kinds(changed(look(*one), look(other))) == [("t", "topic-deleted"), ("t", "topic-created")]
    assert kinds(changed(look(one[0]), look(*one))) == [("t", "partitions-added")]


def test_a_silent_leader_is_critical() -> None:
    (change,) = changed(look(SOUND), look(SOUND, problems={1: "connection refused"}))
    assert (change.kind, change.severity) == ("broker-silent", Severity.CRITICAL)
    assert change.text == "does not answer: connection refused; it leads 1 partition"


def test_a_broker_that_moved_is_reported() -> None:
    after = look(SOUND)
    brokers = {**(after.brokers or {}), 3: BrokerState(3, "elsewhere", 9003)}
    after.brokers = brokers
    (change,) = changed(look(SOUND), after)
    assert (change.kind, change.text) == ("broker-moved", "moved from host:9003 to elsewhere:9003")


def test_a_change_waits_for_its_cause_and_takes_the_journals_time() -> None:
    watched = Watched(wait_ms=WAIT_MS, has_journal=True)
    assert watched.seen(look(SOUND)) == []
    assert watched.seen(look(FAILED_OVER, at_ms=T0 + 1000)) == []
    assert watched.course.waits
    (change,) = watched.course.explained(
        [explained(7, SOUND, FAILED_OVER, "broker 1 was fenced", at_ms=T0 + 300)], T0 + 1500
    )
    assert (change.time_ms, change.cause) == (T0 + 300, "broker 1 was fenced")
    assert change_line(change).endswith("now at min ISR, because broker 1 was fenced")
    assert not watched.course.waits


def test_a_bulk_event_explains_each_of_its_partitions_once() -> None:
    others = partition("orders-1"), partition("orders-1", leader=2, epoch=1, isr=(2, 3))
    watched = Watched(wait_ms=WAIT_MS, has_journal=True)
    watched.seen(look(SOUND, others[0]))
    watched.seen(look(FAILED_OVER, others[1], at_ms=T0 + 1000))
    single = [explained(7, SOUND, FAILED_OVER, "gone", at_ms=T0 + 300), explained(7, *others, "gone", at_ms=T0 + 300)]
    for each in single:
        each |= {"topic_id": ""}
        each["before"]["partition_epoch"], each["after"]["partition_epoch"] = 1, 2
    changes = watched.course.explained(packed(single), T0 + 1500)
    assert [(str(change.subject), change.cause, change.time_ms) for change in changes] == [
        ("orders-0", "gone", T0 + 300),
        ("orders-1", "gone", T0 + 300),
    ]
    watched.seen(look(partition(epoch=2), others[1], at_ms=T0 + 2000))
    watched.seen(look(partition(leader=2, epoch=3, isr=(2, 3)), others[1], at_ms=T0 + 3000))
    late = watched.course.explained([], T0 + 3000 + WAIT_MS)
    assert [change.cause for change in late] == [None, None], "it explains no later change"


def test_without_a_cause_the_line_comes_in_the_end() -> None:
    watched = Watched(wait_ms=WAIT_MS, has_journal=True)
    watched.seen(look(SOUND))
    watched.seen(look(FAILED_OVER, at_ms=T0 + 1000))
    assert watched.course.explained([], T0 + 1000 + WAIT_MS - 1) == []
    (change,) = watched.course.explained([], T0 + 1000 + WAIT_MS)
    assert (change.time_ms, change.cause) == (T0 + 1000, None)


def test_a_cluster_that_has_no_journal_is_waited_for_once() -> None:
    watched = Watched(wait_ms=WAIT_MS)
    watched.seen(look(SOUND))
    # No event creates a journal, so there is no reason to wait.
    assert len(watched.seen(look(SOUND, partition("new-0"), at_ms=T0 + 100))) == 1
    assert watched.seen(look(FAILED_OVER, partition("new-0"), at_ms=T0 + 200)) == []
    assert len(watched.course.explained([], T0 + 200 + WAIT_MS)) == 1
    assert len(watched.seen(look(SOUND, partition("new-0"), at_ms=T0 + 9000))) == 0, "an older epoch is passed over"
    assert len(watched.seen(look(partition(epoch=2), partition("new-0"), at_ms=T0 + 9000))) == 1


def test_a_journal_that_comes_into_being_is_waited_for_again() -> None:
    watched = Watched(wait_ms=WAIT_MS)
    watched.seen(look(SOUND))
    watched.seen(look(FAILED_OVER, at_ms=T0 + 200))
    watched.course.explained([], T0 + 200 + WAIT_MS)
    watched.course.has_journal = True
    assert watched.seen(look(partition(epoch=2), at_ms=T0 + 9000)) == []


def test_several_events_between_two_polls_are_all_reported() -> None:
    watched = Watched(wait_ms=WAIT_MS, has_journal=True)
    watched.seen(look(SOUND))
    between = partition(leader=2, epoch=1, isr=(2, 3))
    after = partition(leader=1, epoch=2, isr=(2, 3, 1))
    events = [explained(3, SOUND, between, "broker 1 left"), explained(5, between, after, "broker 1 is back")]
    (change,) = watched.seen(look(after, at_ms=T0 + 50), events)
    assert change.cause == "broker 1 left; then broker 1 is back"
    assert [event["id"] for event in change.events] == ["3:orders-0", "5:orders-0"]


def test_an_event_explains_one_change_only() -> None:
    """The same ISR comes and goes: what made it the first time did not make it the second time."""
    watched = Watched(wait_ms=WAIT_MS, has_journal=True)
    smaller = partition(isr=(1, 2))
    watched.seen(look(SOUND))
    (first,) = watched.seen(look(smaller, at_ms=T0 + 10), [explained(1, SOUND, smaller, "3 fell behind")])
    (back,) = watched.seen(look(SOUND, at_ms=T0 + 20), [explained(2, smaller, SOUND, "3 caught up")])
    assert (first.cause, back.cause) == ("3 fell behind", "3 caught up")
    assert watched.seen(look(smaller, at_ms=T0 + 30)) == []
    (again,) = watched.course.explained([explained(3, SOUND, smaller, "3 fell behind anew")], T0 + 40)
    assert again.cause == "3 fell behind anew"


def test_brokers_have_causes_too() -> None:
    watched = Watched(wait_ms=WAIT_MS, has_journal=True)
    watched.seen(look())
    (change,) = watched.seen(
        look(brokers=(1, 3), at_ms=T0 + 10),
        [told_of_broker(4, "broker-fenced", 2, "its process is gone")],
    )
    assert (change.subject, change.cause) == ("broker 2", "its process is gone")


def test_when_nobody_answers_it_says_so_once_and_keeps_nothing_back() -> None:
    watched = Watched(wait_ms=WAIT_MS, has_journal=True)
    watched.seen(look(SOUND))
    watched.seen(look(partition(isr=(1,)), at_ms=T0 + 10))
    changes = watched.course.unreachable("host:9001: connection refused", T0 + 20)
    assert kinds(changes) == [("orders-0", "isr-shrink"), ("cluster", "unreachable")]
    assert changes[1].severity is Severity.CRITICAL
    assert watched.course.unreachable("host:9001: connection refused", T0 + 1000) == []
    assert watched.course.problem is not None

    changes = watched.seen(look(partition(isr=(1,)), at_ms=T0 + 5_020))
    assert kinds(changes) == [("cluster", "reachable")]
    assert changes[0].text == "answers again after 5.0 s"
    assert watched.course.problem is None


def test_an_answer_that_is_behind_changes_nothing_back() -> None:
    watched = Watched(wait_ms=0)
    watched.seen(look(SOUND))
    assert len(watched.seen(look(FAILED_OVER, at_ms=T0 + 10))) == 1
    assert watched.seen(look(SOUND, at_ms=T0 + 20)) == []
    assert next(watched.table.values()).leader == 2
