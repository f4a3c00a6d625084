"""The files of a running server: groups of syncs, rolls, snapshots between transactions, purges."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from tests.support.zookeeper_files import FOLDER, FOLDERS, SMALL, FilesWorld, state_of

from barnabas.simulation.host import MemoryHost
from barnabas.zookeeper.files.purge import purge
from barnabas.zookeeper.files.txn_log import padded_size
from barnabas.zookeeper.files.txn_recovery import recover


def test_entries_reach_the_file_with_the_sync_and_not_before() -> None:
    world = FilesWorld()
    world.create("/a")
    world.create("/b")
    assert world.disk.size(f"{FOLDER}/log.1") == 0
    done: list[bool] = []

    world.store.sync(lambda: done.append(True))

    assert world.disk.size(f"{FOLDER}/log.1") > 0
    assert done == []
    world.host.time.run_for(5)
    assert done == [True]


def test_without_force_sync_nothing_waits() -> None:
    world = FilesWorld(settings=SMALL._replace(force_sync=False))
    world.create("/a")
    done: list[bool] = []

    world.store.sync(lambda: done.append(True))

    assert done == [True]
    world.start()
    assert "/a" in world.database.tree.nodes


def test_a_failed_sync_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    world = FilesWorld()
    world.create("/a")

    def fail(work: Any) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(world.host.blocking, "perform", fail)
    world.store.sync(lambda: None)

    with pytest.raises(AssertionError, match="the transaction log in /zk/version-2 cannot be written"):
        world.host.time.run_for(5)


@pytest.mark.parametrize(
    "position, size, step, expected",
    [(116, 16, 16384, 16384), (12000, 16384, 16384, 16384), (13000, 16384, 16384, 32768), (50000, 16384, 16384, 65536)],
)
def test_a_log_grows_in_steps(position: int, size: int, step: int, expected: int) -> None:
    assert padded_size(position, size, step) == expected
    assert padded_size(position, size, 0) == size


def test_a_clean_stop_writes_what_is_buffered() -> None:
    world = FilesWorld()
    world.create("/a")

    world.stop()

    world.start()
    assert "/a" in world.database.tree.nodes


def _busy_world(count: int, every: int, seed: int = 0) -> FilesWorld:
    world = FilesWorld(settings=SMALL._replace(snapshot_after_txns=every), seed=seed)
    world.open_session()
    world.create("/a")
    for number in range(count):
        world.set("/a", b"%d" % number)
        world.sync()
    return world


def test_snapshots_follow_after_half_to_all_of_snap_count() -> None:
    world = _busy_world(100, every=20)

    zxids = [int(name[9:], 16) for name in world.snapshots()]

    assert zxids[0] == 0
    gaps = [after - before for before, after in pairwise(zxids)]
    assert len(gaps) >= 4
    assert all(10 < gap <= 21 for gap in gaps)
    # A log began with each snapshot.
    assert [int(name[4:], 16) for name in world.logs()][1:] == [zxid + 1 for zxid in zxids[1:]]


def test_a_size_limit_takes_snapshots_too() -> None:
    world = FilesWorld(settings=SMALL._replace(snapshot_after_bytes=1000))
    for number in range(10):
        world.create(f"/n{number}", b"x" * 400)
        world.sync()

    assert len(world.snapshots()) >= 3


@pytest.mark.parametrize("seed", range(5))
def test_a_snapshot_written_while_the_tree_changes_is_right_after_the_log(seed: int) -> None:
    world = FilesWorld(seed=seed)
    world.open_session()
    for number in range(3_000):
        world.create(f"/n{number:05}", b"before")
    world.sync()
    world.store.take_snapshot()
    begun = world.database.last_zxid
    random = world.host.random
    while f"snapshot.{begun:x}" not in world.names():
        for _ in range(20):
            path = f"/n{random.below(3_200):05}"
            if path not in world.database.tree.nodes:
                world.create(path, b"created meanwhile", is_ephemeral=random.below(2) == 0)
            elif random.below(3) == 0:
                world.delete(path)
            else:
                world.set(path, b"changed meanwhile")
        world.sync()
    world.create("/last")
    world.sync()
    before, digest = world.state(), world.database.tree.digest
    assert world.database.last_zxid > begun + 20

    world.start()

    assert world.host.faults.warned == []
    assert world.recovered.replayed == world.database.last_zxid - begun
    assert world.state() == before
    assert world.database.tree.digest == digest


def test_a_kill_during_a_snapshot_leaves_no_snapshot() -> None:
    world = FilesWorld()
    for number in range(3_000):
        world.create(f"/n{number}")
    world.sync()
    world.store.take_snapshot()
    before = world.state()

    world.start()

    assert world.snapshots() == ["snapshot.0"]
    assert world.state() == before
    assert not [name for name in world.names() if name.startswith("partial-")]


def test_a_snapshot_that_fails_is_reported_and_tried_again() -> None:
    world = _busy_world(5, every=1000)
    world.disk.free_bytes = 10
    world.store.take_snapshot()
    world.host.time.run_for(10)
    world.disk.free_bytes = 1 << 30

    assert "no snapshot was written" in world.host.faults.reported[0][0]
    world.store.take_snapshot()
    world.host.time.run_for(10)
    assert world.snapshots() == ["snapshot.0", f"snapshot.{world.database.last_zxid:x}"]


def test_a_purge_keeps_three_snapshots_and_the_logs_they_need() -> None:
    world = _busy_world(200, every=20)
    zxids = [int(name[9:], 16) for name in world.snapshots()]
    before = world.state()

    removed = purge(world.disk, FOLDERS, 3)

    assert world.snapshots() == [f"snapshot.{zxid:x}" for zxid in zxids[-3:]]
    assert f"snapshot.{zxids[-4]:x}" in removed
    for newest in reversed(zxids[-3:]):
        host = MemoryHost(disk=world.disk)
        assert state_of(recover(world.disk, FOLDERS, host.faults).database) == before
        world.disk.remove(f"{FOLDER}/snapshot.{newest:x}")


def test_a_purge_does_not_count_incomplete_snapshots() -> None:
    world = _busy_world(60, every=20)
    newest = world.snapshots()[-1]
    world.write(newest, world.read(newest)[:-3])
    complete = world.snapshots()[:-1]

    purge(world.disk, FOLDERS, 3)

    assert world.snapshots()[:-1] == complete[-3:]


def test_a_purge_without_a_complete_snapshot_removes_nothing() -> None:
    world = _busy_world(5, every=1000)
    world.write("snapshot.0", b"ZKSN")
    before = world.names()

    assert purge(world.disk, FOLDERS, 3) == []
    assert world.names() == before


def test_purges_run_regularly_if_asked_for() -> None:
    world = _busy_world(200, every=20)
    world.settings = world.settings._replace(purge_interval_hours=1)
    world.start()

    world.host.time.run_for(10)

    assert len(world.snapshots()) == 3
    assert "purged" in world.host.faults.informed[0]
