"""The controller of ZooKeeper mode among brokers without logs: activation, brokers that come and go, topics."""

from __future__ import annotations

from tests.support.zookeeper_controllers import Cluster

from barnabas.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from barnabas.protocol.messages.update_metadata import UpdateMetadataRequest


def test_the_first_broker_is_the_controller() -> None:
    cluster = Cluster(0, 1, 2)
    assert cluster.controller.leader_id == 0
    assert cluster.controller.controller_epoch == 1
    assert [broker.controller.leader_id for broker in cluster.brokers.values()] == [0, 0, 0]
    assert cluster.exists("/feature")


def test_a_topic_made_by_a_tool_gets_its_states() -> None:
    cluster = Cluster(0, 1, 2)
    cluster.create_topic("orders", (0, 1, 2), (1, 2, 0), (2, 0, 1))
    cluster.settle()
    assert [cluster.leader("orders", index) for index in range(3)] == [0, 1, 2]
    assert cluster.state("orders", 1).isr == (1, 2, 0)
    for broker in cluster.brokers.values():
        assert sorted(broker.roles) == [("orders", 0), ("orders", 1), ("orders", 2)]
        assert all(role.is_new for role in broker.roles.values())


def test_a_broker_that_dies_leaves_isrs_and_leaderships() -> None:
    """Golden 04: the leader epoch rises also where the broker only followed."""
    cluster = Cluster(0, 1, 2)
    cluster.create_topic("orders", (0, 1, 2), (1, 2, 0), (2, 0, 1))
    cluster.settle()
    cluster.kill(1)
    cluster.settle()
    assert [cluster.state("orders", index).isr for index in range(3)] == [(0, 2), (2, 0), (2, 0)]
    assert [cluster.leader("orders", index) for index in range(3)] == [0, 2, 2]
    assert [cluster.state("orders", index).leader_epoch for index in range(3)] == [1, 1, 1]
    assert [role.leader_epoch for role in cluster.brokers[2].roles.values()] == [1, 1, 1]


def test_another_broker_succeeds_the_controller() -> None:
    cluster = Cluster(0, 1, 2)
    cluster.create_topic("orders", (0, 1, 2), (1, 2, 0))
    cluster.settle()
    cluster.kill(0)
    cluster.settle()
    assert cluster.controller.controller_epoch == 2
    assert [cluster.state("orders", index).isr for index in range(2)] == [(1, 2), (1, 2)]
    assert [cluster.state("orders", index).leader_epoch for index in range(2)] == [1, 1]


def test_brokers_know_each_other_before_their_first_role() -> None:
    """G40: a controller's first request is UpdateMetadata with the brokers, for new brokers with all partitions."""
    cluster = Cluster(0, 1)
    cluster.create_topic("orders", (0, 1), (2, 0))
    cluster.settle()
    joined = cluster.start(2)
    cluster.settle()
    first, second = joined.requests[:2]
    assert isinstance(first, UpdateMetadataRequest)
    assert [row.partition_index for topic in first.topic_states for row in topic.partition_states] == [0, 1]
    assert sorted(broker.id for broker in first.live_brokers) == [0, 1, 2]
    assert isinstance(second, LeaderAndIsrRequest)
    requests = cluster.brokers[1].requests
    named = next(index for index, each in enumerate(requests) if isinstance(each, LeaderAndIsrRequest))
    assert any(isinstance(each, UpdateMetadataRequest) for each in requests[:named])


def test_a_partition_without_a_live_replica_waits_for_one() -> None:
    """Golden 12: it has no state znode and is in no request."""
    cluster = Cluster(0, 1)
    cluster.create_topic("solo", (0,), (5,))
    cluster.settle()
    assert cluster.leader("solo", 0) == 0
    assert not cluster.exists("/brokers/topics/solo/partitions/1")
    cluster.start(5)
    cluster.settle()
    assert cluster.leader("solo", 1) == 5


def test_the_last_member_stays_in_the_isr_and_leads_when_it_is_back() -> None:
    """Golden 13 and 15."""
    cluster = Cluster(0, 1)
    cluster.create_topic("solo", (1,))
    cluster.settle()
    cluster.kill(1)
    cluster.settle()
    assert cluster.state("solo", 0)[:3] == (-1, 1, (1,))
    cluster.start(1)
    cluster.settle()
    assert cluster.state("solo", 0)[:3] == (1, 2, (1,))
    assert cluster.brokers[1].roles["solo", 0].leader == 1
