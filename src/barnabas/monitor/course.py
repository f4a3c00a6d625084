"""The state of a watch: snapshots in, changes out. Pure; `watch` does the I/O.

seen          a snapshot: the changes since the last one, with causes from the journal
unreachable   no broker answers: one change when that begins, one when it ends, then the changes in between
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from barnabas.monitor.changes import Change, Event, diff
from barnabas.monitor.event_matching import WAIT_MS, Pending, RecentEvents
from barnabas.monitor.severity import Severity
from barnabas.monitor.snapshot import Snapshot


class Course:
    def __init__(self, *, wait_ms: int = WAIT_MS) -> None:
        #: The last snapshot.
        self.snapshot: Snapshot | None = None
        #: Why no broker answers; None while one does.
        self.problem: str | None = None
        self._since_ms = 0
        self._journal = RecentEvents()
        self._pending = Pending(wait_ms=wait_ms)

    @property
    def waits(self) -> bool:
        """Whether changes are waiting for their causes."""
        return len(self._pending) > 0

    def seen(self, snapshot: Snapshot, events: Iterable[Event] = ()) -> list[Change]:
        changes = []
        if self.problem is not None:
            away_s = (snapshot.time_ms - self._since_ms) / 1000
            text = f"answers again after {away_s:.1f} s"
            changes.append(Change("reachable", "cluster", snapshot.time_ms, text))
            self.problem = None
        if self.snapshot is not None:
            snapshot = _without_older(self.snapshot, snapshot)
            self._pending.add(diff(self.snapshot, snapshot), snapshot.time_ms)
        self.snapshot = snapshot
        return [*changes, *self.explained(events, snapshot.time_ms)]

    def explained(self, events: Iterable[Event], now_ms: int) -> list[Change]:
        """Adds new events of the journal. Returns the waiting changes that now have a cause, or that have waited long
        enough.
        """
        self._journal.add(events)
        has_journal = self.snapshot is not None and self.snapshot.has_journal
        return self._pending.take(self._journal, now_ms, has_journal=has_journal)

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


def _without_older(before: Snapshot, after: Snapshot) -> Snapshot:
    """Keeps newer partition states: the answering broker may be behind, so a partition with a lower leader epoch than
    before keeps its known state.
    """
    older = {
        key: before.partitions[key]
        for key, state in after.partitions.items()
        if key in before.partitions
        and before.partitions[key].topic_id == state.topic_id
        and state.leader_epoch < before.partitions[key].leader_epoch
    }
    return replace(after, partitions={**after.partitions, **older}) if older else after
