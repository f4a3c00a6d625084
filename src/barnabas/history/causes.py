"""The causes of recorded changes, which become known up to some seconds after them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from barnabas.history.writer import Writer
from barnabas.monitor.changes import Change
from barnabas.monitor.columns import UNKNOWN
from barnabas.monitor.partition_state import PartitionState
from barnabas.monitor.table import ClusterTable

#: Events of a partition that are compared with a change of it.
_LATEST: Final = 8


class Causes:
    def __init__(self, writer: Writer, table: ClusterTable) -> None:
        self._writer = writer
        self._table = table

    def add(self, changes: Iterable[Change]) -> None:
        """Writes the causes of changes that are recorded already."""
        for change in changes:
            if change.kind == "unreachable":
                self._writer.add_gap(change.time_ms, None, change.text)
            elif change.kind == "reachable":
                self._writer.end_gap(change.time_ms)
            elif change.cause is not None:
                self._explain(change, self._writer.cause(_code(change), change.cause))

    def _explain(self, change: Change, cause: int) -> None:
        if change.before is not None and change.after is not None:
            self._explain_partition(change.after, cause)
        elif change.created:
            for state in change.created:
                self._explain_partition(state, cause)
        elif change.kind == "topic-deleted":
            self._writer.connection.execute(
                "UPDATE topics SET deleted_cause = ? WHERE id = "
                "(SELECT max(id) FROM topics WHERE name = ? AND deleted_seq IS NOT NULL)",
                (cause, change.topic),
            )
        elif change.broker is not None:
            broker = None if change.kind == "controller-change" else change.broker
            self._writer.connection.execute(
                "UPDATE nodes SET cause = ? WHERE id = (SELECT max(id) FROM nodes WHERE broker IS ?)", (cause, broker)
            )

    def _explain_partition(self, state: PartitionState, cause: int) -> None:
        row = self._table.row_of(state.topic, state.partition)
        number = UNKNOWN if row is None else self._writer.number_of(row)
        lists = self._writer.lists
        for event, leader, epoch, isr, known in self._writer.connection.execute(
            "SELECT id, leader, leader_epoch, isr, cause FROM events WHERE partition = ? ORDER BY id DESC LIMIT ?",
            (number, _LATEST),
        ).fetchall():
            is_it = (leader, epoch) == (state.leader, state.leader_epoch) and isr != UNKNOWN
            if is_it and known is None and set(lists.list_of(isr)) == set(state.isr):
                self._writer.connection.execute("UPDATE events SET cause = ? WHERE id = ?", (cause, event))
                return


def _code(change: Change) -> str | None:
    code = change.events[-1].get("cause")
    return None if code is None else str(code)
