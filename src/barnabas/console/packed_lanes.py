"""The states of single partitions over time. Those of a change of very many partitions are kept as columns."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from barnabas.monitor.columns import UNKNOWN, IntArray, LongArray, States, unique_rows, unpacked
from barnabas.monitor.packed_changes import Cause, PackedChanges

#: The id of a lane that is not the state after an event, but the one before the first event that is known.
NO_EVENT: Final = 0
#: The id of a lane whose event waits for its cause.
NO_CAUSE_YET: Final = -1
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
class _Column:
    """The leaders, ISRs and replicas of some partitions."""

    leader: IntArray
    leader_epoch: IntArray
    #: Numbers of lists, of which a cluster has few different ones.
    isr: NDArray[Any]
    replicas: NDArray[Any]
    isrs: IntArray
    replica_lists: IntArray

    @classmethod
    def of(cls, states: States, order: IntArray) -> _Column:
        isrs, _, isr, _ = unique_rows(states.isr[order])
        lists, _, replicas, _ = unique_rows(states.replicas[order])
        leader, epoch = states.leader[order], states.leader_epoch[order]
        return cls(leader, epoch, isr.astype(_kind(len(isrs))), replicas.astype(_kind(len(lists))), isrs, lists)

    def lane(self, row: int, time_ms: int, cause: Cause | None, event: int) -> Lane:
        return Lane(
            time_ms,
            int(self.leader[row]),
            int(self.leader_epoch[row]),
            unpacked(self.isrs[self.isr[row]]),
            unpacked(self.replica_lists[self.replicas[row]]),
            None if cause is None else cause.text,
            () if cause is None else cause.known_codes,
            event,
        )


@dataclass(slots=True)
class _Part:
    """The states of one change, in the order of their keys. `event` is the number of each one's event."""

    time_ms: int
    keys: LongArray
    before: _Column
    after: _Column
    cause: IntArray
    event: IntArray
    causes: list[Cause]

    def row_of(self, key: int) -> int | None:
        row = int(np.searchsorted(self.keys, key))
        return row if row < len(self.keys) and self.keys[row] == key else None

    def lane(self, row: int) -> Lane:
        number = int(self.cause[row])
        cause = None if number == UNKNOWN else self.causes[number]
        return self.after.lane(row, self.time_ms if cause is None else cause.time_ms, cause, int(self.event[row]))


class PackedLanes:
    def __init__(self) -> None:
        self._parts: deque[_Part] = deque()
        self._rows = 0
        #: The time of the last states that are no longer kept; 0 while all are.
        self.cut_ms = 0
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
        part = _Part(
            packed.time_ms,
            keys[order],
            _Column.of(packed.before, order),
            _Column.of(packed.after, order),
            packed.cause[order],
            events[order],
            packed.causes,
        )
        self._parts.append(part)
        self._rows += len(order)
        while self._rows > _ROWS_KEPT and len(self._parts) > 1:
            cut = self._parts.popleft()
            self._rows -= len(cut.keys)
            self.cut_ms = cut.time_ms

    def of(self, topic: str, partition: int) -> list[Lane]:
        """Returns the states of a partition, oldest first."""
        return [part.lane(row) for part, row in self._places(topic, partition)]

    def before(self, topic: str, partition: int) -> Lane | None:
        """Returns the state of a partition before the oldest one that is kept, without its time."""
        found = next(self._places(topic, partition), None)
        return None if found is None else found[0].before.lane(found[1], 0, None, NO_EVENT)

    def _places(self, topic: str, partition: int) -> Iterator[tuple[_Part, int]]:
        number = self._topics.get(topic)
        if number is None:
            return
        key = number << _PARTITION_BITS | partition
        for part in self._parts:
            row = part.row_of(key)
            if row is not None:
                yield part, row


def _kind(count: int) -> type[np.uint16] | type[np.uint32]:
    return np.uint16 if count <= np.iinfo(np.uint16).max else np.uint32
