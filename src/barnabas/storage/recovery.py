"""Opening a log: what is trusted, what is scanned, what is cut. A table: each row was once somebody's lost data.

    what is found                                what is done
    @A  `.deleted`, `.cleaned`                   removed: what they held is elsewhere or nowhere
    @S  `.swap`                                  compaction was done but for the renaming: finish it, and remove the
                                                 segments that it replaces; unless a `.cleaned` lies at or below it
    @B  an index without its `.log`              removed
    @C  clean stop                               sizes and indexes trusted; LEO from the last index entry on
    @D  clean stop, an index file is missing     that segment scanned, its indexes built anew
    @E  unclean stop, below the recovery point   as @C: it was synced before
    @F  unclean stop, above the recovery point   scanned batch by batch (size, CRC-32C, offsets); the tail is cut at the
                                                 first that is not intact, and all segments behind it are removed
    @G  log start offset above the LEO           the log begins anew there, empty
    @H  leader epochs beyond the LEO             cut with it; those of scanned batches that are missing are put back

Indexes hold only what the `.log` says, so they are rebuilt and never believed against it.
"""

from __future__ import annotations

from dataclasses import dataclass

from crc32c import crc32c

from barnabas.common.errors import RecordsRejected
from barnabas.common.host import Disk
from barnabas.common.log_config import LogConfig
from barnabas.common.types import ZERO_UUID, TopicPartition
from barnabas.records.batch import BatchHeader, has_valid_crc, read_header
from barnabas.records.header import ATTRIBUTES_OFFSET, LOG_OVERHEAD, MAGIC_V2
from barnabas.storage.checkpoints import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    PARTITION_METADATA,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
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
from barnabas.storage.log import Log, LogParts
from barnabas.storage.producers import DEFAULT_EXPIRATION_MS, ProducerStateManager
from barnabas.storage.replay import replay_producers
from barnabas.storage.segment import RollLimits, Segment
from barnabas.storage.segments import LogServices, Segments

__all__ = ["LogServices", "Opening", "open_log"]

_SCAN_BYTES = 1024 * 1024
_INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)


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
    producer_expiration_ms: int = DEFAULT_EXPIRATION_MS


def open_log(services: LogServices, opening: Opening) -> Log:
    """The log in this directory, made if it is not there. Raises OSError, CheckpointError."""
    disk, directory = services.disk, opening.directory
    if not disk.is_dir(directory):
        disk.make_dirs(directory)
    names = _without_leftovers(disk, directory)
    topic_id = _topic_id(disk, opening, names)
    bases = [offset for name in names if name.endswith(LOG_SUFFIX) and (offset := offset_of(name)) is not None]
    segments = Segments(services, directory, bases)
    epochs = LeaderEpochCache(disk, directory)
    _load_epochs(epochs)
    rebuilt_from = _open_segments(segments, opening, epochs, frozenset(names), disk)
    if not len(segments):
        segments.add(opening.log_start_offset)
    log_end_offset = segments.active.end_offset()
    log_start_offset = max(opening.log_start_offset, segments.bases[0])
    producers = ProducerStateManager(
        disk, directory, opening.topic_partition, expiration_ms=opening.producer_expiration_ms, names=names
    )
    log = Log(
        services,
        opening.topic_partition,
        topic_id,
        opening.config,
        LogParts(
            segments,
            epochs,
            producers,
            log_start_offset,
            log_end_offset,
            log_end_offset if opening.clean else min(opening.recovery_point, log_end_offset),
        ),
    )
    if log_start_offset > log_end_offset:
        log.truncate_fully_and_start_at(log_start_offset)  # @G
    else:
        epochs.truncate_from_end(log_end_offset)  # @H
        epochs.truncate_from_start(log_start_offset)
        producers.remove_stray_snapshots(segments.bases)
        replay_producers(
            producers, segments, log_start_offset, log_end_offset, services.wall_ms(), rebuilt_from=rebuilt_from
        )
    segments.release()
    return log


def _without_leftovers(disk: Disk, directory: str) -> list[str]:
    """@A, @S, @B; the names that remain."""
    names = set(disk.list_dir(directory))
    cleaned = [offset_of(name) or 0 for name in names if name.endswith(CLEANED_SUFFIX)]
    doomed = {name for name in names if name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX))}
    swaps = {name for name in names if name.endswith(SWAP_SUFFIX)}
    if cleaned:
        doomed |= {name for name in swaps if (offset_of(name) or 0) >= min(cleaned)}
    # `.swap` files first: without a `.cleaned` one beside them they would count.
    for name in sorted(doomed, key=lambda name: (not name.endswith(SWAP_SUFFIX), name)):
        disk.remove(f"{directory}/{name}")
    names -= doomed
    if swaps - doomed:
        names = _finish_swap(disk, directory, names, swaps - doomed)
    logs = {name[: -len(LOG_SUFFIX)] for name in names if name.endswith(LOG_SUFFIX)}
    for name in sorted(names):
        stem, _, suffix = name.partition(".")
        if "." + suffix in _INDEX_SUFFIXES and stem not in logs:
            disk.remove(f"{directory}/{name}")
            names.remove(name)
    return sorted(names)


def _finish_swap(disk: Disk, directory: str, names: set[str], swaps: set[str]) -> set[str]:
    """The compacted segments take the place of those whose offsets they span."""
    logs = sorted(name for name in swaps if name.endswith(LOG_SUFFIX + SWAP_SUFFIX))
    if logs:
        first = offset_of(logs[0]) or 0
        end = _end_of_batches(disk.read(f"{directory}/{logs[-1]}"), offset_of(logs[-1]) or 0)
        for name in sorted(names - swaps):
            offset = offset_of(name)
            if offset is not None and first <= offset < end and not name.endswith(SNAPSHOT_SUFFIX):
                disk.remove(f"{directory}/{name}")
                names.remove(name)
    for name in sorted(swaps):
        disk.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP_SUFFIX)}")
        names.remove(name)
        names.add(name.removesuffix(SWAP_SUFFIX))
    return names


def _end_of_batches(data: bytes, base_offset: int) -> int:
    """The offset behind the last intact batch."""
    view, position, end = memoryview(data), 0, base_offset
    while (header := _intact_header(view, position, end)) is not None:
        end = header.next_offset
        position += header.size_bytes
    return end


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
    segments: Segments, opening: Opening, epochs: LeaderEpochCache, names: frozenset[str], disk: Disk
) -> int | None:
    """Set each segment's size; drop those behind the first damage. The base offset of the first that was scanned
    because it may never have been synced."""
    rebuilt_from: int | None = None
    changed_epochs = False
    bases = segments.bases
    limits = RollLimits(opening.config, 0)
    for place, segment in enumerate(tuple(segments)):
        is_synced = place + 1 < len(bases) and bases[place + 1] <= opening.recovery_point
        if opening.clean or is_synced:
            if all(file_name(segment.base_offset, suffix) in names for suffix in _INDEX_SUFFIXES[:2]):
                segment.open_clean()  # @C, @E
                continue
        else:
            rebuilt_from = segment.base_offset if rebuilt_from is None else rebuilt_from
            segment.txn_index.clear()
        for epoch, start_offset in _scan(segment, limits):  # @D, @F
            if epoch > epochs.latest_epoch:
                changed_epochs |= epochs.assign(epoch, start_offset, persist=False)
        damaged = segment.size_bytes < segment.file.size()
        segment.end_rebuild()
        if damaged and place + 1 < len(bases):
            for path in segments.drop(list(segments)[place + 1 :]):
                disk.remove(path)
            break
    if changed_epochs:
        epochs.persist()
    return rebuilt_from


def _scan(segment: Segment, limits: RollLimits) -> list[tuple[int, int]]:
    """Note all intact batches in the segment. (epoch, first offset) of each leader epoch in them."""
    segment.begin_rebuild()
    file = segment.file
    end = file.size()
    position, next_offset = 0, segment.base_offset
    epochs: list[tuple[int, int]] = []
    latest_epoch = -1
    start, buffer = 0, memoryview(b"")
    while end - position >= LOG_OVERHEAD:
        inside = position - start
        header = _intact_header(buffer, inside, next_offset)
        if header is None:
            head = file.read_at(position, LOG_OVERHEAD)
            size = LOG_OVERHEAD + int.from_bytes(head[8:], "big", signed=True)
            if size > end - position or (inside == 0 and len(buffer) >= size):
                break
            start, buffer = position, memoryview(file.read_at(position, max(size, _SCAN_BYTES)))
            header = _intact_header(buffer, 0, next_offset)
            if header is None:
                break
        if header.partition_leader_epoch > latest_epoch:
            latest_epoch = header.partition_leader_epoch
            epochs.append((latest_epoch, header.base_offset))
        next_offset = header.next_offset
        position += header.size_bytes
        segment.note(header.size_bytes, next_offset - 1, header.max_timestamp, limits)
    return epochs


def _intact_header(buffer: memoryview, inside: int, next_offset: int) -> BatchHeader | None:
    """The header of the batch, if it is whole, its checksum is right and its offsets go on."""
    try:
        header = read_header(buffer, inside)
    except RecordsRejected:
        return None
    end = inside + header.batch_length + LOG_OVERHEAD
    if end > len(buffer) or header.base_offset < next_offset or header.last_offset_delta < 0:
        return None
    if header.magic == MAGIC_V2:
        return header if crc32c(buffer[inside + ATTRIBUTES_OFFSET : end]) == header.crc else None
    return header if has_valid_crc(buffer, inside, header) else None
