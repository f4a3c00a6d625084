"""A disk that can return, before every change in one run, what it would contain if the power failed now.

    names       each directory keeps the changes since its last sync in their order; a prefix of them survives
    bytes       of each file what was synced, and of the rest any part: cut at any byte, a block of it zeros or noise,
                whatever happens to other files (unsynced writes are reordered between files)

A synced file is found under its name, as on ext4 and xfs, even if its directory was not synced. Directories are
separate nodes: a renamed one takes its files along, and one that is created under its old name is another one.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

from barnabas.common.host import Buffer
from barnabas.simulation.crashing_disk import Fate
from barnabas.simulation.disk import MemoryDisk, MemoryFile, MemoryLock, WallClock

_BLOCK_BYTES = 64


class _FileNode:
    __slots__ = ("content", "synced", "unchanged")

    def __init__(self) -> None:
        self.synced: bytes | None = None
        #: The number of bytes before those that were written in place since the sync; None if there are none.
        self.unchanged: int | None = None
        #: The present content, or the content at the file's removal.
        self.content: Callable[[], bytes] = bytes


class _DirNode:
    __slots__ = ("pending", "sure")

    def __init__(self) -> None:
        self.sure: dict[str, _Node] = {}
        self.pending: list[_Change] = []


_Node = _FileNode | _DirNode


class _Change(NamedTuple):
    """A change of names: `node` loses the name `before` and gets the name `after`; None for no name."""

    node: _Node
    before: str | None
    after: str | None

    def apply(self, names: dict[str, _Node]) -> None:
        if self.before is not None and names.get(self.before) is self.node:
            del names[self.before]
        if self.after is not None:
            names[self.after] = self.node


class PowerFile:
    """A file that reports every change to its disk."""

    def __init__(self, disk: PowerDisk, file: MemoryFile, node: _FileNode) -> None:
        self._disk, self._file, self._node = disk, file, node
        self.size = file.size
        self.read_at = file.read_at
        self.read_at_nowait = file.read_at_nowait
        self.close = file.close

    def append(self, data: Buffer) -> None:
        self._disk.changing()
        self._file.append(data)

    def write_at(self, offset: int, data: Buffer) -> None:
        self._disk.changing()
        self._file.write_at(offset, data)
        self._node.unchanged = offset if self._node.unchanged is None else min(self._node.unchanged, offset)

    def truncate(self, size: int) -> None:
        self._disk.changing()
        self._file.truncate(size)

    def sync(self) -> None:
        self._disk.changing()
        self._file.sync()
        self._disk.synced(self._node)


class PowerDisk(MemoryDisk):
    """A disk in memory. `before_change` is called before each change; `changes` counts them, `syncs` the fsyncs by
    path.
    """

    def __init__(self, clock: WallClock | None = None) -> None:
        super().__init__(clock=clock)
        self.before_change: Callable[[], None] = lambda: None
        self.changes = 0
        #: Whether unsynced changes of names survive in any order, except those of one file, as on some file systems.
        self.reorders_names = False
        self._nodes: dict[str, _Node] = {"": _DirNode()}

    # -- changes

    def changing(self) -> None:
        self.before_change()
        self.changes += 1

    def synced(self, node: _FileNode) -> None:
        node.synced, node.unchanged = node.content(), None
        path = next((path for path, known in self._nodes.items() if known is node), None)
        if path is not None:
            self._name_is_sure(path)

    def _name_is_sure(self, path: str) -> None:
        while path:
            parent, name = path.rpartition("/")[::2]
            directory, node = self._dir(parent), self._nodes[path]
            for known in [known for known, other in directory.sure.items() if other is node]:
                del directory.sure[known]
            directory.sure[name] = node
            path = parent

    def _dir(self, path: str) -> _DirNode:
        node = self._nodes[path]
        assert isinstance(node, _DirNode)
        return node

    def _note(self, path: str, *, before: str | None, after: str | None) -> None:
        """Records that the node at `path` changes its name."""
        self._dir(path.rpartition("/")[0]).pending.append(_Change(self._nodes[path], before, after))

    def _created(self, path: str, node: _Node) -> None:
        self._nodes[path] = node
        self._note(path, before=None, after=path.rpartition("/")[2])

    def _file_node(self, path: str) -> _FileNode:
        node = self._nodes.get(path)
        if node is None:
            node = _FileNode()
            content = self._files[path]
            node.content = lambda: bytes(content.data)
            self._created(path, node)
        assert isinstance(node, _FileNode)
        return node

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> PowerFile:  # type: ignore[override]
        if create and not self.exists(path):
            self.changing()
        file = super().open(path, create=create, read_only=read_only)
        return PowerFile(self, file, self._file_node(path))

    def write(self, path: str, data: Buffer, *, sync: bool = False) -> None:
        self.changing()
        if self.exists(path):
            # The file is emptied first: a crash can leave it empty.
            super().write(path, b"")
            self.changing()
        super().write(path, data)
        node = self._file_node(path)
        node.unchanged = None
        if sync:
            self.changing()
            self.synced(node)

    def lock(self, path: str) -> MemoryLock:
        made = super().lock(path)
        self._file_node(path)
        return made

    def make_dirs(self, path: str) -> None:
        path = path.rstrip("/")
        if not self.exists(path):
            self.make_dirs(path.rpartition("/")[0])
            self.changing()
            super().make_dirs(path)
            self._created(path, _DirNode())

    def rename(self, source: str, target: str) -> None:
        self.changing()
        super().rename(source, target)
        self._note(source, before=source.rpartition("/")[2], after=target.rpartition("/")[2])
        assert source.rpartition("/")[0] == target.rpartition("/")[0], "no move between directories"
        self._nodes.pop(target, None)
        for path in [path for path in self._nodes if path == source or path.startswith(source + "/")]:
            self._nodes[target + path[len(source) :]] = self._nodes.pop(path)

    def remove(self, path: str) -> None:
        self.changing()
        super().remove(path)
        self._note(path, before=path.rpartition("/")[2], after=None)
        del self._nodes[path]

    def remove_tree(self, path: str) -> None:
        super().remove_tree(path)
        self.changing()
        if path in self._nodes:
            self._note(path, before=path.rpartition("/")[2], after=None)
            del self._nodes[path]

    def sync_dir(self, path: str) -> None:
        self.changing()
        super().sync_dir(path)
        directory = self._dir(path)
        for change in directory.pending:
            change.apply(directory.sure)
        directory.pending.clear()
        self._name_is_sure(path)

    # -- state after a crash

    def after_crash(self, fate: Fate, chance: random.Random) -> MemoryDisk:
        """Returns the disk as the next process can find it. TORN: any of the possible states, by chance."""
        disk = MemoryDisk()
        self._restore(disk, "", self._dir(""), fate, chance)
        return disk

    def _restore(self, disk: MemoryDisk, path: str, node: _DirNode, fate: Fate, chance: random.Random) -> None:
        names = dict(node.sure)
        count = {Fate.LOST: 0, Fate.KEPT: len(node.pending)}.get(fate)
        if count is None:
            count = chance.randint(0, len(node.pending))
        survived = node.pending[:count]
        if self.reorders_names and fate is Fate.TORN:
            survived = _any_order(node.pending, chance)
        for change in survived:
            change.apply(names)
        for name, child in sorted(names.items()):
            if isinstance(child, _DirNode):
                disk.make_dirs(f"{path}/{name}")
                self._restore(disk, f"{path}/{name}", child, fate, chance)
            else:
                disk.write(f"{path}/{name}", _bytes_of(child, fate, chance))


def _any_order(pending: list[_Change], chance: random.Random) -> list[_Change]:
    """Returns the changes that survive: of each file the first ones, independently of other files."""
    lost: set[int] = set()
    survived = []
    for change in pending:
        if id(change.node) not in lost and chance.random() < 0.6:
            survived.append(change)
        else:
            lost.add(id(change.node))
    return survived


def _bytes_of(node: _FileNode, fate: Fate, chance: random.Random) -> bytes:
    now, synced = node.content(), node.synced if node.synced is not None else b""
    if fate is Fate.KEPT or now == synced:
        return now
    if fate is Fate.LOST:
        return synced
    if synced.startswith(now):
        return chance.choice([synced, now])
    if not now.startswith(synced) and node.unchanged is not None and now.startswith(synced[: node.unchanged]):
        # Bytes were written in place, such as those of a file that was made longer before: any beginning is there.
        end = chance.randint(node.unchanged, len(now))
        return now[:end] + synced[end:]
    if not now.startswith(synced):
        # The file was written again: the content is the old one, the new one, or only the beginning of the new one.
        return chance.choice([synced, now, now[: chance.randint(0, len(now))]])
    kept = chance.randint(len(synced), len(now))
    tail = bytearray(now[len(synced) : kept])
    if tail and chance.random() < 0.3:
        at = chance.randrange(len(tail))
        size = min(_BLOCK_BYTES, len(tail) - at)
        tail[at : at + size] = bytes(size) if chance.random() < 0.5 else chance.randbytes(size)
    return synced + bytes(tail)
