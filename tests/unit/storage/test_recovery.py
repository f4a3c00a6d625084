"""The opening of a log after all possible changes to its directory."""

from __future__ import annotations

import errno

import pytest
from tests.support.batches import NOW_MS
from tests.support.log_world import TINY, LogWorld, encode_records, snapshot_of

from barnabas.common.log_config import LogConfig
from barnabas.records.batch import iter_headers
from barnabas.simulation.crashing_disk import CrashingDisk, Fate, PowerFailure
from barnabas.storage.checkpoints import LEADER_EPOCH_CHECKPOINT, CheckpointError
from barnabas.storage.index import OffsetIndex, TimeIndex
from barnabas.storage.recovery.lost_offsets import Hole
from barnabas.storage.recovery.segment_ends import Evidence

SMALL = LogConfig(segment_bytes=250, index_interval_bytes=100)


def filled(count: int = 12, config: LogConfig = SMALL) -> LogWorld:
    world = LogWorld(config)
    for i in range(count):
        world.append(NOW_MS + i, epoch=i // 5)
    return world


def test_every_cut_of_the_last_segment_leaves_its_whole_batches() -> None:
    """Guard G27."""
    world = filled(3, LogConfig())
    path = world.log.segments.active.log_path
    world.log.segments.release()
    whole = world.disk.read(path)
    ends = [position + header.size_bytes for position, header in iter_headers(whole)]
    for size in range(len(whole) + 1):
        world.disk.write(path, whole[:size])
        log = world.open(clean=False)
        assert log.log_end_offset == sum(end <= size for end in ends)
        assert world.disk.size(path) == max([0, *(end for end in ends if end <= size)])
        world.log.segments.release()


def test_every_flipped_byte_is_found_unless_it_is_outside_the_checksum() -> None:
    world = filled(3, LogConfig())
    path = world.log.segments.active.log_path
    world.log.segments.release()
    whole = world.disk.read(path)
    for position, header in list(iter_headers(whole)):
        for place in range(position, position + header.size_bytes):
            inside = place - position
            if inside < 8 or 12 <= inside < 16:
                continue  # base offset and leader epoch: the leader's to write
            damaged = bytearray(whole)
            damaged[place] ^= 0x41
            world.disk.write(path, damaged)
            assert world.open(clean=False).log_end_offset == header.base_offset, place
            world.log.segments.release()


def test_index_entries_that_a_full_disk_kept_in_memory_are_made_anew_after_a_kill(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The segment is synced and its indexes are well formed, but they are not complete."""
    world = LogWorld(LogConfig(index_interval_bytes=0))
    for i in range(4):
        world.append(NOW_MS + i)

    def is_full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as full:
        full.setattr(TimeIndex, "_write", is_full)
        full.setattr(OffsetIndex, "_write", is_full)
        world.log.roll()
        world.log.segments.release()
    log = world.open(clean=False, recovery_point=4)
    assert log.segments[0].time_index.last() == (NOW_MS + 3, 3)
    assert log.segments[0].index.last()[0] == 3


@pytest.mark.parametrize("is_compacted", [False, True])
def test_a_flipped_base_offset_leaves_a_gap_unless_gaps_are_normal(is_compacted: bool) -> None:
    """No checksum covers a base offset."""
    world = filled(3, LogConfig())
    path = world.log.segments.active.log_path
    world.log.segments.release()
    data = bytearray(world.disk.read(path))
    position = list(iter_headers(data))[-1][0]
    data[position + 5] ^= 1
    world.disk.write(path, data)
    log = world.open(clean=False, evidence=Evidence(compacted=is_compacted))
    assert log.losses.suspected == (() if is_compacted else (Hole(2, 0x10002),))


def test_segments_behind_damage_are_removed() -> None:
    world = filled()
    bases = list(world.log.segments.bases)
    assert len(bases) >= 4
    victim = world.log.segments[1]
    world.log.segments.release()
    data = bytearray(world.disk.read(victim.log_path))
    data[-1] ^= 1
    world.disk.write(victim.log_path, data)
    log = world.open(clean=False)
    assert list(log.segments.bases) == bases[:2]
    assert log.log_end_offset == bases[2] - 1
    assert world.offsets() == list(range(bases[2] - 1))
    assert world.files(".deleted") == []
    assert len(world.files(".log")) == 2


@pytest.mark.parametrize("contiguous", [True, False])
def test_a_log_that_has_no_gaps_ends_where_a_tail_was_lost(contiguous: bool) -> None:
    """The last batch of a segment was never written back, but the next segment was. Compaction leaves gaps too."""
    world = filled()
    bases = list(world.log.segments.bases)
    victim = world.log.segments[1]
    world.log.segments.release()
    data = world.disk.read(victim.log_path)
    *_, (last, _) = iter_headers(data)
    world.disk.write(victim.log_path, data[:last])
    log = world.open(clean=False, contiguous=contiguous)
    assert list(log.segments.bases) == (bases[:2] if contiguous else bases)
    assert log.log_end_offset == (bases[2] - 1 if contiguous else 12)


def test_what_is_below_the_recovery_point_is_not_scanned() -> None:
    world = filled()
    bases = list(world.log.segments.bases)
    first = world.log.segments[0]
    world.log.segments.release()
    data = bytearray(world.disk.read(first.log_path))
    data[-1] ^= 1
    world.disk.write(first.log_path, data)
    log = world.open(clean=False, recovery_point=bases[2])
    assert list(log.segments.bases) == bases
    assert log.recovery_point == bases[2]
    world.log.segments.release()
    assert world.open(clean=False, recovery_point=bases[1] - 1).log_end_offset < bases[1]


def test_epochs_of_scanned_batches_are_put_back() -> None:
    world = filled()
    expected = world.log.epochs.entries
    assert len(expected) == 3
    world.log.segments.release()
    for damage in (b"", b"0\n1\n0 0\n", b"0\n5\nnot what was written"):
        world.disk.write(world.path(LEADER_EPOCH_CHECKPOINT), damage)
        assert world.open(clean=False).epochs.entries == expected
        world.log.segments.release()


def test_epochs_beyond_the_end_go() -> None:
    world = filled()
    world.log.assign_epoch(9, 12)
    assert world.kill().epochs.latest_epoch == 2


def test_missing_indexes_are_made_anew() -> None:
    world = filled()
    world.log.close(clean=True)
    before = snapshot_of(world.disk, world.directory)
    for name in before:
        if name.endswith((".index", ".timeindex")):
            world.disk.remove(world.path(name))
    world.open(clean=True).close(clean=True)
    assert snapshot_of(world.disk, world.directory) == before


def test_leftovers_are_removed() -> None:
    world = filled()
    world.log.close(clean=True)
    before = snapshot_of(world.disk, world.directory)
    strays = (
        "00000000000000000000.log.deleted",
        "00000000000000000000.snapshot.deleted",
        "00000000000000000004.log.cleaned",
        "00000000000000000004.index.cleaned",
        "00000000000000000999.index",
        "00000000000000000999.timeindex",
        "00000000000000000999.txnindex",
    )
    for name in strays:
        world.disk.write(world.path(name), b"old")
    world.open(clean=True).close(clean=True)
    assert snapshot_of(world.disk, world.directory) == before


def test_an_interrupted_swap_is_finished() -> None:
    """Segments 0 and 3 were compacted into one that is only to be renamed; whichever of them is still there goes."""
    world = filled()
    bases = list(world.log.segments.bases)
    kept = encode_records(NOW_MS + 1, base_offset=1, leader_epoch=0)
    last = encode_records(NOW_MS + 5, base_offset=bases[2] - 1, leader_epoch=1)
    world.log.close(clean=True)
    world.disk.write(world.path("00000000000000000000.log.swap"), kept + last)
    world.disk.write(world.path("00000000000000000000.index.swap"), b"")
    world.disk.write(world.path("00000000000000000000.timeindex.swap"), b"")
    log = world.open(clean=True)
    assert list(log.segments.bases) == [0, *bases[2:]]
    assert world.offsets() == [1, bases[2] - 1, *range(bases[2], 12)]
    assert world.files(".swap") == []


def test_a_swap_next_to_a_cleaned_file_is_dropped() -> None:
    world = filled()
    world.log.close(clean=True)
    before = snapshot_of(world.disk, world.directory)
    for name in ("00000000000000000004.log.swap", "00000000000000000000.log.cleaned"):
        world.disk.write(world.path(name), b"half done")
    world.open(clean=True).close(clean=True)
    assert snapshot_of(world.disk, world.directory) == before


def test_a_log_start_above_the_end_begins_anew() -> None:
    world = filled(3)
    world.log.close(clean=True)
    log = world.open(clean=True, log_start_offset=50)
    assert (log.log_start_offset, log.log_end_offset, list(log.segments.bases)) == (50, 50, [50])
    assert world.append(NOW_MS).first_offset == 50


def test_a_wrong_partition_metadata_is_named() -> None:
    world = filled(1)
    world.log.close(clean=True)
    world.disk.write(world.path("partition.metadata"), b"version: 7\n")
    with pytest.raises(CheckpointError, match=r"partition\.metadata"):
        world.open(clean=True)


def test_producers_are_known_after_a_kill() -> None:
    world = LogWorld(TINY)
    for sequence in range(30):
        world.append(NOW_MS, producer_id=3, producer_epoch=1, base_sequence=sequence)
    for name in world.files(".snapshot")[1:]:
        world.disk.write(world.path(name), b"torn")
    world.kill()
    repeated = world.append(NOW_MS, producer_id=3, producer_epoch=1, base_sequence=29)
    assert (repeated.duplicate, repeated.first_offset) == (True, 29)
    assert world.append(NOW_MS, producer_id=3, producer_epoch=1, base_sequence=30).first_offset == 30


class CrashWork:
    """A bit of everything that a log does to its files, and what must be there whenever the power fails."""

    def __init__(self, disk: CrashingDisk) -> None:
        self.world = LogWorld(SMALL, disk)
        self.written: dict[int, set[bytes]] = {}
        self.sure: dict[int, bytes] = {}

    def append(self, epoch: int, **options: int) -> None:
        offset = self.world.log.log_end_offset
        value = b"%d of epoch %d" % (offset, epoch)
        self.written.setdefault(offset, set()).add(value + b"-0")
        self.world.append(NOW_MS + offset, epoch=epoch, value=value, **options)

    def flush(self) -> None:
        self.world.log.flush()
        self.sure = {record.offset: record.value or b"" for record in self.world.records()}

    def truncate_to(self, offset: int) -> None:
        self.sure = {at: value for at, value in self.sure.items() if at < offset}
        self.world.log.truncate_to(offset)

    def delete_records_before(self, offset: int) -> None:
        self.sure = {at: value for at, value in self.sure.items() if at >= offset}
        self.world.log.delete_records_before(offset)

    def run(self) -> None:
        for _ in range(6):
            self.append(1)
        self.flush()
        for sequence in range(4):
            self.append(2, producer_id=5, producer_epoch=0, base_sequence=sequence)
        self.truncate_to(8)
        self.append(3)
        self.append(3)
        self.delete_records_before(5)
        self.world.log.roll()
        self.append(3)
        self.flush()
        self.truncate_to(9)
        self.append(4)
        self.world.log.close(clean=True)


def _changes_of_the_work() -> int:
    disk = CrashingDisk()
    work = CrashWork(disk)
    before = disk.changes
    work.run()
    return disk.changes - before


@pytest.mark.parametrize("fate", list(Fate))
def test_a_power_failure_at_any_change_loses_nothing_that_was_synced(fate: Fate) -> None:
    changes = _changes_of_the_work()
    assert changes > 60
    for failing in range(changes):
        disk = CrashingDisk()
        work = CrashWork(disk)
        disk.changes_left = disk.changes + failing
        with pytest.raises(PowerFailure):
            work.run()
        last = work.world.log
        found = LogWorld(SMALL, disk.after_crash(fate), clean=False, recovery_point=last.recovery_point)
        records = {record.offset: record.value or b"" for record in found.records()}
        log = found.log
        end = log.log_start_offset + len(records)
        assert list(records) == list(range(log.log_start_offset, end)), failing
        # A new segment's name may be sure before what was written to the one before it; as with Kafka, it is kept.
        assert log.log_end_offset in (end, log.segments.bases[-1]), failing
        assert work.sure.items() <= records.items(), failing
        for offset, value in records.items():
            assert value in work.written[offset], failing
        epochs = [int(value.split()[3].split(b"-")[0]) for value in records.values()]
        assert all(log.epoch_at(offset) == epoch for offset, epoch in zip(records, epochs, strict=True) if offset >= 5)
        assert log.log_end_offset > end or log.epochs.latest_epoch == max([-1, *epochs]), failing
        assert found.append(NOW_MS, epoch=9).first_offset >= end
