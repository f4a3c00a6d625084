"""An embedded cluster: broker processes on this machine whose files are all below one directory.

    DIR/cluster.json                   what runs: pids, ports, roles
    DIR/broker-1/server.properties     generated at each start
    DIR/broker-1/broker.log            stdout and stderr of the process
    DIR/broker-1/data/                 its log directory

This module needs only the standard library, so that test suites can use it without an extra.
Each broker has its own session: a Ctrl-C in the terminal reaches only the command, which then stops the broker cleanly.
A pid alone does not identify a process for long; it is stored with the start time, and nothing else is ever signalled.
"""

from __future__ import annotations

import base64
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from barnabas.embedded.failures import Failure
from barnabas.embedded.signals import held

HOST = "127.0.0.1"
#: The default port of the first broker of a new cluster, as in Kafka's example file.
DEFAULT_PORT: Final = 9092
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
#: The range of free ports: below the ephemeral ports (Linux: from 32768), or an outgoing connection could take the port
#: of a broker that is down for a moment.
FREE_PORTS = range(20_000, 32_768)
_POLL_S = 0.01
_READY = "started: "

#: The path of a broker's metrics.
METRICS_LISTENER: Final = "barnabas.metrics.listener"
#: The state file in the directory of an embedded cluster.
STATE_FILE: Final = "cluster.json"


@dataclass(frozen=True, slots=True)
class Node:
    """One broker process, as cluster.json records it."""

    node_id: int
    pid: int
    #: Start time in clock ticks since boot, if the system reports it.
    start_ticks: int | None
    host: str
    port: int
    controller_port: int
    roles: tuple[str, ...]
    directory: str
    #: Port of /metrics; 0 for a broker without it, or of an older release.
    metrics_port: int = 0
    #: `broker.rack`; empty for none.
    rack: str = ""

    @property
    def metrics_url(self) -> str | None:
        return f"http://{self.host}:{self.metrics_port}/metrics" if self.metrics_port else None

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def log_path(self) -> Path:
        return Path(self.directory) / "broker.log"

    @property
    def running(self) -> bool:
        return _start_ticks(self.pid) == self.start_ticks if self.start_ticks else _exists(self.pid)

    @property
    def serving(self) -> bool:
        """Whether the port accepts connections."""
        try:
            with socket.create_connection((self.host, self.port), timeout=1.0):
                return self.running
        except OSError:
            return False


class EmbeddedCluster:
    """The brokers below one directory: starts, shows and stops them. The data stays between starts."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()
        self._children: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def state_path(self) -> Path:
        return self.directory / STATE_FILE

    @property
    def nodes(self) -> list[Node]:
        """Returns the recorded nodes; `running` tells whether each runs. Empty if no cluster was ever started here.
        Raises Failure for a damaged file.
        """
        return self._state()[0]

    def _state(self) -> tuple[list[Node], str | None]:
        """Returns the nodes and the cluster id of the state file; ([], None) without one. Raises Failure for a damaged
        file.
        """
        try:
            state = json.loads(self.state_path.read_text())
            nodes = [Node(**{**item, "roles": tuple(item["roles"])}) for item in state["nodes"]]
            cluster_id = state.get("cluster_id")
        except FileNotFoundError:
            return [], None
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise Failure(
                f"{self.state_path} is damaged: {_what_is_wrong(error)}",
                "it only records which processes run: if none runs, remove it, and `barnabas up` with the same "
                "--dir and --brokers creates it again; the data stays",
            ) from error
        return nodes, cluster_id

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes)

    def start(
        self,
        *,
        brokers: int | None = None,
        port: int | None = 0,
        racks: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
    ) -> list[Node]:
        """Start the brokers and return when clients can use them.

        `brokers`: how many; those of the last start, or one. `port`: of the first broker, the others follow; 0 takes
        those used last where they are free, or any free ones; None takes those used last, and raises Failure where
        they are not free; without a last start, it is DEFAULT_PORT. `racks`: of each broker; those of the last start,
        or none. `properties` are broker properties by Kafka's names; they win over the generated ones.
        """
        before = {node.node_id: node for node in self.nodes}
        running = [node for node in before.values() if node.running]
        if running:
            raise Failure(
                f"a cluster is already running in {self.directory} (pid {running[0].pid}, {running[0].bootstrap})",
                f"stop it with: barnabas down --dir {self.directory}",
            )
        count = brokers or len(before) or len(racks) or 1
        if before:
            self.check_count(count)
        if racks and len(racks) != count:
            raise Failure(f"{len(racks)} rack(s) for {count} broker(s): give one for each broker")
        if port is None:
            port = 0 if before else DEFAULT_PORT
            check_free(before.values(), self.directory)
        ports = choose_ports(count, port, before)
        cluster_id = self._cluster_id()
        with_metrics = {METRICS_LISTENER: "", **(properties or {})}
        metrics_ports = choose_metrics_ports(ports, before) if METRICS_LISTENER not in (properties or {}) else {}
        nodes = []
        try:
            with held():
                for node_id in ports:
                    if metrics_ports:
                        with_metrics[METRICS_LISTENER] = f"{HOST}:{metrics_ports[node_id]}"
                    rack = racks[node_id - 1] if racks else before[node_id].rack if node_id in before else ""
                    own = {"broker.rack": rack, **with_metrics} if rack else with_metrics
                    nodes.append(self._launch(node_id, ports, cluster_id, own))
                self._write(nodes, cluster_id)
            deadline = time.monotonic() + START_TIMEOUT_S
            for node in nodes:
                self._wait_until_serving(node, deadline)
        except BaseException as error:
            self.stop()
            self._kill_children()
            if isinstance(error, OSError):
                raise Failure(f"cannot start a cluster in {self.directory}: {error.strerror or error}") from error
            raise
        return nodes

    def check_count(self, brokers: int) -> None:
        """Raises Failure if the cluster has a different number of brokers."""
        if (there := len(self.nodes)) != brokers:
            raise Failure(
                f"the cluster in {self.directory} has {there} broker(s), not {brokers}: its metadata names them",
                "start it with the same --brokers, or use another --dir",
            )

    def start_again(self, *node_ids: int) -> list[Node]:
        """Starts these brokers of a running cluster with the settings of their last start, and returns when clients can
        use them.
        """
        nodes = {node.node_id: node for node in self.nodes}
        for node_id in node_ids:
            if nodes[node_id].running:
                raise Failure(f"broker {node_id} is already running (pid {nodes[node_id].pid})")
        cluster_id = self._cluster_id()
        for node_id in node_ids:
            file = Path(nodes[node_id].directory) / "server.properties"
            with held():
                nodes[node_id] = replace(nodes[node_id], **self._spawn(file, cluster_id))
                self._write(list(nodes.values()), cluster_id)
        started = [nodes[node_id] for node_id in node_ids]
        deadline = time.monotonic() + START_TIMEOUT_S
        for node in started:
            self._wait_until_serving(node, deadline)
        return started

    def stop(self, *node_ids: int, timeout_s: float = STOP_TIMEOUT_S) -> list[Node]:
        """Stops the running brokers cleanly (SIGTERM), and kills those that do not stop in time; all brokers if none is
        given. Returns the ones that were stopped.
        """
        running = self._running(node_ids)
        for node in running:
            _signal(node, signal.SIGTERM)
        deadline = time.monotonic() + timeout_s
        for node in running:
            if not self._gone(node, deadline):
                _signal(node, signal.SIGKILL)
                self._gone(node, time.monotonic() + 5.0)
        return running

    def kill(self, *node_ids: int) -> list[Node]:
        """Kills brokers without warning (SIGKILL), as a crash would; all brokers if none is given. Returns the ones
        that were killed.
        """
        running = self._running(node_ids)
        for node in running:
            _signal(node, signal.SIGKILL)
            self._gone(node, time.monotonic() + 5.0)
        return running

    def _running(self, node_ids: Collection[int]) -> list[Node]:
        return [node for node in self.nodes if node.running and (not node_ids or node.node_id in node_ids)]

    def signal(self, node_id: int, number: signal.Signals) -> None:
        """Sends a signal to one broker, such as SIGSTOP or SIGCONT."""
        for node in self.nodes:
            if node.node_id == node_id:
                _signal(node, number)

    def wait(self, on_end: Callable[[Node], None]) -> Node:
        """Blocks until no broker runs, and returns the last one that ended. `on_end` is called for each that ends while
        others continue. A broker that another command starts again is recorded in the state file, so it is waited for
        too.
        """
        ended: set[int] = set()
        while True:
            nodes = self.nodes
            gone = [node for node in nodes if not self._alive(node)]
            news = [node for node in gone if node.pid not in ended]
            if len(gone) == len(nodes):
                return (news or gone)[-1]
            for node in news:
                ended.add(node.pid)
                on_end(node)
            time.sleep(0.1)

    def _cluster_id(self) -> str:
        """Returns the id that all nodes share over all starts. An older release did not record it in the state file."""
        found = self._state()[1]
        for meta in sorted(self.directory.glob("broker-*/data/meta.properties")):
            if found is None:
                entries = dict(line.partition("=")[::2] for line in meta.read_text().splitlines())
                found = entries.get("cluster.id")
        return found or new_cluster_id()

    def _launch(
        self, node_id: int, ports: Mapping[int, tuple[int, int]], cluster_id: str, properties: Mapping[str, str]
    ) -> Node:
        folder = self.directory / f"broker-{node_id}"
        folder.mkdir(parents=True, exist_ok=True)
        settings = {**_settings(node_id, ports, folder / "data"), **properties}
        file = folder / "server.properties"
        lines = "".join(f"{key}={_escape(value)}\n" for key, value in settings.items())
        file.write_text(f"# Generated by `barnabas up` at each start.\n{lines}", encoding="utf-8")
        port, controller_port = ports[node_id]
        roles = tuple(settings["process.roles"].split(","))
        return Node(
            node_id=node_id,
            host=HOST,
            port=port,
            controller_port=controller_port,
            roles=roles,
            directory=str(folder),
            metrics_port=_port_of(settings[METRICS_LISTENER]),
            rack=settings.get("broker.rack", ""),
            **self._spawn(file, cluster_id),
        )

    def _spawn(self, file: Path, cluster_id: str) -> dict[str, Any]:
        """Starts a process with a properties file. Returns its `pid` and `start_ticks`."""
        command = [sys.executable, "-m", "barnabas.server.main", "broker", str(file), "--cluster-id", cluster_id]
        with (file.parent / "broker.log").open("wb") as out:
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=file.parent, start_new_session=True
            )
        self._children[child.pid] = child
        return {"pid": child.pid, "start_ticks": _start_ticks(child.pid)}

    def _kill_children(self) -> None:
        """Kills all child processes, including those that are not recorded yet."""
        for child in self._children.values():
            if child.poll() is None:
                child.kill()
                child.wait()

    def _wait_until_serving(self, node: Node, deadline: float) -> None:
        while not _says_ready(node.log_path):
            if not self._alive(node):
                raise Failure(
                    f"broker {node.node_id} exited during startup\n{log_tail(node)}", f"its log: {node.log_path}"
                )
            if time.monotonic() > deadline:
                raise Failure(
                    f"broker {node.node_id} did not start within {START_TIMEOUT_S:.0f} s\n{log_tail(node)}",
                    f"its log: {node.log_path}",
                )
            time.sleep(_POLL_S)

    def _alive(self, node: Node) -> bool:
        child = self._children.get(node.pid)
        return child.poll() is None if child else node.running

    def _gone(self, node: Node, deadline: float) -> bool:
        while self._alive(node):
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)
        return True

    def _write(self, nodes: list[Node], cluster_id: str) -> None:
        state: dict[str, Any] = {
            "version": 1,
            "cluster_id": cluster_id,
            "nodes": [asdict(node) for node in nodes],
        }
        partial = self.state_path.with_suffix(".tmp")
        partial.write_text(json.dumps(state, indent=2) + "\n")
        partial.replace(self.state_path)


def _what_is_wrong(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"it has no {error}"
    return str(error) if isinstance(error, ValueError) else "it is not the state of a cluster"


def log_tail(node: Node, lines: int = 15) -> str:
    """Returns the last lines that the broker wrote."""
    try:
        text = node.log_path.read_text(errors="replace")
    except OSError:
        return ""
    return "\n".join(f"  | {line}" for line in text.splitlines()[-lines:])


def _settings(node_id: int, ports: Mapping[int, tuple[int, int]], data: Path) -> dict[str, str]:
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


def _escape(value: str) -> str:
    """Escapes a value for a Java properties file."""
    text = value.replace("\\", "\\\\").replace("\n", "\\n")
    return f"\\{text}" if text.startswith(" ") else text


def _says_ready(log: Path) -> bool:
    return any(line.startswith(_READY) for line in log.read_text(errors="replace").splitlines(keepends=True))


def check_free(nodes: Iterable[Node], directory: Path) -> None:
    """Raises Failure if another process uses the client port of one of the nodes."""
    for node in nodes:
        if not _is_free(node.port):
            raise Failure(
                f"port {node.port} on {HOST}, the last port of broker {node.node_id} in {directory}, is in use",
                "stop the process that uses it, or choose another port with --port; 0 picks free ports",
            )


def choose_ports(count: int, wanted: int, before: Mapping[int, Node]) -> dict[int, tuple[int, int]]:
    """Returns node id -> (port for clients, port of the controller). `wanted` is the first client port, the others
    follow it; 0 takes those of the last start, or any free ones.
    """
    taken: set[int] = set()

    def claim(candidates: Iterable[int]) -> int:
        for candidate in candidates:
            if candidate not in taken and _is_free(candidate):
                taken.add(candidate)
                return candidate
        raise Failure(f"no free port on {HOST}")

    clients: dict[int, int] = {}
    for node_id in range(1, count + 1):
        last = before.get(node_id)
        if not wanted:
            clients[node_id] = claim([*([last.port] if last else []), *_any_ports()])
            continue
        port = wanted + node_id - 1
        if port > 65535:
            raise Failure(
                f"--port {wanted}: {count} brokers need the ports {wanted} to {wanted + count - 1}, above 65535"
            )
        if not _is_free(port):
            raise Failure(f"port {port} on {HOST} is in use", "choose another port with --port; 0 picks free ports")
        clients[node_id] = port
        taken.add(port)
    ports: dict[int, tuple[int, int]] = {}
    for node_id, port in clients.items():
        last = before.get(node_id)
        follow = range(max(clients.values()) + 1, min(port + 200, 65536))
        ports[node_id] = (port, claim([*([last.controller_port] if last else []), *follow, *_any_ports()]))
    return ports


def choose_metrics_ports(ports: Mapping[int, tuple[int, int]], before: Mapping[int, Node]) -> dict[int, int]:
    """Returns node id -> port of its /metrics: the one of the last start, else one after the cluster's other ports,
    else any.
    """
    taken = {port for pair in ports.values() for port in pair}
    first = max(taken) + 1
    found: dict[int, int] = {}
    for node_id in ports:
        last = before.get(node_id)
        wanted = [last.metrics_port] if last is not None and last.metrics_port else []
        candidates = [*wanted, *range(first, min(first + 100, 65536)), *_any_ports()]
        port = next((each for each in candidates if each not in taken and _is_free(each)), 0)
        taken.add(port)
        found[node_id] = port
    return found


def _port_of(listener: str) -> int:
    port = listener.rpartition(":")[2]
    return int(port) if port.isdigit() else 0


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def _any_ports() -> list[int]:
    """Yields candidates for free ports: many, because other programs take ports too, and finally one that the system
    assigns.
    """
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        given: int = probe.getsockname()[1]
    return [*random.sample(FREE_PORTS, min(200, len(FREE_PORTS))), given]


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _start_ticks(pid: int) -> int | None:
    """Returns field 22 of /proc/PID/stat; None for a dead process, a zombie, or a system without /proc."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[19])


def _signal(node: Node, number: signal.Signals) -> None:
    if node.running:
        try:
            os.kill(node.pid, number)
        except ProcessLookupError:
            return
