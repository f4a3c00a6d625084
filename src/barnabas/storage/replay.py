"""Batches of producers into the state that a log keeps of them: as they are appended, and again when it is opened."""

from __future__ import annotations

from barnabas.common.host import Buffer
from barnabas.records.batch import BatchHeader, decode_batch, read_end_txn_marker
from barnabas.records.header import CONTROL_FLAG
from barnabas.storage.producers import ProducerStateManager
from barnabas.storage.segment import Segment
from barnabas.storage.segments import Segments
from barnabas.storage.transactions import AbortedTxn


def note_producer(producers: ProducerStateManager, header: BatchHeader, batch: Buffer, segment: Segment | None) -> None:
    """Take a producer's batch into the state. The marker of an aborted transaction goes into the index of `segment`,
    unless it is there already (None)."""
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


def replay_producers(
    producers: ProducerStateManager,
    segments: Segments,
    log_start_offset: int,
    log_end_offset: int,
    wall_ms: int,
    *,
    rebuilt_from: int | None = None,
) -> None:
    """The state at the LEO, from the newest snapshot and the batches behind it.

    Segments at or above `rebuilt_from` were scanned because nothing but their records is sure: snapshots above it are
    not believed, and transaction indexes and snapshots of these segments are made anew.
    """
    sure = log_end_offset if rebuilt_from is None else min(rebuilt_from, log_end_offset)
    producers.reload(log_start_offset, sure, wall_ms)
    start = max(producers.map_end_offset, log_start_offset)
    for segment in segments.from_offset(start) if start < log_end_offset else ():
        is_rebuilt = rebuilt_from is not None and segment.base_offset >= rebuilt_from
        if is_rebuilt and segment.base_offset > start:
            producers.map_end_offset = segment.base_offset
            producers.take_snapshot(sync=False)
        position = segment.locate(start) if start > segment.base_offset else 0
        if position is None:
            continue
        for at, header in segment.headers(position):
            if header.producer_id >= 0 and header.last_offset >= start:
                batch = segment.read(at, header.size_bytes) if header.is_control else b""
                note_producer(producers, header, batch, segment if is_rebuilt else None)
    producers.map_end_offset = log_end_offset
