"""Many batches in one call: the log is, byte for byte, that of the same batches appended one by one."""

from __future__ import annotations

from random import Random

import pytest
from tests.support.failing_disk import FailingDisk, Fault, Plan
from tests.support.log_world import TINY, LogWorld, encode_records, snapshot_of

from barnabas.common.errors import RecordsRejected, StorageExhausted, StorageFault
from barnabas.common.log_config import LogConfig
from barnabas.simulation.disk import MemoryDisk, MemoryFile


def batches(random: Random, count: int) -> list[bytes]:
    found = []
    offset, epoch, sequence = 0, 0, 0
    for _ in range(count):
        offset += random.choice((0, 0, 0, 3))
        epoch += random.random() < 0.1
        size = random.randint(1, 4)
        producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence} if random.random() < 0.3 else {}
        sequence += size if producer else 0
        timestamps = [random.randint(1_000, 500_000) for _ in range(size)]
        value = b"v" * random.randint(0, 60)
        batch = encode_records(*timestamps, value=value, base_offset=offset, leader_epoch=epoch, **producer)
        found.append(bytes(batch))
        offset += size
    return found


@pytest.mark.parametrize("config", [TINY, LogConfig(), LogConfig(segment_ms=100_000, flush_messages=5)])
def test_at_once_or_one_by_one_is_the_same(config: LogConfig) -> None:
    for seed in range(25):
        random = Random(seed)
        made = batches(random, 40)
        one_by_one, at_once = LogWorld(config), LogWorld(config)
        position = 0
        while position < len(made):
            count = random.randint(1, 15)
            at_once.log.append_as_follower(b"".join(made[position : position + count]))
            position += count
        for batch in made:
            one_by_one.log.append_as_follower(batch)
        for world in (one_by_one, at_once):
            world.log.close(clean=True)
        assert snapshot_of(at_once.disk, at_once.directory) == snapshot_of(one_by_one.disk, one_by_one.directory)
        assert at_once.log.log_end_offset == one_by_one.log.log_end_offset
        assert at_once.log.epochs.entries == one_by_one.log.epochs.entries


def test_what_follows_each_other_is_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    world = LogWorld(LogConfig())
    sizes: list[int] = []
    append = MemoryFile.append

    def counted(self: MemoryFile, data: bytes) -> None:
        sizes.append(len(data))
        append(self, data)

    monkeypatch.setattr(MemoryFile, "append", counted)
    world.log.append_as_follower(b"".join(bytes(encode_records(1, base_offset=offset)) for offset in range(100)))
    assert world.log.log_end_offset == 100
    assert len(sizes) == 2, "the first of a segment, and all others"


def test_whole_batches_before_a_broken_one_are_kept() -> None:
    world = LogWorld(LogConfig())
    made = [encode_records(1, base_offset=offset) for offset in range(10)]
    made[7][-1] ^= 1
    with pytest.raises(RecordsRejected):
        world.log.append_as_follower(b"".join(map(bytes, made)))
    assert world.offsets() == list(range(7))
    world.log.append_as_follower(b"".join(bytes(encode_records(1, base_offset=offset)) for offset in range(7, 12)))
    assert world.offsets() == list(range(12))


def test_without_room_for_all_what_fits_is_kept() -> None:
    disk = MemoryDisk()
    world = LogWorld(LogConfig(), disk=disk)
    world.log.append_as_follower(bytes(encode_records(1, base_offset=0)))
    more = [bytes(encode_records(1, base_offset=offset)) for offset in range(1, 6)]
    room, disk.free_bytes = disk.free_bytes, 2 * len(more[0]) + 5
    with pytest.raises(StorageExhausted):
        world.log.append_as_follower(b"".join(more))
    assert world.offsets() == [0, 1, 2]
    disk.free_bytes = room
    world.log.append_as_follower(b"".join(more[2:]))
    assert world.offsets() == list(range(6))


@pytest.mark.parametrize("first", range(6))
def test_a_disk_that_breaks_is_a_storage_fault_whatever_is_read_first(first: int) -> None:
    """Indexes that are not in memory after a clean restart are read by the first append."""
    disk = FailingDisk()
    world = LogWorld(LogConfig(), disk=disk)
    world.log.append_as_follower(b"".join(bytes(encode_records(1, base_offset=offset)) for offset in range(3)))
    world.restart()
    disk.begin(Plan(Fault.BROKEN, first=first))
    more = b"".join(bytes(encode_records(1, base_offset=offset)) for offset in range(3, 6))
    try:
        world.log.append_as_follower(more)
    except StorageFault:
        assert disk.failed
    else:
        assert not disk.failed


def test_records_are_synced_as_soon_as_there_are_as_many_as_flush_messages_says() -> None:
    world = LogWorld(LogConfig(flush_messages=6))
    made = [bytes(encode_records(1, base_offset=offset)) for offset in range(12)]
    world.log.append_as_follower(b"".join(made[:6]))
    assert world.log.recovery_point == 6
    world.log.append_as_follower(b"".join(made[6:11]))
    assert world.log.recovery_point == 6
    world.log.append_as_follower(made[11])
    assert world.log.recovery_point == 12
