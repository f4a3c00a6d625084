"""The requests of a client: numbered, sent in the order of the calls, and answered exactly once in the same order.

    add --queue--> next_frames --in flight, at most `window`--> answered
             |                          |
             '-------- lose_all --------'      the error is CONNECTION_LOSS: the outcome is unknown

A request above `jute.maxbuffer` is refused here when its turn comes: a server would end the connection, and with it all
other requests.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from barnabas.common.continuations import later
from barnabas.common.errors import DecodeError
from barnabas.zookeeper.client.store import LOST
from barnabas.zookeeper.jute import FieldReader
from barnabas.zookeeper.wire.codes import ErrorCode, OpCode
from barnabas.zookeeper.wire.frames import request_frame
from barnabas.zookeeper.wire.operations import Record, read_response
from barnabas.zookeeper.wire.records import ReplyHeader

#: The callback for an answer: gets the error code, and the response, which is () if there is an error.
Done = Callable[[int, Record], None]

_XID_MAX: Final = 0x7FFF_FFFF
_LENGTH_BYTES: Final = 4
#: Errors of the session or the connection, with which the request is lost.
_OF_THE_CONNECTION: Final = frozenset(
    {
        ErrorCode.CONNECTION_LOSS,
        ErrorCode.SESSION_EXPIRED,
        ErrorCode.SESSION_MOVED,
        ErrorCode.OPERATION_TIMEOUT,
        ErrorCode.REQUEST_TIMEOUT,
        ErrorCode.THROTTLED_OP,
    }
)


class _Request(NamedTuple):
    xid: int
    op: OpCode
    #: The encoded request; None if it is too large to be sent.
    frame: bytes | None
    done: Done


class Requests:
    """The requests that are not answered yet. `frame_bytes_max` is `jute.maxbuffer`."""

    def __init__(self, window: int, frame_bytes_max: int) -> None:
        assert window > 0
        self._window = window
        self._frame_bytes_max = frame_bytes_max
        self._xid = 0
        self._queue: deque[_Request] = deque()
        self._in_flight: deque[_Request] = deque()

    def __len__(self) -> int:
        return len(self._queue) + len(self._in_flight)

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    def add(self, op: OpCode, record: Record, done: Done) -> None:
        self._xid = 1 if self._xid == _XID_MAX else self._xid + 1
        frame: bytes | None = request_frame(self._xid, op, record)
        if frame is not None and len(frame) - _LENGTH_BYTES > self._frame_bytes_max:
            frame = None
        self._queue.append(_Request(self._xid, op, frame, later(done)))

    def next_frames(self) -> list[bytes]:
        """Returns the frames to send now."""
        frames = []
        while self._queue and len(self._in_flight) < self._window:
            request = self._queue.popleft()
            self._in_flight.append(request)
            if request.frame is not None:
                frames.append(request.frame)
        self._settle_refused()
        return frames

    def answered(self, header: ReplyHeader, reader: FieldReader) -> None:
        """Processes the answer to the oldest request. Raises DecodeError if it is the answer to another one, or
        malformed, or says that the session or the connection has ended: the connection cannot continue then.
        """
        if not self._in_flight or self._in_flight[0].xid != header.xid:
            due = self._in_flight[0].xid if self._in_flight else "none"
            raise DecodeError(f"a response to request {header.xid}, expected {due}")
        if header.error in _OF_THE_CONNECTION:
            raise DecodeError(f"the server answers {ErrorCode(header.error).name}")
        request = self._in_flight[0]
        response = () if header.error else read_response(request.op, reader)
        self._in_flight.popleft()
        request.done(header.error, response)
        self._settle_refused()

    def lose_all(self) -> None:
        """Answers all requests as lost. Requests made in reaction to that wait for the next connection."""
        lost = (*self._in_flight, *self._queue)
        self._in_flight.clear()
        self._queue.clear()
        for request in lost:
            request.done(LOST, ())

    def _settle_refused(self) -> None:
        while self._in_flight and self._in_flight[0].frame is None:
            self._in_flight.popleft().done(ErrorCode.MARSHALLING_ERROR, ())
