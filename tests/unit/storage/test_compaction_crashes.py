"""The power fails between any two changes that a pass makes on disk: then the log is the old or the new, never a mix.

A pass replaces its groups of segments one after the other, so "the new" is a number of whole groups. The fates of the
disk are the other possible states after a crash (src/barnabas/simulation/crashing_disk.py).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import pytest
from tests.support.clean_world import EAGER, CleanWorld, leftovers
from tests.support.log_world import LogWorld
from tests.support.power_disk import PowerDisk
from tests.support.strides import STRIDES

from barnabas.records.batch import Record
from barnabas.simulation.crashing_disk import CrashingDisk, Fate, PowerFailure
from barnabas.storage.log import Log
from barnabas.storage.log_events import LogEvents

pytestmark = pytest.mark.long_turns("logs are opened from the disk, and compared, within turns of the broker")

Fill = Callable[[CleanWorld], None]


def overwritten(world: CleanWorld) -> None:
    """Writes a few keys into many segments, which compaction reduces to few."""
    world.put_each((b"key-%d" % (i % 5), b"some value %d" % i) for i in range(30))
    world.put_each((b"gone-%d" % i, None) for i in range(3))
    world.roll()
    world.configure(segment_bytes=1100)


def emptied_behind(world: CleanWorld) -> None:
    """Empties the later segments of a group: only `.swap` names show that they are replaced."""
    world.put((b"kept", b"1"))
    world.log.roll()
    for i in range(4):
        world.put((b"a", b"%d" % i))
        world.log.roll()
    world.put((b"a", b"last"), (b"b", b"last"))
    world.roll()
    world.configure(segment_bytes=290)


def transactional(world: CleanWorld) -> None:
    ids = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
    for i in range(8):
        world.put((b"key-%d" % (i % 3), b"in transaction %d" % i), base_sequence=i, **ids)
        world.end_transaction(7, commit=i % 3 != 1)
    world.put((b"z", b"1"))
    world.roll()
    world.configure(segment_bytes=900)


FILLS = {"overwritten": overwritten, "emptied behind": emptied_behind, "transactional": transactional}


D = TypeVar("D", CrashingDisk, PowerDisk)


def _prepared(fill: Fill, disk: D) -> tuple[CleanWorld, D]:
    """Returns a log whose content is all synced."""
    world = CleanWorld(replace(EAGER, min_cleanable_dirty_ratio=1.0), disk=disk)
    fill(world)
    world.log.flush()
    for name in world.files():
        file = disk.open(world.path(name))
        file.sync()
        file.close()
    disk.sync_dir(world.directory)
    world.configure(min_cleanable_dirty_ratio=0.0)
    return world, disk


def _snapshots(fill: Fill) -> tuple[list[list[Record]], int]:
    """Returns the records before the pass and after each of its groups, and the number of changes that the pass makes
    on disk.
    """
    world, disk = _prepared(fill, CrashingDisk())
    states = [world.records()]
    before = disk.changes

    class Noting(LogEvents[Log]):
        def on_segments_deleted(self, log: Log, files: list[str]) -> None:
            states.append(world.records())

    world.log.signals.connect(Noting(disk))
    assert world.clean() == 1
    return states, disk.changes - before


@pytest.mark.sampled(3)
@pytest.mark.parametrize("fate", Fate)
@pytest.mark.parametrize("fill", FILLS)
def test_the_old_or_the_new(fill: str, fate: Fate) -> None:
    states, changes = _snapshots(FILLS[fill])
    assert len(states) > 2
    assert changes > 30
    seen = set()
    for crash_at in range(changes + 1):
        world, disk = _prepared(FILLS[fill], CrashingDisk())
        disk.changes_left = disk.changes + crash_at
        try:
            world.clean()
        except PowerFailure:
            assert crash_at < changes
        else:
            assert crash_at == changes
        recovery_point, end_offset = world.log.recovery_point, world.log.log_end_offset
        producers = {k: (e.epoch, e.last_sequence) for k, e in world.log.producers.producers.items()}
        again = LogWorld(world.config, disk.after_crash(fate))
        for sure_to in (recovery_point, 0):
            again.open(clean=False, recovery_point=sure_to)
            assert leftovers(again.disk, again.directory) == []
            records = again.records()
            assert records in states, f"a mix after {crash_at} changes, {fate}"
            seen.add(states.index(records))
            assert again.log.log_end_offset == end_offset
            assert {k: (e.epoch, e.last_sequence) for k, e in again.log.producers.producers.items()} == producers
    assert {0, len(states) - 1} <= seen


@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize("stride", STRIDES)
def test_opening_after_a_crash_may_crash_too(stride: int, fill: str) -> None:
    states, changes = _snapshots(FILLS[fill])
    crashes = 0
    for crash_at in range(0, changes, stride):
        world, disk = _prepared(FILLS[fill], CrashingDisk())
        disk.changes_left = disk.changes + crash_at
        with pytest.raises(PowerFailure):
            world.clean()
        if not any(name.endswith(".swap") for name in disk.list_dir(world.directory)):
            continue
        for second in range(0, 40, 1 + crash_at // stride % 3):
            found = disk.after_crash(Fate.KEPT)
            found.changes_left = found.changes + second
            try:
                LogWorld(world.config, found, clean=False)
            except PowerFailure:
                crashes += 1
                again = LogWorld(world.config, found.after_crash(Fate.KEPT), clean=False)
                assert again.records() in states, f"a mix after {crash_at} changes and {second} at the next start"
            else:
                break
    assert crashes > 50 // stride


@pytest.mark.parametrize("fill", FILLS)
def test_renames_that_reach_the_disk_in_another_order_make_no_mix(fill: str) -> None:
    states, _ = _snapshots(FILLS[fill])
    world, disk = _prepared(FILLS[fill], PowerDisk())
    disk.reorders_names = True
    checks = 0

    def check() -> None:
        nonlocal checks
        for seed in range(6):
            found = disk.after_crash(Fate.TORN, random.Random(disk.changes * 31 + seed))
            again = LogWorld(world.config, found, clean=False, recovery_point=world.log.recovery_point)
            assert again.records() in states, f"a mix after {disk.changes} changes, seed {seed}"
            checks += 1

    disk.before_change = check
    assert world.clean() == 1
    disk.before_change = lambda: None
    assert checks > 150
