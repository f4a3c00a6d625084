"""Thousands of partitions: created through the API, listed by every broker, and led by others when a broker dies.

bench/ measures the speed on a quiet machine; the bounds here allow for a busy one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import pytest
from tests.support.process_nodes import call, until

from barnabas.common.errors import ErrorCode
from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.testing import Cluster

Address = tuple[str, int]
BROKERS = (1, 2, 3)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=len(BROKERS)) as started:
        yield started


def addresses(cluster: Cluster) -> dict[int, Address]:
    """Returns the addresses by broker id."""
    pairs = (place.rpartition(":") for place in cluster.bootstrap.split(","))
    return {broker_id: (host, int(port)) for broker_id, (host, _, port) in zip(BROKERS, pairs, strict=True)}


def create(address: Address, name: str, partitions: int, replicas: Sequence[int] = ()) -> None:
    """Creates a topic with these replicas for each partition, or with replicas of the controller's choice."""
    assignments = [
        CreateTopicsRequest.CreatableReplicaAssignment(partition_index=index, broker_ids=list(replicas))
        for index in range(partitions if replicas else 0)
    ]
    topic = CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=-1 if replicas else partitions,
        replication_factor=-1 if replicas else len(BROKERS),
        assignments=assignments,
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=120_000)
    answer = call(address, request, 7, CreateTopicsResponse, timeout_s=120.0)
    # A controller that changed meanwhile may have been asked twice.
    assert answer.topics[0].error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS), answer.topics[0]


def leaders(address: Address, names: Collection[str]) -> list[int]:
    """Returns the leaders of all partitions of these topics, as this broker reports them."""
    topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
    answer = call(address, MetadataRequest(topics=topics, allow_auto_topic_creation=False), 9, MetadataResponse)
    return [partition.leader_id for topic in answer.topics for partition in topic.partitions]


def are_led(address: Address, names: Collection[str], count: int, without: int = -1) -> bool:
    found = leaders(address, names)
    return len(found) == count and without not in found and -1 not in found


def active_controller(address: Address) -> int:
    partition = DescribeQuorumRequest.PartitionData(partition_index=0)
    topic = DescribeQuorumRequest.TopicData(topic_name="__cluster_metadata", partitions=[partition])
    answer = call(address, DescribeQuorumRequest(topics=[topic]), 2, DescribeQuorumResponse)
    return answer.topics[0].partitions[0].leader_id


@pytest.mark.parametrize(
    ("topics", "partitions", "bound_s"),
    [pytest.param(3, 100, 120.0, id="300"), pytest.param(10, 1_000, 240.0, id="10000", marks=pytest.mark.full)],
)
def test_every_broker_sees_many_new_partitions_and_where_they_are_led_after_a_death(
    cluster: Cluster, topics: int, partitions: int, bound_s: float
) -> None:
    at = addresses(cluster)
    names = [f"many-{index}" for index in range(topics)]
    for name in names:
        create(at[1], name, partitions)
    for address in at.values():
        until("all are led", lambda address=address: are_led(address, names, topics * partitions), bound_s)  # type: ignore[misc]

    controller = active_controller(at[1])
    victim, survivor = (broker_id for broker_id in BROKERS if broker_id != controller)
    led = leaders(at[1], names).count(victim)
    assert led > topics * partitions // 4, "leaders are spread"
    create(at[controller], "more", topics * partitions // 2 - led, [victim, survivor, controller])
    names.append("more")
    count = topics * partitions * 3 // 2 - led
    for address in at.values():
        until("all are led", lambda address=address: are_led(address, names, count), bound_s)  # type: ignore[misc]
    cluster.kill(victim)
    for broker_id in (controller, survivor):
        until("others lead", lambda broker_id=broker_id: are_led(at[broker_id], names, count, victim), bound_s)  # type: ignore[misc]
