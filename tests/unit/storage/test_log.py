"""One log: rolling, look-ups, transactions, trimming, retention, faults."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.batches import NOW_MS, simple_batch
from tests.support.log_world import TINY, LogWorld, encode_records

from barnabas.common.errors import ErrorCode, RecordsRejected, RequestFailed, StorageFault
from barnabas.common.log_config import LogConfig
from barnabas.records.batch import encode_end_txn_marker, iter_headers
from barnabas.simulation.crashing_disk import CrashingDisk
from barnabas.simulation.disk import MemoryDisk
from barnabas.storage.log import Log, Origin
from barnabas.storage.log_events import LogEvents

DAY_MS = 86_400_000


def bases(log: Log) -> list[int]:
    return list(log.segments.bases)


# Appending


def test_offsets_and_epoch_are_written_into_the_caller_s_memory() -> None:
    world = LogWorld(LogConfig())
    world.append(NOW_MS, NOW_MS)
    batch = simple_batch(3)
    info = world.append_batch(batch, epoch=5)
    assert (info.first_offset, info.last_offset, info.log_append_time_ms) == (2, 4, -1)
    (_, header), *_ = iter_headers(batch)
    assert (header.base_offset, header.partition_leader_epoch) == (2, 5)
    assert world.log.read(2, 10_000, up_to=5).data == batch
    assert [(e.epoch, e.start_offset) for e in world.log.epochs.entries] == [(0, 0), (5, 2)]


def test_log_append_time_is_the_broker_s() -> None:
    world = LogWorld(LogConfig(message_timestamp_type="LogAppendTime"))
    info = world.append(NOW_MS - 5000, NOW_MS - 4000)
    assert (info.log_append_time_ms, info.max_timestamp) == (NOW_MS, NOW_MS)
    assert [record.timestamp for record in world.records()] == [NOW_MS, NOW_MS]


def test_a_rejected_batch_changes_nothing() -> None:
    world = LogWorld()
    world.append(NOW_MS)
    broken = encode_records(NOW_MS)
    broken[-1] ^= 1
    with pytest.raises(RecordsRejected):
        world.append_batch(broken, epoch=9)
    assert world.offsets() == [0]
    assert world.log.epochs.latest_epoch == 0


def test_a_follower_takes_batches_as_they_are() -> None:
    leader, follower = LogWorld(), LogWorld()
    for i in range(20):
        leader.append(NOW_MS + i, NOW_MS, epoch=i // 7)
    data = b"".join(bytes(view) for _, view in leader.log.batches(0, 5000))
    info = follower.log.append_as_follower(data + b"half a batch")
    assert info is not None
    assert (info.first_offset, info.last_offset, info.max_timestamp) == (0, 39, NOW_MS + 19)
    assert follower.log.epochs.entries == leader.log.epochs.entries
    assert follower.records() == leader.records()
    assert follower.log.append_as_follower(b"") is None
    with pytest.raises(RecordsRejected, match="ends at 40"):
        follower.log.append_as_follower(data)


def test_a_follower_keeps_what_came_before_a_broken_batch() -> None:
    first, second = encode_records(NOW_MS, base_offset=3), encode_records(NOW_MS, base_offset=4)
    second[-1] ^= 1
    follower = LogWorld()
    with pytest.raises(RecordsRejected) as refused:
        follower.log.append_as_follower(first + second)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    assert follower.offsets() == [3]


# Rolling


def test_a_segment_rolls_before_it_grows_too_large() -> None:
    world = LogWorld(LogConfig(segment_bytes=400))
    size = len(encode_records(NOW_MS))
    for _ in range(10):
        world.append(NOW_MS)
    assert bases(world.log) == [0, *range(400 // size, 10, 400 // size)]
    assert all(segment.size_bytes <= 400 for segment in world.log.segments)
    assert world.files(".snapshot") == [f"{base:020d}.snapshot" for base in bases(world.log)[1:]]


def test_a_segment_rolls_by_the_time_of_its_records_not_by_the_clock() -> None:
    world = LogWorld(LogConfig(segment_ms=1000))
    world.append(NOW_MS - 10_000)
    world.wall_ms += 100_000
    world.append(NOW_MS - 9_000)
    assert bases(world.log) == [0]
    world.append(NOW_MS - 8_999)
    assert bases(world.log) == [0, 2]
    world.restart()
    world.append(NOW_MS - 7_999)
    assert bases(world.log) == [0, 2]
    world.append(NOW_MS - 7_998)
    assert bases(world.log) == [0, 2, 4]


def test_a_segment_without_timestamps_rolls_by_the_clock() -> None:
    world = LogWorld(LogConfig(segment_ms=1000))
    world.append(-1)
    world.wall_ms += 1000
    world.append(-1)
    assert bases(world.log) == [0]
    world.wall_ms += 1
    world.append(-1)
    assert bases(world.log) == [0, 2]


def test_jitter_rolls_earlier() -> None:
    world = LogWorld(LogConfig(segment_ms=1000, segment_jitter_ms=500), pick_jitter=lambda bound: bound - 1)
    world.append(NOW_MS)
    world.append(NOW_MS + 501)
    assert bases(world.log) == [0]
    world.append(NOW_MS + 502)
    assert bases(world.log) == [0, 2]


def test_a_full_index_rolls() -> None:
    world = LogWorld(LogConfig(index_interval_bytes=0, segment_index_bytes=40))
    for i in range(12):
        world.append(NOW_MS + i)
    # Three time index entries of 12 bytes fit, one is kept for the end: two, and the batch before the first entry.
    assert bases(world.log) == [0, 3, 6, 9]
    assert all(len(segment.time_index) <= 3 for segment in world.log.segments)


def test_offsets_too_far_from_the_base_roll() -> None:
    world = LogWorld(LogConfig())
    world.log.append_as_follower(encode_records(NOW_MS, base_offset=0))
    world.log.append_as_follower(encode_records(NOW_MS, base_offset=0x7FFFFFFF))
    assert bases(world.log) == [0]
    world.log.append_as_follower(encode_records(NOW_MS, base_offset=0x80000000))
    assert bases(world.log) == [0, 0x80000000]
    assert world.restart().log_end_offset == 0x80000001


def test_a_new_config_counts_for_the_next_batch() -> None:
    world = LogWorld(LogConfig())
    world.append(NOW_MS)
    world.log.config = LogConfig(max_message_bytes=10)
    with pytest.raises(RecordsRejected) as refused:
        world.append(NOW_MS)
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
    world.log.config = LogConfig(segment_bytes=100)
    world.append(NOW_MS)
    assert bases(world.log) == [0, 1]


# Reading


def test_a_batch_larger_than_asked_comes_whole_or_not_at_all() -> None:
    """Guard G25."""
    world = LogWorld(LogConfig())
    batch = simple_batch(20)
    world.append_batch(batch)
    log = world.log
    assert log.read(7, 1, up_to=20).data == batch
    assert log.read(7, 1, up_to=20, min_one_batch=False).data == b""
    assert log.read(20, 100, up_to=20).data == b""


@pytest.mark.parametrize("offset", [-1, 1, 6])
def test_offsets_outside_of_the_log_are_out_of_range(offset: int) -> None:
    world = LogWorld()
    for _ in range(5):
        world.append(NOW_MS)
    world.log.delete_records_before(2)
    with pytest.raises(RequestFailed) as refused:
        world.log.read(offset, 100, up_to=5)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_wrong_index_is_found_out() -> None:
    """Entries that lead into the middle of a batch, beyond the end, or to a later batch cost time, not truth."""
    world = LogWorld(LogConfig(index_interval_bytes=100))
    for i in range(40):
        world.append(NOW_MS + i)
    world.restart()
    name = world.path(world.files(".index")[0])
    right = world.disk.read(name)
    assert len(right) >= 80
    for place in range(len(right)):
        wrong = bytearray(right)
        wrong[place] ^= 0x15
        world.disk.write(name, wrong)
        log = world.open(clean=True)
        assert log.log_end_offset == 40
        for offset in range(0, 40, 3):
            (_, header), *_ = iter_headers(memoryview(log.read(offset, 100, up_to=40).data))
            assert header.base_offset == offset, (place, offset)


# Transactions


def transactional(world: LogWorld, producer: int, sequence: int) -> int:
    batch = encode_records(NOW_MS, producer_id=producer, producer_epoch=0, base_sequence=sequence, transactional=True)
    return world.append_batch(batch).first_offset


def end_transaction(world: LogWorld, producer: int, *, commit: bool) -> int:
    marker = encode_end_txn_marker(
        commit=commit, coordinator_epoch=0, timestamp=NOW_MS, producer_id=producer, producer_epoch=0
    )
    return world.append_batch(marker, origin=Origin.COORDINATOR).first_offset


def aborted_below(log: Log) -> set[tuple[int, int]]:
    found: set[tuple[int, int]] = set()
    for offset in range(log.log_start_offset, log.log_end_offset):
        found |= set(log.aborted_transactions(offset, log.read(offset, 1, up_to=log.log_end_offset)))
    return found


def test_the_last_stable_offset_waits_for_the_oldest_transaction() -> None:
    world = LogWorld(LogConfig())
    log = world.log
    world.append(NOW_MS)
    assert log.last_stable_offset(1) == 1
    transactional(world, 1, 0)
    transactional(world, 2, 0)
    assert log.last_stable_offset(3) == 1
    end_transaction(world, 1, commit=False)
    assert log.last_stable_offset(3) == 1  # the marker is above the HW
    assert log.last_stable_offset(4) == 2
    end_transaction(world, 2, commit=True)
    assert log.last_stable_offset(5) == 5
    assert aborted_below(log) == {(1, 1)}


@pytest.mark.parametrize("how", ["restart", "kill", "kill without snapshots"])
def test_aborted_transactions_are_known_once_after_a_start(how: str) -> None:
    """Guard G25."""
    world = LogWorld(replace(TINY, segment_bytes=300))
    for round_ in range(6):
        transactional(world, 1, 2 * round_)
        world.append(NOW_MS)
        transactional(world, 1, 2 * round_ + 1)
        end_transaction(world, 1, commit=round_ % 2 == 0)
    expected = aborted_below(world.log)
    assert expected == {(1, 4), (1, 12), (1, 20)}
    files = {name: world.disk.read(world.path(name)) for name in world.files(".txnindex")}
    for _ in range(2):
        if how == "restart":
            world.restart()
        else:
            if how.endswith("snapshots"):
                for name in world.files(".snapshot"):
                    world.disk.write(world.path(name), b"x")
            world.kill()
        assert aborted_below(world.log) == expected
        assert {name: world.disk.read(world.path(name)) for name in world.files(".txnindex")} == files


def test_truncation_brings_an_ended_transaction_back() -> None:
    world = LogWorld(LogConfig())
    first = transactional(world, 1, 0)
    marker = end_transaction(world, 1, commit=False)
    world.append(NOW_MS)
    world.log.truncate_to(marker)
    assert world.log.last_stable_offset(marker) == first
    assert aborted_below(world.log) == set()
    assert end_transaction(world, 1, commit=False) == marker
    assert aborted_below(world.log) == {(1, first)}
    entries = world.log.segments.active.txn_index.entries()
    assert [entry.last_offset for entry in entries] == [marker]


# Shortening


def test_truncation_inside_a_batch_takes_all_of_it() -> None:
    world = LogWorld()
    world.append(NOW_MS)
    world.append(NOW_MS, NOW_MS, NOW_MS, epoch=1)
    world.log.truncate_to(2)
    assert (world.log.log_end_offset, world.offsets()) == (1, [0])
    assert world.append(NOW_MS, epoch=2).first_offset == 1


def test_truncation_below_all_segments_begins_anew() -> None:
    world = LogWorld(LogConfig(segment_bytes=200))
    for _ in range(10):
        world.append(NOW_MS)
    world.log.delete_records_before(8)
    world.log.truncate_to(1)
    assert (world.log.log_start_offset, world.log.log_end_offset, bases(world.log)) == (1, 1, [1])
    assert world.append(NOW_MS).first_offset == 1


def test_truncate_fully_starts_at_the_given_offset() -> None:
    world = LogWorld()
    for _ in range(10):
        world.append(NOW_MS, epoch=3)
    world.log.truncate_fully_and_start_at(100)
    assert (world.log.log_start_offset, world.log.log_end_offset, world.log.recovery_point) == (100, 100, 100)
    assert world.log.epochs.entries == ()
    assert world.append(NOW_MS, epoch=4).first_offset == 100
    assert world.restart().log_start_offset == 100
    assert world.offsets() == [100]


def test_deleted_records_take_whole_segments_with_them() -> None:
    world = LogWorld(LogConfig(segment_bytes=200))
    removed: list[str] = []

    class Noting(LogEvents[Log]):
        def on_segments_deleted(self, log: Log, files: list[str]) -> None:
            removed.extend(files)

    world.log.signals.connect(Noting(world.disk))
    for i in range(12):
        world.append(NOW_MS, epoch=i // 4)
    before = bases(world.log)
    world.log.delete_records_before(5)
    assert world.log.log_start_offset == 5
    assert bases(world.log) == [base for base in before if base >= 4]
    assert world.offsets() == [5, 6, 7, 8, 9, 10, 11]
    assert world.log.epoch_at(5) == 1
    assert removed
    assert all(name.endswith(".deleted") for name in removed)
    assert world.files(".deleted") == sorted(path.rpartition("/")[2] for path in removed)
    world.restart()
    assert world.files(".deleted") == []
    assert world.offsets() == [5, 6, 7, 8, 9, 10, 11]


# Retention


def filled(config: LogConfig, days: int = 10) -> LogWorld:
    """Returns a log with one segment for each day, the oldest first."""
    world = LogWorld(replace(config, segment_bytes=100))
    for day in range(days, 0, -1):
        world.append(NOW_MS - day * DAY_MS)
    assert len(bases(world.log)) == days
    return world


def test_retention_by_time() -> None:
    world = filled(LogConfig(retention_ms=3 * DAY_MS))
    assert world.log.delete_old_segments(NOW_MS, high_watermark=10) == 7
    assert (world.log.log_start_offset, world.offsets()) == (7, [7, 8, 9])
    assert world.log.delete_old_segments(NOW_MS, high_watermark=10) == 0


def test_retention_by_size() -> None:
    world = filled(LogConfig(retention_bytes=3 * len(encode_records(NOW_MS)) + 1, retention_ms=-1))
    assert world.log.delete_old_segments(NOW_MS, high_watermark=10) == 6
    assert world.offsets() == [6, 7, 8, 9]


def test_retention_never_takes_what_is_above_the_high_watermark() -> None:
    world = filled(LogConfig(retention_ms=0))
    assert world.log.delete_old_segments(NOW_MS, high_watermark=4) == 4
    assert world.offsets() == [4, 5, 6, 7, 8, 9]


def test_when_all_is_old_an_empty_segment_remains() -> None:
    world = filled(LogConfig(retention_ms=1000))
    assert world.log.delete_old_segments(NOW_MS, high_watermark=10) == 10
    assert (bases(world.log), world.log.log_start_offset, world.log.log_end_offset) == ([10], 10, 10)
    assert world.log.delete_old_segments(NOW_MS + DAY_MS, high_watermark=10) == 0
    assert world.append(NOW_MS).first_offset == 10


def test_a_compacted_topic_keeps_its_old_segments() -> None:
    world = filled(LogConfig(retention_ms=1000, cleanup_policy=("compact",)))
    assert world.log.delete_old_segments(NOW_MS, high_watermark=10) == 0
    world.log.delete_records_before(4)
    assert bases(world.log)[0] == 4


def test_records_without_time_are_as_old_as_their_file() -> None:
    class Clock:
        now = NOW_MS

        def wall_ms(self) -> int:
            return self.now

    clock = Clock()
    world = LogWorld(LogConfig(retention_ms=1000), MemoryDisk(clock=clock))
    world.append(-1)
    assert world.log.delete_old_segments(NOW_MS + 1000, high_watermark=1) == 0
    assert world.log.delete_old_segments(NOW_MS + 1001, high_watermark=1) == 1


# Syncing


@pytest.mark.parametrize(("every", "syncs"), [(1, 12), (3, 4), (5, 2), (100, 0)])
def test_each_flush_messages_appends_cost_one_fsync_of_the_log(every: int, syncs: int) -> None:
    disk = CrashingDisk()
    world = LogWorld(LogConfig(flush_messages=every), disk)
    for _ in range(12):
        world.append(NOW_MS)
    assert [path for path in disk.synced_paths if path.endswith(".log")] == [world.path("0" * 20 + ".log")] * syncs
    assert world.log.recovery_point == 12 // every * every


def test_flush_messages() -> None:
    world = LogWorld(LogConfig(flush_messages=3))
    world.append(NOW_MS)
    world.append(NOW_MS)
    assert world.log.recovery_point == 0
    world.append(NOW_MS)
    assert world.log.recovery_point == 3


def test_a_rolled_segment_is_synced_in_the_background() -> None:
    world = LogWorld()
    log = world.log
    world.append(NOW_MS)
    log.roll()
    world.append(NOW_MS)
    work, succeeded = log.sync_job(1)
    assert log.recovery_point == 0
    work()
    succeeded()
    assert log.recovery_point == 1
    work, succeeded = log.sync_job(2)
    log.truncate_to(1)
    world.append(NOW_MS)
    succeeded()
    assert log.recovery_point == 1, "what was synced is no longer what is there"


def test_a_rolled_segment_counts_as_synced_only_with_its_indexes() -> None:
    world = LogWorld()
    world.append(NOW_MS)
    world.log.flush()
    world.log.roll()
    assert world.log.recovery_point == 0
    world.append(NOW_MS)
    world.log.flush()
    assert world.log.recovery_point == 2


# Faults


def test_a_full_disk_is_a_storage_fault_and_tears_nothing() -> None:
    disk = MemoryDisk()
    world = LogWorld(LogConfig(), disk)
    world.append(NOW_MS)
    disk.free_bytes = 10
    with pytest.raises(StorageFault) as fault:
        world.append(NOW_MS)
    assert fault.value.directory == "/logs"
    assert (world.log.log_end_offset, world.offsets()) == (1, [0])
    disk.free_bytes = 1 << 20
    world.append(NOW_MS)
    world.kill()
    assert world.offsets() == [0, 1]


def test_a_vanished_directory_is_a_storage_fault() -> None:
    world = LogWorld()
    world.append(NOW_MS)
    world.log.segments.release()
    world.disk.remove_tree(world.directory)
    for use in (
        lambda: world.append(NOW_MS),
        lambda: world.log.read(0, 100, up_to=1),
        lambda: world.log.offset_for_timestamp(NOW_MS),
        lambda: world.log.flush(),
        lambda: world.log.truncate_to(0),
    ):
        with pytest.raises(StorageFault, match="orders-0"):
            use()
        assert not world.disk.exists(world.directory)


def test_a_renamed_log_goes_on() -> None:
    world = LogWorld()
    for _ in range(8):
        world.append(NOW_MS)
    target = f"{world.root}/orders-0.{'0' * 32}-delete"
    world.disk.rename(world.directory, target)
    world.log.renamed(target)
    assert world.log.directory == target
    world.append(NOW_MS, epoch=2)
    assert len(world.records()) == 9
    world.log.close(clean=True)
    assert not world.disk.exists(world.directory)


def test_the_log_start_never_passes_the_end() -> None:
    world = LogWorld()
    world.append(NOW_MS)
    world.append(NOW_MS)
    with pytest.raises(AssertionError, match="log start above the LEO"):
        world.log.delete_records_before(3)
    assert (world.log.log_start_offset, world.log.log_end_offset) == (0, 2)


@pytest.mark.parametrize("config", [LogConfig(), LogConfig(segment_bytes=150)])
def test_the_latest_record_is_one_that_is_left(config: LogConfig) -> None:
    """The record with the largest timestamp was deleted: nothing was found, although the log had records."""
    world = LogWorld(config)
    batches = [(900, 40), (50, 700, 60), (80, 300), (10, 300)]
    for timestamps in batches:
        world.append(*timestamps)
    every = [timestamp for batch in batches for timestamp in batch]
    for start in range(len(every)):
        world.log.delete_records_before(start)
        largest = max(every[start:])
        assert world.log.max_timestamp() == (largest, every.index(largest, start), 0), start
    world.log.delete_records_before(len(every))
    assert world.log.max_timestamp() is None
