"""Reads a znode with everything below it, and follows its changes by watches.

    visit --> read, children ---> names that are new: visit; names that are gone: forget
     ^                                |
     '--- changed(path) --------------'   an event names the znode, and the reads arm the next watches

A lost answer leaves the tree incomplete. Its user calls `start` again when the session is connected; only what has
changed since is reported.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from barnabas.zookeeper.client.store import ChildrenReply, ReadReply, ZnodeContent, ZnodeStore
from barnabas.zookeeper.wire.codes import ErrorCode
from barnabas.zookeeper.wire.records import Stat
from barnabas.zookeeper.znode_paths import name_of, parent_of


class Change(Enum):
    CREATED = "created"
    CHANGED = "changed"
    DELETED = "deleted"


class SeenZnode(NamedTuple):
    """A znode as it was read. `error` is the result of the read: NO_AUTH for a znode whose content this client cannot
    see.
    """

    content: ZnodeContent | None
    stat: Stat | None
    error: int = ErrorCode.OK


class ZnodeFollower:
    """The znodes at and below `root`. `on_change` is called with each change, `on_settled` whenever no answer is
    outstanding. The tree is complete from the first call of `on_settled` on.
    """

    def __init__(
        self,
        store: ZnodeStore,
        root: str,
        *,
        watch: bool,
        on_change: Callable[[Change, str, SeenZnode], None],
        on_settled: Callable[[], None],
    ) -> None:
        self._store = store
        self._root = root
        self._watch = watch
        self._on_change = on_change
        self._on_settled = on_settled
        self.seen: dict[str, SeenZnode] = {}
        #: The names of the children of a znode, as they were read last.
        self._names: dict[str, set[str]] = {}
        self._awaited = 0
        self._is_lost = False

    def start(self) -> None:
        """Reads the znode and everything below it, for the first time or again."""
        self._is_lost = False
        named = [_child(path, name) for path, names in self._names.items() for name in sorted(names)]
        for path in dict.fromkeys((self._root, *self.seen, *named)):
            self._look(path)

    def changed(self, path: str) -> None:
        """Reads a path again whose watch fired."""
        self._look(path)

    def _look(self, path: str) -> None:
        self._awaited += 2
        self._store.read(path, lambda reply: self._on_read(path, reply), watch=self._watch)
        self._store.children(path, lambda reply: self._on_children(path, reply), watch=self._watch)

    def _on_read(self, path: str, reply: ReadReply) -> None:
        if not reply.is_lost:
            if reply.error == ErrorCode.NO_NODE:
                self._forget(path)
            else:
                self._take(path, SeenZnode(reply.znode, reply.stat, reply.error))
        self._answered(reply.is_lost)

    def _take(self, path: str, found: SeenZnode) -> None:
        before = self.seen.get(path)
        self.seen[path] = found
        if before is None:
            self._on_change(Change.CREATED, path, found)
        elif (before.stat and before.stat.mzxid, before.error) != (found.stat and found.stat.mzxid, found.error):
            self._on_change(Change.CHANGED, path, found)

    def _on_children(self, path: str, reply: ChildrenReply) -> None:
        if not reply.is_lost and reply.names is not None:
            names = set(reply.names)
            before = self._names.get(path, set())
            self._names[path] = names
            for name in sorted(before - names):
                self._forget(_child(path, name))
            for name in sorted(names - before):
                self._look(_child(path, name))
        self._answered(reply.is_lost)

    def _forget(self, path: str) -> None:
        """Drops a znode that is gone, and everything below it. A later znode with this name is a new one."""
        if path != "/":
            self._names.get(parent_of(path), set()).discard(name_of(path))
        waiting, gone = [path], []
        while waiting:
            each = waiting.pop()
            gone.append(each)
            waiting += [_child(each, name) for name in self._names.pop(each, ())]
        for each in reversed(gone):
            found = self.seen.pop(each, None)
            if found is not None:
                self._on_change(Change.DELETED, each, found)
        if self._watch and path == self._root:
            self._await_root()

    def _await_root(self) -> None:
        """Watches the root while it does not exist."""
        self._awaited += 1
        self._store.exists(self._root, lambda reply: self._answered(reply.is_lost), watch=True)

    def _answered(self, is_lost: bool) -> None:
        self._is_lost = self._is_lost or is_lost
        self._awaited -= 1
        assert self._awaited >= 0, "each request is answered once"
        if self._awaited == 0 and not self._is_lost:
            self._on_settled()


def _child(path: str, name: str) -> str:
    return f"/{name}" if path == "/" else f"{path}/{name}"
