"""`Cluster`: the embedded cluster of `barnabas up` as an object, with what tests need: restart, crash, clean end."""

from __future__ import annotations

import shutil
import signal
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from barnabas.embedded.cluster import EmbeddedCluster, Node, log_tail


class Cluster:
    """Brokers 1 to `brokers`, each a process that is also a controller. Not started until `start` or `with`.

    `directory`: where its files live; a temporary one, removed on `close`, when left out.
    `racks`: `broker.rack` of each. `properties`: broker properties by Kafka's names, such as
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
        """ "127.0.0.1:PORT,...", for a client's `bootstrap.servers`. The same after a restart."""
        return ",".join(node.bootstrap for node in self._started.values())

    @property
    def controllers(self) -> str:
        """The same of the controllers, for a tool's --bootstrap-controller."""
        return ",".join(f"{node.host}:{node.controller_port}" for node in self._started.values())

    @property
    def pid(self) -> int:
        """Of the first broker."""
        return self._started[1].pid

    @property
    def pids(self) -> dict[int, int]:
        """Broker id -> process id."""
        return {node_id: node.pid for node_id, node in self._started.items()}

    @property
    def data_directory(self) -> Path:
        """The first broker's log directory (`log.dirs`)."""
        return self.data_directory_of(1)

    def data_directory_of(self, broker_id: int) -> Path:
        return Path(self._started[broker_id].directory) / "data"

    @property
    def log(self) -> str:
        """The last lines that the brokers wrote to stdout and stderr."""
        return "\n".join(log_tail(node, lines=100) for node in self._started.values())

    @property
    def running(self) -> bool:
        """Whether all brokers are."""
        return bool(self._nodes) and all(node.running for node in self._nodes.values())

    def start(self) -> Cluster:
        """Start the brokers; return when clients can use them. Raises `barnabas.embedded.failures.Failure` with the
        broker's log if one does not start."""
        nodes = self._embedded.start(brokers=self._brokers, racks=self._racks, properties=self._properties)
        self._nodes = {node.node_id: node for node in nodes}
        return self

    def start_broker(self, broker_id: int) -> None:
        """Start one that was stopped or killed again; return when clients can use it."""
        [self._nodes[broker_id]] = self._embedded.start_again(broker_id)

    def stop(self) -> None:
        """An orderly stop (SIGTERM); data stays."""
        self._embedded.stop()

    def stop_broker(self, broker_id: int) -> None:
        """An orderly stop of one broker: its leaderships move first."""
        self._embedded.stop(broker_id)

    def kill(self, *broker_ids: int) -> None:
        """A crash (SIGKILL) of these brokers, or of all; data stays as they left it."""
        self._embedded.kill(*broker_ids)

    def pause(self, broker_id: int) -> None:
        """SIGSTOP: its connections stay open and nothing is answered."""
        self._embedded.signal(broker_id, signal.SIGSTOP)

    def resume(self, broker_id: int) -> None:
        """SIGCONT."""
        self._embedded.signal(broker_id, signal.SIGCONT)

    def restart(self) -> Cluster:
        """Stop in order what runs, then start on the same data and the same ports."""
        self.stop()
        return self.start()

    def close(self) -> None:
        """Stop, and remove the directory if it was a temporary one."""
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
