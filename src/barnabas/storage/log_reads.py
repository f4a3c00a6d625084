"""Reading of a log by offset and by time: on the loop if the data is in memory, otherwise in the background.

`Log` is a `LogReader` that is also written. Nothing here changes the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, ParamSpec, TypeVar

from barnabas.common.errors import ErrorCode, RequestFailed, StorageExhausted, StorageFault, is_exhausted
from barnabas.common.host import Buffer
from barnabas.common.types import TopicPartition
from barnabas.records.batch import BatchHeader, iter_headers
from barnabas.storage import time_search
from barnabas.storage.batch_file import NotCachedError
from barnabas.storage.cold_read import ColdRead, ReadRange, read_batches
from barnabas.storage.recovery.lost_offsets import Hole, hole_at
from barnabas.storage.segment import Segment
from barnabas.storage.segments import LogServices, Segments
from barnabas.storage.time_search import TimeSearch
from barnabas.storage.transaction_index import AbortedTxn

_P = ParamSpec("_P")
_T = TypeVar("_T")


class LogRead(NamedTuple):
    """Bytes from the batch with the requested offset on. The last batch can be cut off, as in Kafka's responses."""

    data: Buffer
    segment: Segment
    position: int
    #: (producer id, first offset) of the aborted transactions with records in `data`, if requested.
    aborted: Sequence[tuple[int, int]] = ()


class LogReader:
    """The part of a log that is needed to read it."""

    __slots__ = (
        "_services",
        "_tail_positions",
        "holes",
        "log_end_offset",
        "log_start_offset",
        "segments",
        "topic_partition",
    )

    _services: LogServices
    #: The positions of the last appends, so that a reader at the end needs no index.
    _tail_positions: dict[int, int]
    #: Ranges of lost offsets; reading one of them fails with CORRUPT_MESSAGE.
    holes: tuple[Hole, ...]
    log_end_offset: int
    log_start_offset: int
    segments: Segments
    topic_partition: TopicPartition

    @property
    def directory(self) -> str:
        return self.segments.directory

    def read(self, offset: int, max_bytes: int, *, up_to: int, min_one_batch: bool = True) -> LogRead:
        """Reads at most `max_bytes` from the batch with `offset` on, but one complete batch if `min_one_batch`.

        Records at or above `up_to` are left out. Raises RequestFailed(OFFSET_OUT_OF_RANGE) outside the log. Can wait
        for the disk.
        """
        if offset < self.log_start_offset or offset > self.log_end_offset:
            raise RequestFailed(ErrorCode.OFFSET_OUT_OF_RANGE)
        if self.holes:
            self._check_not_lost(offset)
        read = self._with_descriptors(self._read, offset, max_bytes, up_to, min_one_batch)
        assert isinstance(read, LogRead), "a read that waits returns data"
        return read

    def _check_not_lost(self, offset: int) -> None:
        hole = hole_at(self.holes, offset)
        if hole is not None:
            text = f"the records {hole.text} of {self.topic_partition} are lost: continue at offset {hole.end}"
            raise RequestFailed(ErrorCode.CORRUPT_MESSAGE, text)

    def skip_hole(self, offset: int) -> int:
        """Returns the first offset from `offset` on that was not lost."""
        hole = hole_at(self.holes, offset)
        return offset if hole is None else hole.end

    def read_cached(
        self, offset: int, max_bytes: int, *, up_to: int, min_one_batch: bool = True, with_aborted: bool = False
    ) -> LogRead | ColdRead:
        """Reads as `read` does, without waiting for the disk. Returns a ColdRead if data is not in memory: it is to be
        loaded in the background and then passed to `take`."""
        if offset < self.log_start_offset or offset > self.log_end_offset:
            raise RequestFailed(ErrorCode.OFFSET_OUT_OF_RANGE)
        if self.holes:
            self._check_not_lost(offset)
        return self._with_descriptors(self._read_cached, offset, max_bytes, up_to, min_one_batch, with_aborted)

    def take(self, cold: ColdRead) -> LogRead | ColdRead | None:
        """Returns the loaded data. Returns None if the log has changed so that it must be read again; another ColdRead
        if there is more to load. Raises as `read` does."""
        segments, segment, wanted = self.segments, cold.segment, cold.wanted
        place = segments.place_of(segment.base_offset)
        if segments[place] is not segment or segment.version != cold.version:
            return None
        error = cold.error
        if isinstance(error, OSError):
            if segment.log_path != cold.log_path or self._services.descriptors.close_least_used(error):
                return None
            raise fault(self, "cannot read", error) from error
        if error is not None:
            raise error
        if wanted.offset < self.log_start_offset:
            raise RequestFailed(ErrorCode.OFFSET_OUT_OF_RANGE)
        cold.share_indexes()
        if cold.position is None:
            if place + 1 == len(segments):
                return LogRead(b"", segment, segment.size_bytes)
            # Compaction left nothing at the end of this segment.
            return self.read_cached(
                segments.bases[place + 1],
                wanted.max_bytes,
                up_to=wanted.up_to,
                min_one_batch=wanted.min_one_batch,
                with_aborted=cold.with_aborted,
            )
        read = LogRead(cold.data, segment, cold.position)
        if not cold.with_aborted or not read.data:
            return read
        aborted = self._aborted(wanted.offset, read, cached=True)
        return None if aborted is None else read._replace(aborted=aborted)

    def _freeze(
        self,
        segment: Segment,
        offset: int,
        max_bytes: int,
        up_to: int,
        min_one_batch: bool,
        position: int | None,
        *,
        with_aborted: bool,
    ) -> ColdRead:
        later = self.segments.from_offset(segment.base_offset)
        ends_here = up_to < self.log_end_offset and (len(later) == 1 or up_to < later[1].base_offset)
        wanted = ReadRange(offset, max_bytes, up_to, ends_here, min_one_batch)
        return ColdRead(self._services.disk, segment, wanted, position, later if with_aborted else None)

    def _with_descriptors(self, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Runs `work`, and runs it again after closing files if no descriptor was free: an index needs one for a
        moment.
        """
        try:
            return work(*args, **kwargs)
        except OSError as error:
            if not self._services.descriptors.close_least_used(error):
                raise fault(self, "cannot read", error) from error
        try:
            return work(*args, **kwargs)
        except OSError as error:
            raise fault(self, "cannot read", error) from error

    def _read_cached(
        self, offset: int, max_bytes: int, up_to: int, min_one_batch: bool, with_aborted: bool
    ) -> LogRead | ColdRead:
        read = self._read(offset, max_bytes, up_to, min_one_batch, cached=True, with_aborted=with_aborted)
        if not with_aborted or not isinstance(read, LogRead) or not read.data:
            return read
        aborted = self._aborted(offset, read, cached=True)
        if aborted is not None:
            return read._replace(aborted=aborted)
        return self._freeze(read.segment, offset, max_bytes, up_to, min_one_batch, read.position, with_aborted=True)

    def _read(
        self,
        offset: int,
        max_bytes: int,
        up_to: int,
        min_one_batch: bool,
        *,
        cached: bool = False,
        with_aborted: bool = False,
    ) -> LogRead | ColdRead:
        segments = self.segments
        segment = segments.active
        place = last = len(segments) - 1
        tail = self._tail_positions
        position = tail.get(offset)
        try:
            if position is None:
                place = segments.place_of(offset)
                segment = segments[place]
                position = segment.locate(offset, cached=cached)
                while position is None:
                    if place == last:
                        return LogRead(b"", segment, segment.size_bytes)
                    place += 1
                    segment = segments[place]
                    position = segment.locate(offset, cached=cached)
            end = segment.size_bytes
            if up_to < self.log_end_offset and (place == last or up_to < segments.bases[place + 1]):
                bound = tail.get(up_to) if place == last else None
                if bound is None:
                    bound = segment.locate(up_to, cached=cached)
                if bound is not None:
                    end = bound
            if position >= end:
                return LogRead(b"", segment, position)
            data = read_batches(segment, position, end, max_bytes, min_one_batch, cached=cached)
        except NotCachedError:
            return self._freeze(segment, offset, max_bytes, up_to, min_one_batch, position, with_aborted=with_aborted)
        return LogRead(data, segment, position)

    def batches(self, offset: int, max_bytes: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Yields the complete batches from the one with `offset` to the LEO, read in slices of about `max_bytes`."""
        while offset < self.log_end_offset:
            if self.holes:
                offset = self.skip_hole(offset)
            data = memoryview(self.read(offset, max_bytes, up_to=self.log_end_offset).data)
            before = offset
            for position, header in iter_headers(data):
                if header.next_offset > offset:
                    offset = header.next_offset
                    yield header, data[position : position + header.size_bytes]
            if offset == before:
                return

    def offset_for_timestamp(self, timestamp: int) -> tuple[int, int, int] | None:
        """Returns (timestamp, offset, leader epoch) of the first record with at least this timestamp, or None."""
        start = self.log_start_offset
        return self._with_descriptors(time_search.first_at, self.segments.from_offset(start), timestamp, start)

    def max_timestamp(self) -> tuple[int, int, int] | None:
        """Returns (timestamp, offset, leader epoch) of the first record with the largest timestamp, or None."""
        start = self.log_start_offset
        return self._with_descriptors(time_search.latest, self.segments.from_offset(start), start)

    def search_time(self, timestamp: int | None) -> TimeSearch:
        """Prepares `offset_for_timestamp`, or `max_timestamp` for None, to be run in the background and passed to
        `found`."""
        live = self.segments.from_offset(self.log_start_offset)
        return TimeSearch(self._services.disk, live, self.log_start_offset, timestamp)

    def found(self, search: TimeSearch) -> tuple[int, int, int] | None:
        """Returns the result of a search. Raises NotCachedError if the log has changed so that it must be searched
        again."""
        log_start_offset = self.log_start_offset
        result = search.result
        if not search.is_current(self.segments) or (result is not None and result[1] < log_start_offset):
            raise NotCachedError
        error = search.error
        if isinstance(error, OSError):
            if self._services.descriptors.close_least_used(error):
                raise NotCachedError
            raise fault(self, "cannot read", error) from error
        if error is not None:
            raise error
        search.share_timestamps()
        return result

    def aborted_transactions(self, offset: int, read: LogRead) -> list[tuple[int, int]]:
        """Returns (producer id, first offset) of the aborted transactions with records in the data that was read."""
        return self._with_descriptors(self._aborted, offset, read) or []

    def _aborted(self, offset: int, read: LogRead, *, cached: bool = False) -> list[tuple[int, int]] | None:
        """Returns the aborted transactions; None if `cached` and an index is not in memory."""
        end = -1
        found: list[AbortedTxn] = []
        for segment in self.segments.from_offset(read.segment.base_offset):
            entries = segment.txn_index.cached_entries() if cached else segment.txn_index.entries()
            if entries is None:
                return None
            if not entries:
                continue
            if end < 0:
                for _, header in iter_headers(memoryview(read.data)):
                    end = header.next_offset
            found += [aborted for aborted in entries if aborted.last_offset >= offset and aborted.first_offset < end]
            if entries[-1].last_stable_offset >= end:
                break
        return [(entry.producer_id, entry.first_offset) for entry in found]


def fault(log: LogReader, what: str, error: OSError) -> StorageFault:
    """Returns the fault for an OSError of an operation that changed nothing: StorageExhausted if space or descriptors
    ran out, else StorageFault.
    """
    kind = StorageExhausted if is_exhausted(error) else StorageFault
    return kind(log.directory.rpartition("/")[0], f"{log.topic_partition}: {what}: {error}")
