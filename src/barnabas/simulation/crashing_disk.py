"""A disk whose power fails before its Nth change, and the contents that it can have afterwards.

Only synced data is certain to survive. `after_crash` returns one of the possible states of the rest:

    LOST    nothing that was not synced exists: new bytes, new names, renames
    KEPT    everything exists, as if the write-back had just finished
    TORN    names as in KEPT, but only the first half of the bytes after a file's last sync

A synced file is found under its name even if its directory was not synced, as on ext4 and xfs.
"""

from __future__ import annotations

from enum import Enum

from barnabas.common.host import Buffer
from barnabas.simulation.disk import MemoryDisk, MemoryFile


class PowerFailure(BaseException):
    """A power failure. No process survives it, so no code catches it."""


class Fate(Enum):
    LOST = "lost"
    KEPT = "kept"
    TORN = "torn"


class _Inode:
    __slots__ = ("synced",)

    def __init__(self) -> None:
        self.synced: bytes | None = None


class CrashingFile:
    """A file that counts changes, forwards them, and records syncs."""

    def __init__(self, disk: CrashingDisk, file: MemoryFile, inode: _Inode, path: str) -> None:
        self._disk, self._file, self._inode, self._path = disk, file, inode, path

    def size(self) -> int:
        return self._file.size()

    def append(self, data: Buffer) -> None:
        self._disk.change()
        self._file.append(data)

    def read_at(self, offset: int, size: int) -> bytes:
        return self._file.read_at(offset, size)

    def read_at_nowait(self, offset: int, size: int) -> Buffer | None:
        return self._file.read_at_nowait(offset, size)

    def will_need(self, offset: int, size: int) -> None:
        self._file.will_need(offset, size)

    def write_at(self, offset: int, data: Buffer) -> None:
        self._disk.change()
        self._file.write_at(offset, data)

    def truncate(self, size: int) -> None:
        self._disk.change()
        self._file.truncate(size)

    def sync(self) -> None:
        self._disk.change()
        self._file.sync()
        self._disk.synced_paths.append(self._path)
        self._inode.synced = self._file.read_at(0, self._file.size())
        self._disk.name_is_sure(self._path, self._inode)

    def close(self) -> None:
        self._file.close()


class CrashingDisk(MemoryDisk):
    """A disk in memory. It never fails if `changes_left` is None."""

    def __init__(self, changes_left: int | None = None) -> None:
        super().__init__()
        self.changes_left = changes_left
        self.changes = 0
        self.synced_paths: list[str] = []
        self._inodes: dict[str, _Inode] = {}
        self._sure: dict[str, _Inode] = {}

    def change(self) -> None:
        if self.changes_left is not None and self.changes >= self.changes_left:
            raise PowerFailure(f"after {self.changes} changes")
        self.changes += 1

    def name_is_sure(self, path: str, inode: _Inode) -> None:
        if self._inodes.get(path) is inode:
            self._sure[path] = inode

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> CrashingFile:  # type: ignore[override]
        if create and not self.exists(path):
            self.change()
        file = super().open(path, create=create, read_only=read_only)
        return CrashingFile(self, file, self._inodes.setdefault(path, _Inode()), path)

    def rename(self, source: str, target: str) -> None:
        self.change()
        super().rename(source, target)
        for path in [path for path in self._inodes if path == source or path.startswith(source + "/")]:
            self._inodes[target + path[len(source) :]] = self._inodes.pop(path)

    def remove(self, path: str) -> None:
        self.change()
        super().remove(path)
        self._inodes.pop(path, None)

    def sync_dir(self, path: str) -> None:
        self.change()
        super().sync_dir(path)
        for known in [known for known in self._sure if known.rpartition("/")[0] == path]:
            if known not in self._inodes:
                del self._sure[known]
        for known, inode in self._inodes.items():
            if known.rpartition("/")[0] == path:
                self._sure[known] = inode

    def write(self, path: str, data: Buffer, *, sync: bool = False) -> None:
        self.change()
        super().write(path, data)
        inode = self._inodes.setdefault(path, _Inode())
        if sync:
            self.change()
            inode.synced = bytes(data)
            self.name_is_sure(path, inode)

    def after_crash(self, fate: Fate) -> CrashingDisk:
        """Returns the disk as the next process finds it; this one never fails."""
        disk = CrashingDisk()
        names = self._sure if fate is Fate.LOST else self._inodes
        for path, inode in sorted(names.items()):
            disk.make_dirs(path.rpartition("/")[0])
            disk.write(path, self._content(path, inode, fate), sync=True)
            disk.sync_dir(path.rpartition("/")[0])
        return disk

    def _content(self, path: str, inode: _Inode, fate: Fate) -> bytes:
        if fate is Fate.LOST:
            return inode.synced if inode.synced is not None else b""
        content = self.read(path)
        if fate is Fate.KEPT or inode.synced is None or not content.startswith(inode.synced):
            return content
        return content[: len(inode.synced) + (len(content) - len(inode.synced)) // 2]
