"""One write to the table: a delta is compared with the columns, written, and becomes a change set."""

from __future__ import annotations

from typing import Final

import numpy as np

from barnabas.monitor.change_set import BrokerChange, ChangeSet, TopicChange
from barnabas.monitor.columns import LISTS, OPTIONAL, UNKNOWN, BoolArray, IntArray, States, differing
from barnabas.monitor.delta import NO_TOPIC_ID, Delta, Partitions, TopicName
from barnabas.monitor.table_state import TableState
from barnabas.monitor.topics import Topic

#: How much later than an exact feed a broker can report the same change.
SETTLE_MS: Final = 2_000
_NONE: Final = np.zeros(0, np.int32)


class TableUpdate:
    """One version in the making."""

    def __init__(self, table: TableState, delta: Delta) -> None:
        self._table = table
        self._delta = delta
        self._asked_ms = delta.time_ms if delta.asked_ms is None else delta.asked_ms
        self._topics: dict[int, TopicName] = {}
        self._topic_changes: list[TopicChange] = []
        self._removed_rows: list[IntArray] = []
        self._removed: list[States] = []
        self._freed_numbers: list[int] = []
        self._created_rows = _NONE
        self._changed_rows: list[IntArray] = []
        self._before: list[States] = []
        self._missed: dict[int, int] = {}
        self._brokers: list[BrokerChange] = []
        self._controller: tuple[int, int] | None = None
        self._silent_before = table.silent

    def run(self) -> ChangeSet | None:
        delta, table = self._delta, self._table
        self._write_nodes()
        for identity in delta.deleted:
            self._delete_named(identity)
        seen: dict[int, Topic] = {}
        if delta.partitions is not None:
            seen = self._identify(delta.partitions)
        if delta.covers is not None:
            listed = () if delta.partitions is None else delta.partitions.topics
            self._delete_absent({identity.name for identity in listed})
        self._write_min_isrs()
        if delta.partitions is not None:
            self._write_partitions(delta.partitions, seen)
        is_changed = (
            self._topic_changes
            or self._removed_rows
            or len(self._created_rows)
            or self._changed_rows
            or self._brokers
            or self._controller
            or self._silent_before != table.silent
        )
        found = self.change_set() if is_changed else None
        for rows in self._removed_rows:
            table.release(rows)
        table.topics.release(self._freed_numbers)
        return found

    def change_set(self, volume_rows: IntArray = _NONE) -> ChangeSet:
        table = self._table
        rows, before = self._first_states()
        topics = dict(self._topics)
        for number in {*table.states.topic[rows].tolist(), *table.states.topic[self._created_rows].tolist()}:
            topics[number] = table.topics.by_number[number].identity
        removed = np.concatenate(self._removed_rows) if self._removed_rows else _NONE
        return ChangeSet(
            version=table.version + 1,
            time_ms=self._delta.time_ms,
            source=self._delta.source,
            topics=topics,
            topic_changes=tuple(self._topic_changes),
            created_rows=self._created_rows,
            created=table.states.take(self._created_rows),
            removed_rows=removed,
            removed=States.joined(self._removed, table.states.width),
            rows=rows,
            before=before.kept(),
            after=table.states.take(rows).kept(),
            missed_elections=np.array([self._missed.get(row, 0) for row in rows.tolist()], np.int32)
            if self._missed
            else np.zeros(len(rows), np.int32),
            brokers=tuple(self._brokers),
            controller=self._controller,
            silent_before=self._silent_before,
            silent_after=table.silent,
            volume_rows=volume_rows,
        )

    def _first_states(self) -> tuple[IntArray, States]:
        """Returns the changed rows, each once, with their states before this version."""
        width = self._table.states.width
        if not self._changed_rows:
            return _NONE, States.empty(0, width)
        rows, first = np.unique(np.concatenate(self._changed_rows), return_index=True)
        if self._removed_rows:
            remains = ~np.isin(rows, np.concatenate(self._removed_rows))
            rows, first = rows[remains], first[remains]
        return rows, States.joined(self._before, width).take(first.astype(np.int32))

    # -- brokers and the controller

    def _write_nodes(self) -> None:
        delta, table = self._delta, self._table
        if delta.cluster_id is not None:
            table.cluster_id = delta.cluster_id
        if delta.controller is not None and delta.controller != table.controller:
            self._controller = (table.controller, delta.controller)
            table.controller = delta.controller
        before = dict(table.brokers)
        if delta.brokers is not None:
            table.brokers = {
                broker_id: broker
                if (known := before.get(broker_id)) is None
                else broker._replace(problem=known.problem, answered_ms=known.answered_ms)
                for broker_id, broker in delta.brokers.items()
            }
        for broker_id, problem in delta.problems.items():
            known = table.brokers.get(broker_id)
            if known is not None:
                answered_ms = delta.time_ms if problem is None else known.answered_ms
                table.brokers[broker_id] = known._replace(problem=problem, answered_ms=answered_ms)
        for broker_id in sorted(before.keys() | table.brokers.keys()):
            was, now = before.get(broker_id), table.brokers.get(broker_id)
            # The reason of a silence can vary while it lasts.
            if was is None or now is None or was[:4] != now[:4] or (was.problem is None) != (now.problem is None):
                self._brokers.append(BrokerChange(broker_id, was, now))

    # -- topics

    def _identify(self, partitions: Partitions) -> dict[int, Topic]:
        """Returns the topic of each index; topics that are outdated are left out. Creates and replaces topics."""
        topics = self._table.topics
        found: dict[int, Topic] = {}
        for index, identity in enumerate(partitions.topics):
            if topics.is_deleted(identity.topic_id):
                continue
            topic = topics.by_name.get(identity.name)
            if topic is not None and not _is_same(topic.identity, identity):
                if not self._can_replace(topic):
                    continue
                topics.note_deleted(topic.identity.topic_id)
                self._delete(topic)
                topic = None
            if topic is None:
                topic = topics.add(identity)
                topic.min_isr = self._delta.min_isrs.get(identity.name, UNKNOWN)
                self._topics[topic.number] = identity
                self._topic_changes.append(TopicChange(identity, True))
            if self._delta.is_exact:
                topic.exact_ms = self._delta.time_ms
            found[index] = topic
        return found

    def _can_replace(self, topic: Topic) -> bool:
        return self._delta.is_exact or self._asked_ms - topic.exact_ms >= SETTLE_MS or topic.exact_ms == UNKNOWN

    def _delete_named(self, identity: TopicName) -> None:
        topics = self._table.topics
        topic = topics.by_name.get(identity.name)
        if self._delta.is_exact:
            topics.note_deleted(identity.topic_id)
        if topic is not None and _is_same(topic.identity, identity):
            self._delete(topic)

    def _delete_absent(self, present: set[str]) -> None:
        assert self._delta.covers is not None
        for topic in self._table.topics.within(self._delta.covers):
            if topic.name not in present and self._can_replace(topic):
                self._delete(topic)

    def _delete(self, topic: Topic) -> None:
        self._topics[topic.number] = topic.identity
        self._remove(topic.rows)
        self._table.topics.remove(topic)
        self._freed_numbers.append(topic.number)
        self._topic_changes.append(TopicChange(topic.identity, False))

    def _remove(self, rows: IntArray) -> None:
        if len(rows):
            self._removed_rows.append(rows)
            self._removed.append(self._table.states.take(rows))

    def _write_min_isrs(self) -> None:
        table = self._table
        changed = []
        for name, value in self._delta.min_isrs.items():
            topic = table.topics.by_name.get(name)
            if topic is not None and topic.min_isr != value:
                topic.min_isr = value
                changed.append(topic)
        rows = np.concatenate([topic.rows for topic in changed]) if changed else _NONE
        if len(rows):
            self._note_before(rows)
            table.states.min_isr[rows] = np.repeat(
                np.array([topic.min_isr for topic in changed], np.int32), [topic.count for topic in changed]
            )

    # -- partitions

    def _write_partitions(self, partitions: Partitions, seen: dict[int, Topic]) -> None:
        table = self._table
        table.widen(partitions.width)
        states = partitions.states(table.states.width)
        numbers = np.full(len(partitions.topics), UNKNOWN, np.int32)
        min_isrs = np.full(len(partitions.topics), UNKNOWN, np.int32)
        for index, topic in seen.items():
            numbers[index], min_isrs[index] = topic.number, topic.min_isr
        indexes = states.topic
        rows = self._rows_of(indexes, states.partition, seen)
        states.min_isr = min_isrs[indexes]
        states.topic = numbers[indexes]
        self._remove_absent(partitions, seen, indexes, states.partition)
        is_usable = states.topic != UNKNOWN
        is_new = is_usable & (rows == UNKNOWN)
        self._write_known(rows, states, is_usable & ~is_new, partitions.known)
        if is_new.any():
            self._create(states.take(np.flatnonzero(is_new).astype(np.int32)))

    def _rows_of(self, indexes: IntArray, numbers: IntArray, seen: dict[int, Topic]) -> IntArray:
        found = []
        for index, partition in zip(indexes.tolist(), numbers.tolist(), strict=True):
            topic = seen.get(index)
            row = None if topic is None else topic.row_of(partition)
            found.append(UNKNOWN if row is None else row)
        return np.array(found, np.int32)

    def _remove_absent(
        self, partitions: Partitions, seen: dict[int, Topic], indexes: IntArray, numbers: IntArray
    ) -> None:
        """Removes partitions of completely listed topics that are not listed."""
        counts = np.bincount(indexes, minlength=len(partitions.topics)) if len(indexes) else np.zeros(len(seen))
        for index, topic in seen.items():
            if partitions.is_complete[index] and topic.count > counts[index] and self._can_replace(topic):
                listed = set(numbers[indexes == index].tolist())
                for partition, row in enumerate(topic.rows_by_partition):
                    if row != UNKNOWN and partition not in listed:
                        self._remove(np.array([row], np.int32))
                        topic.put(partition, UNKNOWN)
                        self._topics[topic.number] = topic.identity

    def _write_known(self, rows: IntArray, states: States, is_known: BoolArray, known: frozenset[str]) -> None:
        table, delta = self._table, self._delta
        chosen = np.flatnonzero(is_known).astype(np.int32)
        if not len(chosen):
            return
        places, after = rows[chosen], states.take(chosen)
        before = table.states.take(places)
        for name in OPTIONAL - known:
            setattr(after, name, getattr(before, name))
        is_changed = differing(before, after, known)
        fresh = ~self._is_outdated(places, before, after, is_changed, known)
        written = fresh & is_changed
        if not delta.is_exact and "partition_epoch" not in known:
            after.partition_epoch = np.where(written, np.int32(UNKNOWN), after.partition_epoch)
        now, old, new = places[written], before.take(written), after.take(written)
        if len(now):
            self._note_before(now)
            self._count_missed(now, old, new)
            is_moved = (old.replicas != new.replicas).any(axis=1)
            if is_moved.any():
                table.layout += 1
                table.volumes.follow(now[is_moved], old.replicas[is_moved], new.replicas[is_moved])
        table.states.put(places[fresh], after.take(fresh), ("leader", "leader_epoch", "partition_epoch", *LISTS))
        if delta.is_exact:
            table.exact_ms[places[fresh]] = delta.time_ms

    def _is_outdated(
        self, rows: IntArray, before: States, after: States, is_changed: BoolArray, known: frozenset[str]
    ) -> BoolArray:
        """Returns which rows are older than the table: the answering broker can be behind, and two feeds can deliver
        the same change.
        """
        found: BoolArray = after.leader_epoch < before.leader_epoch
        is_same_epoch = after.leader_epoch == before.leader_epoch
        if "partition_epoch" in known:
            both = (after.partition_epoch != UNKNOWN) & (before.partition_epoch != UNKNOWN)
            found |= is_same_epoch & both & (after.partition_epoch <= before.partition_epoch)
        if not self._delta.is_exact:
            exact_ms = self._table.exact_ms[rows]
            is_settled = (exact_ms == UNKNOWN) | (self._asked_ms - exact_ms >= SETTLE_MS)
            found |= is_changed & ~is_settled & is_same_epoch
        return found

    def _count_missed(self, rows: IntArray, before: States, after: States) -> None:
        """Counts elections that no feed delivered: a leader epoch that advanced by n stands for n of them. The last one
        is delivered if the leader is another one. One epoch of the same leader is no election: it has lost a replica.
        """
        advance = np.maximum(0, after.leader_epoch - before.leader_epoch)
        is_seen = (before.leader != after.leader) | (advance == 1)
        missed = np.maximum(0, advance - is_seen)
        for place in np.flatnonzero(missed).tolist():
            self._missed[int(rows[place])] = int(missed[place])
        self._table.missed_elections[rows] += missed

    def _create(self, states: States) -> None:
        table = self._table
        rows = table.allocate(len(states))
        table.states.put(rows, states)
        table.exact_ms[rows] = self._delta.time_ms if self._delta.is_exact else UNKNOWN
        for row, number, partition in zip(rows.tolist(), states.topic.tolist(), states.partition.tolist(), strict=True):
            table.topics.by_number[number].put(partition, row)
        self._created_rows = rows

    def _note_before(self, rows: IntArray) -> None:
        self._changed_rows.append(rows)
        self._before.append(self._table.states.take(rows))


def _is_same(one: TopicName, other: TopicName) -> bool:
    """Whether two topics of one name are the same. An unknown id fits any."""
    return NO_TOPIC_ID in (one.topic_id, other.topic_id) or one.topic_id == other.topic_id
