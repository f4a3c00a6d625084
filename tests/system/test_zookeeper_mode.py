"""Clusters in ZooKeeper mode: our brokers alone, and next to Apache Kafka 3.9.1's under either side's controller."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from tests.support.process_nodes import until
from tests.support.zookeeper_mode import WAIT_S, OurBroker, ZooKeeperModeCluster

from kafka39_jars import KafkaBroker

OURS, THEIRS = OurBroker, KafkaBroker
Start = Callable[[Sequence[type[KafkaBroker]]], ZooKeeperModeCluster]
CONSTELLATIONS = [
    pytest.param((OURS, OURS, OURS), id="ours-alone"),
    pytest.param((OURS, OURS, THEIRS), id="two-of-ours", marks=pytest.mark.full),
    pytest.param((OURS, THEIRS, THEIRS), id="one-of-ours", marks=pytest.mark.full),
]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[ZooKeeperModeCluster] = []

    def begin(kinds: Sequence[type[KafkaBroker]]) -> ZooKeeperModeCluster:
        started.append(ZooKeeperModeCluster(tmp_path, kinds))
        return started[-1]

    yield begin
    for cluster in started:
        cluster.close()


def values_of(part: int) -> list[str]:
    return [f"{part}-{number}" for number in range(300)]


@pytest.mark.full
@pytest.mark.parametrize("kinds", CONSTELLATIONS)
def test_controllers_are_killed_one_after_another_and_nothing_is_lost(
    start: Start, kinds: Sequence[type[KafkaBroker]]
) -> None:
    cluster = start(kinds)
    cluster.create("orders")
    cluster.await_isrs("orders")
    expected = values_of(0)
    cluster.produce("orders", expected)
    for part in (1, 2, 3):
        before = cluster.await_controller()
        cluster.brokers[before].kill()
        cluster.await_controller(frozenset({before}))
        cluster.produce("orders", values_of(part))
        expected += values_of(part)
        cluster.start_again(before)
        cluster.await_isrs("orders")
    assert sorted(cluster.consume("orders", len(expected))) == sorted(expected)


@pytest.mark.parametrize("kinds", CONSTELLATIONS)
def test_configurations_and_deletions_reach_every_broker(start: Start, kinds: Sequence[type[KafkaBroker]]) -> None:
    cluster = start(kinds)
    cluster.create("orders")
    for number in cluster.brokers:
        value = f"{number}000000"
        entry = ConfigEntry("retention.ms", value, incremental_operation=AlterConfigOpType.SET)
        client = cluster.admin(number)
        resource = ConfigResource(ResourceType.TOPIC, "orders", incremental_configs=[entry])
        for future in client.incremental_alter_configs([resource]).values():
            future.result(WAIT_S)

        def is_known(value: str = value) -> bool:
            for other in cluster.brokers:
                client = cluster.admin(other)
                (described,) = client.describe_configs([ConfigResource(ResourceType.TOPIC, "orders")]).values()
                if described.result(WAIT_S)["retention.ms"].value != value:
                    return False
            return True

        until(f"the setting of broker {number}", is_known, WAIT_S)
    client = cluster.admin()
    for future in client.delete_topics(["orders"]).values():
        future.result(WAIT_S)
    until("the end of the topic", lambda: cluster.znode("/brokers/topics/orders") is None, WAIT_S)
    cluster.create("orders", partitions=1)
    cluster.await_isrs("orders")


@pytest.mark.parametrize("kinds", CONSTELLATIONS)
def test_a_broker_that_stops_hands_over_and_comes_back(start: Start, kinds: Sequence[type[KafkaBroker]]) -> None:
    cluster = start(kinds)
    cluster.create("orders")
    cluster.await_isrs("orders")
    assert cluster.brokers[1].stop() == 0
    assert cluster.znode("/brokers/ids/1") is None
    assert cluster.isrs("orders") == [{2, 3}] * 3
    cluster.produce("orders", values_of(0))
    cluster.start_again(1)
    cluster.await_isrs("orders")
    assert sorted(cluster.consume("orders", 300)) == sorted(values_of(0))


@pytest.mark.full
def test_a_controller_that_was_paused_registers_again(start: Start) -> None:
    """The session ends while the process is stopped: another broker decides, and the paused one registers again."""
    cluster = start((OURS, OURS, OURS))
    cluster.create("orders")
    cluster.await_isrs("orders")
    before = cluster.await_controller()
    paused = cluster.brokers[before].process
    assert paused is not None
    paused.send_signal(signal.SIGSTOP)
    try:
        cluster.await_controller(frozenset({before}))
        until("the end of its session", lambda: cluster.znode(f"/brokers/ids/{before}") is None, WAIT_S)
        cluster.produce("orders", values_of(0))
    finally:
        paused.send_signal(signal.SIGCONT)
    cluster.await_isrs("orders")
    assert cluster.controller_id != before
    assert sorted(cluster.consume("orders", 300)) == sorted(values_of(0))


def test_a_start_that_cannot_be_says_why_in_one_line(tmp_path: Path) -> None:
    settings = {"zookeeper.connection.timeout.ms": "500"}
    broker = OurBroker(tmp_path / "broker", "127.0.0.1:1/kafka", 1, properties=settings)
    broker.launch()
    assert broker.process is not None
    assert broker.process.wait(30) == 1
    (line,) = [line for line in broker.log.splitlines() if line.startswith("barnabas: ")]
    assert "ZooKeeper at 127.0.0.1:1/kafka did not answer within 500 ms" in line
