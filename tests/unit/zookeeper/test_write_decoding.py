"""Parts of a multi: the operations that their flags ask for, and the refusals of Apache's server."""

from __future__ import annotations

import pytest

from barnabas.common.errors import DecodeError
from barnabas.zookeeper.server.write_decoding import NullAcl, multi
from barnabas.zookeeper.wire import frames
from barnabas.zookeeper.wire.codes import CreateFlags, OpCode
from barnabas.zookeeper.wire.operations import MultiRequest, Part, Record
from barnabas.zookeeper.wire.records import (
    OPEN_ACL,
    CreateRequest,
    CreateTtlRequest,
    DeleteRequest,
    WatchedRequest,
)

_DELETE = Part(OpCode.DELETE, DeleteRequest("/a", 3))
_READ = Part(OpCode.GET_DATA, WatchedRequest("/b", False))


def decoded(*parts: Part) -> tuple[list[tuple[int, Record]], list[tuple[int, str]]]:
    frame = frames.request_frame(7, OpCode.MULTI, MultiRequest(parts))
    writes, reads = multi(bytes(frame[4:]))
    return list(writes), reads


def creation(flags: int, op: int = OpCode.CREATE) -> Part:
    return Part(op, CreateRequest("/a", b"x", OPEN_ACL, flags))


def creation_with_ttl(flags: int) -> Part:
    return Part(OpCode.CREATE_TTL, CreateTtlRequest("/a", b"x", OPEN_ACL, flags, 5))


def test_writes_and_reads_are_distinguished() -> None:
    assert decoded(_DELETE, creation(0)) == ([tuple(_DELETE), tuple(creation(0))], [])
    assert decoded(_READ) == ([], [(OpCode.GET_DATA, "/b")])
    assert decoded() == ([], [])
    with pytest.raises(DecodeError, match="reads and writes"):
        decoded(_DELETE, _READ)


@pytest.mark.parametrize(
    ("part", "op"),
    [
        (creation(CreateFlags.EPHEMERAL_SEQUENTIAL), OpCode.CREATE),
        (creation(CreateFlags.PERSISTENT, OpCode.CREATE2), OpCode.CREATE2),
        (creation(CreateFlags.CONTAINER), OpCode.CREATE_CONTAINER),
        (creation(CreateFlags.CONTAINER, OpCode.CREATE2), OpCode.CREATE_CONTAINER),
        (creation_with_ttl(CreateFlags.PERSISTENT_WITH_TTL), OpCode.CREATE_TTL),
        (creation_with_ttl(CreateFlags.PERSISTENT), OpCode.CREATE),
        (creation_with_ttl(CreateFlags.CONTAINER), OpCode.CREATE_CONTAINER),
        (creation_with_ttl(99), OpCode.CREATE),
    ],
)
def test_creations_become_that_of_their_flags(part: Part, op: int) -> None:
    ((found, request),), _ = decoded(part)
    assert found == op
    assert request[:4] == part.record[:4]
    assert isinstance(request, CreateTtlRequest) == (op == OpCode.CREATE_TTL)


def test_creations_that_end_the_connection() -> None:
    with pytest.raises(DecodeError, match="flags 7"):
        decoded(creation(7))
    with pytest.raises(DecodeError, match="flags -1"):
        decoded(creation(-1))
    with pytest.raises(DecodeError, match="time to live"):
        decoded(creation(CreateFlags.PERSISTENT_WITH_TTL))
    with pytest.raises(NullAcl):
        decoded(Part(OpCode.CREATE, CreateRequest("/a", b"x", None, 0)))
