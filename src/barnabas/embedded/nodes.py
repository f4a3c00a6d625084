"""The processes of an embedded cluster, as cluster.json records them."""

from __future__ import annotations

import json
import socket
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from barnabas.embedded.failures import Failure
from barnabas.embedded.processes import is_running

#: The state file in the directory of an embedded cluster.
STATE_FILE: Final = "cluster.json"


class _Server:
    """A process that listens on a port."""

    __slots__ = ()
    pid: int
    start_ticks: int | None
    host: str
    port: int

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def running(self) -> bool:
        return is_running(self.pid, self.start_ticks)

    @property
    def serving(self) -> bool:
        """Whether the port accepts connections."""
        try:
            with socket.create_connection((self.host, self.port), timeout=1.0):
                return self.running
        except OSError:
            return False


@dataclass(frozen=True, slots=True)
class Node(_Server):
    """A broker process."""

    node_id: int
    pid: int
    #: Start time in clock ticks since boot, if the system reports it.
    start_ticks: int | None
    host: str
    port: int
    #: The port of the controller's listener; 0 in ZooKeeper mode.
    controller_port: int
    roles: tuple[str, ...]
    directory: str
    #: Port of /metrics; 0 for a broker without it, or of an older release.
    metrics_port: int = 0
    #: `broker.rack`; empty for none.
    rack: str = ""

    @property
    def name(self) -> str:
        return f"broker {self.node_id}"

    @property
    def metrics_url(self) -> str | None:
        return f"http://{self.host}:{self.metrics_port}/metrics" if self.metrics_port else None

    @property
    def log_path(self) -> Path:
        return Path(self.directory) / "broker.log"


@dataclass(frozen=True, slots=True)
class ZookeeperServer(_Server):
    """The ZooKeeper server of a cluster."""

    pid: int
    start_ticks: int | None
    host: str
    port: int
    directory: str

    @property
    def name(self) -> str:
        return "the ZooKeeper server"

    @property
    def log_path(self) -> Path:
        return Path(self.directory) / "zookeeper.log"


class Recorded(NamedTuple):
    """The content of the state file: the processes that it records."""

    nodes: tuple[Node, ...] = ()
    cluster_id: str | None = None
    #: `zookeeper.connect` of the brokers; empty for a cluster with a metadata quorum.
    connect: str = ""
    #: The cluster's own ZooKeeper server, if it has one.
    zookeeper: ZookeeperServer | None = None

    @property
    def servers(self) -> list[Node | ZookeeperServer]:
        """The processes, in the order in which they are started."""
        return [*([] if self.zookeeper is None else [self.zookeeper]), *self.nodes]

    @classmethod
    def load(cls, path: Path) -> Recorded:
        """Returns the content of a state file, or an empty one if there is no file. Raises Failure for a damaged
        file.
        """
        try:
            state = json.loads(path.read_text())
            return cls(
                tuple(Node(**{**item, "roles": tuple(item["roles"])}) for item in state["nodes"]),
                state.get("cluster_id"),
                state.get("zookeeper_connect", ""),
                ZookeeperServer(**state["zookeeper"]) if state.get("zookeeper") else None,
            )
        except FileNotFoundError:
            return cls()
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise Failure(
                f"{path} is damaged: {_what_is_wrong(error)}",
                "it only records which processes run: if none runs, remove it, and `barnabas up` with the same "
                "--dir and --brokers creates it again; the data stays",
            ) from error

    def store(self, path: Path) -> None:
        state: dict[str, Any] = {
            "version": 1,
            "cluster_id": self.cluster_id,
            "nodes": [asdict(node) for node in self.nodes],
        }
        if self.connect:
            state["zookeeper_connect"] = self.connect
        if self.zookeeper is not None:
            state["zookeeper"] = asdict(self.zookeeper)
        partial = path.with_suffix(".tmp")
        partial.write_text(json.dumps(state, indent=2) + "\n")
        partial.replace(path)


def _what_is_wrong(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"it has no {error}"
    return str(error) if isinstance(error, ValueError) else "it is not the state of a cluster"


def log_tail(server: Node | ZookeeperServer, lines: int = 15) -> str:
    """Returns the last lines that the process wrote."""
    try:
        text = server.log_path.read_text(errors="replace")
    except OSError:
        return ""
    return "\n".join(f"  | {line}" for line in text.splitlines()[-lines:])
