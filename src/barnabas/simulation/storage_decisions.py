"""Second decisions of logs: when a segment is full, what retention and compaction remove, and which batches of a
producer are accepted. They follow Kafka's documentation, and read only what is in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from barnabas.common.errors import ErrorCode, RecordsRejected
from barnabas.simulation.second_decisions import UNJUDGED, Arguments, SecondDecision

_RELATIVE_MAX: Final = 2**31 - 1
_SEQUENCES: Final = 2**31
_NONE_BEFORE: Final = -1
#: The places of offset, key and value in an outline of a record.
_OFFSET, _KEY, _HAS_VALUE = 4, 5, 6


# -- segments


def _is_full(segment: Any, limits: Any, size: int, last_offset: int, timestamp: int, wall_ms: int) -> object:
    reasons = [
        segment.size_bytes + size > limits.segment_bytes,
        last_offset > segment.base_offset + _RELATIVE_MAX,
    ]
    if any(reasons):
        return True
    if segment.size_bytes > 0:
        first = segment._first_timestamp
        if first < 0:
            return UNJUDGED  # The first timestamp is not read yet, or there is none.
        reasons.append(timestamp > first + limits.segment_ms)
    if segment.index.is_loaded and segment.time_index.is_loaded:
        reasons.append(len(segment.index) >= limits.index_entries)
        reasons.append(len(segment.time_index) >= limits.time_entries)
    elif segment.is_index_full is None:
        return UNJUDGED
    else:
        reasons.append(segment.is_index_full)
    return any(reasons)


def _near_full(segment: Any, limits: Any, size: int, last_offset: int, timestamp: int, wall_ms: int) -> Iterator[Any]:
    room = limits.segment_bytes - segment.size_bytes
    first = segment._first_timestamp
    for more in (0, 1):
        yield segment, limits, room + more, last_offset, timestamp, wall_ms
        yield segment, limits, size, segment.base_offset + _RELATIVE_MAX + more, timestamp, wall_ms
        if first >= 0:
            yield segment, limits, size, last_offset, first + limits.segment_ms + more, wall_ms


def _surplus(segments: Any, config: Any) -> int:
    """Counts from the newest to the oldest: what is beyond the limit goes, but a segment that crosses it stays."""
    if config.retention_bytes < 0:
        return 0
    sizes = [segment.size_bytes for segment in segments]
    gone = [count for count in range(len(sizes) + 1) if sum(sizes[count:]) >= config.retention_bytes]
    most = len(sizes) - 1 if sizes and sizes[-1] == 0 else len(sizes)
    return min(max(gone, default=0), most)


def _near_surplus(segments: Any, config: Any) -> Iterator[Arguments]:
    sizes = [segment.size_bytes for segment in segments]
    for more in (-1, 0, 1):
        if sum(sizes[1:]) + more >= 0:
            yield segments, replace(config, retention_bytes=sum(sizes[1:]) + more)


def _newest(segment: Any) -> int:
    """Returns the segment's largest timestamp if it is known without reading files, else -1."""
    known = segment.known_timestamp
    return _NONE_BEFORE if known is None else known[0]


def _aged(segments: Any, config: Any, wall_ms: int, disk: Any) -> object:
    if config.retention_ms < 0:
        return 0
    count = 0
    for segment in segments:
        if segment.size_bytes == 0 and segment is segments.active:
            return count
        if _newest(segment) < 0:
            return UNJUDGED
        if _newest(segment) + config.retention_ms >= wall_ms:
            return count
        count += 1
    return count


def _near_aged(segments: Any, config: Any, wall_ms: int, disk: Any) -> Iterator[Arguments]:
    oldest = _newest(segments[0])
    if config.retention_ms >= 0 and oldest >= 0 and all(_newest(each) >= 0 for each in segments):
        for more in (0, 1):
            yield segments, config, oldest + config.retention_ms + more, disk


# -- compaction


def _kept(records: Any, header: Any, rule: Any) -> list[int]:
    """Returns the offsets of the records that stay."""
    offsets = []
    for record in records:
        offset, key = header.base_offset + record[_OFFSET], record[_KEY]
        is_past = header.delete_horizon_ms is not None and rule.wall_ms >= header.delete_horizon_ms
        if offset > rule.latest_offset or (
            key is not None and rule.offsets.get(key) <= offset and (record[_HAS_VALUE] or not is_past)
        ):
            offsets.append(offset)
    return offsets


def _offsets_of(kept: Any, records: Any, header: Any, rule: Any) -> list[int]:
    return [header.base_offset + record[_OFFSET] for record in kept]


def _near_horizon(records: Any, header: Any, rule: Any) -> Iterator[Arguments]:
    for offset in (header.base_offset, header.last_offset - 1):
        yield records, header, replace(rule, latest_offset=offset)
    if header.delete_horizon_ms is not None:
        for more in (-1, 0):
            yield records, header, replace(rule, wall_ms=header.delete_horizon_ms + more)


def _memory(cleaner: Any, job: Any, offsets: Any) -> int:
    """Returns the bytes for the keys of a pass: those of one cleaner thread, at least 1 MiB, at most 2 GiB."""
    config = cleaner._config
    share = config.int_of("log.cleaner.dedupe.buffer.size") // max(config.int_of("log.cleaner.threads"), 1)
    return int(sorted((1 << 20, share, (1 << 31) - 1))[1])


def _memory_of(_: Any, cleaner: Any, job: Any, offsets: Any) -> int:
    return int(offsets._memory_bytes)


# -- producers


def _accepted(state: Any, header: Any, *, from_client: bool = True) -> Any:
    """Returns the batch that this one repeats, or None for a new one. Raises RecordsRejected."""
    known = state.producers.get(header.producer_id)
    if known is None:
        return None
    is_same_epoch = header.producer_epoch == known.epoch
    if from_client and is_same_epoch:
        count = header.last_offset_delta
        for batch in known.batches[-5:]:
            if (batch.last_sequence, batch.offset_delta) == (_advanced(header.base_sequence, count), count):
                return batch
    if header.producer_epoch < known.epoch:
        raise RecordsRejected(ErrorCode.INVALID_PRODUCER_EPOCH)
    if from_client and known.epoch != _NONE_BEFORE:
        expected = _advanced(known.last_sequence, 1) if is_same_epoch else 0
        if header.base_sequence != expected:
            raise RecordsRejected(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    if known.txn_first_offset is not None and not header.is_transactional:
        raise RecordsRejected(ErrorCode.INVALID_TXN_STATE)
    return None


def _advanced(sequence: int, count: int) -> int:
    return (sequence + count) % _SEQUENCES


def _near_sequence(state: Any, header: Any, *, from_client: bool = True) -> Iterator[Arguments]:
    known = state.producers.get(header.producer_id)
    if known is not None and known.epoch >= 0:
        for sequence in {0, known.last_sequence, known.last_sequence + 1, known.last_sequence + 2} - {-1}:
            for epoch in (known.epoch - 1, known.epoch, known.epoch + 1):
                if epoch >= 0:
                    yield state, header._replace(base_sequence=sequence % _SEQUENCES, producer_epoch=epoch)


def _is_forgotten(entry: Any, wall_ms: int, expiration_ms: int) -> bool:
    return entry.txn_first_offset is None and entry.last_timestamp + expiration_ms <= wall_ms


def _near_forgotten(entry: Any, wall_ms: int, expiration_ms: int) -> Iterator[Arguments]:
    for more in (-1, 0):
        yield entry, entry.last_timestamp + expiration_ms + more, expiration_ms


STORAGE_DECISIONS: Final = (
    SecondDecision("storage.segment:Segment.should_roll", _is_full, _near_full, judged_every=8),
    SecondDecision("storage.retention:surplus", _surplus, _near_surplus),
    SecondDecision("storage.retention:expired", _aged, _near_aged),
    SecondDecision("storage.compaction.record_filter:_select", _kept, _near_horizon, _offsets_of),
    SecondDecision("storage.compaction.cleaner:LogCleaner._index", _memory, shown=_memory_of),
    SecondDecision("storage.producers:ProducerStateManager.check", _accepted, _near_sequence),
    SecondDecision("storage.producer_entries:ProducerEntry.is_expired", _is_forgotten, _near_forgotten),
)
