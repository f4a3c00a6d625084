"""Deletions whose replicas are asked in several steps, and one that is refused."""

from __future__ import annotations

import pytest
from tests.support.zookeeper_controllers import Cluster

from barnabas.controller.zookeeper.broker_requests import LEADER_DURING_DELETE
from barnabas.controller.zookeeper.slices import PARTITIONS_AT_ONCE
from barnabas.metadata.topics import NO_LEADER
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest
from barnabas.protocol.messages.stop_replica import StopReplicaRequest
from barnabas.protocol.messages.update_metadata import UpdateMetadataRequest
from barnabas.znodes import paths
from barnabas.zookeeper.wire.codes import OpCode

_COUNT = PARTITIONS_AT_ONCE + 20


def stopped(cluster: Cluster, broker_id: int) -> list[int]:
    """Returns the partitions that the broker was told to delete, in the order of the requests."""
    requests = [each for each in cluster.brokers[broker_id].requests if isinstance(each, StopReplicaRequest)]
    return [row.partition_index for each in requests for topic in each.topic_states for row in topic.partition_states]


def test_a_step_that_comes_late_does_not_delete_the_next_topic_of_the_name() -> None:
    cluster = Cluster(0, 1)
    cluster.create_topic("orders", *[(1,)] * _COUNT)
    cluster.settle()
    cluster.brokers[1].is_answering = False
    cluster.tree.set(paths.delete_topic("orders"), None)
    cluster.settle()
    # All replicas are asked. The broker's return asks again, and the second step comes when the topic is gone.
    office = cluster.controller._active
    assert office is not None
    deletions = office.deletions
    late = deletions._asking("orders", deletions._begun["orders"], 1)
    next(late)
    cluster.brokers[1].answer_again()
    cluster.settle()
    assert not cluster.exists(paths.topic("orders"))
    assert stopped(cluster, 1) == [*range(_COUNT), *range(PARTITIONS_AT_ONCE)]

    cluster.create_topic("orders", *[(1,)] * _COUNT)
    cluster.settle()
    assert list(late) == []
    cluster.settle()
    assert len(stopped(cluster, 1)) == _COUNT + PARTITIONS_AT_ONCE
    assert cluster.brokers[1].logs == {("orders", index) for index in range(_COUNT)}


def kinds_of(cluster: Cluster, broker_id: int) -> list[str]:
    """Returns the requests about a deletion that the broker got: each partition that leaves its metadata, and each
    whose log goes.
    """
    found: list[str] = []
    for each in cluster.brokers[broker_id].requests:
        if isinstance(each, StopReplicaRequest):
            found += [f"log {row.partition_index}" for topic in each.topic_states for row in topic.partition_states]
        elif isinstance(each, UpdateMetadataRequest):
            rows = [row for topic in each.topic_states for row in topic.partition_states]
            found += [f"metadata {row.partition_index}" for row in rows if row.leader == LEADER_DURING_DELETE]
    return found


def test_a_large_topic_leaves_the_metadata_before_its_logs_go() -> None:
    """The states, the metadata, the logs and the znodes go in portions, each kind after the one before."""
    cluster = Cluster(0, 1)
    count = 3 * PARTITIONS_AT_ONCE + 1
    cluster.create_topic("orders", *[(1, 0)] * count)
    cluster.settle()
    begin = len(cluster.tree.writes)
    answers: list[list[str]] = []
    state = DeleteTopicsRequest.DeleteTopicState(name="orders")
    request = DeleteTopicsRequest(topics=[state], timeout_ms=60_000)
    cluster.controller.delete_topics(request, lambda _: answers.append(kinds_of(cluster, 0)))
    cluster.settle()
    in_order = [f"{kind} {index}" for kind in ("metadata", "log") for index in range(count)]
    assert kinds_of(cluster, 0) == kinds_of(cluster, 1) == in_order
    assert answers, "the request is answered"
    assert answers[0][:count] == in_order[:count], "when the own broker knows that the topic is gone"
    writes = [(op, path) for op, path, _ in cluster.tree.writes[begin:] if path != paths.delete_topic("orders")]
    states = [(OpCode.SET_DATA, paths.state("orders", index)) for index in range(count)]
    assert writes[:count] == states
    assert {op for op, _ in writes[count:]} == {OpCode.DELETE}
    assert not cluster.exists(paths.topic("orders"))
    assert not cluster.exists(paths.delete_topic("orders"))


def test_a_broker_that_comes_back_during_a_deletion_gets_all_of_it() -> None:
    """Broker 2 has a replica and broker 3 has none; both were gone when the deletion was announced."""
    cluster = Cluster(0, 1, 2, 3)
    cluster.create_topic("orders", (1, 2))
    cluster.settle()
    cluster.kill(2)
    cluster.kill(3)
    cluster.settle()
    cluster.tree.set(paths.delete_topic("orders"), None)
    cluster.settle()
    assert cluster.exists(paths.topic("orders")), "its deletion waits for broker 2"
    cluster.start(3)
    cluster.settle()
    assert kinds_of(cluster, 3) == ["metadata 0"]
    cluster.start(2)
    cluster.settle()
    assert kinds_of(cluster, 2) == ["metadata 0", "log 0"]
    assert not cluster.exists(paths.topic("orders"))


def test_no_decision_follows_while_the_states_of_a_large_topic_go_offline() -> None:
    """A broker that dies meanwhile causes no election in the topic, and the next controller ends the deletion."""
    cluster = Cluster(0, 1, 2)
    count = 8 * PARTITIONS_AT_ONCE
    cluster.create_topic("orders", *[(2, 1)] * count)
    cluster.settle()
    cluster.tree.set(paths.delete_topic("orders"), None)
    cluster.brokers[0].store.answer_all()
    assert cluster.state("orders", 0).leader == NO_LEADER
    assert cluster.state("orders", count - 1).leader == 2
    cluster.kill(2)
    cluster.settle()
    assert {cluster.state("orders", index)[:2] for index in range(count)} == {(NO_LEADER, 1)}
    cluster.kill(0)
    cluster.settle()
    cluster.start(2)
    cluster.settle()
    assert not cluster.exists(paths.topic("orders"))
    assert not cluster.brokers[1].logs | cluster.brokers[2].logs


def test_a_deletion_that_may_not_be_is_refused_by_its_marker() -> None:
    cluster = Cluster(0, properties={"delete.topic.enable": "false"})
    cluster.create_topic("orders", (0,))
    cluster.tree.set("/admin/delete_topics/orders", None)
    cluster.settle()
    assert not cluster.exists("/admin/delete_topics/orders")
    assert cluster.leader("orders", 0) == 0


def test_a_topic_is_never_deleted_without_its_marker() -> None:
    """A tool creates a topic of a name whose marker exists already. Wherever the controller is in its handling of the
    marker, the topic either stays, or goes before the marker does: after a failover it must continue.
    """
    stayed: set[bool] = set()
    for answers in range(25):
        cluster = Cluster(0, 1)
        cluster.settle()
        begin = len(cluster.tree.writes)
        for name in (*(f"absent-{number}" for number in range(5)), "orders"):
            cluster.tree.set(paths.delete_topic(name), None)
        store = cluster.brokers[0].store
        for _ in range(answers):
            store.answer(min(store.waiting, 1))
        cluster.create_topic("orders", (0, 1), (1, 0))
        cluster.settle()
        assert not cluster.exists(paths.delete_topic("orders")), answers
        stays = cluster.exists(paths.topic("orders"))
        stayed.add(stays)
        if stays:
            assert [cluster.leader("orders", index) for index in range(2)] == [0, 1], answers
        else:
            deleted = [path for op, path, _ in cluster.tree.writes[begin:] if op is OpCode.DELETE]
            at = deleted.index
            assert at(paths.topic("orders")) < at(paths.delete_topic("orders")), answers
    assert stayed == {True, False}


@pytest.mark.parametrize("is_shared", [False, True])
def test_a_topic_made_under_the_name_of_one_that_is_being_deleted_is_led(is_shared: bool) -> None:
    """A tool creates the topic anew as soon as its znode is gone, wherever the controller is in the deletion. A foreign
    znode below the topic makes that several steps.
    """
    stayed = 0
    for answers in range(12):
        cluster = Cluster(0, 1)
        cluster.create_topic("orders", (0, 1), (1, 0))
        cluster.settle()
        if is_shared:
            cluster.tree.set(f"{paths.topic('orders')}/note", b"not ours")
        cluster.tree.set(paths.delete_topic("orders"), None)
        store = cluster.brokers[0].store
        while cluster.exists(paths.topic("orders")):
            store.answer(min(store.waiting, 1))
            cluster.time.run_for(0)
        for _ in range(answers):
            store.answer(min(store.waiting, 1))
            cluster.time.run_for(0)
        cluster.create_topic("orders", (1,))
        cluster.settle()
        assert not cluster.exists(paths.delete_topic("orders")), answers
        if cluster.exists(paths.topic("orders")):
            stayed += 1
            assert cluster.leader("orders", 0) == 1, answers
    assert stayed
