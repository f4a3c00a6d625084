"""Ports of the server core, in addition to those of `common/host.py`: the log, and facts about the process.

    host                          core (`zookeeper.server.zookeeper_server.ZooKeeperServer`)
    Database, recovered      ->   the constructor; the core changes it only by `Database.apply`
    accept(link, address)    ->   a `zookeeper.server.connection.Connection`, or None: the host closes the socket
    get_buffer(), received() ->   the connection reads, answers with `Link.write`, and ends with `Link.close` or `abort`
    start(), stop()          ->   the sessions' ticks begin and end

The core appends each transaction, synced in groups; nothing is applied, sent to watchers or answered before the sync.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from barnabas.zookeeper.txns import TxnEntry


class TransactionLog(Protocol):
    """The log of transactions. An error ends the process (`FaultHandler.fatal`), after which its content is unknown."""

    def append(self, entry: TxnEntry) -> None:
        """Appends a transaction; zxids rise by one. It can be buffered until `sync`."""

    def sync(self, done: Callable[[], None]) -> None:
        """Calls `done` when all entries appended before this call are durable: from the loop, or within this call.
        There is one `sync` at a time.
        """

    def applied(self, entry: TxnEntry) -> None:
        """Reports that the entry has been applied to the database, so that the log can start a snapshot if one is
        due.
        """


class DirectorySizes(NamedTuple):
    """The bytes of all files below the data directory (snapshots) and below the directory of the log."""

    data: int
    log: int


class OpenFiles(NamedTuple):
    """The open descriptors of this process, and how many it can have."""

    opened: int
    limit: int


class Process(Protocol):
    """Facts about this process for the four-letter words."""

    def environment(self) -> Sequence[tuple[str, str]]:
        """Returns the rows of `envi` after `zookeeper.version`, in their order, like ("host.name", "localhost")."""

    def directory_sizes(self) -> DirectorySizes: ...

    def open_files(self) -> OpenFiles: ...
