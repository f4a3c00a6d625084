"""Trees that are read and followed by watches, over lost answers, reconnects and expiries."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.zookeeper_links import JoinedClient, RecordingListener
from tests.support.zookeeper_world import World

from barnabas.znodes.znode_follower import Change, SeenZnode, ZnodeFollower
from barnabas.zookeeper.wire.codes import CreateFlags, ErrorCode, EventType
from barnabas.zookeeper.wire.records import Acl, Id


class Following(RecordingListener):
    """A client that follows a tree of the world, and another one that changes it."""

    def __init__(self, world: World, root: str = "/", *, watch: bool = True) -> None:
        super().__init__()
        self.world = world
        self.changes: list[str] = []
        self.settled = 0
        self.joined = JoinedClient(world, listener=self)
        self.follower = ZnodeFollower(
            self.joined.client, root, watch=watch, on_change=self._on_change, on_settled=self._on_settled
        )
        self.joined.client.open()
        self.editor = world.session(20_000)

    def session_opened(self, session_id: int) -> None:
        self.follower.start()

    def reconnected(self) -> None:
        self.follower.start()

    def session_expired(self) -> None:
        self.joined.client.open()

    def changed(self, path: str, event_type: EventType) -> None:
        self.follower.changed(path)

    def _on_change(self, change: Change, path: str, found: SeenZnode) -> None:
        self.changes.append(f"{change.value} {path}")

    def _on_settled(self) -> None:
        self.settled += 1

    def take(self) -> list[str]:
        self.world.run_for(100)
        changes, self.changes = self.changes, []
        return changes

    def tree(self, root: str = "/") -> dict[str, tuple[bytes | None, int]]:
        """Returns what the server has."""
        nodes = self.world.server.database.tree.walk(root)
        return {path: (node.data, node.version) for path, node in nodes}

    def seen(self) -> dict[str, object]:
        return {path: found.content for path, found in self.follower.seen.items()}


def test_a_tree_is_read_whole_and_settles_once() -> None:
    world = World()
    editor = world.session()
    for path in ("/a", "/a/b", "/a/b/c", "/d"):
        editor.create(path, path.encode())
    following = Following(world, watch=False)
    world.run_for(100)
    assert following.seen() == following.tree()
    assert following.settled == 1
    editor.set("/a", b"2")
    following.changes.clear()
    assert following.take() == [], "nothing is watched"


def test_changes_are_reported_with_the_znode_they_concern() -> None:
    following = Following(World())
    following.take()
    edit = following.editor
    edit.create("/a")
    assert following.take() == ["created /a"]
    edit.create("/a/b")
    edit.create("/a/b/c")
    assert following.take() == ["created /a/b", "created /a/b/c"]
    edit.set("/a/b", b"x")
    assert following.take() == ["changed /a/b"]
    edit.delete("/a/b/c")
    edit.delete("/a/b")
    assert following.take() == ["deleted /a/b/c", "deleted /a/b"]
    edit.delete("/a")
    edit.create("/a", b"another")
    assert following.take() in (["changed /a"], ["deleted /a", "created /a"])


def test_a_root_can_come_go_and_come_again() -> None:
    following = Following(World(), "/a/b")
    assert following.take() == []
    assert following.settled == 1
    edit = following.editor
    edit.create("/a")
    edit.create("/a/b")
    edit.create("/a/b/c")
    assert following.take() == ["created /a/b", "created /a/b/c"]
    edit.delete("/a/b/c")
    edit.delete("/a/b")
    assert sorted(following.take()) == ["deleted /a/b", "deleted /a/b/c"]
    edit.create("/a/b")
    assert following.take() == ["created /a/b"]


def test_a_znode_that_may_not_be_read_is_seen_with_its_error() -> None:
    world = World()
    world.session().create("/secret", b"x", acl=(Acl(31, Id("digest", "a:b")),))
    following = Following(world)
    following.take()
    assert following.follower.seen["/secret"].error == ErrorCode.NO_AUTH


_PATHS = ("/a", "/b", "/a/a", "/a/b", "/a/a/a")
_steps = st.lists(
    st.sampled_from(
        [
            *(("create", path) for path in _PATHS * 2),
            *(("ephemeral", path) for path in _PATHS),
            *(("set", path) for path in _PATHS),
            *(("delete", path) for path in _PATHS * 2),
            *(("run", wait) for wait in ("1", "1", "2", "2", "3", "50", "200", "1500")),
            ("cut", ""),
            ("expire", ""),
        ]
    ),
    min_size=10,
    max_size=50,
)


@given(_steps)
@settings(max_examples=150, deadline=None)
def test_what_is_seen_is_what_there_is(steps: list[tuple[str, str]]) -> None:
    """The tree, the connection and the session change at any time: in the end every znode is seen as it is."""
    following = Following(World())
    for name, argument in steps:
        if name == "run":
            following.world.run_for(int(argument))
        elif name == "cut":
            following.joined.links.wire.cut()
        elif name == "expire":
            session_id = following.joined.client.session_id
            thief = following.world.client()
            thief.connect(6_000, session_id, following.joined.client._session._password)
            if thief.timeout_ms > 0:
                thief.close()
        elif name == "set":
            following.editor.set(argument, b"x")
        elif name == "ephemeral":
            following.editor.create(argument, flags=CreateFlags.EPHEMERAL)
        else:
            getattr(following.editor, name)(argument)
    following.world.run_for(10_000)
    assert following.seen() == following.tree()
