"""Data directories of ZooKeeper in memory: one recorded from Apache's server, and ones made here."""

from __future__ import annotations

import tarfile
from pathlib import Path

from barnabas.simulation.disk import MemoryDisk
from barnabas.simulation.host import MemoryHost
from barnabas.zookeeper.files.file_names import LOG_PREFIX, SNAPSHOT_PREFIX, data_files
from barnabas.zookeeper.files.file_store import FileSettings, FileStore
from barnabas.zookeeper.files.txn_recovery import Folders, Recovered, recover
from barnabas.zookeeper.tree.database import Database
from barnabas.zookeeper.txns import (
    CreateSessionTxn,
    CreateTxn,
    DeleteTxn,
    SetDataTxn,
    SingleTxn,
    TxnDigest,
    TxnEntry,
    TxnHeader,
)
from barnabas.zookeeper.wire.codes import OpCode
from barnabas.zookeeper.wire.records import OPEN_ACL

RECORDED = Path(__file__).resolve().parents[1] / "data" / "zookeeper" / "apache-3.8.4.tar.gz"
FOLDER = "/zk/version-2"
FOLDERS = Folders(FOLDER, FOLDER)
#: Files stay small, and each turn of the loop counts.
SMALL = FileSettings(preallocated_bytes=4096, snapshot_after_txns=1_000_000)
SESSION = 0x1000


def recorded_files() -> dict[str, bytes]:
    """Returns the files of the recorded `version-2` by name."""
    found = {}
    with tarfile.open(RECORDED) as archive:
        for member in archive.getmembers():
            stream = archive.extractfile(member)
            if stream is not None:
                found[member.name.rpartition("/")[2]] = stream.read()
    return found


def disk_with(files: dict[str, bytes]) -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_dirs(FOLDER)
    for name, data in files.items():
        disk.write(f"{FOLDER}/{name}", data)
    return disk


class FilesWorld:
    """A server's files across restarts: transactions are appended, synced and applied as the core does it."""

    def __init__(self, disk: MemoryDisk | None = None, settings: FileSettings = SMALL, seed: int = 0) -> None:
        self.disk = disk or disk_with({})
        self.settings = settings
        self.seed = seed
        self.start()

    def start(self) -> None:
        """Starts from the contents of the disk, also after a kill."""
        self.host = MemoryHost(self.seed, disk=self.disk)
        self.recovered: Recovered = recover(self.disk, FOLDERS, self.host.faults, extended_types=True)
        self.database: Database = self.recovered.database
        self.store = FileStore(self.host, FOLDERS, self.settings, self.database)
        if self.recovered.needs_snapshot:
            self.store.write_snapshot_now()
        self.store.start()

    def stop(self) -> None:
        self.store.close()

    def append(self, op: OpCode, txn: SingleTxn) -> TxnEntry:
        """Applies a transaction to the tree and appends it, unsynced, with the digest of the tree."""
        header = TxnHeader(SESSION, 0, self.database.last_zxid + 1, 1_000, op)
        result = self.database.apply(header, txn)
        assert result.error in (0, getattr(txn, "error", 0)), result
        entry = TxnEntry(header, txn, TxnDigest(2, self.database.tree.digest))
        self.store.append(entry)
        self.store.applied(entry)
        return entry

    def sync(self) -> None:
        done: list[bool] = []
        self.store.sync(lambda: done.append(True))
        self.host.time.run_for(5)
        assert done == [True]

    def open_session(self) -> None:
        self.append(OpCode.CREATE_SESSION, CreateSessionTxn(30_000))

    def create(self, path: str, data: bytes = b"", *, is_ephemeral: bool = False) -> None:
        parent = self.database.tree.nodes[path.rpartition("/")[0] or "/"]
        self.append(OpCode.CREATE, CreateTxn(path, data, OPEN_ACL, is_ephemeral, parent.cversion + 1))

    def set(self, path: str, data: bytes) -> None:
        self.append(OpCode.SET_DATA, SetDataTxn(path, data, self.database.tree.nodes[path].version + 1))

    def delete(self, path: str) -> None:
        self.append(OpCode.DELETE, DeleteTxn(path))

    def names(self) -> list[str]:
        return list(self.disk.list_dir(FOLDER))

    def logs(self) -> list[str]:
        return [each.name for each in data_files(self.disk, FOLDER, LOG_PREFIX)]

    def snapshots(self) -> list[str]:
        return [each.name for each in data_files(self.disk, FOLDER, SNAPSHOT_PREFIX)]

    def read(self, name: str) -> bytes:
        return self.disk.read(f"{FOLDER}/{name}")

    def write(self, name: str, data: bytes) -> None:
        self.disk.write(f"{FOLDER}/{name}", data)

    def state(self) -> list[tuple[str, bytes | None, int, int]]:
        """Returns paths, data, versions and counts of creations of all nodes."""
        return state_of(self.database)


def state_of(database: Database) -> list[tuple[str, bytes | None, int, int]]:
    return sorted((path, node.data, node.version, node.cversion) for path, node in database.tree.nodes.items())
