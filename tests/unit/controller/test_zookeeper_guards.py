"""Guards of the controller of ZooKeeper mode: epochs, lost answers, ended sessions, events at bad times."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.support.zookeeper_controllers import Cluster, FakeBroker

from barnabas.common.errors import ErrorCode
from barnabas.common.types import uuid_to_text
from barnabas.protocol.message import Message
from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from barnabas.znodes import paths
from barnabas.znodes.topic_znodes import ReplicaAssignment, TopicAssignment, encode_topic
from barnabas.zookeeper.wire.codes import OpCode

REPLICAS = ((0, 1, 2), (1, 2, 0), (2, 0, 1))


def with_topic(*broker_ids: int) -> Cluster:
    cluster = Cluster(*broker_ids)
    cluster.create_topic("orders", *REPLICAS)
    cluster.settle()
    return cluster


def states(cluster: Cluster) -> list[tuple[int, int, tuple[int, ...]]]:
    return [cluster.state("orders", index)[:3] for index in range(3)]


def test_a_controller_that_slept_writes_nothing_and_is_believed_by_nobody() -> None:
    """G31, G36: its session ended while it was stopped; its first write is refused, and so are its requests."""
    cluster = with_topic(0, 1, 2)
    old = cluster.brokers[0]
    cluster.create_topic("late", (1, 2), (2, 1))
    while not any(OpCode.CREATE in [op for op, _ in multi] for multi in old.store.log[-1:]):
        old.store.answer()
    sent = len(old.store.sent)
    cluster.pause(0)
    cluster.settle()
    assert cluster.brokers[1].controller.is_active or cluster.brokers[2].controller.is_active
    zxid, written = cluster.tree.zxid, len(old.store.log)
    late = [role.controller_epoch for broker in (1, 2) for role in cluster.brokers[broker].roles.values()]
    assert set(late) == {1, 2} or set(late) == {2}
    old.is_paused = False
    answers: list[CreateTopicsResponse] = []
    request = CreateTopicsRequest(
        topics=[CreateTopicsRequest.CreatableTopic(name="never", num_partitions=1, replication_factor=1)]
    )
    old.controller.create_topics(request, answers.append)
    old.controller.create_topics(request, answers.append)
    cluster.settle()
    assert not old.controller.is_active
    assert [row.error_code for each in answers for row in each.topics] == [ErrorCode.NOT_CONTROLLER] * 2
    assert cluster.tree.zxid == zxid, "nothing was written"
    assert len(old.store.log) == written
    assert len(old.store.sent) <= sent + 2
    assert not cluster.exists("/brokers/topics/never")


def test_brokers_refuse_the_requests_of_an_earlier_epoch() -> None:
    """G36: what an old controller still sends changes no role."""
    cluster = with_topic(0, 1, 2)
    old = cluster.brokers[0]
    request = [each for each in cluster.brokers[1].requests if isinstance(each, LeaderAndIsrRequest)][-1]
    cluster.pause(0)
    cluster.settle()
    roles = dict(cluster.brokers[1].roles)
    answers: list[object] = []
    old._send(1, cluster.brokers[1].epoch, request, answers.append)
    cluster.settle()
    assert [getattr(each, "error_code", None) for each in answers] == [ErrorCode.STALE_CONTROLLER_EPOCH]
    assert cluster.brokers[1].roles == roles


@pytest.mark.parametrize("happened", range(8))
def test_a_claim_whose_answer_was_lost_is_read_back(happened: int) -> None:
    """G32: whether it happened or not, one controller comes out of it."""
    cluster = Cluster()
    broker = cluster.start(0)
    for _ in range(happened):
        if broker.store.waiting:
            broker.store.answer()
    broker.store.disconnect(happened % 2)
    broker.store.reconnect()
    cluster.settle()
    assert cluster.controller.leader_id == 0
    assert cluster.controller.controller_epoch in (1, 2)


@pytest.mark.parametrize("steps", range(12))
@pytest.mark.parametrize("happened", [0, 1, 2, 100])
def test_lost_answers_leave_no_partition_without_a_leader(steps: int, happened: int) -> None:
    """G33: a lost write is neither done nor undone."""
    cluster = Cluster(0, 1, 2)
    store = cluster.brokers[0].store
    cluster.create_topic("orders", *REPLICAS)
    for _ in range(steps):
        if store.waiting:
            store.answer()
    store.disconnect(happened)
    cluster.settle()
    store.reconnect()
    cluster.settle()
    assert states(cluster) == [(0, 0, (0, 1, 2)), (1, 0, (1, 2, 0)), (2, 0, (2, 0, 1))]
    assert cluster.controller.controller_epoch == 1
    for broker in cluster.brokers.values():
        assert [broker.roles["orders", index].leader for index in range(3)] == [0, 1, 2]


@pytest.mark.parametrize("steps", range(10))
@pytest.mark.parametrize("happened", [0, 1, 100])
def test_lost_answers_when_a_broker_dies(steps: int, happened: int) -> None:
    """G33, G42: the death is seen although the watch fired while nobody listened."""
    cluster = with_topic(0, 1, 2)
    store = cluster.brokers[0].store
    cluster.kill(1)
    for _ in range(steps):
        if store.waiting:
            store.answer()
    store.disconnect(happened)
    store.reconnect()
    cluster.settle()
    assert states(cluster) == [(0, 1, (0, 2)), (2, 1, (2, 0)), (2, 1, (2, 0))]
    assert [role.leader_epoch for role in cluster.brokers[2].roles.values()] == [1, 1, 1]


@pytest.mark.parametrize("steps", range(0, 40, 3))
def test_an_ended_session_ends_the_office_before_the_next_one_begins(steps: int) -> None:
    """G34: wherever it was, in its claim, while it read or decided; then everything is registered and read again."""
    cluster = Cluster(0)
    cluster.create_topic("solo", (0,), (0,))
    broker = cluster.brokers[0]
    cluster.settle()
    broker.store.expire()
    for _ in range(steps):
        cluster.time.run_for(0)
        if broker.has_work:
            broker.store.answer()
    office = broker.controller._active
    if broker.store.session_id:
        broker.store.expire()
    assert not broker.controller.is_active
    assert office is None or (office.core.records._is_closed and not office.core.is_serving)
    cluster.settle()
    assert broker.controller.is_active
    assert [cluster.leader("solo", index) for index in range(2)] == [0, 0]


def test_a_failed_authentication_ends_no_office() -> None:
    """G34."""
    cluster = with_topic(0, 1, 2)
    cluster.brokers[0].auth_failed()
    cluster.kill(1)
    cluster.settle()
    assert states(cluster) == [(0, 1, (0, 2)), (2, 1, (2, 0)), (2, 1, (2, 0))]


def test_who_resigned_is_silent() -> None:
    """G41: no request is repeated, no timer decides, and whoever waited is told to ask the next controller."""
    cluster = Cluster(0, 1, 2, properties={"auto.leader.rebalance.enable": "true"})
    cluster.brokers[1].is_answering = False
    cluster.create_topic("orders", *REPLICAS)
    cluster.settle()
    old = cluster.brokers[0]
    answers: list[CreateTopicsResponse] = []
    request = CreateTopicsRequest(
        topics=[CreateTopicsRequest.CreatableTopic(name="new", num_partitions=1, replication_factor=3)]
    )
    old.controller.create_topics(request, answers.append)
    assert old.store.waiting
    old.store.expire()
    assert [row.error_code for each in answers for row in each.topics] == [ErrorCode.NOT_CONTROLLER]
    cluster.settle()
    sent = len(old.store.sent)
    cluster.brokers[1].answer_again()
    cluster.settle(600_000)
    epochs = [each.controller_epoch for each in cluster.brokers[1].requests if isinstance(each, LeaderAndIsrRequest)]
    assert epochs == sorted(epochs)
    assert len(old.store.sent) == sent or old.controller.is_active


@pytest.mark.parametrize("slices", [0, 1])
def test_an_activation_that_fails_makes_room_for_another(monkeypatch: pytest.MonkeyPatch, slices: int) -> None:
    """G41: it resigns and deletes `/controller` under its own epoch, in whichever slice it fails."""
    cluster = with_topic(0, 1, 2)
    first = cluster.brokers[1].controller
    failures = []

    def fail(_: object) -> Iterator[None]:
        yield from [None] * slices
        failures.append(1)
        raise ValueError("a planted mistake")

    monkeypatch.setattr("barnabas.controller.zookeeper.active_controller.ActiveController._first_decisions", fail)
    cluster.kill(0)
    for _ in range(100):
        for broker in (1, 2):
            if cluster.brokers[broker].has_work:
                cluster.brokers[broker].store.answer()
        cluster.time.run_for(0)
        if failures:
            break
    monkeypatch.undo()
    cluster.settle()
    assert failures
    assert cluster.controller.controller_epoch > 2
    assert states(cluster) == [(1, 1, (1, 2)), (1, 1, (1, 2)), (2, 1, (2, 1))]
    reported = [text for each in cluster.brokers.values() for text, _ in each.host.faults.reported]
    assert any("cannot load its state" in text for text in reported)
    assert first is cluster.brokers[1].controller


@pytest.mark.parametrize("steps", range(0, 60, 4))
def test_changes_while_everything_is_read_are_seen(steps: int) -> None:
    """G42: watches first, then reads."""
    cluster = with_topic(0, 1, 2)
    cluster.kill(0)
    stores = [cluster.brokers[1].store, cluster.brokers[2].store]
    for _ in range(steps):
        for store in stores:
            if store.waiting:
                store.answer()
    cluster.create_topic("new", (1, 2), (2, 0))
    cluster.tree.set("/config/topics/orders", b'{"version":1,"config":{"min.insync.replicas":"2"}}')
    cluster.kill(1)
    cluster.start(0)
    cluster.settle()
    assert [cluster.state("new", index)[0] for index in range(2)] == [2, 2]
    assert all(leader in isr and 2 in isr and set(isr) <= {0, 2} for leader, _, isr in states(cluster))
    assert cluster.controller.image.topic_config("orders")["min.insync.replicas"] == "2"


def test_a_slow_broker_delays_nobody() -> None:
    """G44: a broker that does not answer has its own queue; decisions and the others continue."""
    cluster = with_topic(0, 1, 2)
    cluster.brokers[1].is_answering = False
    count = len(cluster.brokers[1].requests)
    for number in range(5):
        cluster.create_topic(f"topic-{number}", (2, 1), (0, 1))
    cluster.settle()
    cluster.kill(2)
    cluster.settle()
    assert [cluster.leader("orders", index) for index in range(3)] == [0, 1, 0]
    assert cluster.brokers[0].roles["topic-4", 1].leader_epoch == 0
    assert len(cluster.brokers[1].requests) == count
    cluster.brokers[1].answer_again()
    cluster.settle()
    assert [cluster.brokers[1].roles[f"topic-{number}", 0].leader for number in range(5)] == [1] * 5


def test_a_request_without_an_answer_is_repeated_until_the_broker_is_gone() -> None:
    cluster = with_topic(0, 1, 2)
    broker = cluster.brokers[2]
    broker.is_alive = False
    cluster.create_topic("new", (0, 2))
    cluster.settle()
    tries: list[int] = []
    deliver = cluster.deliver

    def counted(broker_id: int, request: object, reply: object) -> None:
        tries.append(broker_id)
        deliver(broker_id, request, reply)  # type: ignore[arg-type]

    cluster.deliver = counted  # type: ignore[method-assign]
    cluster.settle(1_000)
    assert tries == [2] * 10
    broker.is_alive = True
    cluster.settle(200)
    assert broker.roles["new", 0].leader == 0
    cluster.settle(1_000)
    assert len(tries) < 20


# Znodes that are not what they should be.


BROKEN = {
    "no JSON": ("/brokers/topics/bad", b"{"),
    "unknown version": ("/brokers/topics/bad", b'{"version":9,"partitions":{"0":[1]}}'),
    "holes": ("/brokers/topics/bad", b'{"version":3,"partitions":{"0":[1],"2":[1]}}'),
    "no replicas": ("/brokers/topics/bad", b'{"version":3,"partitions":{"0":[]}}'),
    "a state that is none": ("/brokers/topics/bad/partitions/0/state", b"?"),
    "a leader that is no replica": (
        "/brokers/topics/bad/partitions/0/state",
        b'{"controller_epoch":1,"leader":7,"version":1,"leader_epoch":0,"isr":[7]}',
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_znode_harms_its_own_topic_until_it_is_mended(case: str) -> None:
    path, data = BROKEN[case]
    cluster = with_topic(0, 1, 2)
    cluster.create_topic("bad", (1, 2))
    cluster.settle()
    mended = cluster.tree.content(path)
    assert mended is not None
    cluster.kill(0)
    cluster.tree.set(path, data)
    cluster.settle()
    assert all(leader in (1, 2) for leader, _, _ in states(cluster))
    (problem,) = cluster.controller.problems
    assert problem.startswith(path)
    controller = cluster.brokers[cluster.controller.leader_id]
    assert any(path in text for text, _ in controller.host.faults.reported)
    cluster.tree.set(path, mended.data)
    cluster.settle()
    assert list(cluster.controller.problems) == []
    assert cluster.leader("bad", 0) in (1, 2)
    assert cluster.brokers[cluster.leader("bad", 0)].roles["bad", 0].leader_epoch >= 0


def test_a_topic_with_the_id_of_another_is_left_out() -> None:
    cluster = with_topic(0, 1, 2)
    topic_id = cluster.assignment("orders").topic_id
    assert topic_id is not None
    twin = f'{{"version":3,"partitions":{{"0":[1,2]}},"topic_id":"{uuid_to_text(topic_id)}"}}'
    cluster.tree.set("/brokers/topics/twin", twin.encode())
    cluster.settle()
    assert list(cluster.controller.problems) == ["/brokers/topics/twin: has the id of topic orders"]
    cluster.kill(1)
    cluster.settle()
    assert all(leader in (0, 2) for leader, _, _ in states(cluster))


def test_an_edited_state_is_taken_in_under_a_higher_epoch() -> None:
    """G33: a conflict is no loss: what was found counts, and brokers learn it."""
    cluster = with_topic(0, 1, 2)
    edited = b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":5,"isr":[1,2]}'
    cluster.tree.set("/brokers/topics/orders/partitions/0/state", edited)
    cluster.settle()
    assert cluster.alter_isr("orders", 2, (2, 1)) == ErrorCode.NONE
    cluster.kill(2)
    cluster.settle()
    leader, epoch, isr = cluster.state("orders", 0)[:3]
    assert (leader, isr) == (1, (1,))
    assert epoch >= 6
    assert cluster.brokers[0].roles["orders", 0].leader_epoch == epoch
    assert states(cluster)[1:] == [(1, 1, (1, 0)), (1, 1, (1,))]


def test_a_controller_znode_that_is_deleted_is_claimed_again() -> None:
    cluster = with_topic(0, 1, 2)
    cluster.tree.delete("/controller")
    cluster.settle()
    assert cluster.controller.controller_epoch == 2
    cluster.tree.set("/controller_epoch", b"17")
    cluster.kill(2 if cluster.controller.leader_id != 2 else 1)
    cluster.settle()
    assert cluster.controller.controller_epoch >= 18
    assert all(leader >= 0 for leader, _, _ in states(cluster))


def test_brokers_hear_of_a_topic_without_an_id_when_its_new_id_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """A controller that ends in between must not leave logs with an id that its successor does not know."""
    cluster = Cluster(0, 1, 2)
    receive = FakeBroker.receive
    told: list[bytes] = []

    def watched(self: FakeBroker, request: Message, reply: Callable[[Message | None], None]) -> None:
        for topic in getattr(request, "topic_states", ()):
            told.append(topic.topic_id)
            assert topic.topic_id == cluster.assignment("old").topic_id
        receive(self, request, reply)

    monkeypatch.setattr(FakeBroker, "receive", watched)
    assignment = {0: ReplicaAssignment((0, 1, 2)), 1: ReplicaAssignment((1, 2))}
    cluster.tree.set(paths.topic("old"), encode_topic(TopicAssignment(None, assignment)))
    cluster.settle()
    assert len(told) > 3
    assert len(set(told)) == 1
    assert cluster.state("old", 1).leader == 1
