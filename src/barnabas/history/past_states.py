"""The rows of the file as tables and as values: columns with numbers of lists become columns with lists."""

from __future__ import annotations

import sqlite3
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from barnabas.history.errors import HistoryError
from barnabas.history.id_columns import ABSENT, PARTITIONS_MAX, IdColumns
from barnabas.history.list_numbers import ListNumbers
from barnabas.history.rebuilding import Nodes, nodes_after, nodes_from_text
from barnabas.history.samples import Sample
from barnabas.history.schema import COLUMNS, LIST_COLUMNS, NUMBERS
from barnabas.monitor.columns import UNKNOWN, IntArray, States, Volumes
from barnabas.monitor.delta import NO_TOPIC_ID, TopicName
from barnabas.monitor.partition_state import PartitionState
from barnabas.monitor.topics import Topic, Topics

_AT: Final = {name: place for place, name in enumerate(COLUMNS)}


class RecordedTopic(NamedTuple):
    """A topic of the file; `deleted_seq` is None while the topic exists."""

    number: int
    identity: TopicName
    created_seq: int
    deleted_seq: int | None
    deleted_cause: int | None

    def is_there(self, seq: int) -> bool:
        return self.created_seq <= seq and (self.deleted_seq is None or self.deleted_seq > seq)


class Dictionaries:
    """Lists, topics and partitions of a file, kept in memory. `refresh` reads what was written since."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.lists = ListNumbers(connection)
        self.topics: dict[int, RecordedTopic] = {}
        #: The topic and the partition by the number of the partition in the file.
        self.topic_of: IntArray = np.zeros(0, np.int32)
        self.partition_of: IntArray = np.zeros(0, np.int32)
        self._topics_key: tuple[bytes, bytes, bytes] | None = None
        self._topics = Topics()
        self.refresh()

    def refresh(self) -> None:
        self.lists.refresh()
        self.topics = {
            number: RecordedTopic(number, TopicName(name, topic_id), created, deleted, cause)
            for number, name, topic_id, created, deleted, cause in self._connection.execute(
                "SELECT id, name, topic_id, created_seq, deleted_seq, deleted_cause FROM topics"
            )
        }
        rows = self._connection.execute(
            "SELECT id, topic, partition FROM partitions WHERE id >= ? ORDER BY id", (len(self.topic_of),)
        ).fetchall()
        if rows:
            found = np.array(rows, np.int32)
            if int(found.min()) < 0 or int(found[:, (0, 2)].max()) >= PARTITIONS_MAX:
                raise HistoryError("a partition is damaged: its number does not exist")
            more = int(found[-1, 0]) + 1 - len(self.topic_of)
            self.topic_of = np.concatenate([self.topic_of, np.full(more, UNKNOWN, np.int32)])
            self.partition_of = np.concatenate([self.partition_of, np.full(more, UNKNOWN, np.int32)])
            self.topic_of[found[:, 0]], self.partition_of[found[:, 0]] = found[:, 1], found[:, 2]

    # -- tables

    def states(self, columns: IdColumns, numbers: IntArray) -> States:
        """Returns the states of partitions as the columns of a table; `topic` is the number in the file."""
        matrix = self.lists.matrix()
        found = {"topic": self.topic_of[numbers], "partition": self.partition_of[numbers]}
        found |= {name: columns.data[_AT[name], numbers] for name in NUMBERS}
        found |= {name: np.take(matrix, columns.data[_AT[name], numbers], axis=0) for name in LIST_COLUMNS}
        return States(**found)

    def topics_at(self, seq: int, numbers: IntArray, states: States) -> Topics:
        """Returns the topics after a moment; the ones of the last call if they are the same."""
        there = [topic for topic in self.topics.values() if topic.is_there(seq)]
        there_now = np.array([topic.number for topic in there], np.int32)
        key = there_now.tobytes(), numbers.tobytes(), states.min_isr.tobytes()
        if key != self._topics_key:
            self._topics, self._topics_key = _topics(there, states), key
        return self._topics

    def volumes(self, sample: Sample, numbers: IntArray, states: States) -> Volumes:
        """Returns the sizes and offsets of a sample, at the places that replicas have in `states`."""
        found = Volumes.empty(len(numbers), states.width)
        place = np.searchsorted(sample.partitions, numbers)
        place[place == len(sample.partitions)] = 0
        known = np.flatnonzero(sample.partitions[place] == numbers) if len(sample.partitions) else np.zeros(0, np.intp)
        rows, place = known.astype(np.int32), place[known]
        width = min(states.width, sample.size.shape[1])
        found.start_offset[rows] = sample.start_offset[place]
        for replica in range(width):
            found.size[rows, replica] = sample.size[:, replica][place]
            found.end_offset[rows, replica] = sample.end_offset[:, replica][place]
        before, after = np.take(self.lists.matrix(), sample.replicas[place], axis=0), states.replicas[rows]
        is_moved = (before != after).any(axis=1)
        if is_moved.any():
            found.follow(rows[is_moved], before[is_moved], after[is_moved])
        return found

    # -- values

    def state(self, number: int, values: Sequence[int], silent: frozenset[int] = frozenset()) -> PartitionState:
        """Returns one partition as a value. `values` are in the order of `COLUMNS`."""
        name, topic_id = self.topics[int(self.topic_of[number])].identity
        replicas = self.lists.list_of(values[_AT["replicas"]])
        min_isr = values[_AT["min_isr"]]
        return PartitionState(
            topic=name,
            partition=int(self.partition_of[number]),
            leader=values[_AT["leader"]],
            leader_epoch=values[_AT["leader_epoch"]],
            replicas=replicas,
            isr=self.lists.list_of(values[_AT["isr"]]),
            topic_id=b"" if topic_id == NO_TOPIC_ID else topic_id,
            min_isr=None if min_isr == UNKNOWN else min_isr,
            offline_replicas=self.lists.list_of(values[_AT["offline"]]),
            silent=tuple(each for each in replicas if each in silent),
        )

    def numbers_of(self, topic: str, partition: int | None = None) -> list[int]:
        """Returns the numbers in the file of a partition, or of all partitions of a topic, oldest first: a topic can
        have existed several times.
        """
        wanted = [each.number for each in self.topics.values() if each.identity.name == topic]
        is_it = np.isin(self.topic_of, wanted)
        if partition is not None:
            is_it &= self.partition_of == partition
        return [int(each) for each in np.flatnonzero(is_it)]


def values_at(columns: IdColumns, number: int) -> list[int] | None:
    """Returns one partition's values; None if the partition does not exist."""
    if number >= len(columns) or columns.data[_AT["replicas"], number] == ABSENT:
        return None
    return [int(value) for value in columns.data[:, number]]


def _topics(there: Sequence[RecordedTopic], states: States) -> Topics:
    """Returns topics with the rows of their partitions. A row is a place in `states`."""
    found = Topics()
    by_number: dict[int, Topic] = {}
    for recorded in there:
        topic = Topic(recorded.number, recorded.identity)
        by_number[recorded.number] = topic
    order = np.lexsort((states.partition, states.topic))
    numbers, partitions = states.topic[order], states.partition[order]
    begins = np.flatnonzero(np.diff(numbers, prepend=np.int32(UNKNOWN))).tolist()
    rows = order.tolist()
    for begin, end in pairwise([*begins, len(rows)]):
        topic = by_number[int(numbers[begin])]
        topic.min_isr = int(states.min_isr[rows[begin]])
        if partitions[end - 1] == end - begin - 1:
            topic.rows_by_partition, topic.count = rows[begin:end], end - begin
        else:
            for place in range(begin, end):
                topic.put(int(partitions[place]), rows[place])
    found.fill(by_number.values())
    return found


class NodesTimeline:
    """Brokers and controllers after each moment in which they changed."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        first = connection.execute("SELECT seq, nodes FROM checkpoints ORDER BY seq LIMIT 1").fetchone()
        self._seqs = [0 if first is None else int(first[0])]
        self._nodes = [Nodes({}, UNKNOWN) if first is None else nodes_from_text(first[1])]
        for seq, broker, state in connection.execute(
            "SELECT seq, broker, state FROM nodes WHERE seq > ? ORDER BY id", (self._seqs[0],)
        ):
            now = nodes_after(self._nodes[-1], [(broker, state)])
            if seq == self._seqs[-1]:
                self._nodes[-1] = now
            else:
                self._seqs.append(seq)
                self._nodes.append(now)

    def after(self, seq: int) -> Nodes:
        return self._nodes[max(0, bisect_right(self._seqs, seq) - 1)]

    def before(self, seq: int) -> Nodes:
        return self.after(seq - 1)
