"""Brokers of ours and of Apache Kafka 3.9.1 in one cluster in ZooKeeper mode, under load: both kinds decide in turn,
every operation of an operator works under each, and nothing that was acknowledged is lost.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from tests.support.process_nodes import until
from tests.support.survival import Load, create_topic
from tests.support.zookeeper_mode import OurBroker, ZooKeeperModeCluster
from tests.support.zookeeper_mode_admin import administer, elect_unclean, shut_down

from barnabas.cli import entry
from kafka39_jars import KafkaBroker

OURS, THEIRS = OurBroker, KafkaBroker
Start = Callable[[Sequence[type[KafkaBroker]]], ZooKeeperModeCluster]
CONSTELLATIONS = [
    pytest.param((OURS, OURS, THEIRS), id="two-of-ours"),
    pytest.param((OURS, THEIRS, THEIRS), id="one-of-ours"),
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


@pytest.mark.full
@pytest.mark.parametrize("kind", [pytest.param(OURS, id="under-ours"), pytest.param(THEIRS, id="under-theirs")])
@pytest.mark.parametrize("kinds", CONSTELLATIONS)
def test_every_operation_under_either_controller(
    start: Start, tmp_path: Path, kinds: Sequence[type[KafkaBroker]], kind: type[KafkaBroker]
) -> None:
    cluster = start(kinds)
    create_topic(cluster, "orders")
    with Load(cluster, tmp_path, {"orders": 3}) as load:
        controller = cluster.let_decide(kind)
        administer(cluster, "moved")
        load.go_on(200)
        for broker in sorted(cluster.brokers, key=lambda number: number == controller):
            assert cluster.controller_id == controller, "no other one decided meanwhile"
            shut_down(cluster, broker, "orders")
        load.go_on(200)
    load.judge()


@pytest.mark.full
@pytest.mark.parametrize("kind", [pytest.param(OURS, id="under-ours"), pytest.param(THEIRS, id="under-theirs")])
@pytest.mark.parametrize("kinds", CONSTELLATIONS)
def test_unclean_elections_under_either_controller(
    start: Start, kinds: Sequence[type[KafkaBroker]], kind: type[KafkaBroker]
) -> None:
    cluster = start(kinds)
    controller = cluster.let_decide(kind)
    elect_unclean(cluster, "asked-for", by_request=True)
    elect_unclean(cluster, "configured", by_request=False)
    assert cluster.controller_id == controller, "no other one decided meanwhile"


@pytest.mark.parametrize(
    ("kinds", "turns"),
    [
        pytest.param((OURS, OURS, THEIRS), 1, id="two-of-ours", marks=pytest.mark.full),
        pytest.param((OURS, OURS, THEIRS), 3, id="two-of-ours-often", marks=pytest.mark.full),
        pytest.param((OURS, THEIRS, THEIRS), 3, id="one-of-ours-often", marks=pytest.mark.full),
    ],
)
def test_controllers_of_both_kinds_are_killed_under_load(
    start: Start, tmp_path: Path, kinds: Sequence[type[KafkaBroker]], turns: int
) -> None:
    """The office goes from one kind to the other and back; each controller is killed, and returns to all ISRs."""
    cluster = start(kinds)
    create_topic(cluster, "orders")
    with Load(cluster, tmp_path, {"orders": 3}) as load:
        for kind in (THEIRS, OURS) * turns:
            victim = cluster.let_decide(kind)
            cluster.brokers[victim].kill()
            cluster.await_controller(frozenset({victim}))
            load.go_on(200)
            cluster.start_again(victim)
            cluster.await_isrs("orders")
            load.go_on(200)
    load.judge()


@pytest.mark.full
def test_causes_under_their_controller_are_inferred(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    """Both Barnabas brokers write the causes that they infer; a reader sees each change once."""
    cluster = start((OURS, OURS, THEIRS))
    create_topic(cluster, "orders")
    controller = cluster.let_decide(THEIRS)
    bootstrap = ",".join(broker.bootstrap for broker in cluster.brokers.values())

    def said(*words: str) -> str:
        assert entry.run(["explain", *words, "--bootstrap", bootstrap]) == 0
        return capsys.readouterr().out

    led = next(number for number in range(3) if cluster.state("orders", number)["leader"] == 1)
    first = cluster.state("orders", led)["leader_epoch"]
    cluster.brokers[1].kill()
    reason = "probably because broker 1 is no longer registered in ZooKeeper (inferred)"
    until("an inferred cause", lambda: f"(before: leader 1), {reason}" in said(f"orders-{led}"), 60)
    cluster.start_again(1)
    cluster.await_isrs("orders")
    until("the return", lambda: "probably because broker 1 caught up with leader" in said(f"orders-{led}"), 60)
    assert entry.run(["elect", "--type", "preferred", "--all-topic-partitions", "--bootstrap", bootstrap]) == 0
    capsys.readouterr()
    until("the election", lambda: "moved back to the preferred replica" in said(f"orders-{led}"), 60)
    assert cluster.controller_id == controller, "no other one decided meanwhile"
    history = json.loads(said(f"orders-{led}", "--json"))["history"]
    last = [each for each in history if each.get("partition") == led and each["after"]["leader_epoch"] > first]
    assert [event["kind"] for event in last] == ["leader-change", "isr-expand", "preferred-election"], history
    assert all(event["inferred"] for event in last)
