"""The content of a disk after a power failure: what was synced, and a possible part of the rest."""

from __future__ import annotations

import errno
from random import Random

import pytest

from barnabas.simulation.faulty_disk import FaultyDisk, Loss, durable_bytes
from barnabas.simulation.host import VirtualTime


def make_disk(seed: int = 1) -> FaultyDisk:
    disk = FaultyDisk(Random(seed), VirtualTime(), lambda duration_us: None)
    disk.make_dirs("/data")
    disk.sync_dir("/data")
    return disk


def test_what_is_synced_stays_and_what_is_not_goes() -> None:
    disk = make_disk()
    file = disk.open("/data/log", create=True)
    file.append(b"safe")
    file.sync()
    file.append(b" lost")
    disk.write("/data/new", b"unsynced")
    disk.crash(Loss.ALL)
    assert disk.read("/data/log") == b"safe"
    assert disk.list_dir("/data") == ["log"]


def test_a_process_death_loses_nothing() -> None:
    disk = make_disk()
    disk.write("/data/new", b"unsynced")
    disk.crash(Loss.NONE)
    assert disk.read("/data/new") == b"unsynced"


def test_overwritten_and_cut_bytes_come_back() -> None:
    disk = make_disk()
    file = disk.open("/data/log", create=True)
    file.append(b"abcdefgh")
    file.sync()
    file.write_at(2, b"XY")
    file.truncate(5)
    file.append(b"!")
    disk.crash(Loss.ALL)
    assert disk.read("/data/log") == b"abcdefgh"


def test_a_rename_without_a_sync_of_the_bytes_gives_an_empty_file() -> None:
    disk = make_disk()
    disk.write("/data/state.tmp", b"new")
    disk.rename("/data/state.tmp", "/data/state")
    disk.sync_dir("/data")
    disk.crash(Loss.ALL)
    assert disk.list_dir("/data") == ["state"]
    assert disk.read("/data/state") == b""


def test_a_replaced_file_is_the_old_or_the_new_one() -> None:
    found = set()
    for seed in range(30):
        disk = make_disk(seed)
        disk.write("/data/state", b"old", sync=True)
        disk.write("/data/state.tmp", b"new", sync=True)
        disk.rename("/data/state.tmp", "/data/state")
        disk.crash(Loss.SOME)
        found.add(disk.read("/data/state"))
    assert found == {b"old", b"new"}


def test_removed_files_and_directories_may_come_back() -> None:
    disk = make_disk()
    disk.make_dirs("/data/orders-0")
    disk.write("/data/orders-0/log", b"x", sync=True)
    disk.sync_dir("/data")
    disk.remove_tree("/data/orders-0")
    disk.crash(Loss.ALL)
    assert disk.read("/data/orders-0/log") == b"x"


@pytest.mark.parametrize("seed", range(20))
def test_a_torn_tail_is_a_part_of_what_was_written(seed: int) -> None:
    disk = make_disk(seed)
    file = disk.open("/data/log", create=True)
    file.append(b"safe")
    file.sync()
    file.append(b"0123456789")
    free = disk.free_bytes
    disk.crash(Loss.SOME)
    left = disk.read("/data/log")
    whole = b"safe0123456789"
    kept = left.rstrip(b"\0")
    assert left.startswith(b"safe")
    assert whole.startswith(kept)
    assert disk.free_bytes - free == len(whole) - len(left)


def test_errors_full_disks_and_time() -> None:
    disk = make_disk()
    charged: list[int] = []
    disk.charge = charged.append
    file = disk.open("/data/log", create=True)
    file.append(b"x")
    fast = charged[-1]
    disk.slowness = 100
    file.append(b"x")
    assert charged[-1] == 100 * fast
    taken = disk.fill()
    with pytest.raises(OSError) as full:
        file.append(b"y")
    assert full.value.errno == errno.ENOSPC
    disk.free_bytes += taken
    disk.fail_with = errno.EIO
    for call in (lambda: file.append(b"z"), file.sync, lambda: disk.read("/data/log"), lambda: file.read_at(0, 1)):
        with pytest.raises(OSError) as broken:
            call()
        assert broken.value.errno == errno.EIO
    disk.fail_with = None
    disk.cold_chance = 1.0
    assert file.read_at_nowait(0, 2) is None
    assert file.read_at(0, 2) == b"xx"


@pytest.mark.parametrize(("former", "kept"), [("/data/log.swap", 4), ("/data/other", 0)])
def test_a_compacted_file_counts_under_the_name_that_a_start_completes(former: str, kept: int) -> None:
    """A compaction renames `.swap` files last and does not sync that; a power failure gives them that name again."""
    disk = make_disk()
    file = disk.open(former, create=True)
    file.append(b"safe")
    file.sync()
    disk.sync_dir("/data")
    disk.rename(former, "/data/log")
    assert durable_bytes(disk, "/data/log") == kept
    disk.sync_dir("/data")
    assert durable_bytes(disk, "/data/log") == 4
