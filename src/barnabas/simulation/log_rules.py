"""Checks of redundant data: indexes, epochs, producers and aborted transactions against the batches of a log. Each
function returns what is wrong, or None. `ProducerDict` is a second implementation of the producers of a log: a replay
of all batches into a dict.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from barnabas.simulation.log_files import Batch, SavedProducer, SegmentFiles

#: A producer may be forgotten this much before its time: clocks are set back and forth.
_EXPIRY_TOLERANCE_MS = 2 * 3_600_000


def wrong_index(segment: SegmentFiles) -> str | None:
    """Compares `.index` with the positions of batches: an entry is the last offset of the batch at its position."""
    ends = {batch.position: batch.last_offset for batch in segment.batches}
    before = -1
    for offset, position in segment.offsets:
        if offset <= before or ends.get(position) != offset:
            return f"the offset index says {offset} at {position}, the log has {ends.get(position)}"
        before = offset
    return None


def wrong_times(segment: SegmentFiles, *, is_complete: bool) -> str | None:
    """Compares `.timeindex` with the timestamps of batches: no batch up to the offset of an entry has a larger
    timestamp, and the batch with that offset has this one. With `is_complete`, the last entry has the largest timestamp
    of the segment.
    """
    batches = segment.batches
    youngest, place, before = -1, 0, (-1, -1)
    for timestamp, offset in segment.times:
        while place < len(batches) and batches[place].base_offset <= offset:
            youngest = max(youngest, batches[place].max_timestamp)
            place += 1
        at = batches[place - 1] if place else None
        if (timestamp, offset) <= before or youngest != timestamp or at is None or at.max_timestamp != timestamp:
            return f"the time index says {timestamp} at {offset}, the log has {youngest} up to there, {at}"
        before = (timestamp, offset)
    youngest = max((batch.max_timestamp for batch in batches), default=-1)
    if is_complete and youngest >= 0 and before[0] != youngest:
        return f"the time index ends with {before}, the youngest record of the segment is from {youngest}"
    return None


def wrong_epochs(entries: Sequence[tuple[int, int]], batches: Iterable[Batch], start: int, end: int) -> str | None:
    """Compares leader epochs and their first offsets with the epochs in batches from `start` up to `end`."""
    if list(entries) != sorted(set(entries)) or [first for _, first in entries] != sorted(
        first for _, first in entries
    ):
        return f"the epochs are out of order: {entries}"
    place = -1
    for batch in batches:
        if batch.base_offset >= end:
            return None
        if batch.last_offset < start:
            continue
        while place + 1 < len(entries) and entries[place + 1][1] <= max(batch.base_offset, start):
            place += 1
        epoch = entries[place][0] if place >= 0 else -1
        if epoch != batch.epoch:
            return f"the epochs {entries} say {epoch} at {batch.base_offset}, the batch has {batch.epoch}"
    return None


@dataclass
class Producer:
    """A producer in the simple implementation. Fields are None while the log does not contain what they depend on."""

    epoch: int
    last_sequence: int | None = None
    last_offset: int | None = None
    offset_delta: int | None = None
    timestamp: int = -1
    coordinator_epoch: int | None = None
    #: The time of the marker with that epoch; a producer that expires after it, and comes back, has none.
    marker_timestamp: int = -1
    #: The first offset of the open transaction, -1 if none is open, None if the log does not show it.
    txn_first_offset: int | None = None
    #: The offset of its newest batch of any kind.
    seen: int = -1


class ProducerDict:
    """The producers of a log, and its aborted transactions, by a replay of its batches into a dict."""

    def __init__(self, first_offset: int) -> None:
        #: Whether the log begins with its first record, so that nothing is unknown.
        self.is_whole = first_offset == 0
        self.producers: dict[int, Producer] = {}
        #: (producer id, first offset or None, offset of the marker, LSO after it).
        self.aborted: list[tuple[int, int | None, int, int]] = []
        self._open: dict[int, int] = {}

    def add(self, batch: Batch) -> None:
        if batch.producer_id < 0:
            return
        known = self.producers.get(batch.producer_id)
        if known is None:
            known = self.producers[batch.producer_id] = Producer(batch.producer_epoch)
            if self.is_whole:
                known.last_sequence, known.last_offset, known.offset_delta = -1, -1, 0
                known.coordinator_epoch, known.txn_first_offset = -1, -1
        elif known.epoch != batch.producer_epoch:
            known.epoch = batch.producer_epoch
            known.last_sequence, known.last_offset, known.offset_delta = -1, -1, 0
        known.seen = batch.last_offset
        if batch.marker is not None:
            self._end(known, batch)
            return
        delta = batch.last_offset - batch.base_offset
        known.last_sequence = -1 if batch.base_sequence == -1 else (batch.base_sequence + delta) % (1 << 31)
        known.last_offset, known.offset_delta, known.timestamp = batch.last_offset, delta, batch.max_timestamp
        if batch.is_transactional and batch.producer_id not in self._open and known.txn_first_offset is not None:
            self._open[batch.producer_id] = known.txn_first_offset = batch.base_offset

    def _end(self, known: Producer, batch: Batch) -> None:
        assert batch.marker is not None
        commits, known.coordinator_epoch, known.timestamp = batch.marker
        known.marker_timestamp = known.timestamp
        was_unknown = known.txn_first_offset is None
        known.txn_first_offset = -1
        first = self._open.pop(batch.producer_id, None)
        if not commits and (first is not None or was_unknown):
            stable = min(self._open.values(), default=batch.base_offset + 1)
            self.aborted.append((batch.producer_id, first, batch.base_offset, stable))


def wrong_producers(
    said: Mapping[int, SavedProducer],
    known: ProducerDict,
    log_start_offset: int,
    expires_before_ms: int,
) -> str | None:
    """Compares saved producers with those of the replay. What is older than the log start offset can be forgotten."""
    for producer_id, expected in known.producers.items():
        found = said.get(producer_id)
        if found is None:
            if expected.seen >= log_start_offset and expected.timestamp > expires_before_ms + _EXPIRY_TOLERANCE_MS:
                return f"producer {producer_id} is missing: {expected}"
        elif _differs(found, expected, log_start_offset, expires_before_ms + _EXPIRY_TOLERANCE_MS):
            return f"producer {producer_id}: {found}, the log says {expected}"
    for producer_id, found in said.items():
        if producer_id not in known.producers and found.last_offset >= log_start_offset:
            return f"producer {producer_id} is not in the log: {found}"
    return None


def _differs(found: SavedProducer, expected: Producer, log_start_offset: int, expires_before_ms: int) -> bool:
    if expected.seen < log_start_offset:
        return False
    first = expected.txn_first_offset
    is_cut = first is not None and 0 <= first < log_start_offset
    data_is_gone = expected.last_offset is not None and expected.last_offset < log_start_offset
    epochs = (None, found.coordinator_epoch)
    has_expired = found.coordinator_epoch == -1 and expected.marker_timestamp <= expires_before_ms
    last = (found.last_sequence, found.last_offset, found.offset_delta)
    return (
        found.epoch != expected.epoch
        or found.timestamp != expected.timestamp
        or (
            expected.last_offset is not None
            and last != (expected.last_sequence, expected.last_offset, expected.offset_delta)
            and not data_is_gone
        )
        or (expected.coordinator_epoch not in epochs and not has_expired and log_start_offset == 0)
        or (first is not None and not is_cut and found.txn_first_offset != first)
    )


def wrong_aborted(
    segment: SegmentFiles,
    said: Sequence[tuple[int, int, int, int]],
    expected: Sequence[tuple[int, int | None, int, int]],
    log_start_offset: int,
    *,
    is_complete: bool,
) -> str | None:
    """Compares a `.txnindex` with the transactions that the batches of the log abort. Without `is_complete`, entries
    can be missing at the end."""
    own = [each for each in expected if segment.base_offset <= each[2] < segment.end_offset]
    there = {last: (producer, first, stable) for producer, first, last, stable in said}
    if [last for *_, last, _ in said] != sorted(there):
        return f"the aborted transactions are out of order: {said}"
    for producer_id, first, marker, stable in own:
        found = there.pop(marker, None)
        if found is None:
            if marker >= log_start_offset and first is not None and first >= log_start_offset and is_complete:
                return (
                    f"the transaction of {producer_id} from {first}, aborted at {marker}, is not in the index: {said}"
                )
            continue
        is_known = first is not None and first >= log_start_offset
        if (
            found[0] != producer_id
            or (is_known and found[1] != first)
            or (log_start_offset == 0 and found[2] != stable)
        ):
            return f"the index says {found} at {marker}, the log says {(producer_id, first, stable)}"
    if there:
        return f"the index has transactions that the log does not abort: {there}"
    return None
