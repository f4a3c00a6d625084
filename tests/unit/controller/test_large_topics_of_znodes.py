"""Topics of thousands of partitions in ZooKeeper mode, whose znodes are read, compared and deleted in portions."""

from __future__ import annotations

import pytest
from tests.support.zookeeper_controllers import Cluster

from barnabas.common.errors import ErrorCode
from barnabas.common.portions import PARTITIONS_IN_PORTION
from barnabas.controller.listener import CommitListener
from barnabas.metadata.image import MetadataImage
from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
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
