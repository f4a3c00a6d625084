"""Our client joined to our server, with connections cut, sessions expired and the server restarted at any time.

Checked after each run: every request is answered once and in its order; what was acknowledged happened once, what was
refused did not, what was lost either; the writes of a client took effect in the order of its calls; no read goes back;
a watch is told once, and each change that follows an armed one is told, unless the session has ended.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.zookeeper_links import JoinedClient, RecordingListener
from tests.support.zookeeper_world import World

from barnabas.zookeeper.client.session import SessionState
from barnabas.zookeeper.wire import records as r
from barnabas.zookeeper.wire.codes import EventType, OpCode
from barnabas.zookeeper.wire.operations import Part

CLIENTS = 3
PATHS = ("/a", "/b", "/c")
Step = tuple[str, int, int]

_CALLS = ("write", "both", "read", "exists", "make", "drop")
#: The operations, each as often as it should be drawn.
_STEPS: tuple[Step, ...] = (
    *((name, client, path) for name in _CALLS for client in range(CLIENTS) for path in range(len(PATHS))),
    *(("run", 0, duration_ms) for duration_ms in (1, 1, 2, 2, 3, 3, 5, 5, 50, 50, 200, 1_200) * 2),
    *((name, client, 0) for name in ("cut", "cut", "cut", "silence", "refuse") for client in range(CLIENTS)),
    ("expire", 0, 0),
    ("restart", 0, 0),
)
_steps = st.lists(st.sampled_from(_STEPS), min_size=20, max_size=60)


class Observer(RecordingListener):
    """A user that opens the next session after an expiry, and checks its notifications."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number
        self.client: JoinedClient | None = None
        self.calls = 0
        #: The number of the call that was answered last.
        self.answered = -1
        #: (name of the znode, error code; None for lost) of each write, in the order of the calls.
        self.writes: list[tuple[str, int | None]] = []
        #: The zxid of the last change of a path that this session saw.
        self.seen: dict[str, int] = {}
        self.armed: set[str] = set()
        self.session_id = 0

    def answer(self, call: int) -> None:
        assert call == self.answered + 1, "each request is answered once, in the order of the calls"
        self.answered = call

    def next_call(self) -> int:
        self.calls += 1
        return self.calls - 1

    def session_opened(self, session_id: int) -> None:
        assert session_id != self.session_id
        self.session_id = session_id

    def disconnected(self) -> None:
        assert self.answered == self.calls - 1, "a lost connection loses all requests before it is told"

    def reconnected(self) -> None:
        assert self.client is not None
        assert self.client.client.session_id == self.session_id

    def session_expired(self) -> None:
        assert self.client is not None
        self.seen.clear()
        self.armed.clear()
        self.client.client.open()

    def changed(self, path: str, event_type: EventType) -> None:
        assert path in self.armed, f"{path} was told again, or never armed"
        self.armed.remove(path)

    def look(self, path: str, stat: r.Stat | None) -> None:
        if stat is not None:
            assert stat.mzxid >= self.seen.get(path, 0), "a read went back"
            self.seen[path] = stat.mzxid


class Run:
    def __init__(self) -> None:
        self.world = World()
        self.observers = [Observer(number) for number in range(CLIENTS)]
        self.clients = [JoinedClient(self.world, seed=each.number, listener=each) for each in self.observers]
        for observer, client in zip(self.observers, self.clients, strict=True):
            observer.client = client
            client.client.open()
        self.world.run_for(10)
        setup = self.world.session(20_000)
        for path in PATHS:
            setup.create(path)
        setup.create("/w")
        setup.close()

    def step(self, name: str, client: int, argument: int) -> None:
        getattr(self, f"do_{name}")(client, argument)

    def do_run(self, client: int, duration_ms: int) -> None:
        self.world.run_for(duration_ms)

    def do_write(self, client: int, path: int) -> None:
        """Creates a znode that nobody else creates."""
        observer = self.observers[client]
        call, name = observer.next_call(), self._next_name(observer)

        def reply(answer: Any) -> None:
            observer.answer(call)
            observer.writes[int(name[2:])] = (name, None if answer.is_lost else answer.error)

        self.clients[client].client.create(f"/w/{name}", b"", 0, r.OPEN_ACL, reply)

    def do_both(self, client: int, path: int) -> None:
        """Creates such a znode and changes a shared one, or neither: its version may be another one by then."""
        observer = self.observers[client]
        call, name = observer.next_call(), self._next_name(observer)
        version = self.world.server.database.tree.nodes[PATHS[path]].version if PATHS[path] in self._nodes else 0
        parts = [
            Part(OpCode.CREATE, r.CreateRequest(f"/w/{name}", b"", r.OPEN_ACL, 0)),
            Part(OpCode.SET_DATA, r.SetDataRequest(PATHS[path], b"", version)),
        ]

        def reply(answer: Any) -> None:
            observer.answer(call)
            error = None if answer.is_lost else max(map(abs, answer.errors))
            observer.writes[int(name[2:])] = (name, error)

        self.clients[client].client.multi(parts, reply)

    def do_read(self, client: int, path: int) -> None:
        observer, name = self.observers[client], PATHS[path]
        call = observer.next_call()

        def reply(answer: Any) -> None:
            observer.answer(call)
            if answer.stat is not None:
                observer.look(name, answer.stat)
                observer.armed.add(name)

        self.clients[client].client.read(name, reply, watch=True)

    def do_exists(self, client: int, path: int) -> None:
        observer, name = self.observers[client], PATHS[path]
        call = observer.next_call()

        def reply(answer: Any) -> None:
            observer.answer(call)
            if answer.stat is not None:
                observer.look(name, answer.stat)
            if not answer.is_lost:
                observer.armed.add(name)

        self.clients[client].client.exists(name, reply, watch=True)

    def do_make(self, client: int, path: int) -> None:
        self._plain(client, lambda c, reply: c.create(PATHS[path], b"", 0, r.OPEN_ACL, reply))

    def do_drop(self, client: int, path: int) -> None:
        part = Part(OpCode.DELETE, r.DeleteRequest(PATHS[path], -1))
        self._plain(client, lambda c, reply: c.multi([part], reply))

    def _plain(self, client: int, call_with: Any) -> None:
        observer = self.observers[client]
        call = observer.next_call()
        call_with(self.clients[client].client, lambda answer: observer.answer(call))

    def do_cut(self, client: int, argument: int) -> None:
        self.clients[client].links.wire.cut()

    def do_silence(self, client: int, argument: int) -> None:
        self.clients[client].links.wire.is_silent = True

    def do_refuse(self, client: int, argument: int) -> None:
        links = self.clients[client].links
        links.refuses = not links.refuses

    def do_expire(self, client: int, argument: int) -> None:
        """Ends the session at the server, whatever the client does."""
        session_id = self.clients[client].client.session_id
        if session_id in self.world.server.database.sessions:
            thief = self.world.client()
            thief.connect(6_000, session_id, self.clients[client].client._session._password)
            thief.close()

    def do_restart(self, client: int, argument: int) -> None:
        self.world.restart()

    def heal(self) -> None:
        for client in self.clients:
            client.links.refuses = False
        self.world.run_for(30_000)

    def change_all(self) -> None:
        """Changes every path: whatever is armed must be told."""
        other = self.world.session(20_000)
        for path in PATHS:
            if path in self._nodes:
                other.set(path, b"last")
            else:
                other.create(path)
        self.world.run_for(100)

    @property
    def _nodes(self) -> dict[str, Any]:
        return self.world.server.database.tree.nodes

    def _next_name(self, observer: Observer) -> str:
        name = f"{observer.number}-{len(observer.writes)}"
        observer.writes.append((name, None))
        return name

    def check(self) -> None:
        created: list[tuple[str, int]] = [
            (path, entry.header.zxid)
            for entry in self.world.log.entries
            for path in _created_by(entry.txn)
            if path.startswith("/w/")
        ]
        zxids = dict(created)
        assert len(zxids) == len(created), "a request was repeated"
        for observer, client in zip(self.observers, self.clients, strict=True):
            assert client.state() is SessionState.CONNECTED
            assert observer.answered == observer.calls - 1, "a request was not answered"
            order = []
            for name, error in observer.writes:
                happened = zxids.get(f"/w/{name}")
                assert error is None or (happened is not None) is (error == 0), (name, error, happened)
                if happened is not None:
                    order.append(happened)
            assert order == sorted(order), "writes took effect in another order"
            assert not observer.armed, "a change was not told"


def _created_by(txn: Any) -> list[str]:
    """Returns the paths that a transaction created; none of a multi that failed."""
    parts = getattr(txn, "parts", None)
    if parts is None:
        return [txn.path] if hasattr(txn, "parent_cversion") else []
    if any(part.type == OpCode.ERROR for part in parts):
        return []
    return [part.txn.path for part in parts if hasattr(part.txn, "parent_cversion")]


@given(_steps)
@settings(max_examples=150, deadline=None)
def test_a_client_keeps_its_promises_over_cuts_expiries_and_restarts(steps: list[Step]) -> None:
    run = Run()
    for step in steps:
        run.step(*step)
    run.heal()
    run.change_all()
    run.check()
