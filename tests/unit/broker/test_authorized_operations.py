"""The operations that are allowed on a resource without an authorizer (KIP-430): the bit sets of Apache Kafka 4.1.0,
which the tests against Kafka compare.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.wired import WiredBroker, WiredClient

from barnabas.protocol.message import Message
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from barnabas.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse

#: Bits by the numbers of Kafka's AclOperation: read 3, write 4, create 5, delete 6, alter 7, describe 8,
#: cluster action 9, describe configs 10, alter configs 11, idempotent write 12.
GROUP, TOPIC, CLUSTER = 0b1101_0100_1000, 0b1101_1111_1000, 0b1_1111_1010_0000
NOT_REQUESTED = -(1 << 31)


@pytest.fixture(scope="module")
def client() -> WiredClient:
    wired = WiredBroker()
    wired.create_topic("orders", 1)
    client = wired.connect()
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="orders", partitions=[partition])
    for _ in range(100):
        answer = client.call(OffsetCommitRequest(group_id="g", topics=[topic]), 8, OffsetCommitResponse)
        if not answer.topics[0].partitions[0].error_code:
            return client
        call(client, FindCoordinatorRequest(key="g"), 2, FindCoordinatorResponse)
        wired.host.time.run_for(50)
    raise AssertionError("the group is never served")


def call(client: WiredClient, request: Message, version: int, response: type[Message]) -> Any:
    return client.call(request, version, response)


def describe_group(client: WiredClient, version: int, *names: str, requested: bool = False) -> list[Any]:
    request = DescribeGroupsRequest(groups=list(names), include_authorized_operations=requested)
    return list(call(client, request, version, DescribeGroupsResponse).groups)


@pytest.mark.parametrize("version", range(3, 7))
def test_of_groups_when_asked_and_only_of_those_that_could_be_described(client: WiredClient, version: int) -> None:
    found = describe_group(client, version, "g", "nobodys", requested=True)
    assert found[0].authorized_operations == GROUP
    # Before version 6, a group that does not exist is described as dead, without an error.
    assert found[1].authorized_operations == (NOT_REQUESTED if version == 6 else GROUP)
    assert describe_group(client, version, "g")[0].authorized_operations == NOT_REQUESTED


@pytest.mark.parametrize("version", range(3))
def test_of_the_cluster_when_asked(client: WiredClient, version: int) -> None:
    for requested, expected in ((True, CLUSTER), (False, NOT_REQUESTED)):
        request = DescribeClusterRequest(include_cluster_authorized_operations=requested)
        found = call(client, request, version, DescribeClusterResponse)
        assert found.cluster_authorized_operations == expected


def test_of_topics_always_when_they_are_described_page_by_page(client: WiredClient) -> None:
    request = DescribeTopicPartitionsRequest(topics=[DescribeTopicPartitionsRequest.TopicRequest(name="orders")])
    [found] = call(client, request, 0, DescribeTopicPartitionsResponse).topics
    assert found.topic_authorized_operations == TOPIC
