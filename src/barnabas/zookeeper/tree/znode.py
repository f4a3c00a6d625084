"""A node of the tree, with the fields of ZooKeeper's `StatPersisted`, its Stat on the wire, and its digest."""

from __future__ import annotations

import struct
import zlib
from typing import Final

from barnabas.zookeeper.tree.owners import is_session
from barnabas.zookeeper.wire.records import Acl, Stat

_DIGESTED: Final = struct.Struct(">5q3iq")
#: Nodes below this path have no digest: the figures of quotas change without a transaction.
UNDIGESTED: Final = "/zookeeper/"

_MASK_64: Final = (1 << 64) - 1


def int32(value: int) -> int:
    """Returns the value as a signed 32-bit integer; versions overflow as in Java."""
    return (value + 0x8000_0000 & 0xFFFF_FFFF) - 0x8000_0000


def int64(value: int) -> int:
    """Returns the value as a signed 64-bit integer."""
    value &= _MASK_64
    return value - (1 << 64) if value >> 63 else value


class Node:
    """A znode. `cversion` counts the creations of children; the Stat shows creations and deletions (`Node.stat`)."""

    __slots__ = (
        "acl",
        "aversion",
        "children",
        "ctime_ms",
        "cversion",
        "czxid",
        "data",
        "digest",
        "mtime_ms",
        "mzxid",
        "owner",
        "pzxid",
        "version",
    )

    def __init__(self, data: bytes | None, acl: tuple[Acl, ...], owner: int, zxid: int, time_ms: int) -> None:
        self.data = data
        self.acl = acl
        #: The session of an ephemeral node, or a mark of `tree.owners`.
        self.owner = owner
        self.czxid = self.mzxid = self.pzxid = zxid
        self.ctime_ms = self.mtime_ms = time_ms
        self.version = self.cversion = self.aversion = 0
        #: The names of the children, in the order of their creation; None if there are none.
        self.children: dict[str, None] | None = None
        #: The node's part of the tree's digest; None if it has changed.
        self.digest: int | None = None

    def copy(self) -> Node:
        """Returns a node with the same fields and without children."""
        twin = Node.__new__(Node)
        twin.data = self.data
        twin.acl = self.acl
        twin.owner = self.owner
        twin.czxid = self.czxid
        twin.mzxid = self.mzxid
        twin.pzxid = self.pzxid
        twin.ctime_ms = self.ctime_ms
        twin.mtime_ms = self.mtime_ms
        twin.version = self.version
        twin.cversion = self.cversion
        twin.aversion = self.aversion
        twin.children = None
        twin.digest = self.digest
        return twin

    def stat(self, extended_types: bool) -> Stat:
        """Returns the Stat as clients see it: `cversion` counts the creations and deletions of children, and container
        and TTL nodes have no owner.
        """
        data, children = self.data, self.children
        count = len(children) if children else 0
        owner = self.owner
        return Stat(
            self.czxid,
            self.mzxid,
            self.ctime_ms,
            self.mtime_ms,
            self.version,
            int32(self.cversion * 2 - count),
            self.aversion,
            owner if owner and is_session(owner, extended_types) else 0,
            len(data) if data else 0,
            count,
            self.pzxid,
        )


def digest_of(path: str, node: Node) -> int:
    """Returns the node's part of the tree's digest: the CRC-32 of path, data and fields (`DigestCalculator`, version
    2); 0 below `/zookeeper`.
    """
    if path.startswith(UNDIGESTED):
        return 0
    crc = zlib.crc32(b"" if path == "/" else path.encode())
    if node.data:
        crc = zlib.crc32(node.data, crc)
    fields = _DIGESTED.pack(
        node.czxid,
        node.mzxid,
        node.pzxid,
        node.ctime_ms,
        node.mtime_ms,
        node.version,
        node.cversion,
        node.aversion,
        node.owner,
    )
    return zlib.crc32(fields, crc)
