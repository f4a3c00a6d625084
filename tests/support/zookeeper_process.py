"""Our ZooKeeper server as a process, and a client's checks of a server, which are the same for ours and for
Apache's.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient

from kafka_jars import free_ports
from zookeeper_jars import is_serving

#: The settings that client tests of other projects expect of a server: all words, and TTL nodes.
OPEN_SETTINGS = {"4lw.commands.whitelist": "*", "extendedTypesEnabled": "true"}


class OurZooKeeper:
    """A process of `barnabas zookeeper`, with its files below `directory`. `properties` are keys of zoo.cfg."""

    def __init__(self, directory: Path, *, port: int = 0, properties: Mapping[str, str] | None = None) -> None:
        self.directory = directory.absolute()
        self.port = port or free_ports(1)[0]
        self.process: subprocess.Popen[bytes] | None = None
        self.log_path = self.directory / "zookeeper.log"
        self.properties = {
            "dataDir": str(self.directory / "data"),
            "clientPort": str(self.port),
            "clientPortAddress": "127.0.0.1",
            "preAllocSize": "64",
            **OPEN_SETTINGS,
            **(properties or {}),
        }

    @property
    def data(self) -> Path:
        """Returns the folder of logs and snapshots."""
        return Path(self.properties["dataDir"]) / "version-2"

    @property
    def log(self) -> str:
        return self.log_path.read_text()

    def launch(self) -> subprocess.Popen[bytes]:
        """Starts the process and returns immediately."""
        self.directory.mkdir(parents=True, exist_ok=True)
        config = self.directory / "zoo.cfg"
        config.write_text("".join(f"{key}={value}\n" for key, value in self.properties.items()))
        command = [sys.executable, "-m", "barnabas.cli.entry", "zookeeper", str(config)]
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        return self.process

    def start(self, timeout_s: float = 20.0) -> OurZooKeeper:
        process = self.launch()
        deadline = time.monotonic() + timeout_s
        while not is_serving(self.port):
            if process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"the server does not serve:\n{self.log[-4000:]}")
            time.sleep(0.02)
        return self

    def stop(self) -> int:
        """Ends the process with SIGTERM. Returns its exit code."""
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(20)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def __enter__(self) -> OurZooKeeper:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.kill()


@contextmanager
def client_of(port: int, **options: Any) -> Iterator[KazooClient]:
    """Yields a connected client. Its session ends with it."""
    client = KazooClient(f"127.0.0.1:{port}", **options)
    client.start(timeout=15)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def tree_of(client: KazooClient, path: str = "/") -> dict[str, tuple[bytes, tuple[Any, ...], tuple[Any, ...]]]:
    """Returns data, Stat and ACL of each node, except those of /zookeeper, which each release fills in its own way."""
    found = {}
    waiting = [path]
    while waiting:
        path = waiting.pop()
        data, stat = client.get(path)
        found[path] = (data, tuple(stat), tuple(client.get_acls(path)[0]))
        prefix = "" if path == "/" else path
        waiting += [f"{prefix}/{name}" for name in client.get_children(path) if f"{prefix}/{name}" != "/zookeeper"]
    return found
