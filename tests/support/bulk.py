"""Requests with thousands of rows, one of each API that takes many: the largest that a client can send."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from barnabas.protocol.message import Message
from barnabas.protocol.messages.alter_configs import AlterConfigsRequest
from barnabas.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from barnabas.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from barnabas.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest
from barnabas.protocol.messages.create_topics import CreateTopicsRequest
from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest
from barnabas.protocol.messages.delete_records import DeleteRecordsRequest
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest
from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest
from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest
from barnabas.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from barnabas.protocol.messages.describe_producers import DescribeProducersRequest
from barnabas.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from barnabas.protocol.messages.describe_transactions import DescribeTransactionsRequest
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest
from barnabas.protocol.messages.fetch import FetchRequest
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from barnabas.protocol.messages.list_config_resources import ListConfigResourcesRequest
from barnabas.protocol.messages.list_groups import ListGroupsRequest
from barnabas.protocol.messages.list_offsets import ListOffsetsRequest
from barnabas.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from barnabas.protocol.messages.list_transactions import ListTransactionsRequest
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest

TIMEOUT_MS = 60_000
TOPIC = 2


class Bulk(NamedTuple):
    name: str
    request: Message
    version: int


def create(names: Sequence[str], partitions: int) -> CreateTopicsRequest:
    new = CreateTopicsRequest.CreatableTopic
    return CreateTopicsRequest(
        topics=[new(name=name, num_partitions=partitions, replication_factor=1) for name in names],
        timeout_ms=TIMEOUT_MS,
    )


class Situation:
    """Topics of one partition, topics of ten, and one topic of many."""

    def __init__(self, *, small: int, middle: int, large: int, names: int = 20_000) -> None:
        self.names = [f"name-{number}" for number in range(names)]
        self.small = [f"small-{number:05}" for number in range(small)]
        self.middle = [f"middle-{number:05}" for number in range(middle)]
        self.large = large
        self.partitions = [("large", list(range(large)))]
        self.partitions += [(name, [0]) for name in self.small]
        self.partitions += [(name, list(range(10))) for name in self.middle]
        self.topics = ["large", *self.small, *self.middle]

    def creations(self) -> Iterator[Bulk]:
        yield Bulk("create topics", create(self.small, 1), 7)
        yield Bulk("create topics of 10 partitions", create(self.middle, 10), 7)
        yield Bulk("create topics again", create(self.small, 1), 7)
        yield Bulk("create one topic, named thousands of times", create(["same"] * len(self.names), 1), 7)

    def questions(self) -> Iterator[Bulk]:
        """Yields the requests that change nothing."""
        yield from self._of_partitions()
        yield from self._of_names()
        yield Bulk("metadata of all", MetadataRequest(topics=None), 12)
        yield Bulk("partitions of topics", DescribeTopicPartitionsRequest(response_partition_limit=2_000), 0)
        yield Bulk("log directories", DescribeLogDirsRequest(topics=None), 4)
        yield Bulk("reassignments", ListPartitionReassignmentsRequest(topics=None, timeout_ms=TIMEOUT_MS), 0)
        yield Bulk("groups", ListGroupsRequest(), 5)
        yield Bulk("transactions", ListTransactionsRequest(), 1)
        yield Bulk("resources with a configuration", ListConfigResourcesRequest(), 1)

    def _of_partitions(self) -> Iterator[Bulk]:
        offsets, epochs, producers = ListOffsetsRequest, OffsetForLeaderEpochRequest, DescribeProducersRequest
        for name, timestamp in (("latest offsets", -1), ("offsets by time", 5), ("offsets of the latest record", -3)):
            requested = [
                offsets.ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        offsets.ListOffsetsPartition(partition_index=index, timestamp=timestamp) for index in indexes
                    ],
                )
                for topic, indexes in self.partitions
            ]
            yield Bulk(name, ListOffsetsRequest(replica_id=-1, topics=requested), 7)
        in_epoch = [
            epochs.OffsetForLeaderTopic(
                topic=topic,
                partitions=[epochs.OffsetForLeaderPartition(partition=index, leader_epoch=0) for index in indexes],
            )
            for topic, indexes in self.partitions
        ]
        yield Bulk("ends of epochs", OffsetForLeaderEpochRequest(replica_id=-1, topics=in_epoch), 4)
        named = [producers.TopicRequest(name=topic, partition_indexes=indexes) for topic, indexes in self.partitions]
        yield Bulk("producers", DescribeProducersRequest(topics=named), 0)

    def _of_names(self) -> Iterator[Bulk]:
        many = self.names
        wanted = [MetadataRequest.MetadataRequestTopic(name=name) for name in [*self.topics, *many, *self.topics]]
        yield Bulk("metadata by name", MetadataRequest(topics=wanted, allow_auto_topic_creation=False), 12)
        yield Bulk("coordinators", FindCoordinatorRequest(key_type=0, coordinator_keys=many), 4)
        yield Bulk("classic groups by name", DescribeGroupsRequest(groups=many), 5)
        yield Bulk("consumer groups by name", ConsumerGroupDescribeRequest(group_ids=many), 1)
        yield Bulk("transactions by name", DescribeTransactionsRequest(transactional_ids=many), 0)
        resource = DescribeConfigsRequest.DescribeConfigsResource
        resources = [resource(resource_type=TOPIC, resource_name=name) for name in self.topics[:500]]
        yield Bulk(
            "configurations",
            DescribeConfigsRequest(resources=resources, include_synonyms=True, include_documentation=True),
            4,
        )

    def fetches(self) -> Iterator[Bulk]:
        entry = FetchRequest.FetchPartition
        topics = [
            FetchRequest.FetchTopic(
                topic=topic,
                partitions=[entry(partition=index, fetch_offset=0, partition_max_bytes=1 << 20) for index in indexes],
            )
            for topic, indexes in self.partitions
        ]
        for name, epoch in (("fetch without a session", -1), ("fetch that opens a session", 0)):
            request = FetchRequest(
                replica_id=-1, max_wait_ms=50, min_bytes=1, max_bytes=1 << 20, session_epoch=epoch, topics=topics
            )
            yield Bulk(name, request, 12)

    def changes(self, directory: str) -> Iterator[Bulk]:
        """Yields the requests that change something but delete no topic."""
        records, elections, moves = DeleteRecordsRequest, ElectLeadersRequest, AlterPartitionReassignmentsRequest
        deleted = [
            records.DeleteRecordsTopic(
                name=topic,
                partitions=[records.DeleteRecordsPartition(partition_index=index, offset=0) for index in indexes],
            )
            for topic, indexes in self.partitions
        ]
        yield Bulk("delete records", DeleteRecordsRequest(topics=deleted, timeout_ms=TIMEOUT_MS), 2)
        elected = [elections.TopicPartitions(topic=topic, partitions=indexes) for topic, indexes in self.partitions]
        for name, partitions in (("elect leaders", elected), ("elect all leaders", None)):
            yield Bulk(name, ElectLeadersRequest(topic_partitions=partitions, timeout_ms=TIMEOUT_MS), 2)
        moved = [
            moves.ReassignableTopic(
                name=topic,
                partitions=[moves.ReassignablePartition(partition_index=index, replicas=[1]) for index in indexes],
            )
            for topic, indexes in self.partitions
        ]
        yield Bulk("reassign", AlterPartitionReassignmentsRequest(topics=moved, timeout_ms=TIMEOUT_MS), 0)
        yield from self._of_configs()
        grown = CreatePartitionsRequest.CreatePartitionsTopic
        more = [grown(name=name, count=3) for name in self.small]
        yield Bulk("add partitions", CreatePartitionsRequest(topics=more, timeout_ms=TIMEOUT_MS), 3)
        alter = AlterReplicaLogDirsRequest
        named = [alter.AlterReplicaLogDirTopic(name=topic, partitions=indexes) for topic, indexes in self.partitions]
        placed = alter.AlterReplicaLogDir(path=directory, topics=named)
        yield Bulk("move to a directory", AlterReplicaLogDirsRequest(dirs=[placed]), 2)
        yield Bulk("delete groups", DeleteGroupsRequest(groups_names=self.names), 2)

    def _of_configs(self) -> Iterator[Bulk]:
        incremental, whole = IncrementalAlterConfigsRequest, AlterConfigsRequest
        value: dict[str, Any] = {"name": "retention.ms", "value": "7000000"}
        yield Bulk(
            "change configurations",
            IncrementalAlterConfigsRequest(
                resources=[
                    incremental.AlterConfigsResource(
                        resource_type=TOPIC, resource_name=name, configs=[incremental.AlterableConfig(**value)]
                    )
                    for name in self.topics
                ]
            ),
            1,
        )
        yield Bulk(
            "replace configurations",
            AlterConfigsRequest(
                resources=[
                    whole.AlterConfigsResource(
                        resource_type=TOPIC, resource_name=name, configs=[whole.AlterableConfig(**value)]
                    )
                    for name in self.topics
                ]
            ),
            2,
        )

    def deletions(self) -> Iterator[Bulk]:
        state = DeleteTopicsRequest.DeleteTopicState
        for name, topics in (("delete topics", self.small), ("delete topics of 10 partitions", self.middle)):
            request = DeleteTopicsRequest(topics=[state(name=topic) for topic in topics], timeout_ms=TIMEOUT_MS)
            yield Bulk(name, request, 6)
