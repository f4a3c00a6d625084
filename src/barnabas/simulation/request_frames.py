"""Frames of requests and answers: decodes their headers, and finds their bodies."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from barnabas.simulation.plain_decoding import Body

PRODUCE: Final = 0
_FLEXIBLE_PRODUCE: Final = 9
#: The length of the header up to the client id, with the length of the frame.
_CLIENT_ID_AT: Final = 12
_INT16: Final = struct.Struct(">h")


class Request(NamedTuple):
    """A request that awaits its answer. `frame` begins with its length."""

    at_us: int
    api_key: int
    version: int
    correlation_id: int
    frame: bytes


def body_of(request: Request, *, flexible_from: int) -> Body:
    """Returns the body of a request behind its header."""
    is_flexible = request.version >= flexible_from
    body = Body(request.frame, 12, is_flexible=False)
    body.read([("client id", "string")])
    body.is_flexible = is_flexible
    if is_flexible:
        body.read([])
    return body


def answer_body(request: Request, frame: bytes, *, flexible_from: int) -> Body:
    """Returns the body of an answer behind its header."""
    body = Body(frame, 8, is_flexible=request.version >= flexible_from)
    if body.is_flexible:
        body.read([])
    return body


def acks_of(version: int, frame: bytes) -> int:
    """Returns the acks of a Produce request."""
    acks: int = _INT16.unpack_from(frame, _transactional_id(version, frame)[1])[0]
    return acks


def has_transactional_id(request: Request) -> bool:
    """Returns whether a Produce request names a transactional id."""
    return _transactional_id(request.version, request.frame)[0]


def _transactional_id(version: int, frame: bytes) -> tuple[bool, int]:
    """Returns whether a Produce request has a transactional id, and where the fields after it begin."""
    at = _CLIENT_ID_AT + 2 + max(_INT16.unpack_from(frame, _CLIENT_ID_AT)[0], 0)
    if version < 3:
        return False, at
    if version < _FLEXIBLE_PRODUCE:
        size = _INT16.unpack_from(frame, at)[0]
        return size >= 0, at + 2 + max(size, 0)
    body = Body(frame, at)
    body.read([])
    size = body.unsigned() - 1
    return size >= 0, body.at + max(size, 0)
