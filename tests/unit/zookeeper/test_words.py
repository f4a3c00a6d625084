"""Four-letter words: the whitelist, and the texts as ZooKeeper 3.8.4 writes them."""

from __future__ import annotations

import struct

from tests.support.zookeeper_world import World

from barnabas.zookeeper.server.server_settings import VERSION
from barnabas.zookeeper.wire.codes import CreateFlags

ALL = frozenset({"*"})


def ask(world: World, word: bytes) -> str:
    client = world.client()
    client.send(word)
    assert client.link.is_closed
    return client.link.sent.decode()


def world_with_a_session() -> World:
    world = World(four_letter_words=ALL)
    client = world.session()
    client.create("/a")
    client.create("/a/e", flags=CreateFlags.EPHEMERAL)
    client.get("/a", watch=True)
    return world


def test_only_the_whitelist_is_answered() -> None:
    world = World(four_letter_words=frozenset({"ruok"}))
    assert ask(world, b"ruok") == "imok"
    assert ask(world, b"stat") == "stat is not executed because it is not in the whitelist.\n"
    assert ask(world, b"srvr").startswith("Zookeeper version: ")


def test_figures_of_the_server() -> None:
    assert ask(world_with_a_session(), b"srvr") == (
        f"Zookeeper version: {VERSION}\nLatency min/avg/max: 0/0.0/0\nReceived: 5\nSent: 4\nConnections: 2\n"
        "Outstanding: 0\nZxid: 0x3\nMode: standalone\nNode count: 7\n"
    )


def test_connections_are_listed() -> None:
    world = world_with_a_session()
    (session_id,) = world.server.database.sessions
    lines = ask(world, b"cons").splitlines()
    assert lines[0] == (
        f" /127.0.0.1:50000[1](queued=0,recved=4,sent=4,sid=0x{session_id:x},lop=GETD,est=1735689600000,to=10000,"
        "lcxid=0x3,lzxid=0x3,lresp=0,llat=0,minlat=0,avglat=0,maxlat=0)"
    )
    assert lines[1:] == [" /127.0.0.1:50000[0](queued=0,recved=1,sent=0)", ""]
    assert ask(world, b"crst") == "Connection stats reset.\n"
    assert "recved=0,sent=0,sid=" in ask(world, b"cons")


def test_watches_are_listed() -> None:
    world = world_with_a_session()
    (session_id,) = world.server.database.sessions
    assert ask(world, b"wchs") == "1 connections watching 1 paths\nTotal watches:1\n"
    assert ask(world, b"wchc") == f"0x{session_id:x}\n\t/a\n\n"
    assert ask(world, b"wchp") == f"/a\n\t0x{session_id:x}\n\n"


def test_sessions_and_ephemerals_are_listed() -> None:
    world = world_with_a_session()
    (session_id,) = world.server.database.sessions
    text = ask(world, b"dump")
    assert text.startswith(
        "SessionTracker dump:\nSession Sets (1)/(1):\n1 expire at Wed Jan 01 00:00:11 UTC 2025:\n"
        f"\t0x{session_id:x}\nephemeral nodes dump:\nSessions with Ephemerals (1):\n0x{session_id:x}:\n\t/a/e\n"
    )


def test_the_trace_mask_is_kept() -> None:
    world = World(four_letter_words=ALL)
    assert ask(world, b"gtmk") == "306"
    assert ask(world, b"stmk" + struct.pack(">q", 1234)) == "1234"
    assert ask(world, b"gtmk") == "1234"


def test_other_words() -> None:
    world = world_with_a_session()
    assert ask(world, b"isro") == "rw"
    assert ask(world, b"dirs") == "datadir_size: 100\nlogdir_size: 200\n"
    assert ask(world, b"envi") == f"Environment:\nzookeeper.version={VERSION}\nhost.name=example\nuser.dir=/data\n"
    assert "maxClientCnxns=60\nminSessionTimeout=2000\nmaxSessionTimeout=20000\n" in ask(world, b"conf")
    assert ask(world, b"srst") == "Server stats reset.\n"
    assert "Received: 1\n" in ask(world, b"srvr")
    rows = dict(line.split("\t") for line in ask(world, b"mntr").splitlines())
    assert rows["zk_znode_count"] == "7"
    assert rows["zk_ephemerals_count"] == "1"
    assert rows["zk_watch_count"] == "1"
    assert rows["zk_server_state"] == "standalone"


def test_hash_shows_digests_of_every_128th_zxid() -> None:
    world = World(four_letter_words=ALL)
    client = world.session()
    for _ in range(130):
        client.delete("/missing")
    assert ask(world, b"hash") == f"80: {world.server.database.tree.digest}\n"
