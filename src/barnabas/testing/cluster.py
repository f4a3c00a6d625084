"""`Cluster`: the embedded cluster of `barnabas up` as an object, with what tests need: restart, crash, clean end."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from barnabas.cli.embedded import EmbeddedCluster, Node, log_tail


class Cluster:
    """One broker (several come with replication). Not started until `start` or `with`.

    `directory`: where its files live; a temporary one, removed on `close`, when left out.
    `properties`: broker properties by Kafka's names, such as {"log.segment.bytes": "1048576"}.
    """

    def __init__(self, directory: Path | str | None = None, *, properties: Mapping[str, str] | None = None) -> None:
        self._temporary = directory is None
        self.directory = Path(directory if directory is not None else tempfile.mkdtemp(prefix="barnabas-"))
        self._properties = dict(properties or {})
        self._embedded = EmbeddedCluster(self.directory)
        self._node: Node | None = None

    @property
    def bootstrap(self) -> str:
        """ "127.0.0.1:PORT", for a client's `bootstrap.servers`. The same after a restart."""
        return self._started.bootstrap

    @property
    def pid(self) -> int:
        return self._started.pid

    @property
    def data_directory(self) -> Path:
        """The broker's log directory (`log.dirs`)."""
        return Path(self._started.directory) / "data"

    @property
    def log(self) -> str:
        """The last lines the broker wrote to stdout and stderr."""
        return log_tail(self._started, lines=100)

    @property
    def running(self) -> bool:
        return self._node is not None and self._node.running

    def start(self) -> Cluster:
        """Return when clients can use it. Raises `barnabas.cli.failures.Failure` with the broker's log otherwise."""
        self._node = self._embedded.start(properties=self._properties)[0]
        return self

    def stop(self) -> None:
        """An orderly stop (SIGTERM); data stays."""
        self._embedded.stop()

    def kill(self) -> None:
        """A crash (SIGKILL); data stays as the broker left it."""
        self._embedded.kill()

    def restart(self) -> Cluster:
        """Stop in order if it runs, then start on the same data and the same port."""
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
    def _started(self) -> Node:
        if self._node is None:
            raise RuntimeError("the cluster has not been started")
        return self._node
