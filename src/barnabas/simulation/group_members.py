"""Group members: unmodified aiokafka with the classic protocol, and a member of the consumer protocol (KIP-848), which
aiokafka does not support.

Both record what they own and commit. A member of the second kind reads no records: for each partition that it
owns, it repeatedly reads the group's offset and commits the next one, so that the offsets are counters that must never
go back.
"""

from __future__ import annotations

import asyncio

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition

from barnabas.common.errors import ErrorCode
from barnabas.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from barnabas.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from barnabas.simulation.bare_client import GROUP_KEY, BareClient
from barnabas.simulation.group_history import GroupHistory
from barnabas.simulation.history import Place
from barnabas.simulation.run_topics import Topic
from barnabas.simulation.session_worker import SessionWorker
from barnabas.simulation.simulated_cluster import Client, Cluster
from barnabas.simulation.workload import CLIENT_ERRORS, METADATA_AGE_MS, RETRY_S, TIMEOUT_MS, closed

#: The time limit of a commit, below the client's own: the client must not retry one that can still be in flight.
_COMMIT_S = TIMEOUT_MS / 1000 - 2
_SESSION_POLLS = 60
#: Static members come back more often.
_STATIC_ROUNDS = 20
_BY_NAME = 9
_PAUSE_S = 0.2
_NEVER = -1
_LEAVES, _LEAVES_FOR_A_TIME = -1, -2
#: The absences of static members: most are shorter than their sessions.
_ABSENCES_S = (0.0, 0.5, 3.0, 12.0)
_FENCED = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)


class ClassicMember(SessionWorker, ConsumerRebalanceListener):  # type: ignore[misc]
    """A member that reads and commits what it has read; with `counts`, it only commits, like a `ModernMember`."""

    def __init__(
        self,
        cluster: Cluster,
        client: Client,
        group: str,
        history: GroupHistory,
        topic: Topic,
        *,
        counts: bool,
        instance: str | None = None,
    ) -> None:
        super().__init__(cluster, client)
        self._counts = counts
        self._instance = instance
        self._group = group
        self._history = history
        self._topic = topic
        self._name = ""
        self._consumer: AIOKafkaConsumer | None = None
        self._fresh: set[TopicPartition] = set()
        #: The offsets that the group has committed for its partitions.
        self._known: dict[TopicPartition, int] = {}
        self.owned: set[Place] = set()
        #: The generations and partitions of its assignments.
        self.assignments: list[tuple[int, frozenset[Place]]] = []

    @property
    def _owner(self) -> str:
        return self._instance or self._name

    async def run(self) -> None:
        self.owned = set()
        while not self.stopping:
            self._name = self._begin_session()
            consumer = self._consumer = AIOKafkaConsumer(
                bootstrap_servers=self._cluster.bootstrap,
                client_id=self._name,
                group_id=self._group,
                group_instance_id=self._instance,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                request_timeout_ms=TIMEOUT_MS,
                metadata_max_age_ms=METADATA_AGE_MS,
            )
            try:
                consumer.subscribe([self._topic.name], listener=self)
                await consumer.start()
                await self._work(consumer)
            except CLIENT_ERRORS as error:
                self._cluster.world.note(self.client.name, f"{self._name} gives up: {error!r}")
                await asyncio.sleep(RETRY_S)
            self._give_back()
            await closed(consumer.stop)
            if self._instance is not None:
                await asyncio.sleep(self._random.choice(_ABSENCES_S))

    async def _work(self, consumer: AIOKafkaConsumer) -> None:
        """Works for a random number of polls; then it leaves and joins again."""
        polls = self._random.randint(5, _SESSION_POLLS if self._instance is None else _STATIC_ROUNDS)
        while not self.stopping and (polls := polls - 1) > 0:
            await self._read_committed(consumer)
            got = await consumer.getmany(timeout_ms=500)
            if self._counts:
                offsets = {at: offset + 1 for at, offset in self._known.items()}
            else:
                offsets = {at: records[-1].offset + 1 for at, records in got.items() if at in self._known}
            if offsets:
                await self._commit(consumer, offsets)

    async def _read_committed(self, consumer: AIOKafkaConsumer) -> None:
        """Reads the offsets that the group had committed when it assigned the partitions."""
        while self._fresh:
            at = self._fresh.pop()
            requested_us = self._cluster.world.now_us
            found = await asyncio.wait_for(consumer.committed(at), _COMMIT_S)
            offset = _NEVER if found is None else found
            self._history.saw((at.topic, at.partition), requested_us, offset)
            if (at.topic, at.partition) in self.owned:
                self._known[at] = offset
                if self._counts:
                    consumer.pause(at)

    async def _commit(self, consumer: AIOKafkaConsumer, offsets: dict[TopicPartition, int]) -> None:
        """Commits offsets. aiokafka repeats a commit that could not be sent, possibly in a later generation, in which
        the partitions may belong to another member; the history excuses these.
        """
        generation, requested_us = self._generation, self._cluster.world.now_us
        try:
            await asyncio.wait_for(consumer.commit(offsets), _COMMIT_S)
        finally:
            if self._generation != generation:
                for at in offsets:
                    self._history.excuse((at.topic, at.partition))
        if self._generation == generation:
            for at, offset in offsets.items():
                self._known[at] = offset
                self._history.saw((at.topic, at.partition), requested_us, offset, is_commit=True)
            self.acked += 1

    @property
    def _generation(self) -> int:
        assert self._consumer is not None
        found: int = self._consumer._coordinator.generation
        return found

    async def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        self._give_back()

    async def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        self.assignments.append((self._generation, frozenset((at.topic, at.partition) for at in assigned)))
        for at in sorted(assigned):
            self.owned.add((at.topic, at.partition))
            self._fresh.add(at)
            self._history.assigned(self._owner, (at.topic, at.partition), self._generation)

    def _give_back(self) -> None:
        for place in self.owned:
            self._history.revoked(self._owner, place)
        self.owned = set()
        self._fresh = set()
        self._known = {}


class ModernMember(SessionWorker):
    """A member that sends heartbeats, and increments the offsets of the partitions that it owns."""

    def __init__(
        self,
        cluster: Cluster,
        client: Client,
        group: str,
        history: GroupHistory,
        topic: Topic,
        instance: str | None = None,
    ) -> None:
        super().__init__(cluster, client)
        self.instance = instance
        self._group = group
        self._history = history
        self._topic = topic
        self.owned: set[Place] = set()

    async def run(self) -> None:
        self.owned = set()
        bare = BareClient(self._cluster, self.client)
        while not self.stopping:
            membership = _Membership(self, bare, self._begin_session())
            rounds = self._random.randint(10, 150 if self.instance is None else _STATIC_ROUNDS)
            while not self.stopping and not membership.is_over and (rounds := rounds - 1) > 0:
                steps = [membership.beat, membership.count]
                self._random.shuffle(steps)
                for step in steps:
                    await step()
                await asyncio.sleep(_PAUSE_S + self._random.random())
            await membership.leave()
            if self.instance is not None:
                await asyncio.sleep(self._random.choice(_ABSENCES_S))

    # -- used by its membership

    @property
    def now_us(self) -> int:
        return self._cluster.world.now_us

    @property
    def terms(self) -> tuple[str, Topic, GroupHistory]:
        return self._group, self._topic, self._history


class _Membership:
    """A membership, from joining to leaving."""

    def __init__(self, member: ModernMember, bare: BareClient, name: str) -> None:
        self._member = member
        self._bare = bare
        self._name = name
        self._owner = member.instance or name
        self._group, self._topic, self._history = member.terms
        self._history.left(self._owner)
        self._epoch = 0
        self._says_all = True
        #: The known offsets of its partitions.
        self._counts: dict[Place, int] = {}
        self.is_over = False

    @property
    def _owned(self) -> set[Place]:
        return self._member.owned

    async def beat(self) -> None:
        node = await self._bare.coordinator(self._group, GROUP_KEY)
        sent_us = self._member.now_us
        answer = await self._bare.call(node, self._request(), ConsumerGroupHeartbeatResponse)
        if answer is None or answer.error_code:
            self._says_all = True
            self._bare.forget()
            if answer is not None and answer.error_code in _FENCED:
                self._give_back(set(self._owned))
                self._epoch = 0
            return
        self._history.contacted(self._owner, sent_us)
        self._says_all = False
        self._epoch = answer.member_epoch
        if answer.assignment is not None:
            await self._take(answer.assignment)

    def _request(self) -> ConsumerGroupHeartbeatRequest:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group,
            member_id=self._name,
            member_epoch=self._epoch,
            instance_id=self._member.instance,
        )
        if self._says_all or self._epoch == 0:
            request.rebalance_timeout_ms = TIMEOUT_MS
            request.subscribed_topic_names = [self._topic.name]
        kind = ConsumerGroupHeartbeatRequest.TopicPartitions
        partitions = sorted(index for _, index in self._owned)
        known = [topic_id for topic_id, name in self._bare.topic_ids.items() if name == self._topic.name]
        request.topic_partitions = [kind(topic_id=known[0], partitions=partitions)] if known and partitions else []
        return request

    async def _take(self, assignment: ConsumerGroupHeartbeatResponse.Assignment) -> None:
        """Takes over an assignment: revoked partitions are given back first, and the next heartbeat reports it."""
        wanted = set()
        for row in assignment.topic_partitions:
            while row.topic_id not in self._bare.topic_ids:
                await self._bare.refresh([self._topic.name])
            wanted |= {(self._bare.topic_ids[row.topic_id], index) for index in row.partitions}
        self._give_back(self._owned - wanted)
        for place in sorted(wanted - self._owned):
            self._owned.add(place)
            self._history.assigned(self._owner, place, self._epoch)

    def _give_back(self, places: set[Place]) -> None:
        for place in places:
            self._owned.discard(place)
            self._counts.pop(place, None)
            self._history.revoked(self._owner, place)

    async def leave(self) -> None:
        """Leaves; a static member does it temporarily, and its instance keeps the partitions."""
        if self._member.instance is not None:
            self._history.left(self._owner)
            self._owned.clear()
        self._give_back(set(self._owned))
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group,
            member_id=self._name,
            member_epoch=_LEAVES if self._member.instance is None else _LEAVES_FOR_A_TIME,
            instance_id=self._member.instance,
        )
        node = await self._bare.coordinator(self._group, GROUP_KEY)
        await self._bare.call(node, request, ConsumerGroupHeartbeatResponse)

    # -- commits

    async def count(self) -> None:
        """Increments the offset of each partition, except where no offset was read."""
        for place in sorted(self._owned):
            if place not in self._counts:
                await self._fetch_offset(place)
            elif not self.is_over:
                await self._commit(place)

    async def _fetch_offset(self, place: Place) -> None:
        row = OffsetFetchRequest.OffsetFetchRequestTopics(name=place[0], partition_indexes=[place[1]])
        group = OffsetFetchRequest.OffsetFetchRequestGroup(
            group_id=self._group, member_id=self._name, member_epoch=self._epoch, topics=[row]
        )
        node = await self._bare.coordinator(self._group, GROUP_KEY)
        requested_us = self._member.now_us
        request = OffsetFetchRequest(groups=[group], require_stable=True)
        answer = await self._bare.call(node, request, OffsetFetchResponse, version_max=_BY_NAME)
        if answer is None or answer.groups[0].error_code:
            self._bare.forget()
            return
        committed = answer.groups[0].topics[0].partitions[0]
        if not committed.error_code:
            self._history.saw(place, requested_us, committed.committed_offset)
            self._counts[place] = committed.committed_offset

    async def _commit(self, place: Place) -> None:
        """Commits the next offset. An unknown result ends the membership: the commit can take effect later."""
        offset = self._counts[place] + 1
        row = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=place[1], committed_offset=offset)
        topic = OffsetCommitRequest.OffsetCommitRequestTopic(name=place[0], partitions=[row])
        request = OffsetCommitRequest(
            group_id=self._group, generation_id_or_member_epoch=self._epoch, member_id=self._name, topics=[topic]
        )
        node = await self._bare.coordinator(self._group, GROUP_KEY)
        requested_us = self._member.now_us
        answer = await self._bare.call(node, request, OffsetCommitResponse, version_max=_BY_NAME)
        if answer is None:
            self.is_over = True
            return
        code = answer.topics[0].partitions[0].error_code
        if not code:
            self._history.saw(place, requested_us, offset, is_commit=True)
            self._counts[place] = offset
            self._member.acked += 1
        elif code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, *_FENCED):
            self._bare.forget()
        elif code != ErrorCode.STALE_MEMBER_EPOCH:
            # The commit can have been written in spite of the error.
            self.is_over = True
