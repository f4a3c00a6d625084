"""The records per second of each partition, from the high watermarks of some moments ago and of now."""

from __future__ import annotations

from collections import deque
from typing import Final

import numpy as np

from barnabas.console.group_trends import GroupTrends
from barnabas.monitor.columns import UNKNOWN, LongArray
from barnabas.monitor.table import ClusterTable

#: The pause between two samples, and the samples that are kept.
_INTERVAL_MS: Final = 5_000
_SAMPLES: Final = 13


class Rates:
    """Computes the rates from samples of the table; `sample` is called often."""

    def __init__(self, table: ClusterTable) -> None:
        self._table = table
        self._samples: deque[tuple[int, LongArray]] = deque(maxlen=_SAMPLES)
        self._layout = UNKNOWN
        self.groups = GroupTrends(table)

    def sample(self, now_ms: int) -> None:
        table = self._table
        if table.layout != self._layout:
            self._samples.clear()
            self._layout = table.layout
        if not self._samples or now_ms - self._samples[-1][0] >= _INTERVAL_MS:
            self._samples.append((now_ms, table.volumes.high_watermark.copy()))

    def seconds_behind(self, row: int, committed: int, end: int, now_ms: int) -> float | None:
        """Returns the age of the oldest record that a group has not read: the time since the log ended where the group
        is. Before the first sample it is estimated from the rate; None if it is not known.
        """
        if committed >= end:
            return 0.0
        if self._layout != self._table.layout or not self._samples:
            return None
        for time_ms, ends in reversed(self._samples):
            if 0 <= ends[row] <= committed:
                return (now_ms - time_ms) / 1000
        (begin_ms, first), (end_ms, last) = self._samples[0], self._samples[-1]
        if first[row] < 0 or last[row] <= first[row]:
            return None
        per_ms = (last[row] - first[row]) / (end_ms - begin_ms)
        return float((now_ms - begin_ms + (first[row] - committed) / per_ms) / 1000)

    def by_row(self) -> LongArray:
        """Returns the rates by row, rounded up; -1 where they are unknown."""
        now = self._table.volumes.high_watermark
        found: LongArray = np.full(len(now), UNKNOWN, np.int64)
        if self._layout != self._table.layout or len(self._samples) < 2:
            return found
        (begin_ms, first), (end_ms, last) = self._samples[0], self._samples[-1]
        is_known = (first >= 0) & (last >= first)
        found[is_known] = np.ceil((last - first)[is_known] * 1000 / (end_ms - begin_ms)).astype(np.int64)
        return found
