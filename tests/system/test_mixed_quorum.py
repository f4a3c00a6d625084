"""Nodes of Barnabas and of Apache Kafka 4.1.0 in one KRaft cluster: each kind serves as broker under the other's
controllers, and as voter next to the other's voters. Clients write and read while nodes are killed; nothing is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
)
from tests.support.apache_nodes import ApacheNode
from tests.support.process_nodes import Node, Nodes, call, until
from tests.support.survival import Load, admin, create_topic, in_sync, known_leader_of, leader_of, partitions_of

from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)

BROKERS = (1, 2, 3)
WAIT_S = 120.0
SETTINGS = {
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "share.coordinator.state.topic.replication.factor": "3",
    "group.initial.rebalance.delay.ms": "0",
    "default.replication.factor": "3",
    "broker.session.timeout.ms": "6000",
    "auto.create.topics.enable": "false",
}
OURS, THEIRS = Node, ApacheNode
Kinds = Mapping[int, type[Node]]
Start = Callable[[Mapping[int, str], Kinds], Nodes]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Start]:
    """Starts clusters of nodes of both kinds; the logs are printed if the test fails."""
    started: list[Nodes] = []

    def start(roles: Mapping[int, str], kinds: Mapping[int, type[Node]]) -> Nodes:
        nodes = Nodes(tmp_path, roles, properties=SETTINGS, makers=kinds)
        started.append(nodes)
        return nodes.start()

    yield start
    for nodes in started:
        nodes.close()
        for node in nodes.all:
            print(f"--- node {node.node_id} ({type(node).__name__})\n{node.log[-6000:]}")


def await_isr(nodes: Nodes, topic: str = "orders") -> None:
    until(f"all are in sync in {topic}", lambda: in_sync(nodes, topic) == set(BROKERS), WAIT_S)


def await_leaders(nodes: Nodes, excluded: set[int]) -> None:
    def moved() -> bool:
        return all(leader_of(nodes, "orders", partition) not in excluded for partition in range(3))

    until(f"leaders other than {excluded}", moved, WAIT_S)


@contextmanager
def killed(nodes: Nodes, node_id: int) -> Iterator[None]:
    """Kills the node, and starts it again at the end."""
    nodes[node_id].kill()
    yield
    nodes[node_id].launch(nodes.cluster_id)
    nodes[node_id].wait()


def administer(nodes: Nodes, topic: str) -> None:
    """Runs the requests that a controller decides, and waits for the effect of each on the brokers."""
    client = admin(nodes)
    resource = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[ConfigEntry("retention.ms", "86400000", incremental_operation=AlterConfigOpType.SET)],
    )
    for future in client.incremental_alter_configs([resource]).values():
        future.result(WAIT_S)

    def configured() -> bool:
        (described,) = client.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
        return bool(described.result(WAIT_S)["retention.ms"].value == "86400000")

    until("the setting is described", configured, WAIT_S)
    before = len(partitions_of(nodes, topic))
    for future in client.create_partitions([NewPartitions(topic, before + 1)]).values():
        future.result(WAIT_S)
    until("the partition is there", lambda: leader_of(nodes, topic, before) >= 0, WAIT_S)
    await_isr(nodes, topic)
    reassign(nodes, topic, before, [2, 3])
    until("the partition has moved", lambda: set(partitions_of(nodes, topic)[before].replicas) == {2, 3}, WAIT_S)
    reassign(nodes, topic, before, [3, 2, 1])
    until(
        "the partition has three again", lambda: set(partitions_of(nodes, topic)[before].isrs) == set(BROKERS), WAIT_S
    )
    elect_preferred(nodes, topic, before)


def elect_preferred(nodes: Nodes, topic: str, partition: int) -> None:
    preferred = partitions_of(nodes, topic)[partition].replicas[0]
    client = admin(nodes)  # a client that is not referenced does not answer
    client.elect_leaders(ElectionType.PREFERRED, [TopicPartition(topic, partition)]).result(WAIT_S)
    until("the preferred replica leads", lambda: leader_of(nodes, topic, partition) == preferred, WAIT_S)


def reassign(nodes: Nodes, topic: str, partition: int, replicas: list[int]) -> None:
    row = AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=partition, replicas=replicas)
    entry = AlterPartitionReassignmentsRequest.ReassignableTopic(name=topic, partitions=[row])
    request = AlterPartitionReassignmentsRequest(timeout_ms=60_000, topics=[entry])
    answer = call(nodes[BROKERS[0]].address, request, 0, AlterPartitionReassignmentsResponse)
    assert [each.error_code for each in answer.responses[0].partitions] == [0], answer


@pytest.mark.full
@pytest.mark.parametrize(
    "kinds",
    [
        pytest.param({1: OURS, 2: OURS, 3: THEIRS, 4: THEIRS}, id="under-their-controller"),
        pytest.param({1: OURS, 2: THEIRS, 3: THEIRS, 4: OURS}, id="under-our-controller"),
    ],
)
def test_brokers_of_both_kinds_under_one_controller(cluster: Start, kinds: Kinds, tmp_path: Path) -> None:
    """Each broker is killed and started again while clients write and read, then the controller."""
    nodes = cluster({1: "broker", 2: "broker", 3: "broker", 4: "controller"}, kinds)
    create_topic(nodes, "orders", 3)
    with Load(nodes, tmp_path, {"orders": 3}) as load:
        for broker in BROKERS:
            with killed(nodes, broker):
                load.go_on(200)
                await_leaders(nodes, {-1, broker})
            await_isr(nodes)
            load.go_on(200)
        with killed(nodes, 4):
            load.go_on(200)
        load.go_on(200)
        create_topic(nodes, "moved", 2)
        administer(nodes, "moved")
        for partition in range(3):
            elect_preferred(nodes, "orders", partition)
        load.go_on(200)
    load.judge()


@pytest.mark.full
@pytest.mark.parametrize(
    "kinds",
    [
        pytest.param({1: OURS, 2: THEIRS, 3: THEIRS}, id="one-of-ours"),
        pytest.param({1: OURS, 2: OURS, 3: THEIRS}, id="one-of-theirs"),
    ],
)
def test_voters_of_both_kinds(cluster: Start, kinds: Kinds, tmp_path: Path) -> None:
    """Three nodes, each a broker and a voter: the active controller is killed four times, so that both kinds lead."""
    nodes = cluster(dict.fromkeys(BROKERS, "broker,controller"), kinds)
    create_topic(nodes, "orders", 3)
    leaders: list[int] = []
    with Load(nodes, tmp_path, {"orders": 3}) as load:
        for turn in range(4):
            leader = nodes.leader()
            leaders.append(leader)
            with killed(nodes, leader):
                assert nodes.leader(set(BROKERS) - {leader}) != leader
                load.go_on(200)
            await_isr(nodes)
            create_topic(nodes, f"topic-{turn}", 2)
            administer(nodes, f"topic-{turn}")
            load.go_on(200)
        known_leader_of(nodes, "orders")
    load.judge()
    assert {kinds[leader] for leader in leaders} == {OURS, THEIRS}, leaders
