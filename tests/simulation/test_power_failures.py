"""The power fails before any change that a broker makes on its disk: for every possible state of the disk, what was
synced exists, nothing exists that was not written, and all files agree with each other.

One work is done by a log manager: appends, idempotent and transactional ones, rolls, truncations, DeleteRecords,
retention, compaction, flushes, checkpoints, a topic deleted and created again, stops, kills and starts.
"""

from __future__ import annotations

import pytest
from tests.support.power_world import COMPACTED, PLAIN, SHORT, Model, PowerWorld

from barnabas.simulation.crashing_disk import Fate

pytestmark = pytest.mark.long_turns("logs are opened and checked at each change of the disk, within turns")


def _write(world: PowerWorld, plain: Model, compacted: Model, *, epoch: int) -> None:
    for turn in range(4):
        world.append(plain, epoch=epoch, count=2)
        world.append(plain, epoch=epoch, producer_id=5)
        for producer_id in (8, 9):
            world.append(plain, epoch=epoch, producer_id=producer_id, transactional=True)
        world.end_transaction(plain, 8, commit=turn % 2 == 0, epoch=epoch)
        world.end_transaction(plain, 9, commit=turn % 2 == 1, epoch=epoch)
        for key in (b"a", b"b", b"%d" % turn):
            world.append(compacted, epoch=epoch, key=key)


def work(world: PowerWorld) -> None:
    """Does some of everything."""
    plain, compacted = world.new("plain", 1, PLAIN), world.new("compacted", 2, COMPACTED)
    short = world.new("short", 3, SHORT)
    _write(world, plain, compacted, epoch=0)
    for _ in range(8):
        world.append(short, epoch=0)
    world.flush(plain)
    world.wait(5000)
    world.append(plain, epoch=1, producer_id=8, transactional=True)
    world.delete_records(plain, 7)
    world.append(plain, epoch=1)
    world.wait(6000)
    world.stop_and_start()
    _write(world, plain, compacted, epoch=2)
    end = world.log(plain).log_end_offset
    world.flush(plain)
    world.truncate(plain, end - 9)
    world.append(plain, epoch=3)
    world.flush(plain)
    world.roll(plain)
    world.roll(compacted)
    world.kill_and_start()
    world.truncate(plain, world.log(plain).log_end_offset - 2)
    for _ in range(5):
        world.append(short, epoch=4)
    world.wait(8000)
    _remake(world, short)
    world.append(compacted, epoch=5, key=b"a")
    world.roll(compacted)
    world.append(compacted, epoch=5, key=b"c")
    world.wait(17_000)
    # Compaction has removed older records of the truncated ones' keys, as can be after an unclean election.
    world.truncate(compacted, world.log(compacted).log_end_offset - 3)
    world.append(compacted, epoch=6, key=b"b")
    world.stop_and_start()


def _remake(world: PowerWorld, short: Model) -> None:
    """Deletes the topic and creates one of the same name, which is shorter and begins at 0."""
    world.wait(6000)
    world.delete_records(short, world.log(short).log_end_offset - 1)
    world.wait(3000)
    world.delete(short)
    anew = world.new("short", 4, SHORT)
    for _ in range(4):
        world.append(anew, epoch=0)
    world.flush(anew)
    world.append(anew, epoch=0)


def fail_everywhere(fates: list[Fate], every: int = 1) -> int:
    """Returns the number of failures that were checked."""
    world = PowerWorld()
    checks = 0

    def check() -> None:
        nonlocal checks
        if world.disk.changes % every == 0:
            for place, fate in enumerate(fates):
                world.check(fate, seed=world.disk.changes * 31 + place)
                checks += 1

    with world.failing_everywhere(check):
        work(world)
    check()
    assert world.host.faults.reported == []
    assert world.disk.changes > 600
    return checks


@pytest.mark.sampled(1)
@pytest.mark.parametrize("fate", Fate)
def test_whatever_the_disk_kept_all_that_was_synced_is_there(fate: Fate) -> None:
    """Guard G27."""
    assert fail_everywhere([fate], every=3) > 200


@pytest.mark.full
def test_every_change_and_many_worlds_after_it() -> None:
    assert fail_everywhere([Fate.LOST, Fate.KEPT, *[Fate.TORN] * 6]) > 4000
