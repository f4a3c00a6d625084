"""Requests of open sessions: what is written, when it is answered, and which error a refused write has."""

from __future__ import annotations

import pytest
from tests.support.zookeeper_client import Answer
from tests.support.zookeeper_world import World

from barnabas.zookeeper.wire import records as r
from barnabas.zookeeper.wire.codes import CreateFlags, ErrorCode, OpCode
from barnabas.zookeeper.wire.frames import request_frame
from barnabas.zookeeper.wire.operations import MultiRequest, Part


def created(path: str, flags: int = 0) -> Part:
    return Part(OpCode.CREATE, r.CreateRequest(path, b"", r.OPEN_ACL, flags))


def test_a_created_node_has_the_stat_of_its_transaction() -> None:
    world = World()
    client = world.session()
    world.run_for(5)
    answer = client.create("/a", b"abc")
    now_ms = world.host.clock.wall_ms()
    assert answer.body == r.Create2Response("/a", r.Stat(2, 2, now_ms, now_ms, 0, 0, 0, 0, 3, 0, 2))
    assert answer.zxid == 2


def test_the_child_version_counts_creations_and_deletions() -> None:
    client = World().session()
    client.create("/a")
    for name in "xyz":
        client.create(f"/a/{name}")
    assert client.stat("/a").cversion == 3
    last = client.delete("/a/x").zxid
    stat = client.stat("/a")
    assert (stat.cversion, stat.num_children, stat.pzxid, stat.mzxid) == (4, 2, last, 2)


def test_sequences_are_the_parents_count_of_creations() -> None:
    client = World().session()
    client.create("/a")
    client.create("/a/plain")
    client.delete("/a/plain")
    flags = CreateFlags.PERSISTENT_SEQUENTIAL
    assert client.create("/a/n-", flags=flags).body.path == "/a/n-0000000001"
    assert client.create("/a/", flags=flags).body.path == "/a/0000000002"


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("", ErrorCode.BAD_ARGUMENTS),
        ("a", ErrorCode.BAD_ARGUMENTS),
        ("/a/", ErrorCode.NO_NODE),
        ("//a", ErrorCode.BAD_ARGUMENTS),
        ("/.", ErrorCode.BAD_ARGUMENTS),
        ("/..", ErrorCode.BAD_ARGUMENTS),
        ("/a\x01", ErrorCode.BAD_ARGUMENTS),
        ("/\ud7ff\ue000", ErrorCode.BAD_ARGUMENTS),
        ("/\U0001f600", ErrorCode.BAD_ARGUMENTS),
        ("/missing/a", ErrorCode.NO_NODE),
        ("/", ErrorCode.NODE_EXISTS),
        ("/zookeeper", ErrorCode.NODE_EXISTS),
        ("/.a", 0),
        ("/a..", 0),
        ("/é", 0),
    ],
)
def test_creations_of_strange_paths(path: str, error: int) -> None:
    assert World().session().create(path).error == error


def test_refused_writes_have_zookeepers_errors() -> None:
    client = World().session()
    client.create("/a")
    client.create("/a/b")
    client.create("/e", flags=CreateFlags.EPHEMERAL)
    assert client.create("/a").error == ErrorCode.NODE_EXISTS
    assert client.create("/e/x").error == ErrorCode.NO_CHILDREN_FOR_EPHEMERALS
    assert client.delete("/a").error == ErrorCode.NOT_EMPTY
    assert client.delete("/zookeeper").error == ErrorCode.BAD_ARGUMENTS
    assert client.set("/a", b"", 5).error == ErrorCode.BAD_VERSION
    assert client.set("/missing", b"").error == ErrorCode.NO_NODE
    assert client.create("/c", acl=()).error == ErrorCode.INVALID_ACL
    assert client.create("/t", flags=CreateFlags.PERSISTENT_WITH_TTL).error == ErrorCode.UNIMPLEMENTED
    assert client.create("/t", flags=99).error == ErrorCode.BAD_ARGUMENTS
    assert client.call(OpCode.RECONFIG, r.ReconfigRequest(None, None, "", -1)).error == ErrorCode.RECONFIG_DISABLED


def test_each_write_takes_a_zxid_also_if_it_is_refused() -> None:
    world = World()
    client = world.session()
    assert client.delete("/missing").zxid == 2
    assert client.create("/a").zxid == 3
    assert [entry.header.type for entry in world.log.entries] == [OpCode.CREATE_SESSION, OpCode.ERROR, OpCode.CREATE2]


def test_nothing_is_visible_or_answered_before_the_sync() -> None:
    world = World()
    writer, reader = world.session(), world.session()
    reader.exists("/a", watch=True)
    world.log.holds_syncs = True
    writer.begin(OpCode.CREATE, r.CreateRequest("/a", b"", r.OPEN_ACL, 0))
    own_read = writer.begin(OpCode.GET_DATA, r.WatchedRequest("/a", False))
    assert reader.exists("/a").error == ErrorCode.NO_NODE
    assert not writer.take()
    assert not reader.take_events()
    world.log.finish_sync()
    assert [each.error for each in writer.take() if isinstance(each, Answer)] == [0, 0]
    assert own_read == 2
    assert len(reader.take_events()) == 1


def test_writes_during_a_sync_share_the_next_one() -> None:
    world = World()
    clients = [world.session() for _ in range(3)]
    world.log.holds_syncs = True
    for index, client in enumerate(clients):
        client.begin(OpCode.CREATE, r.CreateRequest(f"/{index}", b"", r.OPEN_ACL, 0))
    world.log.finish_sync()
    assert [bool(client.take()) for client in clients] == [True, False, False]
    world.log.finish_sync()
    assert [bool(client.take()) for client in clients] == [False, True, True]


def test_a_long_turn_begins_its_sync_before_its_end() -> None:
    world = World()
    client = world.session()
    world.log.holds_syncs = True
    count = 100
    client.send(b"".join(_creation(xid) for xid in range(1, count + 1)))
    world.log.finish_sync()
    answers = client.take()
    assert 0 < len(answers) < count
    world.log.finish_sync()
    answers += client.take()
    assert [each.xid for each in answers if isinstance(each, Answer)] == list(range(1, count + 1))


def test_a_log_that_needs_no_sync_answers_a_long_turn_in_order() -> None:
    world = World()
    client = world.session()
    client.send(b"".join(_creation(xid) for xid in range(1, 101)) + request_frame(101, OpCode.CLOSE_SESSION, ()))
    answers = [each for each in client.take() if isinstance(each, Answer)]
    assert [each.xid for each in answers] == list(range(1, 102))
    assert [each.zxid for each in answers] == sorted(each.zxid for each in answers)


def _creation(xid: int) -> bytes:
    return request_frame(xid, OpCode.CREATE, r.CreateRequest(f"/{xid}", b"", r.OPEN_ACL, 0))


def test_writes_are_decided_against_what_is_pending() -> None:
    world = World()
    client = world.session()
    world.log.holds_syncs = True
    flags = CreateFlags.PERSISTENT_SEQUENTIAL
    client.begin(OpCode.CREATE, r.CreateRequest("/a", b"", r.OPEN_ACL, 0))
    client.begin(OpCode.CREATE, r.CreateRequest("/a/n", b"", r.OPEN_ACL, flags))
    client.begin(OpCode.CREATE, r.CreateRequest("/a/n", b"", r.OPEN_ACL, flags))
    client.begin(OpCode.DELETE, r.DeleteRequest("/a", -1))
    client.begin(OpCode.SET_DATA, r.SetDataRequest("/a", b"1", 0))
    client.begin(OpCode.SET_DATA, r.SetDataRequest("/a", b"2", 0))
    world.log.finish_sync()
    world.log.finish_sync()
    answers = [each for each in client.take() if isinstance(each, Answer)]
    assert [each.error for each in answers] == [0, 0, 0, ErrorCode.NOT_EMPTY, 0, ErrorCode.BAD_VERSION]
    assert answers[2].body.path == "/a/n0000000001"


def test_a_multi_creates_and_sets_one_node() -> None:
    client = World().session()
    parts = (created("/a"), Part(OpCode.SET_DATA, r.SetDataRequest("/a", b"x", 0)), created("/a/b"))
    answer = client.call(OpCode.MULTI, MultiRequest(parts))
    assert [part.type for part in answer.body.parts] == [OpCode.CREATE, OpCode.SET_DATA, OpCode.CREATE]
    assert answer.body.parts[1].record.stat.version == 1
    assert client.stat("/a").mzxid == client.stat("/a").pzxid == answer.zxid


def test_a_refused_multi_changes_nothing_and_lists_its_errors() -> None:
    world = World()
    client = world.session()
    client.create("/s")
    world.log.holds_syncs = True
    pending = client.begin(OpCode.CREATE, r.CreateRequest("/s/n", b"", r.OPEN_ACL, CreateFlags.PERSISTENT_SEQUENTIAL))
    parts = (
        created("/a"),
        created("/s/n", CreateFlags.PERSISTENT_SEQUENTIAL),
        Part(OpCode.CHECK, r.CheckVersionRequest("/s", 7)),
        created("/b"),
    )
    multi = client.begin(OpCode.MULTI, MultiRequest(parts))
    after = client.begin(OpCode.CREATE, r.CreateRequest("/s/n", b"", r.OPEN_ACL, CreateFlags.PERSISTENT_SEQUENTIAL))
    world.log.finish_sync()
    world.log.finish_sync()
    answers = {each.xid: each for each in client.take() if isinstance(each, Answer)}
    assert answers[multi].error == 0
    errors = [part.record.error for part in answers[multi].body.parts]
    assert errors == [0, 0, ErrorCode.BAD_VERSION, ErrorCode.RUNTIME_INCONSISTENCY]
    assert (answers[pending].body.path, answers[after].body.path) == ("/s/n0000000000", "/s/n0000000001")
    assert client.names("/") == ("s", "zookeeper")


def test_multi_read_answers_each_read() -> None:
    client = World().session()
    client.create("/a", b"x")
    parts = (
        Part(OpCode.GET_DATA, r.WatchedRequest("/a", False)),
        Part(OpCode.GET_DATA, r.WatchedRequest("/b", False)),
        Part(OpCode.GET_CHILDREN, r.WatchedRequest("/", False)),
    )
    body = client.call(OpCode.MULTI_READ, MultiRequest(parts)).body
    assert body.parts[0].record.data == b"x"
    assert body.parts[1].record == r.ErrorResponse(ErrorCode.NO_NODE)
    assert set(body.parts[2].record.names) == {"a", "zookeeper"}
    assert client.call(OpCode.MULTI, MultiRequest(parts)).error == ErrorCode.MARSHALLING_ERROR
    mixed = MultiRequest((created("/c"), parts[0]))
    assert client.call(OpCode.MULTI, mixed).error == ErrorCode.MARSHALLING_ERROR
    assert client.call(OpCode.MULTI_READ, mixed).error == ErrorCode.MARSHALLING_ERROR
    assert client.names("/") == ("a", "zookeeper")


def test_a_sync_waits_for_the_writes_before_it() -> None:
    world = World()
    writer, other = world.session(), world.session()
    world.log.holds_syncs = True
    writer.begin(OpCode.CREATE, r.CreateRequest("/a", b"", r.OPEN_ACL, 0))
    other.begin(OpCode.SYNC, r.PathRequest("/"))
    other.begin(OpCode.EXISTS, r.WatchedRequest("/a", False))
    assert not other.take()
    world.log.finish_sync()
    answers = [each for each in other.take() if isinstance(each, Answer)]
    assert answers[0].body == r.PathResponse("/")
    assert answers[1].error == 0


def test_containers_and_ttl_nodes_go_when_they_are_empty() -> None:
    world = World(extended_types=True, container_check_ms=1000)
    client = world.session()
    client.call(OpCode.CREATE_CONTAINER, r.CreateRequest("/c", b"", r.OPEN_ACL, CreateFlags.CONTAINER))
    ttl = CreateFlags.PERSISTENT_WITH_TTL
    assert client.call(OpCode.CREATE_TTL, r.CreateTtlRequest("/t", b"", r.OPEN_ACL, ttl, 3000)).error == 0
    assert client.stat("/c").ephemeral_owner == client.stat("/t").ephemeral_owner == 0
    client.create("/c/x")
    world.run_for(2500)
    assert client.names("/") == ("c", "t", "zookeeper")
    client.delete("/c/x")
    world.run_for(3000)
    assert client.names("/") == ("zookeeper",)


def test_quotas_count_and_limit() -> None:
    client = World(enforce_quota=True).session()
    client.create("/q")
    for path, data in (
        ("/zookeeper/quota/q", b""),
        ("/zookeeper/quota/q/zookeeper_limits", b"count=-1,bytes=-1=;byteHardLimit=10;countHardLimit=3"),
        ("/zookeeper/quota/q/zookeeper_stats", b""),
    ):
        assert client.create(path, data).error == 0
    assert client.get("/zookeeper/quota/q/zookeeper_stats").body.data == b"count=1,bytes=0"
    assert client.create("/q/a", b"12345").error == 0
    assert client.create("/q/b", b"123456").error == ErrorCode.QUOTA_EXCEEDED
    assert client.create("/q/b").error == 0
    assert client.create("/q/c").error == ErrorCode.QUOTA_EXCEEDED
    assert client.set("/q/a", b"12345678901").error == ErrorCode.QUOTA_EXCEEDED
    assert client.get("/zookeeper/quota/q/zookeeper_stats").body.data == b"count=3,bytes=5"
    client.delete("/q/a")
    assert client.get("/zookeeper/quota/q/zookeeper_stats").body.data == b"count=2,bytes=0"


def test_digests_of_transactions_are_those_of_the_tree_after_them() -> None:
    world = World()
    client = world.session()
    client.create("/a", b"x")
    client.create("/a/e", flags=CreateFlags.EPHEMERAL)
    client.set("/a", b"y")
    client.set("/", b"root")
    client.delete("/missing")
    client.call(
        OpCode.MULTI, MultiRequest((created("/m"), created("/m/n"), Part(OpCode.DELETE, r.DeleteRequest("/q", 0))))
    )
    client.call(OpCode.SET_ACL, r.SetAclRequest("/a", r.READ_ACL, 0))
    client.close()
    found = [entry.digest.tree_digest for entry in world.log.entries if entry.digest is not None]
    world.restart()
    assert len(found) == len(world.log.entries)
    assert found[-1] == world.server.database.tree.digest
    assert len(set(found)) == 7
