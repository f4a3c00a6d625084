"""Three brokers of one kind, each a controller too, with static voters and the same properties on both sides.

Apache Kafka's folders are formatted before the measurement (one run of its tool; the other two folders are copies with
their own node id and directory id); Barnabas formats its own while it starts.
"""

from __future__ import annotations

import base64
import shutil
import time
import uuid
from collections.abc import Callable, Container, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

import wire
from barnabas.protocol.messages.metadata import MetadataResponse
from targets import TARGETS, Barnabas, Target, kafka_jars, resident_mb

T = TypeVar("T")

BROKERS = 3
PROPERTIES = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
}
_POLL_S = 0.005
_TIMEOUT_S = 120.0


class Cluster:
    """Brokers 1 to 3 below `directory`, with the properties `more`. The constructor does not start them.

    `nodes`: the properties of each broker, by its id; None takes those of `node_properties`, with free ports.
    """

    def __init__(
        self,
        name: str,
        directory: Path,
        more: Mapping[str, str] | None = None,
        nodes: Mapping[int, Mapping[str, str]] | None = None,
    ) -> None:
        self.name = name
        self._directory = directory
        self.nodes: dict[int, Target] = {}
        for node_id, properties in (nodes or node_properties(kafka_jars.free_ports(2 * BROKERS))).items():
            node = TARGETS[name](directory / str(node_id), {**properties, **(more or {})})
            if isinstance(node, Barnabas):
                node.arguments = ("--cluster-id", kafka_jars.CLUSTER_ID)
            self.nodes[node_id] = node

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes.values())

    def prepare(self) -> None:
        """Does all that the time of a start does not include."""
        if self.name == "kafka":
            self._format()
        for node in self.nodes.values():
            node.prepare()

    def _format(self) -> None:
        first = self.nodes[1]
        first.data_dir.parent.mkdir(parents=True)
        file = first.data_dir.parent / "format.properties"
        lines = {**node_properties(list(range(1, 2 * BROKERS + 1)))[1], "process.roles": "broker,controller"}
        lines |= {"controller.listener.names": "CONTROLLER", "log.dirs": str(first.data_dir)}
        file.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        done = kafka_jars.run_tool("kafka.tools.StorageTool", "format", "-t", kafka_jars.CLUSTER_ID, "-c", str(file))
        if done.returncode != 0:
            raise RuntimeError(f"kafka-storage format failed:\n{done.stdout}{done.stderr}")
        for node_id, node in self.nodes.items():
            if node_id != 1:
                shutil.copytree(first.data_dir, node.data_dir)
            meta = node.data_dir / "meta.properties"
            meta.write_text(readdressed(meta.read_text(), node_id))

    def launch(self) -> None:
        for node in self.nodes.values():
            node.launch()

    def await_usable(self) -> float:
        """Waits until each broker lists all of them for clients, and returns the time when the last one did."""
        return max(self.await_brokers(node_id) for node_id in self.nodes)

    def await_brokers(self, node_id: int) -> float:
        """Waits until this broker lists all of them for clients, and returns the time when its answer arrived."""

        def all_there(link: wire.Link) -> float | None:
            metadata, arrived_at = link.metadata()
            return arrived_at if len(metadata.brokers) == BROKERS else None

        return self.poll(node_id, all_there, "all brokers are listed")

    def await_metadata(
        self, node_id: int, topics: Iterable[str], holds: Callable[[MetadataResponse], bool], what: str
    ) -> float:
        """Waits until this broker's metadata of the topics satisfies `holds`, and returns the time when that answer
        arrived.
        """
        names = list(topics)

        def requested(link: wire.Link) -> float | None:
            metadata, arrived_at = link.metadata(names)
            return arrived_at if holds(metadata) else None

        return self.poll(node_id, requested, what)

    def poll(self, node_id: int, call: Callable[[wire.Link], T | None], what: str) -> T:
        """Calls `call` with a connection to a broker until it returns a value, and returns that. Errors of the
        connection are retried.
        """
        node, link = self.nodes[node_id], None
        looked_at = time.monotonic()
        deadline, longest_s = looked_at + _TIMEOUT_S, 0.0
        last: Exception | None = None
        try:
            while (now := time.monotonic()) < deadline:
                longest_s, looked_at = max(longest_s, now - looked_at), now
                if node.process.poll() is not None:
                    raise RuntimeError(f"{self.name} {node_id} ended with code {node.process.poll()}")
                try:
                    link = link or wire.Link(node.port)
                    if (found := call(link)) is not None:
                        return found
                except (OSError, EOFError) as error:
                    last = error
                    if link is not None:
                        link.close()
                    link = None
                time.sleep(_POLL_S)
        finally:
            if link is not None:
                link.close()
        # The longest interval shows whether the machine itself paused, which uses up the time whatever the brokers do.
        longest_s = max(longest_s, time.monotonic() - looked_at)
        raise RuntimeError(
            f"{self.name} {node_id}: not within {_TIMEOUT_S:.0f} s, of which {longest_s:.1f} s between two attempts: "
            f"{what} ({last})"
        )

    def controller(self) -> int:
        """Returns the active controller's id."""

        def requested(link: wire.Link) -> int | None:
            found = link.active_controller()
            return found if found in self.nodes else None

        return self.poll(1, requested, "there is an active controller")

    def admin_id(self) -> int:
        """Returns a broker that serves requests for changes."""
        return 1

    def create_topic(self, name: str, partitions: int, assignment: Iterable[int] = ()) -> None:
        link = wire.Link(self.nodes[self.admin_id()].port)
        try:
            if code := link.create_topic(name, partitions, BROKERS, list(assignment)):
                raise RuntimeError(f"{self.name}: CreateTopics of {name} was answered with error {code}")
        finally:
            link.close()
        for node_id in self.nodes:
            self.await_metadata(node_id, [name], lambda found: has_leaders(found, partitions), f"{name} has leaders")

    def restart(self, node_id: int, topics: Iterable[str]) -> float:
        """Launches a stopped broker, and returns the time when it is in all ISRs of these topics again, as another
        broker reports.
        """
        self.nodes[node_id].launch()
        self.await_brokers(node_id)
        other = next(other for other in self.nodes if other != node_id)
        return self.await_metadata(other, topics, is_in_sync, "all are in sync")

    def resident_mb(self) -> float:
        """Returns the memory of the largest of the brokers."""
        return max(resident_mb(node.pid) for node in self.nodes.values())

    def destroy(self) -> None:
        """Kills all processes and removes their files."""
        for node in self.nodes.values():
            node.kill()
        shutil.rmtree(self._directory, ignore_errors=True)

    def log_tails(self) -> str:
        return "\n".join(f"{self.name} {node_id}: {node.log_tail()}" for node_id, node in self.nodes.items())


def node_properties(ports: list[int]) -> dict[int, dict[str, str]]:
    """Returns the properties of each node, by its id. The first half of the ports is for clients, the second for
    controllers.
    """
    ids = range(1, BROKERS + 1)
    at = dict(zip(ids, ports[BROKERS:], strict=True))
    found = {}
    for node_id, port in zip(ids, ports[:BROKERS], strict=True):
        found[node_id] = {
            "node.id": str(node_id),
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{at[node_id]}",
            "controller.quorum.voters": ",".join(f"{voter}@127.0.0.1:{at[voter]}" for voter in ids),
            "controller.quorum.bootstrap.servers": ",".join(f"127.0.0.1:{at[voter]}" for voter in ids),
            **PROPERTIES,
        }
    return found


def readdressed(meta_properties: str, node_id: int) -> str:
    """Returns a meta.properties for another node: its id, and a directory id of its own."""
    own = {"node.id": str(node_id), "directory.id": _directory_id()}
    entries = dict(line.split("=", 1) for line in meta_properties.splitlines() if line and not line.startswith("#"))
    return "".join(f"{key}={value}\n" for key, value in {**entries, **own}.items())


def _directory_id() -> str:
    return base64.urlsafe_b64encode(b"\1" + uuid.uuid4().bytes[1:]).decode().rstrip("=")


def has_leaders(metadata: MetadataResponse, partitions: int, without: Container[int] = ()) -> bool:
    """Returns whether all topics exist, with this number of partitions in all, each led by a broker that is not in
    `without`.
    """
    leaders = [partition.leader_id for topic in metadata.topics for partition in topic.partitions]
    errors = any(topic.error_code for topic in metadata.topics)
    return (
        not errors and len(leaders) == partitions and all(leader >= 0 and leader not in without for leader in leaders)
    )


def is_in_sync(metadata: MetadataResponse) -> bool:
    """Returns whether every partition has a leader, and all replicas in its ISR."""
    return all(not topic.error_code and topic.partitions for topic in metadata.topics) and all(
        partition.leader_id >= 0 and len(partition.isr_nodes) == len(partition.replica_nodes) == BROKERS
        for topic in metadata.topics
        for partition in topic.partitions
    )
