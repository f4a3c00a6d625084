"""The requests of a poll, and the contents of their responses: pages of partitions, brokers, sizes, offsets and min
ISRs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Final

from barnabas.common.errors import ErrorCode
from barnabas.common.types import METADATA_TOPIC
from barnabas.monitor.delta import NO_TOPIC_ID, Partitions
from barnabas.monitor.partition_state import BrokerState
from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from barnabas.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from barnabas.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from barnabas.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from barnabas.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse

#: Partitions in one request or answer, at most. Kafka's own limit for a page is the same.
PAGE_MAX: Final = 2_000
LATEST: Final = -1
EARLIEST: Final = -2
CONSUMER: Final = -1
#: The replica id of a reader that queries any replica, whether or not it leads.
DEBUGGING_REPLICA: Final = -2
_TOPIC_RESOURCE: Final = 2
_MIN_ISR: Final = "min.insync.replicas"
_PAGE_COLUMNS: Final = frozenset({"elr", "offline"})
_METADATA_COLUMNS: Final = frozenset({"offline"})

#: A partition whose sizes or offsets are requested.
Key = tuple[str, int]
#: The first partition of a page.
Cursor = tuple[str, int]


# -- partitions


def page_request(start: Cursor | None, names: Sequence[str] | None) -> DescribeTopicPartitionsRequest:
    """Returns the request for a page of all topics, or of some."""
    topic = DescribeTopicPartitionsRequest.TopicRequest
    cursor = None
    if start is not None:
        cursor = DescribeTopicPartitionsRequest.Cursor(topic_name=start[0], partition_index=start[1])
    topics = [] if names is None else [topic(name=name) for name in sorted(names)]
    return DescribeTopicPartitionsRequest(topics=topics, response_partition_limit=PAGE_MAX, cursor=cursor)


def page_partitions(
    response: DescribeTopicPartitionsResponse, start: Cursor | None, only: str | None = None
) -> Partitions:
    """Returns the partitions of a page that began at `start`: of all topics in it, or only of one."""
    found = Partitions(_PAGE_COLUMNS)
    following = response.next_cursor
    for topic in response.topics:
        name = topic.name
        if name is None or topic.error_code or only not in (None, name):
            continue
        is_cut = (start is not None and start[0] == name and start[1] > 0) or (
            following is not None and following.topic_name == name
        )
        found.add_topic(name, topic.topic_id, is_complete=not is_cut)
        for row in topic.partitions:
            found.add(
                row.partition_index,
                row.leader_id,
                row.leader_epoch,
                row.replica_nodes,
                row.isr_nodes,
                elr=row.eligible_leader_replicas or (),
                offline=row.offline_replicas,
            )
    return found


def metadata_request(names: Iterable[str] | None) -> MetadataRequest:
    """Returns the request for these topics, or for all. Brokers are always in the answer."""
    topic = MetadataRequest.MetadataRequestTopic
    topics = None if names is None else [topic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False)


def metadata_partitions(response: MetadataResponse, only: str | None = None) -> Partitions:
    found = Partitions(_METADATA_COLUMNS)
    for topic in response.topics:
        # A topic of which a partition has no leader has an error code, but its partitions are in the response.
        is_missing = topic.name is None or topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if is_missing or only not in (None, topic.name):
            continue
        found.add_topic(topic.name or "", topic.topic_id or NO_TOPIC_ID, is_complete=True)
        for row in topic.partitions:
            found.add(
                row.partition_index,
                row.leader_id,
                row.leader_epoch,
                row.replica_nodes,
                row.isr_nodes,
                offline=row.offline_replicas,
            )
    return found


def brokers_of(response: MetadataResponse) -> dict[int, BrokerState]:
    return {
        broker.node_id: BrokerState(broker.node_id, broker.host, broker.port, broker.rack)
        for broker in response.brokers
    }


# -- the controller, and min ISRs


def quorum_request() -> DescribeQuorumRequest:
    partition = DescribeQuorumRequest.PartitionData(partition_index=0)
    return DescribeQuorumRequest(
        topics=[DescribeQuorumRequest.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])]
    )


def quorum_leader(response: DescribeQuorumResponse) -> int | None:
    leaders = [row.leader_id for topic in response.topics for row in topic.partitions if not row.error_code]
    return leaders[0] if leaders else None


def min_isr_request(names: Iterable[str]) -> DescribeConfigsRequest:
    resource = DescribeConfigsRequest.DescribeConfigsResource
    return DescribeConfigsRequest(
        resources=[
            resource(resource_type=_TOPIC_RESOURCE, resource_name=name, configuration_keys=[_MIN_ISR]) for name in names
        ]
    )


def min_isrs_of(response: DescribeConfigsResponse) -> dict[str, int]:
    return {
        result.resource_name: int(config.value)
        for result in response.results
        for config in result.configs
        if config.name == _MIN_ISR and config.value is not None
    }


# -- sizes and offsets


def log_dirs_request(keys: Iterable[Key]) -> DescribeLogDirsRequest:
    """Returns the request for the sizes of these partitions, which are in order."""
    topic = DescribeLogDirsRequest.DescribableLogDirTopic
    return DescribeLogDirsRequest(
        topics=[topic(topic=name, partitions=partitions) for name, partitions in _by_topic(keys)]
    )


def sizes_of(response: DescribeLogDirsResponse) -> tuple[dict[Key, int], dict[Key, int]]:
    """Returns the sizes, and the lags where brokers report one."""
    sizes: dict[Key, int] = {}
    lags: dict[Key, int] = {}
    for directory in response.results:
        for topic in directory.topics:
            for row in topic.partitions:
                if not row.is_future_key:
                    sizes[topic.name, row.partition_index] = row.partition_size
                    if row.offset_lag >= 0:
                        lags[topic.name, row.partition_index] = row.offset_lag
    return sizes, lags


def offsets_request(
    keys: Iterable[Key], *, timestamp: int = LATEST, replica_id: int = DEBUGGING_REPLICA
) -> ListOffsetsRequest:
    topic, partition = ListOffsetsRequest.ListOffsetsTopic, ListOffsetsRequest.ListOffsetsPartition
    return ListOffsetsRequest(
        replica_id=replica_id,
        topics=[
            topic(name=name, partitions=[partition(partition_index=index, timestamp=timestamp) for index in indexes])
            for name, indexes in _by_topic(keys)
        ],
    )


def offsets_of(response: ListOffsetsResponse) -> Mapping[Key, int]:
    return {
        (topic.name, row.partition_index): row.offset
        for topic in response.topics
        for row in topic.partitions
        if not row.error_code and row.offset >= 0
    }


def _by_topic(keys: Iterable[Key]) -> list[tuple[str, list[int]]]:
    return [(name, [index for _, index in rows]) for name, rows in groupby(keys, key=lambda key: key[0])]
