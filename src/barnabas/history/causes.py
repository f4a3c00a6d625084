"""The causes of recorded changes, which become known up to some seconds after them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from barnabas.common.bulk_events import is_bulk, unpacked
from barnabas.history.writer import Writer
from barnabas.monitor.changes import Change, Event
from barnabas.monitor.columns import UNKNOWN
from barnabas.monitor.journal_events import topic_id_of
from barnabas.monitor.packed_changes import PackedChanges
from barnabas.monitor.partition_state import PartitionState
from barnabas.monitor.table import ClusterTable

#: The number of events of a partition that are compared with each change of the partition.
_LATEST: Final = 8
#: The longest time between an event about a broker or a configuration and the change that it explains.
_WITHIN_MS: Final = 1_000
_MIN_ISR: Final = "min.insync.replicas"
_OF_BROKERS: Final = frozenset({"broker-unfenced", "broker-fenced", "controlled-shutdown", "broker-unregistered"})
#: States with their causes, and the newest event without a cause that has each.
_EXPLAINED: Final = """CREATE TEMP TABLE IF NOT EXISTS explained(
  partition INTEGER PRIMARY KEY, leader INTEGER, leader_epoch INTEGER, min_isr INTEGER, isr INTEGER, cause INTEGER
)"""
_EXPLAINED_EVENTS: Final = """SELECT e.cause, max(v.id) FROM temp.explained e CROSS JOIN events v
  ON v.partition = e.partition AND v.leader = e.leader AND v.leader_epoch = e.leader_epoch AND v.min_isr = e.min_isr
  AND v.isr = e.isr WHERE v.cause IS NULL GROUP BY e.partition"""


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

    def add_packed(self, packed: PackedChanges) -> None:
        """Writes the causes of changes of very many partitions."""
        known = np.flatnonzero(packed.cause != UNKNOWN)
        if packed.layout != self._table.layout:
            # A row can be another partition by now.
            self.add(packed.changes(known.tolist()))
            return
        writer, after = self._writer, packed.after.take(known.astype(np.int32))
        numbers = [writer.cause(each.codes[-1], each.text) for each in packed.causes]
        columns = (
            writer.numbers_of(packed.rows[known]),
            after.leader,
            after.leader_epoch,
            after.min_isr,
            writer.lists.numbers_of(after.isr),
            np.array(numbers, np.int64)[packed.cause[known]],
        )
        connection = writer.connection
        connection.execute(_EXPLAINED)
        connection.execute("DELETE FROM temp.explained")
        rows = zip(*(column.tolist() for column in columns), strict=True)
        connection.executemany("INSERT OR REPLACE INTO temp.explained VALUES (?, ?, ?, ?, ?, ?)", rows)
        connection.executemany(
            "UPDATE events SET cause = ? WHERE id = ?", connection.execute(_EXPLAINED_EVENTS).fetchall()
        )

    def add_events(self, events: Iterable[Event]) -> None:
        """Writes the causes that events of the journal name; a bulk event is that of each of its partitions."""
        for event in (one for each in events for one in (unpacked(each) if is_bulk(each) else (each,))):
            cause = self._writer.cause(None if event.get("cause") is None else str(event["cause"]), str(event["text"]))
            if isinstance(event.get("after"), dict) and "partition" in event:
                self._explain_by_epochs(event, cause)
            elif event["kind"] in _OF_BROKERS:
                self._explain_broker(int(event["broker"]), int(event["time_ms"]), cause)
            elif event["kind"] == "config-changed" and _MIN_ISR in (event.get("after") or {}):
                self._explain_min_isr(str(event["name"]), int(event["time_ms"]), cause)
            elif event["kind"] == "topic-deleted":
                self._writer.connection.execute(
                    "UPDATE topics SET deleted_cause = ? WHERE topic_id = ? AND deleted_seq IS NOT NULL",
                    (cause, topic_id_of(event)),
                )

    def _explain_by_epochs(self, event: Event, cause: int) -> None:
        after = event["after"]
        self._writer.connection.execute(
            "UPDATE events SET cause = ? WHERE id = (SELECT min(id) FROM events WHERE partition IN (SELECT p.id "
            "FROM topics t JOIN partitions p ON p.topic = t.id WHERE t.topic_id = ? AND p.partition = ?) "
            "AND leader_epoch = ? AND partition_epoch = ?)",
            (
                cause,
                topic_id_of(event),
                event["partition"],
                after["leader_epoch"],
                after.get("partition_epoch", UNKNOWN),
            ),
        )

    def _explain_min_isr(self, topic: str, time_ms: int, cause: int) -> None:
        """Explains the changes of a topic around a change of its configuration, if nothing else explains them."""
        self._writer.connection.execute(
            "UPDATE events SET cause = ? WHERE cause IS NULL AND kind = 0 AND partition IN (SELECT p.id FROM topics t "
            "JOIN partitions p ON p.topic = t.id WHERE t.name = ?) AND seq IN "
            "(SELECT seq FROM moments WHERE time_ms BETWEEN ? AND ?)",
            (cause, topic, time_ms - _WITHIN_MS, time_ms + _WITHIN_MS),
        )

    def _explain_broker(self, broker: int, time_ms: int, cause: int) -> None:
        """Explains the change of a broker that is nearest to an event about it."""
        self._writer.connection.execute(
            "UPDATE nodes SET cause = ? WHERE id = (SELECT n.id FROM nodes n JOIN moments m ON n.seq = m.seq "
            "WHERE n.broker = ? AND n.cause IS NULL AND m.time_ms BETWEEN ? AND ? "
            "ORDER BY abs(m.time_ms - ?), n.id LIMIT 1)",
            (cause, broker, time_ms - _WITHIN_MS, time_ms + _WITHIN_MS, time_ms),
        )

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
        wanted = state.leader, state.leader_epoch, UNKNOWN if state.min_isr is None else state.min_isr
        for event, isr, known, *found in self._writer.connection.execute(
            "SELECT id, isr, cause, leader, leader_epoch, min_isr FROM events "
            "WHERE partition = ? ORDER BY id DESC LIMIT ?",
            (number, _LATEST),
        ).fetchall():
            is_it = tuple(found) == wanted and isr != UNKNOWN
            if is_it and known is None and set(lists.list_of(isr)) == set(state.isr):
                self._writer.connection.execute("UPDATE events SET cause = ? WHERE id = ?", (cause, event))
                return


def _code(change: Change) -> str | None:
    code = change.events[-1].get("cause")
    return None if code is None else str(code)
