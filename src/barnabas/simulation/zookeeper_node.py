"""A ZooKeeper server on a simulated machine: the core and the files of `barnabas zookeeper`, on the machine's ports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from barnabas.common.errors import ConfigError, FatalFault, StorageFault
from barnabas.simulation.network import Listening, Network, Socket
from barnabas.simulation.program import Program
from barnabas.simulation.world import Process, ProcessExit, World
from barnabas.znodes import paths
from barnabas.zookeeper.files.file_names import VERSION_FOLDER
from barnabas.zookeeper.files.file_store import FileStore
from barnabas.zookeeper.files.txn_recovery import DamagedFiles, Folders, recover
from barnabas.zookeeper.server.connection import Address, Connection
from barnabas.zookeeper.server.ports import DirectorySizes, OpenFiles
from barnabas.zookeeper.server.zookeeper_server import ZooKeeperServer
from barnabas.zookeeper.tree.database import Database
from barnabas.zookeeper.txns import TxnEntry
from barnabas.zookeeper.zoo_cfg import load_zoo_cfg

PORT: Final = 2181
_DATA_DIR: Final = "/zookeeper"
_FOLDER: Final = f"{_DATA_DIR}/{VERSION_FOLDER}"
#: Keys of zoo.cfg: files that are not made long before they are written, which costs a simulated disk memory.
_SETTINGS: Final = {"clientPort": str(PORT), "preAllocSize": "64"}


class AcceptedClient:
    """An accepted connection: the network's end on one side, the server's connection core on the other."""

    __slots__ = ("_connection", "_owners", "_socket")

    def __init__(self, server: ZooKeeperServer, socket: Socket, owners: dict[int, Process]) -> None:
        """Creates the connection; `owners` get the client's process by its session."""
        self._socket = socket
        self._owners = owners
        self._connection: Connection | None = server.accept(socket, Address(*socket.remote))
        if self._connection is None:
            socket.abort()

    def connected(self) -> None: ...

    def received(self, data: bytes) -> None:
        connection, socket = self._connection, self._socket
        view = memoryview(data)
        while connection is not None and len(view) and not socket.is_closed:
            area = connection.get_buffer()
            count = min(len(area), len(view))
            area[:count] = view[:count]
            connection.received(count)
            view = view[count:]
        if connection is not None and connection.session_id and socket.out is not None:
            self._owners[connection.session_id] = socket.out.target.process

    def ended(self) -> None:
        self._socket.close()
        self.closed(None)

    def closed(self, error: OSError | None) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.closed()

    def pause_writing(self) -> None:
        if self._connection is not None:
            self._connection.pause_writing()

    def resume_writing(self) -> None:
        if self._connection is not None:
            self._connection.resume_writing()


class TransactionObserver(Protocol):
    """An observer of the transactions of a server, outside its process."""

    def recovered(self, database: Database) -> None:
        """Handles a start: the database was read from the files."""

    def appended(self, entry: TxnEntry) -> None:
        """Handles an appended entry of the log, synced or not."""

    def applied(self, entry: TxnEntry, database: Database) -> None:
        """Handles an applied entry: the database contains it, and its answer leaves after this call."""


class ObservedLog:
    """The `TransactionLog` of a server with observers."""

    def __init__(self, store: FileStore, database: Database, observers: Sequence[TransactionObserver]) -> None:
        self._store = store
        self._database = database
        self._observers = observers

    def append(self, entry: TxnEntry) -> None:
        for observer in self._observers:
            observer.appended(entry)
        self._store.append(entry)

    def sync(self, done: Callable[[], None]) -> None:
        self._store.sync(done)

    def applied(self, entry: TxnEntry) -> None:
        for observer in self._observers:
            observer.applied(entry, self._database)
        self._store.applied(entry)


class NoFacts:
    """Placeholders for facts about the process, which no simulated client requests."""

    def environment(self) -> Sequence[tuple[str, str]]:
        return ()

    def directory_sizes(self) -> DirectorySizes:
        return DirectorySizes(0, 0)

    def open_files(self) -> OpenFiles:
        return OpenFiles(0, 0)


class ZookeeperNode(Program):
    """The ZooKeeper server of a simulated cluster. `settings` are keys of zoo.cfg."""

    def __init__(
        self,
        world: World,
        network: Network,
        name: str,
        *,
        settings: dict[str, str] | None = None,
        on_exit: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(world, network, name, on_exit=on_exit)
        self.settings = dict(settings or {})
        self.server: ZooKeeperServer | None = None
        self.observers: list[TransactionObserver] = []
        #: The process of each session's client.
        self._owners: dict[int, Process] = {}
        self._store: FileStore | None = None
        self._listening: Listening | None = None

    def _forget(self) -> None:
        self.server = self._store = self._listening = None

    def _main(self) -> None:
        process = self.machine.process
        assert process is not None
        self.host = host = self.machine.host_for(process)
        folders = Folders(_FOLDER, _FOLDER)
        try:
            config = load_zoo_cfg("", {**_SETTINGS, **self.settings}, _DATA_DIR)
            host.disk.make_dirs(_FOLDER)
            recovered = recover(
                host.disk,
                folders,
                host.faults,
                extended_types=config.server.extended_types,
                trust_empty=config.trust_empty,
            )
        except (ConfigError, DamagedFiles, FatalFault, StorageFault, OSError) as error:
            raise ProcessExit(f"did not start: {error}") from error
        self._store = FileStore(host, folders, config.files, recovered.database)
        if recovered.needs_snapshot:
            self._store.write_snapshot_now()
        self._store.start()
        for observer in self.observers:
            observer.recovered(recovered.database)
        log = ObservedLog(self._store, recovered.database, self.observers)
        server = self.server = ZooKeeperServer(config.server, host, log, recovered.database, NoFacts())
        server.start()
        self._listening = self.network.listen(
            process, (self.machine.address, PORT), lambda socket: AcceptedClient(server, socket, self._owners)
        )

    def session_of(self, broker: str) -> int:
        """Returns the session that a broker has registered in; 0 if there is none, or while the server does not run."""
        path = paths.broker(int(broker.removeprefix("broker")))
        node = None if self.server is None else self.server.database.tree.nodes.get(path)
        return 0 if node is None else node.owner

    def process_of(self, session_id: int) -> Process | None:
        """Returns the process that opened a session or continued it, dead or alive; None if there is no such
        session.
        """
        return self._owners.get(session_id)

    def end_session(self, session_id: int) -> None:
        """Ends a session as if its timeout had passed; does nothing while the server does not run."""
        process, server = self.machine.process, self.server
        if process is not None and server is not None:
            process.enter(lambda: server.end_session(session_id))

    def _stop(self) -> None:
        """Ends connections and syncs the log; sessions stay open for the next start."""
        if self._listening is not None:
            self._listening.close()
        if self.server is not None:
            self.server.stop()
        if self._store is not None:
            self._store.close()
        raise ProcessExit("stopped cleanly")
