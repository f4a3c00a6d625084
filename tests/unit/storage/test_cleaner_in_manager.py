"""The cleaner among all the logs of a broker: what survives restarts, deletions and damaged checkpoints."""

from __future__ import annotations

from dataclasses import replace

from tests.support.clean_world import BACKOFF_MS, EAGER, broker_config
from tests.support.log_ends import end_of
from tests.support.log_world import encode_records

from barnabas.common.types import TopicPartition
from barnabas.simulation.host import EPOCH_WALL_MS, MemoryHost
from barnabas.storage.checkpoints import CLEANER_CHECKPOINT, read_offsets
from barnabas.storage.log import Log
from barnabas.storage.log_manager import LogManager

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
CHECKPOINT = f"/logs/{CLEANER_CHECKPOINT}"
CONFIG = replace(EAGER, message_timestamp_before_max_ms=1 << 50)


def start(host: MemoryHost) -> LogManager:
    manager = LogManager(host, broker_config(log_dirs="/logs"))
    manager.start(high_watermark_of=end_of(manager))
    return manager


def create(manager: LogManager, topic_partition: TopicPartition) -> Log:
    return manager.get_or_create(topic_partition, topic_partition.topic.encode() * 16, CONFIG)


def fill(host: MemoryHost, log: Log) -> None:
    for _ in range(20):
        log.append_as_leader(encode_records(EPOCH_WALL_MS), 0, wall_ms=host.clock.wall_ms())
    log.roll()


def test_what_is_clean_is_not_cleaned_again_after_a_restart() -> None:
    host = MemoryHost()
    manager = start(host)
    assert host.disk.read(CHECKPOINT) == b""
    fill(host, create(manager, A))
    host.time.run_for(3 * BACKOFF_MS)
    assert read_offsets(host.disk, CHECKPOINT) == {A: 20}
    manager.shutdown(1)
    manager = start(host)
    create(manager, A)
    host.time.run_for(3 * BACKOFF_MS)
    assert manager.cleaner.passes == 0


def test_a_deleted_topic_leaves_nothing_to_its_successor() -> None:
    host = MemoryHost()
    manager = start(host)
    for topic_partition in (A, B):
        fill(host, create(manager, topic_partition))
    host.time.run_for(3 * BACKOFF_MS)
    assert read_offsets(host.disk, CHECKPOINT) == {A: 20, B: 20}
    manager.delete(A)
    host.time.run_for(10)
    assert read_offsets(host.disk, CHECKPOINT) == {B: 20}
    log = create(manager, A)
    fill(host, log)
    passes = manager.cleaner.passes
    host.time.run_for(3 * BACKOFF_MS)
    assert manager.cleaner.passes == passes + 1
    assert [header.base_offset for header, _ in log.batches(0, 1000)] == [19]


def cut_after_cleaning() -> tuple[MemoryHost, LogManager]:
    """Returns a host whose log A ends at 18 and was clean up to 20, as its checkpoint still says."""
    host = MemoryHost()
    manager = start(host)
    fill(host, create(manager, A))
    host.time.run_for(3 * BACKOFF_MS)
    log = manager.get(A)
    assert log is not None
    log.truncate_to(18)
    return host, manager


def test_a_checkpoint_waits_for_no_timer_at_a_stop() -> None:
    host, manager = cut_after_cleaning()
    manager.shutdown(1)
    assert read_offsets(host.disk, CHECKPOINT) == {A: 18}


def test_records_after_a_truncation_are_not_clean_although_its_checkpoint_was_never_written() -> None:
    """The process is killed between a truncation and the checkpoint: without a correction at the start, the record at
    offset 19 would count as clean, and be kept although its key has a newer one.
    """
    host, manager = cut_after_cleaning()
    assert read_offsets(host.disk, CHECKPOINT) == {A: 20}
    host.disk.locked.clear()
    host = MemoryHost(disk=host.disk)
    manager = start(host)
    host.time.run_for(10)
    log = create(manager, A)
    assert read_offsets(host.disk, CHECKPOINT) == {A: log.log_end_offset}
    fill(host, log)
    host.time.run_for(3 * BACKOFF_MS)
    assert [header.base_offset for header, _ in log.batches(0, 1000)] == [log.log_end_offset - 1]


def test_a_damaged_checkpoint_is_found_out_again() -> None:
    host = MemoryHost()
    host.disk.make_dirs("/logs")
    host.disk.write(CHECKPOINT, b"0\nnonsense\n")
    manager = start(host)
    assert manager.offline_directories == set()
    assert [text for text, _ in host.faults.reported] == ["cannot read a cleaner checkpoint"]
    fill(host, create(manager, A))
    host.time.run_for(3 * BACKOFF_MS)
    assert read_offsets(host.disk, CHECKPOINT) == {A: 20}


def test_a_failed_directory_is_not_cleaned() -> None:
    host = MemoryHost()
    manager = start(host)
    fill(host, create(manager, A))
    manager.directory_failed("/logs", OSError("gone"))
    host.time.run_for(3 * BACKOFF_MS)
    assert manager.cleaner.passes == 0
