"""A disk in memory whose calls fail from a chosen one on, until it is repaired: full, broken, read-only, gone.

FULL       calls that need space: creating, appending, writing; a whole file that was begun stays half written
BROKEN     every call; `exists` and `is_dir` return False, as the system's do
READ_ONLY  calls that change something
GONE       as BROKEN, with ENOENT: the tree was moved away; open files continue to work
NO_DESCRIPTORS  calls that open a file
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from barnabas.common.host import Buffer, DiskUsage
from barnabas.simulation.disk import MemoryDirectory, MemoryDisk, MemoryFile, MemoryLock

_NEED_ROOM = frozenset({"create", "append", "write_at", "write", "make_dirs"})
_CHANGE = _NEED_ROOM | {"truncate", "rename", "remove", "remove_tree"}
_READ = frozenset({"open", "read", "read_at", "list_dir", "size", "modified_ms", "usage", "lock", "sync", "sync_dir"})
_ON_OPEN_FILE = frozenset({"append", "write_at", "read_at", "truncate", "sync"})


class Fault(Enum):
    FULL = (errno.ENOSPC, _NEED_ROOM)
    BROKEN = (errno.EIO, _CHANGE | _READ)
    READ_ONLY = (errno.EROFS, _CHANGE)
    GONE = (errno.ENOENT, (_CHANGE | _READ) - _ON_OPEN_FILE)
    NO_DESCRIPTORS = (errno.EMFILE, frozenset({"open", "create", "read", "write", "lock", "sync_dir"}))


@dataclass
class Plan:
    """A fault below `root`, from call number `first` on (of the calls that it concerns), for `count` calls."""

    fault: Fault
    root: str = "/"
    first: int = 0
    count: int = 1 << 60


class FailingFile(MemoryFile):
    __slots__ = ("_failing", "_path")

    def __init__(self, disk: FailingDisk, file: MemoryFile, path: str) -> None:
        super().__init__(disk, file._content, file._read_only)
        self._failing = disk
        self._path = path

    def append(self, data: Buffer) -> None:
        self._failing.call("append", self._path)
        super().append(data)

    def read_at(self, offset: int, size: int) -> bytes:
        self._failing.call("read_at", self._path)
        return super().read_at(offset, size)

    def write_at(self, offset: int, data: Buffer) -> None:
        self._failing.call("write_at", self._path)
        super().write_at(offset, data)

    def truncate(self, size: int) -> None:
        self._failing.call("truncate", self._path)
        super().truncate(size)

    def sync(self) -> None:
        self._failing.call("sync", self._path)
        super().sync()


class FailingDisk(MemoryDisk):
    def __init__(self) -> None:
        super().__init__()
        self.plan: Plan | None = None
        #: The number of calls that the plan concerned since it began.
        self.calls = 0
        self.failed = 0

    def begin(self, plan: Plan | None) -> None:
        self.plan, self.calls, self.failed = plan, 0, 0

    def repair(self) -> None:
        self.plan = None

    def call(self, name: str, path: str) -> None:
        plan = self.plan
        if plan is None or name not in plan.fault.value[1] or not f"{path}/".startswith(plan.root.rstrip("/") + "/"):
            return
        place, self.calls = self.calls, self.calls + 1
        if plan.first <= place < plan.first + plan.count:
            self.failed += 1
            code = plan.fault.value[0]
            raise OSError(code, os.strerror(code), path)

    def _is_hidden(self, path: str) -> bool:
        plan = self.plan
        hides = plan is not None and plan.fault in (Fault.BROKEN, Fault.GONE) and self.calls >= plan.first
        return hides and plan is not None and f"{path}/".startswith(plan.root.rstrip("/") + "/")

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> FailingFile:
        self.call("create" if create and not super().exists(path) else "open", path)
        return FailingFile(self, super().open(path, create=create, read_only=read_only), path)

    def exists(self, path: str) -> bool:
        return not self._is_hidden(path) and super().exists(path)

    def is_dir(self, path: str) -> bool:
        return not self._is_hidden(path) and super().is_dir(path)

    def list_dir(self, path: str) -> Sequence[str]:
        self.call("list_dir", path)
        return super().list_dir(path)

    def make_dirs(self, path: str) -> None:
        if self._is_hidden(path) or not super().is_dir(path):
            self.call("make_dirs", path)
        super().make_dirs(path)

    def rename(self, source: str, target: str) -> None:
        self.call("rename", source)
        super().rename(source, target)

    def remove(self, path: str) -> None:
        self.call("remove", path)
        super().remove(path)

    def remove_tree(self, path: str) -> None:
        self.call("remove_tree", path)
        super().remove_tree(path)

    def sync_dir(self, path: str) -> None:
        self.call("sync_dir", path)
        super().sync_dir(path)

    def open_dir(self, path: str) -> MemoryDirectory:
        self.call("open", path)
        return MemoryDirectory(lambda: self.call("sync", path))

    def read(self, path: str) -> bytes:
        self.call("read", path)
        return super().read(path)

    def write(self, path: str, data: Buffer, *, sync: bool = False) -> None:
        try:
            self.call("write", path)
        except OSError as error:
            if error.errno == errno.ENOSPC and len(data) > 1:
                super().write(path, memoryview(data)[: len(data) // 2])
            raise
        super().write(path, data, sync=sync)

    def size(self, path: str) -> int:
        self.call("size", path)
        return super().size(path)

    def modified_ms(self, path: str) -> int:
        self.call("modified_ms", path)
        return super().modified_ms(path)

    def usage(self, path: str) -> DiskUsage:
        self.call("usage", path)
        return super().usage(path)

    def lock(self, path: str) -> MemoryLock:
        self.call("lock", path)
        return super().lock(path)
