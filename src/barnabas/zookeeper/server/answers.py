"""Encodes answers: the header, then the body of the operation. Each function returns a whole frame or a body."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final

from barnabas.zookeeper.tree.database import TxnResult
from barnabas.zookeeper.tree.owners import is_session
from barnabas.zookeeper.tree.znode import Node, int32
from barnabas.zookeeper.wire.codes import NOTIFICATION_XID, EventType, OpCode
from barnabas.zookeeper.wire.records import Acl, Id, Stat

_HEADER: Final = struct.Struct(">iiqi")
_HEADER_BYTES: Final = 16
_INT: Final = struct.Struct(">i")
_STAT: Final = struct.Struct(">4q3iqiiq")
_EVENT: Final = struct.Struct(">iiqiiii")
_EVENT_BYTES: Final = 28
_CONNECT: Final = struct.Struct(">iiiqi")
_MULTI: Final = struct.Struct(">i?i")
_MULTI_END: Final = _MULTI.pack(-1, True, -1)

#: Writes whose answer begins with the path; that of a plain creation has no Stat.
_WITH_PATH: Final[frozenset[int]] = frozenset(
    {OpCode.CREATE, OpCode.CREATE2, OpCode.CREATE_TTL, OpCode.CREATE_CONTAINER}
)
#: The types of parts of a multi that are answered under another one.
_SHOWN_TYPES: Final[dict[int, int]] = {OpCode.CREATE_TTL: OpCode.CREATE2, OpCode.CREATE_CONTAINER: OpCode.CREATE2}

#: The state in an event: connected.
_SYNC_CONNECTED: Final = 3
NULL_BUFFER: Final = _INT.pack(-1)


def reply(xid: int, zxid: int, error: int, body: bytes = b"") -> bytes:
    return _HEADER.pack(_HEADER_BYTES + len(body), xid, zxid, error) + body


def event(kind: EventType, path: str) -> bytes:
    name = path.encode()
    size = _EVENT_BYTES + len(name)
    return _EVENT.pack(size, NOTIFICATION_XID, -1, 0, kind, _SYNC_CONNECTED, len(name)) + name


def connected(timeout_ms: int, session_id: int, password: bytes, has_read_only: bool) -> bytes:
    """Returns the answer to a connect request. A timeout of 0 means that the session does not exist."""
    size = _CONNECT.size - _INT.size + len(password) + has_read_only
    return _CONNECT.pack(size, 0, timeout_ms, session_id, len(password)) + password + b"\0" * has_read_only


def string(text: str) -> bytes:
    data = text.encode("utf-8", "surrogatepass")
    return _INT.pack(len(data)) + data


def strings(texts: Sequence[str] | dict[str, None]) -> bytes:
    return _INT.pack(len(texts)) + b"".join(map(string, texts))


def integer(value: int) -> bytes:
    return _INT.pack(value)


def buffer(data: bytes | None) -> bytes:
    return NULL_BUFFER if data is None else _INT.pack(len(data)) + data


def acl_list(acl: Iterable[Acl]) -> bytes:
    rows = [_INT.pack(each.perms) + string(each.id.scheme) + string(each.id.id) for each in acl]
    return _INT.pack(len(rows)) + b"".join(rows)


def identities(found: Iterable[Id]) -> bytes:
    """Returns the body of whoAmI: schemes and users, without the digests of passwords."""
    rows = [string(each.scheme) + string(_user_of(each)) for each in found]
    return _INT.pack(len(rows)) + b"".join(rows)


def _user_of(identity: Id) -> str:
    match identity.scheme:
        case "digest":
            return identity.id.partition(":")[0]
        case "ip":
            return identity.id
    return ""


def stat(values: Stat) -> bytes:
    return _STAT.pack(*values)


def stat_of(node: Node, extended_types: bool) -> bytes:
    """Returns the Stat of a node, as clients get it (`Node.stat`)."""
    data, children, owner = node.data, node.children, node.owner
    count = len(children) if children else 0
    return _STAT.pack(
        node.czxid,
        node.mzxid,
        node.ctime_ms,
        node.mtime_ms,
        node.version,
        node.cversion * 2 - count if -0x4000_0000 < node.cversion < 0x4000_0000 else int32(node.cversion * 2 - count),
        node.aversion,
        owner if owner and is_session(owner, extended_types) else 0,
        len(data) if data else 0,
        count,
        node.pzxid,
    )


def write_body(op: int, result: TxnResult) -> bytes:
    """Returns the body of the answer to a write that succeeded."""
    if op == OpCode.MULTI:
        return b"".join([*map(multi_part, result.parts), _MULTI_END])
    body = string(result.path or "") if op in _WITH_PATH else b""
    return body if result.stat is None else body + stat(result.stat)


def multi_part(part: TxnResult) -> bytes:
    """Returns one result of a multi: its type, and its body."""
    if part.type == OpCode.ERROR:
        return multi_error(part.error)
    return _MULTI.pack(_SHOWN_TYPES.get(part.type, part.type), False, 0) + write_body(part.type, part)


def multi_error(code: int) -> bytes:
    return _MULTI.pack(OpCode.ERROR, False, code) + _INT.pack(code)


def multi_read(op: int, body: bytes) -> bytes:
    return _MULTI.pack(op, False, 0) + body


def multi_end() -> bytes:
    return _MULTI_END
