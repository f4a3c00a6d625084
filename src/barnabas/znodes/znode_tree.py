"""A tree of znodes as it was read from ZooKeeper, below Kafka's chroot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Znode(NamedTuple):
    """A znode: its content, its data version, and the transaction that created it."""

    data: bytes | None
    version: int = 0
    czxid: int = 0


class ZnodeTree:
    """Znodes by path, with the names of the children of each. The root and parents need not be among the znodes."""

    __slots__ = ("_children", "znodes")

    def __init__(self, znodes: Mapping[str, Znode]) -> None:
        self.znodes = znodes
        names: dict[str, set[str]] = {}
        for path in znodes:
            while path != "/":
                parent, _, name = path.rpartition("/")
                parent = parent or "/"
                known = names.setdefault(parent, set())
                if name in known:
                    break
                known.add(name)
                path = parent
        self._children = {path: sorted(found) for path, found in names.items()}

    def children(self, path: str) -> list[str]:
        """Returns the names of the children, sorted; none for a path that does not exist."""
        return self._children.get(path, [])

    def get(self, path: str) -> Znode | None:
        return self.znodes.get(path)

    def data(self, path: str) -> bytes | None:
        """Returns the content, or None for a znode that does not exist."""
        znode = self.znodes.get(path)
        return znode.data if znode is not None else None
