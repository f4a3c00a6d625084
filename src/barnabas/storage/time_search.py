"""Search for the first record with a timestamp, or for the latest record, over the segments of a log.

A search reads the time index of each segment whose timestamps are not known yet, and decodes the batch that it finds:
this takes time even if nothing waits for the disk. So it runs in a thread, on segments as they were at its start
(`TimeSearch`), and its result is valid only if the log is still the one that was searched (`LogReader.found`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter

from barnabas.common.errors import RecordsRejected, without_frames
from barnabas.common.host import Buffer, Disk
from barnabas.records.batch import decode_batch
from barnabas.records.header import NO_TIMESTAMP, BatchHeader
from barnabas.records.record import Record
from barnabas.storage.cold_read import FrozenSegment
from barnabas.storage.segment import Segment
from barnabas.storage.segments import Segments

_TIMESTAMP_MAX = (1 << 63) - 1
#: timestamp, offset, leader epoch
Found = tuple[int, int, int]


def first_at(segments: Iterable[Segment], timestamp: int, log_start_offset: int) -> Found | None:
    """Returns the first record at or above the log start with at least this timestamp."""
    for segment in segments:
        if segment.largest_timestamp()[0] >= timestamp:
            found = _first_in(segment, timestamp, log_start_offset)
            if found is not None:
                return found
    return None


def latest(segments: Iterable[Segment], log_start_offset: int) -> Found | None:
    """Returns the first record with the largest timestamp. If it cannot be read, the timestamp in its batch's header is
    returned with the last offset of the batch."""
    return _latest([(each, each.largest_timestamp()[0]) for each in segments], log_start_offset)


def _latest(tops: list[tuple[Segment, int]], log_start_offset: int) -> Found | None:
    """Does the work of `latest` for segments with their largest timestamps."""
    segment, largest = max(tops, key=itemgetter(1), default=(None, NO_TIMESTAMP))
    if segment is None or not segment.size_bytes:
        return None
    found = _first_in(segment, largest, log_start_offset)
    if found is None and largest >= 0:
        found = _claimed_in(segment, largest, log_start_offset)
    if found is None and segment.base_offset < log_start_offset:
        # The record with the largest timestamp is below the log start.
        left = _largest_from(segment, log_start_offset)
        if left < largest:
            return _latest([(each, left if each is segment else top) for each, top in tops], log_start_offset)
    return found


def _largest_from(segment: Segment, from_offset: int) -> int:
    """Returns the largest timestamp of the segment's records at or above `from_offset`; -1 if there is none."""
    largest = NO_TIMESTAMP
    for at, header in segment.headers_from_time(NO_TIMESTAMP, from_offset):
        if header.base_offset >= from_offset:
            largest = max(largest, header.max_timestamp)
        elif header.last_offset >= from_offset:
            records = _readable_records(segment.read(at, header.size_bytes), header)
            largest = max([largest, *(record.timestamp for record in records if record.offset >= from_offset)])
    return largest


def _first_in(segment: Segment, timestamp: int, from_offset: int) -> Found | None:
    """Returns the segment's first record at or above `from_offset` with at least this timestamp. A batch with
    unreadable records is skipped, because no reader gets them either."""
    for at, header in segment.headers_from_time(timestamp, from_offset):
        if header.max_timestamp < timestamp or header.last_offset < from_offset:
            continue
        for record in _readable_records(segment.read(at, header.size_bytes), header):
            if record.timestamp >= timestamp and record.offset >= from_offset:
                return record.timestamp, record.offset, header.partition_leader_epoch
    return None


def _claimed_in(segment: Segment, timestamp: int, from_offset: int) -> Found | None:
    """Returns (timestamp, last offset, leader epoch) of the segment's first batch that reaches `from_offset` and whose
    header has this largest timestamp although none of its readable records has it; None if there is no such batch."""
    for at, header in segment.headers_from_time(timestamp, from_offset):
        if header.max_timestamp == timestamp and header.last_offset >= from_offset:
            records = _readable_records(segment.read(at, header.size_bytes), header)
            if all(record.timestamp != timestamp for record in records):
                return timestamp, header.last_offset, header.partition_leader_epoch
    return None


def _readable_records(batch: Buffer, header: BatchHeader) -> Sequence[Record]:
    """Returns the batch's records; none if they are unreadable, or if one is outside the batch's offsets or has an
    impossible timestamp."""
    try:
        records = decode_batch(batch)
    except RecordsRejected:
        return ()
    low, high = header.base_offset, header.last_offset
    if all(low <= record.offset <= high and record.timestamp <= _TIMESTAMP_MAX for record in records):
        return records
    return ()


class TimeSearch:
    """A search that runs in the background; its `result` is set by `load`."""

    __slots__ = ("_disk", "_learned", "_log_start_offset", "_opened", "_segments", "_timestamp", "error", "result")

    def __init__(self, disk: Disk, segments: Sequence[Segment], log_start_offset: int, timestamp: int | None) -> None:
        """Prepares a search for the first record with this timestamp, or for the latest record if it is None."""
        self._disk = disk
        self._log_start_offset = log_start_offset
        self._timestamp = timestamp
        self._segments = [(s, s.version, s.size_bytes, s.known_timestamp) for s in segments]
        self._learned: list[tuple[Segment, int, tuple[int, int]]] = []
        self._opened: list[Segment] = []
        self.result: Found | None = None
        self.error: OSError | RecordsRejected | None = None

    def is_plain(self) -> bool:
        """Returns whether it is known, without reading any file, that no such record exists."""
        wanted = self._timestamp
        return wanted is not None and all(known is not None and known[0] < wanted for *_, known in self._segments)

    def load(self) -> None:
        """Executes the search, waiting for the disk."""
        try:
            if self._timestamp is None:
                self.result = latest(self._frozen(), self._log_start_offset)
            else:
                self.result = first_at(self._frozen(), self._timestamp, self._log_start_offset)
        except (OSError, RecordsRejected) as error:
            self.error = without_frames(error)
        finally:
            for segment in self._opened:
                segment.release()

    def _frozen(self) -> Iterator[Segment]:
        """Yields the segments one after the other. Each is closed when the next one is requested, and opens again when
        it is read."""
        for live, _, size_bytes, known in self._segments:
            segment = FrozenSegment(self._disk, live, size_bytes)
            self._opened.append(segment)
            if known is not None or size_bytes == 0:
                segment.set_largest_timestamp(*(known or (-1, live.base_offset)))
            try:
                yield segment
            finally:
                segment.release()
                if known is None and segment.known_timestamp is not None:
                    self._learned.append((live, size_bytes, segment.known_timestamp))

    def is_current(self, segments: Segments) -> bool:
        """Returns whether everything that was searched is still there and unchanged."""
        return all(
            segments[segments.place_of(live.base_offset)] is live and live.version == version
            for live, version, *_ in self._segments
        )

    def share_timestamps(self) -> None:
        """Passes the timestamps that were read to the segments, so that they are not read again."""
        for live, size_bytes, known in self._learned:
            if live.size_bytes == size_bytes and live.known_timestamp is None:
                live.set_largest_timestamp(*known)
