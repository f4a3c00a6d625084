"""Second decisions of what a log keeps about itself: indexes, segments, leader epochs, producers and lost offsets.

A function that only changes its own object is judged by the state after it. Its probes change copies.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any, Final

from barnabas.common.errors import ErrorCode, RecordsRejected
from barnabas.simulation.second_decisions import UNJUDGED, Arguments, SecondDecision
from barnabas.storage.recovery.lost_offsets import Hole

_OFFSETS, _TIMES = struct.Struct(">ii"), struct.Struct(">qi")
#: A longer index is not read as a whole.
_INDEX_BYTES_MAX: Final = 2_400
_BATCHES_KEPT: Final = 5
_SEQUENCES: Final = 2**31
#: The limits in long lists are probed at the first and the last entries only.
_PROBED_MAX: Final = 3
_TRANSACTIONAL: Final = 0x10


def _some(entries: Sequence[Any]) -> Sequence[Any]:
    return entries if len(entries) <= 2 * _PROBED_MAX else [*entries[:_PROBED_MAX], *entries[-_PROBED_MAX:]]


# -- indexes


def _offset_entries(index: Any) -> list[tuple[int, int]] | None:
    """Returns (offset, position) of all entries; None if they are not in memory."""
    data = index.loaded
    if data is None or len(data) > _INDEX_BYTES_MAX:
        return None
    return [(index._base_offset + relative, position) for relative, position in _OFFSETS.iter_unpack(data)]


def _time_entries(index: Any) -> list[tuple[int, int]] | None:
    """Returns (timestamp, offset) of all entries; None if they are not in memory."""
    data = index.loaded
    if data is None or len(data) > _INDEX_BYTES_MAX:
        return None
    return [(timestamp, index._base_offset + relative) for timestamp, relative in _TIMES.iter_unpack(data)]


def _position_before(index: Any, offset: int) -> object:
    entries = _offset_entries(index)
    if entries is None:
        return UNJUDGED
    return max((entry for entry in entries if entry[0] <= offset), default=(index._base_offset, 0))


def _near_positions(index: Any, offset: int) -> Iterator[Arguments]:
    for found, _ in _some(_offset_entries(index) or []):
        for more in (-1, 0, 1):
            yield index, found + more


def _time_before(index: Any, timestamp: int) -> object:
    entries = _time_entries(index)
    if entries is None:
        return UNJUDGED
    return max((entry for entry in entries if entry[0] <= timestamp), default=(-1, index._base_offset))


def _near_times(index: Any, timestamp: int) -> Iterator[Arguments]:
    for found, _ in _some(_time_entries(index) or []):
        for more in (-1, 0, 1):
            yield index, found + more


def _offsets_below(index: Any, offset: int) -> object:
    entries = _offset_entries(index)
    return UNJUDGED if entries is None else [entry for entry in entries if entry[0] < offset]


def _times_below(index: Any, offset: int) -> object:
    entries = _time_entries(index)
    return UNJUDGED if entries is None else [entry for entry in entries if entry[1] < offset]


# -- segments


def _noted(segment: Any, size_bytes: int, last_offset: int, max_timestamp: int, limits: Any) -> object:
    """Returns the state of a segment after a batch: size, timestamps, entries of both indexes, bytes without entry."""
    if not (segment.index.is_loaded and segment.time_index.is_loaded) or segment.known_timestamp is None:
        return UNJUDGED
    newest = segment.known_timestamp
    if max_timestamp > newest[0]:
        newest = max_timestamp, last_offset
    positions, times = len(segment.index), len(segment.time_index)
    last_time, waiting = segment.time_index.last()[0], segment._unindexed_bytes + size_bytes
    last_position = segment.index.last()
    if segment._unindexed_bytes > limits.index_interval_bytes:
        positions, waiting, last_position = positions + 1, size_bytes, (last_offset, segment.size_bytes)
        if newest[0] > last_time:
            times, last_time = times + 1, newest[0]
    first = max_timestamp if segment.size_bytes == 0 else segment._first_timestamp
    return segment.size_bytes + size_bytes, first, newest, positions, last_position, times, last_time, waiting


def _state_of(_: Any, segment: Any, *more: Any) -> object:
    index, times = segment.index, segment.time_index
    if not (index.is_loaded and times.is_loaded):
        return None
    return (
        segment.size_bytes,
        segment._first_timestamp,
        segment.known_timestamp,
        len(index),
        index.last(),
        len(times),
        times.last()[0],
        segment._unindexed_bytes,
    )


def _place(segments: Any, offset: int) -> int:
    return max(len([base for base in segments.bases if base <= offset]) - 1, 0)


def _near_bases(segments: Any, offset: int) -> Iterator[Arguments]:
    for base in _some(segments.bases):
        for more in (-1, 0, 1):
            yield segments, base + more


def _reaching(segments: Any, offset: int) -> list[Any]:
    """Returns the segments after which there is no segment that begins at or before the offset."""
    bases = segments.bases
    return [segment for place, segment in enumerate(segments) if all(base > offset for base in bases[place + 1 :])]


def _ended(segments: Any, log_start_offset: int) -> int:
    return sum(base <= log_start_offset for base in segments.bases[1:])


# -- leader epochs


def _epochs_of(cache: Any) -> list[tuple[int, int]]:
    return [(entry.epoch, entry.start_offset) for entry in cache.entries]


def _end_of_epoch(cache: Any, epoch: int, log_end_offset: int) -> tuple[int, int]:
    entries = _epochs_of(cache)
    later = [start for known, start in entries if known > epoch]
    if epoch < 0 or not entries or epoch > entries[-1][0]:
        return -1, -1
    if not later:
        return epoch, log_end_offset
    earlier = [known for known, _ in entries if known <= epoch]
    if earlier:
        return earlier[-1], later[0]
    first = cache._first
    began = first.start_offset if first is not None and first.epoch == entries[0][0] else later[0]
    return epoch, min(began, later[0])


def _near_epochs(cache: Any, epoch: int, log_end_offset: int) -> Iterator[Arguments]:
    yield cache, -1, log_end_offset
    for known, _ in _some(_epochs_of(cache)):
        for more in (-1, 0, 1):
            yield cache, known + more, log_end_offset


def _epoch_at(cache: Any, offset: int) -> int | None:
    return next((epoch for epoch, start in reversed(_epochs_of(cache)) if start <= offset), None)


def _near_starts(cache: Any, offset: int) -> Iterator[Arguments]:
    for _, start in _some(_epochs_of(cache)):
        for more in (-1, 0, 1):
            yield cache, start + more


def _epoch_below(cache: Any, epoch: int) -> int | None:
    return next((known for known, _ in reversed(_epochs_of(cache)) if known < epoch), None)


def _near_known(cache: Any, epoch: int) -> Iterator[Arguments]:
    for known, _ in _some(_epochs_of(cache)):
        yield cache, known
        yield cache, known + 1


def _apart(cache: Any) -> Any:
    """Returns a copy whose changes nobody writes."""
    other = copy(cache)
    other._entries, other._files = list(cache._entries), None
    return other


def _after(cache: Any, entries: list[tuple[int, int]]) -> tuple[object, ...]:
    """Returns the state after a change to these entries; a change is written later."""
    changed = entries != _epochs_of(cache)
    latest = entries[-1][0] if entries else -1
    return entries, latest, cache.is_saved and not changed


def _epochs_after(_: Any, cache: Any, *more: Any) -> tuple[object, ...]:
    return _epochs_of(cache), cache.latest_epoch, cache.is_saved


def _assigned(cache: Any, epoch: int, start_offset: int) -> object:
    entries = _epochs_of(cache)
    if entries and entries[-1][0] == epoch and entries[-1][1] <= start_offset:
        return _after(cache, entries)
    kept = [(known, start) for known, start in entries if known < epoch and start < start_offset]
    return _after(cache, [*kept, (epoch, start_offset)])


def _near_assigned(cache: Any, epoch: int, start_offset: int) -> Iterator[Arguments]:
    for known, start in _some(_epochs_of(cache))[-2:]:
        for more in (-1, 0, 1):
            for place in (start - 1, start, start + 1):
                if known + more >= 0 and place >= 0:
                    yield _apart(cache), known + more, place


def _cut_at_end(cache: Any, end_offset: int) -> object:
    return _after(cache, [entry for entry in _epochs_of(cache) if entry[1] < end_offset])


def _near_ends(cache: Any, end_offset: int) -> Iterator[Arguments]:
    for _, start in _some(_epochs_of(cache)):
        for more in (0, 1):
            yield _apart(cache), start + more


def _cut_at_start(cache: Any, start_offset: int) -> object:
    entries = _epochs_of(cache)
    before = [epoch for epoch, start in entries if start <= start_offset]
    if not before:
        return _after(cache, entries)
    return _after(cache, [(before[-1], start_offset), *(entry for entry in entries if entry[1] > start_offset)])


def _near_cuts(cache: Any, start_offset: int) -> Iterator[Arguments]:
    for _, start in _some(_epochs_of(cache)):
        for more in (-1, 0, 1):
            yield _apart(cache), start + more


def _cleared(cache: Any) -> object:
    return _after(cache, [])


def _is_saved_below(cache: Any, end_offset: int) -> bool:
    on_file = [(entry.epoch, entry.start_offset) for entry in cache._on_file if entry.start_offset < end_offset]
    return cache.is_saved or on_file == [entry for entry in _epochs_of(cache) if entry[1] < end_offset]


def _has_saved_beyond(cache: Any, end_offset: int) -> bool:
    return max((entry.start_offset for entry in cache._on_file), default=-1) > end_offset


def _near_saved(cache: Any, end_offset: int) -> Iterator[Arguments]:
    for entry in _some(cache._on_file):
        for more in (-1, 0, 1):
            yield cache, entry.start_offset + more


# -- producers


def _shown_entry(entry: Any) -> object:
    if entry is None:
        return None
    batches = [tuple(batch) for batch in entry.batches]
    last = entry.epoch, entry.coordinator_epoch, entry.last_timestamp, entry.txn_first_offset, entry.last_sequence
    return last, batches


def _updated(state: Any, header: Any) -> object:
    """Returns the producer after a data batch, and the first offsets of all open transactions."""
    known = state.producers.get(header.producer_id)
    count = header.last_offset_delta
    last = -1 if header.base_sequence == -1 else (header.base_sequence + count) % _SEQUENCES
    batches: list[tuple[Any, ...]] = []
    first, coordinator_epoch = None, -1
    if known is not None:
        first, coordinator_epoch = known.txn_first_offset, known.coordinator_epoch
        if known.epoch == header.producer_epoch:
            batches = [tuple(batch) for batch in known.batches]
    batches.append((last, header.base_offset + count, count, header.max_timestamp))
    opened = list(state._open)
    if header.attributes & _TRANSACTIONAL and first is None:
        first = header.base_offset
        opened.append(first)
    shown = header.producer_epoch, coordinator_epoch, header.max_timestamp, first, last
    return (shown, batches[-_BATCHES_KEPT:]), opened


def _after_update(_: Any, state: Any, header: Any) -> object:
    return _shown_entry(state.producers.get(header.producer_id)), list(state._open)


def _marked(state: Any, header: Any, marker: Any, timestamp: int) -> object:
    """Returns the producer after a marker, the open and the ended transactions, and what it ended."""
    known = state.producers.get(header.producer_id)
    first = None if known is None else known.txn_first_offset
    is_other = known is None or known.epoch != header.producer_epoch
    batches = [] if is_other else [tuple(batch) for batch in known.batches]
    last = -1 if is_other else known.last_sequence
    shown = (header.producer_epoch, marker.coordinator_epoch, timestamp, None, last), batches
    opened = [offset for offset in state._open if offset != first]
    ended, completed = dict(state._ended), None
    if first is not None:
        ended[first] = header.base_offset
        stable = min(opened, default=header.base_offset + 1)
        completed = header.producer_id, first, header.base_offset, not marker.commit, stable
    return shown, opened, ended, completed


def _after_marker(result: Any, state: Any, header: Any, marker: Any, timestamp: int) -> object:
    completed = None if result is None else tuple(result)
    return _shown_entry(state.producers.get(header.producer_id)), list(state._open), dict(state._ended), completed


def _is_marker_allowed(state: Any, header: Any, marker: Any) -> None:
    known = state.producers.get(header.producer_id)
    if known is not None and known.epoch > header.producer_epoch:
        raise RecordsRejected(ErrorCode.INVALID_PRODUCER_EPOCH)
    if known is not None and known.coordinator_epoch > marker.coordinator_epoch:
        raise RecordsRejected(ErrorCode.TRANSACTION_COORDINATOR_FENCED)


def _near_marker(state: Any, header: Any, marker: Any) -> Iterator[Arguments]:
    known = state.producers.get(header.producer_id)
    if known is not None:
        for more in (-1, 0, 1):
            yield state, header._replace(producer_epoch=known.epoch + more), marker
            yield state, header, marker._replace(coordinator_epoch=known.coordinator_epoch + more)


def _not_expired(state: Any, wall_ms: int) -> object:
    alive = [
        producer_id
        for producer_id, entry in state.producers.items()
        if entry.txn_first_offset is not None or entry.last_timestamp > wall_ms - state.expiration_ms
    ]
    return len(state.producers) - len(alive), alive


def _alive_after(result: int, state: Any, wall_ms: int) -> object:
    return result, list(state.producers)


def _near_expired(state: Any, wall_ms: int) -> Iterator[Arguments]:
    for entry in _some(list(state.producers.values())):
        for more in (-1, 0):
            other = copy(state)
            other._producers = dict(state._producers)
            yield other, entry.last_timestamp + state.expiration_ms + more


def _stable_end(log: Any, high_watermark: int) -> int:
    state = log.producers
    if not state.producers and not state._ended:
        return high_watermark
    firsts = [first for first, marker in state._ended.items() if marker >= high_watermark]
    return int(min([high_watermark, *state._open, *firsts]))


def _snapshots_from(state: Any, offset: int) -> list[int]:
    return [snapshot for snapshot in state.snapshots if snapshot >= offset]


def _snapshots_to(state: Any, offset: int) -> list[int]:
    return [snapshot for snapshot in state.snapshots if snapshot <= offset]


def _without_strays(state: Any, segment_offsets: Any) -> list[int]:
    bases = set(segment_offsets)
    last = max((offset for offset in state.snapshots if offset not in bases), default=-1)
    keeps_last = last >= max(bases, default=-1)
    return [offset for offset in state.snapshots if offset in bases or (keeps_last and offset == last)]


def _snapshots_of(_: Any, state: Any, *more: Any) -> list[int]:
    return list(state.snapshots)


# -- lost offsets


_HOLES: Final = (
    (),
    (Hole(0, 2), Hole(1, 4), Hole(4, 5), Hole(7, 7), Hole(9, 10)),
    (Hole(9, 10), Hole(3, 6), Hole(0, 2), Hole(4, 5), Hole(6, 3)),
)
_SPAN_MAX: Final = 100


def _offsets_in(holes: Any) -> set[int] | None:
    holes = list(holes)
    if sum(max(hole.end - hole.start, 0) for hole in holes) > _SPAN_MAX:
        return None
    return {offset for hole in holes for offset in range(hole.start, hole.end)}


def _ranges(offsets: set[int]) -> tuple[tuple[int, int], ...]:
    """Returns the fewest ranges that have these offsets."""
    starts = [offset for offset in sorted(offsets) if offset - 1 not in offsets]
    ends = [offset + 1 for offset in sorted(offsets) if offset + 1 not in offsets]
    return tuple(zip(starts, ends, strict=True))


def _subtracted(holes: Any, taken: Any) -> object:
    if not isinstance(holes, tuple):
        return UNJUDGED
    all_of_them, gone = _offsets_in(holes), _offsets_in(taken)
    return UNJUDGED if all_of_them is None or gone is None else _ranges(all_of_them - gone)


def _near_taken(holes: Any, taken: Any) -> Iterator[Arguments]:
    for one in _HOLES:
        for other in _HOLES:
            yield one, other
    yield _HOLES[1], (Hole(1, 3), Hole(4, 4), Hole(9, 12))


def _clipped(holes: Any, start: int, end: int) -> object:
    if not isinstance(holes, tuple):
        return UNJUDGED
    inside = _offsets_in(holes)
    return UNJUDGED if inside is None else _ranges({offset for offset in inside if start <= offset < end})


def _near_clipped(holes: Any, start: int, end: int) -> Iterator[Arguments]:
    for one in _HOLES:
        for limits in ((0, 10), (1, 9), (2, 2), (4, 5), (3, 12)):
            yield one, *limits


def _containing(holes: Any, offset: int) -> object:
    if not isinstance(holes, tuple):
        return UNJUDGED
    return next((hole for hole in holes if offset in range(hole.start, hole.end)), None)


def _near_contained(holes: Any, offset: int) -> Iterator[Arguments]:
    for at in range(11):
        yield (Hole(0, 2), Hole(4, 5), Hole(9, 10)), at


LOG_DECISIONS: Final = (
    SecondDecision("storage.index:OffsetIndex.lookup", _position_before, _near_positions),
    SecondDecision("storage.index:TimeIndex.lookup", _time_before, _near_times),
    SecondDecision(
        "storage.index:OffsetIndex.truncate_to", _offsets_below, shown=lambda _, index, offset: _offset_entries(index)
    ),
    SecondDecision(
        "storage.index:TimeIndex.truncate_to", _times_below, shown=lambda _, index, offset: _time_entries(index)
    ),
    SecondDecision("storage.segment:Segment.note", _noted, shown=_state_of),
    SecondDecision("storage.segments:Segments.place_of", _place, _near_bases),
    SecondDecision("storage.segments:Segments.from_offset", _reaching, _near_bases),
    SecondDecision("storage.retention:below_log_start", _ended, _near_bases),
    SecondDecision("storage.epochs:LeaderEpochCache.end_offset_for", _end_of_epoch, _near_epochs),
    SecondDecision("storage.epochs:LeaderEpochCache.epoch_for_offset", _epoch_at, _near_starts),
    SecondDecision("storage.epochs:LeaderEpochCache.previous_epoch", _epoch_below, _near_known),
    SecondDecision("storage.epochs:LeaderEpochCache.assign", _assigned, _near_assigned, _epochs_after),
    SecondDecision("storage.epochs:LeaderEpochCache.truncate_from_end", _cut_at_end, _near_ends, _epochs_after),
    SecondDecision("storage.epochs:LeaderEpochCache.truncate_from_start", _cut_at_start, _near_cuts, _epochs_after),
    SecondDecision("storage.epochs:LeaderEpochCache.clear", _cleared, shown=_epochs_after),
    SecondDecision("storage.epochs:LeaderEpochCache.is_saved_below", _is_saved_below, _near_saved),
    SecondDecision("storage.epochs:LeaderEpochCache.has_saved_beyond", _has_saved_beyond, _near_saved),
    SecondDecision("storage.producers:ProducerStateManager.update", _updated, shown=_after_update),
    SecondDecision("storage.producers:ProducerStateManager.apply_marker", _marked, shown=_after_marker),
    SecondDecision("storage.producers:ProducerStateManager.check_marker", _is_marker_allowed, _near_marker),
    SecondDecision("storage.producers:ProducerStateManager.expire", _not_expired, _near_expired, _alive_after),
    SecondDecision("storage.log:Log.last_stable_offset", _stable_end),
    SecondDecision(
        "storage.producers:ProducerStateManager.delete_snapshots_before", _snapshots_from, shown=_snapshots_of
    ),
    SecondDecision("storage.producers:ProducerStateManager.delete_snapshots_above", _snapshots_to, shown=_snapshots_of),
    SecondDecision(
        "storage.producers:ProducerStateManager.remove_stray_snapshots", _without_strays, shown=_snapshots_of
    ),
    SecondDecision("storage.recovery.lost_offsets:subtract", _subtracted, _near_taken),
    SecondDecision("storage.recovery.lost_offsets:clip", _clipped, _near_clipped),
    SecondDecision("storage.recovery.lost_offsets:hole_at", _containing, _near_contained),
)
