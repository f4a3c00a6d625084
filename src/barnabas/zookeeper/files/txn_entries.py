"""The bytes of a log entry: header, transaction, digest (`zookeeper.jute`, module `org.apache.zookeeper.txn`)."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from barnabas.common.errors import DecodeError
from barnabas.zookeeper.jute import INT, FieldReader, put_buffer, put_string
from barnabas.zookeeper.txns import (
    CheckVersionTxn,
    CloseSessionTxn,
    CreateContainerTxn,
    CreateSessionTxn,
    CreateTtlTxn,
    CreateTxn,
    DeleteTxn,
    ErrorTxn,
    MultiTxn,
    SetAclTxn,
    SetDataTxn,
    SingleTxn,
    Txn,
    TxnDigest,
    TxnEntry,
    TxnHeader,
    TxnPart,
)
from barnabas.zookeeper.wire.codes import OpCode
from barnabas.zookeeper.wire.records import put_acl, read_acl

_HEADER: Final = struct.Struct(">qiqqi")
_DIGEST: Final = struct.Struct(">iq")
_TWO_INTS: Final = struct.Struct(">ii")
_BOOL_INT: Final = struct.Struct(">?i")
_INT_LONG: Final = struct.Struct(">iq")
#: The smallest size of a part of a multi: its type and an empty buffer.
_PART_BYTES_MIN: Final = 8
#: The value for the count of creations, which ZooKeeper 3.3 did not store.
_NO_CVERSION: Final = -1


def encode_entry(entry: TxnEntry) -> bytes:
    """Returns the bytes of an entry."""
    out = bytearray(_HEADER.pack(*entry.header))
    _put_txn(out, entry.txn)
    if entry.digest is not None:
        out += _DIGEST.pack(*entry.digest)
    return bytes(out)


def _put_txn(out: bytearray, txn: Txn) -> None:
    _WRITERS[type(txn)](out, txn)


def _put_multi(out: bytearray, txn: MultiTxn) -> None:
    out += INT.pack(len(txn.parts))
    for op, part in txn.parts:
        inner = bytearray()
        _put_txn(inner, part)
        out += _TWO_INTS.pack(op, len(inner))
        out += inner


def _put_set_data(out: bytearray, txn: SetDataTxn) -> None:
    path, data, version = txn
    put_string(out, path)
    put_buffer(out, data)
    out += INT.pack(version)


def _put_create(out: bytearray, txn: CreateTxn) -> None:
    _put_node(out, txn)
    out += _BOOL_INT.pack(txn.ephemeral, txn.parent_cversion)


def _put_container(out: bytearray, txn: CreateContainerTxn) -> None:
    _put_node(out, txn)
    out += INT.pack(txn.parent_cversion)


def _put_ttl(out: bytearray, txn: CreateTtlTxn) -> None:
    _put_node(out, txn)
    out += _INT_LONG.pack(txn.parent_cversion, txn.ttl_ms)


def _put_node(out: bytearray, txn: CreateTxn | CreateContainerTxn | CreateTtlTxn) -> None:
    put_string(out, txn.path)
    put_buffer(out, txn.data)
    put_acl(out, txn.acl)


def _put_set_acl(out: bytearray, txn: SetAclTxn) -> None:
    put_string(out, txn.path)
    put_acl(out, txn.acl)
    out += INT.pack(txn.version)


def _put_check(out: bytearray, txn: CheckVersionTxn) -> None:
    path, version = txn
    put_string(out, path)
    out += INT.pack(version)


def _put_close_session(out: bytearray, txn: CloseSessionTxn) -> None:
    if txn.paths is not None:
        out += INT.pack(len(txn.paths))
        for path in txn.paths:
            put_string(out, path)


def _put_delete(out: bytearray, txn: DeleteTxn) -> None:
    put_string(out, txn.path)


def _put_number(out: bytearray, txn: ErrorTxn | CreateSessionTxn) -> None:
    out += INT.pack(txn[0])


#: The writer is looked up by the type, because matching a pattern for each type would take longer than the writing.
_WRITERS: Final[dict[type[Txn], Callable[[bytearray, Any], None]]] = {
    MultiTxn: _put_multi,
    SetDataTxn: _put_set_data,
    CreateTxn: _put_create,
    CreateContainerTxn: _put_container,
    CreateTtlTxn: _put_ttl,
    SetAclTxn: _put_set_acl,
    CheckVersionTxn: _put_check,
    CloseSessionTxn: _put_close_session,
    DeleteTxn: _put_delete,
    ErrorTxn: _put_number,
    CreateSessionTxn: _put_number,
}


def decode_entry(data: bytes) -> TxnEntry:
    """Decodes an entry of ZooKeeper 3.3 or later. Raises DecodeError."""
    reader = FieldReader(data)
    header = TxnHeader(*reader.fields(_HEADER))
    txn = _read_multi(reader) if header.type == OpCode.MULTI else _read_txn(reader, header.type)
    # Digests of the first releases of 3.6 have another form; they are not compared.
    digest = TxnDigest(*reader.fields(_DIGEST)) if len(data) - reader.offset == _DIGEST.size else None
    return TxnEntry(header, txn, digest)


def _read_multi(reader: FieldReader) -> MultiTxn:
    def read_part() -> TxnPart:
        op = reader.read_int()
        return TxnPart(op, _read_txn(FieldReader(reader.read_buffer() or b""), op))

    return MultiTxn(reader.read_list(_PART_BYTES_MIN, read_part) or ())


def _read_txn(reader: FieldReader, op: int) -> SingleTxn:
    read = _READERS.get(op)
    if read is None:
        raise DecodeError(f"a transaction of type {op}")
    return read(reader)


def _read_create(reader: FieldReader) -> CreateTxn:
    path, data, acl = reader.read_string(), reader.read_buffer(), read_acl(reader)
    if len(reader.data) - reader.offset == 1:
        # Before ZooKeeper 3.4 the count of creations was not stored.
        return CreateTxn(path, data, acl, reader.data[reader.offset] != 0, _NO_CVERSION)
    return CreateTxn(path, data, acl, *reader.fields(_BOOL_INT))


def _read_close_session(reader: FieldReader) -> CloseSessionTxn:
    if reader.is_at_end:
        return CloseSessionTxn(None)
    return CloseSessionTxn(reader.read_list(INT.size, reader.read_string) or ())


def _read_delete(reader: FieldReader) -> DeleteTxn:
    return DeleteTxn(reader.read_string())


_READERS: Final[dict[int, Callable[[FieldReader], SingleTxn]]] = {
    OpCode.CREATE: _read_create,
    OpCode.CREATE2: _read_create,
    OpCode.CREATE_TTL: lambda r: CreateTtlTxn(r.read_string(), r.read_buffer(), read_acl(r), *r.fields(_INT_LONG)),
    OpCode.CREATE_CONTAINER: lambda r: CreateContainerTxn(r.read_string(), r.read_buffer(), read_acl(r), r.read_int()),
    OpCode.DELETE: _read_delete,
    OpCode.DELETE_CONTAINER: _read_delete,
    OpCode.SET_DATA: lambda r: SetDataTxn(r.read_string(), r.read_buffer(), r.read_int()),
    OpCode.RECONFIG: lambda r: SetDataTxn(r.read_string(), r.read_buffer(), r.read_int()),
    OpCode.CHECK: lambda r: CheckVersionTxn(r.read_string(), r.read_int()),
    OpCode.SET_ACL: lambda r: SetAclTxn(r.read_string(), read_acl(r), r.read_int()),
    OpCode.CREATE_SESSION: lambda r: CreateSessionTxn(r.read_int()),
    OpCode.CLOSE_SESSION: _read_close_session,
    OpCode.ERROR: lambda r: ErrorTxn(r.read_int()),
}
