"""The group coordinator of one broker: finds the shard of a group and serves the group APIs.

A group is stored on partition `abs(hash(group id)) % partitions of __consumer_offsets`; the leader of that partition
coordinates it. Every method calls `reply` exactly once, during the call or later. An exception that a method raises is
a fault of this code, not of the request.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.common.host import Host
from barnabas.common.types import GROUP_METADATA_TOPIC, TopicPartition
from barnabas.coordinators.groups.administration import Administration
from barnabas.coordinators.groups.classic import replies
from barnabas.coordinators.groups.classic.group import HeldBytes
from barnabas.coordinators.groups.classic.joining import Join
from barnabas.coordinators.groups.classic.membership import Leaving
from barnabas.coordinators.groups.consumer.heartbeat import ConsumerHeartbeat
from barnabas.coordinators.groups.consumer.regex import Describable
from barnabas.coordinators.groups.departure import Departure
from barnabas.coordinators.groups.group_config import GroupConfig
from barnabas.coordinators.groups.offset_requests import OffsetRequests
from barnabas.coordinators.groups.shard import ConsumerPorts, GroupShard, Shared
from barnabas.coordinators.loading import Loads
from barnabas.coordinators.partitioning import partition_for
from barnabas.coordinators.runtime import PartitionReader, PartitionWriter
from barnabas.coordinators.steps import Turns
from barnabas.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from barnabas.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
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
from barnabas.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse

_PROTOCOL_NAMED_SINCE = 5
_PROTOCOL_NULLABLE_SINCE = 7


class GroupRequestContext(Protocol):
    """The properties of a request that the group coordinator uses, besides the message itself."""

    @property
    def api_version(self) -> int: ...
    @property
    def client_id(self) -> str | None: ...
    @property
    def client_host(self) -> str: ...


class GroupCoordinator:
    """The coordinator of all groups whose partitions this broker leads."""

    def __init__(
        self,
        host: Host,
        config: GroupConfig,
        consumer: ConsumerPorts,
        writer: PartitionWriter,
        reader: PartitionReader,
        *,
        partition_count: Callable[[], int],
        partition_exists: Callable[[str, int], bool],
    ) -> None:
        self._host = host
        self._config = config
        self._consumer = consumer
        self._writer = writer
        self._loads = Loads(host.timers, reader)
        self._turns = Turns(host.timers)
        self._partition_count = partition_count
        self._shards: dict[int, GroupShard] = {}
        #: The memory that members' metadata takes; members are refused above `held.bytes_max`.
        self.held = HeldBytes()
        self._active = True
        self._offsets = OffsetRequests(self._shard, partition_exists, host.timers)
        self._administration = Administration(self._shard, host.timers)

    @property
    def unreadable_records(self) -> int:
        """Returns the number of unreadable records that loads have skipped since startup."""
        return self._loads.skipped

    # -- life

    def on_partition_leader(self, partition: int, leader_epoch: int) -> None:
        """Loads a partition of `__consumer_offsets` that this broker leads; a partition that is loaded already only
        gets the new leader epoch."""
        shard = self._shards.get(partition)
        if shard is not None:
            shard.leader_epoch = leader_epoch
            return
        topic_partition = TopicPartition(GROUP_METADATA_TOPIC, partition)
        shard = GroupShard(
            self._host,
            self._config,
            self._consumer,
            self._writer,
            Shared(self._loads, self.held, self._turns),
            topic_partition,
            leader_epoch,
        )
        self._shards[partition] = shard
        shard.load()

    def on_partition_resigned(self, partition: int) -> None:
        shard = self._shards.pop(partition, None)
        if shard is not None:
            shard.close()

    def on_partitions_deleted(self, partitions: Sequence[TopicPartition]) -> None:
        """Deletes the offsets that are committed for deleted partitions."""
        deleted = frozenset((topic, index) for topic, index in partitions)
        for shard in self._serving():
            shard.removal.delete_partitions(deleted)

    def shutdown(self) -> None:
        self._active = False
        for partition in tuple(self._shards):
            self.on_partition_resigned(partition)

    def partition_for(self, group_id: str) -> int:
        return partition_for(group_id, self._partition_count())

    def shard(self, partition: int) -> GroupShard | None:
        """Returns the shard of a partition, for metrics and tests."""
        return self._shards.get(partition)

    def shards(self) -> tuple[GroupShard, ...]:
        """Returns all shards, for metrics."""
        return tuple(self._shards.values())

    def _serving(self) -> list[GroupShard]:
        shards = []
        for shard in tuple(self._shards.values()):
            try:
                shard.check_serving()
            except RequestFailed:
                continue
            shards.append(shard)
        return shards

    def _shard(self, group_id: str, *, may_be_empty: bool = False) -> GroupShard:
        """Returns the shard that serves this group. Raises RequestFailed if another broker coordinates it or the
        shard is not ready."""
        if not self._active:
            raise RequestFailed(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if not group_id and not may_be_empty:
            raise RequestFailed(ErrorCode.INVALID_GROUP_ID)
        shard = self._shards.get(self.partition_for(group_id))
        if shard is None:
            raise RequestFailed(ErrorCode.NOT_COORDINATOR)
        shard.check_serving()
        return shard

    # -- members of the consumer protocol

    def consumer_group_heartbeat(
        self,
        context: GroupRequestContext,
        request: ConsumerGroupHeartbeatRequest,
        reply: Callable[[ConsumerGroupHeartbeatResponse], None],
        describable: Describable | None = None,
    ) -> None:
        """Serves a heartbeat. `describable` limits the topics that a regular expression matches."""
        heartbeat = ConsumerHeartbeat(request, context.client_id or "", context.client_host, reply, describable)
        try:
            self._shard(request.group_id).consumers.heartbeat(context.api_version, heartbeat)
        except RequestFailed as failure:
            heartbeat.fail(failure)

    def consumer_group_describe(
        self, request: ConsumerGroupDescribeRequest, reply: Callable[[ConsumerGroupDescribeResponse], None]
    ) -> None:
        self._administration.describe_consumers(request, reply)

    # -- members of the classic protocol

    def join_group(
        self, context: GroupRequestContext, request: JoinGroupRequest, reply: Callable[[JoinGroupResponse], None]
    ) -> None:
        version = context.api_version

        def answer(response: JoinGroupResponse) -> None:
            if version < _PROTOCOL_NULLABLE_SINCE and response.protocol_name is None:
                response.protocol_name = ""
            reply(response)

        rebalance_ms = request.rebalance_timeout_ms if version >= 1 else request.session_timeout_ms
        join = Join(
            group_id=request.group_id,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            protocol_type=request.protocol_type,
            protocols={protocol.name: protocol.metadata for protocol in request.protocols},
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=rebalance_ms,
            client_id=context.client_id or "",
            client_host=context.client_host,
            api_version=version,
            reply=answer,
        )
        limits = self._config
        try:
            shard = self._shard(request.group_id)
            if not limits.session_timeout_min_ms <= request.session_timeout_ms <= limits.session_timeout_max_ms:
                raise RequestFailed(ErrorCode.INVALID_SESSION_TIMEOUT)
            if shard.consumers.has(join.group_id):
                shard.consumers.join(join, shard.joining.join)
            else:
                shard.joining.join(join)
        except RequestFailed as failure:
            join.fail(failure.code)

    def sync_group(
        self, context: GroupRequestContext, request: SyncGroupRequest, reply: Callable[[SyncGroupResponse], None]
    ) -> None:
        try:
            named = request.protocol_type is not None and request.protocol_name is not None
            if context.api_version >= _PROTOCOL_NAMED_SINCE and not named:
                raise RequestFailed(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            shard = self._shard(request.group_id)
            if shard.consumers.has(request.group_id):
                shard.consumers.sync(request, reply, lambda: shard.membership.sync(request, reply))
            else:
                shard.membership.sync(request, reply)
        except RequestFailed as failure:
            reply(replies.sync_failed(failure.code))

    def heartbeat(
        self, context: GroupRequestContext, request: HeartbeatRequest, reply: Callable[[HeartbeatResponse], None]
    ) -> None:
        """Serves Heartbeat of the classic protocol."""
        group_id, member_id = request.group_id, request.member_id
        generation, instance_id = request.generation_id, request.group_instance_id
        try:
            shard = self._shard(group_id)
            if shard.consumers.has(group_id):
                shard.consumers.classic_heartbeat(
                    group_id,
                    generation,
                    member_id,
                    instance_id,
                    lambda code: reply(HeartbeatResponse(error_code=code)),
                    lambda: shard.membership.heartbeat(group_id, generation, member_id, instance_id),
                )
                return
            code = shard.membership.heartbeat(group_id, generation, member_id, instance_id)
        except RequestFailed as failure:
            # Members count as alive while their group is loaded: all sessions restart after the load.
            loading = failure.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            code = ErrorCode.NONE if loading else failure.code
        reply(HeartbeatResponse(error_code=code))

    def leave_group(
        self, context: GroupRequestContext, request: LeaveGroupRequest, reply: Callable[[LeaveGroupResponse], None]
    ) -> None:
        """Serves LeaveGroup. Before version 3 a single member leaves, and its error is that of the request."""
        batched = context.api_version >= 3
        if batched:
            leaving = [Leaving(one.member_id, one.group_instance_id, one.reason) for one in request.members]
        else:
            leaving = [Leaving(request.member_id, None, None)]

        def answer(codes: Sequence[ErrorCode]) -> None:
            if not batched:
                reply(LeaveGroupResponse(error_code=codes[0]))
                return
            members = [
                LeaveGroupResponse.MemberResponse(
                    member_id=one.member_id, group_instance_id=one.instance_id, error_code=code
                )
                for one, code in zip(leaving, codes, strict=True)
            ]
            reply(LeaveGroupResponse(members=members))

        def fail(code: ErrorCode) -> None:
            if code is ErrorCode.UNKNOWN_MEMBER_ID:
                answer([code for _ in leaving])
            else:
                reply(LeaveGroupResponse(error_code=code))

        Departure(self._host.timers, self._shard, request.group_id, leaving, answer, fail).remove_part()

    # -- offsets

    def commit_offsets(
        self, context: GroupRequestContext, request: OffsetCommitRequest, reply: Callable[[OffsetCommitResponse], None]
    ) -> None:
        self._offsets.commit(context.api_version, request, reply)

    def fetch_offsets(
        self, context: GroupRequestContext, request: OffsetFetchRequest, reply: Callable[[OffsetFetchResponse], None]
    ) -> None:
        self._offsets.fetch(context.api_version, request, reply)

    def delete_offsets(
        self, context: GroupRequestContext, request: OffsetDeleteRequest, reply: Callable[[OffsetDeleteResponse], None]
    ) -> None:
        self._offsets.delete(request, reply)

    def commit_offsets_in_transaction(
        self,
        context: GroupRequestContext,
        request: TxnOffsetCommitRequest,
        reply: Callable[[TxnOffsetCommitResponse], None],
    ) -> None:
        """Serves TxnOffsetCommit; the group's partition is already part of the transaction."""
        self._offsets.commit_in_transaction(request, reply)

    def end_transaction(
        self, partition: int, producer_id: int, commit: bool, marker: bytearray, done: Callable[[ErrorCode], None]
    ) -> None:
        """Writes a transaction marker to a partition of `__consumer_offsets`, and applies it."""
        shard = self._shards.get(partition)
        try:
            if shard is None:
                raise RequestFailed(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            shard.check_serving()
        except RequestFailed:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)  # A transaction coordinator retries after this code.
        else:
            shard.offsets.end_transaction(producer_id, commit, marker, done)

    # -- administration

    def list_groups(
        self, context: GroupRequestContext, request: ListGroupsRequest, reply: Callable[[ListGroupsResponse], None]
    ) -> None:
        if self._active:
            self._administration.list_groups(request, tuple(self._shards.values()), reply)
        else:
            reply(ListGroupsResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE))

    def describe_groups(
        self,
        context: GroupRequestContext,
        request: DescribeGroupsRequest,
        reply: Callable[[DescribeGroupsResponse], None],
    ) -> None:
        self._administration.describe_groups(context.api_version, request, reply)

    def delete_groups(
        self, context: GroupRequestContext, request: DeleteGroupsRequest, reply: Callable[[DeleteGroupsResponse], None]
    ) -> None:
        self._administration.delete_groups(request, reply)
