"""Three brokers in separate network namespaces, under load, and a leader that is cut off: judged by the history.

Clients are on the bridge between them. A leader that clients reach and other brokers do not is the one that could
acknowledge records that are lost later.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.support.namespaces import HOST, Namespaces, why_not
from tests.support.survival import Load, create_topic, in_sync, known_leader_of, leader_of, wait_until

from barnabas.embedded.settings import new_cluster_id

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
CLIENTS, CONTROLLERS = 9092, 9093
BROKERS = (1, 2, 3)


class PartedCluster:
    """The part of a cluster that `Load` uses; broker 2 is in namespace "b2"."""

    def __init__(self, network: Namespaces, directory: Path) -> None:
        self._network = network
        self._directory = directory
        self._cluster_id = new_cluster_id()
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{self._network.address(f'b{broker_id}')}:{CLIENTS}" for broker_id in BROKERS)

    def start(self) -> None:
        for broker_id in BROKERS:
            folder = self._directory / f"broker-{broker_id}"
            folder.mkdir(parents=True)
            file = folder / "server.properties"
            file.write_text("".join(f"{key}={value}\n" for key, value in self._settings(broker_id, folder).items()))
            command = [*self._network.inside(f"b{broker_id}"), sys.executable, "-m", "barnabas.server.main", "broker"]
            with (folder / "broker.log").open("wb") as log:
                self._processes.append(
                    subprocess.Popen([*command, str(file), "--cluster-id", self._cluster_id], stdout=log, stderr=log)
                )
        for broker_id in BROKERS:
            log_path = self._directory / f"broker-{broker_id}" / "broker.log"
            wait_until(lambda path=log_path: "started: " in path.read_text(), f"broker {broker_id} serves")  # type: ignore[misc]

    def stop(self) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            try:
                process.wait(120)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _settings(self, broker_id: int, folder: Path) -> dict[str, str]:
        address = {each: self._network.address(f"b{each}") for each in BROKERS}
        own = address[broker_id]
        return {
            "process.roles": "broker,controller",
            "node.id": str(broker_id),
            "listeners": f"PLAINTEXT://{own}:{CLIENTS},CONTROLLER://{own}:{CONTROLLERS}",
            "advertised.listeners": f"PLAINTEXT://{own}:{CLIENTS}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "controller.quorum.voters": ",".join(f"{each}@{at}:{CONTROLLERS}" for each, at in address.items()),
            "log.dirs": str(folder / "data"),
            "offsets.topic.replication.factor": "3",
            "group.initial.rebalance.delay.ms": "0",
        }


class View(NamedTuple):
    """The cluster as one of its brokers reports it."""

    bootstrap: str


@pytest.fixture
def network() -> Iterator[Namespaces]:
    with Namespaces("b1", "b2", "b3") as network:
        yield network


@pytest.fixture
def cluster(network: Namespaces, tmp_path: Path) -> Iterator[PartedCluster]:
    cluster = PartedCluster(network, tmp_path / "cluster")
    try:
        cluster.start()
        yield cluster
    finally:
        network.heal()
        cluster.stop()


@pytest.mark.parametrize(
    "how",
    [
        "from the others",
        *(pytest.param(how, marks=pytest.mark.full) for how in ("from all", "it is not heard", "it does not hear")),
    ],
)
def test_a_leader_is_cut_off(network: Namespaces, cluster: PartedCluster, tmp_path: Path, how: str) -> None:
    create_topic(cluster, "orders")
    with Load(cluster, tmp_path, {"orders": 3}) as load:
        leader = known_leader_of(cluster, "orders")
        own, others = f"b{leader}", [f"b{each}" for each in BROKERS if each != leader]
        view = View(f"{network.address(others[0])}:{CLIENTS}")
        if how == "from the others":
            network.part([own], others)
        elif how == "from all":
            network.part([own], [*others, HOST])
        else:
            for other in others:
                network.cut(*((own, other) if how == "it is not heard" else (other, own)))
        wait_until(lambda: leader_of(view, "orders") not in (-1, leader), "another one leads")
        load.go_on()
        network.heal()
        wait_until(lambda: in_sync(view, "orders") == {1, 2, 3}, "all are in sync")
        load.go_on()
    load.judge()
