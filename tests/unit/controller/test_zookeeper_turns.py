"""No event keeps the controller of ZooKeeper mode busy for long, however many partitions it concerns.

The CPU time of each entry into the controller is measured: answers of ZooKeeper, watches, timers, answers of brokers,
requests. The work of the tree and of the brokers around it is left out.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from time import thread_time_ns
from typing import Any

import pytest
from tests.support.core_speed import usual_ms
from tests.support.turn_watch import VERDICT
from tests.support.znode_memory import MemoryTree
from tests.support.zookeeper_controllers import Cluster, FakeBroker

from barnabas.common.errors import ErrorCode
from barnabas.common.portions import PARTITIONS_IN_PORTION
from barnabas.controller.zookeeper import topic_watch
from barnabas.controller.zookeeper.runtime import ZookeeperController
from barnabas.controller.zookeeper.sliced_decisions import LargeReplicationRequests
from barnabas.controller.zookeeper.znode_reader import ZnodeReader
from barnabas.protocol.messages.alter_partition import AlterPartitionRequest
from barnabas.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from barnabas.protocol.messages.controlled_shutdown import ControlledShutdownRequest
from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest
from barnabas.protocol.messages.create_topics import CreateTopicsRequest
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest
from barnabas.simulation.host import VirtualTime
from barnabas.znodes import paths
from barnabas.znodes.topic_text import TopicText
from barnabas.znodes.topic_znodes import ReplicaAssignment, TopicAssignment, encode_topic

TOPICS, PARTITIONS_EACH = 10, 1_000
TURN_MS_MAX = 50


class Turns:
    """The CPU times of the controllers' turns."""

    def __init__(self) -> None:
        self.longest: tuple[float, str] = (0.0, "")
        self.count = 0
        self._depth = 0
        self._left_out_ns = 0

    @contextmanager
    def turn(self, what: str) -> Iterator[None]:
        if self._depth:
            yield
            return
        self._depth, self._left_out_ns = 1, 0
        self.count += 1
        begin_ns = thread_time_ns()
        try:
            yield
        finally:
            self._depth = 0
            elapsed_ms = usual_ms((thread_time_ns() - begin_ns - self._left_out_ns) / 1e6)
            self.longest = max(self.longest, (elapsed_ms, what))

    @contextmanager
    def left_out(self) -> Iterator[None]:
        depth, self._depth = self._depth, 0
        left_out_ns = self._left_out_ns
        begin_ns = thread_time_ns()
        try:
            yield
        finally:
            self._depth = depth
            self._left_out_ns = left_out_ns + thread_time_ns() - begin_ns

    def taken(self) -> tuple[float, str]:
        longest, self.longest = self.longest, (0.0, "")
        return longest


class TimedStore:
    """The store of one controller, whose answers are turns."""

    def __init__(self, store: Any, turns: Turns) -> None:
        self._store = store
        self._turns = turns

    @property
    def session_id(self) -> int:
        return int(self._store.session_id)

    def __getattr__(self, name: str) -> Callable[..., None]:
        def call(*arguments: Any, **options: Any) -> None:
            *rest, reply = arguments

            def replied(found: Any) -> None:
                with self._turns.turn(f"answer to {name}"):
                    reply(found)

            getattr(self._store, name)(*rest, replied, **options)

        return call


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> Iterator[Turns]:
    found = Turns()

    def around(owner: type, name: str, watch: Callable[[], Any]) -> None:
        inner = getattr(owner, name)

        def run(*arguments: Any, **options: Any) -> Any:
            with watch():
                return inner(*arguments, **options)

        monkeypatch.setattr(owner, name, run)

    create = ZookeeperController.__init__

    def begin(controller: Any, host: Any, config: Any, store: Any, *rest: Any) -> None:
        create(controller, host, config, TimedStore(store, found), *rest)

    monkeypatch.setattr(ZookeeperController, "__init__", begin)
    requests = ("create_topics", "create_partitions", "alter_partition", "controlled_shutdown", "delete_topics")
    for name in ("on_signal", "changed", *requests):
        around(ZookeeperController, name, partial(found.turn, name))
    around(LargeReplicationRequests, "alter_reassignments", partial(found.turn, "alter_reassignments"))
    around(VirtualTime, "enter", partial(found.turn, "timer"))
    for owner, name in ((FakeBroker, "receive"), (MemoryTree, "apply"), (Cluster, "deliver")):
        around(owner, name, found.left_out)
    gc.disable()
    yield found
    gc.enable()


def led_by(cluster: Cluster, broker_id: int) -> int:
    return sum(role.leader == broker_id for role in cluster.brokers[broker_id].roles.values())


def test_ten_thousand_partitions(turns: Turns) -> None:
    """G44: a topic, the death and the return of a broker, a failover of the controller, a shutdown."""
    found: dict[str, tuple[float, str]] = {}
    cluster = Cluster(0, 1, 2)
    turns.taken()

    names = [f"t{index}" for index in range(TOPICS)]
    rows = [
        CreateTopicsRequest.CreatableTopic(name=name, num_partitions=PARTITIONS_EACH, replication_factor=3)
        for name in names
    ]
    cluster.ask(cluster.controller.create_topics, CreateTopicsRequest(topics=rows, timeout_ms=60_000))
    found["create"] = turns.taken()
    everything = TOPICS * PARTITIONS_EACH
    assert sum(led_by(cluster, broker) for broker in (0, 1, 2)) == everything

    cluster.kill(2)
    cluster.settle()
    found["broker gone"] = turns.taken()
    assert sum(led_by(cluster, broker) for broker in (0, 1)) == everything

    cluster.start(2)
    cluster.settle()
    found["broker back"] = turns.taken()
    assert len(cluster.brokers[2].roles) == everything

    cluster.kill(0)
    cluster.settle()
    found["failover"] = turns.taken()
    assert led_by(cluster, 1) == everything

    request = ControlledShutdownRequest(broker_id=1, broker_epoch=cluster.brokers[1].epoch)
    remaining = cluster.ask(cluster.controller.controlled_shutdown, request).remaining_partitions
    assert len(remaining) == everything
    found["shutdown"] = turns.taken()

    cluster.bounce(1)
    cluster.settle()
    found["bounced"] = turns.taken()
    long = {name: turn for name, turn in found.items() if turn[0] > TURN_MS_MAX}
    assert not long, f"{VERDICT} {TURN_MS_MAX} ms of CPU: {found}"


def test_requests_about_ten_thousand_partitions(turns: Turns) -> None:
    """G44: elections, changes of ISRs, and a deletion of all topics."""
    found: dict[str, tuple[float, str]] = {}
    cluster = Cluster(0, 1, 2)
    names = [f"t{index}" for index in range(TOPICS)]
    for name in names:
        cluster.create_topic(name, *[(2, 0, 1)] * PARTITIONS_EACH)
    cluster.settle()
    turns.taken()
    everything = TOPICS * PARTITIONS_EACH
    assert led_by(cluster, 2) == everything
    cluster.kill(2)
    cluster.settle()
    cluster.start(2)
    cluster.settle()
    turns.taken()

    assert led_by(cluster, 0) == everything
    leader = cluster.brokers[0]
    topics = [
        AlterPartitionRequest.TopicData(
            topic_id=topic.topic_id,
            partitions=[
                AlterPartitionRequest.PartitionData(
                    partition_index=index,
                    leader_epoch=leader.roles[topic.name, index].leader_epoch,
                    new_isr_with_epochs=[AlterPartitionRequest.BrokerState(broker_id=member) for member in (0, 1, 2)],
                    partition_epoch=leader.roles[topic.name, index].partition_epoch,
                )
                for index in range(PARTITIONS_EACH)
            ],
        )
        for topic in cluster.controller.image.topics()
    ]
    change = AlterPartitionRequest(broker_id=0, broker_epoch=leader.epoch, topics=topics)
    answer = cluster.ask(cluster.controller.alter_partition, change)
    assert [len(topic.partitions) for topic in answer.topics] == [PARTITIONS_EACH] * TOPICS
    assert not any(row.error_code for topic in answer.topics for row in topic.partitions)
    found["isr"] = turns.taken()

    rows = [ElectLeadersRequest.TopicPartitions(topic=name, partitions=list(range(PARTITIONS_EACH))) for name in names]
    elections = ElectLeadersRequest(election_type=0, topic_partitions=rows)
    answer = cluster.ask(cluster.controller.replication.elect_leaders, elections, actor="test")
    assert [len(row.partition_result) for row in answer.replica_election_results] == [PARTITIONS_EACH] * TOPICS
    assert led_by(cluster, 2) == everything
    found["elections"] = turns.taken()

    deletion = DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name=name) for name in names])
    cluster.ask(cluster.controller.delete_topics, deletion)
    assert not [name for name in names if cluster.exists(paths.topic(name))]
    found["deletion"] = turns.taken()
    long = {name: turn for name, turn in found.items() if turn[0] > TURN_MS_MAX}
    assert not long, f"{VERDICT} {TURN_MS_MAX} ms of CPU: {found}"


@pytest.mark.parametrize("count", [1_000, 5_000, 10_000])
def test_reassignments_of_one_large_topic(turns: Turns, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """G44: the start and the end of the moves of all its partitions; each part of them writes the whole assignment, and
    encodes the partitions that it changes. The first text is made in portions.
    """
    found: dict[str, tuple[float, str]] = {}
    encoded: Counter[int] = Counter()
    encoded_in_turn: Counter[int] = Counter()
    put = TopicText.put

    def counted(text: TopicText, number: int, *brokers: Any) -> None:
        encoded[number] += 1
        encoded_in_turn[turns.count] += 1
        put(text, number, *brokers)

    cluster = Cluster(0, 1, 2)
    cluster.create_topic("large", *[(0, 1)] * count)
    cluster.settle()
    monkeypatch.setattr(TopicText, "put", counted)
    turns.taken()
    rows = [
        AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=index, replicas=[0, 2])
        for index in range(count)
    ]
    rows.append(rows[0])
    topic = AlterPartitionReassignmentsRequest.ReassignableTopic(name="large", partitions=rows)
    request = AlterPartitionReassignmentsRequest(topics=[topic])
    answer = cluster.ask(cluster.controller.replication.alter_reassignments, request, actor="test")
    (moved,) = answer.responses
    assert [row.partition_index for row in moved.partitions] == [*range(count), 0]
    assert [row.error_code for row in moved.partitions] == [0] * count + [ErrorCode.INVALID_REQUEST]
    found["begin"] = turns.taken()

    (image,) = cluster.controller.image.topics()
    proposals = [
        AlterPartitionRequest.PartitionData(
            partition_index=index,
            leader_epoch=partition.leader_epoch,
            new_isr_with_epochs=[AlterPartitionRequest.BrokerState(broker_id=member) for member in (0, 1, 2)],
            partition_epoch=partition.partition_epoch,
        )
        for index, partition in enumerate(image.partitions)
    ]
    change = AlterPartitionRequest(
        broker_id=0,
        broker_epoch=cluster.brokers[0].epoch,
        topics=[AlterPartitionRequest.TopicData(topic_id=image.topic_id, partitions=proposals)],
    )
    answer = cluster.ask(cluster.controller.alter_partition, change)
    assert not any(row.error_code for row in answer.topics[0].partitions)
    assert set(cluster.assignment("large").partitions.values()) == {((0, 2), (), ())}
    assert not cluster.brokers[1].logs
    found["end"] = turns.taken()
    assert sorted(encoded) == [*range(count)]
    assert max(encoded.values()) <= 4, "at first, and at the start and the end of its move"
    assert max(encoded_in_turn.values()) <= PARTITIONS_IN_PORTION
    long = {name: turn for name, turn in found.items() if turn[0] > TURN_MS_MAX}
    assert not long, f"{VERDICT} {TURN_MS_MAX} ms of CPU: {found}"


def test_one_topic_of_ten_thousand_partitions(turns: Turns) -> None:
    """G44: one znode holds the assignment of all partitions, which is read and compared in portions."""
    count = 10_000
    found: dict[str, tuple[float, str]] = {}
    cluster = Cluster(0, 1, 2)
    turns.taken()
    cluster.create_topic("large", *[(2, 1, 0)] * count)
    cluster.settle()
    found["create by znode"] = turns.taken()
    assert led_by(cluster, 2) == count

    cluster.kill(0)
    cluster.settle()
    found["failover"] = turns.taken()
    assert cluster.controller is cluster.brokers[1].controller
    assert len(cluster.controller.image.topics_by_name["large"].partitions) == count

    topic_id = cluster.assignment("large").topic_id
    grown = {index: ReplicaAssignment((2, 1)) for index in range(count, count + count // 2)}
    before = cluster.assignment("large").partitions
    cluster.tree.set(paths.topic("large"), encode_topic(TopicAssignment(topic_id, {**before, **grown})))
    cluster.settle()
    found["growth by znode"] = turns.taken()
    assert led_by(cluster, 2) == count + count // 2

    cluster.start(0)
    cluster.settle()
    turns.taken()
    state = DeleteTopicsRequest.DeleteTopicState(name="large")
    deletion = DeleteTopicsRequest(topics=[state], timeout_ms=60_000)
    cluster.ask(cluster.controller.delete_topics, deletion)
    found["deletion"] = turns.taken()
    assert not cluster.exists(paths.topic("large"))
    assert not any(broker.logs for broker in cluster.brokers.values())
    long = {name: turn for name, turn in found.items() if turn[0] > TURN_MS_MAX}
    assert not long, f"{VERDICT} {TURN_MS_MAX} ms of CPU: {found}"


@pytest.mark.parametrize("is_assigned", [False, True])
def test_creation_of_ten_thousand_partitions_by_one_request(turns: Turns, is_assigned: bool) -> None:
    """G44: the topic is decided and its znode encoded in portions."""
    count = 10_000
    cluster = Cluster(0, 1, 2)
    topic = CreateTopicsRequest.CreatableTopic(
        name="large",
        num_partitions=count,
        replication_factor=3,
        configs=[CreateTopicsRequest.CreatableTopicConfig(name="retention.ms", value="1000")],
    )
    if is_assigned:
        topic.num_partitions = topic.replication_factor = -1
        topic.assignments = [
            CreateTopicsRequest.CreatableReplicaAssignment(partition_index=index, broker_ids=[2, 1, 0])
            for index in range(count)
        ]
    turns.taken()
    request = CreateTopicsRequest(topics=[topic], timeout_ms=60_000)
    answer = cluster.ask(cluster.controller.create_topics, request, actor="test")
    longest = turns.taken()
    (row,) = answer.topics
    assert (row.error_code, row.num_partitions, row.replication_factor) == (0, count, 3)
    assert [config.value for config in row.configs if config.name == "retention.ms"] == ["1000"]
    assert len(cluster.assignment("large").partitions) == count
    assert dict(cluster.controller.image.topic_config("large")) == {"retention.ms": "1000"}
    led = [led_by(cluster, broker_id) for broker_id in cluster.brokers]
    assert sum(led) == count
    assert (led == [0, 0, count]) is is_assigned
    assert longest[0] <= TURN_MS_MAX, longest


@pytest.mark.sampled(2)
@pytest.mark.parametrize("added", [1, 1_000, 5_000])
@pytest.mark.parametrize("is_assigned", [False, True])
def test_growth_of_ten_thousand_partitions_by_one_request(turns: Turns, added: int, is_assigned: bool) -> None:
    """G44: new partitions are decided and the topic's znode is encoded in portions."""
    count = 10_000
    cluster = Cluster(0, 1, 2)
    cluster.create_topic("large", *[(0, 1)] * count)
    cluster.settle()
    assert led_by(cluster, 0) == count
    topic = CreatePartitionsRequest.CreatePartitionsTopic(name="large", count=count + added, assignments=None)
    if is_assigned:
        topic.assignments = [
            CreatePartitionsRequest.CreatePartitionsAssignment(broker_ids=[2, 1]) for _ in range(added)
        ]
    turns.taken()
    request = CreatePartitionsRequest(topics=[topic], timeout_ms=60_000)
    answer = cluster.ask(cluster.controller.create_partitions, request, actor="test")
    longest = turns.taken()
    assert [row.error_code for row in answer.results] == [ErrorCode.NONE]
    written = cluster.assignment("large").partitions
    assert len(written) == count + added
    (image,) = cluster.controller.image.topics()
    assert [written[index].replicas for index in range(count + added)] == [each.replicas for each in image.partitions]
    led = [led_by(cluster, broker_id) for broker_id in cluster.brokers]
    assert sum(led) == count + added
    assert led[2] == added or not is_assigned
    assert longest[0] <= TURN_MS_MAX, longest


def test_the_topics_of_a_failover_are_watched_in_slices(turns: Turns, monkeypatch: pytest.MonkeyPatch) -> None:
    """20,000 topics took one turn of 50 ms. The controller is loaded after the last of them."""
    monkeypatch.setattr(topic_watch, "_WATCHED_AT_ONCE", 3)
    watched: Counter[int] = Counter()
    cluster = Cluster(0, 1, 2)
    names = [f"t{index}" for index in range(10)]
    for name in names:
        cluster.create_topic(name, (0, 1, 2))
    cluster.settle()
    watch_data = ZnodeReader.watch_data

    def counted(reader: ZnodeReader, path: str, found: Any) -> None:
        if path.startswith(paths.TOPICS):
            watched[turns.count] += 1
        watch_data(reader, path, found)

    monkeypatch.setattr(ZnodeReader, "watch_data", counted)
    cluster.kill(0)
    cluster.settle()
    assert sorted(watched.values()) == [1, 3, 3, 3]
    assert list(cluster.controller.image.topic_names()) == names
    assert led_by(cluster, 1) == len(names)
