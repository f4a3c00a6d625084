"""A session over its connections, as a table of states; timeouts and pings are those of Apache's `ClientCnxn`.

    CLOSED --open--> DIALLING --link--> CONNECTING --answered--> CONNECTED --close--> CLOSING --> CLOSED
                        ^  |                |   |                    |
                   timer|  |refused         |   |refused             |cut
                        |  v                v   '---> EXPIRED        |
                     SUSPENDED <------------+------------------------'        EXPIRED --open--> DIALLING

A session is over only when a server says so: it refuses to continue it, or answers with another session, which this
client did not ask for and ends (G45). Without a connection the client cannot know, and continues to dial.

    connect timeout    the session timeout divided by the number of servers, for the dial and for the answer each
    read timeout       two thirds of the session timeout without a byte from the server: the connection is cut
    ping               after half of the read timeout, less a second, without a request; at most every 10 s
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple, Protocol

from barnabas.common.automaton import Automaton
from barnabas.common.continuations import detached
from barnabas.common.errors import DecodeError
from barnabas.common.host import Clock, FaultHandler, Link, Links, Random, Timer, Timers
from barnabas.zookeeper.client.hosts import HostList, HostPort
from barnabas.zookeeper.jute import FieldReader
from barnabas.zookeeper.wire import records as r
from barnabas.zookeeper.wire.codes import AUTH_XID, PING_XID, OpCode
from barnabas.zookeeper.wire.frames import FrameReader, framed, request_frame

_NO_PASSWORD: Final = bytes(16)
_PING_MS_MAX: Final = 10_000
#: A ping is sent this much before half of the read timeout has passed, if the timeout is long enough.
_PING_LEAD_MS: Final = 1_000
#: Delays between dials, once every server was tried: random, below a bound that doubles.
_BACKOFF_MS: Final = 100
_BACKOFF_MS_MAX: Final = 1_000
#: A connection that lasted at least this long counts as good: the next server is dialled without a delay.
_STEADY_MS: Final = 1_000
#: The largest answer. It is above `jute.maxbuffer`: the names of all children of a znode can be longer.
_ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
_BUFFER_BYTES: Final = 64 * 1024


class SessionState(Enum):
    CLOSED = "closed"
    DIALLING = "dialling"
    CONNECTING = "connecting"
    CONNECTED = "connected"
    #: The end of the session was requested.
    CLOSING = "closing"
    #: No connection, and the next dial waits.
    SUSPENDED = "suspended"
    EXPIRED = "expired"


_S = SessionState
TRANSITIONS: Final[Mapping[SessionState, frozenset[SessionState]]] = {
    _S.CLOSED: frozenset({_S.DIALLING}),
    _S.DIALLING: frozenset({_S.CONNECTING, _S.SUSPENDED, _S.CLOSED}),
    _S.CONNECTING: frozenset({_S.CONNECTED, _S.SUSPENDED, _S.EXPIRED, _S.CLOSED}),
    _S.CONNECTED: frozenset({_S.SUSPENDED, _S.CLOSING}),
    _S.CLOSING: frozenset({_S.CLOSED}),
    _S.SUSPENDED: frozenset({_S.DIALLING, _S.CLOSED}),
    _S.EXPIRED: frozenset({_S.DIALLING, _S.CLOSED}),
}


class ClientHost(Protocol):
    """The ports that a client needs."""

    @property
    def clock(self) -> Clock: ...
    @property
    def timers(self) -> Timers: ...
    @property
    def random(self) -> Random: ...
    @property
    def links(self) -> Links: ...
    @property
    def faults(self) -> FaultHandler: ...


class Credentials(NamedTuple):
    """An identity for ACLs, like ("digest", b"user:password")."""

    scheme: str
    auth: bytes


class SessionUser(Protocol):
    """The callbacks of the owner of a session."""

    def on_connected(self, *, is_new: bool) -> None:
        """Handles a new connection of the session, which is new itself or continues."""

    def on_frame(self, header: r.ReplyHeader, reader: FieldReader) -> None:
        """Processes an answer or an event. Raises DecodeError if the connection cannot continue."""

    def on_disconnected(self) -> None:
        """Reports the end of a connection of the session."""

    def on_expired(self) -> None: ...

    def on_auth_failed(self) -> None: ...

    def on_closed(self) -> None:
        """Reports that the session was closed, or abandoned after `close`."""


class Session:
    """A client's sessions, one after another. `open` begins each of them."""

    def __init__(
        self,
        host: ClientHost,
        servers: Sequence[HostPort],
        timeout_ms: int,
        user: SessionUser,
        credentials: Sequence[Credentials] = (),
        tls: str | None = None,
    ) -> None:
        assert timeout_ms > 0
        self._host = host
        self._servers = HostList(servers, host.random)
        self._wanted_timeout_ms = timeout_ms
        self._user = user
        self._credentials = list(credentials)
        self._tls = tls
        self._automaton = Automaton(TRANSITIONS, SessionState.CLOSED)
        self._end: _End | None = None
        self._timer: Timer | None = None
        #: Dials since the last good connection.
        self._dials = 0
        self._sent_ms = 0
        self._connected_ms = 0
        self._forget()

    def _forget(self) -> None:
        self.session_id = 0
        self._password = _NO_PASSWORD
        #: The timeout that the server granted, or before that the wanted one.
        self.timeout_ms = self._wanted_timeout_ms
        #: The highest zxid that this session has seen. Another server that is behind it refuses the connection.
        self.last_zxid = 0

    @property
    def state(self) -> SessionState:
        return self._automaton.state

    @property
    def is_connected(self) -> bool:
        """Returns whether requests can be sent."""
        return self.state in (SessionState.CONNECTED, SessionState.CLOSING)

    def open(self) -> None:
        """Begins a new session: the first one, or the next one after an expiry."""
        assert self.state in (SessionState.CLOSED, SessionState.EXPIRED), self.state
        self._forget()
        self._dial()

    def closing(self) -> bool:
        """Returns whether the end of the session can be requested now. If it cannot, the session is abandoned."""
        if self.state is SessionState.CONNECTED:
            self._automaton.move(SessionState.CLOSING)
        elif self.state not in (SessionState.CLOSING, SessionState.CLOSED):
            self._close()
        return self.state is SessionState.CLOSING

    def write(self, frames: Sequence[bytes]) -> None:
        assert self.is_connected, self.state
        assert self._end is not None
        self._sent_ms = self._host.clock.now_ms()
        self._end.link.write(frames)

    # -- connections

    def _dial(self) -> None:
        self._automaton.move(SessionState.DIALLING)
        server = self._servers.next()
        self._dials += 1
        self._end = end = _End(self, server)
        end.dial(self._host.links, self._tls)
        self._arm(self._connect_timeout_ms, self._on_connect_timeout)

    @property
    def _connect_timeout_ms(self) -> int:
        return max(1, self.timeout_ms // len(self._servers))

    @property
    def _read_timeout_ms(self) -> int:
        return self.timeout_ms * 2 // 3

    def linked(self) -> None:
        assert self._end is not None
        self._automaton.move(SessionState.CONNECTING)
        self._arm(self._connect_timeout_ms, self._on_connect_timeout)
        request = r.ConnectRequest(0, self.last_zxid, self._wanted_timeout_ms, self.session_id, self._password)
        self._end.link.write([framed(request)])

    def _on_connect_timeout(self) -> None:
        self.cut("no answer in time")

    def received(self, frame: bytes) -> None:
        """Processes a frame. Raises DecodeError."""
        if self.state is SessionState.CONNECTING:
            self._on_connect_response(r.decode(r.ConnectResponse, frame))
            return
        reader = FieldReader(frame)
        header = r.read(r.ReplyHeader, reader)
        self.last_zxid = max(self.last_zxid, header.zxid)
        if header.xid == AUTH_XID:
            if header.error:
                self._on_auth_failed()
        elif header.xid != PING_XID:
            self._user.on_frame(header, reader)

    def _on_connect_response(self, response: r.ConnectResponse) -> None:
        assert self._end is not None
        is_new = self.session_id == 0
        if response.timeout_ms <= 0 or response.session_id == 0:
            if is_new:
                raise DecodeError("the server refuses to open a session")
            self._expire("the server no longer knows it")
            return
        if not is_new and response.session_id != self.session_id:
            self._end.link.write([request_frame(1, OpCode.CLOSE_SESSION, ())])
            self._expire(f"the server answers with another session, 0x{response.session_id:x}")
            return
        self.session_id = response.session_id
        self._password = response.password or _NO_PASSWORD
        self.timeout_ms = response.timeout_ms
        self._connected_ms = self._sent_ms = self._host.clock.now_ms()
        self._automaton.move(SessionState.CONNECTED)
        self._host.faults.inform(
            f"ZooKeeper session 0x{self.session_id:x} {'opened' if is_new else 'continues'} at {self._end.server}, "
            f"timeout {self.timeout_ms} ms"
        )
        for credentials in self._credentials:
            packet = r.AuthPacket(0, credentials.scheme, credentials.auth)
            self.write([framed(r.RequestHeader(AUTH_XID, OpCode.AUTH), packet)])
        self._beat()
        self._user.on_connected(is_new=is_new)

    def _on_auth_failed(self) -> None:
        """Drops the credentials: the server closes this connection, and the next one continues the session."""
        self._credentials.clear()
        self._user.on_auth_failed()

    # -- pings and the read timeout

    def _beat(self) -> None:
        """Sends a ping if one is due, and cuts a connection that is silent."""
        assert self._end is not None
        now_ms = self._host.clock.now_ms()
        silent_ms = now_ms - self._end.last_heard_ms
        if silent_ms >= self._read_timeout_ms:
            self.cut(f"no byte from the server for {silent_ms} ms")
            return
        if now_ms - self._sent_ms >= self._ping_ms:
            self.write([request_frame(PING_XID, OpCode.PING, ())])
        due_ms = min(self._end.last_heard_ms + self._read_timeout_ms, self._sent_ms + self._ping_ms)
        self._arm(max(1, due_ms - now_ms), self._beat)

    @property
    def _ping_ms(self) -> int:
        half_ms = self._read_timeout_ms // 2
        return max(1, min(_PING_MS_MAX, half_ms, max(_PING_LEAD_MS, half_ms - _PING_LEAD_MS)))

    # -- ends

    def cut(self, problem: str) -> None:
        """Ends the connection, or the attempt to connect; the next attempt follows, possibly to another server."""
        end = self._drop_end()
        was_connected = self.is_connected
        if self.state is SessionState.CLOSING:
            self._close()
            return
        now_ms = self._host.clock.now_ms()
        self._automaton.move(SessionState.SUSPENDED)
        if was_connected and now_ms - self._connected_ms >= _STEADY_MS:
            self._dials = 0
        self._arm(self._delay_ms(), self._dial)
        if was_connected or self._dials == len(self._servers):
            self._host.faults.warn(f"ZooKeeper at {end.server}: {problem}")
        if was_connected:
            self._user.on_disconnected()

    def _delay_ms(self) -> int:
        rounds = self._dials // len(self._servers)
        if rounds == 0:
            return 0
        return self._host.random.below(min(_BACKOFF_MS_MAX, _BACKOFF_MS << min(rounds - 1, 16))) + 1

    def _expire(self, cause: str) -> None:
        self._drop_end(is_written=True)
        self._host.faults.warn(f"ZooKeeper session 0x{self.session_id:x} has expired: {cause}")
        self._automaton.move(SessionState.EXPIRED)
        self._forget()
        self._dials = 0
        self._user.on_expired()

    def end(self) -> None:
        """Ends a session that the server has closed, as requested."""
        assert self.state is SessionState.CLOSING
        self._close()

    def _close(self) -> None:
        if self._end is not None:
            self._drop_end(is_written=True)
        self._disarm()
        self._automaton.move(SessionState.CLOSED)
        self._forget()
        self._dials = 0
        self._user.on_closed()

    def _drop_end(self, *, is_written: bool = False) -> _End:
        end, self._end = self._end, None
        assert end is not None
        self._disarm()
        if is_written:
            end.link.close()
        else:
            end.link.abort()
        return end

    def _arm(self, delay_ms: int, callback: Callable[[], None]) -> None:
        self._disarm()
        self._timer = detached(self._host.timers.call_later, delay_ms, callback)

    def _disarm(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()


class _End:
    """A connection, or an attempt to connect. The session ignores connections that it has replaced."""

    __slots__ = ("_area", "_frames", "_session", "last_heard_ms", "link", "server")

    link: Link

    def __init__(self, session: Session, server: HostPort) -> None:
        self._session = session
        self.server = server
        #: The buffer for what the server sends; None before that, because a server that hangs accepts thousands of
        #: connections.
        self._area: memoryview | None = None
        self._frames = FrameReader(_ANSWER_BYTES_MAX)
        self.last_heard_ms = 0

    def dial(self, links: Links, tls: str | None) -> None:
        self.link = links.dial(self.server.host, self.server.port, self, tls)

    @property
    def _is_current(self) -> bool:
        return self._session._end is self

    def connected(self) -> None:
        if self._is_current:
            self._session.linked()

    def get_buffer(self) -> memoryview:
        if self._area is None:
            self._area = memoryview(bytearray(_BUFFER_BYTES))
        return self._area

    def received(self, count: int) -> None:
        if not self._is_current:
            return
        self.last_heard_ms = self._session._host.clock.now_ms()
        try:
            for frame in self._frames.feed(self.get_buffer()[:count]):
                if not self._is_current:
                    return
                self._session.received(frame)
        except DecodeError as error:
            if self._is_current:
                self._session.cut(str(error))

    def closed(self, error: OSError | None) -> None:
        if self._is_current:
            self._session.cut("the connection was closed" if error is None else error.strerror or str(error))
