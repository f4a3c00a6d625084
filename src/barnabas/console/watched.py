"""A cluster as the console watches it: the table and its feeds, the events with their causes, and who waits for news.

    cluster = WatchedCluster(target, clock_ms=...)
    task = asyncio.create_task(cluster.run())
    cluster.envelope(data)       what every reading route answers

The last known state stays when no broker answers; each answer says how old it is, and why.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Final

from barnabas.console.cluster_view import ClusterView
from barnabas.console.questions import Questions
from barnabas.console.target import Target
from barnabas.console.troubled_minutes import troubled_topics
from barnabas.monitor.budget import SHARE
from barnabas.monitor.change_set import ChangeSet
from barnabas.monitor.changes import Event
from barnabas.monitor.cluster_feeds import ClusterFeeds
from barnabas.monitor.feed_options import FeedOptions
from barnabas.monitor.group_sweep import GroupState
from barnabas.monitor.watch import Step, watch

_REPORTS_KEPT: Final = 2_000
#: A replica: topic, partition, broker.
Replica = tuple[str, int, int]
_LOG: Final = logging.getLogger(__name__)


class News(asyncio.Event):
    """Set whenever something changed. `urgent` is set when a broker came or went: that waits for no pause."""

    def __init__(self) -> None:
        super().__init__()
        self.urgent = asyncio.Event()

    def hurry(self) -> None:
        """Ends a wait now."""
        self.set()
        self.urgent.set()


class WatchedCluster(ClusterView):
    def __init__(
        self,
        target: Target,
        *,
        clock_ms: Callable[[], int],
        interval_s: float = 1.0,
        timeout_s: float = 2.0,
        budget_share: float = SHARE,
    ) -> None:
        self.target = target
        options = FeedOptions(
            interval_s=interval_s,
            timeout_s=timeout_s,
            wants_offsets=True,
            wants_all_volumes=False,
            controllers=target.controllers,
            budget_share=budget_share,
        )
        self._interval_s = interval_s
        self.feeds = ClusterFeeds(
            target.bootstrap,
            target.security,
            options,
            clock_ms=clock_ms,
            controllers_security=target.controllers_security,
        )
        questions = Questions(self.feeds.table, target.bootstrap, target.security, timeout_s=timeout_s)
        super().__init__(target.name, secrets.token_hex(4), self.feeds.table, questions, clock_ms)
        self._failure: str | None = None
        #: The rates of replication that this console has set, by broker: most clusters do not report them.
        self.throttles: dict[int, int] = {}
        #: The same for copying between log directories.
        self.directory_throttles: dict[int, int] = {}
        #: The replicas that move between log directories of a broker, as far as this console knows.
        self.directory_moves: set[Replica] = set()
        self._waiting: set[News] = set()
        self._followers: list[Callable[[Step], None]] = []
        #: Rows on screen, by the stream that shows them.
        self._focus: dict[object, list[int]] = {}
        #: The self-reports of the brokers, oldest first.
        self.reports: deque[Event] = deque(maxlen=_REPORTS_KEPT)
        #: The number of partitions of each topic that are under min ISR or offline.
        self._troubled: dict[str, int] = {}
        self._has_other_states = False
        self.table.subscribe(self._on_change)

    @property
    def problem(self) -> str | None:
        return self._failure or self.feeds.problem

    @property
    def groups(self) -> Mapping[str, GroupState]:
        return self.feeds.groups

    @property
    def groups_ms(self) -> int | None:
        return self.feeds.groups_ms

    # -- the watch

    async def run(self) -> None:
        """Watches the cluster until the task is cancelled."""
        try:
            watching = watch(self.feeds, interval_s=self._interval_s, clock_ms=self.clock_ms, packs=True)
            async with aclosing(watching) as steps:
                async for step in steps:
                    await self._take(step)
        finally:
            self.questions.close()

    def note_end(self, task: asyncio.Task[None]) -> None:
        """Notes that the watch ended. After a fault of its own, the last state stays, and every answer says so."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            _LOG.error("the console has stopped watching cluster %s", self.name, exc_info=error)
            self._failure = f"the console has stopped watching this cluster after a fault of its own: {error}"
            self.wake()

    def stay_off(self, reason: str) -> None:
        """Notes why this cluster is not watched."""
        self._failure = reason

    def follow(self, reader: Callable[[Step], None]) -> None:
        """Calls `reader` with each step from now on."""
        self._followers.append(reader)

    async def _take(self, step: Step) -> None:
        self.is_filled = self.is_filled or step.table is not None
        new = self.occurrences.add(step.changes)
        for some in self.occurrences.adding_packed(step.packed):
            new += some
            await asyncio.sleep(0)
        self.reports.extend(step.reports)
        is_new_minute = self._note_trouble()
        for follower in self._followers:
            follower(step)
        if new or step.reports or is_new_minute:
            self.wake()

    def _note_trouble(self) -> bool:
        """Notes the partitions that are under min ISR or offline. Returns whether they are the first of a minute, which
        the time line then has although nothing changes.
        """
        if self._has_other_states:
            self._has_other_states = False
            self._troubled = troubled_topics(self.table)
        minutes = self.occurrences.troubled
        last_ms = minutes.last_ms
        if self.is_filled:
            minutes.note(self.clock_ms(), self._troubled)
        return minutes.last_ms != last_ms

    def _on_change(self, change: ChangeSet) -> None:
        self._has_other_states |= change.is_of_states
        for broker in change.brokers:
            if broker.after is None and broker.before is not None:
                self.departed[broker.broker_id] = broker.before
            else:
                self.departed.pop(broker.broker_id, None)
        self.acknowledged.recheck(self.table)
        self.wake(is_urgent=bool(change.brokers))

    def wake(self, *, is_urgent: bool = False) -> None:
        """Sets the events of all who wait for news."""
        for each in self._waiting:
            each.set()
            if is_urgent:
                each.urgent.set()

    def news(self) -> News:
        """Returns an event that is set whenever something changed, until `ignore`."""
        found = News()
        self._waiting.add(found)
        return found

    def ignore(self, news: News) -> None:
        self._waiting.discard(news)

    def focus(self, stream: object, rows: list[int] | None) -> None:
        """Notes the rows that a stream shows; None when it ended. Their sizes and offsets are asked for first."""
        if rows is None:
            self._focus.pop(stream, None)
        else:
            self._focus[stream] = rows
        self.feeds.focus(self.focused())

    def focused(self) -> set[int]:
        """Returns the rows on all screens."""
        return {row for each in self._focus.values() for row in each}
