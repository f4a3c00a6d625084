"""Writes the transaction log: one file at a time, longer than its content, and synced in groups.

A file is created with the first entry after a startup or a roll, and named after it. It grows by `preAllocSize` in
zeros, so that most syncs write no metadata of the file system; a reader regards zeros as the end.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.common.host import Disk, File
from barnabas.zookeeper.files.file_names import LOG_PREFIX, name_of
from barnabas.zookeeper.files.log_frames import LOG_HEADER, framed

#: A file grows when less than this is left after the last entry.
_ROOM_BYTES = 4096


def padded_size(position: int, size: int, step: int) -> int:
    """Returns the size that a file of `size` bytes gets before a write at `position`: `step` more if there is too
    little space. A step of 0 adds nothing.
    """
    if step <= 0 or position + _ROOM_BYTES < size:
        return size
    if position > size:
        return (position + step) // step * step
    return size + step


class LogWriter:
    """The log file that is being written. Entries are buffered until `write_out`. All methods raise OSError."""

    __slots__ = (
        "_disk",
        "_file",
        "_folder",
        "_in_sync",
        "_name_is_new",
        "_pending",
        "_position",
        "_preallocated_bytes",
        "_rolled",
        "_size",
        "_unsynced",
    )

    def __init__(self, disk: Disk, folder: str, preallocated_bytes: int) -> None:
        self._disk = disk
        self._folder = folder
        self._preallocated_bytes = preallocated_bytes
        self._file: File | None = None
        self._position = 0
        self._size = 0
        self._pending: list[bytes] = []
        #: Files that a roll ended; closed after the sync that covers them.
        self._rolled: list[File] = []
        self._in_sync: list[File] = []
        self._name_is_new = False
        self._unsynced = False

    def append(self, zxid: int, entry: bytes) -> None:
        """Buffers an entry; the first one of a file creates it."""
        if self._file is None:
            self._create(zxid)
        self._pending.append(framed(entry))

    def _create(self, zxid: int) -> None:
        path = f"{self._folder}/{name_of(LOG_PREFIX, zxid)}"
        file = self._disk.open(path, create=True)
        # A file of this name has no good entry: recovery continues after the last one.
        file.truncate(0)
        self._file = file
        self._position = self._size = 0
        self._pending.append(LOG_HEADER)
        self._name_is_new = True

    @property
    def has_unwritten(self) -> bool:
        return bool(self._pending)

    def write_out(self) -> None:
        """Writes the buffered entries to the file, in one call."""
        if not self._pending:
            return
        file = self._file
        assert file is not None, "entries are buffered for a file"
        data = b"".join(self._pending) if len(self._pending) > 1 else self._pending[0]
        self._pending.clear()
        size = padded_size(self._position + len(data), self._size, self._preallocated_bytes)
        if size > self._size and size > self._position + len(data):
            file.truncate(size)
            self._size = size
        file.write_at(self._position, data)
        self._position += len(data)
        self._size = max(self._size, self._position)
        self._unsynced = True

    def sync_work(self) -> Callable[[], None]:
        """Returns the work that syncs everything written so far. It touches only files and can run in a thread.
        `synced` must be called after it, and before the next sync.
        """
        disk, folder, is_new = self._disk, self._folder, self._name_is_new
        assert not self._in_sync, "one sync at a time"
        self._in_sync, self._rolled = self._rolled, []
        files = [*self._in_sync]
        if self._file is not None and self._unsynced:
            files.append(self._file)
        self._name_is_new = self._unsynced = False

        def sync() -> None:
            for file in files:
                file.sync()
            if is_new:
                disk.sync_dir(folder)

        return sync

    def synced(self) -> None:
        """Closes the files that were completed before the sync began."""
        ended, self._in_sync = self._in_sync, []
        for file in ended:
            file.close()

    def close_rolled(self) -> None:
        """Closes the files that are complete, without a sync."""
        ended, self._rolled = self._rolled, []
        for file in ended:
            file.close()

    def roll(self) -> None:
        """Completes the file; the next entry begins another one."""
        if self._file is None:
            return
        self.write_out()
        self._rolled.append(self._file)
        self._file = None

    def close(self) -> None:
        """Closes all files. Entries that are not written are lost."""
        files = [*self._in_sync, *self._rolled]
        if self._file is not None:
            files.append(self._file)
        self._file, self._in_sync, self._rolled = None, [], []
        for file in files:
            file.close()
        self._pending.clear()
