"""One partition's log: segments in a directory, appended at the end, read from anywhere.

Invariants
- Offsets only grow: every batch begins at or above the LEO at its append; the LEO is the last batch's next offset.
- What a batch changes beside the `.log` file (indexes, producers, LEO) changes after its write succeeded; a write that
  fails leaves the log as it was and is raised as StorageFault; where only room or descriptors were wanting, as
  StorageExhausted, and the log goes on (decision 0012).
- Record data is never copied or decoded on the way in: offsets and leader epoch are written into the caller's buffer,
  which goes to the file in one call.
- Everything below the recovery point is synced; what lies above is scanned after an unclean stop.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from barnabas.common.errors import ErrorCode, RequestFailed, StorageExhausted, StorageFault, is_exhausted
from barnabas.common.host import Buffer, Disk
from barnabas.common.log_config import LogConfig
from barnabas.common.types import TopicPartition
from barnabas.records.batch import BatchHeader, has_valid_crc, iter_headers
from barnabas.records.header import corrupt
from barnabas.records.validate import AppendRules, stamp, validate_for_append
from barnabas.storage import retention, time_search
from barnabas.storage.batch_file import NotCachedError
from barnabas.storage.cold_read import ColdRead, ReadRange, read_batches
from barnabas.storage.epochs import LeaderEpochCache
from barnabas.storage.producers import ProducerStateManager
from barnabas.storage.replay import note_producer, replay_producers
from barnabas.storage.segment import RollLimits, Segment
from barnabas.storage.segments import LogServices, Segments
from barnabas.storage.time_search import TimeSearch
from barnabas.storage.transactions import AbortedTxn

#: Positions of the last appends, so that a reader at the end needs no index.
_TAIL_POSITIONS_MAX = 256


class Origin(Enum):
    """Who appends as leader."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    RAFT = "raft"


class AppendInfo(NamedTuple):
    """What an append came to. For a repeated idempotent batch, the offsets that it got the first time."""

    first_offset: int
    last_offset: int
    #: -1 unless the topic has LogAppendTime; for a repeated batch its time stamp, whichever kind it is.
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool
    max_timestamp: int


class LogRead(NamedTuple):
    """Bytes from the batch that holds the asked offset on. The last batch may be cut off, as in Kafka's answers."""

    data: Buffer
    segment: Segment
    position: int
    #: (producer id, first offset) of the aborted transactions with records in `data`, if they were asked for.
    aborted: Sequence[tuple[int, int]] = ()


@dataclass(frozen=True, slots=True)
class LogParts:
    """What was found on disk when the log was opened."""

    segments: Segments
    epochs: LeaderEpochCache
    producers: ProducerStateManager
    log_start_offset: int
    log_end_offset: int
    recovery_point: int


class Log:
    """The log of one replica. The HW belongs to the replica; readers say how far they may see.

    Made by `storage.recovery.open_log`.
    """

    __slots__ = (
        "_config",
        "_limits",
        "_rules",
        "_services",
        "_tail_positions",
        "_truncations",
        "epochs",
        "last_flushed_ms",
        "log_end_offset",
        "log_start_offset",
        "on_rolled",
        "on_segments_deleted",
        "on_truncated",
        "producers",
        "recovery_point",
        "segments",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        services: LogServices,
        topic_partition: TopicPartition,
        topic_id: bytes,
        config: LogConfig,
        parts: LogParts,
    ) -> None:
        self._services = services
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.segments = parts.segments
        self.epochs = parts.epochs
        self.producers = parts.producers
        self.log_start_offset = parts.log_start_offset
        self.log_end_offset = parts.log_end_offset
        self.recovery_point = parts.recovery_point
        self.last_flushed_ms = services.wall_ms()
        self._tail_positions: dict[int, int] = {}
        self._truncations = 0
        #: Called with files renamed to `.deleted`; the manager removes them after `file.delete.delay.ms`.
        self.on_segments_deleted: Callable[[list[str]], None] = lambda files: _remove(services.disk, files)
        #: Called when a segment is full, to have it synced beside the loop.
        self.on_rolled: Callable[[], None] = _nothing
        #: Called when the recovery point went back, to have its checkpoint follow before anything is appended.
        self.on_truncated: Callable[[], None] = _nothing
        self.config = config

    @property
    def directory(self) -> str:
        return self.segments.directory

    @property
    def config(self) -> LogConfig:
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        self._rules = AppendRules(config, self.topic_partition)
        self._limits = RollLimits(config, self._services.pick_jitter(config.jitter_bound_ms))
        self.segments.active.is_index_full = None

    @property
    def size_bytes(self) -> int:
        return self.segments.size_bytes

    # -- appending

    def append_as_leader(
        self, batches: Buffer, leader_epoch: int, *, wall_ms: int, origin: Origin = Origin.CLIENT
    ) -> AppendInfo:
        """Append the one batch in `batches`, giving it its offsets. Writable memory is changed in place.

        Raises RecordsRejected, with nothing changed, or StorageFault.
        """
        from_client = origin is Origin.CLIENT
        valid = validate_for_append(batches, self._rules, wall_ms=wall_ms, from_client=from_client)
        header = valid.header
        if header.producer_id >= 0 and not header.is_control:
            repeated = self.producers.check(header, from_client=from_client)
            if repeated is not None:
                first = repeated.first_offset
                stamp_ms = repeated.timestamp
                return AppendInfo(first, repeated.last_offset, stamp_ms, self.log_start_offset, True, stamp_ms)
        first_offset = self.log_end_offset
        header, stamped = stamp(valid, first_offset, leader_epoch)
        if leader_epoch > self.epochs.latest_epoch:
            self.assign_epoch(leader_epoch, first_offset)
        self._append(header, stamped, wall_ms)
        return AppendInfo(
            first_offset,
            self.log_end_offset - 1,
            valid.log_append_time_ms,
            self.log_start_offset,
            False,
            header.max_timestamp,
        )

    def append_as_follower(self, batches: Buffer) -> AppendInfo | None:
        """Append batches as a leader made them, offsets and epochs kept; None if there is no whole one.

        Raises RecordsRejected for a broken batch; whole batches before it are kept.
        """
        view = memoryview(batches)
        first: int | None = None
        max_timestamp = -1
        wall_ms = self._services.wall_ms()
        for position, header in iter_headers(view):
            offset = header.base_offset
            if offset < self.log_end_offset:
                raise corrupt(f"batch at {offset} where {self.topic_partition} ends at {self.log_end_offset}")
            if not has_valid_crc(view, position, header):
                raise corrupt(f"the checksum of the batch at {offset} of {self.topic_partition} is wrong")
            if header.partition_leader_epoch > self.epochs.latest_epoch:
                self.assign_epoch(header.partition_leader_epoch, offset)
            self._append(header, view[position : position + header.size_bytes], wall_ms)
            first = offset if first is None else first
            max_timestamp = max(max_timestamp, header.max_timestamp)
        if first is None:
            return None
        return AppendInfo(first, self.log_end_offset - 1, -1, self.log_start_offset, False, max_timestamp)

    def _append(self, header: BatchHeader, batch: Buffer, wall_ms: int) -> None:
        base_offset, _, _, _, _, _, delta, _, max_timestamp, producer_id, _, _, _ = header
        segment = self.segments.active
        last_offset = base_offset + delta
        try:
            if segment.should_roll(self._limits, len(batch), last_offset, max_timestamp, wall_ms):
                segment = self.roll(base_offset)
            position = segment.size_bytes
            segment.append(batch, last_offset, max_timestamp, self._limits)
            if producer_id >= 0:
                note_producer(self.producers, header, batch, segment)
        except OSError as error:
            if error.errno == errno.EFBIG and segment.size_bytes:
                # No file may get longer than this one is: the batch may find its place in another.
                _roll_for_short_files(self, base_offset)
                self._append(header, batch, wall_ms)
                return
            raise _fault(self, "cannot append", error) from error
        tail = self._tail_positions
        tail[base_offset] = position
        if len(tail) > _TAIL_POSITIONS_MAX:
            for offset in list(tail)[: _TAIL_POSITIONS_MAX // 2]:
                del tail[offset]
        end_offset = last_offset + 1
        self.log_end_offset = self.producers.map_end_offset = end_offset
        if end_offset - self.recovery_point >= self._config.flush_messages:
            self.flush()

    def assign_epoch(self, epoch: int, start_offset: int) -> None:
        """A leader's term begins here (G3)."""
        self.epochs.assign(epoch, start_offset)

    def roll(self, next_offset: int | None = None) -> Segment:
        """Begin a new segment at the LEO or above, unless the active one is there and empty. Raises OSError."""
        base_offset = max(self.log_end_offset, next_offset or 0)
        active = self.segments.active
        if active.base_offset == base_offset and active.size_bytes == 0:
            # Its index is full or its time is over without a batch in it: begin it anew.
            active.begin_rebuild()
            active.created_ms = self._services.wall_ms()
            return active
        self.producers.map_end_offset = base_offset
        self.producers.take_snapshot(sync=False)
        segment = self.segments.add(base_offset)
        # Without room for a new segment, nothing has changed up to here, and smaller batches still go to the old one.
        active.become_inactive()
        active.release_index()
        # Its indexes were never synced: it does not count as such before they are.
        self.recovery_point = min(self.recovery_point, active.base_offset)
        self._tail_positions.clear()
        self._limits = RollLimits(self._config, self._services.pick_jitter(self._config.jitter_bound_ms))
        self.on_rolled()
        return segment

    # -- reading

    def read(self, offset: int, max_bytes: int, *, up_to: int, min_one_batch: bool = True) -> LogRead:
        """At most `max_bytes` (but one whole batch, if `min_one_batch`) from the batch with `offset` on.

        Records at or above `up_to` are left out. RequestFailed(OFFSET_OUT_OF_RANGE) outside of the log. It may wait for
        the disk.
        """
        if offset < self.log_start_offset or offset > self.log_end_offset:
            raise RequestFailed(ErrorCode.OFFSET_OUT_OF_RANGE)
        try:
            read = self._read(offset, max_bytes, up_to, min_one_batch)
        except OSError as error:
            raise _fault(self, "cannot read", error) from error
        assert isinstance(read, LogRead), "only a reader that does not wait is told so"
        return read

    def read_cached(
        self, offset: int, max_bytes: int, *, up_to: int, min_one_batch: bool = True, with_aborted: bool = False
    ) -> LogRead | ColdRead:
        """As `read`, without waiting for the disk: what memory has not got is to be loaded beside the loop, and then
        handed to `take`."""
        if offset < self.log_start_offset or offset > self.log_end_offset:
            raise RequestFailed(ErrorCode.OFFSET_OUT_OF_RANGE)
        try:
            read = self._read(offset, max_bytes, up_to, min_one_batch, cached=True, with_aborted=with_aborted)
            if not with_aborted or not isinstance(read, LogRead) or not read.data:
                return read
            aborted = self._aborted(offset, read, cached=True)
        except OSError as error:
            raise _fault(self, "cannot read", error) from error
        if aborted is not None:
            return read._replace(aborted=aborted)
        return self._freeze(read.segment, offset, max_bytes, up_to, min_one_batch, read.position, with_aborted=True)

    def take(self, cold: ColdRead) -> LogRead | ColdRead | None:
        """What was loaded; None if the log has changed so that it must be read again, and another one if there is more
        to load. Raises as `read`."""
        segments, segment, wanted = self.segments, cold.segment, cold.wanted
        place = segments.place_of(segment.base_offset)
        if segments[place] is not segment or segment.version != cold.version:
            return None
        error = cold.error
        if isinstance(error, OSError):
            if segment.log_path != cold.log_path or self._services.descriptors.relieve(error):
                return None
            raise _fault(self, "cannot read", error) from error
        if error is not None:
            raise error
        if wanted.offset < self.log_start_offset:
            raise RequestFailed(ErrorCode.OFFSET_OUT_OF_RANGE)
        cold.settle()
        if cold.position is None:
            if place + 1 == len(segments):
                return LogRead(b"", segment, segment.size_bytes)
            # Compaction left nothing at the end of this one.
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
        """The whole batches from the one with `offset` to the LEO, read in slices of about `max_bytes`."""
        while offset < self.log_end_offset:
            data = memoryview(self.read(offset, max_bytes, up_to=self.log_end_offset).data)
            before = offset
            for position, header in iter_headers(data):
                if header.next_offset > offset:
                    offset = header.next_offset
                    yield header, data[position : position + header.size_bytes]
            if offset == before:
                return

    def offset_for_timestamp(self, timestamp: int) -> tuple[int, int, int] | None:
        """(timestamp, offset, leader epoch) of the first record with at least this time, or None."""
        try:
            segments = self.segments.from_offset(self.log_start_offset)
            return time_search.first_at(segments, timestamp, self.log_start_offset)
        except OSError as error:
            raise _fault(self, "cannot read", error) from error

    def max_timestamp(self) -> tuple[int, int, int] | None:
        """(timestamp, offset, leader epoch) of the record with the largest timestamp, the first of them; or None."""
        try:
            return time_search.latest(self.segments.from_offset(self.log_start_offset), self.log_start_offset)
        except OSError as error:
            raise _fault(self, "cannot read", error) from error

    def search_time(self, timestamp: int | None) -> TimeSearch:
        """As `offset_for_timestamp`, or `max_timestamp` for None, to be done beside the loop and handed to `found`."""
        live = self.segments.from_offset(self.log_start_offset)
        return TimeSearch(self._services.disk, live, self.log_start_offset, timestamp)

    def found(self, search: TimeSearch) -> tuple[int, int, int] | None:
        """What it found. Raises NotCachedError if the log has changed so that it must be searched again."""
        log_start_offset = self.log_start_offset
        result = search.result
        if not search.is_current(self.segments) or (result is not None and result[1] < log_start_offset):
            raise NotCachedError
        error = search.error
        if isinstance(error, OSError):
            if self._services.descriptors.relieve(error):
                raise NotCachedError
            raise _fault(self, "cannot read", error) from error
        if error is not None:
            raise error
        search.settle()
        return result

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) as OffsetForLeaderEpoch answers; (-1, -1) if it is not known."""
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    def epoch_at(self, offset: int) -> int:
        """Leader epoch of the record at `offset`, -1 if it is not known."""
        epoch = self.epochs.epoch_for_offset(offset)
        return -1 if epoch is None else epoch

    def last_stable_offset(self, high_watermark: int) -> int:
        """Before which no transaction is undecided, as far as the HW."""
        producers = self.producers
        if producers.is_empty:
            return high_watermark
        producers.on_high_watermark(high_watermark)
        first = producers.first_unstable_offset
        return high_watermark if first is None else min(first, high_watermark)

    def aborted_transactions(self, offset: int, read: LogRead) -> list[tuple[int, int]]:
        """(producer id, first offset) of the aborted transactions with records in what was read."""
        try:
            return self._aborted(offset, read) or []
        except OSError as error:
            raise _fault(self, "cannot read", error) from error

    def _aborted(self, offset: int, read: LogRead, *, cached: bool = False) -> list[tuple[int, int]] | None:
        """None if it is to be `cached` and is not."""
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

    # -- shortening

    def truncate_to(self, offset: int) -> None:
        """Cut off everything at or above `offset` (a follower's divergence), and all of a batch that spans it. No-op at
        or above the LEO."""
        if offset >= self.log_end_offset:
            return
        if offset <= self.segments.bases[0]:
            self.truncate_fully_and_start_at(offset)
            return
        self._truncations += 1
        self._tail_positions.clear()
        try:
            # From the end, and each step sure before the next: what was cut off must not come back (G27), nor a part
            # of it without what was before it.
            self._drop([segment for segment in reversed(self.segments) if segment.base_offset > offset])
            self._services.disk.sync_dir(self.directory)
            first_cut = self.segments.active.truncate_to(offset)
            self.segments.active.file.sync()
            end_offset = offset if first_cut is None else min(offset, first_cut)
            self.log_end_offset = end_offset
            self.recovery_point = min(self.recovery_point, end_offset)
            self.log_start_offset = min(self.log_start_offset, end_offset)
            self.epochs.truncate_from_end(end_offset)
            self.epochs.persist()
            replay_producers(self.producers, self.segments, self.log_start_offset, end_offset, self._services.wall_ms())
            self.on_truncated()
        except OSError as error:
            raise _failure(self, "cannot truncate", error) from error

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Empty the log; the next record gets `offset`."""
        self._truncations += 1
        self._tail_positions.clear()
        try:
            self._drop(list(self.segments))
            self.segments.add(offset)
            self.log_start_offset = self.log_end_offset = self.recovery_point = offset
            self.epochs.clear()
            self.epochs.persist()
            self.producers.start_anew(offset)
            self.on_truncated()
        except OSError as error:
            raise _failure(self, "cannot truncate", error) from error

    def delete_records_before(self, offset: int) -> None:
        """Move the log start offset up (KIP-107); segments wholly below it go."""
        if offset <= self.log_start_offset:
            return
        assert offset <= self.log_end_offset, "log start above the LEO"
        self._move_log_start(offset)
        self.delete_old_segments(self._services.wall_ms(), high_watermark=offset, by_retention=False)

    def _move_log_start(self, offset: int) -> None:
        try:
            self.log_start_offset = offset
            self.epochs.truncate_from_start(offset)
            self.producers.on_log_start(offset)
        except OSError as error:
            raise _failure(self, "cannot move the log start offset", error) from error

    def delete_old_segments(self, wall_ms: int, *, high_watermark: int, by_retention: bool = True) -> int:
        """Delete leading segments by log start offset, and by `retention.ms` and `retention.bytes`. Returns how many.

        Nothing at or above the HW goes; if all goes, an empty segment begins at the LEO.
        """
        segments, config = self.segments, self._config
        try:
            doomed = retention.below_log_start(segments, self.log_start_offset)
            if by_retention and config.is_deletable:
                doomed = max(
                    doomed,
                    retention.expired(segments, config, wall_ms, self._services.disk),
                    retention.surplus(segments, config),
                )
            ends = [*segments.bases[1:], self.log_end_offset]
            while doomed and ends[doomed - 1] > high_watermark:
                doomed -= 1
            if not doomed:
                return 0
            if doomed == len(segments) and not _rolls(self):
                doomed -= 1
        except OSError as error:
            raise _fault(self, "cannot delete old segments", error) from error
        try:
            self._drop([segments[place] for place in range(doomed)])
        except OSError as error:
            raise _failure(self, "cannot delete old segments", error) from error
        if segments.bases[0] > self.log_start_offset:
            self._move_log_start(segments.bases[0])
        return doomed

    def _drop(self, victims: list[Segment]) -> None:
        if not victims:
            return
        files = self.segments.drop(victims)
        if self.segments.bases:
            self.producers.delete_snapshots_before(self.segments.bases[0])
        self.on_segments_deleted(files)

    # -- life

    def flush(self) -> None:
        """fsync everything; the recovery point is the LEO then."""
        end = self.log_end_offset
        if end <= self.recovery_point:
            return
        try:
            unsynced = self.segments.from_offset(self.recovery_point)
            for segment in unsynced:
                segment.flush(with_indexes=segment is not self.segments.active)
            if unsynced[-1].base_offset >= self.recovery_point:
                self._services.disk.sync_dir(self.directory)
            if not self._persist_epochs():
                return
        except OSError as error:
            raise _fault(self, "cannot flush", error) from error
        self.recovery_point = end
        self.last_flushed_ms = self._services.wall_ms()

    def _persist_epochs(self) -> bool:
        """Before the recovery point moves; False if there is no room for it. Raises OSError."""
        try:
            self.epochs.persist()
        except OSError as error:
            if not is_exhausted(error):
                raise
            return False
        return True

    def sync_job(self, end_offset: int) -> tuple[Callable[[], None], Callable[[], None]]:
        """To sync what is below `end_offset` beside the loop: work that touches nothing but files, and what to call on
        the loop when it succeeded."""
        disk, directory, truncations = self._services.disk, self.directory, self._truncations
        paths: list[str] = []
        try:
            for segment in self.segments.from_offset(self.recovery_point):
                if segment.base_offset < end_offset:
                    paths += segment.write_out()
            are_epochs_sure = self._persist_epochs()
        except OSError as error:
            raise _fault(self, "cannot flush", error) from error

        def succeeded() -> None:
            if are_epochs_sure and truncations == self._truncations and end_offset > self.recovery_point:
                self.recovery_point = end_offset
                self.last_flushed_ms = self._services.wall_ms()

        return lambda: _sync_files(disk, directory, paths), succeeded

    def close(self, *, clean: bool) -> None:
        """Release everything; a clean stop also syncs, completes the time index and takes a producer snapshot."""
        try:
            if clean:
                active = self.segments.active
                active.become_inactive()
                self.epochs.persist()
                self.flush()
                # Also where all records are synced already: the mark of a clean stop lets the indexes be trusted.
                active.index.sync()
                active.time_index.sync()
                self.producers.map_end_offset = self.log_end_offset
                self.producers.take_snapshot(sync=False)
        except OSError as error:
            raise _fault(self, "cannot close", error) from error
        finally:
            self.segments.release()

    def renamed(self, directory: str) -> None:
        """Its directory has another name now."""
        self.segments.release()
        self.segments.moved(directory)
        self.epochs.directory = directory
        self.producers.snapshots.directory = directory


def _remove(disk: Disk, files: list[str]) -> None:
    for path in files:
        disk.remove(path)


def _sync_files(disk: Disk, directory: str, paths: list[str]) -> None:
    for path in paths:
        try:
            file = disk.open(path, read_only=True)
        except FileNotFoundError:
            continue  # deleted or renamed since
        try:
            file.sync()
        finally:
            file.close()
    if disk.exists(directory):
        disk.sync_dir(directory)


def _roll_for_short_files(log: Log, next_offset: int) -> None:
    try:
        log.roll(next_offset)
    except OSError as error:
        raise _fault(log, "cannot begin a new segment", error) from error


def _rolls(log: Log) -> bool:
    """Begin a new segment if there is room for one."""
    try:
        log.roll()
    except OSError as error:
        if not is_exhausted(error):
            raise
        return False
    return True


def _fault(log: Log, what: str, error: OSError) -> StorageFault:
    """For what has changed nothing when it is given up for want of room or descriptors."""
    kind = StorageExhausted if is_exhausted(error) else StorageFault
    return kind(log.directory.rpartition("/")[0], f"{log.topic_partition}: {what}: {error}")


def _failure(log: Log, what: str, error: OSError) -> StorageFault:
    """For what may be half done, for whatever cause."""
    return StorageFault(log.directory.rpartition("/")[0], f"{log.topic_partition}: {what}: {error}")


def _nothing() -> None:
    return None
