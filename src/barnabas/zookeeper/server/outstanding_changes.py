"""The changes of accepted transactions that are not applied yet; the next request is checked against them
(`outstandingChanges`).
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from barnabas.zookeeper.tree.data_tree import DataTree
from barnabas.zookeeper.tree.znode import Node, digest_of, int64
from barnabas.zookeeper.wire.codes import ErrorCode


class RequestError(Exception):
    """The error for a request that is refused, with the error code of its answer."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


class Change:
    """A node as it will be after a transaction; `node` is None if it will be deleted."""

    __slots__ = ("_previous", "child_count", "node", "path", "zxid")

    def __init__(self, zxid: int, path: str, node: Node | None, child_count: int, previous: Change | None) -> None:
        self.zxid = zxid
        self.path = path
        self.node = node
        self.child_count = child_count
        self._previous = previous

    @property
    def previous(self) -> Change | None:
        return self._previous


class Mark(NamedTuple):
    """A point to which `rollback` returns."""

    length: int
    digest: int


class OutstandingChanges:
    """The changes by path, on top of the tree. `digest` is the digest of the tree after all of them."""

    def __init__(self, tree: DataTree, digests: bool) -> None:
        self._tree = tree
        self._digests = digests
        self._queue: deque[Change] = deque()
        self._by_path: dict[str, Change] = {}
        self._digest = 0

    @property
    def digest(self) -> int:
        return self._digest if self._queue else self._tree.digest

    def get(self, path: str) -> tuple[Node, int] | None:
        """Returns a node, not to be changed, and the number of its children; None if there is none."""
        change = self._by_path.get(path)
        if change is not None:
            return None if change.node is None else (change.node, change.child_count)
        node = self._tree.nodes.get(path)
        return None if node is None else (node, len(node.children) if node.children else 0)

    def require(self, path: str) -> tuple[Node, int]:
        """Returns a node and the number of its children, as `get` does. Raises RequestError (NO_NODE)."""
        found = self.get(path)
        if found is None:
            raise RequestError(ErrorCode.NO_NODE)
        return found

    def ephemerals(self, session_id: int) -> dict[str, None]:
        """Returns the paths of the session's ephemeral nodes after all changes."""
        paths = dict(self._tree.ephemerals.get(session_id, ()))
        for change in self._queue:
            if change.node is None:
                paths.pop(change.path, None)
            elif change.node.owner == session_id:
                paths[change.path] = None
        return paths

    def put(self, zxid: int, path: str, node: Node | None, child_count: int) -> None:
        """Adds a change. `node` is a copy for this change; None stands for a deletion."""
        if self._digests:
            before = self.get(path)
            digest = self.digest
            if before is not None:
                digest -= digest_of(path, before[0]) if before[0].digest is None else before[0].digest
            if node is not None:
                node.digest = digest_of(path, node)
                digest += node.digest
            self._digest = int64(digest)
        change = Change(zxid, path, node, child_count, self._by_path.get(path))
        self._queue.append(change)
        self._by_path[path] = change

    def applied(self, zxid: int) -> None:
        """Drops the changes that the tree contains now."""
        queue, by_path = self._queue, self._by_path
        while queue and queue[0].zxid <= zxid:
            change = queue.popleft()
            if by_path.get(change.path) is change:
                del by_path[change.path]

    def mark(self) -> Mark:
        return Mark(len(self._queue), self._digest)

    def rollback(self, mark: Mark) -> None:
        """Drops the changes since the mark, all of which are of one transaction that failed."""
        while len(self._queue) > mark.length:
            change = self._queue.pop()
            if change.previous is None:
                del self._by_path[change.path]
            else:
                self._by_path[change.path] = change.previous
        self._digest = mark.digest
