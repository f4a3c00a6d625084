"""A log directory that accepts no writes: when it counts as one, and when as healthy again."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from barnabas.simulation.host import MemoryHost
from barnabas.storage import health
from barnabas.storage.health import PROBE_FILE, SLOW_MS, WriteHealth


class World:
    def __init__(self) -> None:
        self.host = MemoryHost()
        self.host.disk.make_dirs("/a")
        self.host.disk.make_dirs("/b")
        self.health = WriteHealth(self.host, ["/a", "/b"])
        self.changes = 0
        self.health.when_changed(self._changed)

    def _changed(self) -> None:
        self.changes += 1

    def run(self, duration_ms: int) -> None:
        self.host.time.run_for(duration_ms)

    def fall_ill(self) -> None:
        self.health.refused("/a")
        self.run(0)


def test_a_full_directory_refuses_until_probes_have_gone_well_for_ten_seconds() -> None:
    world = World()
    world.host.disk.free_bytes = 0
    world.fall_ill()
    assert world.health.unwritable() == ["/a"]
    assert world.changes == 1
    assert not world.health.has_space("/a")
    assert world.health.has_space("/b")
    world.run(5_000)
    assert not world.health.has_space("/a")
    world.host.disk.free_bytes = 1 << 30
    world.run(1_100)
    assert world.health.has_space("/a"), "the next probe"
    world.run(8_500)
    assert world.health.unwritable() == ["/a"]
    world.run(2_000)
    assert world.health.unwritable() == []
    assert world.changes == 2
    assert not world.host.disk.exists(f"/a/{PROBE_FILE}")
    assert world.host.faults.reported == []
    assert len(world.host.faults.informed) == 2, "one line for the beginning, one for the end"


def test_room_now_and_then_is_not_enough() -> None:
    world = World()
    world.fall_ill()
    for _ in range(5):
        world.run(7_000)
        world.host.disk.free_bytes = 0
        world.run(2_000)
        world.host.disk.free_bytes = 1 << 30
        assert world.health.unwritable() == ["/a"]


def test_each_relapse_takes_twice_as_long() -> None:
    world = World()
    for settle_s in (10, 20, 40):
        world.fall_ill()
        world.run(settle_s * 1_000 - 500)
        assert world.health.unwritable() == ["/a"]
        world.run(2_500)
        assert world.health.unwritable() == []
    world.run(700_000)
    world.fall_ill()
    world.run(12_500)
    assert world.health.unwritable() == [], "the last time is long ago"


def test_three_slow_appends_in_a_row_are_a_slow_disk() -> None:
    world = World()
    for took_ms in (SLOW_MS, SLOW_MS, 0, SLOW_MS, SLOW_MS):
        world.health.append_took("/a", took_ms)
    world.run(0)
    assert world.health.unwritable() == []
    world.health.append_took("/a", SLOW_MS)
    world.run(0)
    assert world.health.unwritable() == ["/a"]
    assert world.health.cause_of("/a") == "is slow"


def test_a_sync_that_does_not_end_is_a_disk_that_hangs() -> None:
    world = World()
    parked: list[object] = []
    world.host.blocking.run = lambda work, done: parked.append(done)  # type: ignore[method-assign]
    ended: list[BaseException | None] = []
    world.health.run("/a", lambda: None, lambda result, error: ended.append(error))
    world.run(4_500)
    assert world.health.unwritable() == []
    world.run(1_500)
    assert world.health.unwritable() == ["/a"]
    assert world.health.cause_of("/a") == "does not respond"
    world.run(60_000)
    assert len(parked) == 2, "the sync and one probe"
    parked[0](None, None)  # type: ignore[operator]
    assert ended == [None]


def test_a_process_that_stood_still_does_not_blame_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pause of 16 s during a sync withheld the leaderships of a directory for another 10 s."""
    world = World()
    parked: list[object] = []
    world.host.blocking.run = lambda work, done: parked.append(done)  # type: ignore[method-assign]
    world.health.run("/a", lambda: None, lambda result, error: None)
    world.run(2_500)
    now_ms = world.host.time.now_ms
    monkeypatch.setattr(world.host.time, "now_ms", lambda: now_ms() + 16_000)
    world.run(1_600)
    assert world.health.unwritable() == [], "3 s of running"
    world.run(3_000)
    assert world.health.unwritable() == ["/a"]
    assert world.health.cause_of("/a") == "does not respond"


def test_a_directory_that_failed_is_not_looked_after() -> None:
    world = World()
    world.fall_ill()
    world.health.failed("/a")
    world.run(30_000)
    assert world.health.unwritable() == []
    assert not world.health.is_any_unwritable


def test_a_probe_leaves_nothing_behind_when_it_fails() -> None:
    world = World()
    world.host.disk.free_bytes = 1_000
    with pytest.raises(OSError) as caught:
        health.probe(world.host.disk, "/a", world.host.clock.now_ms)
    assert caught.value.errno == errno.ENOSPC
    assert world.host.disk.list_dir("/a") == []


def test_a_sync_that_began_after_a_pause_is_given_its_whole_time(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    parked: list[Callable[[object, BaseException | None], None]] = []
    world.host.blocking.run = lambda work, done: parked.append(done)  # type: ignore[method-assign]
    world.health.run("/a", lambda: None, lambda result, error: None)
    now_ms = world.host.time.now_ms
    monkeypatch.setattr(world.host.time, "now_ms", lambda: now_ms() + 16_000)
    world.run(1_500)
    parked[0](None, None)
    world.health.run("/a", lambda: None, lambda result, error: None)
    world.run(4_500)
    assert world.health.unwritable() == []
    world.run(2_500)
    assert world.health.cause_of("/a") == "does not respond"
