"""Requests to the controller of ZooKeeper mode, and the znodes by which tools ask for the same."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.support.znode_memory import ZnodeMemory
from tests.support.zookeeper_controllers import Cluster

from barnabas.common.errors import ErrorCode
from barnabas.common.types import TopicPartition
from barnabas.controller.listener import CommitListener
from barnabas.controller.requests.result import Cause
from barnabas.controller.zookeeper.imbalance import imbalanced, rebalance
from barnabas.journal.causes import cause_of_change
from barnabas.metadata.image import MetadataDelta, MetadataImage
from barnabas.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from barnabas.protocol.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest
from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest
from barnabas.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from barnabas.protocol.messages.stop_replica import StopReplicaRequest
from barnabas.protocol.messages.update_metadata import UpdateMetadataRequest
from barnabas.znodes import paths
from barnabas.znodes.admin_znodes import encode_log_dir_event, encode_partitions, encode_reassignment

UNCLEAN = b'{"version":1,"config":{"unclean.leader.election.enable":"true"}}'


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(0, 1, 2)
    cluster.create_topic("orders", (0, 1, 2), (1, 2, 0), (2, 0, 1))
    cluster.settle()
    return cluster


def with_broker_back(cluster: Cluster, broker_id: int) -> None:
    """Kills a broker and starts it again, and lets it join the ISRs again."""
    cluster.kill(broker_id)
    cluster.settle()
    cluster.start(broker_id)
    cluster.settle()
    for index in range(3):
        isr = cluster.state("orders", index).isr
        assert cluster.alter_isr("orders", index, (*isr, broker_id)) == ErrorCode.NONE


def test_requests_that_wait_for_a_broker_are_counted(cluster: Cluster) -> None:
    """The one that is sent and not answered does not count, as with Kafka."""
    assert cluster.controller.gauges.queue_sizes() == {0: 0, 1: 0, 2: 0}
    cluster.brokers[1].is_answering = False
    for name in ("a", "b"):
        cluster.create_topic(name, (0,))
        cluster.settle()
    assert cluster.controller.gauges.queue_sizes() == {0: 0, 1: 1, 2: 0}
    cluster.brokers[1].answer_again()
    cluster.settle()
    assert cluster.controller.gauges.queue_sizes() == {0: 0, 1: 0, 2: 0}


# AlterPartition.


def test_the_leader_changes_its_isr_without_a_new_leader_epoch(cluster: Cluster) -> None:
    before = [len(broker.requests) for broker in cluster.brokers.values()]
    assert cluster.alter_isr("orders", 0, (0, 2)) == ErrorCode.NONE
    assert cluster.state("orders", 0)[:3] == (0, 0, (0, 2))
    for count, broker in zip(before, cluster.brokers.values(), strict=True):
        assert [type(each) for each in broker.requests[count:]] == [UpdateMetadataRequest]


def test_the_same_isr_change_twice_is_answered_twice(cluster: Cluster) -> None:
    """G39: the answer to the first was lost, so the second comes with the old partition epoch."""
    assert cluster.alter_isr("orders", 0, (0, 2), partition_epoch=0) == ErrorCode.NONE
    assert cluster.alter_isr("orders", 0, (0, 2), partition_epoch=0) == ErrorCode.NONE
    assert cluster.tree.content(paths.state("orders", 0)).version == 1  # type: ignore[union-attr]
    assert cluster.alter_isr("orders", 0, (0, 1), partition_epoch=0) == ErrorCode.INVALID_UPDATE_VERSION


def test_a_controller_behind_the_leader_says_so(cluster: Cluster) -> None:
    """G39: NOT_CONTROLLER, never FENCED: the leader looks for the controller that gave it this epoch."""
    assert cluster.alter_isr("orders", 0, (0, 2), leader_epoch=7) == ErrorCode.NOT_CONTROLLER
    assert cluster.alter_isr("orders", 0, (0, 2), partition_epoch=7) == ErrorCode.NOT_CONTROLLER


def test_no_dead_broker_joins_an_isr(cluster: Cluster) -> None:
    """G39."""
    cluster.kill(1)
    cluster.settle()
    assert cluster.alter_isr("orders", 0, (0, 2, 1)) == ErrorCode.INELIGIBLE_REPLICA


# Elections.


def test_a_preferred_election_by_request_and_by_znode(cluster: Cluster) -> None:
    """Goldens 06 and 09: the znode is deleted, and the next one is not missed."""
    with_broker_back(cluster, 1)
    assert cluster.leader("orders", 1) == 2
    request = ElectLeadersRequest(topic_partitions=None)
    cluster.ask(cluster.controller.replication.elect_leaders, request, actor="User:a")
    assert cluster.state("orders", 1)[:3] == (1, 2, (2, 0, 1))
    causes: list[Cause | None] = []
    cluster.controller.listen(CommitListener(lambda image: None, lambda delta, image, cause: causes.append(cause)))
    for _ in range(2):
        with_broker_back(cluster, 1)
        epoch = cluster.state("orders", 1).leader_epoch
        asked = encode_partitions([TopicPartition("orders", 1), TopicPartition("none", 0)])
        cluster.tree.set(paths.PREFERRED_REPLICA_ELECTION, asked)
        cluster.settle()
        assert cluster.state("orders", 1)[:2] == (1, epoch + 1)
        assert not cluster.exists(paths.PREFERRED_REPLICA_ELECTION)
        said = cause_of_change(causes[-1], MetadataDelta(MetadataImage())).text
        assert said == "a client of ZooKeeper requested a preferred election"


def test_an_unclean_election_on_request_and_by_configuration(cluster: Cluster) -> None:
    """Golden 16."""
    cluster.create_topic("duo", (1, 2))
    cluster.settle()
    cluster.kill(1)
    cluster.settle()
    cluster.kill(2)
    cluster.settle()
    cluster.start(1)
    cluster.settle()
    assert cluster.state("duo", 0)[:3] == (-1, 2, (2,))
    request = ElectLeadersRequest(
        election_type=1, topic_partitions=[ElectLeadersRequest.TopicPartitions(topic="duo", partitions=[0])]
    )
    cluster.ask(cluster.controller.replication.elect_leaders, request, actor="User:a")
    assert cluster.state("duo", 0) == (1, 3, (1,), cluster.controller.controller_epoch, 1)
    assert cluster.controller.unclean_election_count == 1
    cluster.kill(1)
    cluster.settle()
    cluster.start(2)
    cluster.settle()
    assert cluster.leader("duo", 0) == -1
    cluster.tree.set("/config/topics/duo", UNCLEAN)
    cluster.settle()
    assert cluster.state("duo", 0)[:3] == (2, 5, (2,))


def test_leaders_return_where_more_than_a_tenth_is_elsewhere() -> None:
    cluster = Cluster(0, 1, properties={"auto.leader.rebalance.enable": "true"})
    cluster.create_topic("few", (1, 0), (1, 0))
    cluster.settle()
    cluster.kill(1)
    cluster.settle()
    cluster.start(1)
    cluster.settle()
    for index in range(2):
        cluster.alter_isr("few", index, (0, 1))
    cluster.settle(4_900)
    assert [cluster.leader("few", index) for index in range(2)] == [0, 0]
    cluster.settle(200)
    assert [cluster.leader("few", index) for index in range(2)] == [1, 1]


def test_a_tenth_of_the_leaders_may_be_elsewhere() -> None:
    cluster = Cluster(0, 1)
    cluster.create_topic("many", *[(1, 0)] * 10)
    cluster.create_topic("one", (1, 0))
    cluster.settle()
    request = reassignment("one", 0, [0, 1])
    cluster.ask(cluster.controller.replication.alter_reassignments, request, actor="User:a")
    cluster.tree.set("/admin/preferred_replica_election", encode_partitions([TopicPartition("one", 0)]))
    cluster.settle()
    cluster.ask(cluster.controller.replication.alter_reassignments, reassignment("one", 0, [1, 0]), actor="User:a")
    assert cluster.leader("one", 0) == 0
    view = cluster.controller.view()
    assert imbalanced(view, 10) == []
    assert len(rebalance(view, imbalanced(view, 9)).records) == 1


# Topics.


def test_a_topic_by_request_is_led_when_the_answer_comes(cluster: Cluster) -> None:
    request = CreateTopicsRequest(
        topics=[CreateTopicsRequest.CreatableTopic(name="new", num_partitions=3, replication_factor=2)]
    )
    answers = []
    cluster.controller.create_topics(request, lambda response: answers.append((response, own_requests(cluster))))
    assert not answers
    cluster.settle()
    ((response, requests),) = answers
    assert [(row.name, row.error_code) for row in response.topics] == [("new", ErrorCode.NONE)]
    assert {cluster.leader("new", index) for index in range(3)} <= {0, 1, 2}
    shown = [row.topic_name for each in requests for row in getattr(each, "topic_states", [])]
    assert "new" in shown, "the own broker knows it"
    assert [row.error_code for row in cluster.ask(cluster.controller.create_topics, request).topics] == [
        ErrorCode.TOPIC_ALREADY_EXISTS
    ]


def own_requests(cluster: Cluster) -> list[object]:
    return list(cluster.brokers[cluster.controller.leader_id].requests)


def test_a_topic_that_another_made_at_the_same_time_exists_already(cluster: Cluster) -> None:
    request = CreateTopicsRequest(
        topics=[
            CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
            for name in ("theirs", "ours")
        ]
    )
    answers: list[CreateTopicsResponse] = []
    cluster.controller.create_topics(request, answers.append)
    cluster.create_topic("theirs", (2,), (1,))
    cluster.settle()
    codes = {row.name: row.error_code for row in answers[0].topics}
    assert codes == {"theirs": ErrorCode.TOPIC_ALREADY_EXISTS, "ours": ErrorCode.NONE}
    assert [cluster.leader("theirs", index) for index in range(2)] == [2, 1]


def test_partitions_by_request_and_by_znode(cluster: Cluster) -> None:
    """Golden 24."""
    request = CreatePartitionsRequest(
        timeout_ms=1_000,
        topics=[CreatePartitionsRequest.CreatePartitionsTopic(name="orders", count=4, assignments=None)],
    )
    response = cluster.ask(cluster.controller.create_partitions, request)
    assert [row.error_code for row in response.results] == [ErrorCode.NONE]
    assert cluster.leader("orders", 3) >= 0
    content = json.loads(cluster.tree.content("/brokers/topics/orders").data or b"")  # type: ignore[union-attr]
    content["partitions"]["4"] = [2, 1]
    cluster.tree.set("/brokers/topics/orders", json.dumps(content).encode())
    cluster.settle()
    assert cluster.state("orders", 4)[:3] == (2, 0, (2, 1))


# Reassignments.


def reassignment(name: str, index: int, target: list[int] | None) -> AlterPartitionReassignmentsRequest:
    row = AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=index, replicas=target)
    return AlterPartitionReassignmentsRequest(
        topics=[AlterPartitionReassignmentsRequest.ReassignableTopic(name=name, partitions=[row])]
    )


def test_a_reassignment_by_request(cluster: Cluster) -> None:
    """Goldens 27 and 28: the assignment has the target first; each step raises the leader epoch."""
    cluster.create_topic("duo", (1, 2))
    cluster.settle()
    cluster.ask(cluster.controller.replication.alter_reassignments, reassignment("duo", 0, [0, 1]), actor="User:a")
    assert cluster.assignment("duo").partitions[0] == ((0, 1, 2), (0,), (2,))
    assert cluster.state("duo", 0)[:3] == (1, 1, (1, 2))
    assert cluster.brokers[0].roles["duo", 0].is_new
    assert cluster.alter_isr("duo", 0, (1, 2, 0)) == ErrorCode.NONE
    assert cluster.assignment("duo").partitions[0] == ((0, 1), (), ())
    assert cluster.state("duo", 0)[:3] == (1, 2, (1, 0))
    assert ("duo", 0) not in cluster.brokers[2].logs
    assert ("duo", 0) not in cluster.brokers[2].roles
    (last,) = [each for each in cluster.brokers[2].requests if isinstance(each, StopReplicaRequest)]
    assert last.topic_states[0].partition_states[0].leader_epoch == 2


def test_a_reassignment_that_only_adds_reports_its_end(cluster: Cluster) -> None:
    """The end changes nothing but the lists, which brokers take in with a higher leader epoch only."""
    cluster.create_topic("solo", (1,))
    cluster.settle()
    cluster.ask(cluster.controller.replication.alter_reassignments, reassignment("solo", 0, [1, 2]), actor="User:a")
    assert list(cluster.brokers[1].roles["solo", 0].adding_replicas) == [2]
    assert cluster.alter_isr("solo", 0, (1, 2)) == ErrorCode.NONE
    assert list(cluster.brokers[1].roles["solo", 0].adding_replicas) == []
    assert cluster.state("solo", 0)[:3] == (1, 2, (1, 2))


def test_the_controller_does_not_read_again_what_it_wrote(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The image is ahead of each assignment that is read while more writes of the controller are under way."""
    cluster.create_topic("large", *[(0, 1)] * 900)
    cluster.settle()
    rows = [
        AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=index, replicas=[0, 2])
        for index in range(900)
    ]
    topic = AlterPartitionReassignmentsRequest.ReassignableTopic(name="large", partitions=rows)
    states: list[str] = []
    read = ZnodeMemory.read

    def noted(store: ZnodeMemory, path: str, *arguments: Any, **options: Any) -> None:
        if path.endswith("/state"):
            states.append(path)
        read(store, path, *arguments, **options)

    monkeypatch.setattr(ZnodeMemory, "read", noted)
    request = AlterPartitionReassignmentsRequest(topics=[topic])
    cluster.ask(cluster.controller.replication.alter_reassignments, request, actor="User:a")
    assert set(cluster.assignment("large").partitions.values()) == {((0, 2, 1), (2,), (1,))}
    assert not states


def test_a_topic_that_another_program_replaces_is_read(cluster: Cluster) -> None:
    """The new znode has a lower version than the one that the controller wrote."""
    cluster.create_topic("duo", (1, 2))
    cluster.settle()
    cluster.ask(cluster.controller.replication.alter_reassignments, reassignment("duo", 0, [2, 1]), actor="User:a")
    cluster.ask(cluster.controller.replication.alter_reassignments, reassignment("duo", 0, [0, 1]), actor="User:a")
    for path in sorted((each for each in cluster.tree.nodes if each.startswith(paths.topic("duo"))), reverse=True):
        cluster.tree.delete(path)
    cluster.create_topic("duo", (2,), (2,))
    cluster.settle()
    found = cluster.controller.image.topics_by_name["duo"]
    assert found.topic_id == cluster.assignment("duo").topic_id
    assert [partition.replicas for partition in found.partitions] == [(2,), (2,)]


@pytest.mark.parametrize("rounds", range(8))
def test_a_move_is_not_done_before_it_is_written(cluster: Cluster, rounds: int) -> None:
    """A decision that was made before the move is committed while the move is only proposed."""
    cluster.create_topic("duo", (1,))
    cluster.settle()
    cluster.create_topic("other", (0, 1))
    for number in range(60):
        if number == rounds:
            cluster.tree.set(paths.REASSIGN_PARTITIONS, encode_reassignment({TopicPartition("duo", 0): [2]}))
        for broker in cluster.brokers.values():
            if broker.has_work:
                broker.store.answer()
        cluster.time.run_for(0)
        assert cluster.exists(paths.REASSIGN_PARTITIONS) == (number >= rounds)
    cluster.alter_isr("duo", 0, (1, 2))
    assert not cluster.exists(paths.REASSIGN_PARTITIONS)


def test_a_reassignment_goes_on_under_the_next_controller(cluster: Cluster) -> None:
    cluster.create_topic("duo", (1,))
    cluster.settle()
    cluster.tree.set(paths.REASSIGN_PARTITIONS, encode_reassignment({TopicPartition("duo", 0): [2]}))
    cluster.settle()
    cluster.kill(0)
    cluster.settle()
    cluster.alter_isr("duo", 0, (1, 2))
    assert cluster.state("duo", 0)[0] == 2
    assert cluster.assignment("duo").partitions[0] == ((2,), (), ())
    assert not cluster.exists(paths.REASSIGN_PARTITIONS)


# Deletion.


def delete(cluster: Cluster, name: str) -> list[int]:
    request = DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name=name)], timeout_ms=1_000)
    return [row.error_code for row in cluster.ask(cluster.controller.delete_topics, request).responses]


def test_a_topic_is_deleted_by_request_and_by_marker(cluster: Cluster) -> None:
    """Golden 31."""
    assert delete(cluster, "orders") == [ErrorCode.NONE]
    assert not any("orders" in path for path in cluster.tree.nodes)
    assert not any(broker.logs for broker in cluster.brokers.values())
    assert delete(cluster, "orders") == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    cluster.create_topic("orders", (1,))
    cluster.settle()
    assert cluster.state("orders", 0)[:3] == (1, 0, (1,))
    cluster.tree.set("/admin/delete_topics/orders", None)
    cluster.tree.set("/admin/delete_topics/none", None)
    cluster.settle()
    assert not any("orders" in path or "none" in path for path in cluster.tree.nodes)


def test_a_deletion_waits_for_a_dead_replica_over_a_failover(cluster: Cluster) -> None:
    """G43, goldens 32 and 33: it blocks no other topic, nothing takes the name, and it ends when the broker is back."""
    cluster.create_topic("other", (1, 2))
    cluster.settle()
    cluster.kill(2)
    cluster.settle()
    assert delete(cluster, "orders") == [ErrorCode.NONE]
    assert cluster.exists("/admin/delete_topics/orders")
    assert [cluster.leader("orders", index) for index in range(3)] == [-1, -1, -1]
    assert not any(place[0] == "orders" for broker in (0, 1) for place in cluster.brokers[broker].logs)
    assert ("orders", 0) in cluster.brokers[2].logs
    assert cluster.controller.gauges.deletions() == (1, 1, 3, 3)
    assert cluster.brokers[1].controller.gauges.deletions() == (0, 0, 0, 0)
    request = CreateTopicsRequest(
        topics=[CreateTopicsRequest.CreatableTopic(name="orders", num_partitions=1, replication_factor=1)]
    )
    row = cluster.ask(cluster.controller.create_topics, request).topics[0]
    assert (row.error_code, row.error_message) == (
        ErrorCode.TOPIC_ALREADY_EXISTS,
        "Topic 'orders' is marked for deletion.",
    )
    cluster.kill(0)
    cluster.settle()
    assert cluster.leader("other", 0) == 1
    assert cluster.exists("/admin/delete_topics/orders")
    cluster.start(0)
    cluster.settle()
    assert cluster.exists("/admin/delete_topics/orders")
    cluster.start(2)
    cluster.settle()
    assert not any("orders" in path for path in cluster.tree.nodes)
    assert not any(place[0] == "orders" for broker in cluster.brokers.values() for place in broker.logs)


def test_a_deletion_waits_for_the_end_of_a_reassignment(cluster: Cluster) -> None:
    """G43."""
    cluster.create_topic("duo", (1,))
    cluster.settle()
    cluster.ask(cluster.controller.replication.alter_reassignments, reassignment("duo", 0, [2]), actor="User:a")
    cluster.tree.set("/admin/delete_topics/duo", None)
    cluster.settle()
    assert cluster.leader("duo", 0) == 1
    assert cluster.controller.gauges.deletions() == (1, 1, 2, 0)
    cluster.alter_isr("duo", 0, (1, 2))
    assert cluster.controller.gauges.deletions() == (0, 0, 0, 0)
    assert not any("duo" in path for path in cluster.tree.nodes)


def test_partitions_are_not_added_while_a_reassignment_runs(cluster: Cluster) -> None:
    """Kafka 3.9.1 refuses them, as the request and the end of the move write the same znode."""
    cluster.create_topic("duo", (1,))
    cluster.settle()
    cluster.ask(cluster.controller.replication.alter_reassignments, reassignment("duo", 0, [2]), actor="User:a")
    request = CreatePartitionsRequest(
        timeout_ms=1_000,
        topics=[CreatePartitionsRequest.CreatePartitionsTopic(name="duo", count=2, assignments=None)],
    )
    (row,) = cluster.ask(cluster.controller.create_partitions, request).results
    assert row.error_code == ErrorCode.REASSIGNMENT_IN_PROGRESS
    assert row.error_message == "A partition reassignment is in progress for the topic 'duo'."
    cluster.alter_isr("duo", 0, (1, 2))
    (row,) = cluster.ask(cluster.controller.create_partitions, request).results
    assert row.error_code == ErrorCode.NONE


# Brokers.


def test_a_controlled_shutdown_moves_what_it_can(cluster: Cluster) -> None:
    """Goldens 10 and 35: what nobody else can lead stays; the leader epoch rises everywhere."""
    cluster.create_topic("solo", (2,))
    cluster.settle()
    broker = cluster.brokers[2]
    request = ControlledShutdownRequest(broker_id=2, broker_epoch=broker.epoch)
    response = cluster.ask(cluster.controller.controlled_shutdown, request)
    assert isinstance(response, ControlledShutdownResponse)
    assert (response.error_code, response.remaining_partitions) == (ErrorCode.NONE, [])
    assert [cluster.state("orders", index).isr for index in range(3)] == [(0, 1), (1, 0), (0, 1)]
    assert [cluster.state("orders", index).leader_epoch for index in range(3)] == [1, 1, 1]
    assert cluster.leader("solo", 0) == 2
    stopped = [each for each in broker.requests if isinstance(each, StopReplicaRequest)]
    assert [row.delete_partition for each in stopped for row in each.topic_states[0].partition_states] == [False] * 3
    assert cluster.alter_isr("orders", 0, (0, 1, 2)) == ErrorCode.INELIGIBLE_REPLICA
    cluster.alter_isr("orders", 1, (1,))
    left: dict[int, list[tuple[str, int]]] = {}
    for other in (1, 0):
        asked = ControlledShutdownRequest(broker_id=other, broker_epoch=cluster.brokers[other].epoch)
        response = cluster.ask(cluster.controller.controlled_shutdown, asked)
        left[other] = [(row.topic_name, row.partition_index) for row in response.remaining_partitions]
    # Broker 1 still leads a partition without another ISR member. Broker 0 is the last one: nobody can take anything.
    assert left == {1: [("orders", 1)], 0: []}
    assert [cluster.leader("orders", index) for index in range(3)] == [0, 1, 0]
    late = ControlledShutdownRequest(broker_id=2, broker_epoch=broker.epoch - 1)
    assert cluster.ask(cluster.controller.controlled_shutdown, late).error_code == ErrorCode.STALE_BROKER_EPOCH


def test_a_controlled_shutdown_moves_leaderships_first(cluster: Cluster) -> None:
    """Clients wait for partitions that the broker leads, not for those that it follows."""
    cluster.create_topic("wide", *[(0, 2), (2, 0)] * 150)
    cluster.settle()
    broker, before = cluster.brokers[2], len(cluster.brokers[0].requests)
    earlier = len(broker.requests)
    request = ControlledShutdownRequest(broker_id=2, broker_epoch=broker.epoch)
    cluster.ask(cluster.controller.controlled_shutdown, request)
    moved = [
        row.partition_index
        for each in cluster.brokers[0].requests[before:]
        if isinstance(each, LeaderAndIsrRequest)
        for topic in each.topic_states
        if topic.topic_name == "wide"
        for row in topic.partition_states
    ]
    assert sorted(moved) == list(range(300))
    assert set(range(1, 300, 2)) <= set(moved[:200]), "the second portion of 100 partitions has the last of them"
    kinds = [type(each) for each in broker.requests[earlier:]]
    assert kinds.index(StopReplicaRequest) < max(i for i, kind in enumerate(kinds) if kind is LeaderAndIsrRequest), (
        "the broker stops fetching a portion before the next one is moved"
    )


def test_a_broker_that_bounced_is_handled_as_gone_and_back(cluster: Cluster) -> None:
    """G37: the same id under another czxid, seen in one look; what it was sent under the old one is void."""
    cluster.bounce(1)
    cluster.settle()
    assert [cluster.state("orders", index).isr for index in range(3)] == [(0, 2), (2, 0), (2, 0)]
    roles = cluster.brokers[1].roles
    assert [roles["orders", index].leader for index in range(3)] == [0, 2, 2]
    cluster.create_topic("solo", (1,))
    cluster.settle()
    assert cluster.leader("solo", 0) == 1


def test_a_failed_log_directory_moves_its_leaders(cluster: Cluster) -> None:
    broker = cluster.brokers[1]
    broker.failed = {("orders", 1), ("orders", 2)}
    path = f"{paths.LOG_DIR_EVENTS}/log_dir_event_0000000000"
    cluster.tree.set(path, encode_log_dir_event(1))
    cluster.settle()
    assert not cluster.exists(path)
    assert [cluster.state("orders", index).isr for index in range(3)] == [(0, 1, 2), (2, 0), (2, 0)]
    last = [each for each in cluster.brokers[0].requests if isinstance(each, UpdateMetadataRequest)][-1]
    shown = {row.partition_index: list(row.offline_replicas) for row in last.topic_states[0].partition_states}
    assert shown == {1: [1], 2: [1]}
    cluster.kill(1)
    cluster.settle()
    broker = cluster.start(1)
    cluster.settle()
    assert sorted(broker.roles) == [("orders", 0), ("orders", 1), ("orders", 2)]


def test_producer_ids_are_given_once(cluster: Cluster) -> None:
    """Golden 25: under the version of the znode."""
    given: list[tuple[int, int, int]] = []

    def reply(*block: int) -> None:
        given.append(block)  # type: ignore[arg-type]

    cluster.controller.allocate_producer_ids(1, cluster.brokers[1].epoch, reply)
    cluster.controller.allocate_producer_ids(2, cluster.brokers[2].epoch, reply)
    cluster.settle()
    assert given == [(0, 1000, ErrorCode.NONE), (1000, 1000, ErrorCode.NONE)]
    cluster.tree.set(paths.PRODUCER_ID_BLOCK, b'{"version":1,"broker":9,"block_start":"5000","block_end":"5999"}')
    cluster.controller.allocate_producer_ids(1, cluster.brokers[1].epoch, reply)
    cluster.settle()
    assert given[2] == (0, 0, ErrorCode.NOT_CONTROLLER)
    cluster.controller.allocate_producer_ids(1, cluster.brokers[1].epoch, reply)
    cluster.controller.allocate_producer_ids(1, 3, reply)
    cluster.settle()
    assert given[3:] in (
        [(6000, 1000, ErrorCode.NONE), (0, 0, ErrorCode.STALE_BROKER_EPOCH)],
        [(0, 0, ErrorCode.STALE_BROKER_EPOCH), (6000, 1000, ErrorCode.NONE)],
    )


def test_a_broker_that_is_not_the_controller_says_so(cluster: Cluster) -> None:
    other = cluster.brokers[1].controller
    request = CreateTopicsRequest(topics=[CreateTopicsRequest.CreatableTopic(name="x")])
    assert cluster.ask(other.create_topics, request).topics[0].error_code == ErrorCode.NOT_CONTROLLER
    shutdown = ControlledShutdownRequest(broker_id=2)
    assert cluster.ask(other.controlled_shutdown, shutdown).error_code == ErrorCode.NOT_CONTROLLER
    elect = ElectLeadersRequest(topic_partitions=None)
    assert cluster.ask(other.replication.elect_leaders, elect, actor="a").error_code == ErrorCode.NOT_CONTROLLER


def test_roles_are_never_given_by_an_isr_change_alone(cluster: Cluster) -> None:
    count = sum(isinstance(each, LeaderAndIsrRequest) for each in cluster.brokers[2].requests)
    for isr in ((0, 2), (0,), (0, 1)):
        cluster.alter_isr("orders", 0, isr)
    assert sum(isinstance(each, LeaderAndIsrRequest) for each in cluster.brokers[2].requests) == count
