"""The part of a cluster that a visitor with patterns sees: table, events and groups that the patterns allow.

    screens = ScopedScreens(base, scope)
    screens.follow()                       before each use: takes over what changed in the cluster

Every screen reads the cluster through these, so that none needs a check of its own. Columns are shared with the whole
table; only the rows, topics, events and groups are fewer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from barnabas.console.cluster_view import ClusterView
from barnabas.console.occurrences import Occurrence, Occurrences
from barnabas.console.packed_lanes import Lane
from barnabas.console.screens import LiveScreens, Screens
from barnabas.console.security.scope import Scope
from barnabas.monitor.change_set import ChangeSet
from barnabas.monitor.columns import IntArray
from barnabas.monitor.group_sweep import GroupState
from barnabas.monitor.partition_state import PartitionState
from barnabas.monitor.table import ClusterTable
from barnabas.monitor.topics import Topics

_MANY: Final = "partitions of several topics"
#: The number of partitions in the text of an event about many.
_COUNT: Final = re.compile(r" \([0-9,]+\)")
#: Events without topic or broker that name neither a topic nor a group.
_OF_CLUSTER: Final = frozenset({"controller-change", "unreachable", "reachable", "journal-gap"})


class ScopedTable(ClusterTable):
    def __init__(self, base: ClusterTable, scope: Scope) -> None:
        super().__init__()
        self._base = base
        self._scope = scope
        self._known: tuple[int, int] | None = None
        self._base_rows: IntArray | None = None

    def follow(self) -> None:
        base = self._base
        self.version, self.time_ms, self.cluster_id = base.version, base.time_ms, base.cluster_id
        self.controller, self.brokers, self.layout = base.controller, base.brokers, base.layout
        self.states, self.volumes = base.states, base.volumes
        self.exact_ms, self.missed_elections = base.exact_ms, base.missed_elections
        known = (base.layout, len(base.topics))
        if known != self._known or base.rows is not self._base_rows:
            self._known, self._base_rows = known, base.rows
            topics = Topics()
            topics.fill([each for each in base.topics if self._scope.sees_topic(each.name)])
            self.topics = topics
            numbers = np.array(sorted(topics.by_number), np.int32)
            rows = base.rows
            self._rows = rows[np.isin(base.states.topic[rows], numbers)]

    def since(self, version: int) -> list[ChangeSet] | None:
        """Returns the change sets of the whole table: a reader chooses the rows that it has."""
        return self._base.since(version)


class ScopedOccurrences(Occurrences):
    """The events of a cluster that a scope allows. Lanes are those of allowed topics only."""

    def __init__(self, base: Occurrences, scope: Scope) -> None:
        super().__init__()
        self._base = base
        self._scope = scope
        self._seen = 0

    def follow(self) -> None:
        for event in self._base.after(self._seen):
            self._seen = event.id
            shown = self._shown(event)
            if shown is not None:
                self._keep(shown)
        self.troubled = self._base.troubled
        first = self._base.events[0].id if self._base.events else 0
        while self.events and self.events[0].id < first:
            del self.events[0]

    @property
    def last_id(self) -> int:
        return self._seen

    def lanes(self, topic: str, partition: int) -> list[Lane]:
        return self._base.lanes(topic, partition) if self._scope.sees_topic(topic) else []

    def last_cause(self, topic: str, partition: int) -> Lane | None:
        return self._base.last_cause(topic, partition) if self._scope.sees_topic(topic) else None

    def troubled_minutes(self, from_ms: int) -> dict[int, int]:
        return self._base.troubled.counts(from_ms, self._scope.sees_topic)

    def _shown(self, event: Occurrence) -> Occurrence | None:
        """Returns an event as this scope sees it; None if it is about something else. The event of many topics has
        only the allowed ones in its sample, the codes of its cause instead of a text that can name others, and no
        number of its partitions, because how many of them are allowed is not known.
        """
        if event.topic is not None:
            return event if self._scope.sees_topic(event.topic) else None
        sample = event.shown.get("sample")
        if sample is not None:
            allowed = [each for each in sample if self._scope.sees_topic(each["topic"])]
            if not allowed and event.shown["count"] == len(sample):
                return None
            shown = {
                "subject": _MANY,
                "text": _COUNT.sub("", event.shown["text"]),
                "count": max(1, len(allowed)),
                "sample": allowed,
                "cause": ", ".join(event.shown["codes"]) or None,
            }
            return replace(event, shown=event.shown | shown, troubled=0)
        return event if event.broker is not None or event.kind in _OF_CLUSTER else None


class ScopedCluster(ClusterView):
    """The view of a cluster, live or past, by a scope."""

    def __init__(self, base: ClusterView, scope: Scope) -> None:
        self.base = base
        self._scope = scope
        self._table = ScopedTable(base.table, scope)
        self._occurrences = ScopedOccurrences(base.occurrences, scope)
        super().__init__(base.name, base.boot, self._table, base.questions, base.clock_ms)
        self.occurrences = self._occurrences
        self._groups: tuple[Any, Mapping[str, GroupState]] = (None, {})

    def follow(self) -> None:
        base = self.base
        self._table.follow()
        self._occurrences.follow()
        self.is_filled, self.at_ms, self.begun_ms = base.is_filled, base.at_ms, base.begun_ms
        self.departed, self.older, self.acknowledged = base.departed, base.older, base.acknowledged

    @property
    def source(self) -> ClusterView:
        return self.base

    @property
    def problem(self) -> str | None:
        return self.base.problem

    @property
    def groups(self) -> Mapping[str, GroupState]:
        """Returns the allowed groups, with their offsets in allowed topics."""
        every = self.base.groups
        key = (self.base.groups_ms, len(every), self.base.table.version)
        if self._groups[0] != key:
            self._groups = (key, self._allowed(every))
        return self._groups[1]

    @property
    def groups_ms(self) -> int | None:
        return self.base.groups_ms

    @property
    def known_ms(self) -> int:
        return self.base.known_ms

    def shows_topic(self, name: str) -> bool:
        return self._scope.sees_topic(name)

    def lanes(self, state: PartitionState) -> list[Lane]:
        return self.base.lanes(state) if self._scope.sees_topic(state.topic) else []

    def _allowed(self, every: Mapping[str, GroupState]) -> dict[str, GroupState]:
        scope = self._scope
        topics = {topic for state in every.values() for topic, _ in state.offsets}
        seen = {topic for topic in topics if scope.sees_topic(topic)}
        return {
            name: replace(state, offsets={key: value for key, value in state.offsets.items() if key[0] in seen})
            for name, state in every.items()
            if scope.sees_group(name)
        }


class ScopedScreens(Screens):
    """The screens of a moment, or of now, by a scope. The rates are those of the whole table, by row."""

    def __init__(self, base: Screens, scope: Scope) -> None:
        self._scoped = ScopedCluster(base.cluster, scope)
        self._scoped.follow()
        super().__init__(self._scoped, base.rates)

    def follow(self) -> None:
        self._scoped.follow()


class ScopedLiveScreens(LiveScreens):
    def __init__(self, base: LiveScreens, scope: Scope) -> None:
        self._scoped = ScopedCluster(base.cluster, scope)
        self._scoped.follow()
        super().__init__(base.watched, self._scoped, base.rates)

    def follow(self) -> None:
        self._scoped.follow()
