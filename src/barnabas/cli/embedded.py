"""An embedded cluster: broker processes on this machine whose files are all below one directory.

    DIR/cluster.json                   what runs: pids, ports, roles
    DIR/broker-1/server.properties     generated at each start
    DIR/broker-1/broker.log            stdout and stderr of the process
    DIR/broker-1/data/                 its log directory

Needs the standard library only, so that test suites can use it without the extra that the tools need.
Each broker is a session of its own: a Ctrl-C in the terminal reaches only the command, which then stops it in order.
A pid alone does not name a process for long; its start time goes with it, and nothing else is ever signalled.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from barnabas.cli.failures import Failure

HOST = "127.0.0.1"
START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 30.0
_POLL_S = 0.01
_READY = "started: "


@dataclass(frozen=True, slots=True)
class Node:
    """One broker process, as written down in cluster.json."""

    node_id: int
    pid: int
    #: Start time in clock ticks since boot, where the system tells it.
    start_ticks: int | None
    host: str
    port: int
    controller_port: int
    roles: tuple[str, ...]
    directory: str

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
        """Whether the port takes connections."""
        try:
            with socket.create_connection((self.host, self.port), timeout=1.0):
                return self.running
        except OSError:
            return False


class EmbeddedCluster:
    """The brokers below one directory: start, look, stop. Data stays where it is between starts."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()
        self._children: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def state_path(self) -> Path:
        return self.directory / "cluster.json"

    @property
    def nodes(self) -> list[Node]:
        """As written down; look at `running` for each. Empty when nothing was ever started here."""
        try:
            state = json.loads(self.state_path.read_text())
        except FileNotFoundError:
            return []
        except ValueError as error:
            raise Failure(f"{self.state_path} is damaged: {error}") from error
        return [Node(**{**item, "roles": tuple(item["roles"])}) for item in state["nodes"]]

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes)

    def start(self, *, port: int = 0, properties: Mapping[str, str] | None = None) -> list[Node]:
        """Start the broker and return when clients can use it. `port` 0 takes the one used last, or any free one.

        `properties` are broker properties by Kafka's names; they win over the generated ones.
        """
        before = {node.node_id: node for node in self.nodes}
        running = [node for node in before.values() if node.running]
        if running:
            raise Failure(
                f"a cluster runs already in {self.directory} (pid {running[0].pid}, {running[0].bootstrap})",
                f"stop it with: barnabas down --dir {self.directory}",
            )
        node = self._launch(1, before.get(1), port, properties or {})
        self._write([node])
        try:
            self._wait_until_serving(node)
        except BaseException:
            self.stop()
            raise
        return [node]

    def stop(self, *, timeout_s: float = STOP_TIMEOUT_S) -> list[Node]:
        """Stop what runs, in order (SIGTERM), by force what does not go in time. Returns what was stopped."""
        running = [node for node in self.nodes if node.running]
        for node in running:
            _signal(node, signal.SIGTERM)
        deadline = time.monotonic() + timeout_s
        for node in running:
            if not self._gone(node, deadline):
                _signal(node, signal.SIGKILL)
                self._gone(node, time.monotonic() + 5.0)
        return running

    def kill(self) -> None:
        """End the processes without any warning (SIGKILL), as a crash would."""
        for node in self.nodes:
            if node.running:
                _signal(node, signal.SIGKILL)
                self._gone(node, time.monotonic() + 5.0)

    def wait(self) -> Node:
        """Block until one of the nodes has ended, and return it."""
        while True:
            for node in self.nodes:
                if not self._alive(node):
                    return node
            time.sleep(0.1)

    def _launch(self, node_id: int, before: Node | None, port: int, properties: Mapping[str, str]) -> Node:
        folder = self.directory / f"broker-{node_id}"
        folder.mkdir(parents=True, exist_ok=True)
        chosen = _choose_port(port, before.port if before else None)
        controller_port = _choose_controller_port(chosen, before.controller_port if before else None)
        settings = {**_settings(node_id, chosen, controller_port, folder / "data"), **properties}
        file = folder / "server.properties"
        lines = "".join(f"{key}={_escape(value)}\n" for key, value in settings.items())
        file.write_text(f"# Generated by `barnabas up` at each start.\n{lines}", encoding="utf-8")
        log = folder / "broker.log"
        command = [sys.executable, "-m", "barnabas.server.main", "broker", str(file)]
        with log.open("wb") as out:
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=folder, start_new_session=True
            )
        self._children[child.pid] = child
        roles = tuple(settings["process.roles"].split(","))
        return Node(node_id, child.pid, _start_ticks(child.pid), HOST, chosen, controller_port, roles, str(folder))

    def _wait_until_serving(self, node: Node) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not _says_ready(node.log_path):
            if not self._alive(node):
                raise Failure(f"the broker ended while starting\n{log_tail(node)}", f"its log: {node.log_path}")
            if time.monotonic() > deadline:
                raise Failure(f"the broker did not start within {START_TIMEOUT_S:.0f} s\n{log_tail(node)}")
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

    def _write(self, nodes: list[Node]) -> None:
        state: dict[str, Any] = {"version": 1, "nodes": [asdict(node) for node in nodes]}
        partial = self.state_path.with_suffix(".tmp")
        partial.write_text(json.dumps(state, indent=2) + "\n")
        partial.replace(self.state_path)


def log_tail(node: Node, lines: int = 15) -> str:
    """The last lines the broker wrote."""
    try:
        text = node.log_path.read_text(errors="replace")
    except OSError:
        return ""
    return "\n".join(f"  | {line}" for line in text.splitlines()[-lines:])


def _settings(node_id: int, port: int, controller_port: int, data: Path) -> dict[str, str]:
    """A combined-mode node as Kafka's own example file has it, with one replica of the offsets topic."""
    return {
        "process.roles": "broker,controller",
        "node.id": str(node_id),
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "controller.quorum.voters": f"{node_id}@{HOST}:{controller_port}",
        "log.dirs": str(data),
        "offsets.topic.replication.factor": "1",
        "group.initial.rebalance.delay.ms": "0",
    }


def _escape(value: str) -> str:
    """A value as a Java properties file writes it."""
    text = value.replace("\\", "\\\\").replace("\n", "\\n")
    return f"\\{text}" if text.startswith(" ") else text


def _says_ready(log: Path) -> bool:
    return any(line.startswith(_READY) for line in log.read_text(errors="replace").splitlines(keepends=True))


def _choose_port(wanted: int, before: int | None) -> int:
    if wanted:
        if not _is_free(wanted):
            raise Failure(f"port {wanted} on {HOST} is in use", "choose another one with --port, or 0 for any free one")
        return wanted
    return before if before and _is_free(before) else _free_port()


def _choose_controller_port(port: int, before: int | None) -> int:
    """The same as last time, else the next free one after the broker's."""
    if before and before != port and _is_free(before):
        return before
    for candidate in range(port + 1, min(port + 100, 65536)):
        if _is_free(candidate):
            return candidate
    return _free_port()


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _start_ticks(pid: int) -> int | None:
    """Field 22 of /proc/PID/stat; None for a process that is gone, a zombie, or a system without /proc."""
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
