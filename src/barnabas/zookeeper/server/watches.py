"""Watches: the connections that are notified of changes of a path, once or each time (`WatchManager`, and `DataTree`'s
two tables of them).

    data      of getData and exists: created, deleted, changed
    children  of getChildren: the node deleted, its children changed
    both      persistent and persistent recursive ones (addWatch); recursive ones get no change of children

A connection has one watch of a path in each table: a later one replaces its kind, as in 3.8. Only connections that can
read the node are notified. Events go into the order of the connection's answers when the change is applied.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Protocol

from barnabas.zookeeper.tree import acls
from barnabas.zookeeper.tree.data_tree import ROOT, DataTree
from barnabas.zookeeper.wire.codes import EventType
from barnabas.zookeeper.wire.records import Acl, Id
from barnabas.zookeeper.znode_paths import parent_of


class WatchMode(IntEnum):
    """The kinds of watches; the first two have the numbers of addWatch."""

    PERSISTENT = 0
    RECURSIVE = 1
    STANDARD = 2


class Listener(Protocol):
    """The interface of a connection that watches use."""

    @property
    def session_id(self) -> int: ...

    @property
    def identities(self) -> Sequence[Id]: ...

    def notify(self, event: EventType, path: str) -> None:
        """Sends an event."""


class WatchTable:
    """The watches of one kind, by path and by connection."""

    def __init__(self) -> None:
        self.by_path: dict[str, dict[Listener, WatchMode]] = {}
        self.by_listener: dict[Listener, dict[str, None]] = {}
        self._recursive = 0

    def __len__(self) -> int:
        return sum(map(len, self.by_path.values()))

    def add(self, path: str, listener: Listener, mode: WatchMode = WatchMode.STANDARD) -> None:
        listeners = self.by_path.setdefault(path, {})
        before = listeners.get(listener)
        self._recursive += (mode is WatchMode.RECURSIVE) - (before is WatchMode.RECURSIVE)
        listeners[listener] = mode
        self.by_listener.setdefault(listener, {})[path] = None

    def remove(self, path: str, listener: Listener) -> bool:
        """Removes a watch. Returns whether there was one."""
        listeners = self.by_path.get(path)
        if listeners is None or listener not in listeners:
            return False
        self._recursive -= listeners.pop(listener) is WatchMode.RECURSIVE
        if not listeners:
            del self.by_path[path]
        del self.by_listener[listener][path]
        return True

    def remove_all(self, listener: Listener) -> None:
        """Removes the watches of a connection that has closed."""
        for path in tuple(self.by_listener.get(listener, ())):
            self.remove(path, listener)
        self.by_listener.pop(listener, None)

    def contains(self, path: str, listener: Listener) -> bool:
        """Returns whether any connection watches the path: like 3.8, this accepts the watch of another connection."""
        return path in self.by_path

    def triggered(self, path: str, event: EventType) -> dict[Listener, None]:
        """Returns the listeners to notify, once each, and removes one-time watches."""
        if path not in self.by_path and not self._recursive:
            return {}
        notified: dict[Listener, None] = {}
        for listener, mode in tuple(self.by_path.get(path, {}).items()):
            if mode is WatchMode.RECURSIVE:
                if event is not EventType.NODE_CHILDREN_CHANGED:
                    notified[listener] = None
            else:
                notified[listener] = None
                if mode is WatchMode.STANDARD:
                    self.remove(path, listener)
        if self._recursive and event is not EventType.NODE_CHILDREN_CHANGED:
            for above in _parents(path):
                for listener, mode in self.by_path.get(above, {}).items():
                    if mode is WatchMode.RECURSIVE:
                        notified[listener] = None
        return notified


class Watches:
    """Both tables of watches, which the data tree notifies of its changes."""

    def __init__(self, tree: DataTree, skip_acl: bool) -> None:
        self._tree = tree
        self._skip_acl = skip_acl
        self.data = WatchTable()
        self.children = WatchTable()

    @property
    def count(self) -> int:
        return len(self.data) + len(self.children)

    # -- tree.data_tree.Watcher

    def created(self, path: str, acl: tuple[Acl, ...], parent: str, parent_acl: tuple[Acl, ...]) -> None:
        self._notify(self.data.triggered(path, EventType.NODE_CREATED), EventType.NODE_CREATED, path, acl)
        self._children_changed(parent, parent_acl)

    def deleted(self, path: str, acl: tuple[Acl, ...], parent: str, parent_acl: tuple[Acl, ...]) -> None:
        event = EventType.NODE_DELETED
        notified = self.data.triggered(path, event)
        self._notify(notified, event, path, acl)
        more = self.children.triggered(path, event)
        self._notify({each: None for each in more if each not in notified}, event, path, acl)
        self._children_changed(parent, parent_acl)

    def changed(self, path: str, acl: tuple[Acl, ...]) -> None:
        event = EventType.NODE_DATA_CHANGED
        self._notify(self.data.triggered(path, event), event, path, acl)

    def _children_changed(self, parent: str, acl: tuple[Acl, ...]) -> None:
        event = EventType.NODE_CHILDREN_CHANGED
        self._notify(self.children.triggered(parent, event), event, parent, acl)

    def _notify(self, notified: dict[Listener, None], event: EventType, path: str, acl: tuple[Acl, ...]) -> None:
        for listener in notified:
            if self._skip_acl or acls.is_allowed(acl, acls.READ, listener.identities):
                listener.notify(event, path)

    # -- of connections

    def add_persistent(self, path: str, listener: Listener, mode: WatchMode) -> None:
        self.data.add(path, listener, mode)
        self.children.add(path, listener, mode)

    def remove_all(self, listener: Listener) -> None:
        self.data.remove_all(listener)
        self.children.remove_all(listener)

    def set_data_watch(self, path: str, zxid: int, listener: Listener) -> None:
        """Sets a watch of getData again after a reconnect. If the node has changed since the zxid, the event is sent
        immediately instead.
        """
        node = self._tree.nodes.get(path or ROOT)
        if node is None:
            listener.notify(EventType.NODE_DELETED, path)
        elif node.mzxid > zxid:
            listener.notify(EventType.NODE_DATA_CHANGED, path)
        else:
            self.data.add(path, listener)

    def set_exists_watch(self, path: str, listener: Listener) -> None:
        """Sets a watch of exists on a missing node again."""
        if (path or ROOT) in self._tree.nodes:
            listener.notify(EventType.NODE_CREATED, path)
        else:
            self.data.add(path, listener)

    def set_child_watch(self, path: str, zxid: int, listener: Listener) -> None:
        """Sets a watch of getChildren again."""
        node = self._tree.nodes.get(path or ROOT)
        if node is None:
            listener.notify(EventType.NODE_DELETED, path)
        elif node.pzxid > zxid:
            listener.notify(EventType.NODE_CHILDREN_CHANGED, path)
        else:
            self.children.add(path, listener)


def _parents(path: str) -> Iterator[str]:
    while path != "/":
        path = parent_of(path)
        yield path
