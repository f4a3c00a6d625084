"""Frames: a length of four bytes and as many bytes; and the frames of requests, replies and events.

FrameReader.feed(data) -> the frames that are complete
request_frame, reply_frame, event_frame -> one frame with its length
"""

from __future__ import annotations

from typing import Any, Final

from barnabas.common.errors import DecodeError
from barnabas.zookeeper import jute
from barnabas.zookeeper.wire import records as r
from barnabas.zookeeper.wire.codes import NOTIFICATION_XID, ErrorCode
from barnabas.zookeeper.wire.operations import Record, put_request, put_response

_LENGTH_BYTES: Final = 4


class FrameReader:
    """Cuts received bytes into frames. `limit` is the largest length allowed (`jute.maxbuffer`)."""

    __slots__ = ("_buffer", "_limit")

    def __init__(self, limit: int) -> None:
        self._buffer = bytearray()
        self._limit = limit

    @property
    def pending_bytes(self) -> int:
        """The bytes of a frame that is not complete."""
        return len(self._buffer)

    def feed(self, data: bytes | memoryview) -> list[bytes]:
        """Returns the frames that this data completes, without their lengths. Raises DecodeError for a length that is
        negative or above the limit; the connection cannot continue then.
        """
        buffer = self._buffer
        buffer += data
        frames: list[bytes] = []
        start, size = 0, len(buffer)
        while size - start >= _LENGTH_BYTES:
            length = int.from_bytes(buffer[start : start + _LENGTH_BYTES], "big", signed=True)
            if not 0 <= length <= self._limit:
                raise DecodeError(f"a frame of {length} bytes; its size must be 0 to {self._limit} (jute.maxbuffer)")
            end = start + _LENGTH_BYTES + length
            if end > size:
                break
            frames.append(bytes(buffer[start + _LENGTH_BYTES : end]))
            start = end
        if start:
            del buffer[:start]
        return frames


def framed(*parts: tuple[Any, ...]) -> bytes:
    """Returns one frame with these records."""
    out = bytearray(_LENGTH_BYTES)
    for record in parts:
        r.put(out, record)
    return _closed(out)


def request_frame(xid: int, op: int, request: Record) -> bytes:
    out = bytearray(_LENGTH_BYTES)
    jute.put_int(out, xid)
    jute.put_int(out, op)
    put_request(out, op, request)
    return _closed(out)


def reply_frame(xid: int, zxid: int, error: int, op: int = 0, response: Record = ()) -> bytes:
    """Returns the frame of a reply. An error has no body."""
    out = bytearray(_LENGTH_BYTES)
    r.put(out, r.ReplyHeader(xid, zxid, error))
    if error == ErrorCode.OK and response:
        put_response(out, op, response)
    return _closed(out)


def event_frame(event: r.WatcherEvent) -> bytes:
    """Returns the frame of a watch that fired. Its zxid is -1, as Apache's server sends it."""
    return framed(r.ReplyHeader(NOTIFICATION_XID, -1, ErrorCode.OK), event)


def _closed(out: bytearray) -> bytes:
    out[:_LENGTH_BYTES] = jute.INT.pack(len(out) - _LENGTH_BYTES)
    return bytes(out)
