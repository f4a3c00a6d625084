"""An embedded cluster: processes on this machine whose files are all below one directory.

    DIR/cluster.json                   what runs: pids, ports, roles
    DIR/broker-1/server.properties     generated at each start
    DIR/broker-1/broker.log            stdout and stderr of the process
    DIR/broker-1/data/                 its log directory
    DIR/security/                      certificates, users and client settings, with `secure`
    DIR/zookeeper/data/                snapshots and logs of the ZooKeeper server, in ZooKeeper mode
    DIR/zookeeper/zookeeper.log        its stdout and stderr

The package needs only the standard library, so that test suites can use it without an extra.
Each process has its own session: a Ctrl-C in the terminal reaches only the command, which then stops the brokers
cleanly, and after them the ZooKeeper server.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from signal import Signals
from typing import Final

from barnabas.embedded.failures import Failure
from barnabas.embedded.nodes import STATE_FILE, Node, Recorded, ZookeeperServer, log_tail
from barnabas.embedded.ports import HOST, check_free, choose_metrics_ports, choose_ports, choose_zookeeper_port
from barnabas.embedded.processes import POLL_S, Processes, send
from barnabas.embedded.security import Security, make_security, security_of
from barnabas.embedded.settings import new_cluster_id, properties_text, quorum_settings, zookeeper_settings
from barnabas.embedded.signals import held

#: The default port of the first broker of a new cluster, as in Kafka's example file.
DEFAULT_PORT: Final = 9092
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
_READY = "started: "

#: The address of a broker's metrics.
METRICS_LISTENER: Final = "barnabas.metrics.listener"


class EmbeddedCluster:
    """The processes below one directory: starts, shows and stops them. The data is kept when they stop."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()
        self._processes = Processes()

    # -- the state file

    @property
    def state_path(self) -> Path:
        return self.directory / STATE_FILE

    @property
    def recorded(self) -> Recorded:
        """Returns the content of the state file. Raises Failure for a damaged file."""
        return Recorded.load(self.state_path)

    @property
    def nodes(self) -> list[Node]:
        """Returns the recorded brokers; `running` says whether each runs. Empty if no cluster was ever started here.
        Raises Failure for a damaged file.
        """
        return list(self.recorded.nodes)

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes)

    # -- start

    def start(
        self,
        *,
        brokers: int | None = None,
        port: int | None = 0,
        racks: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        zookeeper: str | None = None,
        zookeeper_port: int | None = None,
        secure: bool = False,
    ) -> list[Node]:
        """Starts the brokers and returns when clients can use them.

        `brokers`: their number; None takes that of the last start, or one. `port`: that of the first broker, from which
        the others count up; 0 takes the ports of the last start that are free, and any free ones for the rest; None
        takes those of the last start, or DEFAULT_PORT, and raises Failure if one is not free. `racks`: one for each
        broker; if empty, those of the last start, or none. `properties` are broker properties by Kafka's names; they
        take precedence over the generated ones. `zookeeper`: a connect string, or empty for a ZooKeeper server that the
        cluster starts on `zookeeper_port`; None keeps the choice of the last start, which for a new cluster is a
        metadata quorum. `secure` gives all listeners TLS, a log-in and rules (`embedded.security`); a cluster that was
        started with it keeps it.
        """
        recorded = self.recorded
        before = {node.node_id: node for node in recorded.nodes}
        self._refuse_if_running(recorded)
        count = self._count(brokers, racks, len(before))
        wanted = self._zookeeper_of(recorded, zookeeper)
        security = self._security(recorded, is_wanted=secure, in_zookeeper=wanted is not None)
        if port is None:
            port = 0 if before else DEFAULT_PORT
            check_free(before.values(), self.directory)
        ports = choose_ports(count, port, before)
        given = dict(properties or {})
        metrics_ports = choose_metrics_ports(ports, before) if METRICS_LISTENER not in given else {}
        taken = {*metrics_ports.values(), *(each for pair in ports.values() for each in pair)}
        known_id = self._cluster_id(recorded)
        cluster_id = known_id or new_cluster_id() if wanted is None else None
        formatting = _formatting(cluster_id, is_new=known_id is None)
        server: ZookeeperServer | None = None
        nodes: list[Node] = []
        try:
            with held():
                if wanted == "":
                    server = self._launch_zookeeper(choose_zookeeper_port(zookeeper_port, recorded.zookeeper, taken))
                connect = server.bootstrap if server is not None else wanted or ""
                for node_id in ports:
                    metrics = f"{HOST}:{metrics_ports[node_id]}" if metrics_ports else ""
                    rack = racks[node_id - 1] if racks else before[node_id].rack if node_id in before else ""
                    own = {**({"broker.rack": rack} if rack else {}), METRICS_LISTENER: metrics}
                    secured = {} if security is None else security.node_settings(node_id, *ports[node_id])
                    nodes.append(self._launch(node_id, ports, formatting, connect, own | secured | given))
                Recorded(tuple(nodes), cluster_id, connect, server).store(self.state_path)
            self._wait_until_serving(self.recorded.servers)
        except BaseException as error:
            self.stop()
            self._processes.kill_children()
            if isinstance(error, OSError):
                raise Failure(f"cannot start a cluster in {self.directory}: {error.strerror or error}") from error
            raise
        return nodes

    def _count(self, brokers: int | None, racks: Sequence[str], before: int) -> int:
        """Returns the number of brokers. Raises Failure if it contradicts the racks, or the last start."""
        count = brokers or before or len(racks) or 1
        if before:
            self.check_count(count)
        if racks and len(racks) != count:
            raise Failure(f"{len(racks)} rack(s) for {count} broker(s): give one for each broker")
        return count

    @property
    def security(self) -> Security | None:
        """Returns the security of the cluster; None if it has none. Raises Failure for damaged files."""
        return security_of(self.directory)

    def _security(self, recorded: Recorded, *, is_wanted: bool, in_zookeeper: bool) -> Security | None:
        """Returns the security of the nodes; None for a cluster without security. Raises Failure if the cluster cannot
        be secure.
        """
        found = self.security
        if found is not None:
            found.write_client_files()
        if found is not None or not is_wanted:
            return found
        if in_zookeeper:
            raise Failure("--secure needs a metadata quorum", "start the cluster without --zookeeper")
        if recorded.nodes:
            raise Failure(
                f"the cluster in {self.directory} has no security: its clients use listeners without TLS",
                "use another --dir for a secure cluster",
            )
        return make_security(self.directory)

    def _refuse_if_running(self, recorded: Recorded) -> None:
        for server in recorded.servers:
            if server.running:
                raise Failure(
                    f"a cluster is already running in {self.directory} (pid {server.pid}, {server.bootstrap})",
                    f"stop it with: barnabas down --dir {self.directory}",
                )

    def _zookeeper_of(self, recorded: Recorded, given: str | None) -> str | None:
        """Returns the connect string of the brokers, empty for a server that the cluster starts, None for a metadata
        quorum. Raises Failure if an existing cluster has its metadata elsewhere.
        """
        if not recorded.nodes:
            return given
        if not recorded.connect and given is not None:
            raise Failure(
                f"the cluster in {self.directory} has its metadata in a quorum, not in ZooKeeper",
                "start it without --zookeeper, or use another --dir",
            )
        last = "" if recorded.zookeeper is not None else recorded.connect or None
        return last if given is None else given

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
        recorded = self.recorded
        nodes = {node.node_id: node for node in recorded.nodes}
        for node_id in node_ids:
            if nodes[node_id].running:
                raise Failure(f"broker {node_id} is already running (pid {nodes[node_id].pid})")
        cluster_id = None if recorded.connect else self._cluster_id(recorded) or new_cluster_id()
        for node_id in node_ids:
            file = Path(nodes[node_id].directory) / "server.properties"
            with held():
                pid, ticks = self._spawn(file, _formatting(cluster_id, is_new=False))
                nodes[node_id] = replace(nodes[node_id], pid=pid, start_ticks=ticks)
                recorded = recorded._replace(cluster_id=cluster_id, nodes=tuple(nodes.values()))
                recorded.store(self.state_path)
        started = [nodes[node_id] for node_id in node_ids]
        self._wait_until_serving(started)
        return started

    def start_zookeeper_again(self) -> ZookeeperServer:
        """Starts the cluster's ZooKeeper server on its port, and returns when it serves. Raises Failure if the cluster
        has no server of its own, or if it is running.
        """
        recorded = self.recorded
        server = recorded.zookeeper
        if server is None:
            raise Failure(f"the cluster in {self.directory} has no ZooKeeper server of its own")
        if server.running:
            raise Failure(f"{server.name} is already running (pid {server.pid})")
        with held():
            server = self._launch_zookeeper(server.port)
            recorded._replace(zookeeper=server).store(self.state_path)
        self._wait_until_serving([server])
        return server

    # -- end

    def stop(self, *node_ids: int, timeout_s: float = STOP_TIMEOUT_S) -> list[Node]:
        """Stops the running brokers cleanly (SIGTERM), and kills those that do not stop in time; all brokers, and then
        the ZooKeeper server, if none is given. Returns the brokers that were stopped.
        """
        running = self._running(node_ids)
        self._processes.stop(running, timeout_s)
        if not node_ids:
            self.stop_zookeeper()
        return running

    def stop_zookeeper(self) -> ZookeeperServer | None:
        """Stops the cluster's ZooKeeper server cleanly. Returns the server, or None if it was not running."""
        server = self.recorded.zookeeper
        if server is None or not server.running:
            return None
        self._processes.stop([server], STOP_TIMEOUT_S)
        return server

    def kill(self, *node_ids: int) -> list[Node]:
        """Kills brokers without warning (SIGKILL), as a crash would; all brokers if none is given. Returns the ones
        that were killed.
        """
        running = self._running(node_ids)
        self._processes.kill(running)
        return running

    def kill_zookeeper(self) -> ZookeeperServer | None:
        """Kills the cluster's ZooKeeper server. Returns the server, or None if it was not running."""
        server = self.recorded.zookeeper
        if server is None or not server.running:
            return None
        self._processes.kill([server])
        return server

    def signal(self, node_id: int, number: Signals) -> None:
        """Sends a signal, such as SIGSTOP or SIGCONT, to one broker."""
        for node in self.nodes:
            if node.node_id == node_id:
                send(node, number)

    def signal_zookeeper(self, number: Signals) -> None:
        """Sends a signal to the cluster's ZooKeeper server, if it has one."""
        server = self.recorded.zookeeper
        if server is not None:
            send(server, number)

    def wait(self, on_end: Callable[[Node | ZookeeperServer], None]) -> Node:
        """Blocks until no broker runs, and returns the last one that ended. `on_end` is called for each process that
        ends while brokers continue. A process that another command starts again is recorded in the state file, so it
        is waited for too.
        """
        ended: set[int] = set()
        while True:
            recorded = self.recorded
            gone: list[Node] = [node for node in recorded.nodes if not self._processes.is_alive(node)]
            if len(gone) == len(recorded.nodes):
                return ([node for node in gone if node.pid not in ended] or gone)[-1]
            for server in recorded.servers:
                if server.pid not in ended and not self._processes.is_alive(server):
                    ended.add(server.pid)
                    on_end(server)
            time.sleep(0.1)

    def _running(self, node_ids: Collection[int]) -> list[Node]:
        return [node for node in self.nodes if node.running and (not node_ids or node.node_id in node_ids)]

    # -- processes

    def _cluster_id(self, recorded: Recorded) -> str | None:
        """Returns the id that all nodes share across all starts; None before the first one. An older release did not
        record it in the state file.
        """
        found = recorded.cluster_id
        for meta in sorted(self.directory.glob("broker-*/data/meta.properties")):
            if found is None:
                entries = dict(line.partition("=")[::2] for line in meta.read_text().splitlines())
                found = entries.get("cluster.id")
        return found

    def _launch(
        self,
        node_id: int,
        ports: Mapping[int, tuple[int, int]],
        formatting: Sequence[str],
        connect: str,
        properties: Mapping[str, str],
    ) -> Node:
        folder = self.directory / f"broker-{node_id}"
        folder.mkdir(parents=True, exist_ok=True)
        port, controller_port = ports[node_id]
        generated = (
            zookeeper_settings(node_id, port, len(ports), connect, folder / "data")
            if connect
            else quorum_settings(node_id, ports, folder / "data")
        )
        settings = {**generated, **properties}
        file = folder / "server.properties"
        text = f"# Generated by `barnabas up` at each start.\n{properties_text(settings)}"
        file.write_text(text, encoding="utf-8")
        pid, ticks = self._spawn(file, formatting)
        return Node(
            node_id=node_id,
            pid=pid,
            start_ticks=ticks,
            host=HOST,
            port=port,
            controller_port=0 if connect else controller_port,
            roles=tuple(settings.get("process.roles", "broker").split(",")),
            directory=str(folder),
            metrics_port=_port_of(settings[METRICS_LISTENER]),
            rack=settings.get("broker.rack", ""),
        )

    def _spawn(self, file: Path, formatting: Sequence[str]) -> tuple[int, int | None]:
        """Starts a broker with a properties file, and the options by which it formats an empty directory. Returns its
        pid and start time.
        """
        command = [sys.executable, "-m", "barnabas.server.main", "broker", str(file), *formatting]
        return self._processes.start(command, file.parent / "broker.log")

    def _launch_zookeeper(self, port: int) -> ZookeeperServer:
        folder = self.directory / "zookeeper"
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "barnabas.cli", "zookeeper", "--host", HOST, "--port", str(port)]
        command += ["--data-dir", str(folder / "data")]
        pid, ticks = self._processes.start(command, folder / "zookeeper.log")
        return ZookeeperServer(pid, ticks, HOST, port, str(folder))

    def _wait_until_serving(self, servers: Sequence[Node | ZookeeperServer]) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        for server in servers:
            while not _says_ready(server.log_path):
                problem = ""
                if not self._processes.is_alive(server):
                    problem = "exited during startup"
                elif time.monotonic() > deadline:
                    problem = f"did not start within {START_TIMEOUT_S:.0f} s"
                if problem:
                    raise Failure(f"{server.name} {problem}\n{log_tail(server)}", f"its log: {server.log_path}")
                time.sleep(POLL_S)


def _says_ready(log: Path) -> bool:
    return any(line.startswith(_READY) for line in log.read_text(errors="replace").splitlines(keepends=True))


def _formatting(cluster_id: str | None, *, is_new: bool) -> list[str]:
    """Returns the options by which a broker formats an empty directory; none in ZooKeeper mode, where the cluster's id
    is in a znode.
    """
    if cluster_id is None:
        return []
    return ["--cluster-id", cluster_id, *(["--new-cluster"] if is_new else [])]


def _port_of(listener: str) -> int:
    port = listener.rpartition(":")[2]
    return int(port) if port.isdigit() else 0
