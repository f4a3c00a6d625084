"""The state of a watch: versions of the table in, changes out. Pure; `watch` does the I/O.

seen          a version: its changes, with causes from the journal
unreachable   no broker answers: one change when that begins, and one when it ends (`reachable`)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from barnabas.monitor.change_set import ChangeSet
from barnabas.monitor.changes import Change, Event, changes_of
from barnabas.monitor.event_matching import WAIT_MS, Pending, RecentEvents
from barnabas.monitor.packed_changes import PACKED_FROM, PackedChanges
from barnabas.monitor.severity import Severity
from barnabas.monitor.table import ClusterTable


class Course:
    def __init__(self, table: ClusterTable, *, wait_ms: int = WAIT_MS, packs: bool = False) -> None:
        self._table = table
        #: Whether the changes of very many partitions are delivered as `PackedChanges`.
        self._packs = packs
        #: Whether the cluster has a journal of causes.
        self.has_journal = False
        #: Why no broker answers; None while one does.
        self.problem: str | None = None
        self._since_ms = 0
        self._journal = RecentEvents()
        self._pending = Pending(wait_ms=wait_ms)

    @property
    def waits(self) -> bool:
        """Whether changes are waiting for their causes."""
        return len(self._pending) > 0

    def seen(self, change_set: ChangeSet) -> None:
        """Adds the changes of a version; they wait for their causes."""
        is_packed = self._packs and len(change_set.rows) >= PACKED_FROM
        self._pending.add(changes_of(change_set, self._table, with_changed=not is_packed), change_set.time_ms)
        if is_packed:
            packed = PackedChanges(change_set, self._table.layout)
            self._pending.add([packed] if len(packed) else [], change_set.time_ms)

    def explained(self, events: Iterable[Event], now_ms: int) -> list[Change]:
        """Adds new events of the journal. Returns the waiting changes that now have a cause, or that have waited long
        enough.
        """
        return [change for some in self.explaining(events, now_ms) for change in some]

    def explaining(self, events: Iterable[Event], now_ms: int) -> Iterator[list[Change]]:
        """Yields what `explained` returns, in parts: the work on packed changes of one version is a part."""
        self._journal.add(events)
        yield []
        yield from self._pending.taking(self._journal, now_ms, has_journal=self.has_journal)

    def packed(self) -> list[PackedChanges]:
        """Returns the packed changes that can be shown, which `explained` and `unreachable` do not return."""
        found, self._pending.packed = self._pending.packed, []
        return found

    def unreachable(self, problem: str, now_ms: int) -> list[Change]:
        """Records that no broker answers. Returns the waiting changes now, because no cause can arrive."""
        began = self.problem is None
        self.problem = problem
        changes = self._pending.take(self._journal, now_ms, has_journal=False, at_once=True)
        if began:
            self._since_ms = now_ms
            text = f"no broker answers: {problem}"
            changes.append(Change("unreachable", "cluster", now_ms, text, Severity.CRITICAL))
        return changes

    def reachable(self, now_ms: int) -> list[Change]:
        """Records that a broker answers. Returns the change, if none answered before."""
        if self.problem is None:
            return []
        self.problem = None
        away_s = (now_ms - self._since_ms) / 1000
        return [Change("reachable", "cluster", now_ms, f"answers again after {away_s:.1f} s")]
