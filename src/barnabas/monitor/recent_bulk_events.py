"""The recent bulk events of a journal, searched by partition. An event of one partition is made when it is wanted."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from barnabas.common.bulk_events import row_event, topic_fields
from barnabas.monitor.changes import Event

#: Rows in the events that are kept.
_ROWS_MAX: Final = 200_000


_COLUMNS: Final = ("partition", "transition", "leader_epoch", "partition_epoch")


class _Bulk:
    """A bulk event. `used` marks the rows that have explained a change."""

    __slots__ = ("event", "number", "used")

    def __init__(self, number: int, event: Event) -> None:
        self.number = number
        # Numbers in a list take ten times the memory.
        self.event = event | {name: array("i", event[name]) for name in _COLUMNS}
        self.used = bytearray(len(event["partition"]))


class RecentBulkEvents:
    def __init__(self) -> None:
        self._order: deque[_Bulk] = deque()
        self._rows = 0
        #: Topic -> the bulk events about it, each with the topic's entry in it and the number of its first row.
        self._by_topic: dict[str, deque[tuple[_Bulk, list[Any], int]]] = {}

    def __len__(self) -> int:
        return self._rows

    def add(self, number: int, event: Event) -> None:
        bulk = _Bulk(number, event)
        self._order.append(bulk)
        self._rows += len(bulk.used)
        self._index(bulk)
        while self._rows > _ROWS_MAX and len(self._order) > 1:
            self._drop_first()

    def of_partition(self, topic: str, partition: int) -> list[tuple[int, Event]]:
        """Returns the events of a partition that have not explained a change, each with the number of its event."""
        return [
            (bulk.number, row_event(bulk.event, row, topic_fields(bulk.event, entry)))
            for bulk, entry, row in self._rows_of(topic, partition)
        ]

    def newest_first(self) -> Iterator[tuple[Event, NDArray[np.uint8]]]:
        """Yields the events that can still explain a change, each with its rows that have explained one; the caller
        marks more.
        """
        for bulk in reversed(self._order):
            if 0 in bulk.used:
                yield bulk.event, np.frombuffer(bulk.used, np.uint8)

    def forget_used(self) -> None:
        """Drops the events whose rows have all explained a change."""
        kept = [bulk for bulk in self._order if 0 in bulk.used]
        if len(kept) == len(self._order):
            return
        self._order = deque(kept)
        self._rows = sum(len(bulk.used) for bulk in kept)
        self._by_topic = {}
        for bulk in kept:
            self._index(bulk)

    def _index(self, bulk: _Bulk) -> None:
        begin = 0
        for topic in bulk.event["topics"]:
            self._by_topic.setdefault(topic[0], deque()).append((bulk, topic, begin))
            begin += topic[3]

    def use(self, topic: str, partition: int, last: int) -> None:
        """Marks the events of a partition up to this number: they explain no further change."""
        for bulk, _, row in self._rows_of(topic, partition):
            if bulk.number <= last:
                bulk.used[row] = True

    def _rows_of(self, topic: str, partition: int) -> list[tuple[_Bulk, list[Any], int]]:
        found = []
        for bulk, entry, begin in self._by_topic.get(topic, ()):
            partitions = bulk.event["partition"][begin : begin + entry[3]]
            if partition in partitions:
                row = begin + partitions.index(partition)
                if not bulk.used[row]:
                    found.append((bulk, entry, row))
        return found

    def _drop_first(self) -> None:
        bulk = self._order.popleft()
        self._rows -= len(bulk.used)
        for topic in bulk.event["topics"]:
            events = self._by_topic[topic[0]]
            events.popleft()
            if not events:
                del self._by_topic[topic[0]]
