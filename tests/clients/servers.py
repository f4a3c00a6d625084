"""The server under test: Barnabas, or Apache Kafka when BARNABAS_TARGET=kafka (which tests the tests themselves)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import kafka_jars
from barnabas.testing import Cluster

PARTITIONS = 3
COMMON = {"num.partitions": str(PARTITIONS), "log.retention.ms": "-1"}


class Server(Protocol):
    port: int
    data_dir: Path
    log_path: Path
    properties: dict[str, str]
    process: subprocess.Popen[bytes] | None

    @property
    def bootstrap(self) -> str: ...

    @property
    def pid(self) -> int: ...

    def start(self, timeout_s: float = 120.0) -> Server: ...

    def stop(self, timeout_s: float = 120.0) -> int: ...

    def kill(self) -> None: ...


class BarnabasServer:
    """One Barnabas process, broker and controller in one, with its files below `directory`."""

    def __init__(self, directory: Path, *, port: int = 0, properties: Mapping[str, str] | None = None) -> None:
        self.directory = directory.absolute()
        self.process: subprocess.Popen[bytes] | None = None
        free, controller_port = kafka_jars.free_ports(2)
        self.port = port or free
        self.data_dir = self.directory / "data"
        self.log_path = self.directory / "barnabas.log"
        self.properties_path = self.directory / "server.properties"
        self.properties = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller_port}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller_port}",
            "log.dirs": str(self.data_dir),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            **(properties or {}),
        }

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process is not None, "the server has not been started"
        return self.process.pid

    def start(self, timeout_s: float = 120.0) -> BarnabasServer:
        assert self.process is None or self.process.poll() is not None, "the server is already running"
        self.directory.mkdir(parents=True, exist_ok=True)
        self.properties_path.write_text("".join(f"{key}={value}\n" for key, value in self.properties.items()))
        command = [str(Path(sys.executable).with_name("barnabas")), "broker", str(self.properties_path)]
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        kafka_jars.wait_until_serving(self.port, self.process, log=self.log_path, timeout_s=timeout_s)
        return self

    def stop(self, timeout_s: float = 120.0) -> int:
        """Ends the process as an operator would (SIGTERM), and returns its exit code."""
        if self.process is None:
            return 0
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self.kill()
        return self.process.wait()

    def kill(self) -> None:
        """Kills the process (`kill -9`): no shutdown code runs."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class BarnabasCluster:
    """Several brokers with the interface of one; `port` and the rest are those of the first one."""

    def __init__(self, directory: Path, brokers: int, properties: Mapping[str, str], *, zookeeper: bool) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.properties = dict(properties)
        self.cluster = Cluster(directory, brokers=brokers, properties=self.properties, zookeeper=zookeeper)

    @property
    def port(self) -> int:
        return int(self.bootstrap.partition(",")[0].rpartition(":")[2])

    @property
    def data_dir(self) -> Path:
        return self.cluster.data_directory

    @property
    def log_path(self) -> Path:
        return self.data_dir.with_name("broker.log")

    @property
    def bootstrap(self) -> str:
        return self.cluster.bootstrap

    @property
    def pid(self) -> int:
        return self.cluster.pid

    def start(self, timeout_s: float = 120.0) -> BarnabasCluster:
        self.cluster.start()
        return self

    def stop(self, timeout_s: float = 120.0) -> int:
        self.cluster.stop()
        return 0

    def kill(self) -> None:
        self.cluster.kill()


def new_cluster(
    directory: Path, brokers: int, properties: Mapping[str, str] | None = None, *, zookeeper: bool = False
) -> BarnabasCluster:
    return BarnabasCluster(directory, brokers, {**COMMON, **(properties or {})}, zookeeper=zookeeper)


def target() -> str:
    name = os.environ.get("BARNABAS_TARGET", "barnabas")
    assert name in ("barnabas", "kafka"), f"BARNABAS_TARGET={name}: allowed are barnabas and kafka"
    return name


def new_server(directory: Path, properties: Mapping[str, str] | None = None) -> Server:
    settings = {**COMMON, **(properties or {})}
    if target() == "kafka":
        return kafka_jars.KafkaServer(directory, properties=settings)
    return BarnabasServer(directory, properties=settings)
