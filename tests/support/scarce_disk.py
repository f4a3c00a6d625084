"""A disk in memory with a limit on open files."""

from __future__ import annotations

import errno
import os

from barnabas.simulation.disk import MemoryDisk, MemoryFile


class ScarceFile(MemoryFile):
    __slots__ = ("_scarce",)

    def __init__(self, disk: ScarceDisk, file: MemoryFile) -> None:
        super().__init__(disk, file._content, file._read_only)
        self._scarce = disk
        disk.open_files += 1

    def close(self) -> None:
        self._scarce.open_files -= self._open
        super().close()


class ScarceDisk(MemoryDisk):
    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit
        self.open_files = 0

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> ScarceFile:
        if self.open_files >= self.limit:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        return ScarceFile(self, super().open(path, create=create, read_only=read_only))
