"""The columns of partitions: one numpy array for each property, one row for each partition.

A list of brokers occupies one row of a two-dimensional array, filled with -1 behind its end. Its width is that of the
longest list in the cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int32]
LongArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

UNKNOWN: Final = -1
#: Columns with one number for each partition.
SCALARS: Final = ("topic", "partition", "leader", "leader_epoch", "partition_epoch", "min_isr")
#: Columns with a list for each partition. `directories` are numbers, in the order of the replicas.
LISTS: Final = ("replicas", "isr", "elr", "offline", "adding", "removing", "directories")
#: Lists whose order has no meaning.
_SETS: Final = ("isr", "elr", "offline", "adding", "removing")
#: Columns that only some sources know.
OPTIONAL: Final = frozenset({"partition_epoch", "min_isr", "elr", "offline", "adding", "removing", "directories"})
#: The weights of the columns of a matrix in the number of a row (`unique_rows`), which is compared modulo 2**64.
_FACTORS: Final = np.random.default_rng(0).integers(1, 1 << 63, 64, np.uint64) * 2 + 1


@dataclass(slots=True)
class States:
    """The state of some partitions. -1 means no broker, or an unknown epoch or min ISR."""

    topic: IntArray
    partition: IntArray
    leader: IntArray
    leader_epoch: IntArray
    partition_epoch: IntArray
    min_isr: IntArray
    replicas: IntArray
    isr: IntArray
    elr: IntArray
    offline: IntArray
    adding: IntArray
    removing: IntArray
    directories: IntArray

    @classmethod
    def empty(cls, count: int, width: int) -> States:
        scalars = {name: np.full(count, UNKNOWN, np.int32) for name in SCALARS}
        return cls(**scalars, **{name: np.full((count, width), UNKNOWN, np.int32) for name in LISTS})

    def __len__(self) -> int:
        return len(self.topic)

    @property
    def width(self) -> int:
        return int(self.replicas.shape[1])

    def take(self, rows: IntArray | BoolArray) -> States:
        """Returns a copy of these rows."""
        return States(*(np.array(getattr(self, each.name)[rows]) for each in fields(self)))

    def kept(self) -> States:
        """Returns the same rows for a long time: lists that no row has take no memory. They cannot be written to."""
        shared = {name: column for name in LISTS if not len(column := getattr(self, name)) or (column == UNKNOWN).all()}
        empty = {name: np.broadcast_to(np.int32(UNKNOWN), column.shape) for name, column in shared.items()}
        return replace(self, **empty)

    def put(self, rows: IntArray, values: States, names: Iterable[str] = (*SCALARS, *LISTS)) -> None:
        for name in names:
            getattr(self, name)[rows] = getattr(values, name)

    def resized(self, count: int, width: int) -> States:
        """Returns a copy with room for more rows, and for longer lists."""
        found = States.empty(count, width)
        for name in SCALARS:
            getattr(found, name)[: len(self)] = getattr(self, name)
        for name in LISTS:
            getattr(found, name)[: len(self), : self.width] = getattr(self, name)
        return found

    @staticmethod
    def joined(parts: Sequence[States], width: int) -> States:
        """Returns the rows of all parts, in their order."""
        if not parts:
            return States.empty(0, width)
        wide = [part if part.width == width else part.resized(len(part), width) for part in parts]
        if len(wide) == 1:
            return wide[0]
        return States(*(np.concatenate([getattr(part, each.name) for part in wide]) for each in fields(States)))


def packed(lists: Sequence[Sequence[int]], width: int) -> IntArray:
    """Returns lists of numbers as the rows of an array, filled with -1. Rows that share a list share its conversion."""
    numbers: dict[int, int] = {}
    index = np.fromiter((numbers.setdefault(id(each), len(numbers)) for each in lists), np.intp, len(lists))
    if len(numbers) * 2 > len(lists):
        return _packed(lists, width)
    _, first = np.unique(index, return_index=True)
    found: IntArray = _packed([lists[place] for place in first.tolist()], width)[index]
    return found


def _packed(lists: Sequence[Sequence[int]], width: int) -> IntArray:
    lengths = np.fromiter(map(len, lists), np.intp, len(lists))
    found = np.full((len(lists), width), UNKNOWN, np.int32)
    found[np.arange(width) < lengths[:, None]] = np.fromiter(chain.from_iterable(lists), np.int32, int(lengths.sum()))
    return found


class UniqueRows(NamedTuple):
    """The different rows of a matrix, in order; `first` is where each is first, `inverse` the number of each row."""

    rows: IntArray
    first: NDArray[np.intp]
    inverse: NDArray[np.intp]
    counts: NDArray[np.intp]


def unique_rows(matrix: IntArray) -> UniqueRows:
    """Returns what `np.unique(matrix, axis=0)` returns, in a tenth of the time if few rows are different: rows are
    sorted by a number for each, and whether equal numbers stand for equal rows is checked.
    """
    factors = _FACTORS[: matrix.shape[1]]
    if len(factors) == matrix.shape[1]:
        keys = (matrix.astype(np.uint64) * factors).sum(axis=1, dtype=np.uint64)
        _, first, inverse, counts = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
        found = matrix[first]
        if (found[inverse] == matrix).all():
            order = np.lexsort(found.T[::-1])
            places = np.empty(len(order), np.intp)
            places[order] = np.arange(len(order))
            return UniqueRows(found[order], first[order], places[inverse], counts[order])
    found, first, inverse, counts = np.unique(
        matrix, axis=0, return_index=True, return_inverse=True, return_counts=True
    )
    return UniqueRows(found, first, inverse.reshape(-1), counts)


def without_match(one: IntArray, other: IntArray) -> BoolArray:
    """Returns which values of each row are in no column of the same row of `other`; padding counts as in it."""
    found: BoolArray = one != UNKNOWN
    for place in range(other.shape[1]):
        found &= one != other[:, place, None]
    return found


def unpacked(row: IntArray) -> tuple[int, ...]:
    """Returns one row of a packed list without the padding."""
    return tuple(int(value) for value in row if value != UNKNOWN)


def differing(before: States, after: States, known: frozenset[str]) -> BoolArray:
    """Returns which rows differ. Optional columns count if they are `known`; partition epochs do not count, because
    they change only together with another column.
    """
    found: BoolArray = (before.leader != after.leader) | (before.leader_epoch != after.leader_epoch)
    found |= (before.replicas != after.replicas).any(axis=1)
    if "min_isr" in known:
        found |= before.min_isr != after.min_isr
    if "directories" in known:
        found |= (before.directories != after.directories).any(axis=1)
    for name in _SETS:
        if name in OPTIONAL and name not in known:
            continue
        one, other = getattr(before, name), getattr(after, name)
        rows = np.flatnonzero((one != other).any(axis=1))
        if len(rows):
            found[rows] |= (np.sort(one[rows], axis=1) != np.sort(other[rows], axis=1)).any(axis=1)
    return found


@dataclass(slots=True)
class Volumes:
    """The sizes and offsets of some partitions; -1 is unknown. The columns by replica are in the order of the lists of
    replicas.
    """

    #: By replica: bytes of its log, its log end offset, and the lag that its broker reports.
    size: LongArray
    end_offset: LongArray
    reported_lag: LongArray
    #: The log start offset of the leader.
    start_offset: LongArray
    high_watermark: LongArray

    @classmethod
    def empty(cls, count: int, width: int) -> Volumes:
        by_replica = [np.full((count, width), UNKNOWN, np.int64) for _ in range(3)]
        return cls(*by_replica, *(np.full(count, UNKNOWN, np.int64) for _ in range(2)))

    def resized(self, count: int, width: int) -> Volumes:
        found = Volumes.empty(count, width)
        for each in fields(self):
            value = getattr(self, each.name)
            place = (slice(0, len(value)), slice(0, value.shape[1])) if value.ndim == 2 else slice(0, len(value))
            getattr(found, each.name)[place] = value
        return found

    def clear(self, rows: IntArray) -> None:
        for each in fields(self):
            getattr(self, each.name)[rows] = UNKNOWN

    def follow(self, rows: IntArray, before: IntArray, after: IntArray) -> None:
        """Moves the values of each replica to its place in the new lists of replicas."""
        is_same = (before[:, :, None] == after[:, None, :]) & (after[:, None, :] != UNKNOWN)
        place, is_known = is_same.argmax(axis=1), is_same.any(axis=1)
        for column in (self.size, self.end_offset, self.reported_lag):
            column[rows] = np.where(is_known, np.take_along_axis(column[rows], place, axis=1), UNKNOWN)

    def lags(self, rows: IntArray, leaders: IntArray, replicas: IntArray) -> LongArray:
        """Returns how many records of the leader's log each replica lacks. The two log ends are not read at the same
        instant: under load, the difference includes records in flight between the reads.
        """
        ends = self.end_offset[rows]
        is_leader = (replicas == leaders[:, None]) & (replicas != UNKNOWN)
        leader_end = np.where(is_leader, ends, UNKNOWN).max(axis=1, initial=UNKNOWN)[:, None]
        by_ends = np.maximum(0, leader_end - ends)
        found: LongArray = np.where((leader_end >= 0) & (ends >= 0), by_ends, self.reported_lag[rows])
        return found
