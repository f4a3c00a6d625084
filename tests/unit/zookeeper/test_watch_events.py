"""Watches: each fires once, before later reads, is told to those who can read, and survives a reconnect."""

from __future__ import annotations

from tests.support.zookeeper_client import Answer, Event
from tests.support.zookeeper_world import Client, World

from barnabas.zookeeper.wire import records as r
from barnabas.zookeeper.wire.codes import AddWatchMode, ErrorCode, EventType, OpCode, WatcherType


def add_watch(client: Client, path: str, mode: AddWatchMode) -> None:
    assert client.call(OpCode.ADD_WATCH, r.AddWatchRequest(path, mode)).error == 0


def test_a_watch_fires_once_and_before_the_answer_of_the_write() -> None:
    client = World().session()
    client.create("/a")
    client.get("/a", watch=True)
    client.set("/a", b"1")
    client.set("/a", b"2")
    kinds = [each for each in client.received if not isinstance(each, Answer) or each.xid > 2]
    assert kinds[0] == Event(EventType.NODE_DATA_CHANGED, "/a")
    assert [type(each) for each in kinds[1:]] == [Answer, Answer]


def test_exists_watches_a_missing_node_and_get_data_does_not() -> None:
    client = World().session()
    assert client.exists("/a", watch=True).error == ErrorCode.NO_NODE
    assert client.get("/b", watch=True).error == ErrorCode.NO_NODE
    client.create("/a")
    client.create("/b")
    assert client.take_events() == [Event(EventType.NODE_CREATED, "/a")]


def test_a_deletion_sends_one_event_to_a_connection_with_both_watches() -> None:
    client = World().session()
    client.create("/a")
    client.get("/a", watch=True)
    client.children("/a", watch=True)
    client.children("/", watch=True)
    client.delete("/a")
    assert client.take_events() == [
        Event(EventType.NODE_DELETED, "/a"),
        Event(EventType.NODE_CHILDREN_CHANGED, "/"),
    ]


def test_persistent_watches_stay() -> None:
    client = World().session()
    client.create("/a")
    add_watch(client, "/a", AddWatchMode.PERSISTENT)
    client.set("/a", b"1")
    client.set("/a", b"2")
    client.create("/a/b")
    client.set("/a/b", b"3")
    kinds = [EventType.NODE_DATA_CHANGED, EventType.NODE_DATA_CHANGED, EventType.NODE_CHILDREN_CHANGED]
    assert client.take_events() == [Event(kind, "/a") for kind in kinds]


def test_recursive_watches_see_all_below_and_no_change_of_children() -> None:
    client = World().session()
    client.create("/a")
    add_watch(client, "/", AddWatchMode.PERSISTENT_RECURSIVE)
    client.create("/a/b")
    client.set("/a/b", b"1")
    client.delete("/a/b")
    kinds = [EventType.NODE_CREATED, EventType.NODE_DATA_CHANGED, EventType.NODE_DELETED]
    assert client.take_events() == [Event(kind, "/a/b") for kind in kinds]


def test_watches_are_removed_by_their_kind() -> None:
    client = World().session()
    client.create("/a")
    client.get("/a", watch=True)
    for op in (OpCode.CHECK_WATCHES, OpCode.REMOVE_WATCHES):
        answer = client.call(op, r.WatchesRequest("/a", WatcherType.CHILDREN))
        assert answer.error == ErrorCode.NO_WATCHER
        assert client.call(op, r.WatchesRequest("/a", WatcherType.ANY)).error == 0
    client.set("/a", b"1")
    assert not client.take_events()
    assert client.call(OpCode.CHECK_WATCHES, r.WatchesRequest("/a", 9)).error == ErrorCode.MARSHALLING_ERROR


def test_watches_set_again_fire_for_what_was_missed() -> None:
    world = World()
    first = world.session()
    for path in ("/changed", "/same", "/deleted", "/parent"):
        first.create(path)
    zxid = world.server.database.last_zxid
    first.core.closed()
    writer = world.session()
    writer.set("/changed", b"1")
    writer.delete("/deleted")
    writer.create("/parent/x")
    writer.create("/created")
    again = world.client()
    assert again.connect(10_000, first.session_id, first.password, zxid) == 10_000
    request = r.SetWatches2Request(
        zxid,
        ("/changed", "/same", "/deleted"),
        ("/created", "/missing"),
        ("/parent", "/same"),
        (),
        ("/tree",),
    )
    assert again.call(OpCode.SET_WATCHES2, request).error == 0
    assert again.take_events() == [
        Event(EventType.NODE_DATA_CHANGED, "/changed"),
        Event(EventType.NODE_DELETED, "/deleted"),
        Event(EventType.NODE_CREATED, "/created"),
        Event(EventType.NODE_CHILDREN_CHANGED, "/parent"),
    ]
    writer.set("/same", b"2")
    writer.create("/same/x")
    writer.create("/missing")
    writer.create("/tree")
    writer.create("/tree/x")
    assert [event.path for event in again.take_events()] == ["/same", "/same", "/missing", "/tree", "/tree/x"]


def test_an_event_is_not_sent_to_clients_that_cannot_read_the_node() -> None:
    world = World()
    owner, other = world.session(), world.session()
    owner.call(OpCode.AUTH, r.AuthPacket(0, "digest", b"u:p"))
    add_watch(other, "/", AddWatchMode.PERSISTENT_RECURSIVE)
    owner.create("/a", acl=r.CREATOR_ALL_ACL)
    owner.create("/b")
    assert other.take_events() == [Event(EventType.NODE_CREATED, "/b")]


def test_watches_of_a_closed_connection_are_gone() -> None:
    world = World()
    client = world.session()
    client.exists("/a", watch=True)
    add_watch(client, "/b", AddWatchMode.PERSISTENT)
    assert world.server.watches.count == 3
    client.core.closed()
    assert world.server.watches.count == 0
    world.session().create("/a")
