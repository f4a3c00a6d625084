"""Three brokers of Apache Kafka, of one of three releases, that a test kills and starts again.

    with apache_cluster("3.9.1", folder) as cluster:
        cluster.bootstrap, cluster.kill(2), cluster.start_again(2)

4.1.0 has a metadata quorum of the three; 3.9.1 and 2.8.2 keep their metadata in Apache ZooKeeper 3.8.4. Each broker has
two log directories.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

from tests.support.apache_nodes import ApacheNode
from tests.support.process_nodes import Nodes
from tests.support.zookeeper_mode import ZooKeeperModeCluster

from barnabas.monitor.broker_connection import Address
from kafka28_jars import KafkaBroker28
from kafka39_jars import KafkaBroker
from zookeeper_jars import ApacheZooKeeper

KRAFT: Final = "4.1.0"
LAST_WITH_ZOOKEEPER: Final = "3.9.1"
OLD: Final = "2.8.2"
BROKERS: Final = (1, 2, 3)
DIRECTORIES: Final = ("data", "data-2")


class ApacheCluster(Protocol):
    #: The addresses of the controllers' listeners; none in ZooKeeper mode.
    controllers: tuple[Address, ...]

    @property
    def bootstrap(self) -> str: ...

    def kill(self, broker: int) -> None: ...

    def start_again(self, broker: int) -> None: ...

    def directories(self, broker: int) -> list[Path]:
        """Returns the log directories of a broker."""

    def close(self) -> None: ...


class KRaft:
    def __init__(self, folder: Path) -> None:
        settings = {
            "offsets.topic.num.partitions": "1",
            "offsets.topic.replication.factor": "3",
            "broker.session.timeout.ms": "6000",
            "auto.leader.rebalance.enable": "false",
        }
        roles = dict.fromkeys(BROKERS, "broker,controller")
        self.nodes = Nodes(folder, roles, properties=settings, makers=dict.fromkeys(BROKERS, ApacheNode))
        for broker in BROKERS:
            self.nodes[broker].settings["log.dirs"] = ",".join(map(str, self.directories(broker)))
        self.controllers = addresses(self.nodes.bootstrap_controllers)
        try:
            self.nodes.start()
        except BaseException:
            self.close()
            raise

    @property
    def bootstrap(self) -> str:
        return self.nodes.bootstrap

    def kill(self, broker: int) -> None:
        self.nodes[broker].kill()

    def start_again(self, broker: int) -> None:
        self.nodes[broker].launch(self.nodes.cluster_id)
        self.nodes[broker].wait()

    def directories(self, broker: int) -> list[Path]:
        return [self.nodes[broker].folder / name for name in DIRECTORIES]

    def close(self) -> None:
        self.nodes.close()


class ZooKeeperMode:
    def __init__(self, folder: Path, kind: type[KafkaBroker]) -> None:
        self.controllers: tuple[Address, ...] = ()
        # Paths are relative to the folder of each broker.
        settings = {"log.dirs": ",".join(DIRECTORIES), "offsets.topic.replication.factor": "3"}
        self.brokers = ZooKeeperModeCluster(folder, (kind,) * len(BROKERS), settings, ApacheZooKeeper)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{each.port}" for each in self.brokers.brokers.values())

    def kill(self, broker: int) -> None:
        self.brokers.brokers[broker].kill()

    def start_again(self, broker: int) -> None:
        self.brokers.start_again(broker)

    def directories(self, broker: int) -> list[Path]:
        return [self.brokers.brokers[broker].directory / name for name in DIRECTORIES]

    def close(self) -> None:
        self.brokers.close()


@contextmanager
def apache_cluster(release: str, folder: Path) -> Iterator[ApacheCluster]:
    """Runs a cluster of a release."""
    cluster: ApacheCluster
    if release == KRAFT:
        cluster = KRaft(folder)
    else:
        cluster = ZooKeeperMode(folder, {LAST_WITH_ZOOKEEPER: KafkaBroker, OLD: KafkaBroker28}[release])
    try:
        yield cluster
    finally:
        cluster.close()


def addresses(text: str) -> tuple[Address, ...]:
    return tuple((each.rpartition(":")[0], int(each.rpartition(":")[2])) for each in text.split(","))
