"""A disk with power failures, call durations and injected errors.

Unsynced data can be lost with the power, as on a journaling file system (ext4, xfs):

    names   creations, renames and removals become durable in their order; a crash keeps a prefix of those that are not
            durable yet. `sync` of a file and `sync_dir` make everything durable up to the file's own last change of
            name, or up to the directory's.
    bytes   the bytes of a file at its last `sync` are durable. Of the bytes after them, a crash keeps a part of any
            length, possibly with zeros at its end; bytes that were overwritten or cut off since can be the old ones.

`fail_with` makes every later call raise, `is_unwritable` only calls that need space; `slowness` multiplies the duration
of calls, and `stall_us` and `sync_stall_us` are added to each call that writes or syncs.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from enum import Enum
from random import Random

from barnabas.common.host import Buffer
from barnabas.simulation.disk import MemoryDisk, MemoryFile, MemoryLock, WallClock, _Content

_APPEND_US, _READ_US, _NAME_US = 8, 5, 15
_SYNC_US = 400
_BYTES_PER_US = 1_000
_ZERO_TAIL_CHANCE = 0.1
_WRITES = frozenset({"append", "write"})


class Loss(Enum):
    """The part of the unsynced data that a power failure destroys."""

    ALL = "all of it"
    SOME = "some of it"
    NONE = "nothing"


class DurableContent(_Content):
    """A file's bytes, and the means to restore the last synced ones."""

    __slots__ = ("name_sequence", "safe_bytes", "undo")

    def __init__(self, modified_ms: int) -> None:
        super().__init__(modified_ms)
        self.safe_bytes = 0
        #: (position, old bytes) of each part of the durable bytes that was overwritten or cut off.
        self.undo: list[tuple[int, bytes]] = []
        #: The sequence number of the file's last creation, rename or removal.
        self.name_sequence = 0

    def before_change(self, start: int, end: int | None) -> None:
        """Saves the bytes from `start` to `end` (None: to the end of the file), which are about to change."""
        safe = self.safe_bytes
        if start < safe:
            until = safe if end is None else min(end, safe)
            self.undo.append((start, bytes(memoryview(self.data)[start:until])))
            if end is None:
                self.safe_bytes = start

    def synced(self) -> None:
        self.safe_bytes = len(self.data)
        self.undo.clear()

    @property
    def durable_bytes(self) -> int:
        """The number of bytes at the beginning that every power failure keeps unchanged."""
        return min([self.safe_bytes, *(start for start, _ in self.undo)])

    def crash(self, loss: Loss, random: Random) -> None:
        """Changes the contents to what remains after the power failure."""
        if loss is not Loss.NONE and (loss is Loss.ALL or random.random() < 0.7):
            keep = self.safe_bytes
            if loss is Loss.SOME and len(self.data) > keep:
                keep = random.randrange(keep, len(self.data) + 1)
            lost = len(self.data) - keep
            del self.data[keep:]
            if loss is Loss.SOME and lost and random.random() < _ZERO_TAIL_CHANCE:
                self.data += bytes(lost)
            for start, old in reversed(self.undo):
                if loss is Loss.ALL or random.random() < 0.5:
                    if start > len(self.data):
                        self.data += bytes(start - len(self.data))
                    self.data[start : start + len(old)] = old
        self.synced()


class FaultyFile(MemoryFile):
    """A file that takes time, raises injected errors and keeps the data that a power failure can restore."""

    __slots__ = ("_machine", "_path")

    def __init__(self, disk: FaultyDisk, content: DurableContent, read_only: bool, path: str) -> None:
        super().__init__(disk, content, read_only)
        self._machine = disk
        self._path = path

    def append(self, data: Buffer) -> None:
        self._machine.use(_APPEND_US + len(data) // _BYTES_PER_US, "append", self._path)
        super().append(data)

    def read_at(self, offset: int, size: int) -> bytes:
        self._machine.use(_READ_US, "read", self._path)
        return super().read_at(offset, size)

    def read_at_nowait(self, offset: int, size: int) -> bytes | None:
        if self._machine.misses_cache():
            return None
        return super().read_at(offset, size)

    def write_at(self, offset: int, data: Buffer) -> None:
        self._machine.use(_APPEND_US, "write", self._path)
        _durable(self._content).before_change(offset, offset + len(data))
        super().write_at(offset, data)

    def truncate(self, size: int) -> None:
        self._machine.use(_NAME_US, "truncate", self._path)
        if size < len(self._content.data):
            _durable(self._content).before_change(size, None)
        super().truncate(size)

    def sync(self) -> None:
        self._machine.use_sync(self._path)
        super().sync()
        content = _durable(self._content)
        content.synced()
        self._machine.names_durable(content.name_sequence)


def _durable(content: _Content) -> DurableContent:
    assert isinstance(content, DurableContent)
    return content


class FaultyDisk(MemoryDisk):
    """A disk of a machine. `charge` gets the number of microseconds that each call takes."""

    def __init__(
        self, random: Random, clock: WallClock, charge: Callable[[int], None], *, free_bytes: int = 1 << 50
    ) -> None:
        super().__init__(free_bytes, clock)
        #: The function that charges the duration of a call; None while calls take no time.
        self.charge: Callable[[int], None] | None = charge
        self.slowness = 1
        self.fail_with: int | None = None
        #: Whether appends and creations fail, whatever is free: a quota, or a disk that other processes keep filling.
        self.is_unwritable = False
        self.stall_us = self.sync_stall_us = 0
        #: The time at which the last call ends that began while the disk was slow: it is not shortened when the disk is
        #: fast again.
        self.slow_until_us = 0
        #: The probability that a read without waiting is not in the page cache.
        self.cold_chance = 0.0
        self._random = random
        #: Changes of names that are not durable: number -> the function that undoes it.
        self._unsafe_names: dict[int, Callable[[], None]] = {}
        self._sequence = 0
        #: Number of a change of a name -> the durable name that the file had before.
        self._former_names: dict[int, str] = {}
        #: The numbers of power failures, and of replacements by an empty disk.
        self.crashes = self.wipes = 0

    # -- faults

    @property
    def is_slow(self) -> bool:
        return self.slowness > 1 or self.stall_us > 0 or self.sync_stall_us > 0

    def use(self, duration_us: int, call: str, path: str) -> None:
        writes = call in _WRITES
        if self.charge is not None:
            self.charge(duration_us * self.slowness + (self.stall_us if writes else 0))
        if self.fail_with is not None:
            raise OSError(self.fail_with, os.strerror(self.fail_with), path)
        if self.is_unwritable and writes:
            self.space_refusals += 1
            raise OSError(NO_SPACE, os.strerror(NO_SPACE), path)

    def use_sync(self, path: str) -> None:
        if self.sync_stall_us and self.charge is not None:
            self.charge(self.sync_stall_us)
        self.use(int(_SYNC_US * (0.5 + self._random.random())), "sync", path)

    @contextlib.contextmanager
    def without_effects(self) -> Iterator[None]:
        """Exempts calls from time and faults: checkers read without affecting the machine."""
        charge, failing, cold, unwritable = self.charge, self.fail_with, self.cold_chance, self.is_unwritable
        self.charge, self.fail_with, self.cold_chance, self.is_unwritable = None, None, 0.0, False
        try:
            yield
        finally:
            self.charge, self.fail_with, self.cold_chance, self.is_unwritable = charge, failing, cold, unwritable

    def misses_cache(self) -> bool:
        return self.cold_chance > 0 and self._random.random() < self.cold_chance

    def fill(self) -> int:
        """Takes all free space, and returns its size for a later release."""
        taken, self.free_bytes = self.free_bytes, 0
        return taken

    def crash(self, loss: Loss) -> None:
        """Loses data as in a power failure. Locks and descriptors end with the processes."""
        self.locked.clear()
        self.crashes += 1
        if loss is not Loss.NONE:
            pending = list(self._unsafe_names.items())
            kept = 0 if loss is Loss.ALL else self._random.randrange(len(pending) + 1)
            for _, undo in reversed(pending[kept:]):
                undo()
        self._unsafe_names.clear()
        self._former_names.clear()
        used_before = sum(len(content.data) for content in self._files.values())
        for path in sorted(self._files):
            _durable(self._files[path]).crash(loss, self._random)
        self.free_bytes += used_before - sum(len(content.data) for content in self._files.values())

    def wipe(self) -> None:
        """Replaces the disk by a new, empty one."""
        self.wipes += 1
        self.free_bytes += sum(len(content.data) for content in self._files.values())
        self.locked.clear()
        self._files.clear()
        self._dirs.clear()
        self._dirs[""] = set()
        self._unsafe_names.clear()
        self._former_names.clear()

    # -- what becomes durable

    def names_durable(self, up_to: int) -> None:
        unsafe = self._unsafe_names
        while unsafe:
            first = next(iter(unsafe))
            if first > up_to:
                return
            del unsafe[first]
            self._former_names.pop(first, None)

    def _remember(self, undo: Callable[[], None]) -> int:
        self._sequence += 1
        self._unsafe_names[self._sequence] = undo
        return self._sequence

    # -- common.host.Disk

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> FaultyFile:
        self.use(_NAME_US, "open", path)
        file = super().open(path, create=create, read_only=read_only)
        return FaultyFile(self, _durable(file._content), read_only, path)

    def make_dirs(self, path: str) -> None:
        path = path.rstrip("/")
        is_new = path not in self._dirs
        super().make_dirs(path)
        if is_new and path:
            self._remember(lambda: self._drop_dir(path))

    def rename(self, source: str, target: str) -> None:
        self.use(_NAME_US, "rename", source)
        source, target = source.rstrip("/"), target.rstrip("/")
        replaced = self._files.get(target)
        super().rename(source, target)
        if source == target:
            return
        sequence = self._remember(lambda: self._rename_back(source, target, replaced))
        if target in self._files:
            content = _durable(self._files[target])
            if content.name_sequence not in self._unsafe_names:
                self._former_names[sequence] = source
            content.name_sequence = sequence

    def remove(self, path: str) -> None:
        self.use(_NAME_US, "remove", path)
        content = self._files.get(path.rstrip("/"))
        super().remove(path)
        assert content is not None
        self._remember(lambda: self._put_back(path.rstrip("/"), content))

    def remove_tree(self, path: str) -> None:
        self.use(_NAME_US, "remove", path)
        super().remove_tree(path)
        self._remember(lambda: self._make_dir_again(path.rstrip("/")))

    def sync_dir(self, path: str) -> None:
        self.use_sync(path)
        super().sync_dir(path)
        self.names_durable(self._sequence)

    def read(self, path: str) -> bytes:
        self.use(_READ_US, "read", path)
        return super().read(path)

    def write(self, path: str, data: Buffer, *, sync: bool = False) -> None:
        self.use(_APPEND_US + len(data) // _BYTES_PER_US, "write", path)
        existing = self._files.get(path.rstrip("/"))
        if existing is not None:
            _durable(existing).before_change(0, None)
        super().write(path, data)
        if sync:
            self.use_sync(path)
            content = _durable(self._files[path.rstrip("/")])
            content.synced()
            self.names_durable(content.name_sequence)

    def lock(self, path: str) -> MemoryLock:
        self.use(_NAME_US, "lock", path)
        return super().lock(path)

    def _new_file(self, path: str) -> DurableContent:
        plain = super()._new_file(path)
        content = self._files[path] = DurableContent(plain.modified_ms)
        content.name_sequence = self._remember(lambda: self._drop_file(path))
        return content

    # -- undoing changes of names

    def _drop_file(self, path: str) -> None:
        if path in self._files:
            self._forget_file(path)
            self._unlink(path)

    def _drop_dir(self, path: str) -> None:
        if path in self._dirs and not self._dirs[path]:
            del self._dirs[path]
            self._unlink(path)

    def _put_back(self, path: str, content: _Content) -> None:
        self.free_bytes -= len(content.data)
        self._files[path] = content
        self._link(path)

    def _make_dir_again(self, path: str) -> None:
        self._dirs[path] = set()
        self._link(path)

    def _rename_back(self, source: str, target: str, replaced: _Content | None) -> None:
        super().rename(target, source)
        if replaced is not None:
            self._put_back(target, replaced)


def durable_bytes(disk: FaultyDisk, path: str) -> int:
    """Returns how many bytes of a file every power failure would keep; 0 if it could take the file's name."""
    return _durable(disk._existing(path)).durable_bytes if has_durable_name(disk, path) else 0


def has_durable_name(disk: FaultyDisk, path: str) -> bool:
    """Returns whether every power failure would keep the name of a file. One that was renamed from `.swap`, the last
    step of a compaction, counts under that name: a start completes the step.
    """
    sequence = _durable(disk._existing(path)).name_sequence
    return sequence not in disk._unsafe_names or disk._former_names.get(sequence) == f"{path}.swap"


NO_SPACE, BROKEN = errno.ENOSPC, errno.EIO


@contextlib.contextmanager
def charging(disk: FaultyDisk, charge: Callable[[int], None]) -> Iterator[None]:
    """Charges the duration of calls to `charge`, while a thread makes them."""
    before, disk.charge = disk.charge, charge
    try:
        yield
    finally:
        disk.charge = before
