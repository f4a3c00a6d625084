"""The format of a snapshot: sessions, ACLs, nodes, and the digest of the tree, under Adler-32 checksums.

    header     magic "ZKSN" (4) | version 2 (4) | database id -1 (8)
    sessions   count (4) | per session: id (8), timeout in ms (4)
    ACLs       count (4) | per ACL: number (8), count of entries (4), per entry: permissions (4), scheme, id
    nodes      per node: path | data | number of its ACL (8) | StatPersisted (60); the path "/" ends them
    seal       Adler-32 of all bytes before it (8) | "/"
    digest     zxid (8) | version 2 (4) | digest (8), then a second seal; since ZooKeeper 3.6

The root has the path "". Strings and data are preceded by their length (4), -1 for null. ACL number -1 is
`world:anyone` with all permissions. All numbers are big-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple
from zlib import adler32

from barnabas.common.errors import DecodeError
from barnabas.zookeeper.jute import INT, LONG, FieldReader, put_buffer, put_string
from barnabas.zookeeper.tree.znode import Node
from barnabas.zookeeper.wire.records import OPEN_ACL, Acl, Id, put_acl, read_acl

SNAPSHOT_MAGIC: Final = b"ZKSN"
DIGEST_VERSION: Final = 2
_HEADER: Final = struct.Struct(">4siq")
_SESSION: Final = struct.Struct(">qi")
#: The number of the ACL, then czxid, mzxid, ctime, mtime, version, cversion, aversion, owner, pzxid.
_FIELDS: Final = struct.Struct(">qqqqqiiiqq")
_SEAL: Final = struct.Struct(">qis")
_DIGEST: Final = struct.Struct(">qiq")
_OPEN_ACL_NUMBER: Final = -1
#: The number of an ACL that was set while the snapshot was written and is not in its list; the log sets it again.
_UNKNOWN_ACL: Final = (Acl(0, Id("world", "anyone")),)


class SnapshotDigest(NamedTuple):
    """The digest of the tree after the transaction `zxid`."""

    zxid: int
    version: int
    digest: int


class Snapshot(NamedTuple):
    """The content of a snapshot: timeouts (ms) by session, the nodes with parents before children."""

    sessions: dict[int, int]
    nodes: list[tuple[str, Node]]
    digest: SnapshotDigest | None


class AclNumbers:
    """Numbers the different ACLs of a snapshot."""

    __slots__ = ("_numbers",)

    def __init__(self) -> None:
        self._numbers: dict[tuple[Acl, ...], int] = {OPEN_ACL: _OPEN_ACL_NUMBER}

    def add(self, acl: tuple[Acl, ...]) -> None:
        if acl not in self._numbers:
            self._numbers[acl] = len(self._numbers)

    def number_of(self, acl: tuple[Acl, ...]) -> int:
        """Returns the number of an ACL. An ACL that was not added is newer than the snapshot: it gets the number of the
        open ACL, and the replay of the log sets it again.
        """
        return self._numbers.get(acl, _OPEN_ACL_NUMBER)

    def encoded(self) -> bytes:
        out = bytearray(INT.pack(len(self._numbers) - 1))
        for acl, number in self._numbers.items():
            if number != _OPEN_ACL_NUMBER:
                out += LONG.pack(number)
                put_acl(out, acl)
        return bytes(out)


def encode_head(sessions: Mapping[int, int], acls: AclNumbers) -> bytes:
    """Returns the part of a snapshot before the nodes."""
    out = bytearray(_HEADER.pack(SNAPSHOT_MAGIC, 2, -1))
    out += INT.pack(len(sessions))
    for session_id, timeout_ms in sessions.items():
        out += _SESSION.pack(session_id, timeout_ms)
    return bytes(out + acls.encoded())


def encode_nodes(nodes: Iterable[tuple[str, Node]], acls: AclNumbers) -> bytes:
    out = bytearray()
    number_of = acls.number_of
    for path, node in nodes:
        put_string(out, "" if path == "/" else path)
        put_buffer(out, node.data)
        out += _FIELDS.pack(
            number_of(node.acl),
            node.czxid,
            node.mzxid,
            node.ctime_ms,
            node.mtime_ms,
            node.version,
            node.cversion,
            node.aversion,
            node.owner,
            node.pzxid,
        )
    return bytes(out)


#: The path that follows the last node.
END_OF_NODES: Final = INT.pack(1) + b"/"


def encode_seal(checksum: int) -> bytes:
    """Returns a seal with the Adler-32 checksum of all bytes before it."""
    return _SEAL.pack(checksum, 1, b"/")


def encode_digest(digest: SnapshotDigest | None) -> bytes:
    return _DIGEST.pack(*(digest or SnapshotDigest(0, DIGEST_VERSION, 0)))


def seal_problem(data: bytes) -> str | None:
    """Returns why the bytes are not a complete snapshot, judged by their header and last seal; None if they are."""
    if len(data) < _HEADER.size + _SEAL.size:
        return f"it has only {len(data)} bytes"
    magic, version, _ = _HEADER.unpack_from(data)
    if magic != SNAPSHOT_MAGIC:
        return f"it begins with {magic!r} instead of {SNAPSHOT_MAGIC!r}"
    if version != 2:
        return f"its format has version {version}; only version 2 is supported"
    content = len(data) - _SEAL.size
    checksum, length, path = _SEAL.unpack_from(data, content)
    if length != 1 or path != b"/":
        return "it has no seal at its end: it was not written completely"
    if adler32(memoryview(data)[:content]) != checksum:
        return "its checksum does not match"
    return None


def decode_snapshot(data: bytes, zxid: int) -> Snapshot:
    """Decodes the snapshot of this zxid. Raises DecodeError if it is damaged.

    Nodes that were created later, while it was written, are left out: the log creates them again.
    """
    problem = seal_problem(data)
    if problem is not None:
        raise DecodeError(problem, 0)
    reader = FieldReader(data, _HEADER.size)
    sessions: dict[int, int] = {}
    for _ in range(reader.read_int()):
        session_id, timeout_ms = reader.fields(_SESSION)
        sessions[session_id] = timeout_ms
    acls = _decode_acls(reader)
    nodes = [(path, node) for path, node in _decode_nodes(reader, acls) if node.czxid <= zxid]
    reader.fields(_SEAL)
    return Snapshot(sessions, nodes, _decode_digest(reader))


def _decode_acls(reader: FieldReader) -> dict[int, tuple[Acl, ...]]:
    acls: dict[int, tuple[Acl, ...]] = {_OPEN_ACL_NUMBER: OPEN_ACL}
    for _ in range(reader.read_int()):
        number = reader.read_long()
        acls[number] = read_acl(reader) or ()
    return acls


def _decode_nodes(reader: FieldReader, acls: Mapping[int, tuple[Acl, ...]]) -> Iterator[tuple[str, Node]]:
    while (path := reader.read_string()) != "/":
        data = reader.read_buffer()
        number, czxid, mzxid, ctime, mtime, version, cversion, aversion, owner, pzxid = reader.fields(_FIELDS)
        node = Node(data, acls.get(number, _UNKNOWN_ACL), owner, czxid, ctime)
        node.mzxid, node.pzxid, node.mtime_ms = mzxid, pzxid, mtime
        node.version, node.cversion, node.aversion = version, cversion, aversion
        yield path or "/", node


def _decode_digest(reader: FieldReader) -> SnapshotDigest | None:
    if reader.is_at_end:
        return None
    zxid, version = reader.fields(_SESSION)
    if version < DIGEST_VERSION:
        # Version 1 was written as text by the first releases of 3.6; it covers other fields of the nodes.
        reader.read_string()
        return None
    digest = reader.read_long()
    reader.fields(_SEAL)
    return SnapshotDigest(zxid, version, digest) if zxid > 0 else None
