"""The journal as a feed: its events in the table, whatever a look has already brought."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.support.phantom_feeds import contents, feeds_of, run, running, truth, until
from tests.support.watched import T0, explained, look, partition, table_of

from barnabas.common.types import uuid_to_text
from barnabas.monitor.change_set import ChangeSet
from barnabas.monitor.changes import Event, changes_of
from barnabas.monitor.delta import Source
from barnabas.monitor.journal_events import JournalEvents
from barnabas.monitor.journal_requests import event_of
from barnabas.monitor.partition_state import PartitionState
from barnabas.monitor.table import ClusterTable
from barnabas.testing.packed_events import packed
from barnabas.testing.phantom import PhantomCluster

A = partition("a-0")
SMALLER = partition("a-0", isr=(1, 2))
SMALLEST = partition("a-0", isr=(1,))


def event(before: PartitionState, after: PartitionState, epoch: int) -> Event:
    found = explained(epoch, before, after, "because", at_ms=T0 + epoch)
    found["before"]["partition_epoch"], found["after"]["partition_epoch"] = epoch - 1, epoch
    found["topic_id"] = uuid_to_text(after.topic_id.ljust(16, b"\0"))
    return found


def isr_of(table: ClusterTable) -> tuple[int, ...]:
    return next(table.values()).isr


def applied(table: ClusterTable, *events: Event, begin_ms: int = 0) -> JournalEvents:
    found = JournalEvents(table, None, begin_ms)
    found.apply(events)
    return found


def test_events_change_the_table_in_their_order() -> None:
    table = table_of(A)
    changes: list[Any] = []
    table.subscribe(changes.append)
    assert not applied(table, event(A, SMALLER, 1), event(SMALLER, SMALLEST, 2)).has_gap
    assert isr_of(table) == (1,)
    assert [change.source for change in changes] == [Source.JOURNAL] * 2, "each change has its version"
    assert applied(table, event(A, SMALLER, 1)).has_gap is False
    assert isr_of(table) == (1,), "delivered twice"


def test_a_look_that_was_faster_is_confirmed_and_not_reverted() -> None:
    table = table_of(A)
    table.apply(look(SMALLEST))
    version = table.version
    late = applied(table, event(A, SMALLER, 1))
    assert (late.has_gap, isr_of(table)) == (True, (1,))
    assert not applied(table, event(SMALLER, SMALLEST, 2)).has_gap
    assert table.version == version
    assert not applied(table, event(A, SMALLER, 1)).has_gap, "known to be old by its epoch now"


def test_an_event_that_does_not_continue_the_table_shows_a_gap() -> None:
    table = table_of(A)
    assert applied(table, event(SMALLER, SMALLEST, 5)).has_gap
    assert isr_of(table) == (1, 2, 3)
    assert applied(table, event(partition("unseen-0"), partition("unseen-0", isr=(1,)), 3)).has_gap
    assert applied(table, {"kind": "journal-gap"}).has_gap


def test_a_higher_leader_epoch_is_applied_and_what_lies_between_is_counted() -> None:
    table = table_of(A)
    applied(table, event(SMALLER, partition("a-0", leader=2, epoch=3, isr=(2,)), 9))
    assert table.missed_elections[table.rows].tolist() == [2]


def test_topics_come_and_go_and_old_events_bring_none_back() -> None:
    table = table_of(A)
    created = {"kind": "topic-created", "time_ms": T0, "topic": "b", "topic_id": uuid_to_text(b"b" * 16)}
    created |= {"first_partition": 0, "replicas": [[1, 2]], "leaders": [1], "isrs": [[1, 2]]}
    applied(table, created, begin_ms=T0 + 1)
    assert table.topics.names() == ["a"]
    applied(table, created)
    assert table.topics.names() == ["a", "b"]
    deleted = {"kind": "topic-deleted", "time_ms": T0, "topic": "b", "topic_id": uuid_to_text(b"c" * 16)}
    applied(table, deleted)
    assert table.topics.names() == ["a", "b"], "another topic of that name"
    applied(table, deleted | {"topic_id": created["topic_id"]})
    assert table.topics.names() == ["a"]


def test_a_bulk_event_changes_what_continues_the_table() -> None:
    elsewhere = partition("b-0", epoch=4, isr=(1, 2))
    table = table_of(A, partition("a-1"), partition("b-0", epoch=5))
    applied(table, event(A, A, 3))
    changes: list[Any] = []
    table.subscribe(changes.append)
    told = [
        event(A, SMALLER, 4),
        event(partition("a-1"), partition("a-1", leader=2, epoch=1, isr=(2, 3)), 4),
        event(partition("b-0", epoch=3), elsewhere, 4),
    ]
    bulks = list(packed(told, rows_max=2))
    assert [len(each["partition"]) for each in bulks] == [2, 1]
    assert not applied(table, *bulks).has_gap
    states = {str(state.key): (state.leader, state.leader_epoch, state.isr) for state in table.values()}
    assert states == {"a-0": (1, 0, (1, 2)), "a-1": (2, 1, (2, 3)), "b-0": (1, 5, (1, 2, 3))}
    assert len(changes) == 1, "one decision is one version"
    assert not applied(table, *bulks).has_gap, "delivered twice"
    assert len(changes) == 1
    unseen = event(partition("unseen-0"), partition("unseen-0", isr=(1,)), 9)
    assert applied(table, *packed([unseen])).has_gap
    only = JournalEvents(table, "b", 0)
    only.apply(packed([unseen, event(partition("b-0", epoch=5), partition("b-0", epoch=6, isr=(1,)), 9)]))
    assert not only.has_gap
    assert {str(state.key): state.isr for state in table.values()}["b-0"] == (1,)


def test_what_is_no_event_is_none() -> None:
    assert event_of(b"{}") is None
    assert event_of(b"\xff") is None
    assert event_of(None) is None
    assert event_of(b'{"id": "1", "kind": "k", "time_ms": 1, "text": "t"}') is not None


def test_a_change_arrives_by_long_poll_while_no_look_is_due() -> None:
    async def main() -> None:
        with PhantomCluster(topics=20, journal=True) as phantom:
            async with running(feeds_of(phantom, interval_s=60.0)) as feeds:
                looked: list[str] = []

                def note(change_set: ChangeSet) -> None:
                    if change_set.source is Source.LOOK:
                        looked.extend(change.kind for change in changes_of(change_set, feeds.table))

                feeds.table.subscribe(note)
                for change in (
                    lambda state: state.shrink_isr("topic-00007", 2, 1),
                    lambda state: state.create_topic("fresh", 3),
                    lambda state: state.elect("fresh", 1, 2),
                    lambda state: state.delete_topic("topic-00002"),
                ):
                    phantom.change(change)
                    await until(lambda: contents(feeds.table) == truth(phantom.state), "the change")
                assert looked == []
                assert [each["text"] for each in feeds.events()] == [
                    "broker 1 fell behind",
                    "User:tester created fresh",
                    "User:tester requested an election",
                    "User:tester deleted topic-00002",
                ]

    run(main())


def test_pages_are_requested_less_often_while_the_journal_delivers_each_change() -> None:
    async def main() -> None:
        with PhantomCluster(topics=5, journal=True) as phantom:

            def requested() -> int:
                return phantom.requests["DescribeTopicPartitionsRequest"]

            async with running(feeds_of(phantom, timeout_s=3.0)):
                await asyncio.sleep(0.5)
                before = requested()
                await asyncio.sleep(1.0)
                assert requested() - before <= 1
                phantom.silence(1)
                before = requested()
                await until(lambda: requested() - before > 5, "polls instead of the journal", within_s=10)

    run(main())
