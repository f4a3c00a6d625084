"""Requests of our client: in order, answered exactly once, lost with their connection, and never repeated (G33)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.zookeeper_links import JoinedClient
from tests.support.zookeeper_world import World

from barnabas.zookeeper.client.store import (
    LOST,
    LOST_CHILDREN,
    LOST_CREATE,
    LOST_EXISTS,
    LOST_MULTI,
    LOST_READ,
    MultiReply,
)
from barnabas.zookeeper.wire import records as r
from barnabas.zookeeper.wire.codes import CreateFlags, ErrorCode, OpCode
from barnabas.zookeeper.wire.operations import Part


def create_part(path: str, data: bytes = b"") -> Part:
    return Part(OpCode.CREATE, r.CreateRequest(path, data, r.OPEN_ACL, 0))


def set_part(path: str, data: bytes, version: int = -1) -> Part:
    return Part(OpCode.SET_DATA, r.SetDataRequest(path, data, version))


def client_with_session(**settings: Any) -> JoinedClient:
    return JoinedClient(World(), settings=settings).opened()


def test_each_request_of_the_port() -> None:
    client = client_with_session()
    ask, c = client.ask, client.client
    assert ask(c.create, "/a", b"1", 0, r.OPEN_ACL).path == "/a"
    assert ask(c.create, "/a/n_", b"", CreateFlags.PERSISTENT_SEQUENTIAL, r.OPEN_ACL).path == "/a/n_0000000000"
    assert ask(c.create, "/a", b"1", 0, r.OPEN_ACL).error == ErrorCode.NODE_EXISTS
    found = ask(c.read, "/a")
    assert (found.znode, found.stat.num_children, found.is_lost) == ((b"1", 0), 1, False)
    assert ask(c.read, "/b") == (None, None, ErrorCode.NO_NODE)
    assert ask(c.exists, "/a").stat == found.stat
    assert ask(c.exists, "/b") == (None, ErrorCode.NO_NODE)
    below = ask(c.children, "/a")
    assert (below.names, below.stat) == (("n_0000000000",), found.stat)
    assert ask(c.children, "/b") == (None, None, ErrorCode.NO_NODE)


def test_requests_are_timed_until_they_are_answered_or_lost() -> None:
    client = client_with_session()
    assert client.client.latency.count == 0
    client.ask(client.client.exists, "/a")
    client.ask(client.client.create, "/a", b"", 0, r.OPEN_ACL)
    assert client.client.latency.count == 2
    assert 0 < client.client.latency.total_ms < 40
    client.links.refuses = True
    client.links.wire.cut()
    client.run()
    answers: list[Any] = []
    client.client.exists("/a", answers.append)
    client.run(500)
    client.links.refuses = False
    client.run(2_000)
    assert len(answers) == 1
    assert client.client.latency.count == 3
    assert 500 <= client.client.latency.total_ms < 2_600


def test_a_multi_answers_each_part() -> None:
    client = client_with_session()
    check = Part(OpCode.CHECK, r.CheckVersionRequest("/a", 1))
    delete = Part(OpCode.DELETE, r.DeleteRequest("/b", -1))
    made = client.ask(
        client.client.multi, [create_part("/a"), set_part("/a", b"x", 0), create_part("/b"), check, delete]
    )
    assert made.errors == (0, 0, 0, 0, 0)
    assert made.refused_part is None
    stat = client.ask(client.client.exists, "/a").stat
    assert made.results == (r.PathResponse("/a"), r.StatResponse(stat), r.PathResponse("/b"), (), ())
    assert stat.version == 1
    refused = client.ask(client.client.multi, [create_part("/c"), set_part("/a", b"y", 0), create_part("/d")])
    assert refused == MultiReply((0, ErrorCode.BAD_VERSION, ErrorCode.RUNTIME_INCONSISTENCY))
    assert refused.refused_part == 1


def test_below_a_chroot_all_paths_are_the_clients() -> None:
    world = World()
    client = JoinedClient(world, "one/k/a").opened()
    outside = JoinedClient(world).opened()
    c = client.client
    assert client.ask(c.create, "/t", b"", 0, r.OPEN_ACL).error == ErrorCode.NO_NODE
    assert client.ask(c.make_chroot) == 0
    assert client.ask(c.make_chroot) == 0, "it is there"
    assert client.ask(c.create, "/t", b"1", 0, r.OPEN_ACL).path == "/t"
    assert client.ask(c.multi, [create_part("/u"), set_part("/t", b"2")]).results[0] == r.PathResponse("/u")
    assert sorted(client.ask(c.children, "/").names) == ["t", "u"]
    assert client.ask(c.read, "/t").znode == (b"2", 1)
    assert outside.ask(outside.client.read, "/k/a/t").znode == (b"2", 1)
    assert client.ask(c.exists, "/t", watch=True).stat.version == 1
    assert client.ask(c.children, "/", watch=True).stat.num_children == 2
    outside.ask(outside.client.multi, [set_part("/k/a/t", b"3"), create_part("/k/a/v")])
    assert client.listener.take() == ["/t NODE_DATA_CHANGED", "/ NODE_CHILDREN_CHANGED"]


def test_a_creation_without_an_acl_gets_that_of_the_clients_path() -> None:
    secret, plain = (r.Acl(31, r.Id("digest", "me:x")),), r.READ_ACL + r.OPEN_ACL
    world = World()
    settings = {"acl_of": lambda path: secret if path.startswith("/secret") else plain}
    client = JoinedClient(world, "one/k", settings=settings).opened()
    c = client.client
    assert client.ask(c.make_chroot) == 0
    assert client.ask(c.create, "/secret", b"", 0, None).path == "/secret"
    assert client.ask(c.create, "/open", b"", 0, r.OPEN_ACL).path == "/open"
    parts = [create_part("/given"), Part(OpCode.CREATE, r.CreateRequest("/chosen", b"", None, 0))]
    assert client.ask(c.multi, parts).refused_part is None
    found = {path: node.acl for path, node in world.server.database.tree.walk("/k")}
    assert found == {
        "/k": plain,
        "/k/secret": secret,
        "/k/open": r.OPEN_ACL,
        "/k/given": r.OPEN_ACL,
        "/k/chosen": plain,
    }


def test_every_dial_names_the_tls_contexts() -> None:
    client = JoinedClient(World(), settings={"tls": "zookeeper"}).opened()
    client.links.wire.end_by_server()
    client.run(3_000)
    assert client.listener.take() == ["disconnected", "reconnected"]
    assert client.links.tls == ["zookeeper", "zookeeper"]


def test_a_chroot_that_may_not_be_made_is_an_error() -> None:
    world = World()
    admin = JoinedClient(world).opened()
    admin.ask(admin.client.create, "/k", b"", 0, r.READ_ACL)
    client = JoinedClient(world, "one/k/a").opened()
    assert client.ask(client.client.make_chroot) == ErrorCode.NO_AUTH
    assert admin.ask(admin.client.make_chroot) == 0, "the root is always there"


def order_of_replies(client: JoinedClient, count: int) -> list[int]:
    order: list[int] = []
    for number in range(count):

        def reply(answer: Any, number: int = number) -> None:
            assert not answer.is_lost
            order.append(number)

        if number % 2:
            client.client.exists("/", reply)
        else:
            client.client.multi([create_part(f"/n{number}")], reply)
    return order


@pytest.mark.parametrize("window", [1, 3, 100])
def test_requests_leave_in_a_window_and_are_answered_in_their_order(window: int) -> None:
    client = client_with_session(window=window)
    order = order_of_replies(client, 20)
    client.run(1)
    requests = client.client._requests
    assert requests.in_flight == min(window, 20)
    client.run(200)
    assert order == list(range(20))
    assert len(requests) == 0


REQUESTS: dict[str, tuple[tuple[Any, ...], object]] = {
    "multi": (([create_part("/m")],), LOST_MULTI),
    "read": (("/",), LOST_READ),
    "exists": (("/",), LOST_EXISTS),
    "children": (("/",), LOST_CHILDREN),
    "create": (("/c", b"", 0, r.OPEN_ACL), LOST_CREATE),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_without_a_session_every_request_is_lost_after_its_call(name: str) -> None:
    arguments, lost = REQUESTS[name]
    client = JoinedClient(World())
    assert client.ask(getattr(client.client, name), *arguments) == lost


@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.parametrize("happened", [False, True])
def test_a_cut_loses_the_answer_whether_or_not_the_request_happened(name: str, happened: bool) -> None:
    """G33: lost is neither done nor undone, and nothing is repeated."""
    arguments, lost = REQUESTS[name]
    client = client_with_session()
    replies: list[Any] = []
    getattr(client.client, name)(*arguments, replies.append)
    client.run(1 if happened else 0)
    zxid = client.world.server.database.last_zxid
    client.links.wire.cut()
    assert replies == [lost]
    assert client.listener.take() == ["disconnected"]
    client.run(3_000)
    assert client.listener.take() == ["reconnected"]
    assert client.world.server.database.last_zxid == zxid, "no request is repeated"
    assert len(replies) == 1


def test_requests_in_flight_and_behind_the_window_are_lost_together_before_the_listener_is_notified() -> None:
    client = client_with_session(window=2)
    lines: list[str] = []
    client.listener.lines = lines
    for number in range(5):

        def reply(answer: Any, number: int = number) -> None:
            lines.append(f"{number} {answer.error}")

        client.client.exists("/", reply)
    client.run(1)
    client.links.wire.cut()
    assert lines == [*(f"{number} {LOST}" for number in range(5)), "disconnected"]


def test_requests_of_a_suspended_session_wait_for_its_next_connection() -> None:
    client = client_with_session()
    client.links.refuses = True
    client.links.wire.cut()
    replies: list[int] = []
    for name in "ab":
        client.client.create(f"/{name}", b"", 0, r.OPEN_ACL, lambda reply: replies.append(reply.error))
    client.run(1_500)
    assert replies == []
    client.links.refuses = False
    client.run(1_500)
    assert replies == [0, 0]


def test_requests_before_the_first_connection_wait_for_it() -> None:
    client = JoinedClient(World())
    client.client.open()
    assert client.ask(client.client.exists, "/").error == 0


def test_a_reply_can_make_the_next_request() -> None:
    client = client_with_session(window=1)
    seen: list[int] = []

    def on_reply(answer: Any) -> None:
        seen.append(answer.error)
        if len(seen) < 5:
            client.client.exists("/", on_reply)

    client.client.exists("/", on_reply)
    client.run(50)
    assert seen == [0] * 5


def test_a_reply_of_a_lost_request_that_makes_the_next_one_does_not_go_round() -> None:
    client = client_with_session()
    client.links.refuses = True
    seen: list[int] = []

    def on_reply(answer: Any) -> None:
        seen.append(answer.error)
        if answer.is_lost:
            client.client.exists("/", on_reply)

    client.client.exists("/", on_reply)
    client.links.wire.cut()
    client.run(1_000)
    assert seen == [LOST]
    client.links.refuses = False
    client.run(2_000)
    assert seen == [LOST, 0]


def test_a_request_above_the_largest_frame_is_refused_in_its_turn_and_harms_no_other() -> None:
    """A server ends the connection for it: the client would lose all other requests, at each attempt."""
    client = client_with_session(frame_bytes_max=10_000)
    told: list[Any] = []
    client.client.exists("/", lambda answer: told.append(("before", answer.error)))
    client.client.create("/big", bytes(10_000), 0, r.OPEN_ACL, lambda answer: told.append(("big", answer.error)))
    client.client.multi(
        [create_part("/big", bytes(10_000)), create_part("/b")], lambda answer: told.append(answer.errors)
    )
    client.client.exists("/", lambda answer: told.append(("behind", answer.error)))
    assert told == []
    client.run()
    code = ErrorCode.MARSHALLING_ERROR
    assert told == [("before", 0), ("big", code), (code, code), ("behind", 0)]
    assert client.ask(client.client.create, "/big", bytes(10_000), 0, r.OPEN_ACL).error == code, "alone"
    assert client.listener.take() == []


def test_an_answer_with_many_children_is_taken() -> None:
    client = client_with_session()
    names = [f"{'long name ' * 100}{number:06}" for number in range(2_000)]
    for begin in range(0, len(names), 100):
        parts = [create_part(f"/{name}") for name in names[begin : begin + 100]]
        assert client.ask(client.client.multi, parts).refused_part is None
    assert set(client.ask(client.client.children, "/").names) >= set(names)


def test_an_answer_that_says_the_session_moved_ends_the_connection_and_loses_the_request() -> None:
    world = World()
    client = JoinedClient(world).opened()
    client.run(2_000)
    thief = world.client()
    thief.connect(6_000, client.client.session_id, client.client._session._password)
    client.run(2_000)
    assert client.listener.take() == ["disconnected", "reconnected"]


def test_numbers_of_requests_start_again_behind_the_last_one() -> None:
    client = client_with_session()
    client.client._requests._xid = 0x7FFF_FFFE
    for _ in range(3):
        assert not client.ask(client.client.exists, "/").error
    assert client.client._requests._xid == 2
