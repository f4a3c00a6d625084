"""Rescan of the part of a log that could differ from what was written, batch by batch, after an unclean shutdown.

    base offset ........ recovery point ........ end of the file
        was synced: its size and      scanned: size, CRC-32C, offsets; cut at the
        indexes are trusted if        first batch that is not intact; indexes, epochs
        they are consistent           and producer state are built from the rest

Only the segment with the recovery point has a part of the first kind. Its indexes can be synced less far: what the disk
lost of them is missing at their end, or is zeros, which break the ascending order. Then the whole segment is scanned,
as Apache Kafka always does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from operator import lt
from typing import NamedTuple

from barnabas.common.errors import RecordsRejected
from barnabas.common.host import Disk, File
from barnabas.records.batch import BatchHeader, has_valid_crc, read_header
from barnabas.records.checksum import crc32c
from barnabas.records.header import ATTRIBUTES_OFFSET, HEADER_BYTES, LEGACY_MIN_BYTES, LOG_OVERHEAD, MAGIC_V2
from barnabas.storage.checkpoints import EpochEntry
from barnabas.storage.recovery.index_check import do_last_entries_fit
from barnabas.storage.recovery.lost_offsets import Hole
from barnabas.storage.segment import RollLimits, Segment

_RELATIVE_OFFSET_MAX = 0x7FFFFFFF
_SCAN_BYTES = 1024 * 1024

#: Receives each intact batch of a producer: header and bytes.
OnProducer = Callable[[BatchHeader, memoryview], None]
#: Receives each intact batch; False if it cannot follow the ones before it.
Follows = Callable[[BatchHeader, memoryview], bool]


class ScanStart(NamedTuple):
    """The position and the offset where a scan begins."""

    position: int
    offset: int


def synced_part(segment: Segment, recovery_point: int) -> ScanStart:
    """Returns the end of the part of a segment that is known to be on disk; the beginning of the segment if nothing is
    known.
    """
    beginning = ScanStart(0, segment.base_offset)
    if recovery_point <= segment.base_offset:
        return beginning
    segment.open_clean()
    if not _rise(segment) or not do_last_entries_fit(segment):
        return beginning
    entry_offset, entry_position = segment.index.lookup(recovery_point - 1)
    offset = segment.base_offset
    try:
        for position, header in segment.headers(entry_position):
            if not offset <= header.base_offset <= header.last_offset:
                return beginning
            if position == entry_position > 0 and not header.base_offset <= entry_offset <= header.last_offset:
                return beginning
            if header.next_offset > recovery_point:
                return ScanStart(position, header.base_offset if position == entry_position > 0 else offset)
            offset, end = header.next_offset, position + header.size_bytes
            if offset == recovery_point:
                return ScanStart(end, offset) if end <= segment.size_bytes else beginning
    except RecordsRejected:
        pass
    return beginning  # synced data is missing or differs


def _rise(segment: Segment) -> bool:
    """Returns whether the entries of both indexes of a segment ascend, as they do in every valid index."""
    offsets, positions = segment.index.columns()
    timestamps, time_offsets = segment.time_index.columns()
    return all(
        all(map(lt, column, islice(column, 1, None))) for column in (offsets, positions, timestamps, time_offsets)
    )


class Scanned(NamedTuple):
    """The leader epochs of scanned batches, which ascend, and the offsets that are missing between the batches."""

    epochs: list[EpochRun]
    gaps: list[Hole]


class EpochRun(NamedTuple):
    """Consecutive batches of one leader epoch, and the offsets that they cover."""

    epoch: int
    first_offset: int
    last_offset: int


def scan(
    segment: Segment,
    limits: RollLimits,
    start: ScanStart,
    on_producer: OnProducer,
    *,
    begun: bool = False,
    follows: Follows | None = None,
) -> Scanned:
    """Records all intact batches of a segment from `start` up to the first that does not follow the one before it.
    `begun`: the caller has just recorded the batches before `start`.
    """
    if not begun:
        segment.begin_rebuild(start.position, start.offset)
    epochs: list[EpochRun] = []
    gaps: list[Hole] = []
    latest_epoch, next_offset = -1, start.offset
    for header, batch in _intact_batches(segment.file, start):
        if header.last_offset - segment.base_offset > _RELATIVE_OFFSET_MAX:
            break  # base offsets are outside the checksums; no segment reaches this far
        if follows is not None and not follows(header, batch):
            break
        if header.base_offset > next_offset:
            gaps.append(Hole(next_offset, header.base_offset))
        next_offset = header.next_offset
        if header.partition_leader_epoch > latest_epoch:
            latest_epoch = header.partition_leader_epoch
            epochs.append(EpochRun(latest_epoch, header.base_offset, header.last_offset))
        elif header.partition_leader_epoch == latest_epoch >= 0:
            epochs[-1] = EpochRun(latest_epoch, epochs[-1].first_offset, header.last_offset)
        if header.producer_id >= 0:
            on_producer(header, batch)
        segment.note(len(batch), header.base_offset + header.last_offset_delta, header.max_timestamp, limits)
    return Scanned(epochs, gaps)


def starts_of(runs: list[EpochRun]) -> list[EpochEntry]:
    """Returns where each epoch begins."""
    return [EpochEntry(run.epoch, run.first_offset) for run in runs]


def uncontradicted(saved: list[EpochEntry], found: list[EpochRun]) -> list[EpochEntry]:
    """Returns the epochs of the file that no batch contradicts. Compaction leaves epochs without any batch, or without
    their first one: only the file has these."""
    return [
        entry
        for entry in saved
        if not any(run.last_offset >= entry.start_offset and run.epoch < entry.epoch for run in found)
        and not any(run.first_offset < entry.start_offset and run.epoch >= entry.epoch for run in found)
    ]


def end_of_batches(disk: Disk, path: str, base_offset: int) -> int:
    """Returns the offset after the last complete batch of this file. Checksums are not verified: the file was
    synced."""
    file = disk.open(path, read_only=True)
    try:
        position, end_offset, size = 0, base_offset, file.size()
        while size - position >= LOG_OVERHEAD:
            whole = LOG_OVERHEAD + int.from_bytes(file.read_at(position, LOG_OVERHEAD)[8:], "big", signed=True)
            if not LEGACY_MIN_BYTES <= whole <= size - position:
                break
            header = read_header(file.read_at(position, whole if whole < HEADER_BYTES else HEADER_BYTES))
            if header.base_offset < end_offset or header.last_offset_delta < 0:
                break
            end_offset = header.next_offset
            position += whole
        return end_offset
    except RecordsRejected:
        return end_offset
    finally:
        file.close()


def _intact_batches(file: File, start: ScanStart) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yields the intact batches of a file up to the first that is not intact."""
    end = file.size()
    position, next_offset = start
    at, buffer = position, memoryview(b"")
    while end - position >= LOG_OVERHEAD:
        inside = position - at
        header = _intact_header(buffer, inside, next_offset)
        if header is None:
            size = LOG_OVERHEAD + int.from_bytes(file.read_at(position, LOG_OVERHEAD)[8:], "big", signed=True)
            if size > end - position or (inside == 0 and len(buffer) >= size):
                return
            at, inside = position, 0
            buffer = memoryview(file.read_at(position, max(size, _SCAN_BYTES)))
            header = _intact_header(buffer, 0, next_offset)
            if header is None:
                return
        size = header.batch_length + LOG_OVERHEAD
        yield header, buffer[inside : inside + size]
        next_offset = header.base_offset + header.last_offset_delta + 1
        position += size


def _intact_header(buffer: memoryview, inside: int, next_offset: int) -> BatchHeader | None:
    """Returns the header of the batch if it is complete, its checksum is valid and its offsets follow."""
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
