"""Opening a log: what is trusted, what is scanned, what is cut. A table: each row was once somebody's lost data.

    what is found                                what is done
    @A  `.deleted`, `.cleaned`                   removed: what they held is elsewhere or nowhere
    @B  an index without its `.log`              removed
    @C  clean stop                               sizes and indexes trusted; LEO from the last index entry on
    @D  clean stop, an index file is missing     that segment scanned, its indexes built anew
    @E  unclean stop, below the recovery point   as @C: it was flushed before
    @F  unclean stop, above the recovery point   scanned batch by batch (size, CRC-32C, offsets); the tail is cut at the
                                                 first that is not intact, and all segments behind it are removed
    @G  log start offset above the LEO           the log begins anew there, empty
    @H  leader epochs beyond the LEO             cut with it; those of scanned batches that are missing are put back

Indexes hold only what the `.log` says, so they are rebuilt and never believed against it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from crc32c import crc32c

from barnabas.common.errors import RecordsRejected
from barnabas.common.host import Disk
from barnabas.common.log_config import LogConfig
from barnabas.common.types import ZERO_UUID, TopicPartition
from barnabas.records.batch import BatchHeader, has_valid_crc, read_header
from barnabas.records.header import HEADER_BYTES, LOG_OVERHEAD, MAGIC_V2
from barnabas.storage.checkpoints import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    PARTITION_METADATA,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    CheckpointError,
    decode_partition_metadata,
    encode_partition_metadata,
    file_name,
    offset_of,
    write_atomically,
)
from barnabas.storage.epochs import LeaderEpochCache
from barnabas.storage.log import Log
from barnabas.storage.producers import ProducerStateManager
from barnabas.storage.segment import Descriptors, Segment

_SCAN_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Opening:
    """What is known of a log before it is opened."""

    directory: str
    topic_partition: TopicPartition
    config: LogConfig
    #: None: take what `partition.metadata` says.
    topic_id: bytes | None = None
    clean: bool = False
    recovery_point: int = 0
    log_start_offset: int = 0
    producer_expiration_ms: int = 86_400_000


@dataclass(frozen=True, slots=True)
class LogServices:
    """What every log of a broker shares."""

    disk: Disk
    wall_ms: Callable[[], int]
    #: An integer below the bound, 0 for 0: spreads the rolling of segments.
    pick_jitter: Callable[[int], int]
    descriptors: Descriptors


def open_log(services: LogServices, opening: Opening) -> Log:
    """The log in this directory, made if it is not there. Raises OSError, CheckpointError."""
    disk, directory = services.disk, opening.directory
    if not disk.is_dir(directory):
        disk.make_dirs(directory)
    names = _without_leftovers(disk, directory)
    topic_id = _topic_id(disk, opening, names)
    wall_ms = services.wall_ms()
    segments = [
        Segment(disk, directory, offset, wall_ms, services.descriptors)
        for offset in sorted(offset_of(name) or 0 for name in names if name.endswith(LOG_SUFFIX))
    ]
    epochs = LeaderEpochCache(disk, directory)
    _load_epochs(epochs)
    _open_segments(segments, opening, epochs, names, disk)
    if not segments:
        segments = [Segment(disk, directory, opening.log_start_offset, wall_ms, services.descriptors)]
        segments[0].create()
    log_end_offset = _end_offset(segments[-1])
    log_start_offset = max(opening.log_start_offset, segments[0].base_offset)
    producers = ProducerStateManager(
        disk, directory, opening.topic_partition, expiration_ms=opening.producer_expiration_ms, names=names
    )
    log = Log(
        disk,
        directory,
        opening.topic_partition,
        topic_id,
        opening.config,
        segments,
        epochs,
        producers,
        log_start_offset=log_start_offset,
        log_end_offset=log_end_offset,
        recovery_point=log_end_offset if opening.clean else min(opening.recovery_point, log_end_offset),
        wall_ms=services.wall_ms,
        pick_jitter=services.pick_jitter,
        new_segment=lambda offset: Segment(disk, log.directory, offset, services.wall_ms(), services.descriptors),
    )
    if log_start_offset > log_end_offset:
        log.truncate_fully_and_start_at(log_start_offset)  # @G
        return log
    epochs.truncate_from_end(log_end_offset)  # @H
    epochs.truncate_from_start(log_start_offset)
    if producers.snapshots.latest is None and log_end_offset == log_start_offset:
        producers.map_end_offset = log_end_offset
    else:
        log.rebuild_producers()
    return log


def _without_leftovers(disk: Disk, directory: str) -> list[str]:
    """@A, @B; the names that remain."""
    names = list(disk.list_dir(directory))
    logs = {name[: -len(LOG_SUFFIX)] for name in names if name.endswith(LOG_SUFFIX)}
    kept = []
    for name in names:
        stem, _, suffix = name.partition(".")
        orphan = "." + suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX) and stem not in logs
        if orphan or name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX)):
            disk.remove(f"{directory}/{name}")
        else:
            kept.append(name)
    return kept


def _topic_id(disk: Disk, opening: Opening, names: list[str]) -> bytes:
    """From `partition.metadata`, or what the metadata says, which is then written there."""
    path = f"{opening.directory}/{PARTITION_METADATA}"
    if PARTITION_METADATA in names:
        return decode_partition_metadata(path, disk.read(path))
    if opening.topic_id is None:
        return ZERO_UUID
    write_atomically(disk, path, encode_partition_metadata(opening.topic_id))
    return opening.topic_id


def _load_epochs(epochs: LeaderEpochCache) -> None:
    try:
        epochs.load()
    except CheckpointError:
        # What a torn checkpoint knew is in the batches themselves, as far as they are scanned.
        epochs.clear()


def _open_segments(
    segments: list[Segment], opening: Opening, epochs: LeaderEpochCache, names: list[str], disk: Disk
) -> None:
    """Set each segment's size; drop those behind the first damage."""
    known = set(names)
    changed_epochs = False
    for place, segment in enumerate(segments):
        next_base = segments[place + 1].base_offset if place + 1 < len(segments) else None
        flushed = next_base is not None and next_base <= opening.recovery_point
        has_indexes = all(file_name(segment.base_offset, s) in known for s in (INDEX_SUFFIX, TIME_INDEX_SUFFIX))
        if (opening.clean or flushed) and has_indexes:
            segment.open_clean()  # @C, @E
            continue
        intact, seen_epochs = _scan(segment)  # @D, @F
        damaged = intact < disk.size(segment.path(LOG_SUFFIX))
        segment.recover(opening.config.index_interval_bytes, intact)
        for epoch, start_offset in seen_epochs:
            if epoch > epochs.latest_epoch:
                changed_epochs |= epochs.assign(epoch, start_offset, persist=False)
        if damaged and place + 1 < len(segments):
            for lost in segments[place + 1 :]:
                for path in lost.mark_deleted():
                    disk.remove(path)
            del segments[place + 1 :]
            break
    if changed_epochs:
        epochs.persist()


def _scan(segment: Segment) -> tuple[int, list[tuple[int, int]]]:
    """(bytes of the intact batches, (epoch, first offset) of each leader epoch in them)"""
    file = segment.file
    end = file.size()
    position = 0
    next_offset = segment.base_offset
    epochs: list[tuple[int, int]] = []
    start, buffer = 0, memoryview(b"")
    while end - position >= LOG_OVERHEAD:
        inside = position - start
        size = LOG_OVERHEAD + int.from_bytes(buffer[inside + 8 : inside + 12], "big")
        if len(buffer) - inside < LOG_OVERHEAD or len(buffer) - inside < size:
            start, inside = position, 0
            head = file.read_at(position, LOG_OVERHEAD)
            size = LOG_OVERHEAD + int.from_bytes(head[8:12], "big")
            if size > end - position:
                break
            buffer = memoryview(file.read_at(position, max(size, _SCAN_BYTES)))
        header = _intact_header(buffer, inside, next_offset)
        if header is None:
            break
        if header.partition_leader_epoch >= 0 and (not epochs or header.partition_leader_epoch > epochs[-1][0]):
            epochs.append((header.partition_leader_epoch, header.base_offset))
        next_offset = header.next_offset
        position += header.size_bytes
    return position, epochs


def _intact_header(buffer: memoryview, inside: int, next_offset: int) -> BatchHeader | None:
    """The header of the batch, if it is whole, its checksum is right and its offsets go on."""
    try:
        header = read_header(buffer, inside)
    except RecordsRejected:
        return None
    end = inside + header.size_bytes
    if end > len(buffer) or header.base_offset < next_offset or header.last_offset_delta < 0:
        return None
    if header.magic == MAGIC_V2:
        if header.size_bytes < HEADER_BYTES or crc32c(buffer[inside + 21 : end]) != header.crc:
            return None
        return header
    return header if has_valid_crc(buffer, inside, header) else None


def _end_offset(segment: Segment) -> int:
    """Where the log ends, from its last segment."""
    if segment.size_bytes == 0:
        return segment.base_offset
    end = segment.base_offset
    for _, header in segment.headers(segment.last_indexed_position()):
        end = header.next_offset
    return end
