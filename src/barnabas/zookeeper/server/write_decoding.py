"""Decodes writes and multis. The flags of a creation determine the operation code under which it is recorded."""

from __future__ import annotations

from typing import Final, cast

from barnabas.common.errors import DecodeError
from barnabas.zookeeper.jute import FieldReader
from barnabas.zookeeper.server.prep import CREATE_MODES, Write
from barnabas.zookeeper.wire.codes import OpCode
from barnabas.zookeeper.wire.operations import MultiRequest, Part, read_request
from barnabas.zookeeper.wire.records import CreateRequest, CreateTtlRequest, WatchedRequest

_BODY: Final = 8


class NullAcl(DecodeError):
    """The error for a creation in a multi without a list of ACLs. Apache's server fails at it before the multi has a
    zxid.
    """


def write(op: int, frame: bytes) -> Write:
    """Reads a single write after its header. Raises DecodeError."""
    return cast(Write, read_request(op, FieldReader(frame, _BODY)))


def multi(frame: bytes) -> tuple[list[tuple[int, Write]], list[tuple[int, str]]]:
    """Reads the operations of a multi: writes, or reads with their paths. Raises DecodeError, for example if there are
    reads and writes.
    """
    request = read_request(OpCode.MULTI, FieldReader(frame, _BODY))
    assert isinstance(request, MultiRequest)
    writes: list[tuple[int, Write]] = []
    reads: list[tuple[int, str]] = []
    for part in request.parts:
        if isinstance(part.record, WatchedRequest):
            reads.append((part.type, part.record.path))
        else:
            writes.append(_typed(part))
    if reads and writes:
        raise DecodeError("reads and writes in one multi")
    return writes, reads


def _typed(part: Part) -> tuple[int, Write]:
    """Converts one operation of a multi to a write; a create operation becomes the kind of creation that its flags
    name, as in Apache's server. Raises DecodeError.
    """
    op, request = part
    if not isinstance(request, CreateRequest | CreateTtlRequest):
        return op, cast(Write, request)
    mode = CREATE_MODES[request.flags] if 0 <= request.flags < len(CREATE_MODES) else None
    if isinstance(request, CreateTtlRequest):
        if mode is not None and mode.ttl:
            return op, request
        op = OpCode.CREATE
        request = CreateRequest(request.path, request.data, request.acl, request.flags)
    elif mode is None:
        raise DecodeError(f"flags {request.flags} of a creation")
    elif request.acl is None:
        raise NullAcl("an ACL is null")
    elif mode.ttl:
        raise DecodeError("a creation with a time to live under another operation")
    return OpCode.CREATE_CONTAINER if mode is not None and mode.container else op, request
