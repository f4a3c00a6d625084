"""A cluster in ZooKeeper mode under load while processes are killed or stopped: the controller, a leader, the ZooKeeper
server, and each two of them at once. The history checker judges all requests and answers of the clients at the end.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.support.survival import Load, admin, create_topic, in_sync, known_leader_of, wait_until

from barnabas.testing import Cluster

_SESSION_MS = 6_000
#: A time longer than a session: a broker that is silent for so long is replaced.
_SILENCE_S = 10.0
_TARGETS = (
    ("controller",),
    ("leader",),
    ("zookeeper",),
    ("controller", "leader"),
    ("controller", "zookeeper"),
    ("leader", "zookeeper"),
)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    properties = {"zookeeper.session.timeout.ms": str(_SESSION_MS)}
    with Cluster(tmp_path / "cluster", brokers=3, zookeeper=True, properties=properties) as cluster:
        yield cluster


class Targets(NamedTuple):
    """The processes that a fault hits, all at once."""

    brokers: list[int]
    zookeeper: bool

    @staticmethod
    def of(cluster: Cluster, names: tuple[str, ...]) -> Targets:
        controller = controller_of(cluster)
        leaders = [known_leader_of(cluster, "orders", partition) for partition in range(3)]
        leader = next(broker for broker in leaders if broker != controller)
        found = {"controller": controller, "leader": leader}
        return Targets([found[name] for name in names if name in found], "zookeeper" in names)


def controller_of(cluster: Cluster) -> int:
    found = -1

    def look() -> bool:
        nonlocal found
        client = admin(cluster)  # a client that is not referenced does not answer
        found = client.list_topics(timeout=10).controller_id
        return found >= 0

    wait_until(look, "there is a controller")
    return found


def all_in_sync(cluster: Cluster) -> None:
    wait_until(lambda: in_sync(cluster, "orders") == {1, 2, 3}, "all replicas are in sync")


@pytest.mark.full
@pytest.mark.parametrize("names", [pytest.param(names, id="-and-".join(names)) for names in _TARGETS])
def test_processes_are_killed(cluster: Cluster, tmp_path: Path, names: tuple[str, ...]) -> None:
    create_topic(cluster, "orders")
    with Load(cluster, tmp_path, {"orders": 3}) as load:
        targets = Targets.of(cluster, names)
        if targets.zookeeper:
            cluster.kill_zookeeper()
        if targets.brokers:
            cluster.kill(*targets.brokers)
        else:
            load.go_on()  # leaders lead on without ZooKeeper
        if targets.zookeeper:
            cluster.start_zookeeper()
        if len(targets.brokers) == 1:
            load.go_on()  # others have taken over
        for broker in targets.brokers:
            cluster.start_broker(broker)
        load.go_on()
        all_in_sync(cluster)
        load.go_on()
    load.judge()


@pytest.mark.full
@pytest.mark.parametrize("names", [pytest.param(names, id="-and-".join(names)) for names in _TARGETS])
def test_processes_are_stopped_for_longer_than_a_session(
    cluster: Cluster, tmp_path: Path, names: tuple[str, ...]
) -> None:
    """Deposed brokers wake up and act as before; what they acknowledge then must have been written by the ISR."""
    create_topic(cluster, "orders")
    with Load(cluster, tmp_path, {"orders": 3}) as load:
        targets = Targets.of(cluster, names)
        try:
            if targets.zookeeper:
                cluster.pause_zookeeper()
            for broker in targets.brokers:
                cluster.pause(broker)
            time.sleep(_SILENCE_S)
            if len(targets.brokers) + targets.zookeeper == 1:
                load.go_on()
        finally:
            for broker in targets.brokers:
                cluster.resume(broker)
            if targets.zookeeper:
                cluster.resume_zookeeper()
        load.go_on()
        all_in_sync(cluster)
        load.go_on()
    load.judge()
