"""The answers of a phantom cluster's brokers, from its state: metadata, offsets, sizes and configurations."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from barnabas.common.errors import ErrorCode
from barnabas.common.types import EVENTS_TOPIC
from barnabas.protocol.codec import encode
from barnabas.protocol.message import Message
from barnabas.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from barnabas.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from barnabas.protocol.messages.consumer_protocol import ConsumerProtocolAssignment
from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest
from barnabas.protocol.messages.delete_records import DeleteRecordsRequest
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest
from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from barnabas.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from barnabas.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from barnabas.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from barnabas.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from barnabas.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from barnabas.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from barnabas.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from barnabas.testing.phantom_moves import PhantomMoves, directory
from barnabas.testing.phantom_state import PhantomPartition, PhantomState, PhantomTopic
from barnabas.testing.phantom_topics import PhantomTopics

CLUSTER_ID: Final = "phantom"
#: Bytes that each record occupies.
RECORD_BYTES: Final = 100
_PAGE_MAX: Final = 2_000
_EARLIEST: Final = -2
_JOURNAL_ID: Final = b"\xff" * 16

Addresses = Mapping[int, tuple[str, int]]


class PhantomAnswers:
    """Answers of one broker. `journal_end` is the end offset of the journal; -1 if the cluster has none."""

    def __init__(self, state: PhantomState, broker: int, addresses: Addresses, journal_end: Callable[[], int]) -> None:
        self._state = state
        self._broker = broker
        self._addresses = addresses
        self._journal_end = journal_end
        moves, topics = PhantomMoves(state), PhantomTopics(state)
        self._by_request: dict[type[Message], Callable[[Any], Message]] = {
            MetadataRequest: self._metadata,
            DescribeTopicPartitionsRequest: self._page,
            DescribeClusterRequest: self._cluster,
            DescribeQuorumRequest: self._quorum,
            DescribeConfigsRequest: topics.configs,
            ListOffsetsRequest: self._offsets,
            DescribeLogDirsRequest: self._log_dirs,
            ListGroupsRequest: self._groups,
            OffsetFetchRequest: self._committed,
            DescribeGroupsRequest: self._members,
            ListPartitionReassignmentsRequest: moves.list_reassignments,
            AlterPartitionReassignmentsRequest: moves.alter_reassignments,
            AlterReplicaLogDirsRequest: lambda request: moves.alter_directories(broker, request),
            IncrementalAlterConfigsRequest: topics.alter_configs,
            DeleteTopicsRequest: topics.delete,
            CreatePartitionsRequest: topics.add_partitions,
            DeleteRecordsRequest: lambda request: topics.delete_records(broker, request),
        }

    def answer(self, request: Message) -> Message:
        return self._by_request[type(request)](request)

    def supports(self, request: type[Message]) -> bool:
        return request in self._by_request

    def _metadata(self, request: MetadataRequest) -> MetadataResponse:
        state = self._state
        broker = MetadataResponse.MetadataResponseBroker
        names = self._all_names() if request.topics is None else [each.name or "" for each in request.topics]
        topics = [self._topic(name, is_named=request.topics is not None) for name in names]
        return MetadataResponse(
            brokers=[
                broker(node_id=each, host=self._addresses[each][0], port=self._addresses[each][1])
                for each in state.alive
            ],
            cluster_id=CLUSTER_ID,
            controller_id=state.controller,
            topics=[topic for topic in topics if topic is not None],
        )

    def _topic(self, name: str, *, is_named: bool) -> MetadataResponse.MetadataResponseTopic | None:
        row = MetadataResponse.MetadataResponsePartition
        topic = self._known(name)
        if topic is None:
            if not is_named:
                return None
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return MetadataResponse.MetadataResponseTopic(error_code=code, name=name)
        return MetadataResponse.MetadataResponseTopic(
            name=name,
            topic_id=topic.topic_id,
            partitions=[
                row(
                    partition_index=index,
                    leader_id=each.leader,
                    leader_epoch=each.leader_epoch,
                    replica_nodes=each.replicas,
                    isr_nodes=each.isr,
                    offline_replicas=self._offline(each),
                )
                for index, each in enumerate(topic.partitions)
            ],
        )

    def _all_names(self) -> list[str]:
        names = self._state.names
        return sorted([EVENTS_TOPIC, *names]) if self._journal_end() >= 0 else names

    def _known(self, name: str) -> PhantomTopic | None:
        if name == EVENTS_TOPIC and self._journal_end() >= 0:
            alive = list(self._state.alive)
            leader = next(iter(alive), -1)
            return PhantomTopic(name, _JOURNAL_ID, [PhantomPartition(leader, 0, 0, list(self._state.is_up), alive)])
        return self._state.topics.get(name)

    def _offline(self, row: PhantomPartition) -> list[int]:
        return [broker for broker in row.replicas if not self._state.is_up[broker]]

    def _page(self, request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
        response = DescribeTopicPartitionsResponse()
        row = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition
        names = sorted({topic.name for topic in request.topics}) if request.topics else self._all_names()
        cursor = request.cursor
        start = 0 if cursor is None else bisect_left(names, cursor.topic_name)
        left = min(_PAGE_MAX, request.response_partition_limit)
        for name in names[start:]:
            topic = self._known(name)
            if topic is None:
                continue
            first = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
            if left == 0:
                response.next_cursor = DescribeTopicPartitionsResponse.Cursor(topic_name=name, partition_index=0)
                break
            rows = topic.partitions[first : first + left]
            partitions = [
                row(
                    partition_index=index,
                    leader_id=each.leader,
                    leader_epoch=each.leader_epoch,
                    replica_nodes=each.replicas,
                    isr_nodes=each.isr,
                    eligible_leader_replicas=[],
                    last_known_elr=[],
                    offline_replicas=self._offline(each),
                )
                for index, each in enumerate(rows, first)
            ]
            shown = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
            response.topics.append(shown(name=name, topic_id=topic.topic_id, partitions=partitions))
            left -= len(rows)
            if first + len(rows) < len(topic.partitions):
                response.next_cursor = DescribeTopicPartitionsResponse.Cursor(
                    topic_name=name, partition_index=first + len(rows)
                )
                break
        return response

    def _cluster(self, request: DescribeClusterRequest) -> DescribeClusterResponse:
        broker = DescribeClusterResponse.DescribeClusterBroker
        shown = self._state.is_up if request.include_fenced_brokers else self._state.alive
        return DescribeClusterResponse(
            cluster_id=CLUSTER_ID,
            controller_id=self._state.controller,
            brokers=[
                broker(
                    broker_id=each,
                    host=self._addresses[each][0],
                    port=self._addresses[each][1],
                    is_fenced=not self._state.is_up[each],
                )
                for each in shown
            ],
        )

    def _quorum(self, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
        row = DescribeQuorumResponse.PartitionData(partition_index=0, leader_id=self._state.controller)
        topic = DescribeQuorumResponse.TopicData(topic_name=request.topics[0].topic_name, partitions=[row])
        return DescribeQuorumResponse(topics=[topic])

    def _offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        shown, row = ListOffsetsResponse.ListOffsetsTopicResponse, ListOffsetsResponse.ListOffsetsPartitionResponse
        response = ListOffsetsResponse()
        for topic in request.topics:
            rows = []
            for each in topic.partitions:
                offset = self._offset(topic.name, each, request)
                code = ErrorCode.NONE if offset >= 0 else ErrorCode.NOT_LEADER_OR_FOLLOWER
                rows.append(row(partition_index=each.partition_index, error_code=code, offset=offset, leader_epoch=0))
            response.topics.append(shown(name=topic.name, partitions=rows))
        return response

    def _offset(self, name: str, asked: ListOffsetsRequest.ListOffsetsPartition, request: ListOffsetsRequest) -> int:
        if asked.timestamp != _EARLIEST:
            return self._end(name, asked.partition_index, request)
        topic = self._state.topics.get(name)
        if topic is None or asked.partition_index >= len(topic.partitions):
            return 0
        return topic.partitions[asked.partition_index].start_offset

    def _end(self, name: str, index: int, request: ListOffsetsRequest) -> int:
        if name == EVENTS_TOPIC:
            return self._journal_end()
        topic = self._state.topics.get(name)
        if topic is None or index >= len(topic.partitions):
            return -1
        partition = topic.partitions[index]
        is_here = self._broker in partition.replicas
        return (
            partition.end_offset if is_here and (request.replica_id == -2 or partition.leader == self._broker) else -1
        )

    def _log_dirs(self, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
        shown, row = DescribeLogDirsResponse.DescribeLogDirsTopic, DescribeLogDirsResponse.DescribeLogDirsPartition
        wanted = self._wanted(request)
        topics = []
        for name, indexes in wanted.items():
            topic = self._state.topics.get(name)
            if topic is None:
                continue
            rows = [
                row(partition_index=index, partition_size=topic.partitions[index].end_offset * RECORD_BYTES)
                for index in indexes
                if index < len(topic.partitions) and self._broker in topic.partitions[index].replicas
            ]
            topics.append(shown(name=name, partitions=rows))
        found = DescribeLogDirsResponse.DescribeLogDirsResult
        if self._state.directories == 1:
            return DescribeLogDirsResponse(results=[found(log_dir=directory(self._broker), topics=topics)])
        paths = [directory(self._broker, number) for number in range(self._state.directories)]
        return DescribeLogDirsResponse(
            results=[found(log_dir=each, topics=self._within(each, topics)) for each in paths]
        )

    def _within(
        self, path: str, topics: list[DescribeLogDirsResponse.DescribeLogDirsTopic]
    ) -> list[DescribeLogDirsResponse.DescribeLogDirsTopic]:
        """Returns the replicas in one directory, and the copies of those that move to it."""
        shown, row = DescribeLogDirsResponse.DescribeLogDirsTopic, DescribeLogDirsResponse.DescribeLogDirsPartition
        state, first = self._state, directory(self._broker)
        found = []
        for topic in topics:
            replicas = {
                each.partition_index: (topic.name, each.partition_index, self._broker) for each in topic.partitions
            }
            rows = [
                each for each in topic.partitions if state.places.get(replicas[each.partition_index], first) == path
            ]
            for index, replica in replicas.items():
                target, size = state.futures.get(replica, ("", 0))
                if target == path:
                    rows.append(row(partition_index=index, partition_size=size, is_future_key=True))
            if rows:
                found.append(shown(name=topic.name, partitions=rows))
        return found

    def _groups(self, request: ListGroupsRequest) -> ListGroupsResponse:
        group = ListGroupsResponse.ListedGroup
        names = self._state.groups if self._broker == next(iter(self._state.alive), -1) else ()
        return ListGroupsResponse(groups=[group(group_id=name, protocol_type="consumer") for name in names])

    def _committed(self, request: OffsetFetchRequest) -> OffsetFetchResponse:
        if request.groups:
            return OffsetFetchResponse(groups=[self._committed_of(group.group_id) for group in request.groups])
        topic, row = OffsetFetchResponse.OffsetFetchResponseTopic, OffsetFetchResponse.OffsetFetchResponsePartition
        offsets = self._state.groups.get(request.group_id, {})
        return OffsetFetchResponse(
            topics=[
                topic(name=name, partitions=[row(partition_index=index, committed_offset=offset)])
                for (name, index), offset in offsets.items()
            ]
        )

    def _committed_of(self, name: str) -> OffsetFetchResponse.OffsetFetchResponseGroup:
        topic, row = OffsetFetchResponse.OffsetFetchResponseTopics, OffsetFetchResponse.OffsetFetchResponsePartitions
        return OffsetFetchResponse.OffsetFetchResponseGroup(
            group_id=name,
            topics=[
                topic(name=each, partitions=[row(partition_index=index, committed_offset=offset)])
                for (each, index), offset in self._state.groups.get(name, {}).items()
            ],
        )

    def _members(self, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
        """Shows the members of groups; of a group without known ones, a member without partitions."""
        group = DescribeGroupsResponse.DescribedGroup
        found = {name: self._state.members.get(name, {"": []}) for name in request.groups}
        return DescribeGroupsResponse(
            groups=[
                group(group_id=name, members=[_member(each, keys) for each, keys in members.items()])
                for name, members in found.items()
            ]
        )

    def _wanted(self, request: DescribeLogDirsRequest) -> dict[str, list[int]]:
        if request.topics is None:
            return {name: list(range(len(topic.partitions))) for name, topic in self._state.topics.items()}
        return {topic.topic: topic.partitions for topic in request.topics}


def _member(name: str, keys: Sequence[tuple[str, int]]) -> DescribeGroupsResponse.DescribedGroupMember:
    by_topic: dict[str, list[int]] = {}
    for topic, index in keys:
        by_topic.setdefault(topic, []).append(index)
    row = ConsumerProtocolAssignment.TopicPartition
    body = ConsumerProtocolAssignment(
        assigned_partitions=[row(topic=topic, partitions=indexes) for topic, indexes in by_topic.items()]
    )
    version = ConsumerProtocolAssignment.VERSIONS[1]
    assignment = version.to_bytes(2, "big") + bytes(encode(body, version)) if keys else b""
    return DescribeGroupsResponse.DescribedGroupMember(
        member_id=name, client_id=name.partition("-")[0], client_host="/127.0.0.1", member_assignment=assignment
    )
