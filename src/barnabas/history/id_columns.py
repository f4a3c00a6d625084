"""The states of all partitions by the number of the partition in the file, with lists as numbers.

The recorder mirrors the table in it, and a reader rebuilds it from a checkpoint and the events after it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from itertools import chain
from typing import Final

import numpy as np

from barnabas.history.errors import HistoryError
from barnabas.history.schema import COLUMNS
from barnabas.monitor.columns import IntArray, LongArray

#: The value of `replicas` of a partition that does not exist.
ABSENT: Final = -1
_REPLICAS: Final = COLUMNS.index("replicas")
#: The numbers of columns and of rows, and the bytes of a number in memory.
_HEAD: Final = struct.Struct("<HIB")
#: The bytes of a number in the file, 0 if all are equal; and the smallest number.
_COLUMN: Final = struct.Struct("<Bq")
_WIDTHS: Final = (1, 2, 4, 8)
#: The partitions that a file can have had. A damaged number would otherwise need all memory.
PARTITIONS_MAX: Final = 1 << 24
_COLUMNS_MAX: Final = 256
_LEVEL: Final = 1


class IdColumns:
    """Columns by the numbers of partitions in the file. `data` has a row for each column of `COLUMNS`, and a column for
    each partition.
    """

    def __init__(self, count: int = 0) -> None:
        self.data: IntArray = np.full((len(COLUMNS), count), ABSENT, np.int32)

    def __len__(self) -> int:
        return int(self.data.shape[1])

    def present(self) -> IntArray:
        """Returns the numbers of the partitions that exist."""
        return np.flatnonzero(self.data[_REPLICAS] != ABSENT).astype(np.int32)

    def put(self, partitions: IntArray, values: IntArray) -> None:
        """Writes states, a row of `values` for each; if a partition occurs twice, its last state counts."""
        if len(partitions):
            if not 0 <= int(partitions.min()) <= int(partitions.max()) < PARTITIONS_MAX:
                raise HistoryError("an event is damaged: it has the number of a partition that does not exist")
            self._grow(int(partitions.max()) + 1)
            self.data[:, partitions] = values.T

    def column(self, name: str) -> IntArray:
        found: IntArray = self.data[COLUMNS.index(name)]
        return found

    def packed(self) -> bytes:
        """Returns the existing partitions as compressed columns."""
        rows = self.present()
        return packed_columns(np.vstack([np.diff(rows, prepend=np.int32(0)), self.data[:, rows]]))

    @classmethod
    def unpacked(cls, blob: bytes) -> IdColumns:
        """Returns the content of a checkpoint. Raises HistoryError."""
        columns = unpacked_columns(blob)
        if len(columns) != len(COLUMNS) + 1:
            raise HistoryError("a checkpoint has columns that this version does not know")
        rows = np.cumsum(columns[0], dtype=np.int64)
        if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < PARTITIONS_MAX:
            raise HistoryError("a checkpoint is damaged: it has numbers of partitions that do not exist")
        found = cls(int(rows[-1]) + 1 if len(rows) else 0)
        found.data[:, rows] = columns[1:]
        return found

    def _grow(self, count: int) -> None:
        if count > len(self):
            more = np.full((len(COLUMNS), max(count, len(self) + len(self) // 4) - len(self)), ABSENT, np.int32)
            self.data = np.hstack([self.data, more])


def packed_columns(columns: IntArray | LongArray) -> bytes:
    """Returns columns of numbers compressed: each in the smallest type that holds it, a constant one as its value."""
    number, count = columns.shape
    parts, heads = [], [_HEAD.pack(number, count, columns.dtype.itemsize)]
    for column in columns:
        low, high = (int(column.min()), int(column.max())) if count else (0, 0)
        width = (
            0
            if low == high
            else next(each for each in _WIDTHS if -(1 << 8 * each - 1) <= low and high < 1 << 8 * each - 1)
        )
        heads.append(_COLUMN.pack(width, low))
        if width:
            parts.append(column.astype(f"<i{width}").tobytes())
    return b"".join(heads) + zlib.compress(b"".join(parts), _LEVEL)


def unpacked_columns(blob: bytes) -> IntArray:
    """Returns what `packed_columns` was given. Raises HistoryError."""
    try:
        number, count, itemsize = _HEAD.unpack_from(blob)
        if number > _COLUMNS_MAX or count > PARTITIONS_MAX:
            raise ValueError(f"{number} columns of {count} rows")
        begin = _HEAD.size + number * _COLUMN.size
        heads = [_COLUMN.unpack_from(blob, _HEAD.size + place * _COLUMN.size) for place in range(number)]
        size = sum(width * count for width, _ in heads)
        unpacking = zlib.decompressobj()
        data = unpacking.decompress(blob[begin:], size + 1)
        if not unpacking.eof:
            raise ValueError("their length is wrong")
        found: IntArray = np.empty((number, count), f"<i{itemsize}")
        at = 0
        for place, (width, value) in enumerate(heads):
            found[place] = np.frombuffer(data, f"<i{width}", count, at) if width else value
            at += width * count
    except (ValueError, TypeError, MemoryError, OverflowError, struct.error, zlib.error) as error:
        raise HistoryError(f"columns are damaged: {error}") from None
    return found


def event_values(rows: Sequence[Sequence[int]], width: int) -> IntArray:
    """Returns rows of numbers as an array."""
    return np.fromiter(chain.from_iterable(rows), np.int32, len(rows) * width).reshape(len(rows), width)
