"""The request and the response of each operation on the wire, and multi, whose parts are operations.

    request    RequestHeader, request                        response   ReplyHeader, response unless the error is set
    multi      (MultiHeader(type, False, -1), request)*, end            (MultiHeader(type, False, error), result)*, end

A part of a multi that failed is answered by `ErrorResponse` under the type `OpCode.ERROR`; the end is
`MultiHeader(-1, True, -1)`. Source: `zookeeper.jute`, `MultiOperationRecord` and `MultiResponse` of ZooKeeper 3.8.4.
"""

from __future__ import annotations

import struct
from typing import Any, Final, NamedTuple

from barnabas.common.errors import DecodeError
from barnabas.zookeeper.jute import FieldReader
from barnabas.zookeeper.wire import records as r
from barnabas.zookeeper.wire.codes import OpCode

#: A request or a response of any operation; `()` has no body.
Record = tuple[Any, ...]


class Part(NamedTuple):
    """An operation of a multi: its type, and its request or its result."""

    type: int
    record: Record


class MultiRequest(NamedTuple):
    parts: tuple[Part, ...]


class MultiResponse(NamedTuple):
    parts: tuple[Part, ...]


class Shape(NamedTuple):
    """The record classes of an operation; None stands for "no body"."""

    request: type[Record] | None
    response: type[Record] | None


SHAPES: Final[dict[int, Shape]] = {
    OpCode.CREATE: Shape(r.CreateRequest, r.PathResponse),
    OpCode.DELETE: Shape(r.DeleteRequest, None),
    OpCode.EXISTS: Shape(r.WatchedRequest, r.StatResponse),
    OpCode.GET_DATA: Shape(r.WatchedRequest, r.DataResponse),
    OpCode.SET_DATA: Shape(r.SetDataRequest, r.StatResponse),
    OpCode.GET_ACL: Shape(r.PathRequest, r.AclResponse),
    OpCode.SET_ACL: Shape(r.SetAclRequest, r.StatResponse),
    OpCode.GET_CHILDREN: Shape(r.WatchedRequest, r.NamesResponse),
    OpCode.SYNC: Shape(r.PathRequest, r.PathResponse),
    OpCode.PING: Shape(None, None),
    OpCode.GET_CHILDREN2: Shape(r.WatchedRequest, r.Children2Response),
    OpCode.CHECK: Shape(r.CheckVersionRequest, None),
    OpCode.MULTI: Shape(MultiRequest, MultiResponse),
    OpCode.CREATE2: Shape(r.CreateRequest, r.Create2Response),
    OpCode.RECONFIG: Shape(r.ReconfigRequest, r.DataResponse),
    OpCode.CHECK_WATCHES: Shape(r.WatchesRequest, None),
    OpCode.REMOVE_WATCHES: Shape(r.WatchesRequest, None),
    OpCode.CREATE_CONTAINER: Shape(r.CreateRequest, r.Create2Response),
    OpCode.DELETE_CONTAINER: Shape(r.PathRequest, None),
    OpCode.CREATE_TTL: Shape(r.CreateTtlRequest, r.Create2Response),
    OpCode.MULTI_READ: Shape(MultiRequest, MultiResponse),
    OpCode.AUTH: Shape(r.AuthPacket, None),
    OpCode.SET_WATCHES: Shape(r.SetWatchesRequest, None),
    OpCode.SASL: Shape(r.SaslRequest, r.SaslResponse),
    OpCode.GET_EPHEMERALS: Shape(r.PathRequest, r.NamesResponse),
    OpCode.GET_ALL_CHILDREN_NUMBER: Shape(r.PathRequest, r.CountResponse),
    OpCode.SET_WATCHES2: Shape(r.SetWatches2Request, None),
    OpCode.ADD_WATCH: Shape(r.AddWatchRequest, None),
    OpCode.WHO_AM_I: Shape(None, r.WhoAmIResponse),
    OpCode.CLOSE_SESSION: Shape(None, None),
}

#: The operations that a multi and a multiRead can contain.
MULTI_PARTS: Final = frozenset(
    {
        OpCode.CREATE,
        OpCode.CREATE2,
        OpCode.CREATE_TTL,
        OpCode.CREATE_CONTAINER,
        OpCode.DELETE,
        OpCode.SET_DATA,
        OpCode.CHECK,
    }
)
MULTI_READ_PARTS: Final = frozenset({OpCode.GET_DATA, OpCode.GET_CHILDREN})
_PARTS: Final = MULTI_PARTS | MULTI_READ_PARTS
_PART_REQUESTS: Final = {int(op): request for op in _PARTS if (request := SHAPES[op].request) is not None}

_END: Final = r.MultiHeader(-1, True, -1)
_PART_HEADER: Final = struct.Struct(">i?i")


def put_request(out: bytearray, op: int, request: Record) -> None:
    """Appends the body of a request; `()` for operations without one."""
    if isinstance(request, MultiRequest):
        for part in request.parts:
            r.put(out, r.MultiHeader(part.type, False, -1))
            r.put(out, part.record)
        r.put(out, _END)
    elif SHAPES[op].request is not None:
        r.put(out, request)


def read_request(op: int, reader: FieldReader) -> Record:
    """Reads the body of a request. Raises DecodeError, for example for an operation that does not exist."""
    shape = SHAPES.get(op)
    if shape is None:
        raise DecodeError(f"there is no operation {op}")
    if shape.request is MultiRequest:
        return MultiRequest(tuple(_read_parts(reader)))
    return () if shape.request is None else r.read(shape.request, reader)


def _read_parts(reader: FieldReader) -> list[Part]:
    parts: list[Part] = []
    while True:
        op, done, _ = reader.fields(_PART_HEADER)
        if done:
            return parts
        request = _PART_REQUESTS.get(op)
        if request is None:
            raise DecodeError(f"operation {op} cannot be a part of a multi", reader.offset)
        parts.append(Part(op, r.read(request, reader)))


def put_response(out: bytearray, op: int, response: Record) -> None:
    """Appends the body of a successful response; `()` for operations without one."""
    if isinstance(response, MultiResponse):
        for part in response.parts:
            error = part.record.error if isinstance(part.record, r.ErrorResponse) else 0
            r.put(out, r.MultiHeader(part.type, False, error))
            if part.record:
                r.put(out, part.record)
        r.put(out, _END)
    elif SHAPES[op].response is not None:
        r.put(out, response)


def read_response(op: int, reader: FieldReader) -> Record:
    """Reads the body of a successful response. Raises DecodeError."""
    response = SHAPES[op].response
    if response is MultiResponse:
        return MultiResponse(tuple(_read_results(reader)))
    return () if response is None else r.read(response, reader)


def _read_results(reader: FieldReader) -> list[Part]:
    parts: list[Part] = []
    while True:
        op, done, _ = reader.fields(_PART_HEADER)
        if done:
            return parts
        if op == OpCode.ERROR:
            parts.append(Part(op, r.read(r.ErrorResponse, reader)))
            continue
        if op not in _PARTS:
            raise DecodeError(f"a result of operation {op} in a multi", reader.offset)
        response = SHAPES[op].response
        parts.append(Part(op, () if response is None else r.read(response, reader)))
