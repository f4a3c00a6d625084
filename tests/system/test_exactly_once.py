"""Exactly once from read to write: chains of unmodified clients on three brokers, whose coordinators, leaders and links
are killed (tests/support/chain_survival.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.clients import programs
from tests.support.chain_survival import Chain
from tests.support.survival import known_leader_of

from barnabas.testing import Cluster

PROPERTIES = {
    "group.initial.rebalance.delay.ms": "100",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "300",
    "group.consumer.heartbeat.interval.ms": "300",
}
#: Java machines that start take their time on a machine that is busy.
START_S = 240


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path / "brokers", brokers=3, properties=PROPERTIES) as made:
        yield made


@pytest.mark.full
def test_a_chain_whose_link_and_coordinator_are_killed(cluster: Cluster, tmp_path: Path) -> None:
    with Chain(cluster, tmp_path, "aiokafka", programs.chain_link, links=1) as chain:
        chain.go_on(timeout_s=START_S)
        victim = chain.transaction_coordinator("link-0")
        cluster.kill(victim)
        chain.links[0].kill()
        chain.links[0].start()
        chain.go_on()
        cluster.start_broker(victim)
        chain.settle()
        chain.judge()


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "client", ["java-classic", "java-consumer", "confluent-classic", "confluent-consumer", "aiokafka"]
)
def test_a_chain_writes_everything_once(cluster: Cluster, tmp_path: Path, client: str) -> None:
    """Coordinators, leaders and links are killed meanwhile: one at a time, and two at the same time."""
    with Chain(cluster, tmp_path, client, programs.chain_link) as chain:
        chain.go_on(timeout_s=START_S)
        victims: list[Callable[[], int]] = [
            lambda: chain.transaction_coordinator("link-0"),
            lambda: chain.group_coordinator(),
            lambda: known_leader_of(cluster, "output", 0),
            lambda: chain.transaction_coordinator("link-1"),
            lambda: known_leader_of(cluster, "output", 1),
        ]
        for number, find in enumerate(victims):
            link = chain.links[number % 2]
            victim = find()
            cluster.kill(victim)
            if number in (1, 3, 4):
                link.kill()
                link.start()
            chain.go_on(timeout_s=START_S)
            cluster.start_broker(victim)
            chain.go_on(1, timeout_s=START_S)
        for number in range(4):
            link = chain.links[number % 2]
            # This point is inside a transaction, because transactions are open for longer than the time between them.
            time.sleep(0.013 * number)
            link.kill()
            link.start()
            chain.go_on(2, timeout_s=START_S)
        chain.settle()
        chain.judge()
