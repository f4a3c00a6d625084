"""The topic handlers over a real controller: auto creation, pages, ids, and refusals before the controller."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.node_world import NodeWorld

from barnabas.broker.handlers import (
    create_partitions,
    create_topics,
    delete_topics,
    describe_cluster,
    describe_topic_partitions,
    metadata,
)
from barnabas.broker.peers.controller_access import ControllerAccess
from barnabas.broker.recently_fenced import RecentlyFenced
from barnabas.broker.requests.inner_requests import OwnNode
from barnabas.broker.topics.topic_creation import SHARE_GROUP_STATE_TOPIC, ensure_internal_topic
from barnabas.common.errors import ErrorCode
from barnabas.common.portions import whole
from barnabas.common.types import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, ZERO_UUID
from barnabas.metadata.topics import NO_LEADER
from barnabas.protocol.api import CONTROLLER_APIS
from barnabas.protocol.frame_reader import ReceiveArea
from barnabas.protocol.message import Message
from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest
from barnabas.protocol.messages.create_topics import CreateTopicsRequest
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest
from barnabas.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse


class World:
    """A node, and a client of its PLAINTEXT listener."""

    def __init__(self, properties: Mapping[str, str] | None = None) -> None:
        self.node = NodeWorld(properties).join()
        self.services: Any = SimpleNamespace(
            metadata=self.node.store,
            controller=self.node.controller,
            authorizer=None,
            side=SimpleNamespace(shown_controller=lambda brokers: min(brokers, default=-1)),
            config=self.node.config,
            host=self.node.host,
            cluster_id=self.node.formatted.cluster_id,
            topics_in_creation=set(),
            throttles=None,
            recently_fenced=RecentlyFenced(),
        )
        host = self.node.host
        own = OwnNode(self.services, "CONTROLLER", CONTROLLER_APIS)  # type: ignore[arg-type]
        self.services.access = ControllerAccess(
            host, ReceiveArea(), "test", lambda: -1, lambda: None, 1000, lambda: own
        )
        self.replies: list[Message] = []

    def call(self, handler: Any, request: Message, version: int, listener: str = "PLAINTEXT") -> Any:
        context = SimpleNamespace(
            api_version=version, listener=listener, principal="User:test", reply=self.replies.append
        )
        before = len(self.replies)
        answer = handler.handle(context, request, self.services)
        if answer is not None and not isinstance(answer, Message):
            answer = whole(answer)
        if answer is None:
            assert len(self.replies) == before + 1
            return self.replies[-1]
        assert len(self.replies) == before
        return answer

    def metadata(self, *names: str, version: int = 13, create: bool = True) -> MetadataResponse:
        topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        answer = self.call(metadata, MetadataRequest(topics=topics, allow_auto_topic_creation=create), version)
        assert isinstance(answer, MetadataResponse)
        return answer


@pytest.fixture
def world() -> World:
    return World()


# Auto creation


def test_an_unknown_topic_is_created_and_found_the_next_time(world: World) -> None:
    (topic,) = world.metadata("orders").topics
    assert (topic.error_code, topic.name, topic.partitions) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "orders", [])
    (topic,) = world.metadata("orders").topics
    assert topic.error_code == ErrorCode.NONE
    assert topic.topic_id != ZERO_UUID
    assert [(partition.partition_index, partition.leader_id) for partition in topic.partitions] == [(0, 1)]


def test_nothing_is_created_where_client_or_broker_forbid_it(world: World) -> None:
    for place, create in ((world, False), (World({"auto.create.topics.enable": "false"}), True)):
        for _ in range(2):
            (topic,) = place.metadata("orders", create=create).topics
            assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert not place.node.image.topics_by_name


def test_a_bad_name_is_not_created(world: World) -> None:
    for create in (True, False):
        (topic,) = world.metadata("no good", create=create).topics
        assert (topic.error_code, topic.name) == (ErrorCode.INVALID_TOPIC_EXCEPTION, "no good")


def test_the_brokers_defaults_shape_created_topics() -> None:
    world = World({"num.partitions": "3"})
    world.metadata("orders")
    assert len(world.metadata("orders").topics[0].partitions) == 3


def test_a_creation_that_fails_is_reported_and_asked_again(world: World) -> None:
    world = World({"default.replication.factor": "3"})
    for _ in range(2):
        (topic,) = world.metadata("orders").topics
        assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert len(world.node.host.faults.reported) == 2
    assert "INVALID_REPLICATION_FACTOR" in world.node.host.faults.reported[0][0]


def test_internal_topics_get_their_own_settings() -> None:
    factors = ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
    world = World({f"{prefix}.replication.factor": "1" for prefix in factors} | {"offsets.topic.num.partitions": "5"})
    for name in (GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_GROUP_STATE_TOPIC):
        for _ in range(2):
            ensure_internal_topic(world.services, name)
    image = world.node.image
    assert {name: len(topic.partitions) for name, topic in image.topics_by_name.items()} == {
        GROUP_METADATA_TOPIC: 5,
        TRANSACTION_STATE_TOPIC: 50,
        SHARE_GROUP_STATE_TOPIC: 50,
    }
    assert dict(image.topic_config(GROUP_METADATA_TOPIC)) == {
        "compression.type": "producer",
        "cleanup.policy": "compact",
        "segment.bytes": "104857600",
    }
    assert dict(image.topic_config(TRANSACTION_STATE_TOPIC)) == {
        "compression.type": "uncompressed",
        "cleanup.policy": "compact",
        "min.insync.replicas": "2",
        "segment.bytes": "104857600",
        "unclean.leader.election.enable": "false",
    }
    assert dict(image.topic_config(SHARE_GROUP_STATE_TOPIC)) == {
        "compression.type": "producer",
        "cleanup.policy": "delete",
        "min.insync.replicas": "2",
        "segment.bytes": "104857600",
        "retention.ms": "-1",
    }
    assert world.metadata(GROUP_METADATA_TOPIC).topics[0].is_internal


# Metadata


def test_all_topics_or_none(world: World) -> None:
    world.node.create("a", "b")
    assert [t.name for t in world.call(metadata, MetadataRequest(topics=None), 13).topics] == ["a", "b"]
    assert world.call(metadata, MetadataRequest(topics=[]), 13).topics == []
    assert [t.name for t in world.call(metadata, MetadataRequest(topics=[]), 0).topics] == ["a", "b"]


def test_topics_by_id(world: World) -> None:
    world.node.create("a")
    topic_id, unknown = world.node.image.topics_by_name["a"].topic_id, b"\x07" * 16
    topics = [MetadataRequest.MetadataRequestTopic(name=None, topic_id=each) for each in (topic_id, unknown)]
    answer = world.call(metadata, MetadataRequest(topics=topics), 13)
    assert [(t.error_code, t.name, t.topic_id) for t in answer.topics] == [
        (ErrorCode.UNKNOWN_TOPIC_ID, None, unknown),
        (ErrorCode.NONE, "a", topic_id),
    ]
    answer = world.call(metadata, MetadataRequest(topics=topics), 11)
    assert [t.error_code for t in answer.topics] == [ErrorCode.INVALID_REQUEST] * 2


def test_a_topic_without_a_leader(world: World) -> None:
    world.node.create("a")
    world.node.host.time.run_for(9_000)
    answer = world.metadata("a")
    assert (answer.brokers, answer.controller_id) == ([], -1)
    (partition,) = answer.topics[0].partitions
    assert (partition.error_code, partition.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER)
    assert (partition.replica_nodes, partition.isr_nodes, partition.offline_replicas) == ([1], [], [1])
    (partition,) = world.metadata("a", version=0).topics[0].partitions
    assert (partition.error_code, partition.replica_nodes) == (ErrorCode.LEADER_NOT_AVAILABLE, [])


@pytest.mark.parametrize(("version", "code"), [(6, ErrorCode.LISTENER_NOT_FOUND), (5, ErrorCode.LEADER_NOT_AVAILABLE)])
def test_a_listener_that_the_leader_does_not_have(world: World, version: int, code: ErrorCode) -> None:
    world.node.create("a")
    request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="a")])
    answer = world.call(metadata, request, version, listener="OTHER")
    assert answer.brokers == []
    (partition,) = answer.topics[0].partitions
    assert (partition.error_code, partition.leader_id) == (code, NO_LEADER)


def test_authorized_operations_only_on_request(world: World) -> None:
    world.node.create("a")
    request = MetadataRequest(
        topics=None, include_topic_authorized_operations=True, include_cluster_authorized_operations=True
    )
    answer = world.call(metadata, request, 8)
    assert (answer.cluster_authorized_operations, answer.topics[0].topic_authorized_operations) == (8096, 3576)
    assert world.metadata("a").topics[0].topic_authorized_operations == -(1 << 31)


# DescribeTopicPartitions


def describe(
    world: World, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> tuple[list[tuple[str | None, int, list[int]]], tuple[str, int] | None]:
    request = DescribeTopicPartitionsRequest(
        topics=[DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None
        if cursor is None
        else DescribeTopicPartitionsRequest.Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    answer = world.call(describe_topic_partitions, request, 0)
    assert isinstance(answer, DescribeTopicPartitionsResponse)
    shown = [(t.name, t.error_code, [p.partition_index for p in t.partitions]) for t in answer.topics]
    following = answer.next_cursor
    return shown, None if following is None else (following.topic_name, following.partition_index)


def test_topics_come_in_pages(world: World) -> None:
    world.node.create("a", "b", "c", partitions=3)
    everything = [(name, 0, [0, 1, 2]) for name in ("a", "b", "c")]
    assert describe(world) == (everything, None)
    assert describe(world, limit=4) == ([("a", 0, [0, 1, 2]), ("b", 0, [0])], ("b", 1))
    assert describe(world, limit=4, cursor=("b", 1)) == ([("b", 0, [1, 2]), ("c", 0, [0, 1])], ("c", 2))
    assert describe(world, limit=4, cursor=("c", 2)) == ([("c", 0, [2])], None)
    assert describe(world, limit=4, cursor=("b", 9)) == ([("b", 0, []), ("c", 0, [0, 1, 2])], None)
    assert describe(world, limit=3) == ([("a", 0, [0, 1, 2])], ("b", 0))
    assert describe(world, limit=0) == ([("a", 0, [0])], ("a", 1))


def test_pages_of_named_topics(world: World) -> None:
    world.node.create("a", "b")
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert describe(world, "b", "missing", "a") == ([("a", 0, [0]), ("b", 0, [0]), ("missing", missing, [])], None)
    assert describe(world, "no good") == ([("no good", ErrorCode.INVALID_TOPIC_EXCEPTION, [])], None)
    refused: list[Any] = [("a", ErrorCode.INVALID_REQUEST, [])]
    assert describe(world, "a", cursor=("b", 0)) == (refused, None)
    assert describe(world, "a", cursor=("a", -1)) == (refused, None)


def test_the_brokers_own_limit_holds_too() -> None:
    world = World({"max.request.partition.size.limit": "2"})
    world.node.create("a", partitions=3)
    assert describe(world) == ([("a", 0, [0, 1])], ("a", 2))


# DescribeCluster


def test_fenced_brokers_are_described_on_request(world: World) -> None:
    world.node.register(2)
    answer = world.call(describe_cluster, DescribeClusterRequest(), 2)
    assert [broker.broker_id for broker in answer.brokers] == [1]
    assert (answer.cluster_id, answer.controller_id) == (world.services.cluster_id, 1)
    answer = world.call(describe_cluster, DescribeClusterRequest(include_fenced_brokers=True), 2)
    assert [(broker.broker_id, broker.is_fenced) for broker in answer.brokers] == [(1, False), (2, True)]


@pytest.mark.parametrize(
    ("endpoint_type", "version", "code"),
    [
        (2, 1, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (3, 2, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
    ],
)
def test_an_endpoint_type_that_a_broker_is_not(world: World, endpoint_type: int, version: int, code: ErrorCode) -> None:
    answer = world.call(describe_cluster, DescribeClusterRequest(endpoint_type=endpoint_type), version)
    assert (answer.error_code, answer.brokers, answer.cluster_id) == (code, [], "")


def test_a_controllers_listener_describes_controllers(world: World) -> None:
    answer = world.call(describe_cluster, DescribeClusterRequest(endpoint_type=2), 1, listener="CONTROLLER")
    assert [(node.broker_id, node.host, node.port) for node in answer.brokers] == [(1, "localhost", 9093)]
    assert (answer.controller_id, answer.endpoint_type) == (1, 2)
    answer = world.call(describe_cluster, DescribeClusterRequest(), 1, listener="CONTROLLER")
    assert answer.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
    assert "of type CONTROLLER, but we wanted an endpoint of type BROKER" in answer.error_message


@pytest.mark.parametrize(("elected_after_ms", "told"), [(700, 3), (60_000, -1)])
def test_a_controller_waits_for_a_leader_before_it_describes_the_quorum(
    world: World, elected_after_ms: int, told: int
) -> None:
    quorum = world.services.controller = SimpleNamespace(leader_id=-1)
    time = world.node.host.time
    time.call_later(elected_after_ms, lambda: setattr(quorum, "leader_id", 3))
    context = SimpleNamespace(api_version=1, listener="CONTROLLER", reply=world.replies.append)
    assert describe_cluster.handle(context, DescribeClusterRequest(endpoint_type=2), world.services) is None
    time.run_for(600)
    assert not world.replies
    time.run_for(10_000)
    answer: Any = world.replies[0]
    assert len(world.replies) == 1
    assert (answer.controller_id, [node.broker_id for node in answer.brokers]) == (told, [1])


# -- requests that go to the controller


def test_requests_to_the_controller_are_answered_when_committed(world: World) -> None:
    topic = CreateTopicsRequest.CreatableTopic(name="a", num_partitions=1, replication_factor=1)
    answer = world.call(create_topics, CreateTopicsRequest(topics=[topic]), 7)
    assert answer.topics[0].error_code == ErrorCode.NONE
    more = CreatePartitionsRequest.CreatePartitionsTopic(name="a", count=3, assignments=None)
    answer = world.call(create_partitions, CreatePartitionsRequest(topics=[more]), 3)
    assert answer.results[0].error_code == ErrorCode.NONE
    assert len(world.node.image.topics_by_name["a"].partitions) == 3
    answer = world.call(delete_topics, DeleteTopicsRequest(topic_names=["a"]), 5)
    assert answer.responses[0].error_code == ErrorCode.NONE
    assert not world.node.image.topics_by_name


@pytest.mark.parametrize(("version", "code"), [(3, ErrorCode.TOPIC_DELETION_DISABLED), (2, ErrorCode.INVALID_REQUEST)])
def test_deletion_can_be_disabled(version: int, code: ErrorCode) -> None:
    world = World({"delete.topic.enable": "false"})
    world.node.create("a")
    answer = world.call(delete_topics, DeleteTopicsRequest(topic_names=["a"]), version)
    assert isinstance(answer, DeleteTopicsResponse)
    assert [(r.name, r.error_code) for r in answer.responses] == [("a", code)]
    assert "a" in world.node.image.topics_by_name
