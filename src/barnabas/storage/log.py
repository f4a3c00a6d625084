"""The log of one partition: segments in a directory, appended at the end, readable from any offset.

Invariants
- Offsets only increase: every batch begins at or above the LEO at its append; the LEO is the offset after the
  last batch.
- What a batch changes in addition to the `.log` file (indexes, producers, LEO) changes after its write succeeded. A
  write that fails leaves the log unchanged and raises StorageFault; if only space or descriptors ran out,
  StorageExhausted, and the log remains usable (decision 0012).
- An append writes offsets and leader epoch into the caller's buffer, if that is writable, and the buffer to the file in
  one call. Records are decoded only if their validation needs it (`records.validate`).
- Everything below the recovery point is synced; what is above is scanned after an unclean shutdown.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from barnabas.common.errors import StorageFault, is_exhausted
from barnabas.common.host import Buffer, Disk
from barnabas.common.log_config import LogConfig
from barnabas.common.types import TopicPartition
from barnabas.records.batch import BatchHeader, has_valid_crc, iter_headers
from barnabas.records.deferred import DeferredValidation
from barnabas.records.header import corrupt
from barnabas.records.validate import AppendRules, stamp, validate_for_append
from barnabas.storage import retention
from barnabas.storage.checkpoints import check_room
from barnabas.storage.epochs import LeaderEpochCache
from barnabas.storage.follower_append import FollowerRun
from barnabas.storage.health import SLOW_S
from barnabas.storage.identity import TopicIdFile
from barnabas.storage.log_events import LogEvents, LogSignals
from barnabas.storage.log_reads import LogReader, fault
from barnabas.storage.log_sync import LogSync
from barnabas.storage.producer_replay import check_marker, note_producer, replay_producers
from barnabas.storage.producers import ProducerStateManager
from barnabas.storage.recovery.lost_offsets import KnownHoles, Losses, clip, write_lost
from barnabas.storage.segment import RollLimits, Segment
from barnabas.storage.segments import LogServices, Segments

#: The positions of the last appends are kept, so that a reader at the end needs no index.
_TAIL_POSITIONS_MAX = 256


class Origin(Enum):
    """The source of batches that a leader appends: a client, a coordinator, or the metadata quorum."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    RAFT = "raft"


class AppendInfo(NamedTuple):
    """The result of an append. For a repeated idempotent batch, the offsets of its first append."""

    first_offset: int
    last_offset: int
    #: The time of the append with LogAppendTime, else -1; for a repeated batch its timestamp, of either type.
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool
    max_timestamp: int


@dataclass(frozen=True, slots=True)
class LogParts:
    """The parts of a log that its opening found on disk."""

    segments: Segments
    epochs: LeaderEpochCache
    producers: ProducerStateManager
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    losses: Losses


class Log(LogReader):
    """The log of one replica. The HW belongs to the replica; readers pass how far they can read.

    Created by `storage.recovery.recovery.open_log`.
    """

    __slots__ = (
        "_config",
        "_limits",
        "_rules",
        "_sync",
        "epochs",
        "identity",
        "losses",
        "producers",
        "signals",
        "topic_id",
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
        #: The topic id to be written; None if `partition.metadata` has it.
        self.identity: TopicIdFile | None = None
        self.segments = parts.segments
        self.epochs = parts.epochs
        self.producers = parts.producers
        self.log_start_offset = parts.log_start_offset
        self.log_end_offset = parts.log_end_offset
        #: Losses that opening the log found.
        self.losses = parts.losses
        self.holes = parts.losses.accepted
        self._tail_positions: dict[int, int] = {}
        self._sync = LogSync(services, parts.segments, parts.epochs, parts.producers, parts.recovery_point)
        self.signals: LogSignals[Log] = LogSignals(LogEvents(services.disk))
        self.config = config

    @property
    def config(self) -> LogConfig:
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        self._rules = AppendRules(config, self.topic_partition, self._services.limits)
        self._limits = RollLimits(config, self._services.pick_jitter(config.jitter_bound_ms))
        self.segments.active.is_index_full = None

    @property
    def size_bytes(self) -> int:
        return self.segments.size_bytes

    @property
    def recovery_point(self) -> int:
        """The offset below which everything is synced."""
        return self._sync.recovery_point

    @recovery_point.setter
    def recovery_point(self, offset: int) -> None:
        self._sync.recovery_point = offset

    @property
    def last_flushed_ms(self) -> int:
        return self._sync.last_flushed_ms

    @property
    def unsynced_bytes(self) -> int:
        """The approximate number of bytes that a startup after a kill would have to scan."""
        return self._sync.unsynced_bytes(self.log_end_offset)

    # -- appending

    def append_as_leader(
        self,
        batches: Buffer,
        leader_epoch: int,
        *,
        wall_ms: int,
        origin: Origin = Origin.CLIENT,
        validated: DeferredValidation | None = None,
    ) -> AppendInfo:
        """Appends the one batch in `batches` and assigns its offsets. Writable memory is changed in place. `validated`
        is the result of a validation in the background, used if the log's settings are still the same.

        Raises RecordsRejected or ValidationDeferred, with nothing changed, or StorageFault.
        """
        from_client = origin is Origin.CLIENT
        rules = self._rules
        if validated is not None and validated.rules is rules:
            valid = validated.result()
        else:
            budget = self._services.budget if from_client else None
            valid = validate_for_append(batches, rules, wall_ms=wall_ms, from_client=from_client, budget=budget)
        header = valid.header
        if header.producer_id >= 0 and not header.is_control:
            repeated = self.producers.check(header, from_client=from_client)
            if repeated is not None:
                first = repeated.first_offset
                stamp_ms = repeated.timestamp
                return AppendInfo(first, repeated.last_offset, stamp_ms, self.log_start_offset, True, stamp_ms)
        elif header.producer_id >= 0:
            check_marker(self.producers, header, batches)
        first_offset = self.log_end_offset
        header, stamped = stamp(valid, first_offset, leader_epoch)
        if leader_epoch > self.epochs.latest_epoch:
            self.assign_epoch(leader_epoch, first_offset)
        self.append_batch(header, stamped, wall_ms)
        # `tuple.__new__` takes half the time of the class, which is a Python function.
        return tuple.__new__(
            AppendInfo,
            (
                first_offset,
                self.log_end_offset - 1,
                valid.log_append_time_ms,
                self.log_start_offset,
                False,
                header.max_timestamp,
            ),
        )

    def append_as_follower(self, batches: Buffer) -> AppendInfo | None:
        """Appends batches from a leader, with their offsets and epochs. Returns None if there is no complete batch.

        Raises RecordsRejected for a corrupt batch; the batches before it are kept.
        """
        view = memoryview(batches)
        first: int | None = None
        max_timestamp = -1
        run = FollowerRun(self, view, self._services)
        try:
            for position, header in iter_headers(view):
                offset = header.base_offset
                if offset < run.end_offset:
                    raise corrupt(f"batch at {offset} where {self.topic_partition} ends at {run.end_offset}")
                if not has_valid_crc(view, position, header):
                    raise corrupt(f"the checksum of the batch at {offset} of {self.topic_partition} is wrong")
                if header.partition_leader_epoch > self.epochs.latest_epoch:
                    run.write()
                    self.assign_epoch(header.partition_leader_epoch, offset)
                run.add(position, header)
                first = offset if first is None else first
                max_timestamp = max(max_timestamp, header.max_timestamp)
        finally:
            run.write()
        if first is None:
            return None
        return AppendInfo(first, self.log_end_offset - 1, -1, self.log_start_offset, False, max_timestamp)

    @property
    def limits(self) -> RollLimits:
        """The limits at which the active segment is rolled or gets index entries."""
        return self._limits

    def append_batch(self, header: BatchHeader, batch: Buffer, wall_ms: int) -> None:
        """Appends one batch that is validated and has its offsets. Raises StorageFault."""
        base_offset, _, _, _, _, _, delta, _, max_timestamp, producer_id, _, _, _ = header
        segment, services = self.segments.active, self._services
        last_offset = base_offset + delta
        began_s = services.now_s()
        try:
            if not segment.has_files:
                self._make()
            if segment.should_roll(self._limits, len(batch), last_offset, max_timestamp, wall_ms):
                segment = self.roll(base_offset)
            position = segment.size_bytes
            segment.append(batch, last_offset, max_timestamp, self._limits)
            if producer_id >= 0:
                note_producer(self.producers, header, batch, segment)
        except OSError as error:
            if error.errno == errno.EFBIG and segment.size_bytes:
                # Files cannot get longer than this one is, but the batch can fit into a new one.
                _roll_for_short_files(self, base_offset)
                self.append_batch(header, batch, wall_ms)
                return
            raise fault(self, "cannot append", error) from error
        self.appended(base_offset, position, last_offset + 1)
        took_s = services.now_s() - began_s
        if took_s >= SLOW_S or (services.health is not None and services.health.is_counting):
            services.append_took(self.directory, took_s)
        if self.log_end_offset - self._sync.recovery_point >= self._config.flush_messages:
            self.flush()

    def _make(self) -> None:
        """Writes the topic id and creates the files of the active segment, before the first record. Raises OSError; at
        most the topic id is written then.
        """
        self.persist_identity()
        self.segments.active.create()

    def persist_identity(self) -> None:
        """Makes sure that `partition.metadata` is written. Raises OSError."""
        if self.identity is not None:
            self.identity.persist()
            self.identity = None

    def identify(self, topic_id: bytes) -> TopicIdFile | None:
        """Gives the log its topic id. Returns the file to be written in the background; None if it was written now,
        because the log has files with records. Raises OSError."""
        self.topic_id = topic_id
        self.identity = TopicIdFile(self._services.disk, self.directory, topic_id)
        if self.segments.active.has_files:
            self.persist_identity()
        return self.identity

    def appended(self, base_offset: int, position: int, end_offset: int) -> None:
        """Records the batch that was just appended: its position in the active segment and the new LEO."""
        tail = self._tail_positions
        tail[base_offset] = position
        if len(tail) > _TAIL_POSITIONS_MAX:
            for offset in list(tail)[: _TAIL_POSITIONS_MAX // 2]:
                del tail[offset]
        self.log_end_offset = self.producers.map_end_offset = end_offset

    def assign_epoch(self, epoch: int, start_offset: int) -> None:
        """Records that a leader epoch begins at this offset (G3)."""
        self.epochs.assign(epoch, start_offset)

    def roll(self, next_offset: int | None = None) -> Segment:
        """Begins a new segment at or above the LEO, unless the active one is empty and already there. Raises
        OSError."""
        base_offset = max(self.log_end_offset, next_offset or 0)
        active = self.segments.active
        if active.base_offset == base_offset and active.size_bytes == 0:
            # The empty segment has a full index or is too old: reuse it.
            if active.has_files:
                active.begin_rebuild()
            active.created_ms = self._services.wall_ms()
            return active
        self.producers.map_end_offset = base_offset
        self.producers.take_snapshot(sync=False)
        segment = self.segments.add(base_offset)
        # If there is no space for a new segment, nothing has changed so far, and smaller batches can still go to the
        # old one.
        active.become_inactive()
        active.release_index()
        self._sync.rolled(active.base_offset)
        self._tail_positions.clear()
        self._limits = RollLimits(self._config, self._services.pick_jitter(self._config.jitter_bound_ms))
        self.signals.keeper.on_rolled(self)
        return segment

    # -- epochs and transactions

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Returns (epoch, end offset) as in OffsetForLeaderEpoch; (-1, -1) if unknown."""
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    def epoch_at(self, offset: int) -> int:
        """Returns the leader epoch of the record at `offset`, -1 if unknown."""
        epoch = self.epochs.epoch_for_offset(offset)
        return -1 if epoch is None else epoch

    def last_stable_offset(self, high_watermark: int) -> int:
        """Returns the LSO: the first offset of the oldest undecided transaction, at most the HW."""
        producers = self.producers
        if producers.is_empty:
            return high_watermark
        producers.on_high_watermark(high_watermark)
        first = producers.first_unstable_offset
        return high_watermark if first is None else min(first, high_watermark)

    # -- truncation and deletion

    def truncate_to(self, offset: int) -> None:
        """Removes everything at or above `offset` (a follower's divergence), including a batch that spans it. Does
        nothing at or above the LEO. Raises StorageFault; StorageExhausted if nothing has changed."""
        if offset >= self.log_end_offset:
            return
        if offset <= self.segments.bases[0]:
            self.truncate_fully_and_start_at(offset)
            return
        _prepare_truncation(self, self._services.disk, offset)
        self._sync.truncating()
        self._tail_positions.clear()
        try:
            # Segments are removed from the end, each step durable before the next: truncated records must not come back
            # (G27), and certainly not with a gap before them.
            self._drop([segment for segment in reversed(self.segments) if segment.base_offset > offset])
            self.producers.delete_snapshots_above(offset)
            self._sync.snapshots_deleted()
            self._services.disk.sync_dir(self.directory)
            first_cut = self.segments.active.truncate_to(offset)
            end_offset = offset if first_cut is None else min(offset, first_cut)
            self.log_end_offset = end_offset
            self.recovery_point = min(self.recovery_point, end_offset)
            self.log_start_offset = min(self.log_start_offset, end_offset)
            _truncate_holes(self, self._services.disk, end_offset)
            self.epochs.truncate_from_end(end_offset)
            self.epochs.persist()
            replay_producers(self.producers, self.segments, self.log_start_offset, end_offset, self._services.wall_ms())
            assert self.log_start_offset <= end_offset <= offset, "the log ends at or before the truncation"
            assert self.recovery_point <= end_offset, "no removed record counts as synced"
            self.signals.keeper.on_truncated(self)
        except OSError as error:
            raise _partial_failure(self, "cannot truncate", error) from error

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Empties the log. The next record gets this offset. Raises StorageFault; StorageExhausted if nothing has
        changed."""
        _prepare_truncation(self, self._services.disk, 0)
        self._sync.truncating()
        self._tail_positions.clear()
        try:
            self._drop(list(self.segments))
            self.segments.add(offset)
            _truncate_holes(self, self._services.disk, 0)
            self.log_start_offset = self.log_end_offset = self.recovery_point = offset
            self.epochs.clear()
            self.epochs.persist()
            self.producers.reset(offset)
            assert list(self.segments.bases) == [offset], "the log is one empty segment"
            self.signals.keeper.on_truncated(self)
        except OSError as error:
            raise _partial_failure(self, "cannot truncate", error) from error

    def delete_records_before(self, offset: int) -> None:
        """Raises the log start offset (KIP-107); segments entirely below it are deleted."""
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
            self.signals.start_moved()
        except OSError as error:
            raise _partial_failure(self, "cannot move the log start offset", error) from error

    def delete_old_segments(self, wall_ms: int, *, high_watermark: int, by_retention: bool = True) -> int:
        """Deletes leading segments by log start offset, and by `retention.ms` and `retention.bytes`. Returns their
        number.

        Nothing at or above the HW is deleted; if all segments are, an empty one begins at the LEO.
        """
        segments, config = self.segments, self._config
        try:
            deletable = retention.below_log_start(segments, self.log_start_offset)
            if by_retention and config.is_deletable:
                deletable = max(
                    deletable,
                    retention.expired(segments, config, wall_ms, self._services.disk),
                    retention.surplus(segments, config),
                )
            ends = [*segments.bases[1:], self.log_end_offset]
            while deletable and ends[deletable - 1] > high_watermark:
                deletable -= 1
            if not deletable:
                return 0
            if deletable == len(segments) and not _try_to_roll(self):
                deletable -= 1
        except OSError as error:
            raise fault(self, "cannot delete old segments", error) from error
        try:
            self._drop([segments[place] for place in range(deletable)])
        except OSError as error:
            raise _partial_failure(self, "cannot delete old segments", error) from error
        if segments.bases[0] > self.log_start_offset:
            self._move_log_start(segments.bases[0])
        return deletable

    def _drop(self, victims: list[Segment]) -> None:
        if not victims:
            return
        files = self.segments.drop(victims)
        if self.segments.bases:
            self.producers.delete_snapshots_before(self.segments.bases[0])
        self.signals.keeper.on_segments_deleted(self, files)

    # -- life

    def flush(self) -> None:
        """Syncs the log, and moves the recovery point to the LEO."""
        try:
            self._sync.flush(self.log_end_offset, self._config.segment_bytes)
        except OSError as error:
            raise fault(self, "cannot flush", error) from error

    def sync_job(self, end_offset: int) -> tuple[Callable[[], None], Callable[[], None]]:
        """Prepares a sync of the log below `end_offset` in the background. Returns the work, which touches only files,
        and a callback for the loop after it succeeded."""
        try:
            return self._sync.job(end_offset, self.log_end_offset, self._config.segment_bytes)
        except OSError as error:
            raise fault(self, "cannot flush", error) from error

    def close(self, *, clean: bool) -> None:
        """Releases the log's files and memory. A clean shutdown also syncs, completes the time index and takes a
        producer snapshot.
        """
        active = self.segments.active
        try:
            if clean:
                self.persist_identity()
                end_offset = self.log_end_offset
                self.epochs.persist(None if self.epochs.has_saved_beyond(end_offset) else end_offset)
            if clean and active.has_files:
                active.become_inactive()
                self.flush()
                # The indexes are synced even if all records are, because they are trusted after a clean shutdown.
                active.index.sync()
                active.time_index.sync()
                self.producers.map_end_offset = self.log_end_offset
                self.producers.take_snapshot(sync=False)
        except OSError as error:
            raise fault(self, "cannot close", error) from error
        finally:
            self.segments.release()

    def renamed(self, directory: str) -> None:
        """Applies the new name of the log's directory."""
        self.segments.release()
        self.segments.moved(directory)
        self.epochs.directory = directory
        if self.identity is not None:
            self.identity.directory = directory
        self.producers.snapshots.directory = directory


def _prepare_truncation(log: Log, disk: Disk, offset: int) -> None:
    """Lowers the recovery point before offsets at or above `offset` are removed: otherwise the next startup would miss
    them. Makes sure that there is room for the files that a truncation writes again: one that is half done makes the
    directory fail.
    """
    before = log.recovery_point
    try:
        log.persist_identity()
        check_room(disk, log.epochs.path, log.epochs.encode())
        if offset < before:
            log.recovery_point = offset
            log.signals.keeper.on_truncating(log)
    except OSError as error:
        log.recovery_point = before
        raise fault(log, "cannot truncate", error) from error


def _truncate_holes(log: Log, disk: Disk, end_offset: int) -> None:
    """Removes the lost offsets at or above the new LEO from the list of losses. Raises OSError."""
    if log.holes:
        log.holes = clip(log.holes, 0, end_offset)
        write_lost(disk, log.directory, KnownHoles((), log.holes))


def _roll_for_short_files(log: Log, next_offset: int) -> None:
    try:
        log.roll(next_offset)
    except OSError as error:
        raise fault(log, "cannot create a new segment", error) from error


def _try_to_roll(log: Log) -> bool:
    """Begins a new segment. Returns False if there is no space for one."""
    try:
        log.roll()
    except OSError as error:
        if not is_exhausted(error):
            raise
        return False
    return True


def _partial_failure(log: Log, what: str, error: OSError) -> StorageFault:
    """Wraps an OSError of an operation that can be half done: always StorageFault, whatever the cause."""
    return StorageFault(log.directory.rpartition("/")[0], f"{log.topic_partition}: {what}: {error}")
