"""A cluster as screens see it: a table, the events about it, its groups, and the age of this data.

The live cluster (`watched`) and a moment of its history (`past`) are two kinds of it, so that each screen shows both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from barnabas.console.acknowledged import Acknowledged
from barnabas.console.occurrences import Occurrences
from barnabas.console.packed_lanes import NO_CAUSE_YET, NO_EVENT, Lane
from barnabas.console.questions import Questions
from barnabas.monitor.change_set import ChangeSet
from barnabas.monitor.columns import UNKNOWN
from barnabas.monitor.event_matching import WAIT_MS
from barnabas.monitor.group_sweep import GroupState
from barnabas.monitor.partition_state import BrokerState, PartitionState
from barnabas.monitor.table import ClusterTable, values_of

NOT_THERE: Final = "it is not in the cluster"
#: The longest time between a change of the table and its event, which waits for its cause.
_PENDING_MS_MAX: Final = 2 * WAIT_MS


def _lane_of(state: PartitionState, time_ms: int, event: int) -> Lane:
    return Lane(time_ms, state.leader, state.leader_epoch, state.isr, state.replicas, None, (), event)


class ClusterView:
    """A view of a cluster. `clock_ms` returns the present of the view: now, or the moment of the history. `questions`
    go to brokers; those of a past moment have no answer.
    """

    def __init__(
        self, name: str, boot: str, table: ClusterTable, questions: Questions, clock_ms: Callable[[], int]
    ) -> None:
        self.name = name
        self.questions = questions
        #: Distinguishes the versions of this process from those of an earlier process.
        self.boot = boot
        self.table = table
        self.clock_ms = clock_ms
        self.occurrences = Occurrences()
        self.is_filled = False
        #: The moment of the history; None for the live cluster.
        self.at_ms: int | None = None
        #: The time from which on changes are known.
        self.begun_ms = clock_ms()
        #: The states of partitions before that time, from a history; only of partitions that were requested.
        self.older: dict[tuple[str, int], list[Lane]] = {}
        self.departed: dict[int, BrokerState] = {}
        self.acknowledged = Acknowledged()
        self._replica_ids: tuple[int, frozenset[int]] = (UNKNOWN, frozenset())

    @property
    def source(self) -> ClusterView:
        """Returns the whole cluster of which this is a part; itself if it is the whole."""
        return self

    def shows_topic(self, name: str) -> bool:
        """Whether the view can name this topic."""
        return True

    @property
    def problem(self) -> str | None:
        """Returns why no broker answers; None while one does."""
        raise NotImplementedError

    @property
    def groups(self) -> Mapping[str, GroupState]:
        return {}

    @property
    def groups_ms(self) -> int | None:
        """Returns the time of the last complete sweep over the groups."""
        return None

    @property
    def complete_ms(self) -> int:
        """Returns the time from which on every change was seen."""
        return self.begun_ms

    def lanes(self, state: PartitionState) -> list[Lane]:
        """Returns the states of a partition, oldest first, up to its present one. The first is that before the first
        known change, if its id is NO_EVENT; the last one waits for its cause, if its id is NO_CAUSE_YET.
        """
        key = (state.topic, state.partition)
        older = self.older.get(key)
        if older:
            own = self.occurrences.lanes(*key)
            known = [*(lane for lane in older if not own or lane.time_ms < own[0].time_ms), *own]
        else:
            known = self.occurrences.course(*key, self.complete_ms)
        return self._with_present(known or self._unchanged(state), state)

    def _unchanged(self, state: PartitionState) -> list[Lane]:
        """Returns the state of a partition without a known change, as the only lane."""
        from_ms = self.occurrences.complete_from(self.complete_ms)
        row, changes = self._recent(state, from_ms)
        if not changes:
            return [_lane_of(state, from_ms, NO_EVENT)]
        first = changes[-1]
        is_new = row in first.created_rows
        states, rows = (first.created, first.created_rows) if is_new else (first.before, first.rows)
        (before,) = values_of(states.take(rows == row), first.topics, first.silent_before)
        return [_lane_of(before, first.time_ms if is_new else from_ms, NO_EVENT)]

    def _with_present(self, known: list[Lane], state: PartitionState) -> list[Lane]:
        """Returns the lanes with the present state, if its change has no event yet: an event waits for its cause."""
        last = known[-1]
        if (last.leader, last.leader_epoch, set(last.isr)) == (state.leader, state.leader_epoch, set(state.isr)):
            return known
        _, changes = self._recent(state, last.time_ms)
        return [*known, _lane_of(state, changes[0].time_ms, NO_CAUSE_YET)] if changes else known

    def _recent(self, state: PartitionState, since_ms: int) -> tuple[int | None, list[ChangeSet]]:
        """Returns the row of a partition, and its changes after a time whose events possibly wait, the newest first."""
        row = self.table.row_of(state.topic, state.partition)
        since_ms = max(since_ms, self.clock_ms() - _PENDING_MS_MAX)
        return row, [] if row is None else self.table.changes_of(row, since_ms)

    @property
    def known_ms(self) -> int:
        """Returns the time of the last answer of any broker."""
        known = [*self.table.brokers.values(), *self.departed.values()]
        return max((broker.answered_ms for broker in known), default=0)

    def absent(self) -> list[BrokerState]:
        """Returns the brokers that have replicas and are not in the cluster."""
        table = self.table
        if self._replica_ids[0] != table.layout:
            found = np.unique(table.states.replicas[table.rows])
            self._replica_ids = (table.layout, frozenset(found.tolist()) - {UNKNOWN})
        gone = sorted(self._replica_ids[1] - table.brokers.keys())
        return [
            self.departed.get(broker_id, BrokerState(broker_id, "", 0))._replace(problem=NOT_THERE)
            for broker_id in gone
        ]

    def silent(self) -> list[dict[str, Any]]:
        """Returns the brokers that do not answer, with reason and age."""
        now_ms = self.clock_ms()
        brokers = [broker for broker in self.table.brokers.values() if broker.problem is not None]
        return [
            {
                "broker": broker.broker_id,
                "reason": broker.problem,
                "age_ms": max(0, now_ms - broker.answered_ms) if broker.answered_ms else None,
            }
            for broker in sorted([*brokers, *self.absent()])
        ]

    def envelope(self, data: object) -> dict[str, Any]:
        return {
            "version": self.table.version,
            # A moment of the past has no stream that continues after an event.
            "event": self.occurrences.last_id if self.at_ms is None else 0,
            "boot": self.boot,
            "now_ms": self.clock_ms(),
            "at_ms": self.at_ms,
            "is_filled": self.is_filled,
            "problem": self.problem,
            "known_ms": self.known_ms,
            "silent": self.silent(),
            "data": data if self.is_filled else None,
        }
