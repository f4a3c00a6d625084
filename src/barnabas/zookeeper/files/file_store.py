"""The files of a running server: the log that it appends to, synced in groups, and the snapshots that it takes.

    append, sync     an entry is buffered; a sync writes and syncs all buffered ones, on a thread
    applied          counts; after about `snapCount` transactions, at random, the log is rolled and a snapshot begins
    purge            every `autopurge.purgeInterval`: all but the newest snapshots, and logs that none of them needs

The store is the `zookeeper.server.ports.TransactionLog` of the core. An error of a sync ends the process: the content
on disk is then unknown. A snapshot that fails is reported, and the next one is tried later: the log has everything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from barnabas.common.host import Host, Timer
from barnabas.zookeeper.files.purge import purge
from barnabas.zookeeper.files.snapshot_writer import SnapshotWriter
from barnabas.zookeeper.files.txn_entries import encode_entry
from barnabas.zookeeper.files.txn_log import LogWriter
from barnabas.zookeeper.files.txn_recovery import Folders
from barnabas.zookeeper.tree.database import Database
from barnabas.zookeeper.txns import TxnEntry

_HOUR_MS = 3_600_000


class FileSettings(NamedTuple):
    """The settings of the files, with the defaults of ZooKeeper 3.8.4."""

    #: `preAllocSize`
    preallocated_bytes: int = 65_536 * 1024
    #: `snapCount`
    snapshot_after_txns: int = 100_000
    #: `snapSizeLimitInKb`; 0 means no limit.
    snapshot_after_bytes: int = 4_194_304 * 1024
    #: `forceSync`: False leaves syncing to the system, and loses acknowledged transactions when it crashes.
    force_sync: bool = True
    #: `autopurge.snapRetainCount`
    snapshots_retained: int = 3
    #: `autopurge.purgeInterval`; 0 means never.
    purge_interval_hours: int = 0


class FileStore:
    """Writes the files of one server. `on_snapshot` is called with the zxid of each snapshot that is complete."""

    __slots__ = (
        "_bytes",
        "_count",
        "_database",
        "_done",
        "_folders",
        "_host",
        "_is_closed",
        "_limit",
        "_purge_timer",
        "_settings",
        "_snapshot",
        "_writer",
    )

    def __init__(self, host: Host, folders: Folders, settings: FileSettings, database: Database) -> None:
        self._host = host
        self._folders = folders
        self._settings = settings
        self._database = database
        self._writer = LogWriter(host.disk, folders.logs, settings.preallocated_bytes)
        self._done: Callable[[], None] | None = None
        self._snapshot: SnapshotWriter | None = None
        self._count = self._bytes = 0
        self._limit = self._next_limit()
        self._purge_timer: Timer | None = None
        self._is_closed = False

    def start(self) -> None:
        """Begins the periodic purges, if they are configured. The first one follows immediately, as in Apache's
        server.
        """
        if self._settings.purge_interval_hours > 0:
            self._purge_timer = self._host.timers.call_later(0, self._purge)

    def close(self) -> None:
        """Writes and syncs buffered entries, and closes the log. A snapshot that is being written is discarded."""
        self._is_closed = True
        if self._purge_timer is not None:
            self._purge_timer.cancel()
        if self._snapshot is not None:
            self._snapshot.drop()
            self._snapshot = None
        try:
            self._writer.write_out()
            self._writer.sync_work()()
        except OSError as error:
            self._host.faults.report("the last transactions of the log are not synced", error)
        self._writer.close()

    # -- server.ports.TransactionLog

    def append(self, entry: TxnEntry) -> None:
        data = encode_entry(entry)
        self._bytes += len(data)
        try:
            self._writer.append(entry.header.zxid, data)
        except OSError as error:
            self._fatal(error)

    def sync(self, done: Callable[[], None]) -> None:
        assert self._done is None, "one sync at a time"
        try:
            self._writer.write_out()
        except OSError as error:
            self._fatal(error)
            return
        if not self._settings.force_sync:
            self._writer.close_rolled()
            done()
            return
        self._done = done
        self._host.blocking.run(self._writer.sync_work(), self._synced)

    def _synced(self, _: None, error: BaseException | None) -> None:
        if error is not None:
            self._fatal(error)
            return
        if self._is_closed:
            return
        done, self._done = self._done, None
        assert done is not None, "a sync was begun"
        self._writer.synced()
        done()

    def _fatal(self, error: BaseException) -> None:
        self._host.faults.fatal(f"the transaction log in {self._folders.logs} cannot be written: {error}", error)

    def applied(self, entry: TxnEntry) -> None:
        self._count += 1
        limit = self._settings.snapshot_after_bytes
        if self._snapshot is None and (self._count > self._limit or 0 < limit < self._bytes):
            self.take_snapshot()

    # -- snapshots

    def take_snapshot(self) -> None:
        """Ends the log file and begins a snapshot of the state, which is written in steps between other work."""
        self._count = self._bytes = 0
        self._limit = self._next_limit()
        try:
            self._writer.roll()
        except OSError as error:
            self._fatal(error)
            return
        self._snapshot = SnapshotWriter(self._host, self._folders.snapshots, self._database, self._ended)
        self._snapshot.start()

    def write_snapshot_now(self) -> None:
        """Writes a snapshot of the state and returns when it is complete; for startup. Raises OSError."""
        SnapshotWriter(self._host, self._folders.snapshots, self._database, self._ended).write_all()

    def _ended(self, error: BaseException | None) -> None:
        self._snapshot = None
        if error is not None:
            self._host.faults.report(
                f"no snapshot was written to {self._folders.snapshots}; the log has everything", error
            )

    def _next_limit(self) -> int:
        """Returns the number of transactions before the next snapshot; random, so that servers do not write theirs at
        the same time.
        """
        half = max(self._settings.snapshot_after_txns // 2, 1)
        return half + self._host.random.below(half)

    # -- purge

    def _purge(self) -> None:
        host, retained = self._host, self._settings.snapshots_retained

        def purged(removed: list[str] | None, error: BaseException | None) -> None:
            if error is not None:
                host.faults.report("old snapshots and logs cannot be purged", error)
            elif removed:
                host.faults.inform(f"purged {len(removed)} old files: {', '.join(removed)}")

        host.blocking.run(lambda: purge(host.disk, self._folders, retained), purged)
        delay_ms = self._settings.purge_interval_hours * _HOUR_MS
        self._purge_timer = host.timers.call_later(delay_ms, self._purge)
