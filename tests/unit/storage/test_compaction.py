"""Compaction: what it keeps, what it removes, and when."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest
from crc32c import crc32c
from tests.support import golden
from tests.support.clean_world import BACKOFF_MS, EAGER, CleanWorld, filthiest, leftovers
from tests.support.log_world import PARTITION

from barnabas.common.host import Buffer
from barnabas.common.types import TopicPartition
from barnabas.records.batch import Record, decode_batch, encode_batch, read_header
from barnabas.records.compression import Codec
from barnabas.records.header import ATTRIBUTES_OFFSET, CRC_OFFSET, HEADER
from barnabas.simulation.disk import MemoryDisk
from barnabas.storage.checkpoints import read_offsets
from barnabas.storage.compaction.offset_map import OffsetMap, map_key

MINUTE_MS = 60_000


def lying_batch(offset: int) -> bytes:
    """Returns a batch with a right checksum that announces five records and has one."""
    batch = encode_batch([Record(0, 0, b"key-1", b"v", [])])
    HEADER.pack_into(
        batch,
        0,
        *read_header(batch)._replace(
            base_offset=offset, partition_leader_epoch=0, last_offset_delta=4, record_count=5, crc=0
        ),
    )
    batch[CRC_OFFSET : CRC_OFFSET + 4] = crc32c(memoryview(batch)[ATTRIBUTES_OFFSET:]).to_bytes(4, "big")
    return bytes(batch)


def headers(world: CleanWorld) -> list[tuple[int, int, int]]:
    """Returns (base offset, last offset, records) of each batch."""
    return [(h.base_offset, h.last_offset, h.record_count) for h, _ in world.log.batches(0, 1000)]


def test_the_last_value_of_each_key_stays_at_its_offset() -> None:
    world = CleanWorld()
    world.put_each((b"k%d" % (i % 3), b"v%d" % i) for i in range(12))
    world.put((b"k0", b"new"))
    world.roll()
    assert world.clean() == 1
    assert world.pairs() == [(10, b"k1", b"v10"), (11, b"k2", b"v11"), (12, b"k0", b"new")]
    assert world.log.log_end_offset == 13
    assert world.host.faults.reported == []
    assert read_offsets(world.disk, "/logs/cleaner-offset-checkpoint") == {PARTITION: 13}


def test_the_active_segment_is_left_alone() -> None:
    world = CleanWorld()
    world.put((b"k", b"old"))
    world.roll()
    world.put((b"k", b"new"))
    world.put((b"k", b"newer"))
    world.clean()
    assert [offset for offset, _, _ in world.pairs()] == [0, 1, 2]


def test_a_batch_keeps_its_offsets_when_records_leave_it() -> None:
    world = CleanWorld()
    world.put((b"a", b"1"), (b"b", b"1"), (b"c", b"1"), (b"d", b"1"))
    world.put((b"a", b"2"), (b"d", b"2"))
    world.roll()
    world.clean()
    assert headers(world) == [(0, 3, 2), (4, 5, 2)]
    assert [r.timestamp - world.records()[0].timestamp for r in world.records()] == [0, 1, -1, 0]


def test_records_without_a_key_go() -> None:
    world = CleanWorld(replace(EAGER, cleanup_policy=("delete",)))
    world.put((None, b"1"), (b"a", b"1"))
    world.put((None, b"2"))
    world.put((b"a", None))
    world.roll()
    world.configure(cleanup_policy=("compact",))
    world.clean()
    assert world.pairs() == [(3, b"a", None)]


def test_a_tombstone_stays_for_its_time() -> None:
    world = CleanWorld()
    world.put((b"a", b"1"))
    world.put((b"a", None))
    world.put((b"b", b"1"))
    world.roll()
    world.clean()
    assert world.pairs() == [(1, b"a", None), (2, b"b", b"1")]
    (marked, _) = [header for header, _ in world.log.batches(0, 1000)]
    began_ms = world.wall_ms - 3 * BACKOFF_MS + BACKOFF_MS
    assert marked.delete_horizon_ms == began_ms + EAGER.delete_retention_ms
    original = world.records()[0].timestamp
    assert original == began_ms - BACKOFF_MS  # although the horizon is where its base was
    # A later pass before the horizon leaves it, one after it removes it.
    for waited_ms, is_there in ((MINUTE_MS // 2, True), (MINUTE_MS, False)):
        world.pass_time(waited_ms)
        world.put((b"c", b"%d" % waited_ms))
        world.roll()
        assert world.clean() == 1
        assert any(key == b"a" for _, key, _ in world.pairs()) == is_there


@pytest.mark.parametrize("codec", Codec)
def test_codecs_are_kept(codec: Codec) -> None:
    world = CleanWorld(replace(EAGER, segment_bytes=4000))
    pairs = [(b"key-%d" % i, b"value " * 20) for i in range(20)]
    world.put(*pairs, codec=codec)
    world.put(*pairs[::2], codec=codec)
    world.roll()
    world.clean()
    assert [header.codec for header, _ in world.log.batches(0, 5000)] == [codec, codec]
    assert {key for _, key, _ in world.pairs()} == {key for key, _ in pairs}
    assert [offset for offset, _, _ in world.pairs()] == [*range(1, 20, 2), *range(20, 30)]


def test_log_append_time_is_kept() -> None:
    world = CleanWorld(replace(EAGER, message_timestamp_type="LogAppendTime"))
    world.put((b"a", b"1"), (b"b", b"1"), (b"c", None), timestamp=world.wall_ms - 1000)
    world.put((b"a", b"2"))
    appended_ms = world.wall_ms
    world.roll()
    world.clean()
    assert [(r.offset, r.timestamp) for r in world.records()] == [(1, appended_ms), (2, appended_ms), (3, appended_ms)]
    assert all(header.timestamp_type == 1 for header, _ in world.log.batches(0, 1000))


def test_a_producer_s_last_batch_stays_as_a_header() -> None:
    world = CleanWorld()
    ids = {"producer_id": 7, "producer_epoch": 1}
    world.put((b"a", b"1"), base_sequence=0, **ids)
    world.put((b"a", b"2"), (b"b", b"2"), base_sequence=1, **ids)
    world.put((b"a", b"3"), (b"b", b"3"))
    world.roll()
    world.clean()
    assert headers(world) == [(1, 2, 0), (3, 4, 2)]
    for name in world.files(".snapshot"):
        world.disk.remove(world.path(name))
    world.restart()
    entry = world.log.producers.producers[7]
    assert (entry.epoch, entry.last_sequence, entry.batches[-1].last_offset) == (1, 2, 2)
    # The batch can be removed once the producer has expired, or has written more.
    world.put((b"x", b"1"), base_sequence=3, **ids)
    world.roll()
    world.start()
    world.clean()
    assert headers(world) == [(3, 4, 2), (5, 5, 1)]


def test_the_end_of_what_is_clean_is_kept() -> None:
    """The last batch of the clean part stays as a header, so that the offset is not lost with it."""
    world = CleanWorld()
    world.put((b"a", b"1"))
    world.put((b"a", b"2"), producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    world.log.roll()
    world.end_transaction(7, commit=False)
    world.log.producers.expire(world.wall_ms + (1 << 40))
    world.clean()
    assert headers(world) == [(0, 0, 1), (1, 1, 0), (2, 2, 1)]


class TestTransactions:
    def test_aborted_data_goes_and_markers_follow_after_their_time(self) -> None:
        world = CleanWorld()
        ids = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
        world.put((b"a", b"committed"), base_sequence=0, **ids)
        world.end_transaction(7, commit=True)
        world.put((b"a", b"aborted"), base_sequence=1, **ids)
        world.end_transaction(7, commit=False)
        world.put((b"z", b"1"))
        world.roll()
        world.clean()
        assert headers(world) == [(0, 0, 1), (1, 1, 1), (2, 2, 0), (3, 3, 1), (4, 4, 1)]
        assert [entry.first_offset for s in world.log.segments for entry in s.txn_index.entries()] == [2]
        # The producer continues: of the aborted transaction only its marker is left, which gets a horizon.
        world.put((b"b", b"1"), base_sequence=2, **ids)
        world.end_transaction(7, commit=True)
        world.roll()
        world.clean()
        assert [base for base, _, _ in headers(world)] == [0, 1, 3, 4, 5, 6]
        assert [entry for s in world.log.segments for entry in s.txn_index.entries()] != []
        world.put((b"c", b"1"))
        world.roll()
        world.clean()
        by_offset = {header.base_offset: header for header, _ in world.log.batches(0, 1000)}
        assert by_offset[3].delete_horizon_ms is not None
        assert by_offset[1].delete_horizon_ms is None
        assert [entry for s in world.log.segments for entry in s.txn_index.entries()] == []
        world.pass_time(2 * MINUTE_MS)
        world.put((b"c", b"2"))
        world.roll()
        world.clean()
        assert [base for base, _, _ in headers(world)] == [0, 1, 4, 5, 6, 8]

    def test_nothing_is_cleaned_from_an_open_one_on(self) -> None:
        world = CleanWorld()
        world.put_each([(b"a", b"1"), (b"a", b"2")])
        world.roll()
        world.put((b"a", b"3"), producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
        world.roll()
        world.put((b"a", b"4"))
        world.roll()
        world.clean()
        assert [offset for offset, _, _ in world.pairs()] == [1, 2, 3]
        world.end_transaction(7, commit=True)
        world.roll()
        world.clean()
        assert [offset for offset, key, _ in world.pairs() if key == b"a"] == [3]

    def test_a_value_is_not_superseded_by_an_aborted_one(self) -> None:
        world = CleanWorld()
        world.put((b"a", b"good"))
        world.put((b"a", b"bad"), producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
        world.end_transaction(7, commit=False)
        world.roll()
        world.clean()
        assert world.table() == {b"a": b"good"}


class TestWhatIsCleaned:
    def test_not_what_is_not_replicated(self) -> None:
        world = CleanWorld()
        world.put_each([(b"a", b"1"), (b"a", b"2")])
        world.roll()
        world.put_each([(b"a", b"3"), (b"a", b"4")])
        world.roll()
        world.high_watermark = 3
        world.clean()
        assert [offset for offset, _, _ in world.pairs()] == [1, 2, 3]

    def test_not_what_is_young(self) -> None:
        world = CleanWorld(replace(EAGER, min_compaction_lag_ms=MINUTE_MS))
        world.put_each([(b"a", b"1"), (b"a", b"2")])
        world.roll()
        world.clean()
        assert len(world.pairs()) == 2
        world.pass_time(MINUTE_MS)
        assert [value for _, _, value in world.pairs()] == [b"2"]

    def test_only_a_dirty_log(self) -> None:
        world = CleanWorld(replace(EAGER, segment_bytes=4000))
        world.put_each((b"key-%d" % i, b"v") for i in range(20))
        world.roll()
        assert world.clean() == 1
        world.configure(min_cleanable_dirty_ratio=0.5)
        world.put_each((b"key-%d" % i, b"v") for i in range(10))
        world.roll()
        assert world.clean() == 0
        world.put_each((b"key-%d" % i, b"v") for i in range(20))
        world.roll()
        assert world.clean() == 1

    def test_also_a_clean_log_when_a_record_waited_too_long(self) -> None:
        world = CleanWorld(replace(EAGER, segment_bytes=4000))
        world.put_each((b"key-%d" % i, b"v") for i in range(20))
        world.roll()
        world.clean()
        world.configure(min_cleanable_dirty_ratio=0.9, max_compaction_lag_ms=10 * MINUTE_MS)
        world.put((b"key-1", b"w"))
        world.roll()
        assert world.clean() == 0
        world.pass_time(9 * MINUTE_MS)
        assert world.cleaner.passes == 1
        world.pass_time(2 * MINUTE_MS)
        assert world.cleaner.passes == 2

    def test_a_segment_is_full_when_its_records_must_be_compacted(self) -> None:
        world = CleanWorld(replace(EAGER, max_compaction_lag_ms=MINUTE_MS))
        world.put((b"a", b"1"))
        world.pass_time(MINUTE_MS + 1)
        world.put((b"a", b"2"))
        assert len(world.log.segments) == 2

    def test_the_dirtiest_first(self) -> None:
        world = CleanWorld(log_cleaner_io_max_bytes_per_second="100")
        other = CleanWorld(disk=world.host.disk)  # another directory entry is not needed: only the choice is checked
        other.cleaner.stop()
        world.put_each((b"key-%d" % i, b"v") for i in range(6))
        world.roll()
        world.cleaner.state.put("/logs", PARTITION, 3)
        assert filthiest(world.cleaner) is not None
        world.logs[TopicPartition("dirtier", 0)] = other.log
        other.put((b"a", b"1"))
        other.roll()
        found = filthiest(world.cleaner)
        assert found is not None
        assert found[0] is other.log
        assert found[1].ratio == 1.0

    def test_nothing_when_switched_off(self) -> None:
        world = CleanWorld(log_cleaner_enable="false")
        world.put_each([(b"a", b"1"), (b"a", b"2")])
        world.roll()
        assert world.clean() == 0

    def test_all_again_when_the_checkpoint_is_beyond_the_log(self) -> None:
        world = CleanWorld()
        world.put_each([(b"a", b"1"), (b"a", b"2")])
        world.roll()
        world.cleaner.state.put("/logs", PARTITION, 77)
        world.clean()
        assert [offset for offset, _, _ in world.pairs()] == [1]


class TestSegments:
    def test_neighbours_become_one(self) -> None:
        world = CleanWorld()
        world.put_each((b"key-%d" % (i % 4), b"some value") for i in range(40))
        world.roll()
        before = list(world.log.segments.bases)
        assert len(before) > 5
        world.put((b"x", b"1"))
        world.roll()
        world.configure(segment_bytes=10_000)
        world.clean()
        assert world.log.segments.bases == [0, 41]
        assert sorted(world.files(".log")) == ["00000000000000000000.log", "00000000000000000041.log"]
        assert [name[:20] for name in sorted(world.files(".snapshot"))] == ["00000000000000000041"]
        assert world.restart().log_end_offset == 41
        assert world.pairs()[-1] == (40, b"x", b"1")

    def test_they_are_found_by_offset_and_time(self) -> None:
        world = CleanWorld(replace(EAGER, segment_bytes=2000))
        start_ms = world.wall_ms
        for i in range(60):
            world.put((b"key-%d" % (i % 20), b"v%d" % i), timestamp=start_ms + i)
        world.roll()
        world.clean()
        for offset in range(60):
            read = world.log.read(offset, 1, up_to=60)
            assert decode_batch(read.data)[0].offset == max(offset, 40)
        for i in range(60):
            found = world.log.offset_for_timestamp(start_ms + i)
            assert found is not None
            assert found[:2] == (start_ms + max(i, 40), max(i, 40))

    def test_empty_ones_do_not_hold_up_retention(self) -> None:
        world = CleanWorld(replace(EAGER, cleanup_policy=("compact", "delete"), retention_ms=10 * MINUTE_MS))
        world.put_each([(b"a", b"1" * 200), (b"a", b"2" * 200), (b"a", b"3" * 200)])
        world.roll()
        world.clean()
        assert [segment.size_bytes == 0 for segment in world.log.segments][:2] == [True, True]
        world.pass_time(11 * MINUTE_MS)
        assert world.log.delete_old_segments(world.wall_ms, high_watermark=world.log.log_end_offset) == 3
        assert world.log.log_start_offset == 3


def test_what_does_not_fit_into_memory_takes_several_passes() -> None:
    world = CleanWorld(replace(EAGER, segment_bytes=100_000))
    count = 30_000
    for start in range(0, count, 500):
        world.put(*((b"key-%d" % (i % (count // 2)), b"v%d" % i) for i in range(start, start + 500)))
    world.roll()
    world.properties["log_cleaner_dedupe_buffer_size"] = str(1 << 20)
    world.start()
    world.pass_time(20_000)
    assert world.cleaner.passes > 1
    assert [offset for offset, _, _ in world.pairs()] == list(range(count // 2, count))


def test_the_map_counts_its_memory() -> None:
    offsets = OffsetMap(10_000)
    for i in range(1000):
        offsets.add([map_key(b"x" * i)], [i])
        if offsets.is_full:
            break
    assert 40 < i < 80
    long = b"y" * 1000
    assert len(map_key(long)) == 65
    assert map_key(long) != map_key(long + b"y")


class TestInterruptions:
    def _dirty(self, **properties: str) -> CleanWorld:
        world = CleanWorld(log_cleaner_io_max_bytes_per_second="1000", **properties)  # type: ignore[arg-type]
        world.put_each((b"key-%d" % (i % 4), b"some value") for i in range(40))
        world.roll()
        # The first group is being written: the throttle makes it wait between its slices.
        while not leftovers(world.disk, world.directory):
            world.pass_time(100)
        return world

    def test_a_truncation_ends_the_pass(self) -> None:
        world = self._dirty()
        world.log.truncate_to(3)
        world.put((b"key-0", b"after"))
        world.configure(min_cleanable_dirty_ratio=1.0)
        world.pass_time(MINUTE_MS)
        assert leftovers(world.disk, world.directory) == []
        assert [offset for offset, _, _ in world.pairs()] == [0, 1, 2, 3]
        assert world.failed == []

    def test_what_was_cleaned_is_dirty_again_after_a_truncation(self) -> None:
        world = CleanWorld()
        world.put_each((b"key-%d" % (i % 4), b"some value") for i in range(40))
        world.roll()
        world.clean()
        world.log.truncate_to(38)
        world.pass_time(1)
        assert read_offsets(world.disk, "/logs/cleaner-offset-checkpoint") == {PARTITION: 38}

    def test_retention_ends_the_pass(self) -> None:
        world = self._dirty()
        world.log.delete_records_before(world.log.segments.bases[2])
        kept = world.pairs()
        world.configure(min_cleanable_dirty_ratio=1.0)
        world.pass_time(MINUTE_MS)
        assert leftovers(world.disk, world.directory) == []
        assert world.pairs() == kept
        assert world.failed == []

    def test_a_deletion_ends_the_pass(self) -> None:
        world = self._dirty()
        world.logs.clear()
        world.cleaner.forget(world.log)
        world.disk.rename(world.directory, "/logs/gone")
        world.log.renamed("/logs/gone")
        world.pass_time(MINUTE_MS)
        assert leftovers(world.disk, "/logs/gone") == []
        assert world.failed == []
        assert world.cleaner.choice.uncleanable == set()

    def test_a_stop_ends_the_pass(self) -> None:
        world = self._dirty()
        world.cleaner.stop()
        world.pass_time(MINUTE_MS)
        assert leftovers(world.disk, world.directory) == []
        assert world.cleaner.passes == 0

    def test_appends_and_a_roll_do_not_disturb_it(self) -> None:
        world = self._dirty()
        world.put_each((b"key-%d" % (i % 4), b"later") for i in range(20))
        world.pass_time(10 * MINUTE_MS)
        assert world.table() == {b"key-%d" % i: b"later" for i in range(4)}
        assert world.cleaner.passes >= 1

    def test_no_more_is_read_and_written_than_allowed(self) -> None:
        world = self._dirty()
        began_ms, began_bytes = world.wall_ms, world.cleaner.io_bytes
        while not world.cleaner.passes:
            world.pass_time(10)
        elapsed_ms = world.wall_ms - began_ms
        assert (world.cleaner.io_bytes - began_bytes) / elapsed_ms == pytest.approx(1.0, rel=0.2)


class FailingDisk(MemoryDisk):
    """Appends to compacted segments fail with `error`."""

    error: OSError | None = None

    def write(self, path: str, data: Buffer, *, sync: bool = False) -> None:
        if self.error is not None and path.endswith(".cleaned"):
            raise self.error
        super().write(path, data, sync=sync)


class TestFaults:
    def test_a_batch_with_a_wrong_checksum_stays_and_its_neighbours_are_compacted(self) -> None:
        world = CleanWorld()
        world.put_each((b"key-%d" % (i % 4), b"some value") for i in range(20))
        world.roll()
        path = world.path("00000000000000000000.log")
        rotten = bytearray(world.disk.read(path)[83:166])
        rotten[17] = 0xFF
        world.disk.open(path).write_at(100, b"\xff")
        assert world.clean() == 1
        assert world.cleaner.choice.uncleanable == set()
        assert world.cleaner.unreadable.counts == {PARTITION: 1}
        ((text, _),) = world.host.faults.reported
        assert "offset 1 in" in text
        assert [first for first, _, _ in headers(world)] == [1, 16, 17, 18, 19]
        assert world.disk.read(path) == rotten
        world.put((b"key-0", b"newer"))
        world.roll()
        assert world.clean() == 1
        assert len(world.host.faults.reported) == 1, "it is told once"

    def test_a_batch_with_lying_insides_stays_as_it_is(self) -> None:
        """Finding 8: taken before it was refused at produce, or by Apache Kafka."""
        world = CleanWorld()
        world.put_each((b"key-%d" % (i % 4), b"some value") for i in range(8))
        lying = lying_batch(world.log.log_end_offset)
        world.log.append_as_follower(lying)
        world.put_each((b"key-%d" % (i % 4), b"later") for i in range(8))
        world.roll()
        assert world.clean() == 1
        assert world.cleaner.choice.uncleanable == set()
        assert [text for text, _ in world.host.faults.reported if "offset 8 in" in text]
        assert [(first, last) for first, last, _ in headers(world)] == [(8, 12), *((at, at) for at in range(17, 21))]
        assert bytes(next(data for header, data in world.log.batches(0, 5000) if header.base_offset == 8)) == lying

    def test_a_size_that_leads_nowhere(self) -> None:
        world = CleanWorld()
        world.put_each((b"key-%d" % (i % 4), b"some value") for i in range(20))
        world.roll()
        for size in (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x00\x00\x00\x00"):
            world.disk.open(world.path("00000000000000000000.log")).write_at(8, size)
            world.cleaner.choice.uncleanable.clear()
            assert world.clean() == 0
            assert world.cleaner.choice.uncleanable == {PARTITION}

    def test_no_room_is_no_reason_to_give_up_the_directory(self) -> None:
        disk = FailingDisk()
        world = CleanWorld(disk=disk)
        world.put_each((b"key-%d" % (i % 4), b"some value") for i in range(20))
        world.roll()
        disk.error = OSError(errno.ENOSPC, "no space left on device")
        assert world.clean() == 0
        assert world.failed == []
        disk.error = None
        assert world.clean() == 1
        assert len(world.pairs()) == 4

    def test_a_failing_disk_is_reported_with_its_directory(self) -> None:
        disk = FailingDisk()
        world = CleanWorld(disk=disk)
        world.put_each((b"key-%d" % (i % 4), b"some value") for i in range(20))
        world.roll()
        disk.error = OSError(errno.EIO, "input/output error")
        assert world.clean() == 0
        assert [root for root, _ in world.failed][:1] == ["/logs"]


@pytest.mark.parametrize("name", ["v0-none", "v0-gzip", "v1-none", "v1-lz4", "v1-snappy", "append"])
def test_old_formats_come_out_as_the_new_one(name: str) -> None:
    """Recorded logs of magic 0 and 1; the last of each key stays, with its time."""
    directory = f"old-formats-3.9.1-zookeeper/old-{name}-0"
    data = golden.files()[f"{directory}/00000000000000000000.log"]
    world = CleanWorld(replace(EAGER, segment_bytes=1 << 20))
    world.log.close(clean=True)
    world.disk.write(world.path("00000000000000000000.log"), data)
    world.open(clean=False)
    world.start()
    before = world.records()
    assert before
    assert read_header(data).magic < 2
    world.roll()
    world.put((b"unrelated", b"1"))
    assert world.clean() == 1
    last = {record.key: record for record in before if record.key is not None}
    expected = sorted(last.values(), key=lambda record: record.offset)
    after = world.records()[:-1]
    assert after == [Record(r.offset, r.timestamp, r.key, r.value) for r in expected]
    assert all(header.magic == 2 for header, _ in world.log.batches(0, 5000))


def test_a_batch_that_lost_nothing_keeps_its_bytes() -> None:
    world = CleanWorld()
    batch = encode_batch([Record(0, world.wall_ms, b"a", b"1", [("h", None)])])
    world.append_batch(batch)
    world.roll()
    before = bytes(world.log.read(0, 1000, up_to=1).data)
    world.clean()
    assert bytes(world.log.read(0, 1000, up_to=1).data) == before
