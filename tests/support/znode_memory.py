"""ZooKeeper in memory: znodes of several clients, and requests that wait until a test answers or loses them.

`MemoryTree` has the znodes and watches; each `ZnodeMemory` is one client of it, a `ZnodeStore`. A change is made, and
its watches fire, when its request is answered, which is when a test says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from barnabas.simulation.host import EPOCH_WALL_MS
from barnabas.zookeeper.client.store import (
    LOST_CHILDREN,
    LOST_CREATE,
    LOST_EXISTS,
    LOST_MULTI,
    LOST_READ,
    ChildrenReply,
    CreateReply,
    ExistsReply,
    MultiReply,
    ReadReply,
    StoreListener,
    ZnodeContent,
)
from barnabas.zookeeper.wire.codes import ANY_VERSION, CreateFlags, ErrorCode, EventType, OpCode
from barnabas.zookeeper.wire.operations import Part, Record
from barnabas.zookeeper.wire.records import (
    Acl,
    CheckVersionRequest,
    CreateRequest,
    DeleteRequest,
    PathResponse,
    SetDataRequest,
    Stat,
    StatResponse,
)

#: A request that waits: it takes effect, or only loses its reply, when the test says so.
_Waiting = Callable[[bool, bool], None]
_EPHEMERAL = (CreateFlags.EPHEMERAL, CreateFlags.EPHEMERAL_SEQUENTIAL)
_SEQUENTIAL = (CreateFlags.PERSISTENT_SEQUENTIAL, CreateFlags.EPHEMERAL_SEQUENTIAL)


@dataclass(frozen=True)
class _Node:
    data: bytes | None
    version: int = 0
    owner: int = 0
    czxid: int = 0
    mzxid: int = 0
    #: How many children were created, and deleted.
    created: int = 0
    deleted: int = 0


@dataclass
class _Batch:
    """The effects of one multi before it is accepted."""

    nodes: dict[str, _Node]
    zxid: int
    session_id: int
    closed: frozenset[str] = frozenset()
    results: list[Record] = field(default_factory=list)
    events: list[tuple[str, EventType]] = field(default_factory=list)

    def change(self, path: str, **fields: Any) -> None:
        node = self.nodes.get(path)
        if node is not None:
            self.nodes[path] = replace(node, **fields)


class MemoryTree:
    """The znodes. A znode can be put under a parent that does not exist, as a shortcut of tests."""

    def __init__(self, znodes: Mapping[str, ZnodeContent] | None = None) -> None:
        self.nodes = {"/": _Node(b"")}
        self.nodes |= {path: _Node(data, version) for path, (data, version) in (znodes or {}).items()}
        #: The time of every creation and change.
        self.wall_ms = EPOCH_WALL_MS
        #: Paths whose ACL forbids everybody to create znodes below them.
        self.closed: frozenset[str] = frozenset()
        self.zxid = 0
        self.sessions = 0
        self.clients: list[ZnodeMemory] = []
        #: The names below each path; None after a znode was created or deleted.
        self._below: dict[str, list[str]] | None = None

    def content(self, path: str) -> ZnodeContent | None:
        node = self.nodes.get(path)
        return None if node is None else ZnodeContent(node.data, node.version)

    def stat(self, path: str) -> Stat | None:
        node = self.nodes.get(path)
        if node is None:
            return None
        changes = node.created + node.deleted
        size = len(node.data or b"")
        count = len(self.names(path))
        return Stat(
            node.czxid,
            node.mzxid,
            self.wall_ms,
            self.wall_ms,
            node.version,
            changes,
            0,
            node.owner,
            size,
            count,
            node.mzxid,
        )

    def names(self, path: str) -> tuple[str, ...]:
        if self._below is None:
            self._below = {}
            for each in self.nodes:
                self._below.setdefault(_parent_of(each), []).append(each.rpartition("/")[2])
            self._below["/"].remove("")
        return tuple(self._below.get(path, ()))

    def apply(self, parts: Sequence[Part], session_id: int) -> MultiReply:
        """Makes all changes, or none; the watches fire."""
        batch = _Batch(dict(self.nodes), self.zxid + 1, session_id, self.closed)
        for place, part in enumerate(parts):
            code = _change(batch, part)
            if code is not ErrorCode.OK:
                rest = len(parts) - place - 1
                return MultiReply((*[ErrorCode.OK] * place, code, *[ErrorCode.RUNTIME_INCONSISTENCY] * rest))
        self.nodes, self.zxid = batch.nodes, batch.zxid
        if any(part.type not in (OpCode.SET_DATA, OpCode.CHECK) for part in parts):
            self._below = None
        stats = [self.stat(result[0]) if type(result) is tuple and result else None for result in batch.results]
        results = (
            result if stat is None else StatResponse(stat) for result, stat in zip(batch.results, stats, strict=True)
        )
        reply = MultiReply((ErrorCode.OK,) * len(parts), tuple(results))
        for path, event in batch.events:
            for client in list(self.clients):
                client.fire(path, event)
        return reply

    def set(self, path: str, data: bytes | None) -> None:
        """Creates or changes a znode as an operator does, whatever its version is."""
        if path in self.nodes:
            self.apply([Part(OpCode.SET_DATA, SetDataRequest(path, data, ANY_VERSION))], 0)
        else:
            self.nodes.setdefault(_parent_of(path), _Node(b""))
            self._below = None
            self.apply([Part(OpCode.CREATE, CreateRequest(path, data, None, CreateFlags.PERSISTENT))], 0)

    def delete(self, path: str) -> None:
        """Deletes a znode as an operator does."""
        reply = self.apply([Part(OpCode.DELETE, DeleteRequest(path, ANY_VERSION))], 0)
        assert reply.refused_part is None, (path, reply.errors)

    def end_session(self, session_id: int) -> None:
        """Deletes the ephemeral znodes of a session."""
        owned = [path for path, node in self.nodes.items() if node.owner == session_id]
        self.apply([Part(OpCode.DELETE, DeleteRequest(path, ANY_VERSION)) for path in owned], session_id)


def _change(batch: _Batch, part: Part) -> ErrorCode:
    record = part.record
    if isinstance(record, CreateRequest):
        return _create(batch, record)
    assert isinstance(record, SetDataRequest | DeleteRequest | CheckVersionRequest)
    node = batch.nodes.get(record.path)
    if node is None:
        return ErrorCode.NO_NODE
    if record.version not in (ANY_VERSION, node.version):
        return ErrorCode.BAD_VERSION
    result: Record = ()
    if isinstance(record, SetDataRequest):
        batch.change(record.path, data=record.data, version=node.version + 1, mzxid=batch.zxid)
        batch.events.append((record.path, EventType.NODE_DATA_CHANGED))
        result = (record.path,)
    elif isinstance(record, DeleteRequest):
        if node.created > node.deleted or (
            not node.czxid and any(path.startswith(record.path + "/") for path in batch.nodes)
        ):
            return ErrorCode.NOT_EMPTY
        del batch.nodes[record.path]
        parent = batch.nodes.get(_parent_of(record.path))
        if parent is not None:
            batch.change(_parent_of(record.path), deleted=parent.deleted + 1)
        batch.events.append((record.path, EventType.NODE_DELETED))
        batch.events.append((_parent_of(record.path), EventType.NODE_CHILDREN_CHANGED))
    batch.results.append(result)
    return ErrorCode.OK


def _create(batch: _Batch, record: CreateRequest) -> ErrorCode:
    parent = batch.nodes.get(_parent_of(record.path))
    path = record.path
    if record.flags in _SEQUENTIAL and parent is not None:
        path = f"{path}{parent.created:010d}"
    if parent is not None and _parent_of(path) in batch.closed:
        return ErrorCode.NO_AUTH
    if path in batch.nodes:
        return ErrorCode.NODE_EXISTS
    if parent is None:
        return ErrorCode.NO_NODE
    if parent.owner:
        return ErrorCode.NO_CHILDREN_FOR_EPHEMERALS
    batch.change(_parent_of(path), created=parent.created + 1)
    owner = batch.session_id if record.flags in _EPHEMERAL else 0
    batch.nodes[path] = _Node(record.data, 0, owner, batch.zxid, batch.zxid)
    batch.events.append((path, EventType.NODE_CREATED))
    batch.events.append((_parent_of(path), EventType.NODE_CHILDREN_CHANGED))
    batch.results.append(PathResponse(path))
    return ErrorCode.OK


def _parent_of(path: str) -> str:
    return path.rpartition("/")[0] or "/"


#: The kinds of watch that an event fires: armed by `read` and `exists`, or by `children`.
_FIRED = {
    EventType.NODE_CREATED: ("data",),
    EventType.NODE_DATA_CHANGED: ("data",),
    EventType.NODE_DELETED: ("data", "children"),
    EventType.NODE_CHILDREN_CHANGED: ("children",),
}


#: `jute.maxbuffer`: a client refuses larger requests itself.
FRAME_BYTES_MAX = 0xFFFFF


class ZnodeMemory:
    """A client, whose session is open and connected at first, unless `is_open` is false. Its requests wait until
    `answer` or a loss, in any state of the session."""

    def __init__(
        self,
        znodes: Mapping[str, ZnodeContent] | None = None,
        *,
        tree: MemoryTree | None = None,
        listener: StoreListener | None = None,
        is_open: bool = True,
    ) -> None:
        self.tree = tree or MemoryTree(znodes)
        self.tree.clients.append(self)
        self.listener = listener
        self.session_id = 0
        self.is_connected = False
        #: The multis and creations that took effect, without its checks: (operation, path).
        self.log: list[list[tuple[OpCode, str]]] = []
        #: The number of parts of each multi that was sent.
        self.sent: list[int] = []
        self._waiting: list[_Waiting] = []
        self._watches: set[tuple[str, str]] = set()
        self._unseen: list[tuple[str, EventType]] = []
        if is_open:
            self._open()

    @property
    def znodes(self) -> dict[str, ZnodeContent]:
        """Returns the znodes below the root."""
        return {path: ZnodeContent(each.data, each.version) for path, each in self.tree.nodes.items() if path != "/"}

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    # -- the port

    def multi(self, parts: Sequence[Part], reply: Callable[[MultiReply], None]) -> None:
        self.sent.append(len(parts))

        def run(happens: bool, arrives: bool) -> None:
            result = self._apply(parts) if happens else LOST_MULTI
            reply(result if arrives else LOST_MULTI)

        self._wait(run)

    def read(self, path: str, reply: Callable[[ReadReply], None], *, watch: bool = False) -> None:
        def run(happens: bool, arrives: bool) -> None:
            if not arrives:
                reply(LOST_READ)
                return
            found = self.tree.content(path)
            self._arm(path, "data", watch and found is not None)
            reply(ReadReply(found, self.tree.stat(path), _code_of(found)))

        self._wait(run)

    def exists(self, path: str, reply: Callable[[ExistsReply], None], *, watch: bool = False) -> None:
        def run(happens: bool, arrives: bool) -> None:
            if not arrives:
                reply(LOST_EXISTS)
                return
            self._arm(path, "data", watch)
            stat = self.tree.stat(path)
            reply(ExistsReply(stat, _code_of(stat)))

        self._wait(run)

    def children(self, path: str, reply: Callable[[ChildrenReply], None], *, watch: bool = False) -> None:
        def run(happens: bool, arrives: bool) -> None:
            if not arrives:
                reply(LOST_CHILDREN)
                return
            stat = self.tree.stat(path)
            self._arm(path, "children", watch and stat is not None)
            names = None if stat is None else self.tree.names(path)
            reply(ChildrenReply(names, stat, _code_of(stat)))

        self._wait(run)

    def create(
        self,
        path: str,
        data: bytes | None,
        flags: int,
        acl: tuple[Acl, ...] | None,
        reply: Callable[[CreateReply], None],
    ) -> None:
        def run(happens: bool, arrives: bool) -> None:
            result = self._apply([Part(OpCode.CREATE, CreateRequest(path, data, acl, flags))]) if happens else None
            if result is None or not arrives:
                reply(LOST_CREATE)
            elif result.refused_part is None:
                reply(CreateReply(result.results[0][0]))
            else:
                assert result.errors is not None
                reply(CreateReply("", result.errors[0]))

        self._wait(run)

    # -- what happens to requests

    def answer(self, count: int = 1) -> None:
        """Carries out the oldest requests and delivers their replies."""
        assert self.is_connected or not self.session_id, "requests wait for the next connection"
        for _ in range(count):
            self._waiting.pop(0)(True, True)

    def answer_all(self) -> None:
        while self._waiting:
            self.answer()

    def lose_all(self, happened: int) -> None:
        """Loses the replies of all requests; the first `happened` took effect."""
        waiting, self._waiting = self._waiting, []
        for place, run in enumerate(waiting):
            run(place < happened, False)

    def set(self, path: str, data: bytes | None) -> None:
        """Changes a znode as an operator does."""
        self.tree.set(path, data)

    # -- what happens to the session

    def open_session(self) -> None:
        """Opens a new session, which is connected."""
        assert not self.session_id
        self._open()
        if self.listener is not None:
            self.listener.session_opened(self.session_id)

    def disconnect(self, happened: int = 0) -> None:
        """Ends the connection and loses all requests, the first `happened` of which took effect."""
        self.is_connected = False
        self.lose_all(happened)
        if self.listener is not None:
            self.listener.disconnected()

    def reconnect(self) -> None:
        """Connects the session again; watches that fired meanwhile are delivered."""
        assert self.session_id
        self.is_connected = True
        if self.listener is not None:
            self.listener.reconnected()
        unseen, self._unseen = self._unseen, []
        for path, event in unseen:
            self._deliver(path, event)

    def expire(self, *, leaves_znodes: bool = False) -> None:
        """Ends the session, with its ephemeral znodes, unless the server removes them later, and its watches."""
        if self.is_connected:
            self.disconnect()
        ended, self.session_id = self.session_id, 0
        self._watches.clear()
        self._unseen.clear()
        self.lose_all(0)
        if not leaves_znodes:
            self.tree.end_session(ended)
        if self.listener is not None:
            self.listener.session_expired()

    def fire(self, path: str, event: EventType) -> None:
        """Handles an event of the tree: notifies the listener if a watch fires."""
        armed = [(path, kind) for kind in _FIRED[event] if (path, kind) in self._watches]
        if armed:
            self._watches.difference_update(armed)
            if self.is_connected:
                self._deliver(path, event)
            else:
                self._unseen.append((path, event))

    def _open(self) -> None:
        self.tree.sessions += 1
        self.session_id = self.tree.sessions
        self.is_connected = True

    def _deliver(self, path: str, event: EventType) -> None:
        if self.listener is not None:
            self.listener.changed(path, event)

    def _arm(self, path: str, kind: str, wanted: bool) -> None:
        if wanted:
            self._watches.add((path, kind))

    def _wait(self, run: _Waiting) -> None:
        """Keeps a request; one that was made without a session is lost."""
        has_session = self.session_id != 0
        self._waiting.append(lambda happens, arrives: run(happens and has_session, arrives and has_session))

    def _apply(self, parts: Sequence[Part]) -> MultiReply:
        if sum(len(field) for part in parts for field in part.record if isinstance(field, bytes)) > FRAME_BYTES_MAX:
            return MultiReply((ErrorCode.MARSHALLING_ERROR,) * len(parts))
        reply = self.tree.apply(parts, self.session_id)
        if reply.refused_part is None:
            self.log.append([(OpCode(part.type), part.record[0]) for part in parts if part.type != OpCode.CHECK])
        return reply


def _code_of(found: object) -> ErrorCode:
    return ErrorCode.NO_NODE if found is None else ErrorCode.OK


def answer_all(*stores: ZnodeMemory) -> None:
    """Answers the requests of several clients, and those that follow from the answers."""
    while any(store.waiting for store in stores):
        for store in stores:
            store.answer_all()
