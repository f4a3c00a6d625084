"""`Cluster`: the embedded cluster of `barnabas up` as an object that a test can restart, crash or shut down."""

from __future__ import annotations

import shutil
import signal
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from barnabas.embedded.cluster import EmbeddedCluster, Node, log_tail


class Cluster:
    """Brokers 1 to `brokers`, each a process that is also a controller. They do not run before `start` or `with`.

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
    ) -> None:
        self._temporary = directory is None
        self.directory = Path(directory if directory is not None else tempfile.mkdtemp(prefix="barnabas-"))
        self._brokers = brokers
        self._racks = tuple(racks)
        self._properties = dict(properties or {})
        self._embedded = EmbeddedCluster(self.directory)
        self._nodes: dict[int, Node] = {}

    @property
    def bootstrap(self) -> str:
        """Returns "127.0.0.1:PORT,...", for a client's `bootstrap.servers`. A restart does not change it."""
        return ",".join(node.bootstrap for node in self._started.values())

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
        """Returns whether all brokers run."""
        return bool(self._nodes) and all(node.running for node in self._nodes.values())

    def start(self) -> Cluster:
        """Starts the brokers and returns when clients can use them.

        Raises:
            barnabas.embedded.failures.Failure: a broker does not start; it contains the broker's log.
        """
        nodes = self._embedded.start(brokers=self._brokers, racks=self._racks, properties=self._properties)
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
