"""Topics whose znodes ZooKeeper does not delete at first, and the names that such remains occupy."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.support.zookeeper_controllers import Cluster

from barnabas.common.errors import ErrorCode
from barnabas.protocol.messages.create_topics import CreateTopicsRequest
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest
from barnabas.znodes import paths
from barnabas.znodes.config_znodes import decode_config
from barnabas.zookeeper.client.store import MultiReply
from barnabas.zookeeper.wire.codes import ErrorCode as StoreError
from barnabas.zookeeper.wire.codes import OpCode
from barnabas.zookeeper.wire.operations import Part

_CONFIG = paths.config(paths.TOPIC_CONFIGS, "orders")
_MARKER = paths.delete_topic("orders")


class Protected:
    """Znodes that may not be deleted, as if their ACLs refused it."""

    def __init__(self, cluster: Cluster, *names: str) -> None:
        self.names = set(names)
        self.refusals = 0
        self._apply = cluster.tree.apply
        cluster.tree.apply = self._refusing  # type: ignore[method-assign]

    def _refusing(self, parts: Sequence[Part], session_id: int) -> MultiReply:
        for place, part in enumerate(parts):
            if part.type == OpCode.DELETE and part.record[0] in self.names:
                self.refusals += 1
                codes = [StoreError.OK] * place + [StoreError.NO_AUTH]
                return MultiReply((*codes, *[StoreError.RUNTIME_INCONSISTENCY] * (len(parts) - place - 1)))
        return self._apply(parts, session_id)


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(0, 1)
    cluster.create_topic("orders", (0, 1), (1, 0))
    cluster.settle()
    return cluster


def delete(cluster: Cluster) -> list[int]:
    request = DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name="orders")], timeout_ms=1_000)
    return [row.error_code for row in cluster.ask(cluster.controller.delete_topics, request).responses]


def create(cluster: Cluster, **overrides: str) -> tuple[int, str | None]:
    configs = [
        CreateTopicsRequest.CreatableTopicConfig(name=key.replace("_", "."), value=value)
        for key, value in overrides.items()
    ]
    topic = CreateTopicsRequest.CreatableTopic(name="orders", num_partitions=1, replication_factor=1, configs=configs)
    row = cluster.ask(cluster.controller.create_topics, CreateTopicsRequest(topics=[topic])).topics[0]
    return row.error_code, row.error_message


def remains(cluster: Cluster) -> list[str]:
    return sorted(path for path in cluster.tree.nodes if "orders" in path)


def test_a_configuration_that_is_left_over_is_replaced_by_that_of_the_new_topic() -> None:
    """`AdminZkClient.createTopicWithAssignment` sets the configuration or creates it."""
    cluster = Cluster(0)
    cluster.tree.set(_CONFIG, b'{"version":1,"config":{"retention.ms":"1","cleanup.policy":"compact"}}')
    assert create(cluster, retention_ms="7") == (ErrorCode.NONE, None)
    content = cluster.tree.content(_CONFIG)
    assert content is not None
    assert decode_config(_CONFIG, content.data) == {"retention.ms": "7"}
    assert cluster.leader("orders", 0) == 0


def test_a_topic_that_a_tool_creates_at_the_same_time_keeps_its_configuration() -> None:
    cluster = Cluster(0)
    answers: list[object] = []
    topic = CreateTopicsRequest.CreatableTopic(name="orders", num_partitions=1, replication_factor=1)
    cluster.controller.create_topics(CreateTopicsRequest(topics=[topic]), answers.append)
    cluster.create_topic("orders", (0,), (0,), config=b'{"version":1,"config":{"retention.ms":"1"}}')
    cluster.settle()
    assert [row.error_code for row in answers[0].topics] == [ErrorCode.TOPIC_ALREADY_EXISTS]  # type: ignore[attr-defined]
    content = cluster.tree.content(_CONFIG)
    assert content is not None
    assert decode_config(_CONFIG, content.data) == {"retention.ms": "1"}
    assert len(cluster.assignment("orders").partitions) == 2


def test_unknown_znodes_below_a_topic_are_deleted_with_it(cluster: Cluster) -> None:
    """`KafkaZkClient.deleteRecursive`."""
    for path in ("/brokers/topics/orders/notes", "/brokers/topics/orders/partitions/0/state/seen"):
        cluster.tree.set(path, b"")
        cluster.tree.set(f"{path}/deeper", b"")
    assert delete(cluster) == [ErrorCode.NONE]
    assert not remains(cluster)
    assert create(cluster) == (ErrorCode.NONE, None)


def test_a_topic_that_zookeeper_does_not_delete_is_tried_again_after_a_pause(cluster: Cluster) -> None:
    """Kafka tries again with the next event about a deletion; until then the topic stays marked."""
    topic = paths.topic("orders")
    protected = Protected(cluster, topic)
    assert delete(cluster) == [ErrorCode.NONE]
    assert remains(cluster) == [_MARKER, topic, _CONFIG]
    assert create(cluster) == (ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'orders' is marked for deletion.")
    count = protected.refusals
    cluster.settle(4_000)
    assert protected.refusals == count
    cluster.settle(20_000)
    assert count < protected.refusals <= count + 8
    (text,) = {text for text, _ in cluster.brokers[0].host.faults.reported if "cannot be deleted" in text}
    assert topic in text
    protected.names.clear()
    cluster.settle(6_000)
    assert not remains(cluster)
    assert create(cluster) == (ErrorCode.NONE, None)


def test_a_controller_that_resigned_does_not_try_again(cluster: Cluster) -> None:
    """G41; the next controller continues."""
    protected = Protected(cluster, paths.topic("orders"))
    delete(cluster)
    cluster.kill(0)
    protected.names.clear()
    cluster.time.run_for(6_000)
    assert cluster.exists(paths.topic("orders"))
    assert cluster.exists(_MARKER)
    cluster.start(0)
    cluster.settle()
    assert not remains(cluster)


def test_a_configuration_that_zookeeper_does_not_delete_stays_and_is_replaced(cluster: Cluster) -> None:
    """Kafka does not look at the result of this delete."""
    protected = Protected(cluster, _CONFIG)
    assert delete(cluster) == [ErrorCode.NONE]
    assert remains(cluster) == [_CONFIG]
    assert any(_CONFIG in text for text, _ in cluster.brokers[0].host.faults.reported)
    assert create(cluster, retention_ms="9") == (ErrorCode.NONE, None)
    protected.names.clear()
    assert delete(cluster) == [ErrorCode.NONE]
    assert not remains(cluster)


def test_a_marker_that_zookeeper_does_not_delete_keeps_the_name_until_it_goes(cluster: Cluster) -> None:
    protected = Protected(cluster, _MARKER)
    assert delete(cluster) == [ErrorCode.NONE]
    assert remains(cluster) == [_MARKER]
    assert create(cluster) == (ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'orders' is marked for deletion.")
    protected.names.clear()
    cluster.create_topic("other", (0,))
    cluster.settle()
    assert not remains(cluster)
    assert create(cluster) == (ErrorCode.NONE, None)


@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize("last", range(9))
def test_a_deletion_whose_answers_are_lost_ends_in_the_same_session(cluster: Cluster, last: int, is_done: bool) -> None:
    """G33: after each number of answers the connection is lost once, before or after the next request took effect."""
    request = DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name="orders")], timeout_ms=1_000)
    answers: list[object] = []
    cluster.controller.delete_topics(request, answers.append)
    store = cluster.brokers[0].store
    for _ in range(last):
        cluster.time.run_for(0)
        if store.waiting:
            store.answer()
    cluster.time.run_for(0)
    store.disconnect(happened=int(is_done))
    store.reconnect()
    cluster.settle()
    assert not remains(cluster)
    assert [row.error_code for row in answers[0].responses] == [ErrorCode.NONE]  # type: ignore[attr-defined]
    assert not any(broker.logs for broker in cluster.brokers.values())
    assert create(cluster) == (ErrorCode.NONE, None)
