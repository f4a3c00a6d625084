"""`barnabas zookeeper`: one ZooKeeper server as a process. It imports little, to start quickly.

The core is in `barnabas.zookeeper`: this module gives it files, sockets, the clock, and facts about the process. It
prints `started: host:port` when clients can connect. SIGTERM and SIGINT stop it cleanly; sessions survive that.
"""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import pwd
import resource
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from typing import cast

from barnabas.common.continuations import Background, set_background
from barnabas.common.errors import ConfigError, FatalFault
from barnabas.common.host import Buffer, Disk
from barnabas.server.host import ServerHost
from barnabas.server.memory import check_regularly, prepare, settle
from barnabas.server.turns import Turns
from barnabas.zookeeper.files.file_names import VERSION_FOLDER
from barnabas.zookeeper.files.file_store import FileStore
from barnabas.zookeeper.files.txn_recovery import Folders, recover
from barnabas.zookeeper.server.connection import Address, Connection
from barnabas.zookeeper.server.ports import DirectorySizes, OpenFiles
from barnabas.zookeeper.server.zookeeper_server import ZooKeeperServer
from barnabas.zookeeper.zoo_cfg import ZooConfig

try:
    import uvloop

    _new_event_loop: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
except ImportError:  # uvloop is not available on every platform; asyncio's own loop works as well, but slower.
    _new_event_loop = asyncio.new_event_loop

log = logging.getLogger("barnabas.zookeeper")

_BACKLOG = 1024
#: The amount of unsent answers above which a connection is not served.
_WRITE_BUFFER_BYTES_MAX = 4 * 1024 * 1024
_LOCK_FILE = "barnabas.lock"
#: The longest time that a sync's thread waits for the interpreter while requests are served; a sync is shorter.
_SWITCH_S = 0.0005


def run(config: ZooConfig) -> int:
    """Serves until a signal arrives. Returns the exit code of the process."""
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="[%(asctime)s] %(levelname)s %(message)s (%(name)s)"
    )
    for warning in config.warnings:
        log.warning("%s", warning)
    loop = _new_event_loop()
    try:
        return loop.run_until_complete(_serve(config, loop))
    except (ConfigError, FatalFault) as error:
        sys.stderr.write(f"barnabas: {error}\n")
        return 1
    except OSError as error:
        sys.stderr.write(f"barnabas: {error.filename or 'the data directory'}: {error.strerror}\n")
        return 1
    finally:
        loop.close()


async def _serve(config: ZooConfig, loop: asyncio.AbstractEventLoop) -> int:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    host = ServerHost(loop)
    set_background(Background(host.faults))
    sys.setswitchinterval(_SWITCH_S)
    prepare()
    node = ZooKeeperNode(host, config)
    try:
        node.open()
        await node.listen()
        settle()
        check_regularly(loop)
        host.turns.begin_serving()
        sys.stdout.write(f"started: {config.host or 'localhost'}:{node.port}\n")
        sys.stdout.flush()
        await stop.wait()
        log.info("stopping")
        return 0
    finally:
        host.turns.end_serving()
        node.close()
        host.close()


class ZooKeeperNode:
    """A server on the files of its data directory, and its listener. `open`, `listen`, `close` follow each other."""

    def __init__(self, host: ServerHost, config: ZooConfig) -> None:
        self._host = host
        self._config = config
        self._folders = Folders(f"{config.data_dir}/{VERSION_FOLDER}", f"{config.log_dir}/{VERSION_FOLDER}")
        self._locks: list[Callable[[], None]] = []
        self._store: FileStore | None = None
        self._core: ZooKeeperServer | None = None
        self._listening: asyncio.Server | None = None

    def open(self) -> None:
        """Recovers the state of the data directory. Raises ConfigError, DamagedFiles or OSError."""
        host, config = self._host, self._config
        for folder in dict.fromkeys(self._folders):
            host.disk.make_dirs(folder)
            self._lock(folder)
        self._check_folders()
        recovered = recover(
            host.disk,
            self._folders,
            host.faults,
            extended_types=config.server.extended_types,
            trust_empty=config.trust_empty,
        )
        self._store = FileStore(host, self._folders, config.files, recovered.database)
        if recovered.needs_snapshot:
            self._store.write_snapshot_now()
        self._store.start()
        process = ProcessFacts(host.disk, self._folders)
        self._core = ZooKeeperServer(config.server, host, self._store, recovered.database, process)
        log.info(
            "%d znodes and %d sessions in %s, up to zxid 0x%x",
            len(recovered.database.tree.nodes),
            len(recovered.database.sessions),
            config.data_dir,
            recovered.database.last_zxid,
        )

    def _lock(self, folder: str) -> None:
        try:
            lock = self._host.disk.lock(f"{folder}/{_LOCK_FILE}")
        except BlockingIOError:
            raise ConfigError(f"another process serves {folder}: stop it, or choose another dataDir") from None
        self._locks.append(lock.release)

    def _check_folders(self) -> None:
        """Raises ConfigError if the two folders were swapped by mistake, as Apache's server does."""
        snapshots, logs = self._folders
        if snapshots == logs:
            return
        for folder, prefix, holds in ((logs, "snapshot.", "dataLogDir"), (snapshots, "log.", "dataDir")):
            if any(name.startswith(prefix) for name in self._host.disk.list_dir(folder)):
                raise ConfigError(f"{folder} has files {prefix}*: dataDir and dataLogDir may be swapped ({holds})")

    async def listen(self) -> None:
        """Accepts clients from now on. Raises ConfigError."""
        config, core, turns = self._config, self._core, self._host.turns
        assert core is not None, "the node is open"
        core.start()
        backlog = config.server.listen_backlog
        try:
            self._listening = await asyncio.get_running_loop().create_server(
                lambda: ClientProtocol(core, turns),
                config.host or None,
                config.port,
                backlog=backlog if backlog > 0 else _BACKLOG,
                reuse_address=True,
            )
        except OSError as error:
            raise ConfigError(f"cannot listen on {config.host or '*'}:{config.port}: {error.strerror}") from error

    @property
    def port(self) -> int:
        assert self._listening is not None, "the node listens"
        port: int = self._listening.sockets[0].getsockname()[1]
        return port

    def close(self) -> None:
        """Ends connections, syncs the log and releases the folders. Sessions stay open for the next startup."""
        if self._listening is not None:
            self._listening.close()
        if self._core is not None:
            self._core.stop()
        if self._store is not None:
            self._store.close()
        for release in self._locks:
            release()


class ClientProtocol(asyncio.BufferedProtocol):
    """A client's connection: asyncio's protocol on one side, the core's `Link` on the other."""

    __slots__ = ("_connection", "_core", "_transport", "_turns")

    def __init__(self, core: ZooKeeperServer, turns: Turns) -> None:
        self._core = core
        self._turns = turns
        self._connection: Connection | None = None
        self._transport: asyncio.Transport | None = None

    # -- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_WRITE_BUFFER_BYTES_MAX)
        sock: socket.socket | None = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        host, port = (transport.get_extra_info("peername") or ("unknown", 0))[:2]
        self._connection = self._core.accept(self, Address(host.removeprefix("::ffff:"), port))
        if self._connection is None:
            log.warning("refused the connection of %s: too many connections", host)
            self._transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._core.area if self._connection is None else self._connection.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        connection = self._connection
        if connection is None:
            return
        begin_ns = self._turns.begin()
        connection.received(nbytes)
        self._turns.end(begin_ns, self)

    def turn_name(self) -> tuple[str, str]:
        """Returns the name for `server.turns`."""
        connection = self._connection
        return "requests", "" if connection is None else f"of {connection.address}"

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        connection, self._connection = self._connection, None  # A reference cycle would exist until a full collection.
        if connection is not None:
            self._turns.run(connection.closed)

    def pause_writing(self) -> None:
        if self._connection is not None:
            self._connection.pause_writing()

    def resume_writing(self) -> None:
        if self._connection is not None:
            self._connection.resume_writing()

    # -- common.host.Link

    def write(self, chunks: Sequence[Buffer]) -> None:
        transport = self._transport
        assert transport is not None, "the connection is made"
        if len(chunks) == 1:
            transport.write(chunks[0])
        else:
            transport.writelines(chunks)

    @property
    def unsent_bytes(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def pause_reading(self) -> None:
        transport = self._transport
        if transport is not None and not transport.is_closing():
            transport.pause_reading()

    def resume_reading(self) -> None:
        transport = self._transport
        if transport is not None and not transport.is_closing():
            transport.resume_reading()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class ProcessFacts:
    """The implementation of `zookeeper.server.ports.Process` for this process."""

    def __init__(self, disk: Disk, folders: Folders) -> None:
        self._disk = disk
        self._folders = folders

    def environment(self) -> Sequence[tuple[str, str]]:
        system = os.uname()
        user = pwd.getpwuid(os.getuid())
        return (
            ("host.name", socket.gethostname()),
            ("python.version", platform.python_version()),
            ("python.implementation", platform.python_implementation()),
            ("python.executable", sys.executable),
            ("os.name", system.sysname),
            ("os.arch", system.machine),
            ("os.version", system.release),
            ("user.name", user.pw_name),
            ("user.home", user.pw_dir),
            ("user.dir", os.getcwd()),
        )

    def directory_sizes(self) -> DirectorySizes:
        return DirectorySizes(self._size_of(self._folders.snapshots), self._size_of(self._folders.logs))

    def _size_of(self, folder: str) -> int:
        size = 0
        for name in self._disk.list_dir(folder):
            try:
                size += self._disk.size(f"{folder}/{name}")
            except FileNotFoundError:
                continue  # The file was purged in the meantime.
        return size

    def open_files(self) -> OpenFiles:
        return OpenFiles(len(os.listdir("/proc/self/fd")), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
