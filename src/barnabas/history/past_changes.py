"""The changes in a file, as the monitor shows changes: each with the states before and after, and its cause."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice
from typing import Final, NamedTuple

from barnabas.history.id_columns import IdColumns
from barnabas.history.past_states import Dictionaries, NodesTimeline, values_at
from barnabas.history.schema import COLUMNS, CREATED, REMOVED
from barnabas.history.writer import BEGIN, RESUMED
from barnabas.monitor.change_set import BrokerChange
from barnabas.monitor.changes import (
    Change,
    Event,
    broker_change,
    controller_change,
    created_change,
    deleted_change,
    gone_change,
    partition_change,
)
from barnabas.monitor.partition_state import PartitionState
from barnabas.monitor.texts import ids, leader_name

_EVENT: Final = f"id, seq, partition, kind, cause, {', '.join(COLUMNS)}"
_VALUES: Final = 5
_MOMENTS_KEPT: Final = 20_000
_UNTIL: Final = "found when the recording was resumed"


class Filters(NamedTuple):
    """The subjects that changes must have; None for any."""

    topic: str | None = None
    broker: int | None = None

    def accept(self, change: Change) -> bool:
        if self.topic is not None and change.topic != self.topic:
            return False
        if self.broker is None or change.broker == self.broker:
            return True
        states = [state for state in (change.before, change.after, *change.created) if state is not None]
        return any(self.broker in state.replicas for state in states)


class _Row(NamedTuple):
    id: int
    seq: int
    partition: int
    kind: int
    cause: int | None
    values: Sequence[int]


class PastChanges:
    def __init__(self, connection: sqlite3.Connection, dictionaries: Dictionaries, nodes: NodesTimeline) -> None:
        self._connection = connection
        self._known = dictionaries
        self._nodes = nodes
        self._base: tuple[int, IdColumns] | None = None
        self._moments: dict[int, tuple[int, str]] = {}

    # -- all of a period

    def within(self, since_ms: int, until_ms: int, filters: Filters, limit: int, *, newest: bool) -> list[Change]:
        first, last = self.moments(since_ms, until_ms)
        return [] if first is None or limit <= 0 else self.between(first, last, filters, limit, newest=newest)

    def moments(self, since_ms: int, until_ms: int) -> tuple[int | None, int]:
        """Returns the first and the last moment of a period; None if nothing changed in the period. The state with
        which a file begins does not count as a change.
        """
        first, last = self._connection.execute(
            "SELECT min(seq), max(seq) FROM moments WHERE time_ms BETWEEN ? AND ? AND source != ?",
            (since_ms, until_ms, BEGIN),
        ).fetchone()
        return first, 0 if last is None else last

    def between(self, first: int, last: int, filters: Filters, limit: int, *, newest: bool) -> list[Change]:
        """Returns the changes of these moments."""
        found: list[tuple[int, int, Change]] = [
            *((seq, 0, change) for seq, change in self.of_nodes(first, last)),
            *((seq, 1, change) for seq, change in self._of_topics(first, last)),
        ]
        found = [each for each in found if filters.accept(each[2])]
        of_partitions = islice(self._of_partitions(first, last, filters, newest=newest), limit)
        found += [(seq, 2, change) for seq, change in of_partitions]
        found.sort(key=lambda each: (each[0], each[1], each[2].subject))
        chosen = found[-limit:] if newest else found[:limit]
        return [change for _, _, change in chosen]

    def of_nodes(self, first: int, last: int) -> Iterator[tuple[int, Change]]:
        rows = self._connection.execute(
            "SELECT seq, broker, cause FROM nodes WHERE seq BETWEEN ? AND ? ORDER BY id", (first, last)
        ).fetchall()
        for seq, broker, cause in rows:
            before, after = self._nodes.before(seq), self._nodes.after(seq)
            time_ms, events = self._time_ms(seq), self._events(seq, cause)
            if broker is None:
                yield seq, controller_change(before.controller, after.controller, time_ms, events)
                continue
            moved = BrokerChange(broker, before.brokers.get(broker), after.brokers.get(broker))
            change = broker_change(moved, time_ms, 0, events)
            if change is not None:
                yield seq, change

    def _of_topics(self, first: int, last: int) -> Iterator[tuple[int, Change]]:
        """Yields topics that were deleted, created or extended."""
        for topic in self._known.topics.values():
            if topic.deleted_seq is not None and first <= topic.deleted_seq <= last:
                events = self._events(topic.deleted_seq, topic.deleted_cause)
                yield topic.deleted_seq, deleted_change(topic.identity, self._time_ms(topic.deleted_seq), events)
        rows = self._rows(f"kind = {CREATED} AND seq BETWEEN ? AND ?", (first, last))
        topics = self._known.topic_of
        for (seq, topic_number), group in groupby(rows, key=lambda row: (row.seq, int(topics[row.partition]))):
            some = list(group)
            states = sorted((self._state(row) for row in some), key=lambda state: state.partition)
            is_new = self._known.topics[topic_number].created_seq == seq
            events = self._events(seq, some[0].cause)
            yield seq, created_change(states, self._time_ms(seq), is_new=is_new, events=events)

    def _of_partitions(self, first: int, last: int, filters: Filters, *, newest: bool) -> Iterator[tuple[int, Change]]:
        """Yields changes of partitions, from the first or from the last one on."""
        begin, end = self._connection.execute(
            "SELECT (SELECT coalesce(max(last_event), 0) FROM moments WHERE seq < ?), "
            "(SELECT last_event FROM moments WHERE seq = ?)",
            (first, last),
        ).fetchone()
        condition = "id > ? AND id <= ? AND kind != ?"
        values: list[int | str] = [begin, end, CREATED]
        if filters.topic is not None:
            condition += (
                " AND partition IN (SELECT p.id FROM partitions p JOIN topics t ON p.topic = t.id WHERE name = ?)"
            )
            values.append(filters.topic)
        for row in self._rows(condition, values, newest=newest):
            change = self._change(row)
            if change is not None and filters.accept(change):
                yield row.seq, change

    def _change(self, row: _Row) -> Change | None:
        """Returns the change of a partition; None if its topic was deleted, or if no view shows a difference."""
        before = self._before(row)
        if before is None:
            return None
        events = self._events(row.seq, row.cause)
        if row.kind == REMOVED:
            deleted = self._known.topics[int(self._known.topic_of[row.partition])].deleted_seq
            return None if deleted == row.seq else gone_change(before, self._time_ms(row.seq), events)
        after = self._state(row)
        return partition_change(before, after, self._time_ms(row.seq), events) if _is_visible(before, after) else None

    # -- one partition

    def of_partition(self, topic: str, partition: int) -> list[Change]:
        found: list[Change] = []
        for number in self._known.numbers_of(topic, partition):
            before = self._at_begin(number)
            if before is not None:
                found.append(_begin(before, self._time_ms(self._first()[0])))
            for row in self._rows("partition = ?", (number,)):
                time_ms, events = self._time_ms(row.seq), self._events(row.seq, row.cause)
                if row.kind == REMOVED:
                    if before is not None:
                        found.append(self._end(row, before, time_ms, events))
                    before = None
                    continue
                state = self._state(row)
                if before is None:
                    is_new = self._known.topics[int(self._known.topic_of[number])].created_seq == row.seq
                    found.append(created_change([state], time_ms, is_new=is_new, events=events))
                elif _is_visible(before, state):
                    found.append(partition_change(before, state, time_ms, events))
                before = state
        return found

    def _end(self, row: _Row, before: PartitionState, time_ms: int, events: tuple[Event, ...]) -> Change:
        topic = self._known.topics[int(self._known.topic_of[row.partition])]
        if topic.deleted_seq == row.seq:
            return deleted_change(topic.identity, time_ms, self._events(row.seq, topic.deleted_cause))
        return gone_change(before, time_ms, events)

    # -- rows

    def _rows(self, condition: str, values: Iterable[int | str], *, newest: bool = False) -> Iterator[_Row]:
        order = "DESC" if newest else "ASC"
        cursor = self._connection.execute(
            f"SELECT {_EVENT} FROM events WHERE {condition} ORDER BY id {order}", tuple(values)
        )
        for row in cursor:
            number, seq, partition, kind, cause = row[:_VALUES]
            yield _Row(number, seq, partition, kind, cause, row[_VALUES:])

    def _state(self, row: _Row) -> PartitionState:
        return self._known.state(row.partition, row.values, self._nodes.after(row.seq).silent)

    def _before(self, row: _Row) -> PartitionState | None:
        """Returns the state of the partition before an event."""
        last = next(self._rows("partition = ? AND id < ?", (row.partition, row.id), newest=True), None)
        if last is not None:
            return (
                None
                if last.kind == REMOVED
                else self._known.state(row.partition, last.values, self._nodes.before(row.seq).silent)
            )
        return self._at_begin(row.partition)

    def _at_begin(self, number: int) -> PartitionState | None:
        """Returns the state of a partition at the first checkpoint."""
        seq, columns = self._first()
        values = values_at(columns, number)
        return None if values is None else self._known.state(number, values, self._nodes.after(seq).silent)

    def _first(self) -> tuple[int, IdColumns]:
        if self._base is None:
            seq, blob = self._connection.execute("SELECT seq, columns FROM checkpoints ORDER BY seq LIMIT 1").fetchone()
            self._base = seq, IdColumns.unpacked(blob)
        return self._base

    # -- times and causes

    def _moment(self, seq: int) -> tuple[int, str]:
        found = self._moments.get(seq)
        if found is None:
            if len(self._moments) >= _MOMENTS_KEPT:
                self._moments.clear()
            found = self._connection.execute("SELECT time_ms, source FROM moments WHERE seq = ?", (seq,)).fetchone()
            self._moments[seq] = found
        return found

    def _time_ms(self, seq: int) -> int:
        return self._moment(seq)[0]

    def _events(self, seq: int, cause: int | None) -> tuple[Event, ...]:
        if cause is None:
            return ({"cause": "gap", "text": _UNTIL},) if self._moment(seq)[1] == RESUMED else ()
        row = self._connection.execute("SELECT code, text FROM causes WHERE id = ?", (cause,)).fetchone()
        return () if row is None else ({"cause": row[0], "text": row[1]},)


def _is_visible(before: PartitionState, after: PartitionState) -> bool:
    """Returns whether two states differ in anything that views show."""
    return (
        (before.leader, before.leader_epoch, before.replicas) != (after.leader, after.leader_epoch, after.replicas)
        or set(before.isr) != set(after.isr)
        or (before.min_isr is not None and before.min_isr_in_force != after.min_isr_in_force)
    )


def _begin(state: PartitionState, time_ms: int) -> Change:
    words = f"leader {leader_name(state.leader)} (epoch {state.leader_epoch}), ISR {ids(state.isr)}, {state.state}"
    return Change(
        "begin", str(state.key), time_ms, words, state.severity, after=state, topic=state.topic, topic_id=state.topic_id
    )
