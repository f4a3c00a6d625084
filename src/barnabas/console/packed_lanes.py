"""The states of single partitions over time. Those of a change of very many partitions are kept as columns."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from barnabas.monitor.columns import UNKNOWN, IntArray, LongArray, unique_rows, unpacked
from barnabas.monitor.packed_changes import Cause, PackedChanges

#: States that are kept.
_ROWS_KEPT: Final = 200_000
_PARTITION_BITS: Final = 32


@dataclass(frozen=True, slots=True)
class Lane:
    """The state of a partition from one time on. `replicas` is None if the event does not contain them."""

    time_ms: int
    leader: int
    leader_epoch: int | None
    isr: tuple[int, ...]
    replicas: tuple[int, ...] | None
    cause: str | None
    codes: tuple[str, ...]
    id: int


@dataclass(slots=True)
class _Part:
    """The states of one change, in the order of their keys. `event` is the number of each one's event."""

    time_ms: int
    keys: LongArray
    leader: IntArray
    leader_epoch: IntArray
    #: Numbers of lists, of which a cluster has few different ones.
    isr: NDArray[Any]
    replicas: NDArray[Any]
    isrs: IntArray
    replica_lists: IntArray
    cause: IntArray
    event: IntArray
    causes: list[Cause]

    def lane(self, row: int) -> Lane:
        number = int(self.cause[row])
        cause = None if number == UNKNOWN else self.causes[number]
        return Lane(
            self.time_ms if cause is None else cause.time_ms,
            int(self.leader[row]),
            int(self.leader_epoch[row]),
            unpacked(self.isrs[self.isr[row]]),
            unpacked(self.replica_lists[self.replicas[row]]),
            None if cause is None else cause.text,
            () if cause is None else cause.codes,
            int(self.event[row]),
        )


class PackedLanes:
    def __init__(self) -> None:
        self._parts: deque[_Part] = deque()
        self._rows = 0
        #: A number for each topic that had such a change; the numbers of the table are used again.
        self._topics: dict[str, int] = {}

    def __len__(self) -> int:
        return self._rows

    def add(self, packed: PackedChanges, events: IntArray) -> None:
        """Adds the states after a change. Rows with the event -1 are kept elsewhere."""
        numbers = np.full(1 + max(packed.topics, default=0), UNKNOWN, np.int64)
        for number, identity in packed.topics.items():
            numbers[number] = self._topics.setdefault(identity.name, len(self._topics))
        keys = numbers[packed.after.topic] << _PARTITION_BITS | packed.after.partition
        order = np.argsort(keys, kind="stable")
        order = order[events[order] != UNKNOWN]
        after = packed.after
        isrs, _, isr, _ = unique_rows(after.isr[order])
        lists, _, replicas, _ = unique_rows(after.replicas[order])
        part = _Part(
            packed.time_ms,
            keys[order],
            after.leader[order],
            after.leader_epoch[order],
            isr.astype(_kind(len(isrs))),
            replicas.astype(_kind(len(lists))),
            isrs,
            lists,
            packed.cause[order],
            events[order],
            packed.causes,
        )
        self._parts.append(part)
        self._rows += len(order)
        while self._rows > _ROWS_KEPT and len(self._parts) > 1:
            self._rows -= len(self._parts.popleft().keys)

    def of(self, topic: str, partition: int) -> list[Lane]:
        """Returns the states of a partition, oldest first."""
        number = self._topics.get(topic)
        if number is None:
            return []
        key, found = number << _PARTITION_BITS | partition, []
        for part in self._parts:
            row = int(np.searchsorted(part.keys, key))
            if row < len(part.keys) and part.keys[row] == key:
                found.append(part.lane(row))
        return found


def _kind(count: int) -> type[np.uint16] | type[np.uint32]:
    return np.uint16 if count <= np.iinfo(np.uint16).max else np.uint32
