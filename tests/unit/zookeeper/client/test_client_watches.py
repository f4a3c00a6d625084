"""Watches of our client: told once, set again after a reconnect, in frames that a server takes (G42, G45)."""

from __future__ import annotations

import pytest
from tests.support.zookeeper_links import JoinedClient
from tests.support.zookeeper_world import World

from barnabas.zookeeper.client.watches import Watches, WatchKind
from barnabas.zookeeper.jute import FieldReader
from barnabas.zookeeper.wire import records as r
from barnabas.zookeeper.wire.codes import SET_WATCHES_XID, EventType, OpCode
from barnabas.zookeeper.wire.frames import FrameReader
from barnabas.zookeeper.wire.operations import Part


class Watching:
    """A client that watches, and another one that changes."""

    def __init__(self) -> None:
        world = World()
        self.watcher = JoinedClient(world).opened()
        self.other = JoinedClient(world).opened()
        self.make("/a", "/a/b", "/gone")

    def make(self, *paths: str) -> None:
        for path in paths:
            assert not self.other.ask(self.other.client.create, path, b"", 0, r.OPEN_ACL).error

    def set(self, path: str) -> None:
        part = Part(OpCode.SET_DATA, r.SetDataRequest(path, b"x", -1))
        assert self.other.ask(self.other.client.multi, [part]).refused_part is None

    def delete(self, path: str) -> None:
        part = Part(OpCode.DELETE, r.DeleteRequest(path, -1))
        assert self.other.ask(self.other.client.multi, [part]).refused_part is None

    def watch(self, kind: str, path: str) -> None:
        self.watcher.ask(getattr(self.watcher.client, kind), path, watch=True)

    def take(self) -> list[str]:
        self.watcher.run()
        return self.watcher.listener.take()

    def cut(self, *, while_away_for_ms: int = 0) -> None:
        self.watcher.run(2_000)
        self.watcher.links.refuses = True
        self.watcher.links.wire.cut()
        self.watcher.run(while_away_for_ms)

    def return_(self) -> list[str]:
        """Lets the watcher come back. Returns what it is told."""
        self.watcher.links.refuses = False
        self.watcher.run(1_500)
        return self.take()


@pytest.mark.parametrize(
    ("kind", "path", "change", "event"),
    [
        ("read", "/a", "set", "/a NODE_DATA_CHANGED"),
        ("read", "/gone", "delete", "/gone NODE_DELETED"),
        ("exists", "/a", "set", "/a NODE_DATA_CHANGED"),
        ("exists", "/gone", "delete", "/gone NODE_DELETED"),
        ("exists", "/new", "make", "/new NODE_CREATED"),
        ("children", "/a", "make /a/c", "/a NODE_CHILDREN_CHANGED"),
        ("children", "/a", "delete /a/b", "/a NODE_CHILDREN_CHANGED"),
        ("children", "/gone", "delete", "/gone NODE_DELETED"),
    ],
)
@pytest.mark.parametrize("place", ["connected", "reconnected", "away"])
def test_a_watch_fires_once_wherever_the_change_happens(
    kind: str, path: str, change: str, event: str, place: str
) -> None:
    """G45: the change happens on the first connection, on the next one, or between both."""
    world = Watching()
    world.watch(kind, path)
    expected = [event]
    if place != "connected":
        world.cut()
        expected = ["disconnected", "reconnected", event]
    if place == "reconnected":
        assert world.return_() == expected[:-1]
        expected = [event]
    method, _, other_path = change.partition(" ")
    getattr(world, method)(other_path or path)
    told = world.return_() if place == "away" else world.take()
    assert told == expected
    for method, changed in (("set", "/a"), ("make", "/a/d"), ("set", "/a")):
        getattr(world, method)(changed)
    assert world.take() == [], "one-shot"
    assert len(world.watcher.client._watches) == 0


def test_a_read_of_a_missing_znode_arms_nothing() -> None:
    world = Watching()
    world.watch("read", "/new")
    world.watch("children", "/new")
    world.make("/new")
    world.make("/new/a")
    assert world.take() == []


def test_several_reads_arm_one_watch() -> None:
    world = Watching()
    for _ in range(3):
        world.watch("read", "/a")
        world.watch("exists", "/a")
    world.set("/a")
    assert world.take() == ["/a NODE_DATA_CHANGED"]


def test_a_deletion_fires_both_kinds_of_watch_with_one_event() -> None:
    world = Watching()
    world.watch("read", "/gone")
    world.watch("children", "/gone")
    world.cut()
    world.delete("/gone")
    assert world.return_() == ["disconnected", "reconnected", "/gone NODE_DELETED"]


def test_an_event_received_before_the_cut_is_not_repeated() -> None:
    """The zxid that watches are set again with is the last one that was seen."""
    world = Watching()
    world.watch("read", "/a")
    world.set("/a")
    assert world.take() == ["/a NODE_DATA_CHANGED"]
    world.watch("read", "/a")
    world.cut()
    assert world.return_() == ["disconnected", "reconnected"]
    world.set("/a")
    assert world.take() == ["/a NODE_DATA_CHANGED"]


def test_a_watch_of_a_lost_read_is_not_armed() -> None:
    world = Watching()
    world.watcher.run(2_000)
    world.watcher.client.read("/a", lambda reply: None, watch=True)
    world.watcher.run(1)
    world.watcher.links.wire.cut()
    world.watcher.run(1_000)
    assert world.take() == ["disconnected", "reconnected"]
    world.set("/a")
    assert world.take() == []


def test_after_an_expiry_nothing_is_armed_and_the_user_looks_again() -> None:
    """`session_expired` stands for all watches: they ended with the session."""
    world = Watching()
    world.watch("read", "/a")
    world.watch("exists", "/new")
    world.cut(while_away_for_ms=10_000)
    world.set("/a")
    assert world.return_() == ["disconnected", "expired"]
    assert len(world.watcher.client._watches) == 0
    world.watcher.client.open()
    assert world.take() == ["opened"]
    world.set("/a")
    assert world.take() == []


def test_a_request_after_the_reconnect_comes_behind_the_events_of_the_time_between() -> None:
    """G45: a watch fires before later reads."""
    world = Watching()
    world.watch("read", "/a")
    world.cut()
    world.set("/a")
    lines = world.watcher.listener.lines
    world.watcher.client.read("/a", lambda reply: lines.append(f"version {reply.znode.version}"))  # type: ignore[union-attr]
    assert world.return_() == ["disconnected", "reconnected", "/a NODE_DATA_CHANGED", "version 1"]


def requests_of(watches: Watches) -> list[r.SetWatchesRequest]:
    found = []
    for data in watches.frames(7):
        (frame,) = FrameReader(0xFFFFF).feed(data)
        reader = FieldReader(frame)
        assert r.read(r.RequestHeader, reader) == (SET_WATCHES_XID, OpCode.SET_WATCHES)
        found.append(r.read(r.SetWatchesRequest, reader))
        assert len(frame) < 132 * 1024
    return found


def test_watches_are_set_again_in_frames_that_a_server_takes() -> None:
    watches = Watches()
    paths = {kind: {f"/{kind.value}/{number:06}/{'x' * 60}" for number in range(5_000)} for kind in WatchKind}
    for kind, names in paths.items():
        for name in sorted(names):
            watches.arm(kind, name)
    found = requests_of(watches)
    assert len(found) > 8
    assert {each.relative_zxid for each in found} == {7}
    assert {name for each in found for name in each.data or ()} == paths[WatchKind.DATA]
    assert {name for each in found for name in each.exists or ()} == paths[WatchKind.EXISTS]
    assert {name for each in found for name in each.children or ()} == paths[WatchKind.CHILDREN]
    assert requests_of(Watches()) == []


def test_a_path_longer_than_a_batch_is_set_alone() -> None:
    watches = Watches()
    for name in ("/a", "/" + "b" * 131_072, "/c"):
        watches.arm(WatchKind.DATA, name)
    assert [len(each.data or ()) for each in requests_of(watches)] == [1, 1, 1]


def test_events_without_a_watch_are_ignored() -> None:
    watches = Watches()
    watches.arm(WatchKind.DATA, "/a")
    assert not watches.fire(EventType.NODE_CHILDREN_CHANGED, "/a")
    assert not watches.fire(EventType.DATA_WATCH_REMOVED, "/a")
    assert not watches.fire(EventType.NODE_DATA_CHANGED, "/b")
    assert watches.fire(EventType.NODE_DATA_CHANGED, "/a")
    assert not watches.fire(EventType.NODE_DATA_CHANGED, "/a")
