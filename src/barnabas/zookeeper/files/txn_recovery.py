"""Recovery: the newest valid snapshot, and the transactions of the log after it.

| found                                          | done                                                              |
|------------------------------------------------|-------------------------------------------------------------------|
| no file                                        | an empty tree                                                     |
| a log without a snapshot                       | refused, unless `snapshot.trust.empty`: what was before is lost   |
| a damaged snapshot                             | reported; the one before it, with more of the log                 |
| only damaged snapshots                         | refused                                                           |
| the newest snapshot is compressed              | refused: it must be unpacked                                      |
| a damaged entry in the last log                | cut there and reported; the bytes are kept in a file `cut-...`    |
| a damaged entry in a log before                | ends that log if the next one continues there, as after a crash   |
| transactions missing between two logs          | refused                                                           |
| a digest that is not that of the tree          | reported                                                          |

The checks read only; files are changed at the end (`_Replay.cut`), when it is clear that the server can start.

What is found is synced before clients can read it (`_Replay.sync`): a process that was killed can have written more
than it had synced. If that were lost later, when later transactions are in the next file, the server could not start.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from barnabas.common.errors import DecodeError, FatalFault
from barnabas.common.host import Disk, FaultHandler
from barnabas.zookeeper.files.file_names import (
    CUT_PREFIX,
    LOG_PREFIX,
    PARTIAL_PREFIX,
    SNAPSHOT_PREFIX,
    DataFile,
    data_files,
    logs_from,
)
from barnabas.zookeeper.files.log_frames import LOG_HEADER_BYTES, LogFrames, log_header_problem
from barnabas.zookeeper.files.snapshot_format import DIGEST_VERSION, SnapshotDigest, decode_snapshot
from barnabas.zookeeper.files.txn_entries import decode_entry
from barnabas.zookeeper.tree.data_tree import DataTree
from barnabas.zookeeper.tree.database import Database
from barnabas.zookeeper.txns import TxnDigest

_COMPRESSED: Final = (".gz", ".snappy")
#: The counter of a zxid; the bits above are the epoch of the leader that assigned it.
_COUNTER_BITS: Final = 32


class Folders(NamedTuple):
    """The folders of the files: `version-2` below `dataDir` for snapshots, and below `dataLogDir` for logs; often the
    same.
    """

    snapshots: str
    logs: str


class Recovered(NamedTuple):
    """The state of the files. `needs_snapshot` is True if there is no snapshot, or if the newest one is damaged: a
    snapshot must be written before serving.
    """

    database: Database
    needs_snapshot: bool
    #: The number of transactions that were read from the log.
    replayed: int


class DamagedFiles(FatalFault):
    """The error for files from which no state can be recovered; the text says what to do."""


class _Cut(NamedTuple):
    path: str
    offset: int
    reason: str


class _Newest(NamedTuple):
    """The state of the newest valid snapshot, and whether newer ones are damaged."""

    database: Database
    digest: SnapshotDigest | None
    is_older: bool


def recover(
    disk: Disk, folders: Folders, faults: FaultHandler, *, extended_types: bool = False, trust_empty: bool = False
) -> Recovered:
    """Recovers the state, cuts a damaged tail of the log, and syncs the rest. Raises DamagedFiles or OSError."""
    replay, is_damaged = _replayed(disk, folders, faults, extended_types, trust_empty)
    replay.cut()
    replay.sync()
    for folder in folders:
        _remove_partial_files(disk, folder)
    replay.database.end_dead_sessions()
    return Recovered(replay.database, is_damaged, replay.count)


def read_state(disk: Disk, folders: Folders, faults: FaultHandler) -> Database:
    """Returns the state of a stopped server, and changes no file. Raises DamagedFiles or OSError."""
    return _replayed(disk, folders, faults, extended_types=False, trust_empty=False)[0].database


def _replayed(
    disk: Disk, folders: Folders, faults: FaultHandler, extended_types: bool, trust_empty: bool
) -> tuple[_Replay, bool]:
    """Returns the state after the last transaction, and whether the newest snapshot is missing or damaged."""
    snapshots = data_files(disk, folders.snapshots, SNAPSHOT_PREFIX)
    logs = data_files(disk, folders.logs, LOG_PREFIX)
    newest = _newest_state(disk, folders, snapshots, faults, extended_types)
    if newest is None:
        if logs and _has_entries(disk, logs) and not trust_empty:
            raise DamagedFiles(
                f"{folders.logs} has logs but {folders.snapshots} no snapshot, so older transactions are missing: "
                "restore a snapshot, or start with snapshot.trust.empty=true if the logs are complete"
            )
        replay = _Replay(disk, faults, Database(DataTree(extended_types)), None)
    else:
        replay = _Replay(disk, faults, newest.database, newest.digest)
    replay.run(logs)
    return replay, newest is None or newest.is_older


def _newest_state(
    disk: Disk, folders: Folders, snapshots: Sequence[DataFile], faults: FaultHandler, extended_types: bool
) -> _Newest | None:
    """Returns the state of the newest valid snapshot, or None if there is no snapshot. Raises DamagedFiles."""
    damaged: list[str] = []
    for snapshot in reversed(snapshots):
        if snapshot.name.endswith(_COMPRESSED):
            method = snapshot.name.rpartition(".")[2]
            unpack = "unpack it with gunzip" if method == "gz" else "let Apache's server write one without compression"
            raise DamagedFiles(
                f"{snapshot.path} is compressed (snapshot.compression.method={method}), and only uncompressed "
                f"snapshots are read: {unpack}"
            )
        try:
            content = decode_snapshot(disk.read(snapshot.path), snapshot.zxid)
            tree = DataTree.restored(content.nodes, extended_types)
        except (DecodeError, ValueError) as error:
            damaged.append(f"{snapshot.name}: {error}")
            faults.warn(f"{snapshot.path} is damaged and not used: {error}; the snapshot before it is tried")
            continue
        return _Newest(Database(tree, content.sessions, snapshot.zxid), content.digest, bool(damaged))
    if damaged:
        raise DamagedFiles(
            f"no snapshot in {folders.snapshots} can be read ({'; '.join(damaged)}): restore one from a backup, or "
            "move the folder away to start with an empty tree"
        )
    return None


def _has_entries(disk: Disk, logs: Sequence[DataFile]) -> bool:
    for log in logs:
        file = disk.open(log.path, read_only=True)
        try:
            if log_header_problem(file) is None and next(iter(LogFrames(file)), None) is not None:
                return True
        finally:
            file.close()
    return False


class _Replay:
    """Applies the log to the state of a snapshot."""

    def __init__(self, disk: Disk, faults: FaultHandler, database: Database, digest: SnapshotDigest | None) -> None:
        self._disk = disk
        self._faults = faults
        self.database = database
        #: The digest in the snapshot, until the transaction to which it belongs is applied. Before that the tree cannot
        #: be compared: a snapshot is written while the tree changes.
        self._snapshot_digest = digest
        self._mismatch_is_reported = False
        self._cuts: list[_Cut] = []
        #: The logs that were read.
        self._paths: list[str] = []
        self.count = 0

    def run(self, logs: Sequence[DataFile]) -> None:
        """Applies all transactions after the snapshot. Raises DamagedFiles if some are missing."""
        self._compare_with_snapshot()
        following = logs_from(list(logs), self.database.last_zxid)
        for log in following:
            self._check_continues(log)
            self._replay_file(log)
            self._paths.append(log.path)
        if self._snapshot_digest is not None and self.count:
            self._faults.warn(
                f"the log ends at zxid 0x{self.database.last_zxid:x}, before 0x{self._snapshot_digest.zxid:x}, up to "
                "which the snapshot has changes: transactions at the end of the log are missing"
            )

    def _check_continues(self, log: DataFile) -> None:
        last = self.database.last_zxid
        if _is_gap(last, log.zxid):
            raise DamagedFiles(
                f"transactions 0x{last + 1:x} to 0x{log.zxid - 1:x} are missing before {log.path}: restore the log "
                "that has them, or a later snapshot, or move this log and the later ones away to start without them"
            )

    def _replay_file(self, log: DataFile) -> None:
        file = self._disk.open(log.path, read_only=True)
        try:
            problem = log_header_problem(file)
            if problem is not None:
                if len(head := file.read_at(0, LOG_HEADER_BYTES)) == LOG_HEADER_BYTES and any(head):
                    raise DamagedFiles(f"{log.path} is not a transaction log: {problem}; restore it, or move it away")
                self._cuts.append(_Cut(log.path, 0, problem))
                return
            frames = LogFrames(file)
            for offset, data in frames:
                try:
                    self._replay_entry(log.path, data)
                except DecodeError as error:
                    raise DamagedFiles(
                        f"{log.path} has an entry at {offset} that cannot be read although its checksum matches "
                        f"({error}): start the release of ZooKeeper that wrote it, or restore the file from a backup"
                    ) from error
            if frames.damage is not None:
                self._cuts.append(_Cut(log.path, frames.end, frames.damage))
        finally:
            file.close()

    def _replay_entry(self, path: str, data: bytes) -> None:
        entry = decode_entry(data)
        zxid, database = entry.header.zxid, self.database
        if zxid <= database.last_zxid:
            return
        if _is_gap(database.last_zxid, zxid):
            raise DamagedFiles(
                f"transactions 0x{database.last_zxid + 1:x} to 0x{zxid - 1:x} are missing in {path}: restore the file "
                "from a backup"
            )
        database.apply(entry.header, entry.txn)
        self.count += 1
        if self._snapshot_digest is not None:
            self._compare_with_snapshot()
        elif entry.digest is not None and entry.digest.version == DIGEST_VERSION:
            self._compare(entry.digest)

    def _compare_with_snapshot(self) -> None:
        expected, zxid = self._snapshot_digest, self.database.last_zxid
        if expected is None or zxid < expected.zxid:
            return
        self._snapshot_digest = None
        if zxid == expected.zxid and expected.version == DIGEST_VERSION:
            self._compare(TxnDigest(expected.version, expected.digest))

    def _compare(self, expected: TxnDigest) -> None:
        if expected.tree_digest != self.database.tree.digest and not self._mismatch_is_reported:
            self._mismatch_is_reported = True
            self._faults.warn(
                f"the tree differs from the one that its writer had after zxid 0x{self.database.last_zxid:x}: its "
                f"digest is {self.database.tree.digest:x}, {expected.tree_digest:x} was stored"
            )

    def cut(self) -> None:
        """Cuts damaged entries off the logs, and keeps them in separate files. Raises OSError."""
        for path, offset, reason in self._cuts:
            _cut(self._disk, path, offset, reason, self._faults.warn)

    def sync(self) -> None:
        """Syncs the logs that were read, and their names. Raises OSError."""
        disk = self._disk
        paths = [path for path in self._paths if disk.exists(path)]
        for path in paths:
            file = disk.open(path, read_only=True)
            try:
                file.sync()
            finally:
                file.close()
        for folder in dict.fromkeys(path.rpartition("/")[0] for path in paths):
            disk.sync_dir(folder)


def _remove_partial_files(disk: Disk, folder: str) -> None:
    """Removes partial snapshots, whose writing was interrupted when the server stopped."""
    for name in disk.list_dir(folder) if disk.is_dir(folder) else ():
        if name.startswith(PARTIAL_PREFIX):
            disk.remove(f"{folder}/{name}")


def _is_gap(last: int, zxid: int) -> bool:
    """Returns whether transactions are missing between two zxids. A new epoch begins at any counter."""
    return zxid > last + 1 and zxid >> _COUNTER_BITS == last >> _COUNTER_BITS


def _cut(disk: Disk, path: str, offset: int, reason: str, warn: Callable[[str], None]) -> None:
    folder, _, name = path.rpartition("/")
    file = disk.open(path)
    try:
        tail = file.read_at(offset, file.size() - offset).rstrip(b"\0")
        kept = f"{folder}/{CUT_PREFIX}{name}-at-{offset}"
        if tail:
            disk.write(kept, tail, sync=True)
        file.truncate(offset)
        file.sync()
    finally:
        file.close()
    if offset == 0:
        disk.remove(path)
    disk.sync_dir(folder)
    where = f"the {len(tail)} bytes after it are kept in {kept}" if tail else "only zeros followed"
    warn(f"{path} is cut at {offset}, after its last good entry: {reason}; {where}")
