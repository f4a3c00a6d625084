"""A ZooKeeper client of a few lines, over any transport: requests one at a time, answers and events as they come."""

from __future__ import annotations

from typing import Any, NamedTuple

from barnabas.zookeeper.jute import FieldReader
from barnabas.zookeeper.wire import frames
from barnabas.zookeeper.wire import records as r
from barnabas.zookeeper.wire.codes import NOTIFICATION_XID, PING_XID, OpCode
from barnabas.zookeeper.wire.operations import Record, read_response


class Answer(NamedTuple):
    """An answer to a request. `body` is () after an error, and if the response has no body."""

    xid: int
    zxid: int
    error: int
    body: Any = ()


class Event(NamedTuple):
    type: int
    path: str


class WireClient:
    """A connection. A transport implements `send` and `receive`."""

    def __init__(self) -> None:
        self.session_id = 0
        self.timeout_ms = 0
        self.password = b""
        self.events: list[Event] = []
        #: Answers and events in the order in which they were sent.
        self.received: list[Answer | Event] = []
        self._xid = 0
        self._ops: dict[int, int] = {}
        self._frames = frames.FrameReader(0xFFFFFF)

    def send(self, data: bytes) -> None:
        """Sends bytes."""
        raise NotImplementedError

    def receive(self, *, waits: bool) -> bytes:
        """Returns the received bytes; b"" if there are none, or, if it waits, at the end of the connection."""
        raise NotImplementedError

    def connect(self, timeout_ms: int = 10_000, session_id: int = 0, password: bytes = b"", zxid: int = 0) -> int:
        """Requests a session, or continues an earlier one. Returns the timeout: 0 if it is refused."""
        self.send(frames.framed(r.ConnectRequest(0, zxid, timeout_ms, session_id, password or bytes(16), False)))
        found: list[bytes] = []
        while not found:
            data = self.receive(waits=True)
            if not data:
                return -1
            found = self._frames.feed(data)
        response = r.decode(r.ConnectResponse, found[0])
        self.session_id, self.timeout_ms = response.session_id, response.timeout_ms
        self.password = response.password or b""
        self._take(found[1:])
        return self.timeout_ms

    def begin(self, op: int, request: Record = ()) -> int:
        """Sends a request and returns its xid."""
        self._xid += 1
        self._ops[self._xid] = op
        self.send(frames.request_frame(self._xid, op, request))
        return self._xid

    def call(self, op: int, request: Record = ()) -> Answer:
        return self.answer_to(self.begin(op, request))

    def answer_to(self, xid: int) -> Answer:
        """Waits for an answer, which must be the only one."""
        seen = 0
        while True:
            answers = [each for each in self.received[seen:] if isinstance(each, Answer) and each.xid == xid]
            if answers:
                assert len(answers) == 1, answers
                return answers[0]
            seen = len(self.received)
            data = self.receive(waits=True)
            assert data, f"no answer to {OpCode(self._ops.get(xid, OpCode.PING)).name}"
            self._take(self._frames.feed(data))

    def take(self) -> list[Answer | Event]:
        """Returns the answers and events received since the last call."""
        before = len(self.received)
        self._take(self._frames.feed(self.receive(waits=False)))
        return self.received[before:]

    def take_events(self) -> list[Event]:
        self.take()
        events, self.events = self.events, []
        return events

    def _take(self, found: list[bytes]) -> None:
        for frame in found:
            reader = FieldReader(frame)
            header = r.read(r.ReplyHeader, reader)
            if header.xid == NOTIFICATION_XID:
                event = r.read(r.WatcherEvent, reader)
                self.events.append(Event(event.type, event.path))
                self.received.append(self.events[-1])
            else:
                op = OpCode.PING if header.xid == PING_XID else self._ops.get(header.xid, OpCode.PING)
                body = () if header.error or reader.is_at_end else read_response(op, reader)
                self.received.append(Answer(header.xid, header.zxid, header.error, body))

    # -- requests by name

    def create(
        self, path: str, data: bytes | None = b"", flags: int = 0, acl: tuple[r.Acl, ...] = r.OPEN_ACL
    ) -> Answer:
        return self.call(OpCode.CREATE2, r.CreateRequest(path, data, acl, flags))

    def set(self, path: str, data: bytes | None, version: int = -1) -> Answer:
        return self.call(OpCode.SET_DATA, r.SetDataRequest(path, data, version))

    def delete(self, path: str, version: int = -1) -> Answer:
        return self.call(OpCode.DELETE, r.DeleteRequest(path, version))

    def get(self, path: str, watch: bool = False) -> Answer:
        return self.call(OpCode.GET_DATA, r.WatchedRequest(path, watch))

    def exists(self, path: str, watch: bool = False) -> Answer:
        return self.call(OpCode.EXISTS, r.WatchedRequest(path, watch))

    def children(self, path: str, watch: bool = False) -> Answer:
        return self.call(OpCode.GET_CHILDREN2, r.WatchedRequest(path, watch))

    def stat(self, path: str) -> r.Stat:
        answer = self.exists(path)
        assert not answer.error
        stat: r.Stat = answer.body.stat
        return stat

    def names(self, path: str) -> tuple[str, ...]:
        names: tuple[str, ...] = self.children(path).body.names
        return tuple(sorted(names))

    def close(self) -> Answer:
        return self.call(OpCode.CLOSE_SESSION)
