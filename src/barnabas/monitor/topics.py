"""The topics of the table: by name, by number, and in the order of their names."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np

from barnabas.monitor.columns import UNKNOWN, BoolArray, IntArray
from barnabas.monitor.delta import NO_TOPIC_ID, NameRange, TopicName

#: Ids of deleted topics that are remembered.
_DELETED_IDS_MAX: Final = 4_096


class Topic:
    """One topic, and the row of each of its partitions."""

    __slots__ = ("count", "exact_ms", "identity", "min_isr", "number", "rows_by_partition")

    def __init__(self, number: int, identity: TopicName) -> None:
        self.number = number
        self.identity = identity
        self.min_isr = UNKNOWN
        #: When an exact feed last reported it; -1 if none did.
        self.exact_ms = UNKNOWN
        #: The row of each partition number; -1 where there is none.
        self.rows_by_partition: list[int] = []
        self.count = 0

    @property
    def name(self) -> str:
        return self.identity.name

    @property
    def rows(self) -> IntArray:
        return np.array([row for row in self.rows_by_partition if row != UNKNOWN], np.int32)

    def row_of(self, partition: int) -> int | None:
        row = self.rows_by_partition[partition] if 0 <= partition < len(self.rows_by_partition) else UNKNOWN
        return None if row == UNKNOWN else row

    def put(self, partition: int, row: int) -> None:
        rows = self.rows_by_partition
        if partition >= len(rows):
            rows.extend([UNKNOWN] * (partition + 1 - len(rows)))
        self.count += (row != UNKNOWN) - (rows[partition] != UNKNOWN)
        rows[partition] = row


class Topics:
    def __init__(self) -> None:
        self.by_name: dict[str, Topic] = {}
        self.by_number: dict[int, Topic] = {}
        self._by_id: dict[bytes, Topic] = {}
        self._deleted_ids: dict[bytes, None] = {}
        self._free: list[int] = []
        self._next = 0
        self._sorted: list[str] | None = None
        self._ranks: IntArray | None = None
        self._internal: BoolArray | None = None

    def __len__(self) -> int:
        return len(self.by_name)

    def __iter__(self) -> Iterator[Topic]:
        return iter(self.by_name.values())

    def by_id(self, topic_id: bytes) -> Topic | None:
        return self._by_id.get(topic_id)

    def add(self, identity: TopicName) -> Topic:
        if self._free:
            number = self._free.pop()
        else:
            number, self._next = self._next, self._next + 1
        topic = Topic(number, identity)
        self.by_name[identity.name] = self.by_number[number] = topic
        if identity.topic_id != NO_TOPIC_ID:
            self._by_id[identity.topic_id] = topic
        self._forget_order()
        return topic

    def fill(self, topics: Iterable[Topic]) -> None:
        """Adds topics that have their numbers and rows; only if there are none yet."""
        for topic in topics:
            self.by_name[topic.name] = self.by_number[topic.number] = topic
            if topic.identity.topic_id != NO_TOPIC_ID:
                self._by_id[topic.identity.topic_id] = topic
        self._next = max(self.by_number, default=UNKNOWN) + 1
        self._forget_order()

    def remove(self, topic: Topic) -> None:
        """Removes a topic. Its number is free from the next version on, by `release`."""
        if self.by_name.get(topic.name) is topic:
            del self.by_name[topic.name]
        self._by_id.pop(topic.identity.topic_id, None)
        del self.by_number[topic.number]
        self._forget_order()

    def release(self, numbers: list[int]) -> None:
        self._free.extend(numbers)

    def note_deleted(self, topic_id: bytes) -> None:
        """Remembers an id whose topic does not return."""
        if topic_id != NO_TOPIC_ID:
            self._deleted_ids[topic_id] = None
            if len(self._deleted_ids) > _DELETED_IDS_MAX:
                del self._deleted_ids[next(iter(self._deleted_ids))]

    def is_deleted(self, topic_id: bytes) -> bool:
        return topic_id in self._deleted_ids

    def names(self) -> list[str]:
        """Returns all names, sorted."""
        if self._sorted is None:
            self._sorted = sorted(self.by_name)
        return self._sorted

    def within(self, names: NameRange) -> list[Topic]:
        known = self.names()
        end = len(known) if names.end is None else bisect_left(known, names.end)
        return [self.by_name[name] for name in known[bisect_left(known, names.first) : end]]

    def ranks(self) -> IntArray:
        """Returns the place of each topic's name in their order, by number."""
        if self._ranks is None:
            self._ranks = np.zeros(self._next, np.int32)
            self._ranks[[self.by_name[name].number for name in self.names()]] = np.arange(len(self), dtype=np.int32)
        return self._ranks

    def internal(self) -> BoolArray:
        """Returns whether each topic is internal, by its name, by number."""
        if self._internal is None:
            self._internal = np.zeros(self._next, np.bool_)
            self._internal[[topic.number for topic in self if topic.name.startswith("__")]] = True
        return self._internal

    def _forget_order(self) -> None:
        self._sorted = self._ranks = self._internal = None
