"""The rows of the file: change sets become moments, events and nodes; the mirror of the table becomes checkpoints.

The writer knows the number in the file of each partition of the table, by its row. It never commits and decides
nothing; `Recorder` does.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from itertools import count, repeat
from typing import Final

import numpy as np

from barnabas.history.id_columns import ABSENT, IdColumns
from barnabas.history.list_numbers import ListNumbers
from barnabas.history.rebuilding import Nodes, broker_text, nodes_to_text
from barnabas.history.schema import CHANGED, COLUMNS, CREATED, LIST_COLUMNS, NUMBERS, REMOVED
from barnabas.monitor.change_set import BrokerChange, ChangeSet
from barnabas.monitor.columns import UNKNOWN, IntArray, States
from barnabas.monitor.delta import TopicName
from barnabas.monitor.table import ClusterTable

#: The source of the first moment of a file, and of the first one after the recording was interrupted.
BEGIN: Final = "begin"
RESUMED: Final = "resumed"
FIRST_SEQ: Final = 1
_INSERT_EVENT: Final = f"INSERT INTO events VALUES ({', '.join('?' * (len(COLUMNS) + 6))})"


class Writer:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.lists = ListNumbers(connection)
        self.mirror = IdColumns()
        self.seq = self._last("seq", "moments", 0)
        self.last_event = self._last("id", "events", 0)
        self.time_ms = self._last("time_ms", "moments", 0)
        self._next_topic = self._last("id", "topics", -1) + 1
        self._next_partition = self._last("id", "partitions", -1) + 1
        #: Name -> number in the file and identity, of the topics that exist.
        self.topics: dict[str, tuple[int, TopicName]] = {}
        self._by_row: IntArray = np.zeros(0, np.int32)
        self._causes: dict[tuple[str | None, str], int] = {}

    def _last(self, column: str, table: str, default: int) -> int:
        return int(self.connection.execute(f"SELECT coalesce(max({column}), ?) FROM {table}", (default,)).fetchone()[0])

    # -- moments

    def begin_moment(self, time_ms: int) -> None:
        self.seq += 1
        self.time_ms = max(self.time_ms, time_ms)

    def end_moment(self, source: str, merged: int = 0) -> None:
        self.lists.write()
        self.connection.execute(
            "INSERT INTO moments VALUES (?, ?, ?, ?, ?)", (self.seq, self.time_ms, self.last_event, source, merged)
        )

    def write(self, change_set: ChangeSet) -> None:
        """Writes one version of the table as a moment."""
        self.begin_moment(change_set.time_ms)
        if len(change_set.removed_rows):
            gone = self.numbers_of(change_set.removed_rows)
            self.write_events(gone, np.full((len(gone), len(COLUMNS)), ABSENT, np.int32), REMOVED)
        for topic, is_created in change_set.topic_changes:
            if is_created:
                self.add_topic(topic)
            else:
                self.delete_topic(topic)
        if len(change_set.created_rows):
            self.create(change_set.created_rows, change_set.created, change_set.topics)
        if len(change_set.rows):
            self.write_events(
                self.numbers_of(change_set.rows),
                self.values_of(change_set.after),
                CHANGED,
                change_set.missed_elections.tolist(),
            )
        self.write_nodes(change_set.brokers, None if change_set.controller is None else change_set.controller[1])
        self.end_moment(change_set.source)

    def write_events(
        self, partitions: IntArray, values: IntArray, kind: int, missed: Sequence[int] | None = None
    ) -> None:
        """Writes the states of partitions after this moment."""
        if not len(partitions):
            return
        self.mirror.put(partitions, values)
        rows = zip(
            count(self.last_event + 1),
            repeat(self.seq),
            partitions.tolist(),
            repeat(kind),
            *values.T.tolist(),
            repeat(0) if missed is None else missed,
            repeat(None, len(partitions)),
            strict=False,
        )
        self.connection.executemany(_INSERT_EVENT, rows)
        self.last_event += len(partitions)

    def write_nodes(self, brokers: Iterable[BrokerChange], controller: int | None) -> None:
        rows: list[tuple[int, int | None, str]] = [
            (self.seq, change.broker_id, broker_text(change.after)) for change in brokers
        ]
        if controller is not None:
            rows.append((self.seq, None, json.dumps(controller)))
        self.connection.executemany("INSERT INTO nodes(seq, broker, state) VALUES (?, ?, ?)", rows)

    # -- topics and partitions

    def add_topic(self, topic: TopicName) -> None:
        self.topics[topic.name] = self._next_topic, topic
        self.connection.execute(
            "INSERT INTO topics(id, name, topic_id, created_seq) VALUES (?, ?, ?, ?)",
            (self._next_topic, topic.name, topic.topic_id, self.seq),
        )
        self._next_topic += 1

    def delete_topic(self, topic: TopicName) -> None:
        known = self.topics.get(topic.name)
        if known is not None and known[1] == topic:
            del self.topics[topic.name]
            self.connection.execute("UPDATE topics SET deleted_seq = ? WHERE id = ?", (self.seq, known[0]))

    def create(self, rows: IntArray, states: States, topics: Mapping[int, TopicName]) -> None:
        """Writes new partitions of the table, whose topics are already in the file."""
        numbers = self.name(rows, states, topics)
        self.write_events(numbers, self.values_of(states), CREATED)

    def name(self, rows: IntArray, states: States, topics: Mapping[int, TopicName]) -> IntArray:
        """Gives rows of the table new numbers in the file."""
        by_number = {number: self.topics[topics[number].name][0] for number in set(states.topic.tolist())}
        first = self._next_partition
        self._next_partition += len(rows)
        numbers = np.arange(first, self._next_partition, dtype=np.int32)
        self.connection.executemany(
            "INSERT INTO partitions VALUES (?, ?, ?)",
            zip(
                numbers.tolist(),
                (by_number[number] for number in states.topic.tolist()),
                states.partition.tolist(),
                strict=True,
            ),
        )
        self.assign(rows, numbers)
        return numbers

    def assign(self, rows: IntArray, numbers: IntArray) -> None:
        """Notes the numbers in the file of rows of the table."""
        if len(rows) and int(rows.max()) >= len(self._by_row):
            more = int(rows.max()) + 1 + len(self._by_row) // 4 - len(self._by_row)
            self._by_row = np.concatenate([self._by_row, np.full(more, UNKNOWN, np.int32)])
        self._by_row[rows] = numbers

    def numbers_of(self, rows: IntArray) -> IntArray:
        found: IntArray = self._by_row[rows]
        return found

    def number_of(self, row: int) -> int:
        """Returns the number in the file of one row; -1 if it has none."""
        return int(self._by_row[row]) if row < len(self._by_row) else UNKNOWN

    def values_of(self, states: States) -> IntArray:
        """Returns states as rows of numbers, in the order of `COLUMNS`."""
        numbers = [getattr(states, name) for name in NUMBERS]
        lists = [self.lists.numbers_of(getattr(states, name)) for name in LIST_COLUMNS]
        found: IntArray = np.column_stack([*numbers, *lists]).astype(np.int32, copy=False)
        return found

    # -- checkpoints and causes

    def write_checkpoint(self, table: ClusterTable) -> None:
        """Writes the state after the last moment, which is that of the table."""
        self.lists.write()
        self.connection.execute(
            "INSERT OR REPLACE INTO checkpoints VALUES (?, ?, ?, ?, ?)",
            (
                self.seq,
                self.time_ms,
                self.last_event,
                nodes_to_text(Nodes(table.brokers, table.controller)),
                self.mirror.packed(),
            ),
        )

    def cause(self, code: str | None, text: str) -> int:
        """Returns the number of a cause."""
        known = self._causes.get((code, text))
        if known is None:
            row = self.connection.execute("SELECT id FROM causes WHERE text = ? AND code IS ?", (text, code)).fetchone()
            known = row[0] if row else None
        if known is None:
            cursor = self.connection.execute(
                "INSERT INTO causes(code, text, last_seq) VALUES (?, ?, ?)", (code, text, self.seq)
            )
            known = int(cursor.lastrowid or 0)
        else:
            self.connection.execute("UPDATE causes SET last_seq = ? WHERE id = ?", (self.seq, known))
        self._causes[code, text] = known
        return known

    # -- times

    def add_gap(self, begin_ms: int, end_ms: int | None, why: str) -> None:
        self.connection.execute("INSERT INTO gaps(begin_ms, end_ms, reason) VALUES (?, ?, ?)", (begin_ms, end_ms, why))

    def end_gap(self, end_ms: int) -> None:
        """Ends the gap that has no end yet."""
        self.connection.execute("UPDATE gaps SET end_ms = ? WHERE end_ms IS NULL", (end_ms,))

    def put_meta(self, key: str, value: object) -> None:
        self.connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    def note_alive(self, now_ms: int) -> None:
        """Notes that the state of the last moment still holds."""
        self.put_meta("last_ms", now_ms)

    def alive_ms(self) -> int:
        """Returns the last time at which the state was known."""
        row = self.connection.execute("SELECT value FROM meta WHERE key = 'last_ms'").fetchone()
        return max(self.time_ms, int(row[0]) if row else 0)
