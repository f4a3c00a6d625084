"""Any sequence of changes, any feed, same table.

A model cluster changes step by step. Each feed sees it in its own way: looks at moments of its own, whole or by pages,
some of them from a broker that is behind; the journal with copies and delays; exact records in their order. After the
last change and one more look, every table is the model, and replaying the change sets of a table gives that table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from hypothesis import given
from hypothesis import strategies as st
from tests.support.watched import T0, columns_of, explained, look

from barnabas.common.types import uuid_to_text
from barnabas.monitor.change_set import ChangeSet
from barnabas.monitor.changes import Event
from barnabas.monitor.delta import Delta, NameRange, Source, TopicName
from barnabas.monitor.journal_events import JournalEvents
from barnabas.monitor.partition_state import Key, PartitionState
from barnabas.monitor.table import ClusterTable, values_of
from barnabas.monitor.table_update import SETTLE_MS
from barnabas.testing.packed_events import packed

NAMES = ("a", "b", "c")
BROKERS = (1, 2, 3)


@dataclass(frozen=True)
class Moment:
    """The cluster after one change, and the change as the journal and the metadata log have it."""

    time_ms: int
    partitions: dict[Key, PartitionState]
    epochs: dict[Key, int]
    event: Event | None
    record: Delta | None


class Model:
    """A cluster that follows Kafka's rules: a leader epoch for each election, a partition epoch for each change."""

    def __init__(self) -> None:
        self.partitions: dict[Key, PartitionState] = {}
        self.epochs: dict[Key, int] = {}
        self.moments = [Moment(T0, {}, {}, None, None)]
        self._ids = 0

    def change(self, draw: st.DrawFn) -> None:
        number = len(self.moments)
        time_ms = T0 + number * 10
        name = draw(st.sampled_from(NAMES))
        keys = [key for key in self.partitions if key.topic == name]
        if not keys:
            event, record = self._create(draw, name, time_ms)
        elif draw(st.integers(0, 4)) == 0:
            event, record = self._delete(name, time_ms)
        else:
            event, record = self._move(draw, draw(st.sampled_from(keys)), time_ms)
        event["id"] = f"{number}:{event['id']}"
        self.moments.append(Moment(time_ms, dict(self.partitions), dict(self.epochs), event, record))

    def _create(self, draw: st.DrawFn, name: str, time_ms: int) -> tuple[Event, Delta]:
        self._ids += 1
        topic_id = self._ids.to_bytes(16, "big")
        new = []
        for index in range(draw(st.integers(1, 3))):
            replicas = tuple(draw(st.permutations(BROKERS))[: draw(st.integers(1, 3))])
            new.append(PartitionState(name, index, replicas[0], 0, replicas, replicas, topic_id))
        self.partitions |= {state.key: state for state in new}
        self.epochs |= {state.key: 0 for state in new}
        event = {
            "id": name,
            "kind": "topic-created",
            "time_ms": time_ms,
            "text": "created",
            "topic": name,
            "topic_id": uuid_to_text(topic_id),
            "first_partition": 0,
            "replicas": [list(state.replicas) for state in new],
            "leaders": [state.leader for state in new],
            "isrs": [list(state.isr) for state in new],
        }
        return event, self._record(new, time_ms)

    def _delete(self, name: str, time_ms: int) -> tuple[Event, Delta]:
        keys = [key for key in self.partitions if key.topic == name]
        topic_id = self.partitions[keys[0]].topic_id
        for key in keys:
            del self.partitions[key], self.epochs[key]
        event = {"id": name, "kind": "topic-deleted", "time_ms": time_ms, "text": "deleted", "topic": name}
        record = Delta(time_ms, Source.METADATA_LOG, deleted=[TopicName(name, topic_id)])
        return event | {"topic_id": uuid_to_text(topic_id)}, record

    def _move(self, draw: st.DrawFn, key: Key, time_ms: int) -> tuple[Event, Delta]:
        before = self.partitions[key]
        kind = draw(st.sampled_from(("isr", "elect", "reassign")))
        if kind == "isr":
            isr = tuple(draw(st.lists(st.sampled_from(before.replicas), min_size=1, unique=True)))
            leader = before.leader if before.leader in isr else isr[0]
            after = replace(before, isr=isr, leader=leader)
        elif kind == "elect":
            after = replace(before, leader=draw(st.sampled_from((*before.isr, -1))))
        else:
            replicas = tuple(draw(st.permutations(BROKERS))[: draw(st.integers(1, 3))])
            after = replace(before, replicas=replicas, isr=replicas, leader=replicas[0])
        if after.leader != before.leader:
            after = replace(after, leader_epoch=before.leader_epoch + 1)
        self.partitions[key] = after
        self.epochs[key] += 1
        event = explained(0, before, after, "moved", at_ms=time_ms)
        event["id"] = str(key)
        event["topic_id"] = uuid_to_text(after.topic_id)
        event["before"]["partition_epoch"] = self.epochs[key] - 1
        event["after"]["partition_epoch"] = self.epochs[key]
        return event, self._record([after], time_ms)

    def _record(self, states: Sequence[PartitionState], time_ms: int) -> Delta:
        columns = columns_of(states, is_complete=False, epochs=self.epochs)
        return Delta(time_ms, Source.METADATA_LOG, partitions=columns)


@st.composite
def courses(draw: st.DrawFn) -> list[Moment]:
    model = Model()
    for _ in range(draw(st.integers(1, 12))):
        model.change(draw)
    return model.moments


def look_at(moment: Moment, asked_ms: int, names: NameRange) -> Delta:
    end = "~" if names.end is None else names.end
    shown = [state for state in moment.partitions.values() if names.first <= state.topic < end]
    found = look(*shown, at_ms=asked_ms, covers=names)
    found.asked_ms = asked_ms
    return found


RANGES = (NameRange(), NameRange("", "b"), NameRange("b", None), NameRange("b", "c"))


@st.composite
def looks(draw: st.DrawFn, moments: Sequence[Moment], number: int) -> Iterator[Delta]:
    """Draws looks after a change. The answer can be from a broker that is a few changes behind."""
    found = []
    for _ in range(draw(st.integers(0, 2))):
        seen = moments[max(0, number - draw(st.integers(0, 2)))]
        found.append(look_at(seen, moments[number].time_ms, draw(st.sampled_from(RANGES))))
    return iter(found)


def contents(table: ClusterTable) -> dict[Key, tuple[object, ...]]:
    return {state.key: compared(state) for state in table.values()}


def compared(state: PartitionState) -> tuple[object, ...]:
    return state.topic_id, state.leader, state.leader_epoch, state.replicas, frozenset(state.isr)


def expected(moment: Moment) -> dict[Key, tuple[object, ...]]:
    return {key: compared(state) for key, state in moment.partitions.items()}


class Replayed:
    """A table that is rebuilt from change sets alone."""

    def __init__(self, table: ClusterTable) -> None:
        self._rows: dict[int, PartitionState] = {}
        table.subscribe(self._on_change)

    def _on_change(self, change: ChangeSet) -> None:
        for row, state in zip(change.removed_rows.tolist(), values_of(change.removed, change.topics), strict=True):
            assert compared(self._rows.pop(row)) == compared(state)
        before = values_of(change.before, change.topics)
        after = values_of(change.after, change.topics)
        for row, was, now in zip(change.rows.tolist(), before, after, strict=True):
            assert compared(self._rows[row]) == compared(was)
            self._rows[row] = now
        for row, state in zip(change.created_rows.tolist(), values_of(change.created, change.topics), strict=True):
            assert row not in self._rows
            self._rows[row] = state

    def contents(self) -> dict[Key, tuple[object, ...]]:
        return {state.key: compared(state) for state in self._rows.values()}


@given(courses(), st.data())
def test_every_feed_and_every_mix_of_them_ends_with_the_same_table(moments: list[Moment], data: st.DataObject) -> None:
    feeds = data.draw(st.sampled_from(("look", "journal", "log", "look and journal", "look and log", "all")))
    table = ClusterTable()
    replayed = Replayed(table)
    journal = JournalEvents(table, None, T0)
    late: list[Event] = []
    for number, moment in enumerate(moments):
        if moment.record is not None and feeds in ("log", "look and log", "all"):
            table.apply(moment.record)
        if moment.event is not None and feeds in ("journal", "look and journal", "all"):
            late.append(moment.event)
            if data.draw(st.booleans()):
                # A decision can be told in bulk.
                late = list(packed(late)) if data.draw(st.booleans()) else late
                journal.apply(late if data.draw(st.booleans()) else [*late, *late[-1:]])
                late = []
        if "look" in feeds or feeds == "all":
            for delta in data.draw(looks(moments, number)):
                table.apply(delta)
        assert replayed.contents() == contents(table)
    journal.apply(late)
    if feeds in ("journal", "log"):
        assert contents(table) == expected(moments[-1]), "an exact feed needs no look"
    table.apply(look_at(moments[-1], moments[-1].time_ms + SETTLE_MS, NameRange()))
    assert contents(table) == expected(moments[-1])
    assert replayed.contents() == contents(table)
    assert table.counts() == {
        severity: sum(state.severity is severity for state in table.values()) for severity in table.counts()
    }
