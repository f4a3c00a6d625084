"""`Cluster`: the embedded cluster of `barnabas up` as an object that a test can restart, crash or shut down."""

from __future__ import annotations

import shutil
import signal
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from barnabas.embedded.cluster import EmbeddedCluster
from barnabas.embedded.failures import Failure
from barnabas.embedded.nodes import Node, log_tail
from barnabas.embedded.zookeeper_session import ZookeeperSession, expire


class Cluster:
    """Brokers 1 to `brokers`, each a process that is also a controller. They do not run before `start` or `with`.

    `zookeeper`: True keeps the metadata in a ZooKeeper server that the cluster starts, a connect string in an existing
    one.

    `secure`: True gives all listeners TLS, a log-in and rules; `client_settings` has what a client must set.

    `directory`: the place of their files; a temporary one, removed by `close`, if left out.
    `racks`: the `broker.rack` of each. `properties`: broker properties under Kafka's names, for example
    {"log.segment.bytes": "1048576"}.
    """

    def __init__(
        self,
        directory: Path | str | None = None,
        *,
        brokers: int = 1,
        racks: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        zookeeper: bool | str = False,
        secure: bool = False,
    ) -> None:
        self._secure = secure
        self._temporary = directory is None
        self.directory = Path(directory if directory is not None else tempfile.mkdtemp(prefix="barnabas-"))
        self._brokers = brokers
        self._racks = tuple(racks)
        self._properties = dict(properties or {})
        self._zookeeper = ("" if zookeeper else None) if isinstance(zookeeper, bool) else zookeeper
        self._embedded = EmbeddedCluster(self.directory)
        self._nodes: dict[int, Node] = {}

    @property
    def bootstrap(self) -> str:
        """Returns "127.0.0.1:PORT,...", for a client's `bootstrap.servers`. A restart does not change it."""
        return ",".join(node.bootstrap for node in self._started.values())

    @property
    def client_settings(self) -> dict[str, str]:
        """Returns the settings for a client of the user admin, by librdkafka's names; empty for a cluster without
        security.
        """
        security = self._embedded.security
        return {} if security is None else security.client_settings()

    @property
    def controllers(self) -> str:
        """Returns the addresses of the controllers, for a tool's --bootstrap-controller."""
        return ",".join(f"{node.host}:{node.controller_port}" for node in self._started.values())

    @property
    def pid(self) -> int:
        """Returns the process id of the first broker."""
        return self._started[1].pid

    @property
    def pids(self) -> dict[int, int]:
        """Returns the process id of each broker by broker id."""
        return {node_id: node.pid for node_id, node in self._started.items()}

    @property
    def data_directory(self) -> Path:
        """Returns the first broker's log directory (`log.dirs`)."""
        return self.data_directory_of(1)

    def data_directory_of(self, broker_id: int) -> Path:
        return Path(self._started[broker_id].directory) / "data"

    @property
    def log(self) -> str:
        """Returns the last lines that the brokers wrote to stdout and stderr."""
        return "\n".join(log_tail(node, lines=100) for node in self._started.values())

    @property
    def running(self) -> bool:
        """Returns whether all brokers are running."""
        return bool(self._nodes) and all(node.running for node in self._nodes.values())

    def start(self) -> Cluster:
        """Starts the brokers and returns when clients can use them.

        Raises:
            barnabas.embedded.failures.Failure: a broker does not start; the error contains the broker's log.
        """
        nodes = self._embedded.start(
            brokers=self._brokers,
            racks=self._racks,
            properties=self._properties,
            zookeeper=self._zookeeper,
            zookeeper_port=0,
            secure=self._secure,
        )
        self._nodes = {node.node_id: node for node in nodes}
        return self

    def start_broker(self, broker_id: int) -> None:
        """Starts a broker that was stopped or killed, and returns when clients can use it."""
        [self._nodes[broker_id]] = self._embedded.start_again(broker_id)

    def stop(self) -> None:
        """Shuts the brokers down cleanly (SIGTERM). Their data remains."""
        self._embedded.stop()

    def stop_broker(self, broker_id: int) -> None:
        """Shuts one broker down cleanly: its leaderships move first."""
        self._embedded.stop(broker_id)

    def kill(self, *broker_ids: int) -> None:
        """Crashes these brokers, or all of them (SIGKILL). Their data remains as they left it."""
        self._embedded.kill(*broker_ids)

    def pause(self, broker_id: int) -> None:
        """Stops a broker's process with SIGSTOP: its connections stay open, and it answers no request."""
        self._embedded.signal(broker_id, signal.SIGSTOP)

    def resume(self, broker_id: int) -> None:
        """Lets a paused broker's process continue (SIGCONT)."""
        self._embedded.signal(broker_id, signal.SIGCONT)

    # -- ZooKeeper

    @property
    def zookeeper(self) -> str:
        """Returns `zookeeper.connect` of the brokers; empty for a cluster with a metadata quorum."""
        return self._embedded.recorded.connect

    def stop_zookeeper(self) -> None:
        """Shuts the cluster's ZooKeeper server down cleanly. Sessions continue when it starts again."""
        self._embedded.stop_zookeeper()

    def kill_zookeeper(self) -> None:
        """Crashes the cluster's ZooKeeper server (SIGKILL)."""
        self._embedded.kill_zookeeper()

    def start_zookeeper(self) -> None:
        """Starts the ZooKeeper server that was stopped or killed, on its port."""
        self._embedded.start_zookeeper_again()

    def pause_zookeeper(self) -> None:
        """Stops the ZooKeeper server with SIGSTOP: its connections stay open, and it answers nothing."""
        self._embedded.signal_zookeeper(signal.SIGSTOP)

    def resume_zookeeper(self) -> None:
        """Lets the paused ZooKeeper server continue (SIGCONT)."""
        self._embedded.signal_zookeeper(signal.SIGCONT)

    def expire_session(self, broker_id: int) -> None:
        """Ends a broker's ZooKeeper session while its process keeps running, as happens after a long pause.

        Raises:
            barnabas.embedded.failures.Failure: the broker is not registered, or ZooKeeper does not answer.
        """
        with ZookeeperSession(self.zookeeper) as session:
            found = session.read(f"/brokers/ids/{broker_id}")
        if found is None:
            raise Failure(f"broker {broker_id} is not registered in ZooKeeper")
        expire(self.zookeeper, found.stat.ephemeral_owner)

    # -- all brokers

    def restart(self) -> Cluster:
        """Shuts the running brokers down cleanly, then starts all of them on the same data and ports."""
        self.stop()
        return self.start()

    def close(self) -> None:
        """Stops the brokers, and removes the directory if it is a temporary one."""
        self.stop()
        if self._temporary:
            shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Cluster:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def _started(self) -> dict[int, Node]:
        if not self._nodes:
            raise RuntimeError("the cluster has not been started")
        return self._nodes
