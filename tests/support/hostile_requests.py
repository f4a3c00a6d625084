"""Requests that cause much work: many rows, long names, many waiting readers. One client can send each of them.

`ATTACKS` builds each of them by its name, with about the given number of rows; they need the topics `TOPICS`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from tests.support.bystander import HostileRequest

from barnabas.protocol import codec
from barnabas.protocol.message import Message
from barnabas.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from barnabas.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from barnabas.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest
from barnabas.protocol.messages.create_topics import CreateTopicsRequest
from barnabas.protocol.messages.delete_records import DeleteRecordsRequest
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest
from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest
from barnabas.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from barnabas.protocol.messages.describe_producers import DescribeProducersRequest
from barnabas.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest
from barnabas.protocol.messages.fetch import FetchRequest
from barnabas.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.join_group import JoinGroupRequest
from barnabas.protocol.messages.list_offsets import ListOffsetsRequest
from barnabas.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.protocol.messages.offset_commit import OffsetCommitRequest
from barnabas.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from barnabas.protocol.messages.produce import ProduceRequest
from barnabas.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from barnabas.protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from barnabas.protocol.wire import TAGS_MAX

#: The topic of the bystander, one with many partitions, and one with a large batch to search.
QUIET: Final = "quiet"
WIDE: Final = "wide"
SEARCHED: Final = "searched"
WIDE_PARTITIONS: Final = 5_000
#: The timestamp of the records in the batch of SEARCHED.
SEARCHED_MS: Final = 1_700_000_000_000
TOPICS: Final = {QUIET: 1, WIDE: WIDE_PARTITIONS, SEARCHED: 1}


class VersionedRequest(NamedTuple):
    message: Message
    version: int

    def encoded(self) -> HostileRequest:
        """Returns the API key, the version, and the body after a request header without client id."""
        message, version = self
        assert message.API_KEY is not None, "a request"
        is_flexible = message.FLEXIBLE is not None and version >= message.FLEXIBLE
        body = codec.encode(message, version)
        return HostileRequest(message.API_KEY, version, (b"\0" if is_flexible else b"") + body)


# -- one topic, many rows


def produce_rows(rows: int) -> list[VersionedRequest]:
    data = [ProduceRequest.PartitionProduceData(index=n % WIDE_PARTITIONS, records=b"") for n in range(rows)]
    topic = ProduceRequest.TopicProduceData(name=WIDE, partition_data=data)
    return [VersionedRequest(ProduceRequest(acks=1, timeout_ms=1_000, topic_data=[topic]), 7)]


def fetch_rows(rows: int, topic: str = WIDE, epoch: int = -1, max_wait_ms: int = 0) -> list[VersionedRequest]:
    requested = [
        FetchRequest.FetchPartition(partition=n % WIDE_PARTITIONS, fetch_offset=0, partition_max_bytes=1_000_000)
        for n in range(rows)
    ]
    topics = [FetchRequest.FetchTopic(topic=topic, partitions=requested)]
    return [
        VersionedRequest(FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, session_epoch=epoch, topics=topics), 11)
    ]


def fetch_unknown_topics(count: int) -> list[VersionedRequest]:
    one = [FetchRequest.FetchPartition(partition=0, partition_max_bytes=1)]
    topics = [FetchRequest.FetchTopic(topic=f"nobody-{n}", partitions=one) for n in range(count)]
    return [VersionedRequest(FetchRequest(topics=topics), 11)]


def forget_rows(rows: int) -> list[VersionedRequest]:
    topics = [FetchRequest.ForgottenTopic(topic=WIDE, partitions=list(range(rows)))]
    return [VersionedRequest(FetchRequest(session_id=1, session_epoch=5, forgotten_topics_data=topics), 11)]


def list_offsets_rows(rows: int, timestamp: int = -1, topic: str = WIDE) -> list[VersionedRequest]:
    requested = [ListOffsetsRequest.ListOffsetsPartition(partition_index=n, timestamp=timestamp) for n in range(rows)]
    topics = [ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=requested)]
    return [VersionedRequest(ListOffsetsRequest(replica_id=-1, topics=topics), 5)]


def search_by_time() -> list[VersionedRequest]:
    one = [ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=SEARCHED_MS)]
    topics = [ListOffsetsRequest.ListOffsetsTopic(name=SEARCHED, partitions=one)]
    return [VersionedRequest(ListOffsetsRequest(replica_id=-1, topics=topics), 5)]


def commit_rows(rows: int) -> list[VersionedRequest]:
    requested = [
        OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=n % 50, committed_offset=n)
        for n in range(rows)
    ]
    topics = [OffsetCommitRequest.OffsetCommitRequestTopic(name=WIDE, partitions=requested)]
    return [VersionedRequest(OffsetCommitRequest(group_id="g", topics=topics), 7)]


def commit_in_transaction_rows(rows: int) -> list[VersionedRequest]:
    requested = [
        TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(partition_index=n % 50, committed_offset=n)
        for n in range(rows)
    ]
    topics = [TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=WIDE, partitions=requested)]
    return [VersionedRequest(TxnOffsetCommitRequest(transactional_id="t", group_id="g", topics=topics), 2)]


def delete_records_rows(rows: int) -> list[VersionedRequest]:
    requested = [DeleteRecordsRequest.DeleteRecordsPartition(partition_index=n, offset=0) for n in range(rows)]
    topics = [DeleteRecordsRequest.DeleteRecordsTopic(name=WIDE, partitions=requested)]
    return [VersionedRequest(DeleteRecordsRequest(topics=topics, timeout_ms=1_000), 1)]


def epoch_rows(rows: int) -> list[VersionedRequest]:
    requested = [
        OffsetForLeaderEpochRequest.OffsetForLeaderPartition(partition=n, current_leader_epoch=-1, leader_epoch=0)
        for n in range(rows)
    ]
    topics = [OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=WIDE, partitions=requested)]
    return [VersionedRequest(OffsetForLeaderEpochRequest(replica_id=-1, topics=topics), 3)]


def transaction_rows(rows: int, *, exists: bool) -> list[VersionedRequest]:
    partitions = [n % WIDE_PARTITIONS if exists else n for n in range(rows)]
    topics = [AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=WIDE, partitions=partitions)]
    one = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="t",
        v3_and_below_producer_id=1,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=topics,
    )
    return [VersionedRequest(one, 2)]


def transactions_in_one(count: int) -> list[VersionedRequest]:
    topics = [AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=WIDE, partitions=[0])]
    transactions = [
        AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
            transactional_id=f"t-{n}", producer_id=1, producer_epoch=0, verify_only=n % 2 == 0, topics=topics
        )
        for n in range(count)
    ]
    return [VersionedRequest(AddPartitionsToTxnRequest(transactions=transactions), 4)]


def marker_rows(rows: int) -> list[VersionedRequest]:
    topics = [WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=WIDE, partition_indexes=list(range(rows)))]
    one = WriteTxnMarkersRequest.WritableTxnMarker(
        producer_id=7, producer_epoch=0, transaction_result=False, topics=topics, coordinator_epoch=0
    )
    return [VersionedRequest(WriteTxnMarkersRequest(markers=[one]), 1)]


def markers(count: int) -> list[VersionedRequest]:
    topics = [WriteTxnMarkersRequest.WritableTxnMarkerTopic(name="nobody", partition_indexes=[0])]
    found = [
        WriteTxnMarkersRequest.WritableTxnMarker(
            producer_id=n, producer_epoch=0, transaction_result=False, topics=topics, coordinator_epoch=0
        )
        for n in range(count)
    ]
    return [VersionedRequest(WriteTxnMarkersRequest(markers=found), 1)]


def producers_rows(rows: int) -> list[VersionedRequest]:
    topics = [DescribeProducersRequest.TopicRequest(name=WIDE, partition_indexes=list(range(rows)))]
    return [VersionedRequest(DescribeProducersRequest(topics=topics), 0)]


def log_dirs_rows(rows: int) -> list[VersionedRequest]:
    topics = [DescribeLogDirsRequest.DescribableLogDirTopic(topic=WIDE, partitions=list(range(rows)))]
    return [VersionedRequest(DescribeLogDirsRequest(topics=topics), 1)]


def all_log_dirs() -> list[VersionedRequest]:
    return [VersionedRequest(DescribeLogDirsRequest(topics=None), 1)]


def moves_between_log_dirs(rows: int) -> list[VersionedRequest]:
    topics = [AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name=WIDE, partitions=list(range(rows)))]
    dirs = [AlterReplicaLogDirsRequest.AlterReplicaLogDir(path="/nowhere", topics=topics)]
    return [VersionedRequest(AlterReplicaLogDirsRequest(dirs=dirs), 1)]


# -- the controller's


def names(count: int, letters: int = 0) -> list[str]:
    return [f"n-{n}-".ljust(letters, "x") for n in range(count)]


def create_and_delete(count: int) -> list[VersionedRequest]:
    topics = [
        CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names(count)
    ]
    create = CreateTopicsRequest(topics=topics, timeout_ms=10_000)
    return [
        VersionedRequest(create, 4),
        VersionedRequest(DeleteTopicsRequest(topic_names=names(count), timeout_ms=10_000), 3),
    ]


def create_long_names(count: int) -> list[VersionedRequest]:
    topics = [
        CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        for name in names(count, 32_767)
    ]
    return [VersionedRequest(CreateTopicsRequest(topics=topics, timeout_ms=10_000), 4)]


def create_with_assignments(partitions: int) -> list[VersionedRequest]:
    assignments = [
        CreateTopicsRequest.CreatableReplicaAssignment(partition_index=n, broker_ids=[1]) for n in range(partitions)
    ]
    topic = CreateTopicsRequest.CreatableTopic(
        name="n-assigned", num_partitions=-1, replication_factor=-1, assignments=assignments
    )
    return [VersionedRequest(CreateTopicsRequest(topics=[topic], timeout_ms=10_000, validate_only=True), 4)]


def create_with_configs(count: int) -> list[VersionedRequest]:
    configs = [CreateTopicsRequest.CreatableTopicConfig(name=f"key-{n}", value="x") for n in range(count)]
    topic = CreateTopicsRequest.CreatableTopic(name="n", num_partitions=1, replication_factor=1, configs=configs)
    return [VersionedRequest(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 4)]


def more_partitions(count: int) -> list[VersionedRequest]:
    topics = [CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=100) for name in [*names(count), WIDE]]
    return [VersionedRequest(CreatePartitionsRequest(topics=topics, timeout_ms=10_000), 1)]


def elect(rows: int) -> list[VersionedRequest]:
    topics = [ElectLeadersRequest.TopicPartitions(topic=WIDE, partitions=list(range(rows)))]
    return [VersionedRequest(ElectLeadersRequest(topic_partitions=topics, timeout_ms=10_000), 1)]


def elect_all() -> list[VersionedRequest]:
    return [VersionedRequest(ElectLeadersRequest(topic_partitions=None, timeout_ms=10_000), 1)]


def reassign(rows: int) -> list[VersionedRequest]:
    partitions = [
        AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=n, replicas=[1]) for n in range(rows)
    ]
    topics = [AlterPartitionReassignmentsRequest.ReassignableTopic(name=WIDE, partitions=partitions)]
    return [VersionedRequest(AlterPartitionReassignmentsRequest(topics=topics), 0)]


def list_reassignments(rows: int) -> list[VersionedRequest]:
    topics = [
        ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics(
            name=WIDE, partition_indexes=list(range(rows))
        )
    ]
    return [VersionedRequest(ListPartitionReassignmentsRequest(topics=topics), 0)]


def describe_configs(count: int) -> list[VersionedRequest]:
    resources = [
        DescribeConfigsRequest.DescribeConfigsResource(resource_type=2, resource_name=name, configuration_keys=None)
        for name in [WIDE, QUIET, SEARCHED] * (count // 3)
    ]
    return [VersionedRequest(DescribeConfigsRequest(resources=resources, include_synonyms=True), 2)]


def describe_the_broker(count: int) -> list[VersionedRequest]:
    resources = [
        DescribeConfigsRequest.DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None)
    ] * count
    return [
        VersionedRequest(
            DescribeConfigsRequest(resources=resources, include_synonyms=True, include_documentation=True), 3
        )
    ]


def alter_configs(count: int) -> list[VersionedRequest]:
    resources = [
        IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=2,
            resource_name=name,
            configs=[
                IncrementalAlterConfigsRequest.AlterableConfig(name="retention.ms", config_operation=0, value="3600000")
            ],
        )
        for name in [WIDE, *names(count)]
    ]
    return [VersionedRequest(IncrementalAlterConfigsRequest(resources=resources), 0)]


def alter_many_keys(count: int) -> list[VersionedRequest]:
    configs = [
        IncrementalAlterConfigsRequest.AlterableConfig(name=f"key-{n}", config_operation=0, value="1")
        for n in range(count)
    ]
    one = IncrementalAlterConfigsRequest.AlterConfigsResource(resource_type=2, resource_name=WIDE, configs=configs)
    return [VersionedRequest(IncrementalAlterConfigsRequest(resources=[one]), 0)]


def alter_a_list(count: int) -> list[VersionedRequest]:
    configs = [
        IncrementalAlterConfigsRequest.AlterableConfig(
            name="leader.replication.throttled.replicas",
            config_operation=0,
            value=",".join(f"{n}:1" for n in range(count)),
        )
    ]
    one = IncrementalAlterConfigsRequest.AlterConfigsResource(resource_type=2, resource_name=WIDE, configs=configs)
    return [VersionedRequest(IncrementalAlterConfigsRequest(resources=[one]), 0)]


# -- metadata


def all_metadata() -> list[VersionedRequest]:
    return [VersionedRequest(MetadataRequest(topics=None), 8)]


def unknown_metadata(count: int) -> list[VersionedRequest]:
    topics = [MetadataRequest.MetadataRequestTopic(name=f"bad name {n}") for n in range(count)]
    return [VersionedRequest(MetadataRequest(topics=topics, allow_auto_topic_creation=True), 8)]


def unknown_ids(count: int) -> list[VersionedRequest]:
    topics = [MetadataRequest.MetadataRequestTopic(name=None, topic_id=n.to_bytes(16, "big")) for n in range(1, count)]
    return [VersionedRequest(MetadataRequest(topics=topics, allow_auto_topic_creation=False), 12)]


def pages() -> list[VersionedRequest]:
    request = DescribeTopicPartitionsRequest(topics=[], response_partition_limit=100_000)
    return [VersionedRequest(request, 0)]


def pages_of_unknown(count: int) -> list[VersionedRequest]:
    topics = [DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in names(count)]
    return [VersionedRequest(DescribeTopicPartitionsRequest(topics=topics, response_partition_limit=100_000), 0)]


# -- groups, transactions, connections


def regex() -> list[VersionedRequest]:
    return [
        VersionedRequest(
            ConsumerGroupHeartbeatRequest(
                group_id="c",
                member_id=f"m-{n}",
                rebalance_timeout_ms=60_000,
                subscribed_topic_regex="(a?b?.?)" * 4_000 + str(n),
                topic_partitions=[],
            ),
            1,
        )
        for n in range(50)
    ]


def join(count: int, protocols: int = 1) -> list[VersionedRequest]:
    offered = [JoinGroupRequest.JoinGroupRequestProtocol(name=f"p-{n}", metadata=b"x") for n in range(protocols)]
    return [
        VersionedRequest(
            JoinGroupRequest(
                group_id=f"j-{n}",
                session_timeout_ms=10_000,
                rebalance_timeout_ms=10_000,
                protocol_type="consumer",
                protocols=offered,
            ),
            3,
        )
        for n in range(count)
    ]


def init_producers(count: int) -> list[VersionedRequest]:
    return [
        VersionedRequest(InitProducerIdRequest(transactional_id=f"t-{n}", transaction_timeout_ms=60_000), 1)
        for n in range(count)
    ]


def long_client_names() -> list[VersionedRequest]:
    return [VersionedRequest(ApiVersionsRequest(client_software_name="x" * 32_767, client_software_version="y"), 3)]


def tagged_fields(count: int) -> list[VersionedRequest]:
    """Returns requests with as many tagged fields in each place as a decoder accepts."""
    tags = tuple((n, b"t") for n in range(100, 100 + TAGS_MAX))
    topics = [MetadataRequest.MetadataRequestTopic(name=name, unknown_tags=tags) for name in names(count // TAGS_MAX)]
    return [VersionedRequest(MetadataRequest(topics=topics, allow_auto_topic_creation=False), 9)]


#: Requests that were reported, or found, to block the loop.
ATTACKS: Final[dict[str, Callable[[int], list[VersionedRequest]]]] = {
    "OffsetCommit": lambda rows: commit_rows(3 * rows),
    "OffsetCommit of what fits into a batch": lambda rows: commit_rows(12_000),
    "TxnOffsetCommit": commit_in_transaction_rows,
    "CreateTopics and DeleteTopics of 500": lambda rows: create_and_delete(500),
    "CreateTopics of names of 32,767 letters": lambda rows: create_long_names(rows // 300),
    "CreateTopics of 10,000 replicas by hand": lambda rows: create_with_assignments(10_000),
    "CreateTopics of too many replicas by hand": create_with_assignments,
    "CreateTopics with many keys": lambda rows: create_with_configs(rows // 3),
    "CreatePartitions of topics": lambda rows: more_partitions(rows // 10),
    "DeleteRecords": lambda rows: delete_records_rows(rows // 2),
    "Metadata of all": lambda rows: all_metadata(),
    "Metadata of unknown names": unknown_metadata,
    "Metadata of unknown ids": lambda rows: unknown_ids(rows // 2),
    "Metadata with tagged fields": tagged_fields,
    "DescribeTopicPartitions of all": lambda rows: pages(),
    "DescribeTopicPartitions of unknown names": lambda rows: pages_of_unknown(rows // 2),
    "Produce": produce_rows,
    "Fetch": lambda rows: fetch_rows(rows // 2),
    "Fetch of unknown topics": lambda rows: fetch_unknown_topics(rows // 3),
    "Fetch that waits": lambda rows: fetch_rows(WIDE_PARTITIONS, max_wait_ms=20),
    "Fetch sessions of 200 partitions": lambda rows: fetch_rows(200, epoch=0),
    "Fetch sessions of all partitions": lambda rows: fetch_rows(WIDE_PARTITIONS, epoch=0),
    "Fetch that forgets": lambda rows: forget_rows(2 * rows),
    "ListOffsets": list_offsets_rows,
    "ListOffsets by time": lambda rows: list_offsets_rows(rows, timestamp=1),
    "ListOffsets by time within a batch": lambda rows: search_by_time(),
    "OffsetForLeaderEpoch": epoch_rows,
    "AddPartitionsToTxn": lambda rows: transaction_rows(rows, exists=False),
    "AddPartitionsToTxn of existing partitions": lambda rows: transaction_rows(rows, exists=True),
    "AddPartitionsToTxn of transactions": lambda rows: transactions_in_one(rows // 5),
    "WriteTxnMarkers of partitions": marker_rows,
    "WriteTxnMarkers of producers": lambda rows: markers(rows // 3),
    "DescribeProducers": producers_rows,
    "DescribeLogDirs": log_dirs_rows,
    "DescribeLogDirs of all": lambda rows: all_log_dirs(),
    "AlterReplicaLogDirs": moves_between_log_dirs,
    "ElectLeaders": elect,
    "ElectLeaders of all": lambda rows: elect_all(),
    "AlterPartitionReassignments": lambda rows: reassign(rows // 2),
    "ListPartitionReassignments": list_reassignments,
    "DescribeConfigs of topics": lambda rows: describe_configs(rows // 30),
    "DescribeConfigs of the broker": lambda rows: describe_the_broker(rows // 300),
    "IncrementalAlterConfigs of topics": lambda rows: alter_configs(rows // 20),
    "IncrementalAlterConfigs of keys": lambda rows: alter_many_keys(rows // 3),
    "IncrementalAlterConfigs of a list": lambda rows: alter_a_list(3_000),
    "ConsumerGroupHeartbeat with long patterns": lambda rows: regex(),
    "JoinGroup of groups": lambda rows: join(rows // 30),
    "JoinGroup with many protocols": lambda rows: join(5, rows // 5),
    "InitProducerId of producers": lambda rows: init_producers(rows // 20),
    "ApiVersions with long names": lambda rows: long_client_names(),
}
