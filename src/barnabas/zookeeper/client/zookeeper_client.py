"""A client of ZooKeeper: the port `store.ZnodeStore` on a session, its requests and its watches.

`open` begins a session, also after `StoreListener.session_expired`: everything of the old session ends first. A reply
arms its watch before the caller receives the reply. After a reconnect the watches are set again before the next request
leaves, so a later read is answered with its own watch, or after the event.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from barnabas.common.continuations import detached
from barnabas.common.metrics import TimeBuckets
from barnabas.zookeeper.client import store
from barnabas.zookeeper.client.hosts import ConnectString
from barnabas.zookeeper.client.requests import Done, Requests
from barnabas.zookeeper.client.session import ClientHost, Credentials, Session, SessionState
from barnabas.zookeeper.client.store import ZnodeContent
from barnabas.zookeeper.client.watches import Watches, WatchKind
from barnabas.zookeeper.jute import FieldReader
from barnabas.zookeeper.wire import records as r
from barnabas.zookeeper.wire.codes import NOTIFICATION_XID, SET_WATCHES_XID, CreateFlags, ErrorCode, EventType, OpCode
from barnabas.zookeeper.wire.operations import MultiRequest, MultiResponse, Part, Record

_EVENT_TYPES: Final = frozenset(int(event) for event in EventType)
_EXISTS_OR_NOT: Final = (ErrorCode.OK, ErrorCode.NO_NODE)


def open_acl(path: str) -> tuple[r.Acl, ...]:
    """Returns the ACL of a znode that everybody can read and change."""
    return r.OPEN_ACL


class ClientSettings(NamedTuple):
    """The servers of a client, and the parameters of its sessions. The default times and the default window are
    Kafka's.
    """

    servers: ConnectString
    session_timeout_ms: int = 18_000
    #: `zookeeper.max.in.flight.requests`
    window: int = 10
    #: `jute.maxbuffer`
    frame_bytes_max: int = 0xFFFFF
    credentials: tuple[Credentials, ...] = ()
    #: The name of the TLS contexts of its links (`common.host.Links.dial`); None means plain text.
    tls: str | None = None
    #: Returns the ACL for a path of the client that is created without one.
    acl_of: Callable[[str], tuple[r.Acl, ...]] = open_acl


class ZooKeeperClient:
    """A client of ZooKeeper, with one session at a time."""

    def __init__(self, host: ClientHost, settings: ClientSettings, listener: store.StoreListener) -> None:
        self._host = host
        self._listener = listener
        self._chroot = settings.servers.chroot
        self._requests = Requests(settings.window, settings.frame_bytes_max)
        self._watches = Watches()
        self._acl_of = settings.acl_of
        self._session = Session(
            host, settings.servers.hosts, settings.session_timeout_ms, self, settings.credentials, settings.tls
        )
        #: The times from a request to its answer, or to its loss.
        self.latency = TimeBuckets()
        self._will_flush = False
        self._on_closed: list[Callable[[], None]] = []

    @property
    def state(self) -> SessionState:
        return self._session.state

    @property
    def session_id(self) -> int:
        return self._session.session_id

    def open(self) -> None:
        """Begins a session: the first one, or the next one after an expiry."""
        self._session.open()

    def close(self, done: Callable[[], None]) -> None:
        """Ends the session after the requests that were made; `done` is called once. If there is no connection, the
        session is abandoned and expires later.
        """
        self._on_closed.append(done)
        if self._session.state is SessionState.CLOSED:
            self.on_closed()
        elif self._session.state is not SessionState.CLOSING and self._session.closing():
            self._add(OpCode.CLOSE_SESSION, (), self._on_session_closed)

    def _on_session_closed(self, error: int, response: Record) -> None:
        if error != store.LOST:
            self._session.end()

    # -- store.ZnodeStore

    def multi(self, parts: Sequence[Part], reply: Callable[[store.MultiReply], None]) -> None:
        on_server = tuple(Part(part.type, self._chroot.request(self._with_acl(part.record))) for part in parts)

        def done(error: int, response: Record) -> None:
            if error == store.LOST:
                reply(store.LOST_MULTI)
            elif error:
                reply(store.MultiReply((error,) * len(parts)))
            else:
                reply(_multi_reply(response))

        self._call(OpCode.MULTI, MultiRequest(on_server), done)

    def read(self, path: str, reply: Callable[[store.ReadReply], None], *, watch: bool = False) -> None:
        on_server = self._chroot.on_server(path)

        def done(error: int, response: Record) -> None:
            if not isinstance(response, r.DataResponse):
                reply(store.ReadReply(None, None, error))
                return
            if watch:
                self._watches.arm(WatchKind.DATA, on_server)
            reply(store.ReadReply(ZnodeContent(response.data, response.stat.version), response.stat))

        self._call(OpCode.GET_DATA, r.WatchedRequest(on_server, watch), done)

    def exists(self, path: str, reply: Callable[[store.ExistsReply], None], *, watch: bool = False) -> None:
        on_server = self._chroot.on_server(path)

        def done(error: int, response: Record) -> None:
            if watch and error in _EXISTS_OR_NOT:
                self._watches.arm(WatchKind.EXISTS if error else WatchKind.DATA, on_server)
            reply(store.ExistsReply(response.stat if isinstance(response, r.StatResponse) else None, error))

        self._call(OpCode.EXISTS, r.WatchedRequest(on_server, watch), done)

    def children(self, path: str, reply: Callable[[store.ChildrenReply], None], *, watch: bool = False) -> None:
        on_server = self._chroot.on_server(path)

        def done(error: int, response: Record) -> None:
            if not isinstance(response, r.Children2Response):
                reply(store.ChildrenReply(None, None, error))
                return
            if watch:
                self._watches.arm(WatchKind.CHILDREN, on_server)
            reply(store.ChildrenReply(response.names or (), response.stat))

        self._call(OpCode.GET_CHILDREN2, r.WatchedRequest(on_server, watch), done)

    def create(
        self,
        path: str,
        data: bytes | None,
        flags: int,
        acl: tuple[r.Acl, ...] | None,
        reply: Callable[[store.CreateReply], None],
    ) -> None:
        def done(error: int, response: Record) -> None:
            reply(store.CreateReply(response.path if isinstance(response, r.PathResponse) else "", error))

        request = self._with_acl(r.CreateRequest(path, data, acl, flags))
        self._call(OpCode.CREATE, self._chroot.request(request), done)

    def _with_acl(self, record: Record) -> Record:
        """Returns the request with an ACL, if it creates a znode."""
        if isinstance(record, r.CreateRequest) and record.acl is None:
            return record._replace(acl=self._acl_of(record.path))
        return record

    # -- beyond the port

    def make_chroot(self, reply: Callable[[int], None]) -> None:
        """Creates the chroot and its parents where they are missing. The reply is an error code; it is 0 even if all of
        them existed.
        """
        names = self._chroot.path.split("/")[1:]
        paths = ["/" + "/".join(names[: count + 1]) for count in range(len(names))]
        if not paths:
            self.exists("/", lambda answer: reply(answer.error))
        for path in paths:

            def done(error: int, response: Record, *, is_last: bool = path == paths[-1]) -> None:
                if is_last:
                    reply(ErrorCode.OK if error == ErrorCode.NODE_EXISTS else error)

            request = self._with_acl(r.CreateRequest(path, None, None, CreateFlags.PERSISTENT))
            self._call(OpCode.CREATE, request, done)

    def _call(self, op: OpCode, record: Record, done: Done) -> None:
        """Makes a request, which waits until the session, or the next one, is connected."""
        state = self._session.state
        if state in (SessionState.CLOSED, SessionState.CLOSING, SessionState.EXPIRED):
            self._host.timers.call_soon(lambda: done(store.LOST, ()))
        else:
            self._add(op, record, done)

    def _add(self, op: OpCode, record: Record, done: Done) -> None:
        since_ms = self._host.clock.now_ms()

        def answered(error: int, response: Record) -> None:
            self.latency.add(self._host.clock.now_ms() - since_ms)
            done(error, self._chroot.response(response))

        self._requests.add(op, record, answered)
        if not self._will_flush and self._session.is_connected:
            self._will_flush = True
            detached(self._host.timers.call_soon, self._flush)

    def _flush(self) -> None:
        """Sends the requests that the window allows, once for all requests of a turn."""
        self._will_flush = False
        if self._session.is_connected:
            frames = self._requests.next_frames()
            if frames:
                self._session.write(frames)

    # -- session.SessionUser

    def on_connected(self, *, is_new: bool) -> None:
        if not is_new:
            for frame in self._watches.frames(self._session.last_zxid):
                self._session.write([frame])
        self._flush()
        if is_new:
            self._listener.session_opened(self._session.session_id)
        else:
            self._listener.reconnected()

    def on_frame(self, header: r.ReplyHeader, reader: FieldReader) -> None:
        if header.xid == NOTIFICATION_XID:
            self._on_event(r.read(r.WatcherEvent, reader))
        elif header.xid != SET_WATCHES_XID:
            self._requests.answered(header, reader)
            self._flush()

    def _on_event(self, event: r.WatcherEvent) -> None:
        if event.type in _EVENT_TYPES and self._watches.fire(EventType(event.type), event.path):
            self._listener.changed(self._chroot.of_client(event.path), EventType(event.type))

    def on_disconnected(self) -> None:
        self._requests.lose_all()
        self._listener.disconnected()

    def on_expired(self) -> None:
        self._watches.clear()
        self._requests.lose_all()
        self._listener.session_expired()

    def on_auth_failed(self) -> None:
        self._listener.auth_failed()

    def on_closed(self) -> None:
        self._watches.clear()
        self._requests.lose_all()
        waiting, self._on_closed = self._on_closed, []
        for done in waiting:
            self._host.timers.call_soon(done)


def _multi_reply(response: Record) -> store.MultiReply:
    assert isinstance(response, MultiResponse)
    failed = any(part.type == OpCode.ERROR for part in response.parts)
    if not failed:
        return store.MultiReply((ErrorCode.OK,) * len(response.parts), tuple(part.record for part in response.parts))
    errors = tuple(part.record.error if isinstance(part.record, r.ErrorResponse) else 0 for part in response.parts)
    return store.MultiReply(errors)
