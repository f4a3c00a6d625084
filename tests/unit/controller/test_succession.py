"""Dead processes in ZooKeeper mode are replaced without waiting for the end of their sessions."""

from __future__ import annotations

import pytest
from tests.support.process_links import Listening
from tests.support.zookeeper_controllers import PORT, Cluster

from barnabas.controller.listener import CommitListener
from barnabas.controller.requests.result import Cause, ControllerEvent
from barnabas.zookeeper.wire.codes import OpCode

REPLICAS = ((0, 1, 2), (1, 2, 0), (2, 0, 1))


def with_topic(*broker_ids: int) -> Cluster:
    cluster = Cluster(*broker_ids)
    cluster.create_topic("orders", *REPLICAS)
    cluster.settle(2_000)
    return cluster


def states(cluster: Cluster) -> list[tuple[int, int, tuple[int, ...]]]:
    return [cluster.state("orders", index)[:3] for index in range(3)]


def deletions_of_controller(cluster: Cluster) -> int:
    return [(op, path) for op, path, _ in cluster.tree.writes].count((OpCode.DELETE, "/controller"))


def test_a_leader_whose_process_ended_is_replaced_before_its_session_ends() -> None:
    cluster = with_topic(0, 1, 2)
    causes: list[Cause | None] = []
    listener = CommitListener(lambda image: None, lambda delta, image, cause: causes.append(cause))
    cluster.controller.listen(listener)
    cluster.crash(1)
    cluster.settle()
    assert cluster.exists("/brokers/ids/1"), "its session has not ended"
    assert states(cluster) == [(0, 1, (0, 2)), (2, 1, (2, 0)), (2, 1, (2, 0))]
    assert cluster.brokers[2].roles["orders", 1].leader == 2
    assert [cause and cause.event for cause in causes] == [ControllerEvent.ZNODE_PROCESS_ENDED] * 2


def test_the_end_of_its_session_changes_nothing_more() -> None:
    cluster = with_topic(0, 1, 2)
    cluster.crash(1)
    cluster.settle()
    before = states(cluster)
    cluster.brokers[1].store.expire()
    cluster.settle(5_000)
    assert states(cluster) == before
    cluster.start(1)
    cluster.settle()
    cluster.alter_isr("orders", 1, (2, 0, 1))
    assert states(cluster)[1] == (2, 1, (2, 0, 1))


def test_the_last_member_of_an_isr_stays_in_it() -> None:
    cluster = Cluster(0, 1)
    cluster.create_topic("solo", (1,))
    cluster.settle(2_000)
    cluster.crash(1)
    cluster.settle()
    assert cluster.state("solo", 0)[:3] == (-1, 1, (1,))


def test_a_broker_that_a_firewall_cuts_off_returns_when_it_responds() -> None:
    """The same registration counts again, because the session never ended."""
    cluster = with_topic(0, 1, 2)
    epoch = cluster.brokers[1].epoch
    cluster.brokers[0].finds[1] = Listening.REFUSES
    cluster.brokers[0].links.cut(PORT + 1)
    cluster.settle()
    assert cluster.leader("orders", 1) == 2
    del cluster.brokers[0].finds[1]
    cluster.settle(3_000)
    assert cluster.controller.image.brokers[1].epoch == epoch
    cluster.alter_isr("orders", 1, (2, 0, 1))
    assert states(cluster)[1] == (2, 1, (2, 0, 1))
    assert cluster.brokers[1].roles["orders", 1].leader == 2


def test_a_paused_broker_keeps_its_leaderships() -> None:
    cluster = with_topic(0, 1, 2)
    cluster.brokers[1].is_paused = True
    cluster.settle(10_000)
    assert cluster.leader("orders", 1) == 1


def test_a_controller_whose_process_ended_is_succeeded_before_its_session_ends() -> None:
    """The leaderships of its broker move too: the next controller finds no process."""
    cluster = with_topic(0, 1, 2)
    cluster.crash(0)
    cluster.settle()
    assert cluster.controller.leader_id in (1, 2)
    assert cluster.controller.controller_epoch == 2
    assert cluster.exists("/brokers/ids/0"), "its session has not ended"
    assert [state[0] for state in states(cluster)] == [1, 1, 2]
    assert list(cluster.controller.image.brokers) == [1, 2]


def test_a_controller_and_a_leader_that_end_together_are_both_replaced() -> None:
    cluster = with_topic(0, 1, 2)
    cluster.crash(0)
    cluster.crash(1)
    cluster.settle()
    assert cluster.controller.leader_id == 2
    assert [state[0] for state in states(cluster)] == [2, 2, 2]


def test_a_paused_controller_keeps_its_session() -> None:
    cluster = with_topic(0, 1, 2)
    cluster.brokers[0].is_paused = True
    cluster.settle(10_000)
    assert deletions_of_controller(cluster) == 0
    assert cluster.exists("/controller")


def test_a_controller_that_cannot_be_reached_keeps_its_session() -> None:
    cluster = with_topic(0, 1, 2)
    for other in (1, 2):
        cluster.brokers[other].finds[0] = Listening.SILENT
        cluster.brokers[other].links.cut(PORT)
    cluster.settle(30_000)
    assert cluster.controller.leader_id == 0
    assert cluster.controller.controller_epoch == 1


def test_a_firewall_that_rejects_ends_at_most_one_claim_of_a_healthy_controller() -> None:
    """Broker 2 cannot reach any other: its connections have ended, and its dials are refused."""
    cluster = with_topic(0, 1, 2)
    for other in (0, 1):
        cluster.brokers[2].finds[other] = Listening.REFUSES
        cluster.brokers[2].links.cut(PORT + other)
    cluster.settle(60_000)
    assert deletions_of_controller(cluster) == 1
    epoch = cluster.controller.controller_epoch
    assert epoch == 2
    for _ in range(10):
        cluster.settle(60_000)
    assert cluster.controller.controller_epoch == epoch


def test_a_firewall_that_never_let_a_connection_pass_ends_no_claim() -> None:
    cluster = Cluster(0, 1)
    cluster.start(2).finds.update({0: Listening.REFUSES, 1: Listening.REFUSES})
    cluster.settle(60_000)
    assert cluster.controller.controller_epoch == 1


def test_a_claim_that_another_has_followed_is_left_alone() -> None:
    """The epoch that was read is not that of the claim whose process has ended."""
    cluster = with_topic(0, 1, 2)
    cluster.tree.set("/controller_epoch", b"7")
    cluster.settle()
    deposed = deletions_of_controller(cluster)
    cluster.tree.set("/controller_epoch", b"8")
    cluster.crash(cluster.controller.leader_id)
    cluster.settle()
    assert deletions_of_controller(cluster) == deposed


@pytest.mark.parametrize("steps", range(4))
@pytest.mark.parametrize("happened", [0, 1])
def test_a_lost_answer_delays_the_succession_only(steps: int, happened: int) -> None:
    cluster = with_topic(0, 1)
    store = cluster.brokers[1].store
    cluster.crash(0)
    cluster.time.run_for(0)
    for _ in range(steps):
        if store.waiting:
            store.answer()
            cluster.time.run_for(0)
    store.disconnect(happened)
    store.reconnect()
    cluster.settle()
    assert cluster.controller.leader_id == 1
    assert cluster.controller.controller_epoch == 2


def test_a_session_that_ends_ends_the_watch() -> None:
    cluster = with_topic(0, 1)
    standby = cluster.brokers[1]
    assert standby.links.open_ports == [PORT]
    standby.is_alive = False
    standby.store.expire()
    cluster.settle()
    assert standby.links.open_ports == []
