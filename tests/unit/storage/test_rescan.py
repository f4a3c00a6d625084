"""The offset from which recovery scans the segment with the recovery point, and when it does not trust the indexes."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.batches import NOW_MS
from tests.support.log_world import LogWorld

from barnabas.common.log_config import LogConfig
from barnabas.records.batch import iter_headers
from barnabas.storage.offline.verify import verify_partition
from barnabas.storage.recovery.rescan import ScanStart, synced_part

ONE_SEGMENT = LogConfig(segment_bytes=1 << 20, index_interval_bytes=100)


def filled() -> LogWorld:
    """Returns a world with forty batches of one record, all but the last five synced, whose process has ended."""
    world = LogWorld(ONE_SEGMENT)
    for index in range(40):
        if index == 35:
            world.log.flush()
        world.append(NOW_MS + index, epoch=index // 30)
    world.log.segments.active.write_out()
    world.log.segments.release()
    return world


def positions(world: LogWorld) -> dict[int, int]:
    return {header.base_offset: at for at, header in world.log.segments.active.headers(0)}


def test_what_was_synced_is_not_scanned() -> None:
    world = filled()
    at = positions(world)[35]
    assert synced_part(world.log.segments.active, 35) == ScanStart(at, 35)
    recovered = world.kill()
    assert recovered.log_end_offset == 40
    assert [tuple(entry) for entry in recovered.epochs.entries] == [(0, 0), (1, 30)]
    assert [record.offset for record in world.records()] == list(range(40))


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_index_with_a_blank_page_is_made_anew(suffix: str) -> None:
    world = filled()
    (name,) = world.files(suffix)
    before = world.disk.read(world.path(name))
    file = world.disk.open(world.path(name))
    file.write_at(24, bytes(48))
    file.close()
    assert synced_part(world.log.segments.active, 35) == ScanStart(0, 0)
    recovered = world.kill()
    assert recovered.log_end_offset == 40
    assert len(world.disk.read(world.path(name))) >= len(before)
    for index in range(40):
        assert recovered.offset_for_timestamp(NOW_MS + index) == (NOW_MS + index, index, index // 30)


def test_a_recovery_point_beyond_the_file_has_everything_scanned() -> None:
    world = filled()
    assert synced_part(world.log.segments.active, 41) == ScanStart(0, 0)
    recovered = world.open(clean=False, recovery_point=41)
    assert (recovered.log_end_offset, recovered.recovery_point) == (40, 40)


def test_a_stale_epoch_at_the_recovery_point_gives_way_to_what_the_batches_say() -> None:
    world = filled()
    path = world.path("leader-epoch-checkpoint")
    world.disk.write(path, b"0\n3\n0 0\n1 30\n9 35\n")
    recovered = world.kill()
    assert [tuple(entry) for entry in recovered.epochs.entries] == [(0, 0), (1, 30)]


def test_epochs_that_compaction_left_no_batch_of_are_kept() -> None:
    """Only the file knows these epochs; a follower that requests the end of one must get the same answer as before."""
    world = LogWorld(ONE_SEGMENT)
    for epoch, value in ((0, b"a"), (2, b"b"), (2, b"c"), (5, b"d"), (7, b"e")):
        world.append(NOW_MS, epoch=epoch, value=value)
    expected = [tuple(entry) for entry in world.log.epochs.entries]
    assert expected == [(0, 0), (2, 1), (5, 3), (7, 4)]
    world.log.epochs.persist()
    world.log.segments.active.write_out()
    world.log.segments.release()
    # A possible result of compaction: without the batch of epoch 0, the first one of epoch 2, and the one of epoch 5.
    (path,) = [world.path(name) for name in world.files(".log")]
    data = world.disk.read(path)
    kept = [data[at : at + header.size_bytes] for at, header in iter_headers(data) if header.base_offset in (2, 4)]
    world.disk.write(path, b"".join(kept))
    recovered = world.kill()
    assert recovered.log_end_offset == 5
    assert [tuple(entry) for entry in recovered.epochs.entries] == expected
    assert recovered.end_offset_for_epoch(0) == (0, 1)
    assert recovered.end_offset_for_epoch(6) == (5, 4)


def test_batches_behind_the_last_index_entry_are_no_reason_to_scan() -> None:
    world = LogWorld(LogConfig(segment_bytes=1 << 20, index_interval_bytes=300))
    for index in range(40):
        world.append(NOW_MS + index)
    world.log.flush()
    (segment,) = world.log.segments
    behind = [offset for offset in positions(world) if offset > segment.index.last()[0]]
    assert len(behind) > 1
    assert synced_part(segment, 40) == ScanStart(segment.size_bytes, 40)


@pytest.mark.parametrize(
    ("suffix", "place"),
    [(".index", -1), (".index", -9), (".timeindex", -5)],
    ids=["the last position", "the position before it", "the last timestamp"],
)
def test_an_index_that_rises_and_says_something_else_is_made_anew(suffix: str, place: int) -> None:
    world = filled()
    (name,) = world.files(suffix)
    changed = bytearray(world.disk.read(world.path(name)))
    changed[place] -= 1
    world.disk.write(world.path(name), changed)
    assert synced_part(world.log.segments.active, 40) == ScanStart(0, 0)
    world.log.recovery_point = 40
    recovered = world.kill()
    assert recovered.log_end_offset == 40
    assert verify_partition(world.disk, world.directory).faults == []


def test_an_index_whose_only_entry_lost_its_position_is_made_anew() -> None:
    """The entry looks as if it named the first batch."""
    world = filled()
    (name,) = world.files(".index")
    world.disk.write(world.path(name), world.disk.read(world.path(name))[:4] + bytes(4))
    assert synced_part(world.log.segments.active, 40) == ScanStart(0, 0)
    world.log.recovery_point = 40
    assert world.kill().log_end_offset == 40
    assert verify_partition(world.disk, world.directory).faults == []


def test_what_was_flushed_is_not_replayed_for_its_producers() -> None:
    world = LogWorld(ONE_SEGMENT)
    options: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "value": bytes(70_000)}
    for index in range(4):
        world.append(NOW_MS, base_sequence=index, **options)
        world.log.flush()
    assert world.files(".snapshot") == ["00000000000000000004.snapshot"], "one for every eighth of a segment, or less"
    world.log.segments.release()
    for name in world.files(".log"):
        file = world.disk.open(world.path(name))
        file.write_at(61, b"\xff" * 100)  # the first batch, which must not be scanned
        file.close()
    recovered = world.kill()
    assert recovered.log_end_offset == 4
    assert recovered.producers.producers[7].last_sequence == 3
