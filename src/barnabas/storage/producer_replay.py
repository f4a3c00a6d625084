"""Replay of producers' batches into the state that a log keeps about them: on each append, and when the log is
opened."""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.common.errors import is_exhausted
from barnabas.common.host import Buffer
from barnabas.records.batch import BatchHeader, decode_batch, read_end_txn_marker
from barnabas.records.header import CONTROL_FLAG
from barnabas.storage.producers import ProducerStateManager
from barnabas.storage.segment import Segment
from barnabas.storage.segments import Segments
from barnabas.storage.transaction_index import AbortedTxn


def note_producer(producers: ProducerStateManager, header: BatchHeader, batch: Buffer, segment: Segment | None) -> None:
    """Applies a producer's batch to the state. The marker of an aborted transaction is added to the index of `segment`;
    `segment` is None if the index has it already."""
    if not header.attributes & CONTROL_FLAG:
        producers.update(header)
        return
    for record in decode_batch(batch):
        marker = read_end_txn_marker(record)
        if marker is None:
            continue
        ended = producers.apply_marker(header, marker, record.timestamp)
        if ended is not None and ended.is_aborted and segment is not None:
            segment.txn_index.append(
                AbortedTxn(ended.producer_id, ended.first_offset, ended.last_offset, ended.last_stable_offset)
            )


def check_marker(producers: ProducerStateManager, header: BatchHeader, batch: Buffer) -> None:
    """Checks that the control batch of a producer can be appended now. Raises RecordsRejected if its coordinator epoch
    or its producer epoch is stale."""
    for record in decode_batch(batch):
        marker = read_end_txn_marker(record)
        if marker is not None:
            producers.check_marker(header, marker)


def take_snapshot(producers: ProducerStateManager) -> bool:
    """Takes a snapshot. Returns whether it wrote one: without space for it, the next startup replays a little more."""
    try:
        return producers.take_snapshot(sync=False) is not None
    except OSError as error:
        if not is_exhausted(error):
            raise
        return False


def replay_producers(
    producers: ProducerStateManager,
    segments: Segments,
    log_start_offset: int,
    log_end_offset: int,
    wall_ms: int,
    *,
    high_watermark: int | None = None,
) -> None:
    """Brings the state to the LEO: the newest snapshot at or below it, and the batches after that. Their transaction
    indexes are already complete. With a HW, it also restores the transactions that snapshots lack (`_restore_ended`).
    """
    has_producers = producers.reload(log_start_offset, log_end_offset, wall_ms)
    if has_producers and high_watermark is not None:
        _restore_ended(producers, segments, log_start_offset, max(high_watermark, log_start_offset))
    _replay(producers, segments, max(producers.map_end_offset, log_start_offset), log_end_offset)


def _restore_ended(
    producers: ProducerStateManager, segments: Segments, log_start_offset: int, high_watermark: int
) -> None:
    """Restores the transactions that ended below `map_end_offset` but at or above the HW. This needs an older snapshot
    and the batches in between; usually there is no marker among them, and nothing to do."""
    end_offset = producers.map_end_offset
    beyond = _headers(segments, high_watermark, end_offset)
    if any(header.is_control and header.producer_id >= 0 for _, _, header in beyond):
        past = producers.as_of(high_watermark, log_start_offset)
        _replay(past, segments, past.map_end_offset, end_offset)
        producers.restore_ended(past, high_watermark)


def _replay(producers: ProducerStateManager, segments: Segments, start: int, end_offset: int) -> None:
    for segment, at, header in _headers(segments, start, end_offset):
        if header.producer_id >= 0:
            batch = segment.read(at, header.size_bytes) if header.is_control else b""
            note_producer(producers, header, batch, None)
    producers.map_end_offset = end_offset


def _headers(segments: Segments, start: int, end_offset: int) -> Iterator[tuple[Segment, int, BatchHeader]]:
    """Yields (segment, position, header) of the batches between two offsets."""
    for segment in segments.from_offset(start) if start < end_offset else ():
        position = segment.locate(start) if start > segment.base_offset else 0
        if position is None:
            continue
        for at, header in segment.headers(position):
            if header.base_offset >= end_offset:
                return
            if header.last_offset >= start:
                yield segment, at, header
