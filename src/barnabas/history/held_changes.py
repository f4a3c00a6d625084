"""States that are held back for the rest of a second in which too many changed: the last state of each partition."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from barnabas.history.schema import COLUMNS
from barnabas.monitor.change_set import ChangeSet
from barnabas.monitor.columns import IntArray

#: Parts that are joined, so that a second with any number of changes needs a bounded memory.
_PARTS_MAX: Final = 256


class Merged(NamedTuple):
    """The changes of several versions as one. `merged` is the number of states that later ones replaced."""

    time_ms: int
    source: str
    partitions: IntArray
    values: IntArray
    missed: IntArray
    merged: int


class HeldChanges:
    def __init__(self) -> None:
        self._parts: list[tuple[IntArray, IntArray, IntArray]] = []
        self._time_ms = 0
        self._source = ""
        self._merged = 0

    def __bool__(self) -> bool:
        return bool(self._parts)

    def add(self, change_set: ChangeSet, partitions: IntArray, values: IntArray) -> None:
        """Adds a version whose changed partitions have these numbers and states."""
        self._parts.append((partitions, values, change_set.missed_elections))
        self._time_ms = max(self._time_ms, change_set.time_ms)
        self._source = change_set.source
        if len(self._parts) >= _PARTS_MAX:
            self._parts = [self._joined()]

    def taken(self) -> Merged:
        """Returns everything as one change, and forgets it."""
        partitions, values, missed = self._joined()
        found = Merged(self._time_ms, self._source, partitions, values, missed, self._merged)
        self._parts, self._time_ms, self._merged = [], 0, 0
        return found

    def _joined(self) -> tuple[IntArray, IntArray, IntArray]:
        partitions = np.concatenate([part[0] for part in self._parts])
        values = np.concatenate([part[1] for part in self._parts]).reshape(-1, len(COLUMNS))
        missed = np.concatenate([part[2] for part in self._parts])
        kept, last = np.unique(partitions[::-1], return_index=True)
        self._merged += len(partitions) - len(kept)
        totals = np.zeros(len(kept), np.int32)
        np.add.at(totals, np.searchsorted(kept, partitions), missed)
        return kept, values[::-1][last], totals
