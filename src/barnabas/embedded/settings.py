"""Generated settings of an embedded broker: a voter of a quorum of all brokers, or a broker in ZooKeeper mode."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping
from pathlib import Path

from barnabas.embedded.ports import HOST


def quorum_settings(node_id: int, ports: Mapping[int, tuple[int, int]], data: Path) -> dict[str, str]:
    """Returns the settings of a combined-mode node, as in Kafka's example file; every node votes."""
    port, controller_port = ports[node_id]
    return {
        "process.roles": "broker,controller",
        "node.id": str(node_id),
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "controller.quorum.voters": ",".join(f"{voter}@{HOST}:{at}" for voter, (_, at) in ports.items()),
        "log.dirs": str(data),
        **_replication(len(ports)),
        "group.initial.rebalance.delay.ms": "0",
    }


def zookeeper_settings(node_id: int, port: int, brokers: int, connect: str, data: Path) -> dict[str, str]:
    """Returns the settings of a broker that has its metadata in ZooKeeper."""
    return {
        "broker.id": str(node_id),
        "listeners": f"PLAINTEXT://{HOST}:{port}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
        "zookeeper.connect": connect,
        "log.dirs": str(data),
        **_replication(brokers),
        "group.initial.rebalance.delay.ms": "0",
    }


def _replication(brokers: int) -> dict[str, str]:
    """Returns the replication settings of internal and automatically created topics: at most three replicas, and no
    more than there are brokers.
    """
    factor = min(brokers, 3)
    in_sync = max(1, factor - 1)
    return {
        "default.replication.factor": str(factor),
        "min.insync.replicas": str(in_sync),
        "offsets.topic.replication.factor": str(factor),
        "transaction.state.log.replication.factor": str(factor),
        "transaction.state.log.min.isr": str(in_sync),
    }


def new_cluster_id() -> str:
    """Returns a new id as `kafka-storage random-uuid` creates it: 22 characters that do not begin with "-"."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def properties_text(settings: Mapping[str, str]) -> str:
    """Returns the lines of a Java properties file."""
    return "".join(f"{key}={_escape(value)}\n" for key, value in settings.items())


def _escape(value: str) -> str:
    """Escapes a value for a Java properties file."""
    text = value.replace("\\", "\\\\").replace("\n", "\\n")
    return f"\\{text}" if text.startswith(" ") else text
