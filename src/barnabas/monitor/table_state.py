"""The content of the table: its columns, and the rows that are in use. `ClusterTable` reads and versions it."""

from __future__ import annotations

import numpy as np

from barnabas.monitor.columns import UNKNOWN, IntArray, LongArray, States, Volumes
from barnabas.monitor.partition_state import BrokerState
from barnabas.monitor.texts import NO_NODE
from barnabas.monitor.topics import Topics


class TableState:
    def __init__(self) -> None:
        self.version = 0
        self.time_ms = 0
        self.cluster_id: str | None = None
        #: The active controller; -1 if it is unknown.
        self.controller = NO_NODE
        self.brokers: dict[int, BrokerState] = {}
        self.topics = Topics()
        self.states = States.empty(0, 1)
        self.volumes = Volumes.empty(0, 1)
        #: Changes when a row gets another partition, or a partition other replicas: then its sizes are unknown.
        self.layout = 0
        #: The time, by row, at which an exact feed last wrote it; -1 if none did.
        self.exact_ms: LongArray = np.full(0, UNKNOWN, np.int64)
        #: The number of elections, by row, that no feed delivered.
        self.missed_elections: IntArray = np.zeros(0, np.int32)
        self._free: list[int] = []
        self._next_row = 0
        self._rows: IntArray | None = None

    @property
    def rows(self) -> IntArray:
        """Returns the numbers of the rows with a partition."""
        if self._rows is None:
            self._rows = np.flatnonzero(self.states.topic[: self._next_row] != UNKNOWN).astype(np.int32)
        return self._rows

    @property
    def silent(self) -> frozenset[int]:
        """Returns the brokers that are in the cluster and do not answer."""
        return frozenset(broker.broker_id for broker in self.brokers.values() if broker.problem is not None)

    def row_of(self, topic: str, partition: int) -> int | None:
        found = self.topics.by_name.get(topic)
        return None if found is None else found.row_of(partition)

    # -- for those who write

    def fill(self, states: States, volumes: Volumes, topics: Topics) -> None:
        """Replaces everything about partitions. Row n of the columns is row n of the table."""
        self.states, self.volumes, self.topics = states, volumes, topics
        self.exact_ms = np.full(len(states), UNKNOWN, np.int64)
        self.missed_elections = np.zeros(len(states), np.int32)
        self._free, self._next_row, self._rows = [], len(states), None
        self.layout += 1

    def allocate(self, count: int) -> IntArray:
        """Returns the numbers of new rows; rows of partitions that were removed in this version are not reused yet."""
        reused = [self._free.pop() for _ in range(min(count, len(self._free)))]
        first = self._next_row
        self._next_row += count - len(reused)
        self._grow(self._next_row, self.states.width)
        self._rows = None
        self.layout += 1
        return np.array([*reused, *range(first, self._next_row)], np.int32)

    def release(self, rows: IntArray) -> None:
        self.states.topic[rows] = UNKNOWN
        self.volumes.clear(rows)
        self.exact_ms[rows] = UNKNOWN
        self.missed_elections[rows] = 0
        self._free.extend(rows.tolist())
        self._rows = None
        self.layout += 1

    def widen(self, width: int) -> None:
        """Makes room for longer lists of replicas."""
        if width > self.states.width:
            self._grow(len(self.states), width)

    def _grow(self, count: int, width: int) -> None:
        if count <= len(self.states) and width <= self.states.width:
            return
        room = len(self.states) if count <= len(self.states) else max(64, count + count // 4)
        self.states = self.states.resized(room, width)
        self.volumes = self.volumes.resized(room, width)
        more = room - len(self.exact_ms)
        self.exact_ms = np.concatenate([self.exact_ms, np.full(more, UNKNOWN, np.int64)])
        self.missed_elections = np.concatenate([self.missed_elections, np.zeros(more, np.int32)])
