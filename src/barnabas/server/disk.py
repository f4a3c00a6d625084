"""The real disk: `common.host.Disk` on the operating system's files.

`preadv2(RWF_NOWAIT)` reports whether the page cache has the data. On systems without it (macOS, tmpfs, some network and
stacked file systems) `read_at_nowait` reads like `read_at`: recent data is in memory anyway, and handing every read to
a thread would cost each consumer more than a rare wait costs all of them.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import sys
from collections.abc import Callable, Sequence

from barnabas.common.errors import is_full
from barnabas.common.host import Buffer, DiskUsage

_NOWAIT = getattr(os, "RWF_NOWAIT", 0)
#: Reads of at least this size use recycled memory.
_LARGE_BYTES = 64 * 1024
_BUFFER_BYTES = 1024 * 1024
_BUFFERS_MAX = 8
#: References that exist even when no caller holds the buffer: the list, the local variable, the argument of
#: getrefcount.
_UNUSED_REFERENCES = 3
_NOT_OFFERED = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})


class _Buffers:
    """Recycled memory for large reads: allocating a megabyte costs more than reading it. A view of a buffer keeps it in
    use; the reference count shows that.
    """

    __slots__ = ("_all",)

    def __init__(self) -> None:
        self._all: list[bytearray] = []

    def take(self, size: int) -> bytearray | memoryview:
        if size > _BUFFER_BYTES:
            return bytearray(size)
        # Take the first free buffer rather than the next in turn: it may still be in the processor's caches.
        for buffer in self._all:
            if sys.getrefcount(buffer) <= _UNUSED_REFERENCES:
                return memoryview(buffer)[:size]
        buffer = bytearray(_BUFFER_BYTES)
        if len(self._all) < _BUFFERS_MAX:
            self._all.append(buffer)
        return memoryview(buffer)[:size]


class OsFile:
    """A file by its descriptor, read and written at explicit positions. `append` is one call if the system accepts all
    data.
    """

    __slots__ = ("_fd", "_knows_cache", "_size")

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._knows_cache = _NOWAIT != 0
        self._size = os.fstat(fd).st_size

    def size(self) -> int:
        return self._size

    def append(self, data: Buffer) -> None:
        start = self._size
        length = len(data)
        try:
            written = os.pwrite(self._fd, data, start)
            if written != length:
                self._append_rest(memoryview(data), written)
        except OSError as error:
            self._cut_back(start, error)
            raise
        self._size = start + length

    def _append_rest(self, data: memoryview, written: int) -> None:
        """Continues after the system accepted only a part (a signal, a nearly full disk), until it accepts all or
        fails.
        """
        while written < len(data):
            written += os.pwrite(self._fd, data[written:], self._size + written)

    def _cut_back(self, size: int, cause: OSError) -> None:
        """Truncates a partial write. If that fails too, the error is EIO instead of ENOSPC, because a part of the data
        may remain.
        """
        try:
            os.ftruncate(self._fd, size)
        except OSError as error:
            if is_full(cause) and os.fstat(self._fd).st_size > size:
                raise OSError(errno.EIO, f"{cause.strerror}, and the partial write cannot be truncated") from error

    def read_at(self, offset: int, size: int) -> bytes:
        data = os.pread(self._fd, size, offset)
        if len(data) == size or offset + len(data) >= self._size:
            return data
        parts = [data]
        done = len(data)
        while done < size and (more := os.pread(self._fd, size - done, offset + done)):
            parts.append(more)
            done += len(more)
        return b"".join(parts)

    def read_at_nowait(self, offset: int, size: int) -> Buffer | None:
        if not self._knows_cache:
            return self.read_at(offset, size)
        buffer: bytearray | memoryview = bytearray(size) if size < _LARGE_BYTES else _buffers.take(size)
        try:
            count = os.preadv(self._fd, [buffer], offset, _NOWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno not in _NOT_OFFERED:
                return None  # The thread that waits for the disk gets the error.
            self._knows_cache = False
            return self.read_at(offset, size)
        if count < size:
            if offset + count < self._size:
                return None
            return memoryview(buffer)[:count]
        return buffer

    def will_need(self, offset: int, size: int) -> None:
        if hasattr(os, "posix_fadvise"):
            with contextlib.suppress(OSError):
                os.posix_fadvise(self._fd, offset, size, os.POSIX_FADV_WILLNEED)

    def write_at(self, offset: int, data: Buffer) -> None:
        view = memoryview(data)
        done = 0
        while done < len(view):
            done += os.pwrite(self._fd, view[done:], offset + done)
        self._size = max(self._size, offset + len(view))

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)
        self._size = size

    def sync(self) -> None:
        if self._fd < 0:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        _sync(os.fdatasync, self._fd)

    def close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


def _sync(sync: Callable[[int], None], fd: int) -> None:
    """Syncs a file. After a failure, written pages may be lost, whatever error the system reports."""
    try:
        sync(fd)
    except OSError as error:
        if is_full(error):
            raise OSError(errno.EIO, f"not synced: {error.strerror}") from error
        raise


_buffers = _Buffers()


class OsLock:
    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


class OsDirectory:
    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def sync(self) -> None:
        _sync(os.fsync, self._fd)

    def close(self) -> None:
        os.close(self._fd)


class OsDisk:
    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> OsFile:
        flags = os.O_RDONLY if read_only else os.O_RDWR
        if create:
            flags |= os.O_CREAT
        return OsFile(os.open(path, flags | os.O_CLOEXEC, 0o644))

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    def list_dir(self, path: str) -> Sequence[str]:
        return sorted(os.listdir(path))

    def make_dirs(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove(self, path: str) -> None:
        os.remove(path)

    def remove_tree(self, path: str) -> None:
        shutil.rmtree(path)

    def sync_dir(self, path: str) -> None:
        directory = self.open_dir(path)
        try:
            directory.sync()
        finally:
            directory.close()

    def open_dir(self, path: str) -> OsDirectory:
        return OsDirectory(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))

    def read(self, path: str) -> bytes:
        with open(path, "rb") as stream:
            return stream.read()

    def write(self, path: str, data: Buffer, *, sync: bool = False) -> None:
        with open(path, "wb") as stream:
            stream.write(data)
            if sync:
                stream.flush()
                os.fsync(stream.fileno())

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def usage(self, path: str) -> DiskUsage:
        state = os.statvfs(path)
        return DiskUsage(state.f_blocks * state.f_frsize, state.f_bavail * state.f_frsize)

    def lock(self, path: str) -> OsLock:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            # The first excludes other locks of this process too, the second the lock of a Java broker.
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), path) from error
        return OsLock(fd)
