"""Topics of thousands of partitions in ZooKeeper mode, whose znodes are read, compared, written and deleted in
portions.
"""

from __future__ import annotations

import pytest
from tests.support.zookeeper_controllers import Cluster

from barnabas.common.errors import ErrorCode
from barnabas.common.portions import PARTITIONS_IN_PORTION
from barnabas.controller.listener import CommitListener
from barnabas.metadata.image import MetadataImage
from barnabas.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from barnabas.znodes import paths
from barnabas.znodes.topic_znodes import ReplicaAssignment, TopicAssignment, encode_topic

COUNT = 2 * PARTITIONS_IN_PORTION + 500


def edit(cluster: Cluster, count: int, *replicas: int) -> None:
    """Replaces the assignment of the large topic, as a tool does."""
    topic_id = cluster.assignment("large").topic_id
    assignment = TopicAssignment(topic_id, {index: ReplicaAssignment(replicas) for index in range(count)})
    cluster.tree.set(paths.topic("large"), encode_topic(assignment))


def assigned(cluster: Cluster) -> set[tuple[int, ...]]:
    return {partition.replicas for partition in cluster.controller.image.topics_by_name["large"].partitions}


def test_a_controller_is_active_when_it_has_read_all_partitions() -> None:
    """The portions of a large topic delay the end of the activation, and none of its partitions is missing then."""
    cluster = Cluster(0, 1, 2)
    cluster.create_topic("large", *[(1, 2)] * COUNT)
    cluster.settle()
    found: list[list[int]] = []

    def on_active(image: MetadataImage) -> None:
        found.append([partition.leader for partition in image.topics_by_name["large"].partitions])

    cluster.brokers[1].controller.listen(CommitListener(on_active, lambda *_: None))
    cluster.brokers[2].controller.listen(CommitListener(on_active, lambda *_: None))
    cluster.kill(0)
    cluster.settle()
    assert found == [[1] * COUNT]


def test_an_assignment_that_is_replaced_while_it_is_decoded() -> None:
    """The last content counts: that of the first edit is not taken when its portions end later."""
    cluster = Cluster(0, 1, 2)
    cluster.create_topic("large", *[(0, 1)] * COUNT)
    cluster.settle()
    active = cluster.brokers[0].store
    for count, replicas in ((COUNT, (0, 1, 2)), (COUNT + 1, (1, 0))):
        edit(cluster, count, *replicas)
        active.answer_all()
    cluster.settle()
    assert assigned(cluster) == {(1, 0)}
    assert len(cluster.controller.image.topics_by_name["large"].partitions) == COUNT + 1
    assert cluster.controller.problems == []


def test_a_new_assignment_while_the_states_are_read() -> None:
    """The edit is read behind the states, and compared with the topic that they made."""
    cluster = Cluster(0, 1, 2)
    cluster.create_topic("large", *[(0, 1)] * COUNT)
    active = cluster.brokers[0].store
    while active.waiting < 100:
        active.answer()
        cluster.time.run_for(0)
    assert "large" not in cluster.controller.image.topics_by_name
    edit(cluster, COUNT + 10, 0, 1, 2)
    cluster.settle()
    assert assigned(cluster) == {(0, 1, 2)}
    assert {cluster.leader("large", index) for index in range(COUNT + 10)} == {0}
    assert cluster.controller.problems == []


def test_a_large_topic_that_is_deleted_by_hand_while_it_is_decoded() -> None:
    cluster = Cluster(0, 1, 2)
    cluster.create_topic("large", *[(0, 1)] * COUNT)
    cluster.brokers[0].store.answer_all()
    cluster.tree.delete(paths.topic("large"))
    cluster.settle()
    assert "large" not in cluster.controller.image.topics_by_name
    assert not cluster.exists(paths.partitions("large"))
    cluster.create_topic("large", (2, 1))
    cluster.settle()
    assert assigned(cluster) == {(2, 1)}
    assert cluster.leader("large", 0) == 2


@pytest.mark.parametrize("is_known", [False, True])
def test_a_tool_takes_the_name_while_a_request_for_it_is_decided(is_known: bool) -> None:
    """The topic of the tool stays as it is, whether or not the controller has read it when it writes its own."""
    cluster = Cluster(0, 1, 2)
    topic = CreateTopicsRequest.CreatableTopic(name="large", num_partitions=COUNT, replication_factor=3)
    answers: list[CreateTopicsResponse] = []
    cluster.controller.create_topics(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), answers.append)
    cluster.create_topic("large", (1, 2))
    if is_known:
        cluster.brokers[0].store.answer_all()
    cluster.settle()
    (row,) = answers[0].topics
    assert row.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert assigned(cluster) == {(1, 2)}
    assert cluster.controller.problems == []


# Growth by request.

GROWN = 2 * COUNT


def small_and_large() -> Cluster:
    cluster = Cluster(0, 1, 2)
    cluster.create_topic("large", *[(0, 1)] * COUNT)
    cluster.create_topic("small", (0, 1))
    cluster.settle()
    return cluster


def growth(**counts: int) -> CreatePartitionsRequest:
    rows = [
        CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=count, assignments=None)
        for name, count in counts.items()
    ]
    return CreatePartitionsRequest(topics=rows, timeout_ms=60_000)


def begin_growth(cluster: Cluster) -> list[CreatePartitionsResponse]:
    """Returns the list that gets the response; nothing is decided yet."""
    answers: list[CreatePartitionsResponse] = []
    cluster.controller.create_partitions(growth(large=GROWN), answers.append)
    assert len(cluster.controller.image.topics_by_name["large"].partitions) == COUNT
    return answers


def codes(answer: CreatePartitionsResponse) -> dict[str, int]:
    return {row.name: row.error_code for row in answer.results}


def check_agreement(cluster: Cluster, count: int) -> None:
    """The znodes, the controller and the brokers know the same partitions, each of which has a leader."""
    image = cluster.controller.image.topics_by_name["large"]
    written = cluster.assignment("large").partitions
    assert {index: each.replicas for index, each in written.items()} == {
        index: each.replicas for index, each in enumerate(image.partitions)
    }
    assert len(image.partitions) == count
    assert all(partition.leader >= 0 for partition in image.partitions)
    leaders = [cluster.brokers[partition.leader] for partition in image.partitions]
    assert all(leader.roles["large", index].leader == leader.broker_id for index, leader in enumerate(leaders))
    assert cluster.controller.problems == []


def test_growth_of_topics_of_all_sizes() -> None:
    """Each topic has its own row; one that is refused does not stop the others."""
    cluster = small_and_large()
    request = growth(small=3, none=4, large=GROWN)
    request.topics += growth(twice=3).topics * 2
    answer = cluster.ask(cluster.controller.create_partitions, request)
    assert codes(answer) == {
        "small": ErrorCode.NONE,
        "none": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "large": ErrorCode.NONE,
        "twice": ErrorCode.INVALID_REQUEST,
    }
    assert len(answer.results) == 4
    assert len(cluster.assignment("small").partitions) == 3
    check_agreement(cluster, GROWN)


def test_a_growth_that_is_only_validated() -> None:
    cluster = small_and_large()
    request = growth(large=GROWN)
    request.validate_only = True
    answer = cluster.ask(cluster.controller.create_partitions, request)
    assert codes(answer) == {"large": ErrorCode.NONE}
    check_agreement(cluster, COUNT)


def test_two_growths_of_one_topic_together() -> None:
    """The later one is decided again, on what the first one has made."""
    cluster = small_and_large()
    first, second = begin_growth(cluster), begin_growth(cluster)
    cluster.settle()
    assert [codes(answer) for answer in (*first, *second)] == [
        {"large": ErrorCode.NONE},
        {"large": ErrorCode.INVALID_PARTITIONS},
    ]
    check_agreement(cluster, GROWN)


@pytest.mark.parametrize("is_known", [False, True])
def test_a_tool_grows_a_topic_while_a_request_is_decided(is_known: bool) -> None:
    """A growth that the controller has read is continued; one that it has not read refuses the request."""
    cluster = small_and_large()
    before = cluster.assignment("large")
    tool = {index: ReplicaAssignment((2, 1)) for index in range(COUNT, COUNT + 10)}
    answers = begin_growth(cluster)
    cluster.tree.set(
        paths.topic("large"), encode_topic(TopicAssignment(before.topic_id, {**before.partitions, **tool}))
    )
    if is_known:
        cluster.brokers[0].store.answer_all()
    cluster.settle()
    assert [codes(answer) for answer in answers] == [
        {"large": ErrorCode.NONE if is_known else ErrorCode.NOT_CONTROLLER}
    ]
    assert cluster.assignment("large").partitions[COUNT + 9] == ((2, 1), (), ())
    check_agreement(cluster, GROWN if is_known else COUNT + 10)


def test_a_topic_is_deleted_while_its_growth_is_decided() -> None:
    cluster = small_and_large()
    state = DeleteTopicsRequest.DeleteTopicState(name="large")
    deleted: list[DeleteTopicsResponse] = []
    cluster.controller.delete_topics(DeleteTopicsRequest(topics=[state], timeout_ms=60_000), deleted.append)
    answers = begin_growth(cluster)
    cluster.brokers[0].store.answer_all()
    assert not answers
    assert "large" not in cluster.controller.image.topics_by_name
    cluster.settle()
    assert [codes(answer) for answer in answers] == [{"large": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}]
    assert [row.error_code for row in deleted[0].responses] == [ErrorCode.NONE]
    assert not cluster.exists(paths.topic("large"))


def test_a_move_begins_while_a_growth_is_decided() -> None:
    cluster = small_and_large()
    answers = begin_growth(cluster)
    row = AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=0, replicas=[0, 2])
    topic = AlterPartitionReassignmentsRequest.ReassignableTopic(name="large", partitions=[row])
    request = AlterPartitionReassignmentsRequest(topics=[topic])
    cluster.ask(cluster.controller.replication.alter_reassignments, request, actor="test")
    assert [codes(answer) for answer in answers] == [{"large": ErrorCode.REASSIGNMENT_IN_PROGRESS}]
    check_agreement(cluster, COUNT)


def test_leaders_change_while_a_growth_is_decided() -> None:
    """The states are other decisions: the growth is written with the replicas that were chosen."""
    cluster = small_and_large()
    answers = begin_growth(cluster)
    cluster.kill(1)
    cluster.settle()
    assert [codes(answer) for answer in answers] == [{"large": ErrorCode.NONE}]
    check_agreement(cluster, GROWN)


def test_the_controller_ends_while_a_growth_is_decided() -> None:
    """No part of the growth is written."""
    cluster = small_and_large()
    answers = begin_growth(cluster)
    cluster.kill(0)
    cluster.settle()
    assert [codes(answer) for answer in answers] == [{"large": ErrorCode.NOT_CONTROLLER}]
    check_agreement(cluster, COUNT)
