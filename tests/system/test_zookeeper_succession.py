"""Killed and paused processes of a cluster in ZooKeeper mode, with the default session timeout of 18 s: who takes over,
how soon, and that nothing acknowledged is lost.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.support.process_nodes import call, until
from tests.support.wired_requests import batch_of
from tests.support.zookeeper_mode import WAIT_S, OurBroker, ZooKeeperModeCluster

from barnabas.common.errors import DecodeError
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.protocol.messages.produce import ProduceRequest, ProduceResponse

_SESSION = {"zookeeper.session.timeout.ms": "18000"}
#: The goals are 0.5 s for a leader and 1 s for a controller; here other tests run at the same time.
_BUSY_S = 5.0
_TOPIC = "orders"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ZooKeeperModeCluster]:
    made = ZooKeeperModeCluster(tmp_path, [OurBroker] * 3, _SESSION)
    try:
        made.create(_TOPIC)
        made.await_isrs(_TOPIC)
        time.sleep(1)  # every process has connected to those that it watches
        yield made
    finally:
        made.close()


def leader_of(cluster: ZooKeeperModeCluster, index: int) -> int:
    return int(cluster.znode(f"/brokers/topics/{_TOPIC}/partitions/{index}/state")["leader"])


def write_to(cluster: ZooKeeperModeCluster, index: int, survivors: Sequence[int]) -> None:
    """Returns when a write to the partition, with acks=all, is acknowledged."""
    wanted = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=_TOPIC)])
    data = ProduceRequest.PartitionProduceData(index=index, records=batch_of(b"x"))
    topic = ProduceRequest.TopicProduceData(name=_TOPIC, partition_data=[data])
    write = ProduceRequest(acks=-1, timeout_ms=2_000, topic_data=[topic])

    def is_written() -> bool:
        with suppress(OSError, DecodeError):
            told = call(("localhost", cluster.brokers[survivors[0]].port), wanted, 12, MetadataResponse, timeout_s=2)
            leader = next(row.leader_id for row in told.topics[0].partitions if row.partition_index == index)
            if leader in survivors:
                answer = call(("localhost", cluster.brokers[leader].port), write, 9, ProduceResponse, timeout_s=3)
                return answer.responses[0].partition_responses[0].error_code == 0
        return False

    until("an acknowledged write", is_written, WAIT_S)


@pytest.mark.full
def test_killed_leaders_and_controllers_are_replaced_before_their_sessions_end(cluster: ZooKeeperModeCluster) -> None:
    controller = cluster.await_controller()
    index = next(index for index in range(3) if leader_of(cluster, index) != controller)
    leader = leader_of(cluster, index)
    survivors = sorted({1, 2, 3} - {leader})
    cluster.brokers[leader].kill()
    begin = time.monotonic()
    write_to(cluster, index, survivors)
    took = time.monotonic() - begin
    print(f"leader killed, first acknowledged write: {took:.3f} s")
    assert took < _BUSY_S
    assert cluster.znode(f"/brokers/ids/{leader}") is not None, "its session has not ended"

    cluster.brokers[leader].start(WAIT_S)
    cluster.await_isrs(_TOPIC)
    before = cluster.await_controller()
    epoch = cluster.znode("/controller_epoch")
    survivors = sorted({1, 2, 3} - {before})
    cluster.brokers[before].kill()
    begin = time.monotonic()
    cluster.await_controller(frozenset({before, -1}))
    took = time.monotonic() - begin
    for index in range(3):
        write_to(cluster, index, survivors)
    print(f"controller killed, another one: {took:.3f} s, all written: {time.monotonic() - begin:.3f} s")
    assert time.monotonic() - begin < 2 * _BUSY_S
    assert cluster.znode("/controller_epoch") == epoch + 1
    assert cluster.znode(f"/brokers/ids/{before}") is not None, "its session has not ended"


@pytest.mark.full
def test_a_controller_and_a_leader_killed_together_are_replaced(cluster: ZooKeeperModeCluster) -> None:
    """The ISR shrinks to the one survivor, which leads everything."""
    controller = cluster.await_controller()
    index = next(index for index in range(3) if leader_of(cluster, index) != controller)
    leader = leader_of(cluster, index)
    (survivor,) = {1, 2, 3} - {controller, leader}
    for number in (controller, leader):
        cluster.brokers[number].kill()
    begin = time.monotonic()
    for each in range(3):
        write_to(cluster, each, [survivor])
    took = time.monotonic() - begin
    print(f"controller and leader killed, all written: {took:.3f} s")
    assert took < 2 * _BUSY_S
    for number in (controller, leader):
        cluster.brokers[number].start(WAIT_S)
    cluster.await_isrs(_TOPIC)


class Load(threading.Thread):
    """An idempotent producer that writes numbers until it is stopped."""

    def __init__(self, cluster: ZooKeeperModeCluster) -> None:
        super().__init__(daemon=True)
        settings = {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "log_level": 0}
        self._producer = Producer({**settings, "linger.ms": 5, "delivery.timeout.ms": 120_000})
        self._is_over = False
        self.acked: list[str] = []
        self.failed: list[str] = []

    def begin(self) -> None:
        """Starts, and returns once a write is acknowledged: the producer has its id, which comes from ZooKeeper."""
        self.start()
        until("the first acknowledged write", lambda: bool(self.acked), WAIT_S)

    def run(self) -> None:
        number = 0
        while not self._is_over:
            value = f"n{number}"
            self._producer.produce(_TOPIC, value.encode(), on_delivery=self._delivered)
            self._producer.poll(0)
            number += 1
            time.sleep(0.005)
        self._producer.flush(WAIT_S)

    def _delivered(self, error: object, message: object) -> None:
        value = message.value().decode()  # type: ignore[attr-defined]
        (self.failed if error is not None else self.acked).append(value)

    def finish(self) -> list[str]:
        """Returns the values that were acknowledged; none may have failed."""
        self._is_over = True
        self.join(WAIT_S)
        assert not self.is_alive()
        assert self.failed == []
        return self.acked


@pytest.mark.full
def test_a_zookeeper_that_is_killed_and_started_again_loses_no_session(cluster: ZooKeeperModeCluster) -> None:
    load = Load(cluster)
    load.begin()
    controller, epoch = cluster.await_controller(), cluster.znode("/controller_epoch")
    owners = {number: cluster.owner(f"/brokers/ids/{number}") for number in cluster.brokers}
    for _ in range(2):
        cluster.zookeeper.kill()
        time.sleep(2)
        cluster.zookeeper.start(WAIT_S)
        time.sleep(2)
    until("the topic", lambda: cluster.znode(f"/brokers/topics/{_TOPIC}") is not None, WAIT_S)
    assert {number: cluster.owner(f"/brokers/ids/{number}") for number in cluster.brokers} == owners
    assert (cluster.controller_id, cluster.znode("/controller_epoch")) == (controller, epoch)
    cluster.create("later")
    cluster.await_isrs("later")
    written = load.finish()
    assert set(written) <= set(cluster.consume(_TOPIC, len(written)))


@pytest.mark.full
def test_a_zookeeper_that_is_paused_for_longer_than_the_sessions(cluster: ZooKeeperModeCluster) -> None:
    """Leaders keep serving what they lead; sessions that a server did not serve are not ended for its own pause."""
    load = Load(cluster)
    load.begin()
    epoch = cluster.znode("/controller_epoch")
    process = cluster.zookeeper.process
    assert process is not None
    process.send_signal(signal.SIGSTOP)
    try:
        before = len(load.acked)
        time.sleep(25)
        assert len(load.acked) > before, "writes are acknowledged without ZooKeeper"
    finally:
        process.send_signal(signal.SIGCONT)
    until("a controller", lambda: cluster.controller_id > 0, WAIT_S)
    until("all brokers", lambda: all(cluster.owner(f"/brokers/ids/{number}") for number in cluster.brokers), WAIT_S)
    print(f"controller epochs: {epoch} before, {cluster.znode('/controller_epoch')} after")
    cluster.create("later")
    cluster.await_isrs("later")
    cluster.await_isrs(_TOPIC)
    written = load.finish()
    assert set(written) <= set(cluster.consume(_TOPIC, len(written)))
