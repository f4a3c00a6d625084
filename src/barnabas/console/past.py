"""Moments of a cluster's history, as views that every screen shows like the live cluster.

A history file is read in a thread of its own, one question after the other. A request for what a history does not
record (groups, configurations, records) is answered with an error that says so.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar

from barnabas.console.cluster_view import ClusterView
from barnabas.console.incidents import write_incident
from barnabas.console.occurrences import Occurrences
from barnabas.console.packed_lanes import Lane
from barnabas.console.problems import Problem
from barnabas.console.questions import Questions
from barnabas.console.recorded_minutes import RecordedMinutes
from barnabas.console.screens import Screens
from barnabas.console.security.scope import Scope
from barnabas.history.errors import HistoryError
from barnabas.history.past_table import PastTable
from barnabas.history.reader import History
from barnabas.monitor.broker_connection import Address, NoAnswer, Security
from barnabas.monitor.changes import Change

T = TypeVar("T")

#: The number of moments whose tables are cached for later requests.
_MOMENTS_KEPT: Final = 4
#: The number of events before a moment that the screens of that moment show.
_EVENTS: Final = 2_000
_MINUTES_MAX: Final = 20_000


class _PastQuestions(Questions):
    def _address(self, broker_id: int) -> Address:
        raise NoAnswer("it is not recorded")

    def _answering(self) -> list[Address]:
        raise NoAnswer("it is not recorded")


class PastCluster(ClusterView):
    """The cluster at one moment. Its events are added when a screen shows them: to read them takes ten times as long as
    to read the table.
    """

    def __init__(self, name: str, boot: str, table: PastTable, begun_ms: int) -> None:
        at_ms = table.asked_ms
        super().__init__(name, boot, table, _PastQuestions(table, (), Security()), lambda: at_ms)
        self.at_ms = at_ms
        self.begun_ms = begun_ms
        self.is_filled = True
        self.has_events = False
        self._complete_ms = at_ms
        self._gap = table.gap

    @property
    def complete_ms(self) -> int:
        return self._complete_ms

    def add_events(self, changes: Sequence[Change], complete_ms: int) -> None:
        """Adds the events before the moment, once. From `complete_ms` on they are complete."""
        if not self.has_events:
            self.has_events = True
            self._complete_ms = complete_ms
            self.occurrences.add(changes)
            self.occurrences.troubled.fill(changes, self.table, self.clock_ms())

    @property
    def problem(self) -> str | None:
        return None if self._gap is None else f"this moment is not recorded: {self._gap.reason}"

    @property
    def known_ms(self) -> int:
        return self.table.time_ms


class PastReader:
    """The history in one file. `name` and `boot` are those of the cluster that is watched, `begun_ms` is the time from
    which on the console watches it, and `cluster_id` returns the id that the file must have.
    """

    def __init__(
        self,
        path: Path,
        name: str,
        boot: str,
        begun_ms: int | None = None,
        cluster_id: Callable[[], str | None] | None = None,
    ) -> None:
        self._path = path
        self._minutes = RecordedMinutes(begun_ms)
        self._name = name
        self._boot = boot
        self._cluster_id = cluster_id
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="history")
        self._history: History | None = None
        self._moments: OrderedDict[int, tuple[PastCluster, Screens]] = OrderedDict()

    async def close(self) -> None:
        def close() -> None:
            if self._history is not None:
                self._history.close()

        await asyncio.wrap_future(self._thread.submit(close))
        self._thread.shutdown(wait=False)

    async def at(self, time_ms: int, *, with_events: bool = True) -> Screens:
        """Returns the screens of a moment. Raises Problem for a time that is not recorded."""
        if time_ms not in self._moments:
            cluster = await self._read(lambda history: self._cluster(history, time_ms))
            self._keep(time_ms, cluster)
        self._moments.move_to_end(time_ms)
        cluster, screens = self._moments[time_ms]
        if with_events and not cluster.has_events:
            cluster.add_events(*await self._read(lambda history: _events(history, time_ms)))
        return screens

    def _keep(self, time_ms: int, cluster: PastCluster) -> None:
        """Keeps a moment, unless another request read it meanwhile. Its map begins with the order of the last one."""
        if time_ms in self._moments:
            return
        screens = Screens(cluster)
        if self._moments:
            _, last = next(reversed(self._moments.values()))
            screens.map.take_order(last.map)
        self._moments[time_ms] = cluster, screens
        while len(self._moments) > _MOMENTS_KEPT:
            self._moments.popitem(last=False)

    async def lanes(self, topic: str, partition: int, until_ms: int) -> list[Lane]:
        """Returns the states of a partition up to a time; none if it was not recorded."""

        def read(history: History) -> list[Lane]:
            try:
                changes = history.partition(topic, partition)
            except HistoryError:
                return []
            known = Occurrences()
            known.add(change for change in changes if change.time_ms <= until_ms)
            return known.lanes(topic, partition)

        return await self._read(read)

    async def span(self) -> tuple[int, int] | None:
        """Returns the first and the last recorded time; None if nothing is recorded yet."""
        try:
            return await self._read(lambda history: history.span())
        except Problem:
            return None

    async def about(self, live: Occurrences, from_ms: int, scope: Scope) -> dict[str, Any]:
        """Returns the extent of the recording: its time, its gaps, and the minutes from that of a time on that had
        moments, or partitions under min ISR or offline. `live` knows the minutes since the console watches the cluster,
        and for a scope with patterns the events: those of the file are of all topics.
        """

        def read(history: History) -> tuple[dict[str, Any], dict[int, int], dict[int, int]]:
            first_ms, last_ms = history.span()
            self._minutes.read(history)
            counts = {} if scope.is_restricted else self._minutes.moments(from_ms)
            troubled = self._minutes.troubled(from_ms, scope.sees_topic)
            gaps = [{"begin_ms": gap.begin_ms, "end_ms": gap.end_ms, "reason": gap.reason} for gap in history.gaps()]
            return {"first_ms": first_ms, "last_ms": last_ms, "gaps": gaps}, counts, troubled

        found, counts, troubled = await self._read(read)
        of_scope = {minute: events for minute, events, _ in live.minutes(from_ms)} if scope.is_restricted else {}
        now = live.troubled_minutes(from_ms)
        shown = [
            [minute, counts.get(minute, of_scope.get(minute, 0)), max(troubled.get(minute, 0), now.get(minute, 0))]
            for minute in sorted({*counts, *of_scope, *troubled, *now})
        ]
        return found | {"minutes": shown[-_MINUTES_MAX:]}

    async def excerpt(self, since_ms: int, until_ms: int, about: Mapping[str, Any]) -> BinaryIO:
        """Returns a file with a period, and a text about it."""
        return await self._read(lambda history: write_incident(history.path, since_ms, until_ms, about))

    def _cluster(self, history: History, time_ms: int) -> PastCluster:
        return PastCluster(self._name, self._boot, history.at(time_ms), history.span()[0])

    async def _read(self, read: Callable[[History], T]) -> T:
        def work() -> T:
            if self._history is None:
                self._history = History.open(self._path)
            self._check_cluster(self._history)
            return read(self._history)

        try:
            return await asyncio.wrap_future(self._thread.submit(work))
        except HistoryError as error:
            raise Problem("not-found", str(error)) from error

    def _check_cluster(self, history: History) -> None:
        """Raises HistoryError for the history of another cluster, whose moments are not those of this one."""
        if self._cluster_id is None:
            return
        wanted, found = self._cluster_id(), history.cluster_id
        if None not in (wanted, found) and wanted != found:
            raise HistoryError(f"{self._path}: this is the history of cluster {found}, but this cluster is {wanted}")


def _events(history: History, until_ms: int) -> tuple[list[Change], int]:
    """Returns the newest events before a time, and the time from which on they are all events."""
    changes = history.events(None, until_ms, _EVENTS, newest=True)
    known = [history.span()[0], *(gap.end_ms or until_ms for gap in history.gaps() if gap.begin_ms < until_ms)]
    if len(changes) == _EVENTS:
        known.append(changes[0].time_ms)
    return changes, min(until_ms, max(known))
