"""The server's end of one connection: frames, the opening of the session, authentication, the order of what is sent.

    NEW       the first four bytes are a four-letter word, or the length of a connect request
    OPENING   nothing is read until the session is made, or found again
    OPEN      requests
    CLOSED    nothing is sent or served any more

A frame that is malformed, negative or longer than `jute.maxbuffer` ends this connection only. A connection is not read
while its client does not read the answers, while the server has too many requests in progress, or while other
connections are served.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import Enum, auto
from typing import Final, NamedTuple, Protocol

from barnabas.common.errors import DecodeError
from barnabas.common.host import Clock, Link, Timers
from barnabas.zookeeper.server import answers
from barnabas.zookeeper.server.request_pipeline import TURN_MS
from barnabas.zookeeper.server.server_settings import ServerSettings
from barnabas.zookeeper.server.sessions import Session
from barnabas.zookeeper.server.stats import ConnectionStats, ServerStats
from barnabas.zookeeper.tree import acls
from barnabas.zookeeper.wire.codes import ErrorCode, EventType, OpCode
from barnabas.zookeeper.wire.records import AuthPacket, ConnectRequest, Id, decode

_LENGTH: Final = struct.Struct(">i")
_HEADER: Final = struct.Struct(">ii")
_WORD_BYTES: Final = 4
#: The number of frames of a turn after which the clock is read.
_FRAMES_PER_LOOK: Final = 32


class Address(NamedTuple):
    """The client's address, like ("127.0.0.1", 51234)."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"/[{self.host}]:{self.port}" if ":" in self.host else f"/{self.host}:{self.port}"


class Phase(Enum):
    NEW = auto()
    OPENING = auto()
    OPEN = auto()
    CLOSED = auto()


class Serving(Protocol):
    """The interface of the server that its connections use (`zookeeper.server.zookeeper_server.ZooKeeperServer`)."""

    @property
    def settings(self) -> ServerSettings: ...
    @property
    def stats(self) -> ServerStats: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def timers(self) -> Timers: ...
    @property
    def area(self) -> memoryview: ...

    def wants_output(self, connection: Connection) -> None:
        """Records a connection that has something to send at the end of the turn."""

    def end_turn(self) -> None: ...

    def word_bytes(self, word: bytes) -> int:
        """Returns the length of a four-letter word with its argument; 0 if the bytes are not one."""

    def answer_word(self, word: bytes) -> bytes: ...

    def connect(self, connection: Connection, request: ConnectRequest) -> None: ...

    def touch(self, session: Session) -> None: ...

    def handle(self, connection: Connection, xid: int, op: int, body: bytes) -> None: ...

    def should_throttle(self, outstanding: int) -> bool: ...

    def gone(self, connection: Connection) -> None:
        """Handles the end of a connection."""


class Connection:
    """The server's end of a client's connection. The host calls `get_buffer`, `received`, `closed`, `pause_writing` and
    `resume_writing`.
    """

    def __init__(self, server: Serving, link: Link, address: Address) -> None:
        self._server = server
        self._link = link
        self.address = address
        self.phase = Phase.NEW
        self.session: Session | None = None
        #: The identities of the client, for ACLs.
        self.identities: Sequence[Id] = (Id("ip", address.host),)
        self.stats = ConnectionStats()
        self.established_ms = server.clock.wall_ms()
        self.last_heard_ms = server.clock.now_ms()
        #: Requests that wait for their answer.
        self.outstanding = 0
        #: Whether the client is of 3.4 or later: its answer to the connect request has one byte more.
        self._has_read_only = False
        self._held = bytearray()
        self._out: list[bytes] = []
        self._serving = False
        self._throttled = False
        self._paused = False
        self._resuming = False
        self._reading_paused = False

    # -- called by the host

    def get_buffer(self) -> memoryview:
        """Returns the buffer for the next bytes, which all connections share."""
        return self._server.area

    def received(self, count: int) -> None:
        """Serves the requests that are complete after `count` bytes were written to the buffer."""
        if self.phase is not Phase.CLOSED:
            self._held += self._server.area[:count]
            self._serve()
            self._server.end_turn()

    def closed(self) -> None:
        """Handles the end of the connection, whether it was closed or has failed. Its session continues."""
        if self.phase is not Phase.CLOSED:
            self._end()

    def pause_writing(self) -> None:
        """Stops serving: the client does not read its answers."""
        self._paused = True
        self._update_reading()

    def resume_writing(self) -> None:
        self._paused = False
        self._continue()

    # -- called by the server

    @property
    def session_id(self) -> int:
        return 0 if self.session is None else self.session.session_id

    @property
    def is_read(self) -> bool:
        """Returns whether requests are currently read from this connection."""
        return not (self._throttled or self._paused or self.phase in (Phase.OPENING, Phase.CLOSED))

    def notify(self, event: EventType, path: str) -> None:
        """Sends an event of a watch."""
        self.send(answers.event(event, path))

    def send(self, frame: bytes) -> None:
        """Sends a frame at the end of the turn, with all others of this connection."""
        if self.phase is Phase.CLOSED:
            return
        if not self._out:
            self._server.wants_output(self)
        self._out.append(frame)
        self.stats.packets_sent += 1
        self._server.stats.sent(len(frame) - _LENGTH.size)

    def flush(self) -> None:
        if self._out and self.phase is not Phase.CLOSED:
            out, self._out = self._out, []
            self._link.write(out)

    def opened(self, session: Session, timeout_ms: int, password: bytes) -> None:
        """Sends the positive answer to the connect request: the session belongs to this connection now."""
        if self.phase is Phase.OPENING:
            self.phase = Phase.OPEN
            self.send(answers.connected(timeout_ms, session.session_id, password, self._has_read_only))
            self._continue()

    def refuse_session(self) -> None:
        """Answers the connect request with "no such session", and closes the connection."""
        self.send(answers.connected(0, 0, bytes(16), self._has_read_only))
        self.close()

    def begin(self, xid: int) -> None:
        """Counts a request that waits for its answer."""
        if xid > 0:
            self.outstanding += 1
            if self._server.should_throttle(self.outstanding):
                self._throttled = True
                self._update_reading()

    def finished(self, xid: int) -> None:
        """Counts the answer to a request that was counted by `begin`."""
        if xid > 0:
            self.outstanding -= 1
            if self._throttled and not self._server.should_throttle(self.outstanding):
                self._throttled = False
                self._continue()

    def close(self) -> None:
        """Closes the connection after all pending output is sent."""
        if self.phase is not Phase.CLOSED:
            self.flush()
            self._end()
            self._link.close()

    def abort(self) -> None:
        """Closes the connection, and drops unsent output."""
        if self.phase is not Phase.CLOSED:
            self._end()
            self._link.abort()

    def _end(self) -> None:
        self.phase = Phase.CLOSED
        self._held = bytearray()
        self._out = []
        self._server.gone(self)

    # -- frames

    def _continue(self) -> None:
        """Serves the pending requests, in a separate turn."""
        self._update_reading()
        if self._held and not self._resuming and not self._serving:
            self._resuming = True
            self._server.timers.call_soon(self._resume)

    def _resume(self) -> None:
        self._resuming = False
        if self.phase is not Phase.CLOSED:
            self._serve()
            self._update_reading()
            self._server.end_turn()

    def _update_reading(self) -> None:
        paused = not self.is_read or self._resuming
        if paused is not self._reading_paused and self.phase is not Phase.CLOSED:
            self._reading_paused = paused
            if paused:
                self._link.pause_reading()
            else:
                self._link.resume_reading()

    def _serve(self) -> None:
        """Serves complete frames until there is none, or the turn is over."""
        clock = self._server.clock
        self.last_heard_ms = clock.now_ms()
        end_ms = self.last_heard_ms + TURN_MS
        held, at, frames = bytes(self._held), 0, 0
        self._serving = True
        while self.is_read and len(held) - at >= _LENGTH.size:
            frames += 1
            if not frames % _FRAMES_PER_LOOK and clock.now_ms() >= end_ms:
                self._resuming = True
                self._server.timers.call_soon(self._resume)
                break
            if self.phase is Phase.NEW and (size := self._server.word_bytes(held[:_WORD_BYTES])):
                if len(held) >= size:
                    self._answer_word(held[:size])
                break
            (size,) = _LENGTH.unpack_from(held, at)
            if not 0 <= size <= self._server.settings.frame_bytes_max:
                self.abort()
                break
            begin = at + _LENGTH.size
            if len(held) - begin < size:
                break
            at = begin + size
            self._frame(held[begin:at])
        self._serving = False
        if at and self.phase is not Phase.CLOSED:
            del self._held[:at]
            if self.session is not None:
                self._server.touch(self.session)
        self._update_reading()

    def _frame(self, body: bytes) -> None:
        self.stats.packets_received += 1
        self._server.stats.packets_received += 1
        if self.phase is Phase.NEW:
            self._connect(body)
        elif len(body) < _HEADER.size:
            self.abort()
        else:
            xid, op = _HEADER.unpack_from(body)
            if op == OpCode.AUTH:
                self._authenticate(xid, body)
            else:
                self._server.handle(self, xid, op, body)

    def _answer_word(self, word: bytes) -> None:
        self.stats.packets_received += 1
        self._server.stats.packets_received += 1
        self._link.write([self._server.answer_word(word)])
        self._end()
        self._link.close()

    def _connect(self, body: bytes) -> None:
        try:
            request = decode(ConnectRequest, body)
        except DecodeError:
            self.abort()
            return
        self.phase = Phase.OPENING
        self._has_read_only = request.read_only is not None
        self._server.connect(self, request)

    def _authenticate(self, xid: int, body: bytes) -> None:
        try:
            _, scheme, auth = decode(AuthPacket, body, _HEADER.size)
        except DecodeError:
            self.abort()
            return
        added = self._identities_of(scheme, auth)
        if added:
            self.identities = tuple(dict.fromkeys((*self.identities, *added)))
            self.send(answers.reply(xid, 0, 0))
        else:
            self.send(answers.reply(xid, 0, ErrorCode.AUTH_FAILED))
            self.close()

    def _identities_of(self, scheme: str, auth: bytes | None) -> tuple[Id, ...]:
        """Returns the identities that result from the authentication; none if it fails."""
        if scheme == "ip":
            return (Id("ip", self.address.host),)
        settings = self._server.settings
        if scheme != "digest" or auth is None or not settings.digest_scheme:
            return ()
        identity = acls.digest_identity(auth, settings.digest_algorithm)
        is_super = identity.id == settings.super_digest
        return (Id("super", ""), identity) if is_super else (identity,)
