"""The time that partitions were unavailable, and the elections by cause, since the watch began."""

from __future__ import annotations

import numpy as np

from barnabas.monitor.change_set import ChangeSet
from barnabas.monitor.changes import Change
from barnabas.monitor.columns import UNKNOWN
from barnabas.monitor.packed_changes import PackedChanges
from barnabas.monitor.severity import Severity
from barnabas.monitor.table import ClusterTable

_UNKNOWN_CAUSE = "unknown"


class Availability:
    """A reader of the table, and of the changes with their causes."""

    def __init__(self, table: ClusterTable) -> None:
        self._table = table
        self._since_ms: dict[tuple[str, int], int] = {}
        self._total_s: dict[tuple[str, int], float] = {}
        self.elections: dict[str, int] = {}
        self._note(table.time_ms)
        table.subscribe(self._on_change)

    def count(self, change: Change) -> None:
        """Counts a change with its cause."""
        before, after = change.before, change.after
        if before is not None and after is not None and before.leader != after.leader:
            self._add_elections(change.events[-1].get("cause") if change.events else None, 1)

    def count_packed(self, packed: PackedChanges) -> None:
        """Counts the changes of very many partitions with their causes."""
        elected = packed.cause[packed.before.leader != packed.after.leader]
        for number, count in zip(*np.unique_counts(elected), strict=True):
            self._add_elections(None if number == UNKNOWN else packed.causes[number].codes[-1], int(count))

    def _add_elections(self, code: object, count: int) -> None:
        cause = str(code or _UNKNOWN_CAUSE)
        self.elections[cause] = self.elections.get(cause, 0) + count

    def unavailable_s(self, now_ms: int) -> dict[tuple[str, int], float]:
        """Returns the seconds of each partition that was unavailable once, up to now."""
        found = dict(self._total_s)
        for key, since_ms in self._since_ms.items():
            found[key] = found.get(key, 0.0) + max(0, now_ms - since_ms) / 1000
        return found

    def _on_change(self, change: ChangeSet) -> None:
        if change.is_of_states:
            self._note(change.time_ms)

    def _note(self, time_ms: int) -> None:
        table = self._table
        rows = table.rows[table.severities() == Severity.CRITICAL].tolist()
        now = {(table.topic_of(row).name, int(table.states.partition[row])) for row in rows}
        for key in self._since_ms.keys() - now:
            since_ms = self._since_ms.pop(key)
            self._total_s[key] = self._total_s.get(key, 0.0) + max(0, time_ms - since_ms) / 1000
        for key in now - self._since_ms.keys():
            self._since_ms[key] = time_ms
        for key in [key for key in self._total_s if table.row_of(*key) is None]:
            del self._total_s[key]
