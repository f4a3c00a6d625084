"""Reassignments that tools request by the znode `/admin/reassign_partitions`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from tests.support.zookeeper_controllers import Cluster

from barnabas.common.errors import ErrorCode
from barnabas.common.types import TopicPartition
from barnabas.controller.requests import reassignments
from barnabas.controller.zookeeper import admin_znode_requests
from barnabas.metadata.topics import PartitionImage
from barnabas.protocol.messages.alter_partition import AlterPartitionRequest
from barnabas.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from barnabas.znodes import admin_znodes, paths
from barnabas.znodes.admin_znodes import encode_reassignment
from barnabas.zookeeper.client.store import MultiReply
from barnabas.zookeeper.wire.operations import Part


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(0, 1, 2)
    cluster.create_topic("orders", (0, 1, 2), (1, 2, 0), (2, 0, 1))
    cluster.settle()
    return cluster


def test_a_reassignment_by_znode(cluster: Cluster) -> None:
    """Golden 30: the znode is rewritten with what is left, and deleted in the end."""
    cluster.create_topic("duo", (1,), (2,))
    cluster.settle()
    targets = {TopicPartition("duo", 0): [2], TopicPartition("duo", 1): [1], TopicPartition("none", 3): [1]}
    cluster.tree.set(paths.REASSIGN_PARTITIONS, encode_reassignment(targets))
    cluster.settle()
    assert cluster.alter_isr("duo", 0, (1, 2)) in (ErrorCode.NONE, ErrorCode.NEW_LEADER_ELECTED)
    left = json.loads(cluster.tree.content(paths.REASSIGN_PARTITIONS).data or b"")  # type: ignore[union-attr]
    assert left["partitions"] == [{"topic": "duo", "partition": 1, "replicas": [1]}]
    assert cluster.alter_isr("duo", 1, (2, 1)) in (ErrorCode.NONE, ErrorCode.NEW_LEADER_ELECTED)
    assert not cluster.exists(paths.REASSIGN_PARTITIONS)
    assert [cluster.state("duo", index)[:3] for index in range(2)] == [(2, 2, (2,)), (1, 2, (1,))]
    assert [cluster.assignment("duo").partitions[index].replicas for index in range(2)] == [(2,), (1,)]


def test_many_moves_by_znode_are_decided_in_portions_and_rewrite_the_znode_rarely(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a decision about all partitions nor a rewritten list for each of them holds the controller's turns."""
    count = 1_200
    cluster.create_topic("large", *[(0, 1)] * count)
    cluster.settle()
    portions: list[int] = []
    decide = reassignments.alter_reassignments

    def noted(view: Any, request: AlterPartitionReassignmentsRequest, actor: str) -> Any:
        portions.append(sum(len(topic.partitions) for topic in request.topics))
        return decide(view, request, actor)

    monkeypatch.setattr(reassignments, "alter_reassignments", noted)
    targets = {TopicPartition("large", index): [1, 2] for index in range(count)}
    cluster.tree.set(paths.REASSIGN_PARTITIONS, encode_reassignment(targets))
    cluster.settle()
    assert sum(portions) == count
    assert max(portions) < count
    image = cluster.controller.image.topics_by_name["large"]
    isr = [AlterPartitionRequest.BrokerState(broker_id=member) for member in (0, 1, 2)]
    rows = [
        AlterPartitionRequest.PartitionData(
            partition_index=index,
            leader_epoch=partition.leader_epoch,
            new_isr_with_epochs=isr,
            partition_epoch=partition.partition_epoch,
        )
        for index, partition in enumerate(image.partitions[:-1])
    ]
    topic = AlterPartitionRequest.TopicData(topic_id=image.topic_id, partitions=rows)
    request = AlterPartitionRequest(broker_id=0, broker_epoch=cluster.brokers[0].epoch, topics=[topic])
    cluster.ask(cluster.controller.alter_partition, request)
    left = cluster.tree.content(paths.REASSIGN_PARTITIONS)
    assert left is not None
    assert [each["partition"] for each in json.loads(left.data or b"")["partitions"]] == [count - 1]
    assert left.version <= 8


def test_the_end_of_many_moves_looks_at_the_partitions_that_changed(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Moves in progress are neither checked at every change, nor read again after the controller's own write."""
    count = 1_200
    cluster.create_topic("large", *[(0, 1)] * count)
    cluster.settle()
    targets = {TopicPartition("large", index): [1, 2] for index in range(count)}
    cluster.tree.set(paths.REASSIGN_PARTITIONS, encode_reassignment(targets))
    cluster.settle()
    looks: list[object] = []
    reads: list[object] = []
    look, read = reassignments.is_in_progress, admin_znodes.reassignment_in_portions

    def looked(partition: PartitionImage) -> bool:
        looks.append(partition)
        return look(partition)

    def reading(path: str, data: Any) -> Any:
        reads.append(data)
        return read(path, data)

    monkeypatch.setattr(admin_znode_requests, "is_in_progress", looked)
    monkeypatch.setattr(admin_znode_requests, "reassignment_in_portions", reading)
    for index in range(20):
        cluster.alter_isr("large", index, (0, 1, 2))
    left = json.loads(cluster.tree.content(paths.REASSIGN_PARTITIONS).data or b"")  # type: ignore[union-attr]
    assert [each["partition"] for each in left["partitions"]] == [*range(20, count)]
    assert len(looks) == 20
    assert not reads


def test_an_edit_of_the_znode_while_it_is_read_takes_effect(cluster: Cluster) -> None:
    """A long list is decoded in several turns; the list that replaces it meanwhile is the one that counts."""
    count = 2_500
    cluster.create_topic("large", *[(0, 1)] * count)
    cluster.settle()
    targets = {TopicPartition("large", index): [1, 2] for index in range(count)}
    store = cluster.brokers[0].store
    for content in (targets, {TopicPartition("orders", 0): [1, 2]}):
        cluster.tree.set(paths.REASSIGN_PARTITIONS, encode_reassignment(content))
        store.answer_all()
    cluster.settle()
    assert cluster.assignment("orders").partitions[0].replicas == (1, 2)
    assert not any(each.adding for each in cluster.assignment("large").partitions.values())


def test_an_operator_who_asks_for_moves_again_that_were_done(cluster: Cluster) -> None:
    """Content that the controller itself wrote earlier is a new request when an operator writes it."""
    cluster.create_topic("duo", (1,), (2,))
    cluster.settle()
    cluster.tree.set(
        paths.REASSIGN_PARTITIONS,
        encode_reassignment({TopicPartition("duo", 0): [2], TopicPartition("orders", 0): [0, 1, 2], **_of_duo(1, 1)}),
    )
    cluster.settle()
    own = cluster.tree.content(paths.REASSIGN_PARTITIONS)
    assert own is not None
    assert json.loads(own.data or b"")["partitions"] != []
    assert cluster.alter_isr("duo", 0, (1, 2)) in (ErrorCode.NONE, ErrorCode.NEW_LEADER_ELECTED)
    cluster.tree.set(paths.REASSIGN_PARTITIONS, encode_reassignment({**_of_duo(0, 1), **_of_duo(1, 1)}))
    cluster.settle()
    assert cluster.alter_isr("duo", 0, (2, 1)) in (ErrorCode.NONE, ErrorCode.NEW_LEADER_ELECTED)
    cluster.tree.set(paths.REASSIGN_PARTITIONS, own.data)
    cluster.settle()
    assert cluster.assignment("duo").partitions[0].adding == (2,)


@pytest.mark.parametrize("is_at_once", [False, True])
def test_the_last_moves_that_were_left_can_be_asked_for_again(cluster: Cluster, is_at_once: bool) -> None:
    """The controller wrote the same content, and deleted the znode since; possibly it never reads that it is gone."""
    cluster.create_topic("duo", (1,), (2,))
    cluster.settle()
    cluster.tree.set(paths.REASSIGN_PARTITIONS, encode_reassignment({**_of_duo(0, 2), **_of_duo(1, 1)}))
    cluster.settle()
    cluster.alter_isr("duo", 0, (1, 2))
    own = cluster.tree.content(paths.REASSIGN_PARTITIONS)
    assert own is not None
    apply = cluster.tree.apply
    again: list[bytes | None] = [own.data]

    def with_operator(parts: Sequence[Part], session_id: int) -> MultiReply:
        reply = apply(parts, session_id)
        if again and not cluster.exists(paths.REASSIGN_PARTITIONS):
            cluster.tree.set(paths.REASSIGN_PARTITIONS, again.pop())
        return reply

    if is_at_once:
        cluster.tree.apply = with_operator  # type: ignore[method-assign]
    cluster.alter_isr("duo", 1, (2, 1))
    if not is_at_once:
        cluster.tree.set(paths.REASSIGN_PARTITIONS, again.pop())
        cluster.settle()
    assert not again
    assert not cluster.exists(paths.REASSIGN_PARTITIONS), "there is nothing left to move"


def test_moves_of_a_topic_that_an_operator_removes_are_done(cluster: Cluster) -> None:
    cluster.create_topic("duo", (1,), (2,))
    cluster.settle()
    targets = {**_of_duo(0, 2), TopicPartition("orders", 0): [0, 1]}
    cluster.tree.set(paths.REASSIGN_PARTITIONS, encode_reassignment(targets))
    cluster.settle()
    for path in sorted((path for path in cluster.tree.nodes if path.startswith(paths.topic("duo"))), reverse=True):
        cluster.tree.delete(path)
    cluster.settle()
    assert not cluster.exists(paths.REASSIGN_PARTITIONS)
    assert cluster.assignment("orders").partitions[0] == ((0, 1), (), ())


def _of_duo(partition: int, broker_id: int) -> dict[TopicPartition, list[int]]:
    return {TopicPartition("duo", partition): [broker_id]}
