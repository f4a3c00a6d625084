"""Feed P, the rolling poll: separate requests to each broker, for pages of partitions, for sizes and for offsets.

    lane of a broker    a ping each interval (Metadata without topics: does it answer, who is in the cluster), the pages
                        that are its share, and the sizes and offsets of its replicas

No answer waits for another broker. All but pings keep to the budget of the broker. An answer whose bytes are those of
the last one is not decoded. A look in a hurry, after brokers came or went, keeps to no budget.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

from barnabas.common.types import EVENTS_TOPIC
from barnabas.monitor.broker_connection import BrokerConnection, M, NoAnswer, Repeated
from barnabas.monitor.budget import PAGE_ROW_S, VOLUME_ROW_S, Budget
from barnabas.monitor.change_set import ChangeSet
from barnabas.monitor.connections import Connections
from barnabas.monitor.delta import Delta, NameRange, Partitions, Source, TopicName
from barnabas.monitor.ending import end_tasks
from barnabas.monitor.feed_options import FeedOptions
from barnabas.monitor.look_requests import (
    PAGE_MAX,
    Cursor,
    brokers_of,
    metadata_partitions,
    metadata_request,
    page_partitions,
    page_request,
)
from barnabas.monitor.page_plan import HEAL_S, Page, PagePlan, covered
from barnabas.monitor.partition_state import BrokerState
from barnabas.monitor.table import ClusterTable
from barnabas.monitor.volume_sweep import VolumeSweep
from barnabas.protocol.message import Message
from barnabas.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from barnabas.protocol.messages.metadata import MetadataResponse

#: How often the task of a broker checks for requests that are due; with many brokers less often. While another feed
#: delivers each change, fewer requests are due; the checks would be a sixth of all work while nothing changes.
_TICK_S: Final = 0.1
_EXACT_TICK_S: Final = 0.25
_TICK_PER_BROKER_S: Final = 0.01
#: The shortest interval between two pings.
_PING_INTERVAL_S: Final = 0.05
#: A broker that answered within this time can name the brokers of the cluster.
_AUTHORITY_S: Final = 3.0
#: The number of changed rows in one page from which on the other pages are polled immediately.
_MANY_ROWS: Final = 50
_HURRY_INTERVAL_S: Final = 1.0
#: The shortest time between two polls of the same page while another feed delivers each change: the polls then only
#: find what that feed has missed.
_EXACT_INTERVAL_S: Final = 5.0
#: The part of a broker's budget for sizes and offsets.
_SWEEP_PART: Final = 0.25
_NEVER: Final = float("-inf")


@dataclass(slots=True)
class _Lane:
    """The requests to one broker."""

    broker_id: int
    sweep: VolumeSweep
    budget: Budget
    sweep_budget: Budget
    task: asyncio.Task[None] | None = None
    pinged_s: float = _NEVER
    answered_s: float = _NEVER
    #: Whether sizes and offsets come before the next page, so that neither waits for the other forever.
    is_sweeps_turn: bool = False
    #: Whether the broker has answered or failed once.
    is_known: bool = False


class LookFeed:
    def __init__(
        self,
        table: ClusterTable,
        connections: Connections,
        clock_ms: Callable[[], int],
        options: FeedOptions,
    ) -> None:
        self._table = table
        self._connections = connections
        self._clock_ms = clock_ms
        self._options = options
        topic, self._interval_s = options.topic, options.interval_s
        self._plan = PagePlan(self._interval_s, None if topic is None else tuple(sorted({topic, EVENTS_TOPIC})))
        self._lanes: dict[int, _Lane] = {}
        #: Changes of states by any feed; those that were counted last, and when.
        self._changes = self._counted = 0
        self._changed_s = _NEVER
        table.subscribe(self._count)
        self._hurried_s = _NEVER
        self._is_hurry_wanted = False
        #: Whether the first poll is complete: until then there is no budget.
        self.is_complete = False
        self.first_look = asyncio.Event()
        #: The broker that leads the journal; None if there is no journal, -1 if it has no leader.
        self.journal_leader: int | None = None
        #: The brokers whose replicas of the journal are in sync.
        self.journal_in_sync: Sequence[int] = ()
        self.has_journal = False
        self._exact_feeds: set[Source] = set()
        #: The controller that Metadata names; None before the first answer.
        self.named_controller: int | None = None
        #: Rows whose sizes and offsets are requested first.
        self.focus: Collection[int] = ()

    def note_exact(self, source: Source, is_following: bool) -> None:
        """Notes whether another feed delivers each change. Polls are less frequent then, and not urgent."""
        if is_following:
            self._exact_feeds.add(source)
        else:
            self._exact_feeds.discard(source)
        least_s = _EXACT_INTERVAL_S if self._exact_feeds else 0.0
        self._plan.interval_s = max(self._interval_s, least_s)

    def hurry(self) -> None:
        """Polls all partitions soon, regardless of the budget."""
        self._is_hurry_wanted = True
        now_s = asyncio.get_running_loop().time()
        if now_s - self._hurried_s >= _HURRY_INTERVAL_S:
            self._hurried_s, self._is_hurry_wanted = now_s, False
            self._plan.hurry()

    def ask_brokers(self) -> None:
        """Asks every broker for the list of brokers, immediately."""
        for lane in self._lanes.values():
            lane.pinged_s = _NEVER

    async def run(self) -> None:
        """Keeps one task with requests for each broker of the table, until this is cancelled."""
        try:
            while True:
                for broker_id in self._table.brokers:
                    lane = self._lanes.get(broker_id)
                    if lane is None:
                        sweep = VolumeSweep(self._table, broker_id, wants_offsets=self._options.wants_offsets)
                        lane = self._lanes[broker_id] = self._new_lane(broker_id, sweep)
                        lane.task = asyncio.create_task(self._run_lane(lane))
                    elif lane.task is not None and lane.task.done():
                        lane.task.result()
                        del self._lanes[broker_id]
                if self._is_hurry_wanted:
                    self.hurry()
                self._check_complete()
                await asyncio.sleep(self._tick_s if self.is_complete else 0.01)
        finally:
            await end_tasks([lane.task for lane in self._lanes.values() if lane.task is not None])
            self._lanes.clear()

    def _new_lane(self, broker_id: int, sweep: VolumeSweep) -> _Lane:
        share = self._options.budget_share
        return _Lane(broker_id, sweep, Budget(share * (1 - _SWEEP_PART)), Budget(share * _SWEEP_PART))

    @property
    def _tick_s(self) -> float:
        tick_s = _EXACT_TICK_S if self._exact_feeds else _TICK_S
        return max(tick_s, _TICK_PER_BROKER_S * len(self._table.brokers))

    def _check_complete(self) -> None:
        if self.is_complete or not self._plan.is_complete:
            return
        lanes = [self._lanes.get(broker_id) for broker_id in self._table.brokers]
        if all(lane is not None and self._is_done(lane) for lane in lanes):
            self.is_complete = True
            self.first_look.set()

    def _is_done(self, lane: _Lane) -> bool:
        broker = self._table.brokers[lane.broker_id]
        if broker.problem is not None:
            return True
        return lane.sweep.rounds > 0 or (lane.sweep.chunks > 0 and not self._options.wants_all_volumes)

    # -- one broker

    async def _run_lane(self, lane: _Lane) -> None:
        while True:
            broker = self._table.brokers.get(lane.broker_id)
            if broker is None:
                return
            connection = self._connections.lane(broker.address)
            try:
                did = await self._next(lane, broker, connection)
            except NoAnswer as error:
                lane.is_known = True
                self._apply(Delta(self._clock_ms(), problems={lane.broker_id: str(error)}))
                await asyncio.sleep(self._interval_s)
                lane.pinged_s = _NEVER
            else:
                if not did:
                    await asyncio.sleep(self._tick_s if self.is_complete else 0.005)

    async def _next(self, lane: _Lane, broker: BrokerState, connection: BrokerConnection) -> bool:
        """Sends the next request that is due to the broker. Returns False if none is due. Raises NoAnswer."""
        now_s = asyncio.get_running_loop().time()
        if connection.is_ended or now_s - lane.pinged_s >= max(self._interval_s, _PING_INTERVAL_S):
            lane.pinged_s = now_s
            await self._ping(lane, connection)
            return True
        has_budget = not self.is_complete or lane.budget.is_free(now_s)
        page = self._plan.due(lane.broker_id, self._alive(), now_s)
        asks_page = page is not None and (has_budget or page.is_urgent)
        sweeps = self._plan.is_complete and self._wants_sweep(lane, now_s)
        if page is not None and asks_page and not (sweeps and lane.is_sweeps_turn):
            lane.is_sweeps_turn = True
            await self._ask_page(lane, connection, page)
            return True
        if sweeps:
            lane.is_sweeps_turn = False
            rows, seen = await lane.sweep.ask(connection, now_s, self._clock_ms(), self.focus)
            lane.sweep_budget.spend(now_s, asyncio.get_running_loop().time(), rows, VOLUME_ROW_S)
            if seen is not None:
                self._table.apply_volumes(seen)
            return rows > 0
        return False

    def _wants_sweep(self, lane: _Lane, now_s: float) -> bool:
        is_part_of_first = lane.sweep.chunks == 0 or (self._options.wants_all_volumes and lane.sweep.rounds == 0)
        has_budget = lane.sweep_budget.is_free(now_s) if self.is_complete else is_part_of_first
        return has_budget and lane.sweep.is_due(now_s, self._interval_s)

    def _alive(self) -> list[int]:
        return [broker.broker_id for broker in self._table.brokers.values() if broker.problem is None]

    async def _ping(self, lane: _Lane, connection: BrokerConnection) -> None:
        asked_ms = self._clock_ms()
        answer = await connection.call(metadata_request([]), MetadataResponse)
        lane.answered_s = asyncio.get_running_loop().time()
        lane.is_known = True
        delta = Delta(self._clock_ms(), asked_ms=asked_ms, problems={lane.broker_id: None})
        if self._is_authority(lane):
            self.named_controller = answer.controller_id
            delta.brokers = brokers_of(answer)
            delta.cluster_id = answer.cluster_id
            if not delta.brokers:
                delta.brokers = None
        self._apply(delta)

    def _is_authority(self, lane: _Lane) -> bool:
        """Whether this broker's answer decides which brokers are in the cluster. Of two brokers that are asked, one can
        be behind.
        """
        answering = [
            each.broker_id
            for each in self._lanes.values()
            if lane.answered_s - each.answered_s <= _AUTHORITY_S and each.broker_id in self._alive()
        ]
        return lane.broker_id == min(answering, default=lane.broker_id)

    def _apply(self, delta: Delta) -> ChangeSet | None:
        found = self._table.apply(delta)
        if found is not None and self.is_complete and (found.brokers or len(found.rows) >= _MANY_ROWS):
            if self._exact_feeds:
                # The journal delivers the changes; only the leader of the journal itself can have changed.
                self._plan.hurry(EVENTS_TOPIC)
            else:
                self.hurry()
        if delta.brokers is not None:
            self._connections.known = [broker.address for broker in self._table.brokers.values()]
            self._connections.forget(self._connections.known)
        return found

    # -- pages

    async def _ask_page(self, lane: _Lane, connection: BrokerConnection, page: Page) -> None:
        loop = asyncio.get_running_loop()
        now_s, asked_ms = loop.time(), self._clock_ms()
        self._plan.asked(page, now_s)
        try:
            if connection.knows(DescribeTopicPartitionsRequest):
                rows = await self._ask_partitions(connection, page, asked_ms, now_s)
            else:
                rows = await self._ask_metadata(connection, page, asked_ms, now_s)
        except BaseException:
            self._plan.failed(page)
            raise
        lane.answered_s = loop.time()
        lane.budget.spend(now_s, lane.answered_s, rows, PAGE_ROW_S)

    async def _ask_partitions(self, connection: BrokerConnection, page: Page, asked_ms: int, now_s: float) -> int:
        request = self._request_for(page, DescribeTopicPartitionsResponse, page_request, now_s)
        answer = await connection.call_again(request)
        if answer is None:
            self._plan.repeated(page)
            return PAGE_MAX
        cursor = answer.next_cursor
        following = None if cursor is None else (cursor.topic_name, cursor.partition_index)
        partitions = page_partitions(answer, page.start, self._options.topic)
        names = covered(page.start, following)
        self._note_journal(names, _journal_replicas(answer))
        self._take(partitions, names, asked_ms)
        self._plan.healed(page, now_s, self._settled(now_s))
        self._plan.answered(page, following)
        return len(partitions)

    async def _ask_metadata(self, connection: BrokerConnection, page: Page, asked_ms: int, now_s: float) -> int:
        request = self._request_for(page, MetadataResponse, lambda _, names: metadata_request(names), now_s)
        answer = await connection.call_again(request)
        if answer is None:
            self._plan.repeated(page)
            return PAGE_MAX
        partitions = metadata_partitions(answer, self._options.topic)
        is_whole = page.names is None or page.names == self._plan.names
        if is_whole:
            self._note_journal(NameRange(), _journal_replicas(answer))
            self._take(partitions, NameRange(), asked_ms)
            self._plan.answered(page, None)
            self._plan.divided(_chunks(partitions))
        else:
            absent = set(page.names or ()) - {topic.name for topic in partitions.topics}
            self._take(partitions, None, asked_ms, [TopicName(name) for name in sorted(absent)])
            self._plan.repeated(page)
        self._plan.healed(page, now_s, self._settled(now_s))
        return len(partitions)

    def _request_for(
        self,
        page: Page,
        response: type[M],
        build: Callable[[Cursor | None, Sequence[str] | None], Message],
        now_s: float,
    ) -> Repeated[M]:
        """Returns the request for a page, which is a different one for a broker that does not offer pages."""
        if page.request is None or page.request.response is not response:
            page.request = Repeated(lambda: build(page.start, page.names), response)
        elif self._plan.must_decode(page, now_s, self._changes):
            page.request.forget()
        return page.request

    def _settled(self, now_s: float) -> int:
        """Returns the number of changes of states until now; -1 if one is recent. An answer does not replace what an
        exact feed delivered shortly before, so the next one is compared too.
        """
        if self._counted != self._changes:
            self._counted, self._changed_s = self._changes, now_s
        return self._changes if now_s - self._changed_s >= HEAL_S else -1

    def _count(self, change_set: ChangeSet) -> None:
        self._changes += change_set.is_of_states

    def _take(
        self, partitions: Partitions, names: NameRange | None, asked_ms: int, deleted: Sequence[TopicName] = ()
    ) -> None:
        self._apply(Delta(self._clock_ms(), asked_ms=asked_ms, partitions=partitions, covers=names, deleted=deleted))

    def _note_journal(self, names: NameRange, found: tuple[int, Sequence[int]] | None) -> None:
        """Notes the leader and the ISR of the journal, if the names of a page can include it."""
        if names.first <= EVENTS_TOPIC and (names.end is None or names.end > EVENTS_TOPIC):
            self.has_journal = found is not None
            self.journal_leader, self.journal_in_sync = (None, ()) if found is None else found


def _journal_replicas(
    answer: DescribeTopicPartitionsResponse | MetadataResponse,
) -> tuple[int, Sequence[int]] | None:
    """Returns the leader and the ISR of the journal; None if the response does not have it."""
    for topic in answer.topics:
        if topic.name == EVENTS_TOPIC and topic.partitions:
            return topic.partitions[0].leader_id, topic.partitions[0].isr_nodes
    return None


def _chunks(partitions: Partitions) -> list[tuple[str, ...]]:
    """Returns the names of topics in groups of at most `PAGE_MAX` partitions; none if one answer can have them all."""
    if len(partitions) <= PAGE_MAX:
        return []
    counts = [0] * len(partitions.topics)
    for index in partitions.indexes().tolist():
        counts[index] += 1
    found: list[list[str]] = [[]]
    room = PAGE_MAX
    for topic, count in sorted(zip(partitions.topics, counts, strict=True)):
        if count > room and found[-1]:
            found.append([])
            room = PAGE_MAX
        found[-1].append(topic.name)
        room -= count
    return [tuple(names) for names in found]
