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
from barnabas.storage.epochs import LeaderEpochCache
from barnabas.storage.follower_append import FollowerRun
from barnabas.storage.identity import TopicIdFile
from barnabas.storage.log_reads import LogReader, fault
from barnabas.storage.producers import ProducerStateManager
from barnabas.storage.recovery.lost_offsets import KnownHoles, Losses, between, write_lost
from barnabas.storage.replay import check_marker, note_producer, replay_producers, take_snapshot
from barnabas.storage.segment import RollLimits, Segment
from barnabas.storage.segments import LogServices, Segments

#: Positions of the last appends, so that a reader at the end needs no index.
_TAIL_POSITIONS_MAX = 256
#: A flush takes a producer snapshot when the log has grown so much since the last one; in a short segment, an eighth.
_SNAPSHOT_BYTES = 1 << 20


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


@dataclass(frozen=True, slots=True)
class LogParts:
    """What was found on disk when the log was opened."""

    segments: Segments
    epochs: LeaderEpochCache
    producers: ProducerStateManager
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    losses: Losses


class LogEvents:
    """Events of a log for its keeper. The default removes the files of deleted segments and does nothing else."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def on_segments_deleted(self, log: Log, files: list[str]) -> None:
        """Called after these files were renamed to `.deleted`."""
        _remove(self._disk, files)

    def on_rolled(self, log: Log) -> None:
        """A segment is full."""

    def on_truncating(self, log: Log) -> None:
        """The recovery point went back; its checkpoint must follow before anything is cut or appended."""

    def on_truncated(self, log: Log) -> None:
        """The log was cut."""


class LogSignals:
    """The listeners of a log: its keeper, and the replica that it belongs to."""

    __slots__ = ("_start_moved", "keeper")

    def __init__(self, keeper: LogEvents) -> None:
        self.keeper = keeper
        self._start_moved: Callable[[], None] | None = None

    def connect(self, keeper: LogEvents) -> None:
        """Tell this keeper from now on. While it is opened, a log has none."""
        self.keeper = keeper

    def watch_start(self, moved: Callable[[], None]) -> None:
        """Call the replica whenever the log start offset has moved up."""
        self._start_moved = moved

    def succeed(self, former: LogSignals) -> None:
        """Takes over the replica of another log, whose place this one takes."""
        self._start_moved = former._start_moved

    def start_moved(self) -> None:
        if self._start_moved is not None:
            self._start_moved()


class Log(LogReader):
    """The log of one replica. The HW belongs to the replica; readers say how far they may see.

    Made by `storage.recovery.open_log`.
    """

    __slots__ = (
        "_config",
        "_limits",
        "_rules",
        "_snapshot_position",
        "_synced_place",
        "_truncations",
        "epochs",
        "identity",
        "last_flushed_ms",
        "losses",
        "producers",
        "recovery_point",
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
        #: None where `partition.metadata` says it.
        self.identity: TopicIdFile | None = None
        self.segments = parts.segments
        self.epochs = parts.epochs
        self.producers = parts.producers
        self.log_start_offset = parts.log_start_offset
        self.log_end_offset = parts.log_end_offset
        self.recovery_point = parts.recovery_point
        #: What its opening did not find.
        self.losses = parts.losses
        self.holes = parts.losses.accepted
        self.last_flushed_ms = services.wall_ms()
        self._tail_positions: dict[int, int] = {}
        self._truncations = 0
        #: The segment and its size when all before it was synced last.
        self._synced_place = (parts.segments.active, 0)
        #: Where in the active segment the newest producer snapshot was taken.
        self._snapshot_position = 0
        self.signals = LogSignals(LogEvents(services.disk))
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
    def unsynced_bytes(self) -> int:
        """About how much the start after a kill would have to scan."""
        active, (segment, size_bytes) = self.segments.active, self._synced_place
        if self.recovery_point >= self.log_end_offset:
            return 0
        behind = sum(s.size_bytes for s in self.segments.from_offset(self.recovery_point) if s is not active)
        return behind + active.size_bytes - (size_bytes if segment is active else 0)

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
        """Append the one batch in `batches`, giving it its offsets. Writable memory is changed in place. `validated` is
        what was found out about this batch beside the loop; it counts as long as the log's settings are the same.

        Raises RecordsRejected or ValidationDeferred, with nothing changed, or StorageFault.
        """
        from_client = origin is Origin.CLIENT
        rules = self._rules
        if validated is not None and validated.rules is rules:
            valid = validated.taken()
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
        """Of the active segment."""
        return self._limits

    def append_batch(self, header: BatchHeader, batch: Buffer, wall_ms: int) -> None:
        """One batch that is checked and has its offsets. Raises StorageFault."""
        base_offset, _, _, _, _, _, delta, _, max_timestamp, producer_id, _, _, _ = header
        segment, services = self.segments.active, self._services
        last_offset = base_offset + delta
        began_ms = services.now_ms()
        try:
            if not segment.is_made:
                self._make()
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
                self.append_batch(header, batch, wall_ms)
                return
            raise fault(self, "cannot append", error) from error
        self.appended(base_offset, position, last_offset + 1)
        services.took(self.directory, services.now_ms() - began_ms)
        if self.log_end_offset - self.recovery_point >= self._config.flush_messages:
            self.flush()

    def _make(self) -> None:
        """Before the first record: whose log it is, then its files. Raises OSError, with at most the former made."""
        self.persist_identity()
        self.segments.active.create()

    def persist_identity(self) -> None:
        """`partition.metadata` is there when this returns. Raises OSError."""
        if self.identity is not None:
            self.identity.persist()
            self.identity = None

    def identify(self, topic_id: bytes) -> TopicIdFile | None:
        """It is this topic's. What is to be written beside the loop; where there are files of records, that is done
        when this returns. Raises OSError."""
        self.topic_id = topic_id
        self.identity = TopicIdFile(self._services.disk, self.directory, topic_id)
        if self.segments.active.is_made:
            self.persist_identity()
        return self.identity

    def appended(self, base_offset: int, position: int, end_offset: int) -> None:
        """A batch stands at this position of the active segment, and is the last one now."""
        tail = self._tail_positions
        tail[base_offset] = position
        if len(tail) > _TAIL_POSITIONS_MAX:
            for offset in list(tail)[: _TAIL_POSITIONS_MAX // 2]:
                del tail[offset]
        self.log_end_offset = self.producers.map_end_offset = end_offset

    def assign_epoch(self, epoch: int, start_offset: int) -> None:
        """A leader's term begins here (G3)."""
        self.epochs.assign(epoch, start_offset)

    def roll(self, next_offset: int | None = None) -> Segment:
        """Begin a new segment at the LEO or above, unless the active one is there and empty. Raises OSError."""
        base_offset = max(self.log_end_offset, next_offset or 0)
        active = self.segments.active
        if active.base_offset == base_offset and active.size_bytes == 0:
            # Its index is full or its time is over without a batch in it: begin it anew.
            if active.is_made:
                active.begin_rebuild()
            active.created_ms = self._services.wall_ms()
            return active
        self.producers.map_end_offset = base_offset
        self.producers.take_snapshot(sync=False)
        segment = self.segments.add(base_offset)
        self._snapshot_position = 0
        # Without room for a new segment, nothing has changed up to here, and smaller batches still go to the old one.
        active.become_inactive()
        active.release_index()
        # Its indexes were never synced: it does not count as such before they are.
        self.recovery_point = min(self.recovery_point, active.base_offset)
        self._tail_positions.clear()
        self._limits = RollLimits(self._config, self._services.pick_jitter(self._config.jitter_bound_ms))
        self.signals.keeper.on_rolled(self)
        return segment

    # -- epochs and transactions

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
            _forget_synced(self, offset)
            # From the end, and each step sure before the next: what was cut off must not come back (G27), nor a part
            # of it without what was before it.
            self._drop([segment for segment in reversed(self.segments) if segment.base_offset > offset])
            self.producers.delete_snapshots_above(offset)
            self._snapshot_position = 0
            self._services.disk.sync_dir(self.directory)
            first_cut = self.segments.active.truncate_to(offset)
            end_offset = offset if first_cut is None else min(offset, first_cut)
            self.log_end_offset = end_offset
            self.recovery_point = min(self.recovery_point, end_offset)
            self.log_start_offset = min(self.log_start_offset, end_offset)
            _forget_holes(self, self._services.disk, end_offset)
            self.epochs.truncate_from_end(end_offset)
            self.epochs.persist()
            replay_producers(self.producers, self.segments, self.log_start_offset, end_offset, self._services.wall_ms())
            self.signals.keeper.on_truncated(self)
        except OSError as error:
            raise _failure(self, "cannot truncate", error) from error

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Empty the log; the next record gets `offset`."""
        self._truncations += 1
        self._tail_positions.clear()
        try:
            self.persist_identity()
            _forget_synced(self, 0)
            self._drop(list(self.segments))
            self.segments.add(offset)
            _forget_holes(self, self._services.disk, 0)
            self.log_start_offset = self.log_end_offset = self.recovery_point = offset
            self.epochs.clear()
            self.epochs.persist()
            self.producers.start_anew(offset)
            self.signals.keeper.on_truncated(self)
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
            self.signals.start_moved()
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
            raise fault(self, "cannot delete old segments", error) from error
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
        self.signals.keeper.on_segments_deleted(self, files)

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
            if not self._persist_epochs(end):
                return
            self._take_snapshot()
        except OSError as error:
            raise fault(self, "cannot flush", error) from error
        self.recovery_point = end
        self._synced_place = (self.segments.active, self.segments.active.size_bytes)
        self.last_flushed_ms = self._services.wall_ms()

    def _take_snapshot(self) -> None:
        """What is synced is not replayed to learn of its producers after a kill: not more than a little of it. Nothing
        depends on it. Raises OSError."""
        active = self.segments.active
        if active.size_bytes - self._snapshot_position >= min(_SNAPSHOT_BYTES, self._config.segment_bytes // 8):
            last = self.producers.snapshots.latest
            if take_snapshot(self.producers) and last is not None and last > active.base_offset:
                self.producers.snapshots.delete(last)
            self._snapshot_position = active.size_bytes

    def _persist_epochs(self, end_offset: int) -> bool:
        """Before the recovery point moves there; False if there is no room for it. Raises OSError."""
        try:
            self.epochs.persist(end_offset)
        except OSError as error:
            if not is_exhausted(error):
                raise
            return False
        return True

    def sync_job(self, end_offset: int) -> tuple[Callable[[], None], Callable[[], None]]:
        """To sync what is below `end_offset` beside the loop: work that touches nothing but files, and what to call on
        the loop when it succeeded."""
        disk, directory, truncations = self._services.disk, self.directory, self._truncations
        active = self.segments.active
        place = (active, active.size_bytes if end_offset == self.log_end_offset else 0)
        paths: list[str] = []
        try:
            for segment in self.segments.from_offset(self.recovery_point):
                if segment.base_offset < end_offset:
                    paths += segment.write_out(with_indexes=segment is not active)
            if end_offset == self.log_end_offset:
                self._take_snapshot()
            are_epochs_sure = self._persist_epochs(end_offset)
        except OSError as error:
            raise fault(self, "cannot flush", error) from error

        def succeeded() -> None:
            if truncations != self._truncations or directory != self.directory:
                return  # under another name, files were not found
            if are_epochs_sure and end_offset > self.recovery_point:
                self.recovery_point = end_offset
                self._synced_place = place
                self.last_flushed_ms = self._services.wall_ms()

        return lambda: _sync_files(disk, directory, paths), succeeded

    def close(self, *, clean: bool) -> None:
        """Release everything; a clean stop also syncs, completes the time index and takes a producer snapshot."""
        active = self.segments.active
        try:
            if clean:
                self.persist_identity()
                end_offset = self.log_end_offset
                self.epochs.persist(None if self.epochs.tells_beyond(end_offset) else end_offset)
            if clean and active.is_made:
                active.become_inactive()
                self.flush()
                # Also where all records are synced already: the mark of a clean stop lets the indexes be trusted.
                active.index.sync()
                active.time_index.sync()
                self.producers.map_end_offset = self.log_end_offset
                self.producers.take_snapshot(sync=False)
        except OSError as error:
            raise fault(self, "cannot close", error) from error
        finally:
            self.segments.release()

    def renamed(self, directory: str) -> None:
        """Its directory has another name now."""
        self.segments.release()
        self.segments.moved(directory)
        self.epochs.directory = directory
        if self.identity is not None:
            self.identity.directory = directory
        self.producers.snapshots.directory = directory


def _forget_synced(log: Log, offset: int) -> None:
    """What is at or above it is about to go: a start must not miss it. Raises OSError."""
    if offset < log.recovery_point:
        log.recovery_point = offset
        log.signals.keeper.on_truncating(log)


def _forget_holes(log: Log, disk: Disk, end_offset: int) -> None:
    """The log ends there now. Raises OSError."""
    if log.holes:
        log.holes = between(log.holes, 0, end_offset)
        write_lost(disk, log.directory, KnownHoles((), log.holes))


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
        raise fault(log, "cannot create a new segment", error) from error


def _rolls(log: Log) -> bool:
    """Begin a new segment if there is room for one."""
    try:
        log.roll()
    except OSError as error:
        if not is_exhausted(error):
            raise
        return False
    return True


def _failure(log: Log, what: str, error: OSError) -> StorageFault:
    """For what may be half done, for whatever cause."""
    return StorageFault(log.directory.rpartition("/")[0], f"{log.topic_partition}: {what}: {error}")
