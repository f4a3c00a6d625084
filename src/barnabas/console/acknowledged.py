"""Acknowledgements of problems: notes on partitions that are unwell, until the state of the partitions changes.

Acknowledgements live as long as the console; the audit log keeps who made them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

from barnabas.monitor.severity import Severity
from barnabas.monitor.table import ClusterTable

Key = tuple[str, int]


class Acknowledgement(NamedTuple):
    severity: Severity
    user: str
    time_ms: int
    note: str


class Acknowledged:
    def __init__(self) -> None:
        self._by_key: dict[Key, Acknowledgement] = {}
        #: Changes with each acknowledgement, so that screens are computed again.
        self.version = 0

    def put(self, keys: Iterable[Key], acknowledgement: Acknowledgement) -> None:
        self._by_key.update(dict.fromkeys(keys, acknowledgement))
        self.version += 1

    def remove(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self._by_key.pop(key, None)
        self.version += 1

    def recheck(self, table: ClusterTable) -> None:
        """Ends the acknowledgements of partitions whose state has changed."""
        if not self._by_key:
            return
        severities = dict(zip(table.rows.tolist(), table.severities().tolist(), strict=True))
        for key, found in list(self._by_key.items()):
            row = table.row_of(*key)
            if row is None or severities.get(row) != found.severity:
                del self._by_key[key]
                self.version += 1

    def shown(self, key: Key) -> dict[str, Any] | None:
        found = self._by_key.get(key)
        return None if found is None else {"user": found.user, "time_ms": found.time_ms, "note": found.note}

    @property
    def keys(self) -> Collection[Key]:
        return self._by_key.keys()
