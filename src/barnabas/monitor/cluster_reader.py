"""The reader of a cluster's state: queries its brokers for a `Snapshot`, and its journal for new events.

    any broker       Metadata (leaders, replicas, ISRs), DescribeQuorum (the active controller), DescribeConfigs
                     (min.insync.replicas, once in a while)
    every broker     DescribeLogDirs (sizes), ListOffsets as a debugging replica (-2): the log end offsets of its
                     replicas, whatever their role is

The data of a broker that does not answer is missing. If none answers, `read_snapshot` raises Unreachable, and the next
call tries all known addresses.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from barnabas.common.errors import DecodeError, ErrorCode, RecordsRejected
from barnabas.common.types import EVENTS_TOPIC, METADATA_TOPIC
from barnabas.monitor.broker_connection import Address, BrokerConnection, NoAnswer, Security
from barnabas.monitor.changes import Event
from barnabas.monitor.partition_state import BrokerState, Key, PartitionState, ReplicaDetail
from barnabas.monitor.snapshot import Snapshot
from barnabas.monitor.texts import NO_NODE
from barnabas.protocol.message import Message
from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from barnabas.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from barnabas.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from barnabas.protocol.messages.fetch import FetchRequest, FetchResponse
from barnabas.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.records.batch import decode_batch, iter_headers

M = TypeVar("M", bound=Message)

_TOPIC_RESOURCE: Final = 2
_MIN_ISR: Final = "min.insync.replicas"
#: The maximum age of a known min.insync.replicas.
_MIN_ISR_AGE_MS_MAX: Final = 15_000
#: Without an active controller, this request gets no response.
_QUORUM_TIMEOUT_S: Final = 1.0
_LATEST: Final = -1
_DEBUGGING_REPLICA: Final = -2
_FETCH_BYTES_MAX: Final = 4 * 1024 * 1024
#: The last version that names topics by name.
_FETCH_BY_NAME: Final = 12
#: A journal that appears while the monitor runs is read from its beginning.
_FROM_THE_BEGINNING: Final = 0


class Unreachable(Exception):
    """Signals that no broker answers. The text lists the brokers with reasons."""


class ClusterReader:
    """A reader of one cluster; each call of `read_snapshot` queries the brokers."""

    def __init__(
        self,
        bootstrap: Sequence[Address],
        security: Security,
        *,
        topic: str | None = None,
        clock_ms: Callable[[], int],
        timeout_s: float = 3.0,
    ) -> None:
        self._bootstrap = tuple(bootstrap)
        self._security = security
        self._topic = topic
        self._clock_ms = clock_ms
        self._timeout_s = timeout_s
        self._connections: dict[Address, BrokerConnection] = {}
        self._known: list[Address] = []
        self._min_isrs: dict[str, int] = {}
        self._min_isrs_ms = 0
        self._journal_leader: Address | None = None
        self._journal_offset: int | None = None
        self._has_read = False

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()

    # -- reading the state

    async def read_snapshot(self) -> Snapshot:
        """Returns the current snapshot. Raises Unreachable."""
        metadata = await self._metadata()
        brokers = {
            broker.node_id: BrokerState(broker.node_id, broker.host, broker.port, broker.rack)
            for broker in metadata.brokers
        }
        self._known = [(broker.host, broker.port) for broker in brokers.values()]
        partitions = self._partitions(metadata)
        journal = next((topic for topic in metadata.topics if _is_journal(topic)), None)
        self._find_journal(journal, brokers)
        await self._update_min_isrs({key.topic for key in partitions})
        controller, details = await asyncio.gather(
            self._controller(metadata.controller_id), self._details(brokers, partitions)
        )
        for broker_id, problem in details.problems.items():
            brokers[broker_id] = brokers[broker_id]._replace(problem=problem)
        self._has_read = True
        return Snapshot(
            time_ms=self._clock_ms(),
            cluster_id=metadata.cluster_id,
            controller=controller,
            brokers=brokers,
            partitions={
                key: replace(
                    state,
                    min_isr=self._min_isrs.get(key.topic),
                    silent=tuple(replica for replica in state.replicas if replica in details.problems),
                    details=details.of(key),
                )
                for key, state in partitions.items()
            },
            has_journal=journal is not None and not journal.error_code,
        )

    async def _metadata(self) -> MetadataResponse:
        topics = None
        if self._topic is not None:
            names = dict.fromkeys((self._topic, EVENTS_TOPIC))
            topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        return await self._call_any(request, MetadataResponse)

    def _partitions(self, metadata: MetadataResponse) -> dict[Key, PartitionState]:
        found = {}
        for topic in metadata.topics:
            name = topic.name
            if name is None or topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                continue
            if self._topic is not None and name != self._topic:
                continue
            for row in topic.partitions:
                found[Key(name, row.partition_index)] = PartitionState(
                    topic=name,
                    partition=row.partition_index,
                    leader=row.leader_id,
                    leader_epoch=row.leader_epoch,
                    replicas=tuple(row.replica_nodes),
                    isr=tuple(row.isr_nodes),
                    topic_id=bytes(topic.topic_id),
                    offline_replicas=tuple(row.offline_replicas),
                )
        return found

    async def _controller(self, named_id: int) -> int:
        """Returns the leader of the metadata quorum; for a cluster without a quorum, the controller in the metadata."""
        partition = DescribeQuorumRequest.PartitionData(partition_index=0)
        topic = DescribeQuorumRequest.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])
        request = DescribeQuorumRequest(topics=[topic])
        try:
            answer = await self._call_any(request, DescribeQuorumResponse, timeout_s=_QUORUM_TIMEOUT_S)
        except Unreachable:
            # Brokers forward the request to the active controller: without one, it gets no response.
            return (
                NO_NODE if any(each.knows(DescribeQuorumRequest) for each in self._connections.values()) else named_id
            )
        leaders = [row.leader_id for found in answer.topics for row in found.partitions if not row.error_code]
        return leaders[0] if leaders else NO_NODE

    async def _update_min_isrs(self, topics: set[str]) -> None:
        now_ms = self._clock_ms()
        is_old = now_ms - self._min_isrs_ms > _MIN_ISR_AGE_MS_MAX
        wanted = sorted(topics if is_old else topics - self._min_isrs.keys())
        if not wanted:
            return
        resource = DescribeConfigsRequest.DescribeConfigsResource
        resources = [
            resource(resource_type=_TOPIC_RESOURCE, resource_name=topic, configuration_keys=[_MIN_ISR])
            for topic in wanted
        ]
        try:
            answer = await self._call_any(DescribeConfigsRequest(resources=resources), DescribeConfigsResponse)
        except Unreachable:
            return  # Without the permission to ask, min ISR remains unknown.
        if is_old:
            self._min_isrs_ms = now_ms
        for result in answer.results:
            for config in result.configs:
                if config.name == _MIN_ISR and config.value is not None:
                    self._min_isrs[result.resource_name] = int(config.value)

    # -- the replicas of each broker

    async def _details(self, brokers: dict[int, BrokerState], partitions: dict[Key, PartitionState]) -> _Details:
        details = _Details()
        await asyncio.gather(
            *(
                self._read_replicas(
                    broker, [key for key, state in partitions.items() if broker.broker_id in state.replicas], details
                )
                for broker in brokers.values()
            )
        )
        return details

    async def _read_replicas(self, broker: BrokerState, keys: list[Key], details: _Details) -> None:
        by_topic: dict[str, list[int]] = {}
        for key in keys:
            by_topic.setdefault(key.topic, []).append(key.partition)
        connection = self._connection((broker.host, broker.port))
        try:
            # A broker without a replica is asked too: that shows whether it answers.
            sizes = await connection.call(_log_dirs_request(by_topic), DescribeLogDirsResponse)
            details.take_sizes(broker.broker_id, sizes)
            if by_topic:
                ends = await connection.call(_ends_request(by_topic), ListOffsetsResponse)
                details.take_ends(broker.broker_id, ends)
        except NoAnswer as error:
            details.problems[broker.broker_id] = str(error)

    # -- the journal

    def _find_journal(
        self, topic: MetadataResponse.MetadataResponseTopic | None, brokers: dict[int, BrokerState]
    ) -> None:
        leader = topic.partitions[0].leader_id if topic is not None and topic.partitions else NO_NODE
        broker = brokers.get(leader)
        self._journal_leader = None if broker is None else (broker.host, broker.port)
        if topic is None and self._journal_offset is None and not self._has_read:
            self._journal_offset = _FROM_THE_BEGINNING

    async def new_events(self) -> list[Event]:
        """Returns the events since the last call, or since the first snapshot; none if the journal cannot be read."""
        if self._journal_leader is None:
            return []
        connection = self._connection(self._journal_leader)
        events: list[Event] = []
        try:
            if self._journal_offset is None:
                self._journal_offset = await self._journal_end(connection)
            while self._journal_offset is not None:
                data = await self._fetch(connection, self._journal_offset)
                before = self._journal_offset
                events += self._take(data)
                if self._journal_offset == before:
                    break
        except (NoAnswer, RecordsRejected, DecodeError):
            pass
        return events

    async def _journal_end(self, connection: BrokerConnection) -> int | None:
        answer = await connection.call(_ends_request({EVENTS_TOPIC: [0]}, replica_id=-1), ListOffsetsResponse)
        return next((row.offset for topic in answer.topics for row in topic.partitions if not row.error_code), None)

    async def _fetch(self, connection: BrokerConnection, offset: int) -> bytes:
        partition = FetchRequest.FetchPartition(
            partition=0, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES_MAX, current_leader_epoch=-1
        )
        topic = FetchRequest.FetchTopic(topic=EVENTS_TOPIC, partitions=[partition])
        request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=_FETCH_BYTES_MAX, topics=[topic])
        answer = await connection.call(request, FetchResponse, version_max=_FETCH_BY_NAME)
        for found in answer.responses:
            for row in found.partitions:
                if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    self._journal_offset = (
                        None  # The journal was created again, or this process was suspended for too long.
                    )
                return bytes(row.records or b"")
        return b""

    def _take(self, data: bytes) -> Iterable[Event]:
        offset = self._journal_offset
        if offset is None:
            return
        for position, header in iter_headers(data):
            if header.next_offset <= offset or header.is_control:
                continue
            for record in decode_batch(data, position):
                event = _event(record.value) if record.offset >= offset else None
                if event is not None:
                    yield event
            self._journal_offset = offset = header.next_offset

    # -- connections

    async def _call_any(self, request: Message, response: type[M], *, timeout_s: float | None = None) -> M:
        """Sends a request to the broker that answered last, or to any other broker if it does not answer. Raises
        Unreachable.
        """
        reasons = []
        for address in dict.fromkeys((*self._connections, *self._known, *self._bootstrap)):
            connection = self._connection(address)
            try:
                answer = await connection.call(request, response, timeout_s=timeout_s)
            except NoAnswer as error:
                reasons.append(f"{address[0]}:{address[1]}: {error}")
                # This address becomes the last in the order.
                self._connections[address] = self._connections.pop(address)
                continue
            return answer
        raise Unreachable("; ".join(reasons))

    def _connection(self, address: Address) -> BrokerConnection:
        found = self._connections.get(address)
        if found is None:
            found = self._connections[address] = BrokerConnection(
                address, self._security, client_id="barnabas-monitor", timeout_s=self._timeout_s
            )
        return found


class _Details:
    """The log end offsets and sizes of replicas, collected from the brokers."""

    def __init__(self) -> None:
        self.problems: dict[int, str] = {}
        self._found: dict[Key, dict[int, ReplicaDetail]] = {}

    def of(self, key: Key) -> dict[int, ReplicaDetail]:
        return self._found.get(key, {})

    def take_sizes(self, broker_id: int, answer: DescribeLogDirsResponse) -> None:
        for directory in answer.results:
            for topic in directory.topics:
                for row in topic.partitions:
                    if not row.is_future_key:
                        detail = ReplicaDetail(
                            None, row.partition_size, row.offset_lag if row.offset_lag >= 0 else None
                        )
                        self._found.setdefault(Key(topic.name, row.partition_index), {})[broker_id] = detail

    def take_ends(self, broker_id: int, answer: ListOffsetsResponse) -> None:
        for topic in answer.topics:
            for row in topic.partitions:
                if not row.error_code and row.offset >= 0:
                    replicas = self._found.setdefault(Key(topic.name, row.partition_index), {})
                    detail = replicas.get(broker_id, ReplicaDetail())
                    replicas[broker_id] = detail._replace(log_end_offset=row.offset)


def _is_journal(topic: MetadataResponse.MetadataResponseTopic) -> bool:
    """Whether this topic is the cluster's journal and exists: a topic that is requested by name is listed as unknown if
    it does not exist.
    """
    return topic.name == EVENTS_TOPIC and topic.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _log_dirs_request(by_topic: dict[str, list[int]]) -> DescribeLogDirsRequest:
    topic = DescribeLogDirsRequest.DescribableLogDirTopic
    return DescribeLogDirsRequest(
        topics=[topic(topic=name, partitions=partitions) for name, partitions in by_topic.items()]
    )


def _ends_request(by_topic: dict[str, list[int]], *, replica_id: int = _DEBUGGING_REPLICA) -> ListOffsetsRequest:
    topic, partition = ListOffsetsRequest.ListOffsetsTopic, ListOffsetsRequest.ListOffsetsPartition
    return ListOffsetsRequest(
        replica_id=replica_id,
        topics=[
            topic(name=name, partitions=[partition(partition_index=index, timestamp=_LATEST) for index in indexes])
            for name, indexes in by_topic.items()
        ],
    )


def _event(value: bytes | None) -> Event | None:
    """Returns the event of a record; None if the record is not an event, or of a later schema."""
    try:
        event = json.loads(value or b"")
    except ValueError:
        return None
    return event if isinstance(event, dict) and {"id", "kind", "time_ms", "text"} <= event.keys() else None
