"""A disk in memory: `common.host.Disk` with the errors of a real one; its contents end with the process.

Directories keep their names, so that listing one costs as much as it contains. An open file remains usable when its
path is renamed or removed, as on a real disk. `free_bytes` can be set to let the disk fill up: an append without enough
space writes nothing. `faulty_disk.py` has the disk with power failures and injected errors.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from typing import Protocol

from barnabas.common.host import Buffer, DiskUsage


class WallClock(Protocol):
    def wall_ms(self) -> int: ...


def _failed(code: int, path: str | None = None) -> OSError:
    """Returns the subclass of OSError that the system would raise."""
    return OSError(code, os.strerror(code)) if path is None else OSError(code, os.strerror(code), path)


class _Content:
    __slots__ = ("data", "modified_ms")

    def __init__(self, modified_ms: int) -> None:
        self.data = bytearray()
        self.modified_ms = modified_ms


class MemoryFile:
    __slots__ = ("_content", "_disk", "_open", "_read_only")

    def __init__(self, disk: MemoryDisk, content: _Content, read_only: bool) -> None:
        self._disk = disk
        self._content = content
        self._read_only = read_only
        self._open = True

    def size(self) -> int:
        return len(self._content.data)

    def append(self, data: Buffer) -> None:
        self._check_writable()
        self._disk.resize(self._content, len(data))
        self._content.data += data

    def read_at(self, offset: int, size: int) -> bytes:
        self._check_open()
        return bytes(memoryview(self._content.data)[offset : offset + size])

    def read_at_nowait(self, offset: int, size: int) -> bytes | None:
        is_cold = self._disk.is_cold
        return None if is_cold is not None and is_cold(offset, size) else self.read_at(offset, size)

    def will_need(self, offset: int, size: int) -> None:
        self._check_open()

    def write_at(self, offset: int, data: Buffer) -> None:
        self._check_writable()
        content = self._content
        self._disk.resize(content, max(0, offset + len(data) - len(content.data)))
        if offset > len(content.data):
            content.data += bytes(offset - len(content.data))
        content.data[offset : offset + len(data)] = data

    def truncate(self, size: int) -> None:
        self._check_writable()
        content = self._content
        self._disk.resize(content, size - len(content.data))
        if size < len(content.data):
            del content.data[size:]
        else:
            content.data += bytes(size - len(content.data))

    def sync(self) -> None:
        self._check_open()

    def close(self) -> None:
        self._open = False

    def _check_open(self) -> None:
        if not self._open:
            raise _failed(errno.EBADF)

    def _check_writable(self) -> None:
        self._check_open()
        if self._read_only:
            raise _failed(errno.EBADF)


class MemoryLock:
    def __init__(self, disk: MemoryDisk, path: str) -> None:
        self._disk: MemoryDisk | None = disk
        self._path = path

    def release(self) -> None:
        if self._disk is not None:
            self._disk.locked.discard(self._path)
            self._disk = None


class MemoryDirectory:
    __slots__ = ("sync",)

    def __init__(self, sync: Callable[[], None]) -> None:
        self.sync = sync

    def close(self) -> None:
        """Does nothing: it holds no resource."""


class MemoryDisk:
    """Files and directories by path, below the root "/", which always exists."""

    def __init__(self, free_bytes: int = 1 << 50, clock: WallClock | None = None) -> None:
        self.free_bytes = free_bytes
        #: The number of calls that failed for lack of space.
        self.space_refusals = 0
        self.locked: set[str] = set()
        #: Whether the `size` bytes from `offset` on are not in memory: then `read_at_nowait` returns None. None: all
        #: are.
        self.is_cold: Callable[[int, int], bool] | None = None
        self._clock = clock
        self._files: dict[str, _Content] = {}
        #: The names in each directory; "" is the root.
        self._dirs: dict[str, set[str]] = {"": set()}

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        path = _normal(path)
        content = self._files.get(path)
        if content is None:
            if path in self._dirs:
                raise _failed(errno.EISDIR, path)
            if not create:
                raise _failed(errno.ENOENT, path)
            content = self._new_file(path)
        return MemoryFile(self, content, read_only)

    def exists(self, path: str) -> bool:
        path = _normal(path)
        return path in self._files or path in self._dirs

    def is_dir(self, path: str) -> bool:
        return _normal(path) in self._dirs

    def list_dir(self, path: str) -> Sequence[str]:
        path = _normal(path)
        self._need_dir(path)
        return sorted(self._dirs[path])

    def make_dirs(self, path: str) -> None:
        path = _normal(path)
        if path in self._dirs:
            return
        if path in self._files:
            raise _failed(errno.EEXIST, path)
        parent, name = _split(path)
        if parent in self._files:
            raise _failed(errno.ENOTDIR, path)
        self.make_dirs(parent)
        self._dirs[path] = set()
        self._dirs[parent].add(name)

    def rename(self, source: str, target: str) -> None:
        source, target = _normal(source), _normal(target)
        if source not in self._files and source not in self._dirs:
            raise _failed(errno.ENOENT, source)
        self._need_dir(_split(target)[0])
        if source == target:
            return
        if source in self._files:
            if target in self._dirs:
                raise _failed(errno.EISDIR, target)
            self._forget_file(target)
            self._files[target] = self._files.pop(source)
        else:
            if target in self._files:
                raise _failed(errno.ENOTDIR, target)
            if self._dirs.get(target):
                raise _failed(errno.ENOTEMPTY, target)
            self._move_tree(source, target)
        self._unlink(source)
        self._link(target)

    def remove(self, path: str) -> None:
        path = _normal(path)
        if path in self._dirs:
            raise _failed(errno.EISDIR, path)
        if path not in self._files:
            raise _failed(errno.ENOENT, path)
        self._forget_file(path)
        self._unlink(path)

    def remove_tree(self, path: str) -> None:
        path = _normal(path)
        self._need_dir(path)
        for name in sorted(self._dirs[path]):
            inside = f"{path}/{name}"
            if inside in self._dirs:
                self.remove_tree(inside)
            else:
                self.remove(inside)
        del self._dirs[path]
        self._unlink(path)

    def sync_dir(self, path: str) -> None:
        self._need_dir(_normal(path))

    def open_dir(self, path: str) -> MemoryDirectory:
        self._need_dir(_normal(path))
        return MemoryDirectory(lambda: self.sync_dir(path))

    def read(self, path: str) -> bytes:
        return bytes(self._existing(path).data)

    def write(self, path: str, data: Buffer, *, sync: bool = False) -> None:
        path = _normal(path)
        if path in self._dirs:
            raise _failed(errno.EISDIR, path)
        content = self._files.get(path) or self._new_file(path)
        self.resize(content, -len(content.data))
        content.data.clear()
        self.resize(content, len(data))
        content.data += data

    def size(self, path: str) -> int:
        return len(self._existing(path).data)

    def modified_ms(self, path: str) -> int:
        return self._existing(path).modified_ms

    def usage(self, path: str) -> DiskUsage:
        if not self.exists(path):
            raise _failed(errno.ENOENT, path)
        used = sum(len(content.data) for content in self._files.values())
        return DiskUsage(used + self.free_bytes, self.free_bytes)

    def lock(self, path: str) -> MemoryLock:
        path = _normal(path)
        if path not in self._files:
            self._new_file(path)
        if path in self.locked:
            raise _failed(errno.EAGAIN, path)
        self.locked.add(path)
        return MemoryLock(self, path)

    def resize(self, content: _Content, growth: int) -> None:
        """Reserves or releases space before a file changes its size."""
        if growth > self.free_bytes:
            self.space_refusals += 1
            raise _failed(errno.ENOSPC)
        self.free_bytes -= growth
        content.modified_ms = _now_ms(self._clock)

    def _existing(self, path: str) -> _Content:
        path = _normal(path)
        content = self._files.get(path)
        if content is None:
            raise _failed(errno.EISDIR if path in self._dirs else errno.ENOENT, path)
        return content

    def _need_dir(self, path: str) -> None:
        if path not in self._dirs:
            raise _failed(errno.ENOTDIR if path in self._files else errno.ENOENT, path)

    def _new_file(self, path: str) -> _Content:
        self._need_dir(_split(path)[0])
        content = self._files[path] = _Content(_now_ms(self._clock))
        self._link(path)
        return content

    def _forget_file(self, path: str) -> None:
        content = self._files.pop(path, None)
        if content is not None:
            self.free_bytes += len(content.data)

    def _link(self, path: str) -> None:
        parent, name = _split(path)
        self._dirs[parent].add(name)

    def _unlink(self, path: str) -> None:
        parent, name = _split(path)
        self._dirs[parent].discard(name)

    def _move_tree(self, source: str, target: str) -> None:
        names = self._dirs.pop(source)
        self._dirs[target] = names
        for name in names:
            before, after = f"{source}/{name}", f"{target}/{name}"
            if before in self._dirs:
                self._move_tree(before, after)
            else:
                self._files[after] = self._files.pop(before)


def _normal(path: str) -> str:
    """Returns the path without a slash at the end; the root is ""."""
    return path.rstrip("/")


def _split(path: str) -> tuple[str, str]:
    parent, _, name = path.rpartition("/")
    return parent, name


def _now_ms(clock: WallClock | None) -> int:
    return 0 if clock is None else clock.wall_ms()
