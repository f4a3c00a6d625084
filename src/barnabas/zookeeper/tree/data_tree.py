"""The data tree: all nodes by path, and the effects of transactions on them. Equal transactions result in equal trees.

Each method also accepts a transaction whose effect the tree contains already, because a snapshot that was written while
the tree changed is followed by such ones: a node that exists is not created again, a missing one is not deleted. The
order of the transactions is that of their zxids. Sessions are in `database.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, Protocol

from barnabas.zookeeper.tree.owners import CONTAINER_OWNER, is_session
from barnabas.zookeeper.tree.tree_quotas import LIMITS, QUOTA_ROOT, STATS, QuotaPaths, StatsTrack, stats_path
from barnabas.zookeeper.tree.znode import Node, digest_of, int32, int64
from barnabas.zookeeper.wire.codes import ErrorCode
from barnabas.zookeeper.wire.records import OPEN_ACL, READ_ACL, Acl, Stat
from barnabas.zookeeper.znode_paths import name_of, parent_of

#: The root; read requests can also name it "".
ROOT: Final = "/"
ZOOKEEPER: Final = "/zookeeper"
CONFIG: Final = "/zookeeper/config"
#: Nodes that always exist and cannot be deleted.
SPECIAL_PATHS: Final = frozenset({ROOT, ZOOKEEPER, QUOTA_ROOT, CONFIG})


class Watcher(Protocol):
    """Receives changes when they are applied, in ZooKeeper's order of events."""

    def created(self, path: str, acl: tuple[Acl, ...], parent: str, parent_acl: tuple[Acl, ...]) -> None: ...

    def deleted(self, path: str, acl: tuple[Acl, ...], parent: str, parent_acl: tuple[Acl, ...]) -> None: ...

    def changed(self, path: str, acl: tuple[Acl, ...]) -> None: ...


class TxnError(Exception):
    """A transaction that the tree cannot apply, with its error code."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


class _Counts(NamedTuple):
    nodes: int
    size: int


class DataTree:
    """All znodes. Only `Database.apply` and the methods below it change them."""

    def __init__(self, extended_types: bool = False, digests: bool = True) -> None:
        self.nodes: dict[str, Node] = {}
        self.extended_types = extended_types
        self._digests = digests
        #: The paths of ephemeral nodes by their session.
        self.ephemerals: dict[int, dict[str, None]] = {}
        self.containers: dict[str, None] = {}
        self.ttl_nodes: dict[str, None] = {}
        self.quotas = QuotaPaths()
        #: The sum of the nodes' digests, 64 bits, signed.
        self.digest = 0
        #: The lengths of all paths and data.
        self.data_bytes = 0
        self.watcher: Watcher | None = None
        for path, acl in ((ROOT, OPEN_ACL), (ZOOKEEPER, OPEN_ACL), (QUOTA_ROOT, OPEN_ACL), (CONFIG, READ_ACL)):
            self._put(path, Node(b"", acl, 0, 0, 0))
        self.nodes[CONFIG].aversion = -1  # The initial value in Apache ZooKeeper.

    @classmethod
    def restored(
        cls, nodes: Iterable[tuple[str, Node]], extended_types: bool = False, digests: bool = True
    ) -> DataTree:
        """Returns a tree of these nodes, parents before their children, as `walk` yields them. Raises ValueError if a
        node's parent is missing.
        """
        tree = cls(extended_types, digests)
        shared: dict[tuple[Acl, ...], tuple[Acl, ...]] = {OPEN_ACL: OPEN_ACL}
        for path, node in nodes:
            node.acl = shared.setdefault(node.acl, node.acl)
            tree._put(path, node)
        tree._set_up_quotas()
        return tree

    def walk(self, path: str = "/") -> Iterator[tuple[str, Node]]:
        """Yields the nodes below a path and the node itself, parents before their children. The tree can change
        meanwhile: a node that was deleted is left out with its children.
        """
        waiting = [path]
        while waiting:
            path = waiting.pop()
            node = self.nodes.get(path)
            if node is not None:
                yield path, node
                if node.children:
                    prefix = "" if path == "/" else path
                    waiting += [f"{prefix}/{name}" for name in reversed(node.children)]

    @property
    def node_count(self) -> int:
        """Returns the number of nodes as ZooKeeper counts them, with the root counted twice because it has two
        names.
        """
        return len(self.nodes) + 1

    @property
    def ephemeral_count(self) -> int:
        return sum(map(len, self.ephemerals.values()))

    def count_below(self, path: str) -> int:
        """Returns the number of nodes below a path. The root also counts as a node below its name ""."""
        if path in ("", ROOT):
            return len(self.nodes) - len(path)
        return sum(1 for _ in self.walk(path)) - 1 if path in self.nodes else 0

    # -- effects of transactions

    def create(
        self,
        path: str,
        data: bytes | None,
        acl: tuple[Acl, ...] | None,
        owner: int,
        cversion: int,
        zxid: int,
        time_ms: int,
    ) -> Node:
        """Creates a node. `cversion` is the parent's count of creations afterwards; -1 adds one. Raises TxnError
        (NO_NODE without a parent; NODE_EXISTS, after the parent's count was set).
        """
        parent_path = parent_of(path)
        parent = self.nodes.get(parent_path)
        if parent is None:
            raise TxnError(ErrorCode.NO_NODE)
        if cversion == -1:
            cversion = int32(parent.cversion + 1)
        if cversion > parent.cversion:
            self._before_change(parent_path, parent)
            parent.cversion = cversion
            parent.pzxid = zxid
            self._after_change(parent_path, parent)
        if path in self.nodes:
            raise TxnError(ErrorCode.NODE_EXISTS)
        node = Node(data, OPEN_ACL if acl is None or acl == OPEN_ACL else acl, owner, zxid, time_ms)
        self._put(path, node)
        if parent_path.startswith(QUOTA_ROOT):
            self._on_quota_created(parent_path, name_of(path))
        self._count_in_quota(path, len(data) if data else 0, 1)
        if self.watcher is not None:
            self.watcher.created(path, node.acl, parent_path, parent.acl)
        return node

    def delete(self, path: str, zxid: int) -> None:
        """Deletes a node. Raises TxnError (NO_NODE)."""
        parent_path = parent_of(path)
        parent = self.nodes.get(parent_path)
        if parent is None:
            raise TxnError(ErrorCode.NO_NODE)
        if zxid > parent.pzxid:
            self._before_change(parent_path, parent)
            parent.pzxid = zxid
            self._after_change(parent_path, parent)
        node = self.nodes.get(path)
        if node is None:
            raise TxnError(ErrorCode.NO_NODE)
        name = name_of(path)
        self._remove(path, name, node, parent)
        if name == LIMITS and parent_path.startswith(QUOTA_ROOT):
            self.quotas.remove(parent_path[len(QUOTA_ROOT) :])
        self._count_in_quota(path, -(len(node.data) if node.data else 0), -1)
        if self.watcher is not None:
            self.watcher.deleted(path, node.acl, parent_path, parent.acl)

    def set_data(self, path: str, data: bytes | None, version: int, zxid: int, time: int) -> Stat:
        """Replaces the data. Raises TxnError (NO_NODE)."""
        node = self.nodes.get(path)
        if node is None:
            raise TxnError(ErrorCode.NO_NODE)
        difference = (len(data) if data else 0) - (len(node.data) if node.data else 0)
        self._before_change(path, node)
        node.data = data
        node.mtime_ms = time
        node.mzxid = zxid
        node.version = version
        self._after_change(path, node)
        stat = node.stat(self.extended_types)
        self.data_bytes += difference
        self._count_in_quota(path, difference, 0)
        if self.watcher is not None:
            self.watcher.changed(path, node.acl)
        return stat

    def set_acl(self, path: str, acl: tuple[Acl, ...] | None, version: int) -> Stat:
        """Replaces the ACL. Raises TxnError (NO_NODE)."""
        node = self.nodes.get(path)
        if node is None:
            raise TxnError(ErrorCode.NO_NODE)
        self._before_change(path, node)
        node.acl = OPEN_ACL if acl is None or acl == OPEN_ACL else acl
        node.aversion = version
        self._after_change(path, node)
        return node.stat(self.extended_types)

    def close_session(self, session_id: int, paths: tuple[str, ...] | None, zxid: int) -> None:
        """Deletes the ephemeral nodes of a session: those of its transaction, then any others that it owns."""
        owned = self.ephemerals.pop(session_id, {})
        for path in (*(paths or ()), *owned):
            if path in self.nodes:
                self.delete(path, zxid)

    # -- bookkeeping

    def _put(self, path: str, node: Node) -> None:
        if path != "/":
            parent = self.nodes.get(parent_of(path))
            if parent is None:
                raise ValueError(f"{path} has no parent")
            if parent.children is None:
                parent.children = {}
            parent.children[name_of(path)] = None
        before = self.nodes.get(path)
        if before is not None:
            self._before_change(path, before)
            self.data_bytes -= len(path) + len(before.data or b"")
            node.children = before.children
        self.nodes[path] = node
        self._after_change(path, node)
        self.data_bytes += len(path) + len(node.data or b"")
        owner = node.owner
        if owner:
            if owner == CONTAINER_OWNER:
                self.containers[path] = None
            elif is_session(owner, self.extended_types):
                self.ephemerals.setdefault(owner, {})[path] = None
            else:
                self.ttl_nodes[path] = None

    def _remove(self, path: str, name: str, node: Node, parent: Node) -> None:
        assert parent.children is not None
        del parent.children[name]
        self._before_change(path, node)
        del self.nodes[path]
        self.data_bytes -= len(path) + len(node.data or b"")
        owner = node.owner
        if owner:
            if owner == CONTAINER_OWNER:
                del self.containers[path]
            elif not is_session(owner, self.extended_types):
                del self.ttl_nodes[path]
            elif (paths := self.ephemerals.get(owner)) is not None:
                paths.pop(path, None)
                if not paths:
                    del self.ephemerals[owner]

    def _before_change(self, path: str, node: Node) -> None:
        if self._digests:
            self.digest = int64(self.digest - (digest_of(path, node) if node.digest is None else node.digest))

    def _after_change(self, path: str, node: Node) -> None:
        if self._digests:
            node.digest = digest_of(path, node)
            self.digest = int64(self.digest + node.digest)

    # -- quotas

    def _on_quota_created(self, parent_path: str, name: str) -> None:
        path = parent_path[len(QUOTA_ROOT) :]
        if path and name == LIMITS:
            self.quotas.add(path)
        elif path and name == STATS:
            self._count_again(path)

    def _count_again(self, path: str) -> None:
        """Writes the counts of a subtree into its quota node, without changing the node's Stat."""
        node = self.nodes.get(stats_path(path))
        if node is not None:
            nodes = size = 0
            for _, each in self.walk(path):
                nodes += 1
                size += len(each.data) if each.data else 0
            node.data = StatsTrack().with_figures(nodes, size).encode()

    def _count_in_quota(self, path: str, size: int, nodes: int) -> None:
        prefix = self.quotas.longest_prefix(path)
        node = self.nodes.get(stats_path(prefix)) if prefix is not None else None
        if node is not None:
            try:
                figures = StatsTrack(node.data)
            except ValueError:
                return  # A client has overwritten the statistics with other data.
            node.data = figures.with_figures(figures.count + nodes, figures.size + size).encode()

    def _set_up_quotas(self) -> None:
        ending = "/" + LIMITS
        for path in [path for path, node in self.walk(QUOTA_ROOT) if path.endswith(ending) and not node.children]:
            limited = path[len(QUOTA_ROOT) : -len(ending)]
            if limited:
                self._count_again(limited)
                self.quotas.add(limited)
