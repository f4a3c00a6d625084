"""One partition's log: segments in a directory, appended at the end, read from anywhere.

Invariants
- Offsets only grow: every batch begins at or above the LEO at its append; the LEO is the last batch's next offset.
- What a batch changes beside the `.log` file (indexes, producers, epochs, LEO) changes after its write succeeded; a
  write that fails leaves the log as it was and is raised as StorageFault.
- Record data is never copied or decoded on the way in: offsets and leader epoch are written into the caller's buffer,
  which goes to the file in one call.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from enum import Enum
from typing import NamedTuple

from barnabas.common.errors import ErrorCode, RequestFailed, StorageFault
from barnabas.common.host import Buffer, Disk
from barnabas.common.log_config import LogConfig
from barnabas.common.types import TopicPartition
from barnabas.records.batch import BatchHeader, decode_batch, has_valid_crc, iter_headers, read_end_txn_marker
from barnabas.records.header import corrupt
from barnabas.records.validate import AppendRules, stamp, validate_for_append
from barnabas.storage.epochs import LeaderEpochCache
from barnabas.storage.producers import ProducerStateManager
from barnabas.storage.segment import Segment
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
    #: -1 unless the topic has LogAppendTime.
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool
    max_timestamp: int


class LogRead(NamedTuple):
    """Bytes from the batch that holds the asked offset on. The last batch may be cut off, as in Kafka's answers."""

    data: bytes
    segment: Segment
    position: int


class Log:
    """The log of one replica. The HW belongs to the replica; readers say how far they may see.

    Made by `storage.recovery.open_log`; `segments` are in order and never empty, the last one is appended to.
    """

    __slots__ = (
        "_bases",
        "_config",
        "_disk",
        "_jitter_ms",
        "_new_segment",
        "_pick_jitter",
        "_rules",
        "_tail_positions",
        "_wall_ms",
        "directory",
        "epochs",
        "last_flushed_ms",
        "log_end_offset",
        "log_start_offset",
        "on_segments_deleted",
        "producers",
        "recovery_point",
        "segments",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        topic_partition: TopicPartition,
        topic_id: bytes,
        config: LogConfig,
        segments: list[Segment],
        epochs: LeaderEpochCache,
        producers: ProducerStateManager,
        *,
        log_start_offset: int,
        log_end_offset: int,
        recovery_point: int,
        wall_ms: Callable[[], int],
        pick_jitter: Callable[[int], int],
        new_segment: Callable[[int], Segment],
    ) -> None:
        self._disk = disk
        self._wall_ms = wall_ms
        self._pick_jitter = pick_jitter
        self._new_segment = new_segment
        self.directory = directory
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.segments = segments
        self._bases = [segment.base_offset for segment in segments]
        self.epochs = epochs
        self.producers = producers
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.recovery_point = recovery_point
        self.last_flushed_ms = wall_ms()
        self._tail_positions: dict[int, int] = {}
        self._jitter_ms = pick_jitter(config.jitter_bound_ms)
        #: Called with files renamed to `.deleted`; the manager removes them after `file.delete.delay.ms`.
        self.on_segments_deleted: Callable[[list[str]], None] = self._remove_files
        self.config = config

    @property
    def config(self) -> LogConfig:
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        self._rules = AppendRules(config, self.topic_partition)

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)

    # -- appending

    def append_as_leader(
        self, batches: Buffer, leader_epoch: int, *, wall_ms: int, origin: Origin = Origin.CLIENT
    ) -> AppendInfo:
        """Append the one batch in `batches`, giving it its offsets. Writable memory is changed in place.

        Raises RecordsRejected, with nothing changed, or StorageFault.
        """
        from_client = origin is Origin.CLIENT
        valid = validate_for_append(batches, self._rules, wall_ms=wall_ms, from_client=from_client)
        producers = self.producers
        if valid.header.producer_id >= 0 and not valid.header.is_control:
            repeated = producers.check(valid.header, from_client=from_client)
            if repeated is not None:
                first = repeated.first_offset
                return AppendInfo(first, repeated.last_offset, -1, self.log_start_offset, True, repeated.timestamp)
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
        wall_ms = self._wall_ms()
        for position, header in iter_headers(view):
            if header.base_offset < self.log_end_offset:
                raise corrupt(
                    f"batch at {header.base_offset} where {self.topic_partition} ends at {self.log_end_offset}"
                )
            if not has_valid_crc(view, position, header):
                raise corrupt(f"the checksum of the batch at {header.base_offset} of {self.topic_partition} is wrong")
            if header.partition_leader_epoch > self.epochs.latest_epoch:
                self.assign_epoch(header.partition_leader_epoch, header.base_offset)
            self._append(header, view[position : position + header.size_bytes], wall_ms)
            first = header.base_offset if first is None else first
            max_timestamp = max(max_timestamp, header.max_timestamp)
        if first is None:
            return None
        return AppendInfo(first, self.log_end_offset - 1, -1, self.log_start_offset, False, max_timestamp)

    def _append(self, header: BatchHeader, batch: Buffer, wall_ms: int) -> None:
        segment = self.segments[-1]
        last_offset = header.base_offset + header.last_offset_delta
        try:
            if segment.should_roll(
                self._config, len(batch), last_offset, header.max_timestamp, wall_ms, self._jitter_ms
            ):
                segment = self.roll(header.base_offset)
            position = segment.size_bytes
            segment.append(batch, last_offset, header.max_timestamp, self._config.index_interval_bytes)
        except OSError as error:
            raise self._fault("cannot append", error) from error
        tail = self._tail_positions
        tail[header.base_offset] = position
        if len(tail) > _TAIL_POSITIONS_MAX:
            for offset in list(tail)[: _TAIL_POSITIONS_MAX // 2]:
                del tail[offset]
        producers = self.producers
        if header.producer_id >= 0:
            self.note_producer(header, batch, segment)
        self.log_end_offset = producers.map_end_offset = last_offset + 1
        if last_offset + 1 - self.recovery_point >= self._config.flush_messages:
            self.flush()

    def note_producer(self, header: BatchHeader, batch: Buffer, segment: Segment) -> None:
        """Take a producer's batch into the state; the marker of an aborted transaction into the index too."""
        if not header.is_control:
            self.producers.update(header)
            return
        for record in decode_batch(batch):
            marker = read_end_txn_marker(record)
            if marker is None:
                continue
            ended = self.producers.apply_marker(header, marker, record.timestamp)
            if ended is not None and ended.is_aborted:
                segment.txn_index.append(
                    AbortedTxn(ended.producer_id, ended.first_offset, ended.last_offset, ended.last_stable_offset)
                )

    def assign_epoch(self, epoch: int, start_offset: int) -> None:
        """A leader's term begins here (G3)."""
        try:
            self.epochs.assign(epoch, start_offset)
        except OSError as error:
            raise self._fault("cannot write the leader epoch checkpoint", error) from error

    def roll(self, next_offset: int | None = None) -> Segment:
        """Begin a new segment at the LEO, unless the active one is there and empty."""
        base_offset = max(self.log_end_offset, next_offset or 0)
        active = self.active
        if active.base_offset == base_offset and active.size_bytes == 0:
            # Its index is full or its time is over without a batch in it: begin it anew.
            active.restart(self._wall_ms())
            return active
        active.become_inactive()
        self.producers.map_end_offset = base_offset
        self.producers.take_snapshot(sync=False)
        segment = self._new_segment(base_offset)
        segment.create()
        self.segments.append(segment)
        self._bases.append(base_offset)
        self._tail_positions.clear()
        self._jitter_ms = self._pick_jitter(self._config.jitter_bound_ms)
        active.release_index()
        return segment

    # -- reading

    def read(self, offset: int, max_bytes: int, *, up_to: int, min_one_batch: bool = True) -> LogRead:
        """At most `max_bytes` (but one whole batch, if `min_one_batch`) from the batch with `offset` on.

        Records at or above `up_to` are left out. RequestFailed(OFFSET_OUT_OF_RANGE) outside of the log.
        """
        if offset < self.log_start_offset or offset > self.log_end_offset:
            raise RequestFailed(ErrorCode.OFFSET_OUT_OF_RANGE)
        try:
            return self._read(offset, max_bytes, up_to, min_one_batch)
        except OSError as error:
            raise self._fault("cannot read", error) from error

    def _read(self, offset: int, max_bytes: int, up_to: int, min_one_batch: bool) -> LogRead:
        place = bisect_right(self._bases, offset) - 1
        segments = self.segments
        last = len(segments) - 1
        position = self._tail_positions.get(offset) if place == last else None
        segment = segments[place]
        while position is None:
            position = segment.locate(offset)
            if position is None:
                if place == last:
                    return LogRead(b"", segment, segment.size_bytes)
                place += 1
                segment = segments[place]
        end = segment.size_bytes
        if up_to < self.log_end_offset and (place == last or up_to < segments[place + 1].base_offset):
            bound = segment.locate(up_to)
            end = end if bound is None else bound
        size = min(max_bytes, end - position)
        if size < 61 and min_one_batch and end > position:
            size = min(61, end - position)
        data = segment.read(position, size) if size > 0 else b""
        if min_one_batch and 12 <= len(data) < end - position:
            whole = 12 + int.from_bytes(data[8:12], "big")
            if whole > len(data):
                data = segment.read(position, min(whole, end - position))
        elif not min_one_batch and len(data) >= 12 and 12 + int.from_bytes(data[8:12], "big") > len(data):
            data = b""
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
            for segment in self.segments:
                if segment.largest_timestamp()[0] >= timestamp:
                    found = segment.find_timestamp(timestamp, self.log_start_offset)
                    if found is not None:
                        return found
        except OSError as error:
            raise self._fault("cannot read", error) from error
        return None

    def max_timestamp(self) -> tuple[int, int, int] | None:
        """(timestamp, offset, leader epoch) of the record with the largest timestamp, the first of them; or None."""
        best: Segment | None = None
        for segment in self.segments:
            if segment.size_bytes and (best is None or segment.largest_timestamp()[0] > best.largest_timestamp()[0]):
                best = segment
        if best is None:
            return None
        return best.find_timestamp(best.largest_timestamp()[0], self.log_start_offset)

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
        end = self._end_offset_of(read)
        found: list[AbortedTxn] = []
        for segment in self.segments[bisect_right(self._bases, read.segment.base_offset) - 1 :]:
            for aborted in segment.txn_index.entries():
                if aborted.last_offset >= offset and aborted.first_offset < end:
                    found.append(aborted)
                if aborted.last_stable_offset >= end:
                    return [(entry.producer_id, entry.first_offset) for entry in found]
        return [(entry.producer_id, entry.first_offset) for entry in found]

    def _end_offset_of(self, read: LogRead) -> int:
        end = read.segment.base_offset
        for _, header in iter_headers(memoryview(read.data)):
            end = header.next_offset
        return end

    # -- shortening

    def truncate_to(self, offset: int) -> None:
        """Cut off everything at or above `offset` (a follower's divergence). No-op at or above the LEO."""
        if offset >= self.log_end_offset:
            return
        if offset <= self._bases[0]:
            self.truncate_fully_and_start_at(offset)
            return
        try:
            doomed = [segment for segment in self.segments if segment.base_offset > offset]
            self._drop(doomed)
            self.active.truncate_to(offset)
        except OSError as error:
            raise self._fault("cannot truncate", error) from error
        self._tail_positions.clear()
        self.log_end_offset = offset
        self.recovery_point = min(self.recovery_point, offset)
        self.log_start_offset = min(self.log_start_offset, offset)
        self.epochs.truncate_from_end(offset)
        self.rebuild_producers()

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Empty the log; the next record gets `offset`."""
        try:
            fresh = self._new_segment(offset)
            self._drop(list(self.segments))
            fresh.create()
        except OSError as error:
            raise self._fault("cannot truncate", error) from error
        self.segments = [fresh]
        self._bases = [offset]
        self._tail_positions.clear()
        self.log_start_offset = self.log_end_offset = self.recovery_point = offset
        self.epochs.clear()
        self.producers.start_anew(offset)

    def delete_records_before(self, offset: int) -> None:
        """Move the log start offset up (KIP-107); segments wholly below it go."""
        if offset <= self.log_start_offset:
            return
        assert offset <= self.log_end_offset, "log start above the LEO"
        self.log_start_offset = offset
        self.epochs.truncate_from_start(offset)
        self.producers.on_log_start(offset)
        self.delete_old_segments(self._wall_ms(), high_watermark=self.log_end_offset, by_retention=False)

    def delete_old_segments(self, wall_ms: int, *, high_watermark: int, by_retention: bool = True) -> int:
        """Delete leading segments by log start offset, and by `retention.ms` and `retention.bytes`. Returns how many.

        Nothing at or above the HW goes; if all goes, an empty segment begins at the LEO.
        """
        doomed = self._below_log_start()
        if by_retention and self._config.is_deletable:
            doomed = max(doomed, self._expired(wall_ms), self._surplus())
        while doomed and self._end_of(doomed - 1) > high_watermark:
            doomed -= 1
        if not doomed:
            return 0
        try:
            if doomed == len(self.segments):
                self.roll()
            victims = self.segments[:doomed]
            self._drop(victims)
        except OSError as error:
            raise self._fault("cannot delete old segments", error) from error
        if self._bases[0] > self.log_start_offset:
            self.log_start_offset = self._bases[0]
            self.epochs.truncate_from_start(self.log_start_offset)
            self.producers.on_log_start(self.log_start_offset)
        return doomed

    def _end_of(self, place: int) -> int:
        return self._bases[place + 1] if place + 1 < len(self._bases) else self.log_end_offset

    def _below_log_start(self) -> int:
        count = 0
        while count + 1 < len(self._bases) and self._bases[count + 1] <= self.log_start_offset:
            count += 1
        return count

    def _expired(self, wall_ms: int) -> int:
        if self._config.retention_ms < 0:
            return 0
        count = 0
        for segment in self.segments:
            newest = segment.largest_timestamp()[0]
            age_from = newest if newest >= 0 else self._disk.modified_ms(segment.path(".log"))
            if segment.size_bytes == 0 or wall_ms - age_from <= self._config.retention_ms:
                break
            count += 1
        return count

    def _surplus(self) -> int:
        if self._config.retention_bytes < 0:
            return 0
        surplus = self.size_bytes - self._config.retention_bytes
        count = 0
        for segment in self.segments:
            if surplus < segment.size_bytes or segment.size_bytes == 0:
                break
            surplus -= segment.size_bytes
            count += 1
        return count

    def _drop(self, victims: list[Segment]) -> None:
        if not victims:
            return
        gone = {segment.base_offset for segment in victims}
        self.segments = [segment for segment in self.segments if segment.base_offset not in gone]
        self._bases = [segment.base_offset for segment in self.segments]
        files: list[str] = []
        for segment in victims:
            files += segment.mark_deleted()
        if self._bases:
            self.producers.delete_snapshots_before(self._bases[0])
        self.on_segments_deleted(files)

    def _remove_files(self, files: list[str]) -> None:
        for path in files:
            self._disk.remove(path)

    def rebuild_producers(self) -> None:
        """The producers' state at the LEO, from the newest snapshot and the batches behind it."""
        producers = self.producers
        producers.reload(self.log_start_offset, self.log_end_offset, self._wall_ms())
        start = max(producers.map_end_offset, self._bases[0])
        for segment in self.segments[max(bisect_right(self._bases, start) - 1, 0) :]:
            position = segment.locate(start) if start > segment.base_offset else 0
            if position is None:
                continue
            for at, header in segment.headers(position):
                if header.producer_id >= 0 and header.base_offset >= start:
                    self.note_producer(
                        header, segment.read(at, header.size_bytes) if header.is_control else b"", segment
                    )
        producers.map_end_offset = self.log_end_offset

    # -- life

    def flush(self, up_to: int | None = None) -> None:
        """fsync everything below `up_to` (the LEO); then it is the recovery point."""
        end = self.log_end_offset if up_to is None else up_to
        if end <= self.recovery_point:
            return
        try:
            for segment in self.segments[max(bisect_right(self._bases, self.recovery_point) - 1, 0) :]:
                if segment.base_offset < end:
                    segment.flush()
        except OSError as error:
            raise self._fault("cannot flush", error) from error
        self.recovery_point = end
        self.last_flushed_ms = self._wall_ms()

    def close(self, *, clean: bool) -> None:
        """Release everything; a clean stop also completes the time index and takes a snapshot of the producers."""
        try:
            if clean:
                self.producers.map_end_offset = self.log_end_offset
                self.active.become_inactive()
                self.flush()
                self.producers.take_snapshot(sync=False)
        except OSError as error:
            raise self._fault("cannot close", error) from error
        finally:
            self.release()

    def release(self) -> None:
        """Close all descriptors; they open again by themselves."""
        for segment in self.segments:
            segment.release()

    def renamed(self, directory: str) -> None:
        """Its directory has another name now."""
        self.release()
        self.directory = directory
        self.epochs.directory = directory
        self.producers.snapshots.directory = directory
        for segment in self.segments:
            segment.moved(directory)

    def _fault(self, what: str, error: OSError) -> StorageFault:
        return StorageFault(self.directory.rpartition("/")[0], f"{self.topic_partition}: {what}: {error}")
