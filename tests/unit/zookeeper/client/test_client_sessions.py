"""Sessions of our client: every edge of its automaton, its timeouts, and sessions that end (G34, G45)."""

from __future__ import annotations

import itertools

import pytest
from tests.support.zookeeper_links import JoinedClient, RecordingListener
from tests.support.zookeeper_world import World

from barnabas.zookeeper.client.session import TRANSITIONS, Credentials, SessionState
from barnabas.zookeeper.wire import frames
from barnabas.zookeeper.wire import records as r
from barnabas.zookeeper.wire.codes import CreateFlags, ErrorCode, OpCode

S = SessionState


def client_with_session(**settings: object) -> JoinedClient:
    return JoinedClient(World(), settings=dict(settings)).opened()


def test_a_session_is_dialled_asked_for_and_connected() -> None:
    client = JoinedClient(World())
    states = [client.state()]
    client.client.open()
    states.append(client.state())
    client.run(1)
    states.append(client.state())
    client.run(10)
    states.append(client.state())
    assert states == [S.CLOSED, S.DIALLING, S.CONNECTING, S.CONNECTED]
    assert client.listener.take() == ["opened"]
    assert client.client.session_id in client.world.server.database.sessions


def test_a_refused_dial_is_repeated_at_the_next_server_and_after_a_round_with_delays() -> None:
    client = JoinedClient(World(), "one,two,three")
    client.links.refuses = True
    client.client.open()
    client.run(60_000)
    dialled = client.links.dialled
    assert [at for at, _ in dialled[:3]] == [0, 1, 2]
    assert {server for _, server in dialled[:3]} == {"one:2181", "two:2181", "three:2181"}
    pauses = [second[0] - first[0] for first, second in itertools.pairwise(dialled)]
    assert max(pauses) <= 1_002
    assert len(dialled) < 200
    assert len(client.faults.warned) == 1, "told once, not at each dial"
    assert client.listener.take() == []
    client.links.refuses = False
    client.run(1_100)
    assert client.listener.take() == ["opened"]


def test_a_dial_without_an_answer_is_given_up_after_its_part_of_the_session_timeout() -> None:
    client = JoinedClient(World(), "one,two,three", settings={"session_timeout_ms": 6_000})
    client.links.is_silent = True
    client.client.open()
    client.run(4_500)
    assert [at for at, _ in client.links.dialled] == [0, 2_000, 4_000]


def test_a_server_that_accepts_and_does_not_answer_is_given_up() -> None:
    client = JoinedClient(World(), settings={"session_timeout_ms": 6_000})
    client.client.open()
    client.run(1)
    assert client.state() is S.CONNECTING
    client.links.wire.is_silent = True
    client.run(5_900)
    assert client.state() is S.CONNECTING
    client.run(300)
    assert client.listener.take() == ["opened"]


def test_an_idle_session_lives_by_its_pings() -> None:
    client = client_with_session()
    client.run(120_000)
    assert client.listener.take() == []
    assert client.state() is S.CONNECTED
    assert len(client.links.wires) == 1


@pytest.mark.parametrize(
    ("timeout_ms", "every_ms"), [(18_000, 5_000), (6_000, 1_000), (4_500, 1_000), (3_000, 1_000), (20_000, 5_666)]
)
def test_pings_are_sent_as_apaches_client_sends_them(timeout_ms: int, every_ms: int) -> None:
    """Half of the read timeout less a second; at least half of a short one."""
    client = JoinedClient(World(), settings={"session_timeout_ms": timeout_ms}).opened()
    before = client.world.server.stats.packets_received
    client.run(every_ms * 6)
    sent = client.world.server.stats.packets_received - before
    assert sent == 6, sent


def test_a_silent_connection_is_cut_after_two_thirds_of_the_timeout_and_the_session_continues() -> None:
    client = client_with_session(session_timeout_ms=6_000)
    session_id = client.client.session_id
    client.links.wire.is_silent = True
    client.run(3_900)
    assert client.listener.take() == []
    client.run(150)
    assert client.listener.take() == ["disconnected", "reconnected"]
    assert client.client.session_id == session_id


def test_a_cut_connection_is_dialled_again_at_once() -> None:
    client = client_with_session()
    client.run(5_000)
    client.links.wire.cut()
    assert client.state() is S.SUSPENDED
    client.run(5)
    assert client.listener.take() == ["disconnected", "reconnected"]


def test_a_server_that_ends_every_connection_is_not_dialled_in_a_loop() -> None:
    client = client_with_session()
    for _ in range(10):
        client.links.wire.cut()
        client.run(3)
    assert len(client.links.wires) < 10
    assert client.state() in (S.SUSPENDED, S.DIALLING, S.CONNECTED, S.CONNECTING)


def test_ephemerals_stay_over_a_reconnect_and_end_with_an_expiry() -> None:
    client = client_with_session()
    assert not client.ask(client.client.create, "/e", b"", CreateFlags.EPHEMERAL, r.OPEN_ACL).error
    client.links.wire.cut()
    client.run(2_000)
    other = JoinedClient(client.world).opened()
    assert other.ask(other.client.exists, "/e").stat.ephemeral_owner == client.client.session_id
    expire(client)
    assert other.ask(other.client.exists, "/e").error == ErrorCode.NO_NODE


def expire(client: JoinedClient) -> None:
    """Lets the session expire while the client cannot reach the server."""
    client.links.refuses = True
    client.links.wire.cut()
    client.run(10_000)
    client.links.refuses = False
    client.run(2_000)


def test_an_expired_session_is_reported_once_and_opened_by_its_user_only() -> None:
    """G34: what belongs to the old session ends before the next one opens."""
    client = client_with_session()
    old = client.client.session_id
    client.listener.take()
    expire(client)
    assert client.listener.take() == ["disconnected", "expired"]
    assert client.state() is S.EXPIRED
    assert client.client.session_id == 0
    dialled = len(client.links.dialled)
    client.run(60_000)
    assert len(client.links.dialled) == dialled, "nothing is dialled before `open`"
    client.client.open()
    client.run()
    assert client.listener.take() == ["opened"]
    assert client.client.session_id not in (0, old)


def test_a_session_outlives_a_restart_of_the_server() -> None:
    """G45: with its ephemerals."""
    client = client_with_session()
    session_id = client.client.session_id
    client.world.restart()
    client.run(2_000)
    assert client.listener.take() == ["disconnected", "reconnected"]
    assert client.client.session_id == session_id


class ScriptedServer:
    """Answers a client's connect requests with what a test says, and keeps what is sent."""

    def __init__(self, client: JoinedClient) -> None:
        self.client = client
        self.sent: list[bytes] = []

    def on_next_connection(self, response: r.ConnectResponse) -> None:
        """Replaces the answer of the server to the connection that is being dialled."""
        wire = self.client.links.wire
        assert not wire.is_connected
        self.sent = []
        wire.core = self  # type: ignore[assignment]
        wire.is_connected = True
        wire.end.connected()
        self.client.run(2)
        wire.to_client(frames.framed(response))

    def get_buffer(self) -> memoryview:
        self.area = memoryview(bytearray(100_000))
        return self.area

    def received(self, count: int) -> None:
        self.sent.append(bytes(self.area[:count]))

    def closed(self) -> None: ...


def suspended(client: JoinedClient) -> ScriptedServer:
    """Cuts the connection, and lets the client dial a server whose answers the test gives."""
    client.run(5_000)
    client.listener.take()
    client.links.is_silent = True
    client.links.wire.cut()
    client.run(1)
    client.links.wire.is_silent = False
    return ScriptedServer(client)


def test_a_session_that_comes_back_under_another_id_has_expired() -> None:
    """G45: a server must not replace a session unheard; its new session is ended."""
    client = client_with_session()
    server = suspended(client)
    server.on_next_connection(r.ConnectResponse(0, 6_000, client.client.session_id + 1, b"p" * 16))
    client.run(2)
    assert client.listener.take() == ["disconnected", "expired"]
    assert client.state() is S.EXPIRED
    assert server.sent[-1] == frames.request_frame(1, OpCode.CLOSE_SESSION, ())


def test_a_session_continues_with_the_timeout_that_the_next_server_gives() -> None:
    client = client_with_session(session_timeout_ms=18_000)
    server = suspended(client)
    server.on_next_connection(r.ConnectResponse(0, 3_000, client.client.session_id, b"p" * 16))
    assert client.listener.take() == ["disconnected", "reconnected"]
    client.run(2_100)
    assert client.state() is not S.CONNECTED, "cut after 2,000 ms without a byte"


def test_a_refused_new_session_is_asked_for_again() -> None:
    client = JoinedClient(World())
    client.links.is_silent = True
    client.client.open()
    client.links.wire.is_silent = False
    client.links.is_silent = False
    ScriptedServer(client).on_next_connection(r.ConnectResponse(0, 0, 0, bytes(16)))
    assert client.listener.take() == []
    client.run(2_000)
    assert client.listener.take() == ["opened"]


def test_the_zxid_of_a_connect_request_never_goes_back() -> None:
    """A server that is behind what the client has seen refuses it."""
    client = client_with_session()
    for path in ("/a", "/b", "/c"):
        client.ask(client.client.create, path, b"", 0, r.OPEN_ACL)
    seen = client.world.server.database.last_zxid
    client.links.wire.to_client(frames.framed(r.ReplyHeader(-2, 1, 0)))
    server = suspended(client)
    server.on_next_connection(r.ConnectResponse(0, 6_000, client.client.session_id, b"p" * 16))
    request = r.decode(r.ConnectRequest, server.sent[0], 4)
    assert request.last_zxid_seen == seen
    assert request.session_id == client.client.session_id


@pytest.mark.parametrize(
    "garbage",
    [
        b"\xff\xff\xff\xff",
        b"\x7f\xff\xff\xff",
        frames.framed(r.ReplyHeader(99, 1, 0)),
        b"\x00\x00\x00\x03abc",
        frames.framed(r.ReplyHeader(-1, -1, 0)),
    ],
    ids=["negative length", "too long", "an answer nobody waits for", "short", "an event without a body"],
)
def test_nonsense_ends_that_connection_only(garbage: bytes) -> None:
    client = client_with_session()
    client.run(2_000)
    client.links.wire.to_client(garbage)
    assert client.listener.take() == ["disconnected"]
    client.run(1_000)
    assert client.listener.take() == ["reconnected"]


def test_credentials_are_given_on_every_connection() -> None:
    credentials = (Credentials("digest", b"ann:secret"),)
    client = client_with_session(credentials=credentials)
    acl = (r.Acl(31, r.Id("auth", "")),)
    assert not client.ask(client.client.create, "/secret", b"x", 0, acl).error
    other = JoinedClient(client.world).opened()
    assert other.ask(other.client.read, "/secret").error == ErrorCode.NO_AUTH
    client.links.wire.cut()
    client.run(2_000)
    assert client.ask(client.client.read, "/secret").znode == (b"x", 0)


def test_refused_credentials_are_reported_and_the_session_continues_without_them() -> None:
    """G34: a failed authentication ends neither the process nor a session that works."""
    client = JoinedClient(World(), settings={"credentials": (Credentials("nonsense", b"x"),)})
    client.client.open()
    client.run(2_000)
    assert client.listener.take() == ["opened", "auth failed", "disconnected", "reconnected"]
    assert not client.ask(client.client.exists, "/").error


def test_closing_ends_the_session_behind_its_requests() -> None:
    client = client_with_session(window=2)
    errors: list[int] = []
    for name in "abcdef":
        client.client.create(
            f"/{name}", b"", CreateFlags.EPHEMERAL, r.OPEN_ACL, lambda reply: errors.append(reply.error)
        )
    done: list[str] = []
    client.client.close(lambda: done.append("closed"))
    client.client.exists("/", lambda reply: done.append(f"lost {reply.is_lost}"))
    assert client.state() is S.CLOSING
    client.run(50)
    assert errors == [0] * 6
    assert done == ["lost True", "closed"]
    assert client.state() is S.CLOSED
    assert not client.world.server.database.sessions
    assert client.world.server.database.tree.ephemeral_count == 0
    client.run(60_000)
    assert len(client.links.wires) == 1


def close_in(client: JoinedClient) -> None:
    done: list[bool] = []
    client.client.close(lambda: done.append(True))
    assert done == []
    client.run(50)
    assert done == [True]
    assert client.state() is S.CLOSED
    dialled = len(client.links.dialled)
    client.run(60_000)
    assert len(client.links.dialled) == dialled


def test_closing_is_possible_in_every_state() -> None:
    client = JoinedClient(World())
    close_in(client)
    client.client.open()
    close_in(client)
    client.client.open()
    client.run(1)
    assert client.state() is S.CONNECTING
    close_in(client)
    client.opened()
    client.run(2_000)
    client.links.refuses = True
    client.links.wire.cut()
    assert client.state() is S.SUSPENDED
    close_in(client)
    client.links.refuses = False
    client.listener.take()
    client.opened()
    expire(client)
    assert client.state() is S.EXPIRED
    close_in(client)
    client.listener.take()
    client.opened()
    close_in(client)


def test_a_connection_that_ends_while_closing_ends_the_session_for_the_client() -> None:
    client = client_with_session()
    done: list[str] = []
    client.client.exists("/", lambda reply: done.append(f"lost {reply.is_lost}"))
    client.client.close(lambda: done.append("closed"))
    client.client.close(lambda: done.append("closed too"))
    client.links.wire.cut()
    client.run(5)
    assert done == ["lost True", "closed", "closed too"]
    assert client.state() is S.CLOSED


def test_the_table_has_an_edge_for_each_way() -> None:
    """Every state can be left, and every state but the first can be entered only over the table."""
    assert set(TRANSITIONS) == set(SessionState)
    assert set().union(*TRANSITIONS.values()) == set(SessionState)


class CountingListener(RecordingListener):
    """A listener that makes requests from its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.client: JoinedClient | None = None
        self.replies: list[str] = []

    def disconnected(self) -> None:
        super().disconnected()
        self._ask("while suspended")

    def session_expired(self) -> None:
        super().session_expired()
        self._ask("after the expiry")
        assert self.client is not None
        self.client.client.open()
        self._ask("for the next session")

    def _ask(self, name: str) -> None:
        assert self.client is not None
        self.client.client.exists(
            "/", lambda reply: self.replies.append(f"{name}: {'lost' if reply.is_lost else reply.error}")
        )


def test_a_listener_can_make_requests_and_open_the_next_session() -> None:
    listener = CountingListener()
    client = listener.client = JoinedClient(World(), listener=listener).opened()
    client.links.wire.cut()
    client.run(2_000)
    assert listener.replies == ["while suspended: 0"]
    listener.replies.clear()
    expire(client)
    assert listener.replies == ["while suspended: lost", "after the expiry: lost", "for the next session: 0"]
    assert listener.take() == ["disconnected", "reconnected", "disconnected", "expired", "opened"]
