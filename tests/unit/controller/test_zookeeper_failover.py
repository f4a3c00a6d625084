"""The next controller of ZooKeeper mode: notifications, producer ids and features that its predecessor left."""

from __future__ import annotations

import pytest
from tests.support.zookeeper_controllers import Cluster

from barnabas.common.errors import ErrorCode
from barnabas.common.types import TopicPartition
from barnabas.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from barnabas.znodes import paths
from barnabas.znodes.admin_znodes import encode_log_dir_event, encode_partitions
from barnabas.znodes.cluster_znodes import decode_producer_id_block

Allocated = tuple[int, int, ErrorCode]


def allocate(cluster: Cluster, broker_id: int) -> list[Allocated]:
    """Asks the controller for a block of producer ids; the answer follows in the list."""
    answers: list[Allocated] = []

    def answered(first_id: int, length: int, code: ErrorCode) -> None:
        answers.append((first_id, length, code))

    cluster.controller.allocate_producer_ids(broker_id, cluster.brokers[broker_id].epoch, answered)
    return answers


def last_block(cluster: Cluster) -> tuple[int, int]:
    content = cluster.tree.content(paths.PRODUCER_ID_BLOCK)
    assert content is not None
    block = decode_producer_id_block(paths.PRODUCER_ID_BLOCK, content.data)
    assert block is not None
    return block.first_id, block.last_id


def test_a_failed_directory_that_was_reported_to_the_last_controller_is_handled_by_the_next_one() -> None:
    cluster = Cluster(0, 1, 2)
    cluster.create_topic("orders", (1, 2))
    cluster.settle()
    # The controller dies with its broker; the notification of broker 1 comes before another broker claims.
    cluster.crash(0)
    cluster.brokers[1].failed.add(("orders", 0))
    cluster.tree.set(f"{paths.NEW_LOG_DIR_EVENT}0000000000", encode_log_dir_event(1))
    assert cluster.tree.names(paths.LOG_DIR_EVENTS)
    cluster.brokers[0].store.expire()
    cluster.settle()
    assert cluster.controller.controller_epoch == 2
    assert cluster.state("orders", 0)[:3] == (2, 1, (2,))
    assert not cluster.tree.names(paths.LOG_DIR_EVENTS)


def test_notifications_of_nonsense_left_over_stop_no_activation() -> None:
    cluster = Cluster(0, 1)
    cluster.create_topic("orders", (1, 0))
    cluster.settle()
    cluster.crash(0)
    cluster.tree.set(f"{paths.NEW_LOG_DIR_EVENT}0000000000", b"{")
    cluster.tree.set(f"{paths.NEW_LOG_DIR_EVENT}0000000001", encode_log_dir_event(7))
    cluster.brokers[0].store.expire()
    cluster.settle()
    assert cluster.controller.controller_epoch == 2
    assert not cluster.tree.names(paths.LOG_DIR_EVENTS)


def known_isr(cluster: Cluster) -> list[int]:
    return list(cluster.controller.image.topics_by_name["orders"].partitions[0].isr)


def test_an_isr_that_a_broker_of_an_old_release_changed_is_read() -> None:
    """Brokers before Kafka 2.7 write states themselves, and name them in a notification."""
    cluster = Cluster(0, 1, 2)
    cluster.create_topic("orders", (1, 2))
    cluster.settle()
    state = b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1]}'
    cluster.tree.set(paths.state("orders", 0), state)
    cluster.settle()
    assert known_isr(cluster) == [1, 2], "states are not watched"
    places = [TopicPartition("orders", 0), TopicPartition("none", 0)]
    cluster.tree.set(f"{paths.ISR_CHANGES}/isr_change_0000000000", encode_partitions(places))
    cluster.settle()
    assert not cluster.tree.names(paths.ISR_CHANGES)
    assert known_isr(cluster) == [1]
    assert list(cluster.brokers[2].roles["orders", 0].isr) == [1]


@pytest.mark.parametrize(
    ("path", "data"),
    [
        (f"{paths.NEW_LOG_DIR_EVENT}0000000000", encode_log_dir_event(1)),
        (f"{paths.ISR_CHANGES}/isr_change_0000000000", encode_partitions([TopicPartition("orders", 0)])),
    ],
)
def test_a_notification_that_another_program_deletes_first_has_no_effect(path: str, data: bytes) -> None:
    cluster = Cluster(0, 1)
    cluster.create_topic("orders", (1, 0))
    cluster.settle()
    asked = [len(broker.requests) for broker in cluster.brokers.values()]
    cluster.tree.set(path, data)
    # The name is read, and then the znode does not exist any more.
    cluster.brokers[0].store.answer()
    cluster.tree.delete(path)
    cluster.settle()
    assert [len(broker.requests) for broker in cluster.brokers.values()] == asked
    cluster.tree.set(path, data)
    cluster.settle()
    assert not cluster.exists(path), "the next one of that name counts"


def test_blocks_of_producer_ids_continue_under_the_next_controller() -> None:
    cluster = Cluster(0, 1)
    first = allocate(cluster, 0)
    second = allocate(cluster, 1)
    cluster.settle()
    assert (first, second) == ([(0, 1000, ErrorCode.NONE)], [(1000, 1000, ErrorCode.NONE)])
    cluster.kill(0)
    cluster.settle()
    third = allocate(cluster, 1)
    cluster.settle()
    assert third == [(2000, 1000, ErrorCode.NONE)]
    assert last_block(cluster) == (2000, 2999)


@pytest.mark.parametrize("was_made", [False, True])
def test_a_block_whose_write_was_not_answered_is_not_given_twice(was_made: bool) -> None:
    """The controller is succeeded before it knows whether its write took effect: nobody has this block."""
    cluster = Cluster(0, 1)
    lost = allocate(cluster, 1)
    cluster.brokers[0].store.disconnect(happened=int(was_made))
    cluster.kill(0)
    cluster.settle()
    assert [code for _, _, code in lost] == [ErrorCode.NOT_CONTROLLER]
    found = allocate(cluster, 1)
    cluster.settle()
    assert found == [(1000 if was_made else 0, 1000, ErrorCode.NONE)]


def test_a_block_that_another_program_took_is_skipped() -> None:
    cluster = Cluster(0)
    cluster.tree.set(paths.PRODUCER_ID_BLOCK, b'{"version":1,"broker":9,"block_start":"5000","block_end":"5999"}')
    refused = allocate(cluster, 0)
    cluster.settle()
    assert [code for _, _, code in refused] == [ErrorCode.NOT_CONTROLLER]
    again = allocate(cluster, 0)
    cluster.settle()
    assert again == [(6000, 1000, ErrorCode.NONE)]


@pytest.mark.parametrize(
    ("left", "written"),
    [
        (b'{"version":1,"status":0,"features":{}}', b'{"features":{},"version":2,"status":1}'),
        (
            b'{"version":1,"status":0,"features":{"a":{"min_version_level":1,"max_version_level":2}}}',
            b'{"features":{},"version":2,"status":1}',
        ),
        (b'{"version":1,"status":1,"features":{}}', b'{"features":{},"version":2,"status":1}'),
        (b'{"version":2,"status":1,"features":{}}', None),
        (b"{", None),
    ],
)
def test_features_of_an_older_release_are_enabled(left: bytes, written: bytes | None) -> None:
    """`KafkaController.enableFeatureVersioning`: features that were finalized while disabled are dropped."""
    cluster = Cluster(0, 1)
    cluster.tree.set(paths.FEATURE, left)
    cluster.kill(0)
    cluster.settle()
    content = cluster.tree.content(paths.FEATURE)
    assert content is not None
    assert content.data == (written or left)
    assert [line.partition(":")[0] for line in cluster.controller.problems] == ([paths.FEATURE] if left == b"{" else [])


def test_partitions_without_a_leader_come_first() -> None:
    cluster = Cluster(0, 1)
    cluster.create_topic("wide", *[(1, 0), (0, 1)] * 150)
    cluster.settle()
    survivor = cluster.brokers[1]
    before = len(survivor.requests)
    cluster.kill(0)
    cluster.settle()
    decided = [
        row.partition_index
        for each in survivor.requests[before:]
        if isinstance(each, LeaderAndIsrRequest)
        for topic in each.topic_states
        for row in topic.partition_states
    ]
    assert sorted(decided) == list(range(300))
    assert set(range(1, 300, 2)) <= set(decided[:200]), "clients wait for them"
