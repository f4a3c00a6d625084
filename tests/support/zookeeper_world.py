"""A ZooKeeper server in memory, on virtual time, with clients of a few lines: no socket, no file, no thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tests.support.zookeeper_client import WireClient

from barnabas.simulation.host import MemoryHost, MemoryLink
from barnabas.zookeeper.server.connection import Address, Connection
from barnabas.zookeeper.server.ports import DirectorySizes, OpenFiles
from barnabas.zookeeper.server.server_settings import ServerSettings
from barnabas.zookeeper.server.zookeeper_server import ZooKeeperServer
from barnabas.zookeeper.tree.data_tree import DataTree
from barnabas.zookeeper.tree.database import Database
from barnabas.zookeeper.txns import TxnEntry


class MemoryLog:
    """A `TransactionLog` that keeps entries. With `holds_syncs` a sync is done by `finish_sync`."""

    def __init__(self) -> None:
        self.entries: list[TxnEntry] = []
        self.synced = 0
        self.holds_syncs = False
        self._waiting: tuple[int, Callable[[], None]] | None = None

    def append(self, entry: TxnEntry) -> None:
        if self.entries:
            assert entry.header.zxid == self.entries[-1].header.zxid + 1
        self.entries.append(entry)

    def sync(self, done: Callable[[], None]) -> None:
        assert self._waiting is None, "two syncs at a time"
        self._waiting = (len(self.entries), done)
        if not self.holds_syncs:
            self.finish_sync()

    def finish_sync(self) -> None:
        assert self._waiting is not None
        (self.synced, done), self._waiting = self._waiting, None
        done()

    def applied(self, entry: TxnEntry) -> None:
        index = entry.header.zxid - self.entries[0].header.zxid
        assert index < self.synced, "applied before its sync"


class FixedProcess:
    """A `Process` whose facts never change."""

    def environment(self) -> Sequence[tuple[str, str]]:
        return [("host.name", "example"), ("user.dir", "/data")]

    def directory_sizes(self) -> DirectorySizes:
        return DirectorySizes(100, 200)

    def open_files(self) -> OpenFiles:
        return OpenFiles(5, 1024)


class World:
    """A server that is running, and that can be restarted from its log."""

    def __init__(self, settings: ServerSettings | None = None, **changes: Any) -> None:
        self.settings = settings or ServerSettings(tick_ms=1000, **changes)
        self.host = MemoryHost()
        self.log = MemoryLog()
        self._start(Database(DataTree(self.settings.extended_types)))

    def _start(self, database: Database) -> None:
        self.server = ZooKeeperServer(self.settings, self.host, self.log, database, FixedProcess())
        self.server.start()

    def restart(self, *, lose_unsynced: bool = False) -> None:
        """Stops the server and starts the next one from its log."""
        self.server.stop()
        if lose_unsynced:
            del self.log.entries[self.log.synced :]
        entries, self.log = self.log.entries, MemoryLog()
        self.log.entries, self.log.synced = entries, len(entries)
        database = Database(DataTree(self.settings.extended_types))
        for entry in entries:
            database.apply(entry.header, entry.txn)
        database.end_dead_sessions()
        self._start(database)

    def run_for(self, duration_ms: int) -> None:
        self.host.time.run_for(duration_ms)

    def client(self, host: str = "127.0.0.1") -> Client:
        """Returns a client without a session."""
        return Client(self, host)

    def session(self, timeout_ms: int = 10_000) -> Client:
        """Returns a client with a new session."""
        client = self.client()
        client.connect(timeout_ms)
        assert client.session_id
        return client


class Client(WireClient):
    """A client in memory. Requests are answered before their method returns, unless the log holds its syncs."""

    def __init__(self, world: World, host: str = "127.0.0.1") -> None:
        super().__init__()
        self.world = world
        self.link = MemoryLink()
        connection = world.server.accept(self.link, Address(host, 50_000))
        assert connection is not None
        self.core: Connection = connection

    def send(self, data: bytes) -> None:
        """Sends bytes, in pieces of the server's receive area."""
        for begin in range(0, len(data), 100_000):
            piece = data[begin : begin + 100_000]
            self.core.get_buffer()[: len(piece)] = piece
            self.core.received(len(piece))
        self.world.run_for(0)

    def receive(self, *, waits: bool) -> bytes:
        return self.link.take()
