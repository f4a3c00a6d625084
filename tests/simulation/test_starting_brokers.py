"""A broker that starts: which requests are accepted when, and what happens to logs that are no longer its own."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest

from barnabas.common.errors import ErrorCode
from barnabas.protocol.channel import ChannelTimes
from barnabas.protocol.message import Message
from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from barnabas.protocol.messages.broker_registration import BrokerRegistrationResponse
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest
from barnabas.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.simulation.world import MILLISECOND_US
from barnabas.simulation.worlds.replicated import CONTROLLER, RawClient, Replicated

_ONE_DIAL = ChannelTimes(3_000, 200, 20, 200)


def rig() -> Replicated:
    """Returns a world with `orders` of one partition on 1, 2, 3; broker 1 leads; broker 3 is down."""
    world = Replicated(log_segment_delete_delay_ms="1000")
    world.create_topic("orders", [[1, 2, 3]], min_insync_replicas="2")
    assert world.produce(b"old") == (0, 0)
    world.cluster.prevent_start("broker3")
    world.node(3).kill()
    world.await_isr([1, 2])
    return world


def cut_off(world: Replicated, number: int) -> None:
    for pair in ((f"broker{number}", CONTROLLER), (CONTROLLER, f"broker{number}")):
        world.cluster.network.cut(*pair)


def let_back(world: Replicated, number: int) -> None:
    for pair in ((f"broker{number}", CONTROLLER), (CONTROLLER, f"broker{number}")):
        world.cluster.network.heal(*pair)


def is_open(world: Replicated, number: int) -> bool:
    return (world.node(number).machine.address, 9092) in world.cluster.network.listening


def by_id(world: Replicated) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(topic_id=world.topic_id(), name=None)])


def described(world: Replicated) -> DescribeTopicPartitionsRequest:
    return DescribeTopicPartitionsRequest(topics=[DescribeTopicPartitionsRequest.TopicRequest(name="orders")])


QUESTIONS: dict[str, Callable[[Replicated], Message]] = {
    "all topics": lambda world: MetadataRequest(topics=None),
    "a topic by its id": by_id,
    "a topic's partitions": described,
    "the cluster": lambda world: DescribeClusterRequest(),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_who_does_not_know_the_metadata_yet_lets_nobody_ask(question: str) -> None:
    """An early answer would be that topics do not exist. Clients then forget their partitions, and librdkafka's
    idempotent producers never recover from that.
    """
    world = rig()
    cut_off(world, 3)
    world.cluster.allow_start("broker3")
    world.run_for(1000)
    client = RawClient(world.cluster, "hasty", _ONE_DIAL)
    answers: list[Message | None] = []
    request = QUESTIONS[question](world)
    client.process.enter(lambda: client.send("broker3", request, answers.append, timeout_ms=300))
    world.run_for(1000)
    assert world.node(3).is_running
    assert answers == [None]
    assert not is_open(world, 3)
    let_back(world, 3)
    world.await_isr([1, 2, 3])
    topics = world.client.call("broker3", MetadataRequest(topics=None), MetadataResponse).topics
    assert ("orders", ErrorCode.NONE, 1) in [(each.name, each.error_code, len(each.partitions)) for each in topics]


def test_a_broker_that_is_listed_accepts_connections() -> None:
    """The broker opens before it is unfenced: otherwise the first clients that connect would be refused, and pause."""
    world = rig()
    world.cluster.allow_start("broker3")
    world.run_until(lambda: is_open(world, 3), "it is open")
    opened_us = world.world.now_us
    assert world.controller.metadata.image.brokers[3].fenced
    world.run_until(lambda: not world.controller.metadata.image.brokers[3].fenced, "it is unfenced")
    assert world.world.now_us - opened_us < 100 * MILLISECOND_US


def test_a_broker_that_never_got_in_can_be_stopped() -> None:
    world = rig()
    cut_off(world, 3)
    world.cluster.allow_start("broker3")
    world.run_for(500)
    world.cluster.prevent_start("broker3")
    world.node(3).stop()
    world.run_until(lambda: not world.node(3).is_running, "it stops", within_ms=1000)
    let_back(world, 3)
    world.run_for(1000)
    assert not is_open(world, 3)


def test_another_process_cannot_take_the_place_of_a_broker_that_runs() -> None:
    """The controller probes the broker at each refusal, and the broker answers."""
    world = rig()
    before = world.controller.metadata.image
    own = world.broker(2).quorum.lifecycle._registration
    assert own is not None
    claim = copy.copy(own)
    claim.incarnation_id = b"X" * 16
    answers: list[Message | None] = []
    for _ in range(5):
        process = world.node(1).machine.process
        assert process is not None
        process.enter(lambda: world.broker(1).services.access.send(claim, answers.append, timeout_ms=500))
        world.run_for(500)
    codes = [answer.error_code for answer in answers if isinstance(answer, BrokerRegistrationResponse)]
    assert codes == [ErrorCode.DUPLICATE_BROKER_REGISTRATION] * 5
    after = world.controller.metadata.image
    assert after.brokers[2] == before.brokers[2]
    assert after.topics_by_name["orders"] == before.topics_by_name["orders"], "it was not fenced for a moment"


# -- logs that are of no replica here any more


def directories(world: Replicated, number: int) -> list[str]:
    """Returns the directories of `orders`, without the unique part of their names."""
    names = [name for name in world.node(number).disk.list_dir("/data") if name.startswith("orders")]
    return sorted(name.partition(".")[0] + ("-" + name.rpartition("-")[2] if "." in name else "") for name in names)


def delete(world: Replicated) -> None:
    request = DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name="orders")], timeout_ms=1000)
    assert world.client.call("broker1", request, DeleteTopicsResponse).responses[0].error_code == 0


def come_back(world: Replicated) -> None:
    world.cluster.allow_start("broker3")
    world.run_until(lambda: not world.controller.metadata.image.brokers[3].fenced, "it is back")
    world.run_for(500)


def test_the_log_of_a_topic_that_was_deleted_meanwhile_is_set_aside() -> None:
    """The directory is renamed to `-stray` and kept for the operator, as with Kafka."""
    world = rig()
    delete(world)
    come_back(world)
    assert directories(world, 3) == ["orders-0-stray"]
    assert world.broker(3).logs.get(("orders", 0)) is None  # type: ignore[arg-type]
    world.run_for(120_000)
    world.cluster.prevent_start("broker3")
    world.node(3).kill()
    come_back(world)
    assert directories(world, 3) == ["orders-0-stray"]
    assert directories(world, 1) == [], "where it was deleted while the broker served it is gone"


def test_the_log_of_a_topic_that_was_made_anew_meanwhile_is_set_aside() -> None:
    world = rig()
    delete(world)
    world.create_topic("orders", [[1, 2, 3]], min_insync_replicas="2")
    world.run_for(100)
    assert world.produce(b"new") == (0, 0)
    come_back(world)
    world.await_isr([1, 2, 3])
    assert directories(world, 3) == ["orders-0", "orders-0-stray"]
    world.await_equal()
    assert world.values(3) == [b"new"]


def test_the_log_of_a_replica_that_was_moved_meanwhile_is_set_aside() -> None:
    world = rig()
    partition = AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=0, replicas=[1, 2])
    topic = AlterPartitionReassignmentsRequest.ReassignableTopic(name="orders", partitions=[partition])
    request = AlterPartitionReassignmentsRequest(topics=[topic], timeout_ms=1000)
    answer = world.client.call("broker1", request, AlterPartitionReassignmentsResponse)
    assert answer.responses[0].partitions[0].error_code == 0
    world.run_until(lambda: world.image().replicas == (1, 2), "it is moved")
    come_back(world)
    assert directories(world, 3) == ["orders-0-stray"]


def test_a_log_of_this_broker_is_not_stray() -> None:
    world = rig()
    come_back(world)
    world.await_isr([1, 2, 3])
    assert directories(world, 3) == ["orders-0"]
