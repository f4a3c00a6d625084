"""Requests of a controller about thousands of partitions: no slice is long, and a later controller ends the rest."""

from __future__ import annotations

import gc
from collections.abc import Generator, Iterator
from time import thread_time_ns
from typing import Any

import pytest
from tests.support.core_speed import usual_ms
from tests.unit.broker.test_controller_feed import EPOCH, ID, Node, role, state

from barnabas.broker.requests.steps import Steps
from barnabas.common.errors import ErrorCode
from barnabas.controller.zookeeper.slices import PARTITIONS_AT_ONCE
from barnabas.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from barnabas.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from barnabas.protocol.messages.update_metadata import UpdateMetadataRequest
from barnabas.replication import image_slices

SLICE_MS_MAX = 50
HEADER: dict[str, Any] = {"controller_id": 3, "controller_epoch": 1, "broker_epoch": EPOCH}


@pytest.fixture
def node() -> Iterator[Node]:
    gc.disable()
    yield Node()
    gc.enable()


def update_of(count: int, leader: int = 1, **header: int) -> UpdateMetadataRequest:
    rows = [UpdateMetadataRequest.UpdateMetadataPartitionState(**state(leader, index=index)) for index in range(count)]
    topic = UpdateMetadataRequest.UpdateMetadataTopicState(topic_name="t", topic_id=ID, partition_states=rows)
    return UpdateMetadataRequest(topic_states=[topic], live_brokers=[], **{**HEADER, **header})


def roles_of(count: int, **header: int) -> LeaderAndIsrRequest:
    rows = [LeaderAndIsrRequest.LeaderAndIsrPartitionState(**role(2, index=index)) for index in range(count)]
    topic = LeaderAndIsrRequest.LeaderAndIsrTopicState(topic_name="t", topic_id=ID, partition_states=rows)
    return LeaderAndIsrRequest(topic_states=[topic], **{**HEADER, **header})


def stops_of(count: int) -> StopReplicaRequest:
    rows = [
        StopReplicaRequest.StopReplicaPartitionState(partition_index=index, leader_epoch=-2, delete_partition=True)
        for index in range(count)
    ]
    topic = StopReplicaRequest.StopReplicaTopicState(topic_name="t", partition_states=rows)
    return StopReplicaRequest(topic_states=[topic], **HEADER)


def sliced(node: Node, work: Generator[int, None, Any]) -> tuple[Any, int, float]:
    """Returns the response, the number of slices, and the longest one in milliseconds of CPU on a usual core. The turns
    between them are those of the replicas.
    """
    slices, longest_ms = 0, 0.0
    while True:
        begin_ns = thread_time_ns()
        try:
            next(work)
        except StopIteration as end:
            return end.value, slices + 1, max(longest_ms, usual_ms((thread_time_ns() - begin_ns) / 1e6))
        slices += 1
        longest_ms = max(longest_ms, usual_ms((thread_time_ns() - begin_ns) / 1e6))
        node.host.time.run_for(1)


def test_metadata_of_ten_thousand_partitions(node: Node) -> None:
    response, slices, longest_ms = sliced(node, node.feed.update_metadata(update_of(10_000)))
    assert response.error_code == 0
    assert slices == 10_000 // PARTITIONS_AT_ONCE
    assert longest_ms < SLICE_MS_MAX
    topic = node.store.image.topics_by_id[ID]
    assert [partition.leader for partition in topic.partitions] == [1] * 10_000

    response, slices, _ = sliced(node, node.feed.update_metadata(update_of(10_000, leader=-2)))
    assert (response.error_code, slices) == (0, 10_000 // PARTITIONS_AT_ONCE)
    assert ID not in node.store.image.topics_by_id


def test_roles_and_deletions_of_two_thousand_replicas(node: Node) -> None:
    response, slices, longest_ms = sliced(node, node.feed.leader_and_isr(roles_of(2_000), 7))
    assert slices >= 2_000 // PARTITIONS_AT_ONCE
    assert longest_ms < SLICE_MS_MAX
    rows = response.topics[0].partition_errors
    assert [(row.partition_index, row.error_code) for row in rows] == [(index, 0) for index in range(2_000)]
    assert node.partition(index=1_999).leader_epoch == 0

    response, slices, longest_ms = sliced(node, node.feed.stop_replica(stops_of(2_000)))
    assert slices == 2_000 // PARTITIONS_AT_ONCE
    assert longest_ms < SLICE_MS_MAX
    assert [row.error_code for row in response.partition_errors] == [0] * 2_000
    assert node.replicas.find("t", 1_999) is None


def test_a_deletion_follows_the_roles(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller has the answer, and deletes the same replicas. On a slow disk a turn opens few logs: roles that
    were assigned after the deletion created the logs again.
    """
    monkeypatch.setattr(image_slices, "_STEPS_AT_ONCE", 10)
    count = 10 * PARTITIONS_AT_ONCE
    steps = Steps(node.host.timers, node.host.clock)
    assigned: list[int] = []
    stopped: list[StopReplicaResponse] = []

    def on_roles(response: LeaderAndIsrResponse) -> None:
        assigned.append(sum(partition.leader_epoch == 0 for partition in node.replicas.partitions()))
        steps.start(node.feed.stop_replica(stops_of(count)), stopped.append)

    steps.start(node.feed.leader_and_isr(roles_of(count), 7), on_roles)
    node.host.time.run_for(10_000)
    assert assigned == [count]
    assert [row.error_code for row in stopped[0].partition_errors] == [0] * count
    assert not [*node.replicas.partitions()]
    assert not [*node.logs]


def test_a_deletion_does_not_overtake_roles_without_an_answer(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection of the controller ended, and it asks over another one."""
    monkeypatch.setattr(image_slices, "_STEPS_AT_ONCE", 10)
    count = PARTITIONS_AT_ONCE
    assert node.update(state(2, 1, index=count - 1)) == 0
    steps = Steps(node.host.timers, node.host.clock)
    steps.start(node.feed.leader_and_isr(roles_of(count), 7), lambda response: None)
    steps.start(node.feed.stop_replica(stops_of(count)), lambda response: None)
    node.host.time.run_for(10_000)
    assert not [*node.replicas.partitions()]
    assert not [*node.logs]


def test_the_rest_is_refused_after_a_request_of_a_later_controller(node: Node) -> None:
    """G36: the earlier controller is believed by nobody, in the middle of its request either."""
    roles = node.feed.leader_and_isr(roles_of(3 * PARTITIONS_AT_ONCE), 7)
    metadata = node.feed.update_metadata(update_of(3 * PARTITIONS_AT_ONCE))
    next(roles)
    next(metadata)
    assert node.update(state(2, 1), controller_epoch=2) == 0
    assert sliced(node, roles)[0].error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    assert sliced(node, metadata)[0].error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    topic = node.store.image.topics_by_id[ID]
    assert len(topic.partitions) == PARTITIONS_AT_ONCE
    assert topic.partitions[0].leader == 2
