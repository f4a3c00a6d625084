"""Samples of sizes and offsets: a full one, then the differences to it, while the partitions are the same."""

from __future__ import annotations

import sqlite3
from typing import Final

import numpy as np

from barnabas.history.id_columns import packed_columns, unpacked_columns
from barnabas.history.writer import Writer
from barnabas.monitor.columns import IntArray, LongArray
from barnabas.monitor.table import ClusterTable

#: A full sample and those that are differences to it.
_PER_FULL: Final = 24
#: The rows of a sample before those of sizes and of offsets: partition, list of replicas, log start offset.
_FIXED: Final = 3


class Sampler:
    def __init__(self) -> None:
        self._full: LongArray | None = None
        self._last: LongArray | None = None
        self._count = 0

    def write(self, writer: Writer, table: ClusterTable, time_ms: int) -> bool:
        """Writes a sample of the table. Returns False if nothing changed since the last one."""
        columns, full = _columns(writer, table), self._full
        if self._last is not None and np.array_equal(self._last, columns):
            return False
        is_same = full is not None and full.shape == columns.shape and np.array_equal(full[0], columns[0])
        is_full = not is_same or self._count == _PER_FULL
        written = columns if is_full or full is None else columns - full
        self._count = 1 if is_full else self._count + 1
        self._full, self._last = columns if is_full else full, columns
        writer.connection.execute(
            "INSERT INTO samples(time_ms, seq, is_full, columns) VALUES (?, ?, ?, ?)",
            (time_ms, writer.seq, is_full, packed_columns(written)),
        )
        return True


def _columns(writer: Writer, table: ClusterTable) -> LongArray:
    rows = table.rows
    numbers = writer.numbers_of(rows)
    order = np.argsort(numbers, kind="stable")
    rows, numbers = rows[order], numbers[order]
    volumes = table.volumes
    found: LongArray = np.vstack(
        [
            numbers.astype(np.int64),
            writer.mirror.column("replicas")[numbers],
            volumes.start_offset[rows],
            volumes.size[rows].T,
            volumes.end_offset[rows].T,
        ]
    )
    return found


class Sample:
    """The sizes and offsets at one time, by the number of the partition in the file."""

    def __init__(self, time_ms: int, columns: LongArray) -> None:
        width = (len(columns) - _FIXED) // 2
        self.time_ms = time_ms
        self.partitions: IntArray = columns[0].astype(np.int32)
        self.replicas: IntArray = columns[1].astype(np.int32)
        self.start_offset = columns[2]
        self.size: LongArray = columns[_FIXED : _FIXED + width].T
        self.end_offset: LongArray = columns[_FIXED + width :].T


def sample_at(connection: sqlite3.Connection, seq: int, time_ms: int) -> Sample | None:
    """Returns the last sample up to a time; None if there is none."""
    last = connection.execute(
        "SELECT id, time_ms FROM samples WHERE time_ms <= ? AND seq <= ? ORDER BY time_ms DESC, id DESC LIMIT 1",
        (time_ms, seq),
    ).fetchone()
    if last is None:
        return None
    first = connection.execute("SELECT max(id) FROM samples WHERE id <= ? AND is_full", (last[0],)).fetchone()[0]
    if first is None:
        return None
    rows = connection.execute("SELECT columns FROM samples WHERE id IN (?, ?) ORDER BY id", (first, last[0]))
    total: LongArray | None = None
    for (blob,) in rows:
        columns = unpacked_columns(blob).astype(np.int64, copy=False)
        total = columns if total is None else total + columns
    return None if total is None else Sample(last[1], total)
