"""Preferred elections that tools request by the znode `/admin/preferred_replica_election`."""

from __future__ import annotations

from tests.support.zookeeper_controllers import Cluster

from barnabas.common.types import TopicPartition
from barnabas.controller.zookeeper.slices import PARTITIONS_AT_ONCE
from barnabas.znodes import paths
from barnabas.znodes.admin_znodes import encode_partitions


def test_many_preferred_elections_by_znode() -> None:
    """The elections are decided in portions, and the znode is deleted with the last one."""
    cluster = Cluster(0, 1, 2)
    count = 2 * PARTITIONS_AT_ONCE + 1
    cluster.create_topic("large", *[(2, 1)] * count)
    cluster.settle()
    cluster.kill(2)
    cluster.settle()
    cluster.start(2)
    cluster.settle()
    for index in range(count):
        cluster.alter_isr("large", index, (1, 2))
    places = [TopicPartition("large", index) for index in range(count)]
    cluster.tree.set(paths.PREFERRED_REPLICA_ELECTION, encode_partitions(places))
    cluster.settle()
    assert {cluster.leader("large", index) for index in range(count)} == {2}
    assert not cluster.exists(paths.PREFERRED_REPLICA_ELECTION)


def test_elections_that_were_asked_of_the_last_controller_are_decided_by_the_next_one() -> None:
    cluster = Cluster(0, 1, 2)
    cluster.create_topic("orders", (2, 1))
    cluster.settle()
    cluster.kill(2)
    cluster.settle()
    cluster.start(2)
    cluster.settle()
    cluster.alter_isr("orders", 0, (1, 2))
    cluster.crash(0)
    asked = [TopicPartition("orders", 0), TopicPartition("none", 7)]
    cluster.tree.set(paths.PREFERRED_REPLICA_ELECTION, encode_partitions(asked))
    assert cluster.leader("orders", 0) == 1
    cluster.brokers[0].store.expire()
    cluster.settle()
    assert cluster.controller.controller_epoch == 2
    assert cluster.leader("orders", 0) == 2
    assert not cluster.exists(paths.PREFERRED_REPLICA_ELECTION)
