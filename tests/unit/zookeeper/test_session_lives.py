"""Sessions: continued or refused, never replaced; an ephemeral goes with its session, even across restarts (G45)."""

from __future__ import annotations

import pytest
from tests.support.zookeeper_client import Answer
from tests.support.zookeeper_world import World

from barnabas.simulation.host import EPOCH_WALL_MS
from barnabas.zookeeper.server.server_settings import ServerSettings
from barnabas.zookeeper.server.sessions import first_session_id, password_of
from barnabas.zookeeper.wire import frames
from barnabas.zookeeper.wire import records as r
from barnabas.zookeeper.wire.codes import PING_XID, CreateFlags, ErrorCode, OpCode

EPHEMERAL = CreateFlags.EPHEMERAL


@pytest.mark.parametrize(
    ("session_id", "password"),
    [
        (1, "054cc74a37327db215e702e20c73f005"),
        (0x100000000000ABC, "7cfe6212b39b583fa610e3cad7bb2eea"),
        (-5, "d47144b5e45e45c49c3b7fdcd66257ba"),
    ],
)
def test_passwords_are_those_of_apaches_servers(session_id: int, password: str) -> None:
    assert password_of(session_id).hex() == password


def test_session_ids_begin_with_the_servers_number() -> None:
    assert first_session_id(1_735_689_600_000) >> 56 == 1


@pytest.mark.parametrize(("asked", "negotiated"), [(0, 2000), (-1, 2000), (5000, 5000), (1 << 30, 20_000)])
def test_timeouts_are_clamped_to_2_and_20_ticks(asked: int, negotiated: int) -> None:
    assert World().session(asked).timeout_ms == negotiated


def test_set_limits_replace_the_ticks() -> None:
    settings = ServerSettings(tick_ms=1000, session_timeout_min_ms=100, session_timeout_max_ms=300)
    assert [settings.clamp(each) for each in (0, 200, 1000)] == [100, 200, 300]


def test_a_silent_session_ends_within_a_tick_after_its_timeout_with_its_ephemerals() -> None:
    world = World()
    silent, other = world.session(5000), world.session(20_000)
    silent.create("/e", flags=EPHEMERAL)
    assert other.stat("/e").ephemeral_owner == silent.session_id
    world.run_for(4900)
    assert other.exists("/e").error == 0
    world.run_for(1200)
    assert other.exists("/e").error == ErrorCode.NO_NODE
    assert silent.link.is_closed
    assert world.client().connect(5000, silent.session_id, silent.password) == 0


def test_pings_keep_a_session() -> None:
    world = World()
    client = world.session(2000)
    for _ in range(10):
        world.run_for(1500)
        client.send(frames.request_frame(PING_XID, OpCode.PING, ()))
    assert not client.link.is_closed


def test_a_session_is_continued_on_another_connection_and_the_first_is_closed() -> None:
    world = World()
    first = world.session()
    first.create("/e", flags=EPHEMERAL)
    second = world.client()
    assert second.connect(4000, first.session_id, first.password) == 4000
    assert second.session_id == first.session_id
    assert first.link.is_closed
    assert second.stat("/e").ephemeral_owner == first.session_id


def test_a_wrong_password_is_refused_and_harms_nobody() -> None:
    world = World()
    first = world.session()
    thief = world.client()
    assert thief.connect(4000, first.session_id, b"x" * 16) == 0
    assert thief.session_id == 0
    assert thief.link.is_closed
    assert first.exists("/").error == 0


def test_a_client_that_saw_a_later_zxid_gets_no_answer() -> None:
    world = World()
    client = world.client()
    assert client.connect(zxid=99) == -1
    assert client.link.is_closed


def test_closing_a_session_deletes_its_ephemerals_and_answers() -> None:
    world = World()
    client, other = world.session(), world.session()
    client.create("/e", flags=EPHEMERAL)
    other.exists("/e", watch=True)
    assert client.close().error == 0
    assert client.link.is_closed
    assert [event.path for event in other.take_events()] == ["/e"]
    assert world.client().connect(5000, client.session_id, client.password) == 0


def test_an_ephemeral_that_is_pending_goes_with_its_session() -> None:
    world = World()
    client, other = world.session(), world.session()
    client.create("/gone", flags=EPHEMERAL)
    world.log.holds_syncs = True
    client.begin(OpCode.CREATE, r.CreateRequest("/e", b"", r.OPEN_ACL, EPHEMERAL))
    client.begin(OpCode.DELETE, r.DeleteRequest("/gone", -1))
    client.begin(OpCode.CLOSE_SESSION)
    dropped = client.begin(OpCode.CREATE, r.CreateRequest("/late", b"", r.OPEN_ACL, 0))
    world.log.finish_sync()
    world.log.finish_sync()
    assert dropped not in [each.xid for each in client.take() if isinstance(each, Answer)]
    assert other.names("/") == ("zookeeper",)


def test_sessions_and_ephemerals_survive_a_restart_with_their_full_timeout() -> None:
    world = World()
    client = world.session(5000)
    client.create("/e", flags=EPHEMERAL)
    world.run_for(4000)
    world.restart()
    world.run_for(4500)
    again = world.client()
    assert again.connect(5000, client.session_id, client.password) == 5000
    assert again.stat("/e").ephemeral_owner == client.session_id
    assert world.session().session_id > client.session_id
    world.restart()
    world.run_for(7000)
    assert world.session().exists("/e").error == ErrorCode.NO_NODE


def test_what_was_not_synced_is_gone_after_a_crash() -> None:
    world = World()
    client = world.session()
    world.log.holds_syncs = True
    client.begin(OpCode.CREATE, r.CreateRequest("/a", b"", r.OPEN_ACL, 0))
    world.restart(lose_unsynced=True)
    assert world.session().exists("/a").error == ErrorCode.NO_NODE


def test_time_in_which_the_server_was_paused_does_not_count() -> None:
    world = World()
    client = world.session(4000)
    world.host.time._now_ms += 60_000  # The process stood still: no timer ran.
    world.run_for(100)
    assert client.exists("/").error == 0
    assert not client.link.is_closed


def test_the_id_of_an_ended_session_is_not_used_again_though_the_clock_was_set_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    world.run_for(60_000)
    ended = [world.session() for _ in range(2)]
    for client in ended:
        client.close()
    monkeypatch.setattr(world.host.time, "wall_ms", lambda: EPOCH_WALL_MS)
    world.restart()
    assert world.session().session_id > max(client.session_id for client in ended)
