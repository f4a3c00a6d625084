"""A log manager whose files are damaged between a stop and the next start."""

from __future__ import annotations

from collections.abc import Callable

from tests.support.clean_world import broker_config
from tests.support.damage import Files, disk_of, files_in
from tests.support.log_ends import end_of

from barnabas.common.errors import RequestFailed
from barnabas.common.log_config import LogConfig
from barnabas.common.types import TopicPartition
from barnabas.records.batch import Record, decode_batch, encode_batch, read_header
from barnabas.simulation.host import MemoryHost
from barnabas.storage.checkpoints import HIGH_WATERMARK_CHECKPOINT, write_offsets
from barnabas.storage.log import Log
from barnabas.storage.log_manager import LogManager

ROOT = "/data"
TOPIC_ID = bytes(range(16))
DAMAGED, SOUND = TopicPartition("orders", 0), TopicPartition("payments", 0)
CONFIG = LogConfig(segment_bytes=900, index_interval_bytes=150, retention_ms=-1)
NOW_MS = 1_700_000_000_000


def started(files: Files | None = None, *, unsynced_left: int = -1, **keys: str) -> tuple[LogManager, MemoryHost]:
    """Returns a manager on these files. Every record of a log counts as committed. `unsynced_left` replaces the number
    of bytes that can stay unsynced because a sync is not worthwhile.
    """
    host = MemoryHost(disk=disk_of(files or {}))
    manager = LogManager(host, broker_config(log_dirs=ROOT, **keys))
    if unsynced_left >= 0:
        manager.recovery_points.left_bytes = unsynced_left
    manager.start(high_watermark_of=end_of(manager))
    return manager, host


def write(log: Log, count: int, *, epoch: int = 0) -> None:
    """Appends batches of one record each."""
    for _ in range(count):
        value = b"record %d" % log.log_end_offset
        batch = encode_batch([Record(0, NOW_MS + log.log_end_offset, b"k", value, [])])
        log.append_as_leader(memoryview(batch), epoch, wall_ms=NOW_MS)


def worked(count: int = 40, *, epochs: int = 2) -> tuple[LogManager, MemoryHost]:
    """Returns two partitions with `count` records each, in several segments."""
    manager, host = started()
    for topic_partition in (DAMAGED, SOUND):
        log = manager.get_or_create(topic_partition, TOPIC_ID, CONFIG)
        for epoch in range(epochs):
            write(log, count // epochs, epoch=epoch)
    return manager, host


def stopped(count: int = 40) -> Files:
    """Returns the files that a clean shutdown leaves."""
    manager, host = worked(count)
    manager.shutdown(7)
    return files_in(host.disk, ROOT)


def killed(count: int = 40) -> Files:
    """Returns the files that a kill leaves when all but the last four records were synced and the checkpoints record
    that.
    """
    manager, host = worked(count - 4)
    for log in manager:
        log.flush()
    manager._upkeep.write_checkpoints()
    for log in manager:
        write(log, 4, epoch=1)
    high_watermarks = {log.topic_partition: log.log_end_offset for log in manager}
    write_offsets(host.disk, f"{ROOT}/{HIGH_WATERMARK_CHECKPOINT}", high_watermarks)
    return files_in(host.disk, ROOT)


def logs_of(files: Files, topic_partition: TopicPartition = DAMAGED) -> list[str]:
    """Returns the `.log` files of a partition."""
    return sorted(path for path in files if path.startswith(f"{ROOT}/{topic_partition}/") and path.endswith(".log"))


def taken_up(manager: LogManager, topic_partition: TopicPartition = DAMAGED) -> Log:
    """Returns the log as the only replica's leader opens it: damage is repaired."""
    log = manager.get_or_create(topic_partition, TOPIC_ID, CONFIG)
    if log.losses.suspected:
        manager.damaged.mark_damaged(log)
    return manager.damaged.accept_losses(topic_partition) if log.losses.damage is not None else log


def readable(log: Log) -> dict[int, bytes]:
    """Returns every record that a consumer gets if it continues after lost ranges. Raises RecordsRejected where it
    would make no progress.
    """
    found: dict[int, bytes] = {}
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        try:
            data = log.read(offset, 1, up_to=log.log_end_offset).data
        except RequestFailed:
            offset = log.skip_hole(offset)
            continue
        if not data:
            break
        for record in decode_batch(data):
            found[record.offset] = record.value or b""
        offset = read_header(memoryview(data)).next_offset
    return found


def lost(log: Log) -> set[int]:
    """Returns the offsets that are answered with CORRUPT_MESSAGE."""
    return {offset for hole in log.holes for offset in range(hole.start, hole.end)}


def without_files(files: Files, unwanted: Callable[[str], bool]) -> Files:
    return {path: data for path, data in files.items() if not unwanted(path)}
