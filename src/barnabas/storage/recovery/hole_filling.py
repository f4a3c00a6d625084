"""Repair of a log that lost offsets (`Log.losses.damage`), once the state of the other replicas is known.

    truncate_at_loss    another replica leads: the log is truncated at the first lost offset and fetches the rest
    fill_holes          no other replica has the records: what is left stays readable, lost offsets are never assigned
                        again, and fetches of them fail with CORRUPT_MESSAGE

`fill_holes` fills each hole with an empty batch, as compaction leaves them, so that followers, Apache Kafka and the
next startup of this broker find consecutive offsets. Intact batches after a broken one are kept. Bytes that are removed
are kept in `repair-at-start/` in the partition's directory. The losses are recorded first, so that a stop at any moment
leaves a log that has them on record.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from barnabas.common.errors import RecordsRejected
from barnabas.common.host import Disk, File
from barnabas.records.batch import BatchHeader, has_valid_crc, read_header
from barnabas.records.header import (
    HEADER_BYTES,
    LOG_OVERHEAD,
    MAGIC_OFFSET,
    MAGIC_V2,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
)
from barnabas.storage.checkpoints import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, EpochEntry, file_name
from barnabas.storage.compaction.record_filter import empty_batch
from barnabas.storage.log import Log
from barnabas.storage.recovery.lost_offsets import Hole, KnownHoles, Losses, merge, write_lost
from barnabas.storage.repair_folder import RepairFolder

KEPT_AT_START: Final = "repair-at-start"
_MENDED_SUFFIX: Final = ".mended"
_SLICE_BYTES: Final = 1 << 20
_DELTA_MAX: Final = 0x7FFFFFFF
_MAGIC: Final = bytes([MAGIC_V2])


def truncate_at_loss(disk: Disk, log: Log) -> None:
    """Truncates the log at its first lost offset. Raises StorageFault, OSError."""
    damage = log.losses.damage
    lost = (*log.holes, *(() if damage is None else damage.holes))
    start = min(hole.start for hole in lost)
    log.recovery_point = min(start, log.log_end_offset)
    if start < log.segments.bases[0] or not log.segments.active.has_files:
        log.truncate_fully_and_start_at(start)
    else:
        log.truncate_to(start)
        active = log.segments.active
        if active.file.size() != active.size_bytes:
            active.file.truncate(active.size_bytes)
            active.file.sync()
        log.epochs.truncate_from_end(log.log_end_offset)
    log.signals.keeper.on_truncated(log)
    log.losses = Losses(log.holes)
    write_lost(disk, log.directory, KnownHoles((), log.holes))


def fill_holes(disk: Disk, log: Log) -> None:
    """Repairs the files so that the log has no gaps when it is opened again: each range of lost offsets is filled with
    an empty batch. Raises OSError.
    """
    damage = log.losses.damage
    assert damage is not None, "only a damaged log has holes"
    inner = {hole: _inner_end(log, hole) for hole in damage.holes}
    log.segments.release()
    write_lost(disk, log.directory, KnownHoles((), merge([*log.holes, *damage.holes])))
    epochs = log.epochs.entries
    bases = log.segments.bases
    lost: list[Hole] = []
    mended: set[str] = set()
    for hole in damage.holes:
        if not log.segments.active.has_files:
            file = disk.open(f"{log.directory}/{file_name(hole.start, LOG_SUFFIX)}", create=True)
            _append(file, filler(hole, epochs))
            lost.append(hole)
        elif hole.start >= bases[0]:
            segment = log.segments[log.segments.place_of(hole.start)]
            path, end = segment.log_path, inner[hole]
            if path in mended and end is not None:
                continue  # This hole is filled together with the one before it.
            whole_bytes = disk.size(path) if path in mended else segment.size_bytes if end is None else end
            lost += _fill(disk, path, whole_bytes, hole, epochs)
            mended.add(path)
        else:
            lost.append(hole)
    disk.sync_dir(log.directory)
    write_lost(disk, log.directory, KnownHoles((), merge([*log.holes, *lost])))


def _inner_end(log: Log, hole: Hole) -> int | None:
    """Returns the position in its segment at which a range is missing between two batches; None for other ranges."""
    segments = log.segments
    if not segments.active.has_files or hole.start < segments.bases[0]:
        return None
    try:
        return segments[segments.place_of(hole.start)].locate(hole.start)
    except RecordsRejected:
        return None


def _fill(disk: Disk, path: str, whole_bytes: int, hole: Hole, epochs: Sequence[EpochEntry]) -> list[Hole]:
    """Repairs a segment whose intact batches end at `whole_bytes`. Returns the offsets that cannot be recovered."""
    file = disk.open(path)
    if file.size() == whole_bytes:
        _append(file, filler(hole, epochs))
        return [hole]
    lost: list[Hole] = []
    try:
        pieces = list(intact_pieces(file, whole_bytes, hole.start, 1 << 62))
        kept = RepairFolder(disk, path.rpartition("/")[0], KEPT_AT_START)
        name = path.rpartition("/")[2]
        if not pieces:
            kept.write(f"{name}.from-{whole_bytes}", _bytes(file, whole_bytes, file.size()))
            file.truncate(whole_bytes)
            file.append(filler(hole, epochs))
            file.sync()
            return [hole]
        with_edges = [
            Piece(0, whole_bytes, 0, hole.start),
            *pieces,
            Piece(file.size(), file.size(), hole.end, hole.end),
        ]
        mended = disk.open(path + _MENDED_SUFFIX, create=True)
        try:
            mended.truncate(0)
            for before, after in pairwise(with_edges):
                for part in _bytes(file, before.position, before.end):
                    mended.append(part)
                if before.end < after.position:
                    kept.write(f"{name}.at-{before.end}", _bytes(file, before.end, after.position))
                gap = Hole(before.next_offset, after.first_offset)
                if gap.start < gap.end:
                    mended.append(filler(gap, epochs))
                    lost.append(gap)
            mended.sync()
        finally:
            mended.close()
    finally:
        file.close()
    for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
        index = path.removesuffix(LOG_SUFFIX) + suffix
        if disk.exists(index):
            disk.remove(index)
    disk.rename(path + _MENDED_SUFFIX, path)
    return lost


def _append(file: File, data: bytes) -> None:
    try:
        file.append(data)
        file.sync()
    finally:
        file.close()


def _bytes(file: File, start: int, end: int) -> Iterator[bytes]:
    for position in range(start, end, _SLICE_BYTES):
        yield file.read_at(position, min(_SLICE_BYTES, end - position))


def filler(hole: Hole, epochs: Sequence[EpochEntry]) -> bytes:
    """Returns empty batches for lost offsets, each with the leader epoch in which its records were written."""
    starts = [entry.start_offset for entry in epochs if hole.start < entry.start_offset < hole.end]
    edges = [hole.start, *starts, hole.end]
    parts = []
    for start, end in pairwise(edges):
        epoch = max((entry.epoch for entry in epochs if entry.start_offset <= start), default=0)
        for first in range(start, end, _DELTA_MAX):
            parts.append(bytes(empty_batch(_header(first, min(end - first, _DELTA_MAX) - 1, epoch)).data))
    return b"".join(parts)


def _header(first_offset: int, last_offset_delta: int, epoch: int) -> BatchHeader:
    return BatchHeader(
        base_offset=first_offset,
        batch_length=HEADER_BYTES - LOG_OVERHEAD,
        partition_leader_epoch=epoch,
        magic=MAGIC_V2,
        crc=0,
        attributes=0,
        last_offset_delta=last_offset_delta,
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=NO_TIMESTAMP,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_sequence=NO_SEQUENCE,
        record_count=0,
    )


class Piece(NamedTuple):
    """Consecutive complete batches in a file: their bytes and the offsets that they cover."""

    position: int
    end: int
    first_offset: int
    next_offset: int


def intact_pieces(file: File, position: int, from_offset: int, end_offset: int) -> Iterator[Piece]:
    """Yields the intact batches of magic 2 after `position`, wherever they are, if their offsets ascend."""
    size = file.size()
    window = position
    data = b""
    while position + HEADER_BYTES <= size:
        if position + HEADER_BYTES > window + len(data):
            window, data = position, file.read_at(position, _SLICE_BYTES)
        at = data.find(_MAGIC, position - window + MAGIC_OFFSET)
        if at < 0:
            position = window + len(data) - MAGIC_OFFSET
            if position + HEADER_BYTES > size or len(data) <= MAGIC_OFFSET:
                return
            window, data = position, file.read_at(position, _SLICE_BYTES)
            continue
        position = window + at - MAGIC_OFFSET
        first = _intact_at(file, position, from_offset, end_offset)
        if first is None:
            position += 1
            continue
        begin, header = position, first
        while True:
            position += header.size_bytes
            from_offset = header.next_offset
            following = _intact_at(file, position, from_offset, end_offset)
            if following is None:
                break
            header = following
        yield Piece(begin, position, first.base_offset, from_offset)


def _intact_at(file: File, position: int, from_offset: int, end_offset: int) -> BatchHeader | None:
    if position + HEADER_BYTES > file.size():
        return None
    try:
        header = read_header(file.read_at(position, HEADER_BYTES))
        if header.magic != MAGIC_V2 or not from_offset <= header.base_offset <= header.last_offset < end_offset:
            return None
        if header.base_offset - from_offset > _DELTA_MAX or position + header.size_bytes > file.size():
            return None
        data = memoryview(file.read_at(position, header.size_bytes))
        return header if has_valid_crc(data, 0, header) else None
    except RecordsRejected:
        return None
