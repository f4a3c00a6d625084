"""The records of requests and responses, as named tuples, and their encoding.

`LAYOUTS` lists the fields of each record in the order of `zookeeper.jute`; `put` and `read` follow it. Records without
fields are not listed: such a request or response has no body.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

from barnabas.zookeeper import jute
from barnabas.zookeeper.jute import FieldReader

R = TypeVar("R", bound=tuple[Any, ...])


class Id(NamedTuple):
    scheme: str
    id: str


class Acl(NamedTuple):
    perms: int
    id: Id


class Stat(NamedTuple):
    czxid: int
    mzxid: int
    ctime: int
    mtime: int
    version: int
    cversion: int
    aversion: int
    ephemeral_owner: int
    data_length: int
    num_children: int
    pzxid: int


OPEN_ACL: Final = (Acl(31, Id("world", "anyone")),)
READ_ACL: Final = (Acl(1, Id("world", "anyone")),)
#: The ACL that gives all permissions to the creator of the node, as authenticated.
CREATOR_ALL_ACL: Final = (Acl(31, Id("auth", "")),)


class ConnectRequest(NamedTuple):
    """The first frame of a client. `read_only` is a byte; it is None for clients before 3.4, which do not send it."""

    protocol_version: int
    last_zxid_seen: int
    timeout_ms: int
    session_id: int
    password: bytes | None
    read_only: bool | None = False


class ConnectResponse(NamedTuple):
    """The first frame of a server; a timeout of 0 refuses the session. `read_only` is sent to clients that sent it."""

    protocol_version: int
    timeout_ms: int
    session_id: int
    password: bytes | None
    read_only: bool | None = False


class RequestHeader(NamedTuple):
    xid: int
    type: int


class ReplyHeader(NamedTuple):
    xid: int
    zxid: int
    error: int


class MultiHeader(NamedTuple):
    type: int
    done: bool
    error: int


class AuthPacket(NamedTuple):
    type: int
    scheme: str
    auth: bytes | None


class WatcherEvent(NamedTuple):
    type: int
    state: int
    path: str


class CreateRequest(NamedTuple):
    path: str
    data: bytes | None
    acl: tuple[Acl, ...] | None
    flags: int


class CreateTtlRequest(NamedTuple):
    path: str
    data: bytes | None
    acl: tuple[Acl, ...] | None
    flags: int
    ttl_ms: int


class DeleteRequest(NamedTuple):
    path: str
    version: int


class PathRequest(NamedTuple):
    """The request of getACL, sync, getAllChildrenNumber, getEphemerals and deleteContainer."""

    path: str


class WatchedRequest(NamedTuple):
    """The request of exists, getData, getChildren and getChildren2."""

    path: str
    watch: bool


class SetDataRequest(NamedTuple):
    path: str
    data: bytes | None
    version: int


class SetAclRequest(NamedTuple):
    path: str
    acl: tuple[Acl, ...] | None
    version: int


class CheckVersionRequest(NamedTuple):
    path: str
    version: int


class SetWatchesRequest(NamedTuple):
    relative_zxid: int
    data: tuple[str, ...] | None
    exists: tuple[str, ...] | None
    children: tuple[str, ...] | None


class SetWatches2Request(NamedTuple):
    relative_zxid: int
    data: tuple[str, ...] | None
    exists: tuple[str, ...] | None
    children: tuple[str, ...] | None
    persistent: tuple[str, ...] | None
    persistent_recursive: tuple[str, ...] | None


class WatchesRequest(NamedTuple):
    """The request of checkWatches and removeWatches; `type` is a `WatcherType`."""

    path: str
    type: int


class AddWatchRequest(NamedTuple):
    path: str
    mode: int


class ReconfigRequest(NamedTuple):
    joining_servers: str | None
    leaving_servers: str | None
    new_members: str | None
    current_config_id: int


class SaslRequest(NamedTuple):
    token: bytes | None


class StatResponse(NamedTuple):
    """The response of exists, setData and setACL."""

    stat: Stat


class PathResponse(NamedTuple):
    """The response of create and sync."""

    path: str


class Create2Response(NamedTuple):
    path: str
    stat: Stat


class DataResponse(NamedTuple):
    data: bytes | None
    stat: Stat


class AclResponse(NamedTuple):
    acl: tuple[Acl, ...] | None
    stat: Stat


class NamesResponse(NamedTuple):
    """The response of getChildren and getEphemerals."""

    names: tuple[str, ...] | None


class Children2Response(NamedTuple):
    names: tuple[str, ...] | None
    stat: Stat


class CountResponse(NamedTuple):
    """The response of getAllChildrenNumber."""

    total: int


class ErrorResponse(NamedTuple):
    """The result of an operation of a multi that failed."""

    error: int


class ClientInfo(NamedTuple):
    auth_scheme: str
    user: str


class WhoAmIResponse(NamedTuple):
    clients: tuple[ClientInfo, ...] | None


class SaslResponse(NamedTuple):
    token: bytes | None


class Kind(NamedTuple):
    """The writer and the reader of one kind of field."""

    put: Callable[[bytearray, Any], None]
    read: Callable[[FieldReader], Any]


_STAT: Final = struct.Struct(">qqqqiiiqiiq")
#: The smallest size of an ACL entry: permissions and two empty strings.
_ACL_BYTES_MIN: Final = 12
_STRING_BYTES_MIN: Final = 4
_CLIENT_BYTES_MIN: Final = 8


def put_acl(out: bytearray, acl: tuple[Acl, ...] | None) -> None:
    jute.put_list(out, acl, _put_acl_entry)


def _put_acl_entry(out: bytearray, entry: Acl) -> None:
    jute.put_int(out, entry.perms)
    jute.put_string(out, entry.id.scheme)
    jute.put_string(out, entry.id.id)


def read_acl(reader: FieldReader) -> tuple[Acl, ...] | None:
    return reader.read_list(
        _ACL_BYTES_MIN, lambda: Acl(reader.read_int(), Id(reader.read_string(), reader.read_string()))
    )


def put_stat(out: bytearray, stat: Stat) -> None:
    out += _STAT.pack(*stat)


def read_stat(reader: FieldReader) -> Stat:
    return Stat(*reader.fields(_STAT))


def _put_strings(out: bytearray, names: tuple[str, ...] | None) -> None:
    jute.put_list(out, names, jute.put_string)


def _read_strings(reader: FieldReader) -> tuple[str, ...] | None:
    return reader.read_list(_STRING_BYTES_MIN, reader.read_string)


def _put_clients(out: bytearray, clients: tuple[ClientInfo, ...] | None) -> None:
    jute.put_list(out, clients, put)


def _read_clients(reader: FieldReader) -> tuple[ClientInfo, ...] | None:
    return reader.read_list(_CLIENT_BYTES_MIN, lambda: ClientInfo(reader.read_string(), reader.read_string()))


def _put_trailing_bool(out: bytearray, value: bool | None) -> None:
    if value is not None:
        jute.put_bool(out, value)


def _read_trailing_bool(reader: FieldReader) -> bool | None:
    return None if reader.is_at_end else reader.read_bool()


INT: Final = Kind(jute.put_int, FieldReader.read_int)
LONG: Final = Kind(jute.put_long, FieldReader.read_long)
BOOL: Final = Kind(jute.put_bool, FieldReader.read_bool)
STRING: Final = Kind(jute.put_string, FieldReader.read_string)
NULLABLE_STRING: Final = Kind(jute.put_string, FieldReader.read_nullable_string)
BUFFER: Final = Kind(jute.put_buffer, FieldReader.read_buffer)
ACL: Final = Kind(put_acl, read_acl)
STAT: Final = Kind(put_stat, read_stat)
STRINGS: Final = Kind(_put_strings, _read_strings)
CLIENTS: Final = Kind(_put_clients, _read_clients)
TRAILING_BOOL: Final = Kind(_put_trailing_bool, _read_trailing_bool)

LAYOUTS: Final[dict[type[tuple[Any, ...]], tuple[Kind, ...]]] = {
    ConnectRequest: (INT, LONG, INT, LONG, BUFFER, TRAILING_BOOL),
    ConnectResponse: (INT, INT, LONG, BUFFER, TRAILING_BOOL),
    RequestHeader: (INT, INT),
    ReplyHeader: (INT, LONG, INT),
    MultiHeader: (INT, BOOL, INT),
    AuthPacket: (INT, STRING, BUFFER),
    WatcherEvent: (INT, INT, STRING),
    CreateRequest: (STRING, BUFFER, ACL, INT),
    CreateTtlRequest: (STRING, BUFFER, ACL, INT, LONG),
    DeleteRequest: (STRING, INT),
    PathRequest: (STRING,),
    WatchedRequest: (STRING, BOOL),
    SetDataRequest: (STRING, BUFFER, INT),
    SetAclRequest: (STRING, ACL, INT),
    CheckVersionRequest: (STRING, INT),
    SetWatchesRequest: (LONG, STRINGS, STRINGS, STRINGS),
    SetWatches2Request: (LONG, STRINGS, STRINGS, STRINGS, STRINGS, STRINGS),
    WatchesRequest: (STRING, INT),
    AddWatchRequest: (STRING, INT),
    ReconfigRequest: (NULLABLE_STRING, NULLABLE_STRING, NULLABLE_STRING, LONG),
    SaslRequest: (BUFFER,),
    StatResponse: (STAT,),
    PathResponse: (STRING,),
    Create2Response: (STRING, STAT),
    DataResponse: (BUFFER, STAT),
    AclResponse: (ACL, STAT),
    NamesResponse: (STRINGS,),
    Children2Response: (STRINGS, STAT),
    CountResponse: (INT,),
    ErrorResponse: (INT,),
    ClientInfo: (STRING, STRING),
    WhoAmIResponse: (CLIENTS,),
    SaslResponse: (BUFFER,),
}
_READS: Final = {record: tuple(kind.read for kind in kinds) for record, kinds in LAYOUTS.items()}


def put(out: bytearray, record: tuple[Any, ...]) -> None:
    """Appends the encoded record."""
    for kind, value in zip(LAYOUTS[type(record)], record, strict=True):
        kind.put(out, value)


def read(record: type[R], reader: FieldReader) -> R:
    """Reads a record. Raises DecodeError."""
    # The same as `record._make`, which calls a function in Python.
    return tuple.__new__(record, [field(reader) for field in _READS[record]])


def decode(record: type[R], data: bytes, offset: int = 0) -> R:
    """Returns the record at `offset`. Bytes after it are ignored, as by Apache's server and clients. Raises
    DecodeError.
    """
    return read(record, FieldReader(data, offset))
