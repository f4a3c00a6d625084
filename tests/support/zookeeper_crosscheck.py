"""The same random operations to two ZooKeeper servers; all answers, Stats, errors and events must be equal.

Both servers are new, so that zxids are equal, too. Differences that are unavoidable are removed: times are left out,
sessions have numbers, and lists without an order are sorted.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

from tests.support.zookeeper_client import Answer, Event, WireClient

from barnabas.zookeeper.wire import frames
from barnabas.zookeeper.wire import records as r
from barnabas.zookeeper.wire.codes import PING_XID, AddWatchMode, CreateFlags, OpCode, WatcherType
from barnabas.zookeeper.wire.operations import MultiRequest, MultiResponse, Part, Record

C = TypeVar("C", bound=WireClient)

#: The timeout of all sessions, longer than a run.
TIMEOUT_MS: Final = 20_000
CLIENTS: Final = 3


class SocketClient(WireClient):
    """A client of a server process."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self._socket = socket.create_connection(("127.0.0.1", port), 20)

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive(self, *, waits: bool) -> bytes:
        try:
            return self._socket.recv(65536, 0 if waits else socket.MSG_DONTWAIT)
        except BlockingIOError:
            return b""
        except ConnectionError:
            return b""

    def drop(self) -> None:
        """Closes the connection, and leaves the session open."""
        self._socket.close()


class Step(NamedTuple):
    """An operation of a client. The operations "connect", "reconnect" and "drop" have no request."""

    client: int
    name: str
    op: int = 0
    request: Record = ()


class Side(Generic[C]):
    """A server of the two, with its clients by number."""

    def __init__(self, new_client: Callable[[], C], drop: Callable[[C], None]) -> None:
        self._new_client = new_client
        self._drop = drop
        self._clients: dict[int, C] = {}
        #: The number of each session, in the order in which they were opened.
        self._sessions: dict[int, int] = {0: 0}

    def run(self, step: Step) -> list[Any]:
        """Performs a step. Returns what each client received, in a form that both sides share."""
        for client in self._clients.values():
            client.received.clear()
        result = self._perform(step)
        return [step.name, result, *self._received(step)]

    def _perform(self, step: Step) -> Any:
        client = self._clients.get(step.client)
        if step.name == "connect":
            self._clients[step.client] = client = self._new_client()
            timeout_ms = client.connect(TIMEOUT_MS)
            self._sessions.setdefault(client.session_id, len(self._sessions))
            return timeout_ms
        assert client is not None
        if step.name == "reconnect":
            again = self._clients[step.client] = self._new_client()
            timeout_ms = again.connect(TIMEOUT_MS, client.session_id, client.password)
            self._drop(client)
            return timeout_ms
        answer = self._shared(client.call(step.op, step.request))
        if step.op == OpCode.CLOSE_SESSION:
            self._drop(client)
            del self._clients[step.client]
        return answer

    def _received(self, step: Step) -> list[Any]:
        found: list[Any] = []
        for number, client in sorted(self._clients.items()):
            client.send(frames.request_frame(PING_XID, OpCode.PING, ()))
            client.answer_to(PING_XID)
            received = [self._shared(each) for each in client.received]
            # A session's ephemeral nodes are deleted in any order.
            found.append((number, sorted(map(repr, received)) if step.op == OpCode.CLOSE_SESSION else received))
        return found

    def _shared(self, value: Any) -> Any:
        match value:
            case Answer():
                xid = value.xid if value.xid < 0 else 0
                return Answer(xid, value.zxid, value.error, self._shared(value.body))
            case r.Stat():
                return value._replace(ctime=0, mtime=0, ephemeral_owner=self._sessions[value.ephemeral_owner])
            case r.NamesResponse(names):
                return sorted(names or ())
            case r.Children2Response(names, stat):
                return sorted(names or ()), self._shared(stat)
            case r.AclResponse(acl, stat):
                return sorted(acl or ()), self._shared(stat)
            case r.WhoAmIResponse(clients):
                return sorted(clients or ())
            case MultiResponse(parts):
                return [(part.type, self._shared(part.record)) for part in parts]
            case Event() | r.PathResponse() | r.CountResponse() | r.ErrorResponse():
                return value
            case r.StatResponse(stat):
                return self._shared(stat)
            case r.DataResponse(data, stat) | r.Create2Response(data, stat):
                return data, self._shared(stat)
        assert value == (), value
        return value


_NAMES: Final = ("a", "b", "c")
_STRANGE_PATHS: Final = (
    "/",
    "",
    "a",
    "/a/",
    "//",
    "/a//b",
    "/.",
    "/a/..",
    "/a\x02",
    "/\ue000",
    "/a\0",
    "/zookeeper/config",
)
_QUOTA_PATHS: Final = (
    "/zookeeper/quota/a",
    "/zookeeper/quota/a/zookeeper_limits",
    "/zookeeper/quota/a/zookeeper_stats",
)
_ACLS: Final = (
    r.OPEN_ACL,
    r.OPEN_ACL,
    r.OPEN_ACL,
    r.READ_ACL,
    r.CREATOR_ALL_ACL,
    (),
    None,
    (r.Acl(31, r.Id("ip", "127.0.0.0/8")),),
    (r.Acl(31, r.Id("ip", "10.0.0.1")), r.Acl(1, r.Id("world", "anyone"))),
    (r.Acl(5, r.Id("world", "anyone")), r.Acl(5, r.Id("world", "anyone"))),
    (r.Acl(31, r.Id("digest", "user:hash")),),
    (r.Acl(31, r.Id("digest", "bad")),),
    (r.Acl(31, r.Id("nobody", "x")),),
    (r.Acl(31, r.Id("world", "x")),),
)
_VERSIONS: Final = (-1, -1, -1, 0, 1, 2, -2)
_DATA: Final = (b"", b"x", b"hello", None, bytes(20))


class Generator:
    """Draws steps. Paths are few, so that several operations concern the same path."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._open: set[int] = set()

    def step(self) -> Step:
        client = self._random.randrange(CLIENTS)
        if client not in self._open:
            self._open.add(client)
            return Step(client, "connect")
        kind = self._random.random()
        if kind < 0.01:
            self._open.discard(client)
            return Step(client, "close", OpCode.CLOSE_SESSION)
        if kind < 0.02:
            return Step(client, "reconnect")
        op, request = self._operation()
        return Step(client, f"{client} {OpCode(op).name} {request}", op, request)

    def _operation(self) -> tuple[int, Record]:
        draw = self._random
        kind = draw.random()
        if kind < 0.45:
            return self._write()
        if kind < 0.70:
            op = draw.choice((OpCode.EXISTS, OpCode.GET_DATA, OpCode.GET_CHILDREN, OpCode.GET_CHILDREN2))
            return op, r.WatchedRequest(self._path(), draw.random() < 0.4)
        if kind < 0.82:
            count = draw.randrange(5)
            return OpCode.MULTI, MultiRequest(tuple(self._part() for _ in range(count)))
        return self._rare()

    def _rare(self) -> tuple[int, Record]:
        draw = self._random
        match draw.randrange(11):
            case 0:
                return OpCode.ADD_WATCH, r.AddWatchRequest(self._path(), draw.choice(tuple(AddWatchMode)))
            case 1:
                return OpCode.REMOVE_WATCHES, r.WatchesRequest(self._path(), draw.choice(tuple(WatcherType)))
            case 2:
                return OpCode.CHECK_WATCHES, r.WatchesRequest(self._plain_path(), draw.choice(tuple(WatcherType)))
            case 3:
                reads = (OpCode.GET_DATA, OpCode.GET_CHILDREN)
                count = draw.randrange(4)
                parts = [Part(draw.choice(reads), r.WatchedRequest(self._path(), False)) for _ in range(count)]
                return OpCode.MULTI_READ, MultiRequest(tuple(parts))
            case 4:
                return OpCode.GET_ACL, r.PathRequest(self._path())
            case 5:
                return OpCode.GET_EPHEMERALS, r.PathRequest(draw.choice(("", "/", "/a", "/b/")))
            case 6:
                return OpCode.GET_ALL_CHILDREN_NUMBER, r.PathRequest(self._path())
            case 7:
                return OpCode.SYNC, r.PathRequest(self._path())
            case 8:
                return OpCode.WHO_AM_I, ()
            case 9:
                return OpCode.AUTH, r.AuthPacket(0, "digest", draw.choice((b"u:p", b"v:q", b"super:admin")))
        some = [tuple(self._path() for _ in range(draw.randrange(3))) for _ in range(5)]
        return OpCode.SET_WATCHES2, r.SetWatches2Request(draw.randrange(200), *some)

    def _write(self) -> tuple[int, Record]:
        draw = self._random
        if draw.random() < 0.05:
            path, data = draw.choice(_QUOTA_PATHS), draw.choice((b"", b"count=5,bytes=50", b"count=-1,bytes=-1"))
            return draw.choice(
                (
                    (int(OpCode.CREATE), r.CreateRequest(path, data, r.OPEN_ACL, 0)),
                    (int(OpCode.CREATE), r.CreateRequest(path, data, r.OPEN_ACL, 0)),
                    (int(OpCode.DELETE), r.DeleteRequest(path, -1)),
                )
            )
        kind = draw.random()
        if kind < 0.5:
            return self._creation()
        if kind < 0.7:
            return OpCode.DELETE, r.DeleteRequest(self._path(), draw.choice(_VERSIONS))
        if kind < 0.95:
            return OpCode.SET_DATA, r.SetDataRequest(self._path(), draw.choice(_DATA), draw.choice(_VERSIONS))
        return OpCode.SET_ACL, r.SetAclRequest(self._path(), draw.choice(_ACLS), draw.choice(_VERSIONS))

    def _creation(self) -> tuple[int, Record]:
        draw = self._random
        path, data = self._path(), draw.choice(_DATA)
        acl = draw.choice(_ACLS) if draw.random() < 0.2 else r.OPEN_ACL
        op = draw.choice((OpCode.CREATE, OpCode.CREATE2, OpCode.CREATE2, OpCode.CREATE_CONTAINER, OpCode.CREATE_TTL))
        if op == OpCode.CREATE_TTL:
            flags = draw.choice((CreateFlags.PERSISTENT_WITH_TTL, CreateFlags.PERSISTENT_SEQUENTIAL_WITH_TTL))
            return op, r.CreateTtlRequest(path, data, acl, flags, draw.choice((1_000_000, 5_000_000, 0, -1, 1 << 41)))
        if op == OpCode.CREATE_CONTAINER:
            return op, r.CreateRequest(path, data, acl, CreateFlags.CONTAINER)
        return op, r.CreateRequest(path, data, acl, draw.choice((0, 0, 1, 1, 2, 3, 4, 5, 9)))

    def _part(self) -> Part:
        if self._random.random() < 0.25:
            return Part(OpCode.CHECK, r.CheckVersionRequest(self._path(), self._random.choice(_VERSIONS)))
        while True:
            op, request = self._write()
            if op != OpCode.SET_ACL:
                return Part(op, request)

    def _path(self) -> str:
        if self._random.random() < 0.03:
            return self._random.choice(_STRANGE_PATHS)
        return self._plain_path()

    def _plain_path(self) -> str:
        draw = self._random
        depth = draw.choice((1, 1, 2, 2, 3))
        return "".join(f"/{draw.choice(_NAMES)}" for _ in range(depth))


def first_difference(seed: int, count: int, sides: Sequence[Side[Any]]) -> str | None:
    """Runs steps on both sides. Returns the first step with different results, with the steps before it, or None."""
    generator = Generator(seed)
    done: list[str] = []
    for _ in range(count):
        step = generator.step()
        one, other = (side.run(step) for side in sides)
        done.append(step.name)
        if one != other:
            return "\n".join((*done[-12:], f"ours:   {one}", f"theirs: {other}"))
    return None
