"""Reads in the background while the log changes: never the wrong bytes, never a closed file."""

from __future__ import annotations

import itertools
import random

import pytest
from tests.support.batches import NOW_MS
from tests.support.cold import always, at_times, make_cold
from tests.support.log_world import TINY, LogWorld

from barnabas.common.errors import ErrorCode, RequestFailed, StorageFault
from barnabas.records.batch import decode_batch, encode_batch, encode_end_txn_marker, iter_headers
from barnabas.records.record import Record
from barnabas.simulation.disk import MemoryDisk
from barnabas.storage.batch_file import NotCachedError
from barnabas.storage.cold_read import ColdRead
from barnabas.storage.log import Log, Origin
from barnabas.storage.log_reads import LogRead


@pytest.fixture
def world() -> LogWorld:
    world = LogWorld()
    for place in range(40):
        world.append(NOW_MS + place, NOW_MS + place, value=b"%d" % place)
    assert len(world.log.segments) > 3
    make_cold(disk_of(world))
    return world


def disk_of(world: LogWorld) -> MemoryDisk:
    assert isinstance(world.disk, MemoryDisk)
    return world.disk


def call(log: Log, offset: int, max_bytes: int = 300, **options: bool) -> LogRead | ColdRead:
    return log.read_cached(offset, max_bytes, up_to=log.log_end_offset, **options)


def cold(log: Log, offset: int) -> ColdRead:
    read = call(log, offset)
    assert isinstance(read, ColdRead)
    return read


def complete(log: Log, read: LogRead | ColdRead | None) -> LogRead:
    while isinstance(read, ColdRead):
        read.load()
        read = log.take(read)
    assert read is not None
    return read


def test_what_is_loaded_is_what_is_read(world: LogWorld) -> None:
    log = world.log
    for offset, max_bytes in itertools.product(range(log.log_end_offset + 1), (1, 100, 5000)):
        for up_to in (log.log_end_offset, 37, offset):
            expected = log.read(offset, max_bytes, up_to=up_to)
            found = complete(log, log.read_cached(offset, max_bytes, up_to=up_to))
            assert (found.data, found.position) == (expected.data, expected.position)
            log.segments.release()
    assert len(world.descriptors) == 0


def test_a_cold_read_leaves_the_index_for_the_next_one(world: LogWorld) -> None:
    log = world.log
    segment = log.segments[1]
    segment.release()
    complete(log, cold(log, segment.base_offset))
    assert segment.index.is_loaded
    assert len(segment.index) > 0


@pytest.mark.parametrize("loaded_first", [False, True])
def test_truncated_meanwhile_it_is_read_again(world: LogWorld, loaded_first: bool) -> None:
    log = world.log
    offset = log.segments.active.base_offset
    read = cold(log, offset)
    if loaded_first:
        read.load()
    log.truncate_to(offset)
    world.append(NOW_MS, value=b"another")
    if not loaded_first:
        read.load()
    assert log.take(read) is None
    assert b"another" in bytes(complete(log, call(log, offset)).data)


@pytest.mark.parametrize("loaded_first", [False, True])
def test_emptied_meanwhile_it_is_out_of_range(world: LogWorld, loaded_first: bool) -> None:
    log = world.log
    read = cold(log, 10)
    if loaded_first:
        read.load()
    log.truncate_fully_and_start_at(1000)
    if not loaded_first:
        read.load()
    assert log.take(read) is None
    with pytest.raises(RequestFailed) as failure:
        call(log, 10)
    assert failure.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("loaded_first", [False, True])
def test_deleted_meanwhile_it_is_out_of_range(world: LogWorld, loaded_first: bool) -> None:
    log = world.log
    read = cold(log, 0)
    if loaded_first:
        read.load()
    log.delete_records_before(log.segments[2].base_offset)
    if not loaded_first:
        read.load()
        assert isinstance(read.error, FileNotFoundError)
    assert log.take(read) is None
    assert not [name for name in world.files(".log") if name.startswith("0" * 20)], "nothing was made anew"


def test_records_deleted_within_a_segment_are_not_shown(world: LogWorld) -> None:
    log = world.log
    read = cold(log, 0)
    read.load()
    log.delete_records_before(2)
    with pytest.raises(RequestFailed) as failure:
        log.take(read)
    assert failure.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("loaded_first", [False, True])
def test_compacted_meanwhile_it_is_read_again(world: LogWorld, loaded_first: bool) -> None:
    log = world.log
    old = log.segments[1]
    read = cold(log, old.base_offset)
    if loaded_first:
        read.load()
    compacted = encode_batch([Record(0, NOW_MS, b"k", b"compacted", [])], base_offset=old.base_offset)
    old.release()
    world.disk.write(old.log_path, compacted)
    world.disk.remove(old.index.path)
    log.segments.replace([old])
    if not loaded_first:
        read.load()
    assert log.take(read) is None
    assert bytes(complete(log, call(log, old.base_offset)).data) == bytes(compacted)


def test_behind_the_last_batch_of_a_compacted_segment_the_next_one_is_read(world: LogWorld) -> None:
    log = world.log
    first, second = log.segments[0], log.segments[1]
    first.release()
    world.disk.write(first.log_path, encode_batch([Record(0, NOW_MS, b"k", b"left", [])]))
    world.disk.remove(first.index.path)
    log.segments.replace([first])
    found = complete(log, cold(log, 1))
    assert found.segment is second
    assert next(iter(iter_headers(memoryview(found.data))))[1].base_offset == second.base_offset


def test_appended_meanwhile_it_is_as_it_was(world: LogWorld) -> None:
    log = world.log
    active = log.segments.active
    active.release()
    read = cold(log, active.base_offset)
    expected = log.read(active.base_offset, 300, up_to=log.log_end_offset).data
    world.append(NOW_MS, value=b"later")
    read.load()
    world.append(NOW_MS, value=b"latest")
    assert complete(log, log.take(read)).data == expected
    while log.log_end_offset < 100:
        world.append(NOW_MS, value=b"on")
    world.restart()
    assert world.offsets() == list(range(100))


def test_a_renamed_directory_is_no_failed_disk(world: LogWorld) -> None:
    log = world.log
    read = cold(log, 0)
    world.disk.rename(log.directory, "/logs/elsewhere")
    log.renamed("/logs/elsewhere")
    read.load()
    assert log.take(read) is None
    assert complete(log, call(log, 0)).data


def test_a_disk_that_fails_is_a_storage_fault(world: LogWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    log = world.log
    read = cold(log, 0)

    def fail(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(disk_of(world), "open", fail)
    read.load()
    with pytest.raises(StorageFault):
        log.take(read)


def test_the_readers_see_the_same_whatever_the_cache_has() -> None:
    for seed in range(20):
        world = LogWorld()
        chance = random.Random(seed)
        disk_of(world).is_cold = at_times(seed)
        for place in range(30):
            world.append(*[NOW_MS + place] * chance.randrange(1, 4), value=b"%d" % place)
        log, offset, values = world.log, 0, []
        while offset < log.log_end_offset:
            if chance.randrange(4) == 0:
                log.segments.release()
            data = complete(log, call(log, offset, chance.randrange(1, 900))).data
            for position, header in iter_headers(memoryview(data)):
                records = decode_batch(memoryview(data)[position : position + header.size_bytes])
                values += [(record.offset, record.value) for record in records if record.offset >= offset]
                offset = header.next_offset
        assert values == [(record.offset, record.value) for record in world.records()]


# -- aborted transactions


def test_aborted_transactions_are_loaded_with_the_records() -> None:
    world = LogWorld()
    for producer_id in range(1, 12):
        data = encode_batch(
            [Record(0, NOW_MS, b"k", b"v" * 40, [])],
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        )
        world.append_batch(data)
        marker = encode_end_txn_marker(
            commit=producer_id % 3 == 0,
            coordinator_epoch=0,
            timestamp=NOW_MS,
            producer_id=producer_id,
            producer_epoch=0,
        )
        world.append_batch(marker, origin=Origin.COORDINATOR)
    log = world.log
    for offset in range(log.log_end_offset):
        disk_of(world).is_cold = None
        hot = call(log, offset, with_aborted=True)
        assert isinstance(hot, LogRead)
        assert hot.aborted == log.aborted_transactions(offset, hot)
        log.segments.release()
        disk_of(world).is_cold = always
        loaded = complete(log, call(log, offset, with_aborted=True))
        assert (loaded.data, loaded.aborted) == (hot.data, hot.aborted)
        log.segments.release()
    assert any(s.txn_index.entries() for s in log.segments)


# -- by time


def test_a_search_by_time_finds_what_the_log_finds(world: LogWorld) -> None:
    log = world.log
    for timestamp in (0, NOW_MS, NOW_MS + 7, NOW_MS + 39, NOW_MS + 40):
        world.restart()
        log = world.log
        search = log.search_time(timestamp)
        search.load()
        assert log.found(search) == log.offset_for_timestamp(timestamp)
    world.restart()
    search = world.log.search_time(None)
    search.load()
    assert world.log.found(search) == world.log.max_timestamp() == (NOW_MS + 39, 78, 0)
    assert world.log.search_time(NOW_MS + 40).is_plain(), "what a search learned is known"
    assert not world.log.search_time(NOW_MS + 39).is_plain()


@pytest.mark.parametrize("change", ["truncate", "delete", "empty"])
def test_a_search_by_time_counts_only_for_the_log_it_was_made_in(world: LogWorld, change: str) -> None:
    log = world.log
    search = log.search_time(NOW_MS)
    search.load()
    if change == "truncate":
        log.truncate_to(3)
    elif change == "empty":
        log.truncate_fully_and_start_at(5)
    else:
        log.delete_records_before(2)
    with pytest.raises(NotCachedError):
        log.found(search)


def test_an_empty_log_has_no_time() -> None:
    log = LogWorld(TINY).log
    for timestamp in (None, 0):
        search = log.search_time(timestamp)
        search.load()
        assert log.found(search) is None
