"""Sizes and offsets of one broker's replicas, written to the columns of their places."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from barnabas.monitor.columns import IntArray, LongArray
from barnabas.monitor.delta import VolumesSeen
from barnabas.monitor.table_state import TableState


def write_volumes(table: TableState, seen: VolumesSeen) -> IntArray:
    """Returns the rows that changed. Partitions that the table does not know, or not on this broker, are left out."""
    volumes = table.volumes
    changed = [
        _write_replicas(table, seen.broker, column, values)
        for column, values in (
            (volumes.size, seen.sizes),
            (volumes.reported_lag, seen.reported_lags),
            (volumes.end_offset, seen.end_offsets),
        )
    ]
    for column, values in (
        (volumes.high_watermark, seen.high_watermarks),
        (volumes.start_offset, seen.start_offsets),
    ):
        rows, found = _rows(table, values)
        differs = column[rows] != found
        column[rows] = found
        changed.append(rows[differs])
    return np.unique(np.concatenate(changed)).astype(np.int32)


def _write_replicas(
    table: TableState, broker: int, column: LongArray, values: Mapping[tuple[str, int], int]
) -> IntArray:
    rows, found = _rows(table, values)
    is_own = table.states.replicas[rows] == broker
    is_here = is_own.any(axis=1)
    rows, found, place = rows[is_here], found[is_here], is_own[is_here].argmax(axis=1)
    differs = column[rows, place] != found
    column[rows, place] = found
    changed: IntArray = rows[differs]
    return changed


def _rows(table: TableState, values: Mapping[tuple[str, int], int]) -> tuple[IntArray, LongArray]:
    rows, found = [], []
    for (topic, partition), value in values.items():
        row = table.row_of(topic, partition)
        if row is not None:
            rows.append(row)
            found.append(value)
    return np.array(rows, np.int32), np.array(found, np.int64)
