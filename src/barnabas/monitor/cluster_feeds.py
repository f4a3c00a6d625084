"""All feeds of one cluster into one table: `run` keeps it current, `first_look` fills it once.

    feeds = ClusterFeeds([("localhost", 9092)], Security(), FeedOptions(), clock_ms=...)
    feeds.table, feeds.events(), feeds.problem

If no broker answers, `problem` says why, and all addresses are tried until one does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Final

from barnabas.monitor.broker_connection import Address, NoAnswer, Repeated, Security
from barnabas.monitor.change_set import ChangeSet
from barnabas.monitor.changes import Event
from barnabas.monitor.connections import Connections, Unreachable
from barnabas.monitor.delta import Delta
from barnabas.monitor.ending import end_tasks
from barnabas.monitor.feed_options import FeedOptions
from barnabas.monitor.group_sweep import GroupState, groups_of
from barnabas.monitor.journal_feed import JournalFeed
from barnabas.monitor.log_feed import LogFeed
from barnabas.monitor.look_feed import LookFeed
from barnabas.monitor.look_requests import (
    brokers_of,
    metadata_request,
    min_isr_request,
    min_isrs_of,
    quorum_leader,
    quorum_request,
)
from barnabas.monitor.table import ClusterTable
from barnabas.monitor.texts import NO_NODE
from barnabas.protocol.messages.describe_configs import DescribeConfigsResponse
from barnabas.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from barnabas.protocol.messages.metadata import MetadataResponse

#: Without an active controller, the question about it gets no response.
_QUORUM_TIMEOUT_S: Final = 1.0
_CONTROLLER_INTERVAL_S: Final = 0.5
#: The maximum age of a known min.insync.replicas, while one request can have all of them.
_MIN_ISR_AGE_S: Final = 15.0
_TOPICS_PER_REQUEST: Final = 500
#: The pause between two sweeps over the groups: so long that they take at most a hundredth of the time of the brokers.
_GROUP_PAUSE_S: Final = (2.0, 30.0)
_GROUP_SHARE: Final = 0.01
#: The pause between two requests for known ones, within the budget of the brokers.
_MIN_ISR_PAUSE_S: Final = 2.5


class ClusterFeeds:
    def __init__(
        self,
        bootstrap: Sequence[Address],
        security: Security,
        options: FeedOptions,
        *,
        clock_ms: Callable[[], int],
        controllers_security: Security | None = None,
    ) -> None:
        self.table = ClusterTable()
        #: Why no broker answers; None while one does.
        self.problem: str | None = None
        #: Set whenever the table, the events or the problem changed.
        self.news = asyncio.Event()
        self._clock_ms = clock_ms
        self._interval_s = options.interval_s
        self._connections = Connections(bootstrap, security, options.timeout_s)
        self._look = LookFeed(self.table, self._connections, clock_ms, options)
        self._journal = JournalFeed(
            self.table, self._connections, self._look, clock_ms, topic=options.topic, on_event=self.news.set
        )
        self._log = (
            LogFeed(
                self.table,
                options.controllers,
                security if controllers_security is None else controllers_security,
                self._look,
                clock_ms,
                topic=options.topic,
                timeout_s=options.timeout_s,
            )
            if options.controllers
            else None
        )
        #: The consumer groups, if offsets are wanted.
        self.groups: dict[str, GroupState] = {}
        #: The time of the last complete sweep over the groups; None before the first.
        self.groups_ms: int | None = None
        self._wants_groups = options.wants_offsets
        self._asked_min_isrs: set[str] = set()
        self._has_new_topics = asyncio.Event()
        self._is_controller_known = asyncio.Event()
        self._are_min_isrs_known = asyncio.Event()
        self.table.subscribe(self._on_change)

    @property
    def has_journal(self) -> bool:
        return self._look.has_journal

    @property
    def log_problem(self) -> str | None:
        """Returns why the metadata log cannot be read; None if it is read, or not wanted."""
        return None if self._log is None else self._log.problem

    @property
    def follows_log(self) -> bool:
        """Whether the metadata log is wanted, and followed."""
        return self._log is not None and self._log.is_live

    def focus(self, rows: Collection[int]) -> None:
        """Asks for the sizes and offsets of these rows first."""
        self._look.focus = rows

    def events(self) -> list[Event]:
        """Returns the events of the journal since the last call."""
        return self._journal.taken()

    async def settled(self) -> None:
        """Waits until no decision is applied in part."""
        await self._journal.is_whole.wait()

    async def first_look(self) -> None:
        """Fills the table once. Raises Unreachable."""
        tasks = [asyncio.create_task(each) for each in await self._begin()]
        try:
            await self._until_complete(tasks)
        finally:
            await end_tasks(tasks)
            self._connections.close()

    async def run(self, on_first: Callable[[], None]) -> None:
        """Keeps the table current until it is cancelled. Calls `on_first` after the first poll."""
        tasks: list[asyncio.Task[None]] = []
        try:
            while not tasks:
                try:
                    tasks = [asyncio.create_task(each) for each in await self._begin()]
                except Unreachable as error:
                    self._note_problem(str(error))
                    await asyncio.sleep(self._interval_s)
            self._note_problem(None)
            tasks.append(asyncio.create_task(self._watch_reachability()))
            await self._until_complete(tasks)
            tasks.append(asyncio.create_task(self._journal.run()))
            if self._log is not None:
                tasks.append(asyncio.create_task(self._log.run()))
            if self._wants_groups:
                tasks.append(asyncio.create_task(self._sweep_groups()))
            on_first()
            await asyncio.gather(*tasks)
        finally:
            await end_tasks(tasks)
            self._connections.close()

    async def _begin(self) -> list[Coroutine[Any, Any, None]]:
        await self._ask_brokers()
        return [self._look.run(), self._controllers(), self._min_isrs()]

    async def _until_complete(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        waits = [self._look.first_look.wait(), self._is_controller_known.wait(), self._are_min_isrs_known.wait()]
        complete = asyncio.create_task(_all(waits))
        await asyncio.wait([complete, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                task.result()
        await complete

    async def _ask_brokers(self) -> None:
        """Requests the list of brokers from any broker that responds. Raises Unreachable."""
        answer = await self._connections.call_any(metadata_request([]), MetadataResponse)
        self.table.apply(
            Delta(
                self._clock_ms(),
                brokers=brokers_of(answer),
                cluster_id=answer.cluster_id,
                problems=dict.fromkeys(self.table.brokers),
            )
        )
        self._connections.known = [broker.address for broker in self.table.brokers.values()]
        self._look.named_controller = answer.controller_id

    # -- questions to any broker

    async def _watch_reachability(self) -> None:
        """Tries all known addresses while no broker of the table answers."""
        while True:
            if all(broker.problem is not None for broker in self.table.brokers.values()):
                try:
                    await self._ask_brokers()
                except Unreachable as error:
                    self._note_problem(str(error))
                else:
                    self._note_problem(None)
            elif self.problem is not None:
                self._note_problem(None)
            await asyncio.sleep(min(0.25, self._interval_s))

    def _note_problem(self, problem: str | None) -> None:
        if problem != self.problem:
            self.problem = problem
            self.news.set()

    async def _controllers(self) -> None:
        while True:
            controller = await self._controller()
            if controller is not None:
                self.table.apply(Delta(self._clock_ms(), controller=controller))
            self._is_controller_known.set()
            await asyncio.sleep(max(self._interval_s, _CONTROLLER_INTERVAL_S))

    async def _controller(self) -> int | None:
        """Returns the leader of the metadata quorum; for a cluster without a quorum, the controller in the metadata."""
        try:
            answer = await self._connections.call_any(
                quorum_request(), DescribeQuorumResponse, timeout_s=_QUORUM_TIMEOUT_S
            )
        except Unreachable:
            # Brokers forward the request to the active controller: without one, it gets no response.
            knows_quorums = self._connections.knows(DescribeQuorumRequest)
            return NO_NODE if knows_quorums else self._look.named_controller
        leader = quorum_leader(answer)
        return NO_NODE if leader is None else leader

    async def _sweep_groups(self) -> None:
        """Asks each broker for the groups that it coordinates. The groups of a broker that does not answer stay."""
        by_broker: dict[int, dict[str, GroupState]] = {}
        loop = asyncio.get_running_loop()
        while True:
            begin_s = loop.time()
            for broker in list(self.table.brokers.values()):
                if broker.problem is None:
                    with suppress(NoAnswer):
                        found = await groups_of(self._connections.aside(broker.address))
                        for group in found.values():
                            group.coordinator = broker.broker_id
                        by_broker[broker.broker_id] = found
            self.groups = {name: state for groups in by_broker.values() for name, state in groups.items()}
            self.groups_ms = self._clock_ms()
            for broker_id in by_broker.keys() - self.table.brokers.keys():
                del by_broker[broker_id]
            least_s, most_s = _GROUP_PAUSE_S
            await asyncio.sleep(min(most_s, max(least_s, (loop.time() - begin_s) / _GROUP_SHARE)))

    async def _min_isrs(self) -> None:
        """Asks for `min.insync.replicas` of new topics immediately, and of the others by turns."""
        loop = asyncio.get_running_loop()
        begin_s, again = loop.time(), list[tuple[str, ...]]()
        requests: dict[tuple[str, ...], Repeated[DescribeConfigsResponse]] = {}
        while True:
            known = self.table.topics.by_name
            for some in _by_request([name for name in known if name not in self._asked_min_isrs]):
                await self._ask_min_isrs(some)
            if self._look.first_look.is_set():
                self._are_min_isrs_known.set()
            if not again and loop.time() - begin_s >= _MIN_ISR_AGE_S:
                begin_s, again = loop.time(), _by_request(self.table.topics.names())
                requests = {names: requests.get(names) or _min_isrs_again(names) for names in again}
                self._asked_min_isrs &= known.keys()
            if again:
                with suppress(Unreachable, NoAnswer):
                    self._take_min_isrs(await self._connections.call_any_again(requests[again.pop(0)]))
            pause_s = _MIN_ISR_PAUSE_S if len(known) > _TOPICS_PER_REQUEST else self._interval_s
            self._has_new_topics.clear()
            with suppress(TimeoutError):
                is_known = self._are_min_isrs_known.is_set()
                await asyncio.wait_for(self._has_new_topics.wait(), pause_s if is_known else 0.01)

    async def _ask_min_isrs(self, names: Sequence[str]) -> None:
        self._asked_min_isrs.update(names)
        # Without the right to describe configurations, min ISR remains unknown.
        with suppress(Unreachable, NoAnswer):
            self._take_min_isrs(await self._connections.call_any(min_isr_request(names), DescribeConfigsResponse))

    def _take_min_isrs(self, answer: DescribeConfigsResponse | None) -> None:
        if answer is not None:
            self.table.apply(Delta(self._clock_ms(), min_isrs=min_isrs_of(answer)))

    def _on_change(self, change: ChangeSet) -> None:
        for topic_change in change.topic_changes:
            self._asked_min_isrs.discard(topic_change.topic.name)
            self._has_new_topics.set()
        self.news.set()


def _by_request(names: Sequence[str]) -> list[tuple[str, ...]]:
    return [tuple(names[first : first + _TOPICS_PER_REQUEST]) for first in range(0, len(names), _TOPICS_PER_REQUEST)]


def _min_isrs_again(names: Sequence[str]) -> Repeated[DescribeConfigsResponse]:
    return Repeated(lambda: min_isr_request(names), DescribeConfigsResponse)


async def _all(waits: Sequence[Coroutine[Any, Any, Any]]) -> None:
    await asyncio.gather(*waits)
