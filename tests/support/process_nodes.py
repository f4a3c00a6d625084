"""Nodes of one cluster as processes, each with the roles, the addresses and the network namespace that a test chooses.

nodes = Nodes(folder, {1: "controller", 2: "controller", 3: "controller", 4: "broker"})
nodes.start()                      static voters: controller.quorum.voters
nodes = Nodes(..., dynamic=True)   bootstrap servers; `format` each node with the flags of kafka-storage first
nodes.close()
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import kafka_jars
from barnabas.common.errors import DecodeError
from barnabas.common.types import METADATA_TOPIC
from barnabas.embedded.settings import new_cluster_id
from barnabas.protocol import codec
from barnabas.protocol.header import request_header_version, response_header_version
from barnabas.protocol.message import Message
from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from barnabas.protocol.messages.header import RequestHeader
from barnabas.protocol.messages.index import response_class

M = TypeVar("M", bound=Message)
T = TypeVar("T")
Address = tuple[str, int]
WAIT_S = 120.0


def call(address: Address, request: Message, version: int, response: type[M], *, timeout_s: float = 60.0) -> M:
    """Sends one request on a new connection, and returns the answer. Raises OSError if there is no answer in time."""
    assert request.API_KEY is not None
    assert response_class(request.API_KEY) is response
    header = RequestHeader(request_api_key=request.API_KEY, request_api_version=version, client_id="test")
    frame = codec.encode(header, request_header_version(request.API_KEY, version))
    codec.encode_into(request, version, frame)
    with socket.create_connection(address, timeout=timeout_s) as link, link.makefile("rb") as stream:
        link.sendall(len(frame).to_bytes(4, "big") + frame)
        data = stream.read(int.from_bytes(stream.read(4), "big"))
    if not data:
        raise ConnectionError("the connection ended instead of an answer")
    answer, end = codec.decode(response, version, data, 4 + response_header_version(request.API_KEY, version))
    assert end == len(data), "bytes after the answer"
    return answer


def until(what: str, attempt: Callable[[], T | None], timeout_s: float = WAIT_S) -> T:
    """Returns the first result that is neither None nor False. Failed connections are retried."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            found = attempt()
            if found is not None and found is not False:
                return found
        except (OSError, DecodeError):
            pass
        assert time.monotonic() < deadline, f"{what}: not within {timeout_s} s"
        time.sleep(0.01)


def creation(topic: str, *, replicas: int = 1, timeout_ms: int = 60_000) -> CreateTopicsRequest:
    entry = CreateTopicsRequest.CreatableTopic(name=topic, num_partitions=1, replication_factor=replicas)
    return CreateTopicsRequest(topics=[entry], timeout_ms=timeout_ms)


def create_topic(address: Address, topic: str, *, replicas: int = 1, timeout_s: float = 60.0) -> int:
    """Creates a topic and returns the error code."""
    request = creation(topic, replicas=replicas, timeout_ms=int(timeout_s * 1000))
    answer = call(address, request, 7, CreateTopicsResponse, timeout_s=timeout_s)
    return int(answer.topics[0].error_code)


def describe_quorum(address: Address, *, timeout_s: float = 30.0) -> DescribeQuorumResponse.PartitionData:
    """Returns the quorum as this node or, on a broker's listener, the leader describes it, with its error code."""
    wanted = DescribeQuorumRequest.TopicData(
        topic_name=METADATA_TOPIC, partitions=[DescribeQuorumRequest.PartitionData(partition_index=0)]
    )
    answer = call(address, DescribeQuorumRequest(topics=[wanted]), 2, DescribeQuorumResponse, timeout_s=timeout_s)
    return answer.topics[0].partitions[0] if answer.topics else DescribeQuorumResponse.PartitionData(error_code=8)


class Node:
    """A node. `settings` can be changed between two starts."""

    def __init__(self, node_id: int, folder: Path, settings: dict[str, str], host: str, prefix: Sequence[str]) -> None:
        self.node_id = node_id
        self.folder = folder
        self.settings = settings
        self.host = host
        self.port = 0
        self.controller_port = 0
        self._prefix = list(prefix)
        self.process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def address(self) -> Address:
        """The address for clients."""
        assert self.port, f"node {self.node_id} is not a broker"
        return self.host, self.port

    @property
    def controller_address(self) -> Address:
        assert self.controller_port, f"node {self.node_id} is not a controller"
        return self.host, self.controller_port

    @property
    def is_controller(self) -> bool:
        return bool(self.controller_port)

    @property
    def is_broker(self) -> bool:
        return bool(self.port)

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def file(self) -> Path:
        file = self.folder / "server.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in self.settings.items()))
        return file

    @property
    def log_path(self) -> Path:
        return self.folder / "node.log"

    @property
    def log(self) -> str:
        """The lines that the node has logged since its first start."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def format(self, cluster_id: str, *flags: str, code: int = 0) -> str:
        """Runs `barnabas format` and returns its output."""
        command = [sys.executable, "-m", "barnabas.cli", "format", str(self.file), "-t", cluster_id, *flags]
        done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def launch(self, cluster_id: str | None = None) -> None:
        assert not self.is_running, f"node {self.node_id} is already running"
        command = [*self._prefix, sys.executable, "-m", "barnabas.server.main", "broker", str(self.file)]
        command += [] if cluster_id is None else ["--cluster-id", cluster_id]
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._begun = len(self.log) if self.log_path.exists() else 0

    def wait(self, timeout_s: float = WAIT_S) -> None:
        """Waits until the node has logged that it can be used."""

        def said() -> bool:
            assert self.process is not None
            assert self.process.poll() is None, f"node {self.node_id} ended:\n{self.log[-4000:]}"
            return "started: " in self.log[self._begun :]

        until(f"start of node {self.node_id}", said, timeout_s)

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
        if self.process is not None:
            self.process.wait()

    def stop(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(WAIT_S)


class Nodes:
    """All nodes of a cluster. `hosts` and `prefixes`: the host of each listener, and the beginning of each command (for
    a network namespace). `makers`: the class of each node that is not a `Node`.
    """

    def __init__(
        self,
        folder: Path,
        roles: Mapping[int, str],
        *,
        dynamic: bool = False,
        properties: Mapping[str, str] | None = None,
        hosts: Mapping[int, str] | None = None,
        prefixes: Mapping[int, Sequence[str]] | None = None,
        makers: Mapping[int, type[Node]] | None = None,
    ) -> None:
        self.cluster_id = new_cluster_id()
        self.dynamic = dynamic
        self._folder = folder
        self._properties = dict(properties or {})
        ports = iter(kafka_jars.free_ports(2 * len(roles)))
        self._by_id: dict[int, Node] = {}
        for node_id, names in roles.items():
            host = (hosts or {}).get(node_id, "127.0.0.1")
            make = (makers or {}).get(node_id, Node)
            node = make(node_id, folder / f"node-{node_id}", {}, host, (prefixes or {}).get(node_id, ()))
            node.port = next(ports) if "broker" in names else 0
            node.controller_port = next(ports) if "controller" in names else 0
            self._by_id[node_id] = node
        for node_id, names in roles.items():
            self._by_id[node_id].settings.update(self._settings(self._by_id[node_id], names))

    def __getitem__(self, node_id: int) -> Node:
        return self._by_id[node_id]

    @property
    def all(self) -> list[Node]:
        return list(self._by_id.values())

    @property
    def controllers(self) -> list[Node]:
        return [node for node in self.all if node.is_controller]

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{node.host}:{node.port}" for node in self.all if node.is_broker)

    @property
    def bootstrap_controllers(self) -> str:
        return ",".join(f"{node.host}:{node.controller_port}" for node in self.controllers)

    def _settings(self, node: Node, roles: str) -> dict[str, str]:
        listeners = [f"PLAINTEXT://{node.host}:{node.port}"] if node.port else []
        listeners += [f"CONTROLLER://{node.host}:{node.controller_port}"] if node.controller_port else []
        voters = ",".join(f"{each.node_id}@{each.host}:{each.controller_port}" for each in self.controllers)
        return {
            "process.roles": roles,
            "node.id": str(node.node_id),
            "listeners": ",".join(listeners),
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(node.data),
            "offsets.topic.replication.factor": "1",
            **(
                {"controller.quorum.bootstrap.servers": self.bootstrap_controllers}
                if self.dynamic
                else {"controller.quorum.voters": voters}
            ),
            **self._properties,
        }

    # -- start and end

    def start(self, node_ids: Iterable[int] | None = None) -> Nodes:
        """Launches these nodes, or all, and waits for them."""
        nodes = self.all if node_ids is None else [self._by_id[node_id] for node_id in node_ids]
        for node in nodes:
            node.launch(None if self.dynamic else self.cluster_id)
        for node in nodes:
            node.wait()
        return self

    def close(self) -> None:
        for node in self.all:
            node.kill()

    # -- quorum

    def leader(self, among: Iterable[int] | None = None, *, timeout_s: float = WAIT_S) -> int:
        """Returns the active controller, once one of these controllers reports that it leads."""
        nodes = self.controllers if among is None else [self._by_id[node_id] for node_id in among]
        last: dict[int, object] = {}

        def found() -> int | None:
            for node in nodes:
                try:
                    last[node.node_id] = told = describe_quorum(node.controller_address, timeout_s=3)
                except (OSError, DecodeError) as error:
                    last[node.node_id] = error
                    continue
                if told.error_code == 0 and told.high_watermark >= 0:
                    return int(told.leader_id)
            return None

        try:
            return until("a leader of the metadata quorum", found, timeout_s)
        except AssertionError as error:
            ends = "\n".join(f"node {node.node_id}: {last[node.node_id]!r}\n{node.log[-2000:]}" for node in nodes)
            raise AssertionError(f"{error}; the last answers and the ends of the logs:\n{ends}") from error

    def quorum(self) -> DescribeQuorumResponse.PartitionData:
        """Returns the quorum as its leader describes it."""
        return describe_quorum(self._by_id[self.leader()].controller_address)

    def voters(self) -> list[int]:
        return sorted(state.replica_id for state in self.quorum().current_voters)

    def observers(self) -> list[int]:
        return sorted(state.replica_id for state in self.quorum().observers)
