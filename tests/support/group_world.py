"""A group coordinator on virtual time over a log in memory, and clients that send it request messages.

Every answer is encoded in the version of its request, so that a field which a version cannot carry fails the test.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tests.support.memory_topics import MemoryTopics

from barnabas.common.errors import ErrorCode, RequestFailed, StorageFault
from barnabas.common.host import Buffer
from barnabas.common.types import GROUP_METADATA_TOPIC, TopicPartition
from barnabas.coordinators.groups.classic.group import ClassicGroup
from barnabas.coordinators.groups.consumer.consumer_config import ConsumerConfig
from barnabas.coordinators.groups.coordinator import GroupCoordinator
from barnabas.coordinators.groups.group_config import GroupConfig
from barnabas.coordinators.groups.group_records import CommittedOffset
from barnabas.coordinators.groups.shard import ConsumerPorts
from barnabas.coordinators.runtime import ShardState
from barnabas.protocol import codec
from barnabas.protocol.message import Message
from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from barnabas.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from barnabas.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from barnabas.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from barnabas.records.batch import decode_batch, iter_headers
from barnabas.records.record import Record
from barnabas.simulation.host import MemoryHost

R = TypeVar("R", bound=Message)
TOPICS = {"orders": 6, "bills": 3}


class MemoryPartitions:
    """Partitions as one growing byte string each. Appends are committed immediately, held back, or refused."""

    def __init__(self) -> None:
        self.logs: dict[TopicPartition, bytearray] = {}
        self.next_offset: dict[TopicPartition, int] = {}
        self.committed: dict[TopicPartition, int] = {}
        self.log_start: dict[TopicPartition, int] = {}
        self.holding = False
        #: Whether no other broker can lead.
        self.followed = True
        self.refuse_with: ErrorCode | None = None
        self.reads = 0
        #: The error of all reads.
        self.unreadable: RequestFailed | StorageFault | None = None
        self.bytes_max = 1_048_588
        self._held: deque[tuple[TopicPartition, int, Callable[[ErrorCode, int], None]]] = deque()

    def append(self, partition: TopicPartition, batch: bytearray, done: Callable[[ErrorCode, int], None]) -> None:
        refused = ErrorCode.MESSAGE_TOO_LARGE if len(batch) > self.bytes_max else self.refuse_with
        if refused is not None:
            done(refused, -1)
            return
        base_offset = self.next_offset.get(partition, 0)
        struct.pack_into(">q", batch, 0, base_offset)
        self.logs.setdefault(partition, bytearray()).extend(batch)
        last_offset_delta: int = struct.unpack_from(">i", batch, 23)[0]
        self.next_offset[partition] = base_offset + last_offset_delta + 1
        self._held.append((partition, self.next_offset[partition], lambda code, _: done(code, base_offset)))
        if not self.holding:
            self.commit()

    def is_followed(self, partition: TopicPartition) -> bool:
        return self.followed

    def batch_bytes_max(self, partition: TopicPartition) -> int:
        return self.bytes_max

    def commit(self, count: int | None = None) -> None:
        """Advances the HW past the first `count` appends that are held back, or past all."""
        left = len(self._held) if count is None else count
        while self._held and left:
            left -= 1
            partition, end, done = self._held.popleft()
            self.committed[partition] = end
            done(ErrorCode.NONE, 0)

    def fail_held(self, code: ErrorCode) -> None:
        """Fails the appends that are held back, though they stay in the log, as after a lost leadership."""
        while self._held:
            self._held.popleft()[2](code, -1)

    def lose_uncommitted(self) -> None:
        """Removes the records above the HW, as if the next leader never had them."""
        for partition, log in self.logs.items():
            end = self.committed.get(partition, 0)
            places = [place for place, header in iter_headers(memoryview(bytes(log))) if header.base_offset >= end]
            if places:
                del log[places[0] :]
            self.next_offset[partition] = end

    def keep_uncommitted(self) -> None:
        """Commits everything, as if the next leader had every record."""
        self.committed.update(self.next_offset)

    def install(self, partition: TopicPartition, log: bytes) -> None:
        """Installs a log as it would be found on disk."""
        self.logs[partition] = bytearray(log)
        for _, header in iter_headers(memoryview(log)):
            self.next_offset[partition] = self.committed[partition] = header.next_offset

    def read(
        self, partition: TopicPartition, offset: int, max_bytes: int, done: Callable[[Buffer | Exception], None]
    ) -> None:
        try:
            if self.unreadable is not None:
                raise self.unreadable
            read = self._read(partition, offset, max_bytes)
        except (RequestFailed, StorageFault) as failure:
            done(failure)
        else:
            done(read)

    def _read(self, partition: TopicPartition, offset: int, max_bytes: int) -> bytes:
        self.reads += 1
        view = memoryview(bytes(self.logs.get(partition, b"")))
        out = bytearray()
        for place, header in iter_headers(view):
            if header.last_offset < offset:
                continue
            if out and len(out) + header.size_bytes > max_bytes:
                break
            out += view[place : place + header.size_bytes]
        if not out and offset < self.log_start_offset(partition):
            raise RequestFailed(ErrorCode.OFFSET_OUT_OF_RANGE)
        return bytes(out)

    def next_segment(self, partition: TopicPartition, offset: int) -> int | None:
        return None

    def log_start_offset(self, partition: TopicPartition) -> int:
        return self.log_start.get(partition, 0)

    def log_end_offset(self, partition: TopicPartition) -> int:
        return self.next_offset.get(partition, 0)

    def high_watermark(self, partition: TopicPartition) -> int:
        return self.committed.get(partition, 0)

    def records(self, partition: TopicPartition) -> list[Record]:
        view = memoryview(bytes(self.logs.get(partition, b"")))
        return [
            record
            for place, header in iter_headers(view)
            for record in decode_batch(view[place : place + header.size_bytes])
        ]


class Answer(Generic[R]):
    """The answer to a request, if it has arrived."""

    def __init__(self, version: int) -> None:
        self._version = version
        self._response: R | None = None

    def __call__(self, response: R) -> None:
        assert self._response is None, "answered twice"
        codec.encode(response, self._version)
        self._response = response

    @property
    def is_parked(self) -> bool:
        return self._response is None

    @property
    def response(self) -> R:
        assert self._response is not None, "not answered yet"
        return self._response

    @property
    def error(self) -> ErrorCode:
        response: Any = self.response
        return ErrorCode(response.error_code)


@dataclass(frozen=True)
class Context:
    api_version: int
    client_id: str | None = "client"
    client_host: str = "/127.0.0.1"


def subscription(*topics: str) -> bytes:
    """Returns consumer protocol metadata, version 0."""
    out = struct.pack(">hi", 0, len(topics))
    for topic in topics:
        out += struct.pack(">h", len(topic)) + topic.encode()
    return out + struct.pack(">i", -1)


def assignment(*places: tuple[str, int], user_data: bytes | None = None) -> bytes:
    """Returns an assignment of the consumer protocol, version 0."""
    by_topic: dict[str, list[int]] = {}
    for name, partition in places:
        by_topic.setdefault(name, []).append(partition)
    out = struct.pack(">hi", 0, len(by_topic))
    for name, partitions in by_topic.items():
        out += (
            struct.pack(">h", len(name))
            + name.encode()
            + struct.pack(f">i{len(partitions)}i", len(partitions), *partitions)
        )
    return out + (struct.pack(">i", -1) if user_data is None else struct.pack(">i", len(user_data)) + user_data)


RANGE: Mapping[str, bytes] = {"range": subscription("orders")}


class GroupWorld:
    """The coordinator, its log, and the requests of clients."""

    def __init__(
        self,
        config: GroupConfig | None = None,
        *,
        partitions: int = 1,
        log: MemoryPartitions | None = None,
        host: MemoryHost | None = None,
        lead: bool = True,
        consumer_config: ConsumerConfig | None = None,
        topics: MemoryTopics | None = None,
        overrides: dict[tuple[str, str], str] | None = None,
    ) -> None:
        self.host = host or MemoryHost(seed=7)
        self.log = log or MemoryPartitions()
        self.config = config or GroupConfig()
        self.consumer_config = consumer_config or ConsumerConfig()
        self.topic_view = topics or MemoryTopics(dict(TOPICS))
        self.topics = self.topic_view.counts
        #: Dynamic settings of groups by (group id, key), as IncrementalAlterConfigs of a group would set them.
        self.overrides = {} if overrides is None else overrides
        self.coordinator = GroupCoordinator(
            self.host,
            self.config,
            ConsumerPorts(self.consumer_config, self.topic_view, lambda group, key: self.overrides.get((group, key))),
            self.log,
            self.log,
            partition_count=lambda: partitions,
            partition_exists=lambda topic, index: 0 <= index < self.topics.get(topic, 0),
        )
        if lead:
            for partition in range(partitions):
                self.coordinator.on_partition_leader(partition, 0)
            self.pass_ms(0)

    def pass_ms(self, duration_ms: int) -> None:
        self.host.time.run_for(duration_ms)

    def until_active(self, step_ms: int) -> None:
        """Runs until the first partition is loaded, checking every `step_ms`."""
        for _ in range(500):
            shard = self.coordinator.shard(0)
            if shard is not None and shard.state is ShardState.ACTIVE:
                return
            self.pass_ms(step_ms)
        raise AssertionError("it loads forever")

    def restart(self) -> GroupWorld:
        """Returns a world in which another broker takes over with the same log, at the same time."""
        self.coordinator.shutdown()
        return GroupWorld(
            self.config,
            log=self.log,
            host=self.host,
            consumer_config=self.consumer_config,
            topics=self.topic_view,
            overrides=self.overrides,
        )

    # -- state

    def partition(self, index: int = 0) -> TopicPartition:
        return TopicPartition(GROUP_METADATA_TOPIC, index)

    def group(self, group_id: str) -> ClassicGroup:
        found = self.find(group_id)
        assert found is not None, f"no group {group_id}"
        return found

    def find(self, group_id: str) -> ClassicGroup | None:
        shard = self.coordinator.shard(self.coordinator.partition_for(group_id))
        assert shard is not None
        return shard.find(group_id)

    def offsets(self, group_id: str) -> Mapping[tuple[str, int], CommittedOffset]:
        shard = self.coordinator.shard(self.coordinator.partition_for(group_id))
        assert shard is not None
        return shard.offsets.of(group_id)

    # -- members

    def join(
        self,
        group_id: str = "g",
        member_id: str = "",
        *,
        instance_id: str | None = None,
        protocols: Mapping[str, bytes] = RANGE,
        protocol_type: str = "consumer",
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
        version: int = 9,
        client_id: str | None = "client",
    ) -> Answer[JoinGroupResponse]:
        request = JoinGroupRequest(
            group_id=group_id,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocols=[
                JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=metadata)
                for name, metadata in protocols.items()
            ],
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms if version >= 1 else -1,
        )
        answer: Answer[JoinGroupResponse] = Answer(version)
        self.coordinator.join_group(Context(version, client_id), request, answer)
        return answer

    def enter(self, group_id: str = "g", **more: Any) -> Answer[JoinGroupResponse]:
        """Joins as a new dynamic member: takes the assigned id and joins again with it."""
        first = self.join(group_id, **more)
        assert first.error is ErrorCode.MEMBER_ID_REQUIRED
        return self.join(group_id, first.response.member_id, **more)

    def sync(
        self,
        group_id: str,
        generation: int,
        member_id: str,
        assignments: Mapping[str, bytes] | None = None,
        *,
        instance_id: str | None = None,
        protocol_type: str | None = "consumer",
        protocol_name: str | None = "range",
        version: int = 5,
    ) -> Answer[SyncGroupResponse]:
        request = SyncGroupRequest(
            group_id=group_id,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type if version >= 5 else None,
            protocol_name=protocol_name if version >= 5 else None,
            assignments=[
                SyncGroupRequest.SyncGroupRequestAssignment(member_id=name, assignment=assignment)
                for name, assignment in (assignments or {}).items()
            ],
        )
        answer: Answer[SyncGroupResponse] = Answer(version)
        self.coordinator.sync_group(Context(version), request, answer)
        return answer

    def heartbeat(
        self, group_id: str, generation: int, member_id: str, *, instance_id: str | None = None, version: int = 4
    ) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=group_id, generation_id=generation, member_id=member_id, group_instance_id=instance_id
        )
        answer: Answer[HeartbeatResponse] = Answer(version)
        self.coordinator.heartbeat(Context(version), request, answer)
        return answer.error

    def leave(
        self, group_id: str, *members: tuple[str, str | None], version: int = 5
    ) -> tuple[ErrorCode, list[ErrorCode]]:
        """Returns the error of the request, and that of each member."""
        if version >= 3:
            request = LeaveGroupRequest(
                group_id=group_id,
                members=[
                    LeaveGroupRequest.MemberIdentity(member_id=member_id, group_instance_id=instance_id)
                    for member_id, instance_id in members
                ],
            )
        else:
            request = LeaveGroupRequest(group_id=group_id, member_id=members[0][0])
        answer: Answer[LeaveGroupResponse] = Answer(version)
        self.coordinator.leave_group(Context(version), request, answer)
        return answer.error, [ErrorCode(member.error_code) for member in answer.response.members]

    def stable(self, group_id: str = "g", count: int = 1, **more: Any) -> list[str]:
        """Creates a stable group of `count` dynamic members; the first is the leader."""
        joins = [self.enter(group_id, **more) for _ in range(count)]
        self.pass_ms(2 * self.config.initial_rebalance_delay_ms)
        members = [join.response.member_id for join in joins]
        assert {join.error for join in joins} == {ErrorCode.NONE}
        self.sync_all(group_id, joins[0].response.generation_id, members)
        return members

    def sync_all(self, group_id: str, generation: int, members: Sequence[str]) -> None:
        """Sends SyncGroup of all members, the leader's last; each member is assigned its own id."""
        leader = self.group(group_id).leader_id
        name = self.group(group_id).protocol_name
        syncs = [self.sync(group_id, generation, member, protocol_name=name) for member in members if member != leader]
        assert leader is not None
        given = {member: f"part of {member}".encode() for member in members}
        syncs.append(self.sync(group_id, generation, leader, given, protocol_name=name))
        self.pass_ms(0)  # a large group is answered in several turns
        assert {sync.error for sync in syncs} == {ErrorCode.NONE}

    # -- offsets

    def commit(
        self,
        group_id: str,
        offsets: Mapping[tuple[str, int], int],
        *,
        generation: int = -1,
        member_id: str = "",
        instance_id: str | None = None,
        metadata: str | None = "",
        leader_epoch: int = -1,
        retention_ms: int = -1,
        version: int = 9,
    ) -> Answer[OffsetCommitResponse]:
        request = OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            retention_time_ms=retention_ms,
            topics=[
                OffsetCommitRequest.OffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        OffsetCommitRequest.OffsetCommitRequestPartition(
                            partition_index=partition,
                            committed_offset=offset,
                            committed_leader_epoch=leader_epoch,
                            committed_metadata=metadata,
                        )
                    ],
                )
                for (topic, partition), offset in offsets.items()
            ],
        )
        answer: Answer[OffsetCommitResponse] = Answer(version)
        self.coordinator.commit_offsets(Context(version), request, answer)
        return answer

    def fetch(
        self,
        group_ids: str | Sequence[str],
        topics: Mapping[str, Sequence[int]] | None = None,
        *,
        require_stable: bool = False,
        version: int = 9,
    ) -> Answer[OffsetFetchResponse]:
        """Requests offsets: all of them if no topics are named."""
        request = OffsetFetchRequest(require_stable=require_stable)
        names = [group_ids] if isinstance(group_ids, str) else list(group_ids)
        if version >= 8:
            requested = None
            if topics is not None:
                requested = [
                    OffsetFetchRequest.OffsetFetchRequestTopics(name=name, partition_indexes=list(indexes))
                    for name, indexes in topics.items()
                ]
            request.groups = [
                OffsetFetchRequest.OffsetFetchRequestGroup(group_id=name, topics=requested) for name in names
            ]
        else:
            request.group_id = names[0]
            request.topics = None
            if topics is not None:
                request.topics = [
                    OffsetFetchRequest.OffsetFetchRequestTopic(name=name, partition_indexes=list(indexes))
                    for name, indexes in topics.items()
                ]
        answer: Answer[OffsetFetchResponse] = Answer(version)
        self.coordinator.fetch_offsets(Context(version), request, answer)
        return answer

    def delete_offsets(self, group_id: str, partitions: Sequence[tuple[str, int]]) -> Answer[OffsetDeleteResponse]:
        request = OffsetDeleteRequest(
            group_id=group_id,
            topics=[
                OffsetDeleteRequest.OffsetDeleteRequestTopic(
                    name=topic,
                    partitions=[OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=index)],
                )
                for topic, index in partitions
            ],
        )
        answer: Answer[OffsetDeleteResponse] = Answer(0)
        self.coordinator.delete_offsets(Context(0), request, answer)
        return answer

    # -- administration

    def list(
        self, states: Sequence[str] = (), types: Sequence[str] = (), *, version: int = 5
    ) -> Answer[ListGroupsResponse]:
        request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
        answer: Answer[ListGroupsResponse] = Answer(version)
        self.coordinator.list_groups(Context(version), request, answer)
        return answer

    def describe(self, group_id: str, *, version: int = 6) -> DescribeGroupsResponse.DescribedGroup:
        answer: Answer[DescribeGroupsResponse] = Answer(version)
        self.coordinator.describe_groups(Context(version), DescribeGroupsRequest(groups=[group_id]), answer)
        return answer.response.groups[0]

    def delete(self, *group_ids: str, version: int = 2) -> Answer[DeleteGroupsResponse]:
        answer: Answer[DeleteGroupsResponse] = Answer(version)
        self.coordinator.delete_groups(Context(version), DeleteGroupsRequest(groups_names=list(group_ids)), answer)
        return answer


def commit_errors(answer: Answer[OffsetCommitResponse]) -> dict[tuple[str, int], ErrorCode]:
    return {
        (topic.name, partition.partition_index): ErrorCode(partition.error_code)
        for topic in answer.response.topics
        for partition in topic.partitions
    }


def fetched(answer: Answer[OffsetFetchResponse]) -> dict[tuple[str, int], int]:
    """Returns the offsets of the first group."""
    response = answer.response
    topics: Sequence[Any] = response.groups[0].topics if response.groups else response.topics
    return {(t.name, p.partition_index): p.committed_offset for t in topics for p in t.partitions}


def delete_errors(answer: Answer[DeleteGroupsResponse]) -> dict[str, ErrorCode]:
    return {result.group_id: ErrorCode(result.error_code) for result in answer.response.results}
