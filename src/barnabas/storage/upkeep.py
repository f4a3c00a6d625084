"""Periodic work on the logs of a broker: checkpoints, retention, syncs, expiration of producers.

Invariants
- No timers per partition: one for each kind of work.
- A checkpoint of a directory contains the one log of a partition that is in that directory, current or future.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from barnabas.common.config import BrokerConfig
from barnabas.common.errors import StorageFault
from barnabas.common.host import Host, Timer
from barnabas.common.types import TopicPartition
from barnabas.storage.checkpoint_files import CheckpointDraft
from barnabas.storage.checkpoints import (
    DELETE_DIR_SUFFIX,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    parse_dir_name,
)
from barnabas.storage.compaction.choice import HighWatermark
from barnabas.storage.compaction.cleaner import LogCleaner
from barnabas.storage.directories import LogDirectories, Offsets, root_of
from barnabas.storage.futures import FutureLogs
from barnabas.storage.log import Log
from barnabas.storage.recovery.recovery_points import RecoveryPoints
from barnabas.storage.slices import run_slices

_INITIAL_TASK_DELAY_MS = 30_000
#: The pause before a checkpoint is checked again if a draft of it is being written.
_DRAFT_PAUSE_MS = 100
#: The checkpoint's name, and a function that returns a log's offset in it, or None for no entry.
_Checkpoint = tuple[str, Callable[[Log], int | None]]


class LogUpkeep:
    """Runs the periodic work. `fault` is called with a directory and its error."""

    def __init__(
        self,
        host: Host,
        config: BrokerConfig,
        directories: LogDirectories,
        logs: Mapping[TopicPartition, Log],
        fault: Callable[[str, BaseException], None],
        *,
        cleaner: LogCleaner,
        futures: FutureLogs,
    ) -> None:
        self._host = host
        self._disk = host.disk
        self._config = config
        self._directories = directories
        self._logs = logs
        self._fault = fault
        self.cleaner = cleaner
        self.futures = futures
        self._timers: dict[str, Timer] = {}
        self._high_watermark: HighWatermark | None = None
        self.recovery_points = RecoveryPoints(
            host,
            config,
            self._online,
            self._sync_all,
            lambda: run_slices(host, self._checkpoint_in_background(self._recovery_points)),
        )
        #: The high watermarks that an earlier run left, for logs without a replica.
        self.checkpointed_high_watermarks: Offsets = {}

    def start(self, high_watermark_of: HighWatermark) -> None:
        self._high_watermark = high_watermark_of
        for key, kind in (
            ("log.flush.offset.checkpoint.interval.ms", self._recovery_points),
            ("log.flush.start.offset.checkpoint.interval.ms", self._log_starts),
            ("replica.high.watermark.checkpoint.interval.ms", self._all_high_watermarks),
        ):
            self._every(key, partial(self._checkpoint_in_background, kind))
        self._every("log.retention.check.interval.ms", self._apply_retention)
        self._every("producer.id.expiration.check.interval.ms", self._expire_producers)
        self._every("log.flush.scheduler.interval.ms", self._flush_due)
        self.recovery_points.start()

    def stop(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self.recovery_points.stop()
        self._directories.files.stop(self._directories.online())

    def _in(self, directory: str) -> Iterator[Log]:
        return (log for log in (*self._logs.values(), *self.futures) if root_of(log.directory) == directory)

    def _is_future(self, log: Log) -> bool:
        return self.futures.get(log.topic_partition) is log

    def _high_watermark_of(self, topic_partition: TopicPartition) -> int | None:
        return None if self._high_watermark is None else self._high_watermark(topic_partition)

    def _every(self, key: str, task: Callable[[], Iterator[None] | None]) -> None:
        interval_ms = self._config.int_of(key)
        if interval_ms >= 1 << 40:
            return

        def run() -> None:
            try:
                steps = task()
            except StorageFault as fault:
                self._fault(fault.directory, fault)
                steps = None
            in_slices(iter(()) if steps is None else steps)

        def again() -> None:
            self._timers[key] = self._host.timers.call_later(max(1, self._config.int_of(key)), run)

        def in_slices(steps: Iterator[None]) -> None:
            run_slices(self._host, steps, again, lambda timer: self._timers.__setitem__(key, timer))

        self._timers[key] = self._host.timers.call_later(min(max(1, interval_ms), _INITIAL_TASK_DELAY_MS), run)

    def _online(self) -> Iterator[Log]:
        offline = self._directories.offline
        return (log for log in (*self._logs.values(), *self.futures) if root_of(log.directory) not in offline)

    def write_checkpoints(self) -> None:
        """Writes all checkpoints that changed, immediately."""
        for kind in (self._recovery_points, self._log_starts, self._all_high_watermarks):
            name, offset_of = kind()
            for directory in tuple(self._directories.online()):
                offsets = {log.topic_partition: offset_of(log) for log in self._in(directory.path)}
                own = {topic_partition: offset for topic_partition, offset in offsets.items() if offset is not None}
                self._directories.write_checkpoint(directory, name, own)

    def _checkpoint_in_background(self, kind: Callable[[], _Checkpoint]) -> Iterator[None]:
        """Collects one checkpoint log by log, and writes it in the background."""
        name, offset_of = kind()
        files = self._directories.files
        drafts = {directory.path: files.draft(directory, name) for directory in self._directories.online()}
        for log in (*self._logs.values(), *self.futures):
            yield
            draft = drafts.get(root_of(log.directory))
            if draft is not None and (self._logs.get(log.topic_partition) is log or self._is_future(log)):
                offset = offset_of(log)
                if offset is not None:
                    draft.offsets[log.topic_partition] = offset
        for path, draft in drafts.items():
            if draft is not None and path not in self._directories.offline:
                files.finish(draft)

    def forget(self, paths: Iterable[str], then: Callable[[], None]) -> None:
        """Removes the recovery points of deleted logs from the checkpoints in the background, then calls `then`. A
        start takes a recovery point without a directory for that of a lost log, so the directories (`paths`) are
        removed after this. `then` is also called if a checkpoint cannot be written, as on a full disk.
        """
        name, files = RECOVERY_POINT_CHECKPOINT, self._directories.files
        left: list[CheckpointDraft] = []
        for root, gone in self._deleted(paths).items():
            directory = self._directories.at(root)
            draft = files.draft(directory, name)
            if draft is None:
                # The draft in progress can be older than the deletion.
                self._host.timers.call_later(_DRAFT_PAUSE_MS, lambda: self.forget(paths, then))
                for each in left:
                    files.abandon(each)
                return
            known = directory.written.get(name, {})
            draft.offsets = {each: offset for each, offset in known.items() if each not in gone}
            left.append(draft)
        _all_of([partial(files.finish, draft) for draft in left], then)

    def _deleted(self, paths: Iterable[str]) -> dict[str, set[TopicPartition]]:
        """Returns the partitions whose recovery point is still in the checkpoint of a directory, by that directory."""
        found: dict[str, set[TopicPartition]] = {}
        online = {directory.path for directory in self._directories.online()}
        for path in paths:
            root, parsed = root_of(path), parse_dir_name(path.rpartition("/")[2])
            if parsed is None or parsed.suffix != DELETE_DIR_SUFFIX or root not in online:
                continue
            partition = parsed.topic_partition
            if not self._directories.has_entry(root, RECOVERY_POINT_CHECKPOINT, partition):
                continue
            logs = (self._logs.get(partition), self.futures.get(partition))
            if not any(log is not None and root_of(log.directory) == root for log in logs):
                found.setdefault(root, set()).add(partition)
        return found

    def on_truncating(self, log: Log) -> None:
        """Writes the checkpoint of a recovery point that was lowered: otherwise the next startup would miss the
        truncated records, or treat new ones as synced. Raises OSError."""
        directory = self._directories.at(root_of(log.directory))
        name, files = RECOVERY_POINT_CHECKPOINT, self._directories.files
        if not files.is_at_most(directory, name, log.topic_partition, log.recovery_point):
            files.write(directory, name, {log.topic_partition: log.recovery_point for log in self._in(directory.path)})

    def on_truncated(self, log: Log) -> None:
        """Applies a truncation to the checkpoint, the cleaner and the future log. Raises OSError, StorageFault."""
        self.on_truncating(log)
        if not self._is_future(log):
            self.cleaner.on_truncated(log)
            self.futures.current_truncated(log)

    def _recovery_points(self) -> _Checkpoint:
        return RECOVERY_POINT_CHECKPOINT, lambda log: log.recovery_point

    def _log_starts(self) -> _Checkpoint:
        """Returns the checkpoint of log start offsets. Only logs that start above their first segment have an entry;
        the file name shows the others'."""

        def start_within(log: Log) -> int | None:
            return log.log_start_offset if log.log_start_offset > log.segments.bases[0] else None

        return LOG_START_CHECKPOINT, start_within

    def _all_high_watermarks(self) -> _Checkpoint:
        def within(log: Log) -> int | None:
            high_watermark = self._high_watermark_of(log.topic_partition)
            if high_watermark is None:
                high_watermark = self.checkpointed_high_watermarks.get(log.topic_partition)
            if high_watermark is None or not self._is_future(log):
                return high_watermark
            return min(high_watermark, log.log_end_offset)

        return HIGH_WATERMARK_CHECKPOINT, within

    def _apply_retention(self) -> Iterator[None]:
        wall_ms = self._host.clock.wall_ms()
        for topic_partition, log in tuple(self._logs.items()):
            yield
            # The log or its directory can be gone since the last slice.
            if self._logs.get(topic_partition) is not log or root_of(log.directory) in self._directories.offline:
                continue
            high_watermark = self._high_watermark_of(topic_partition)
            if high_watermark is None:
                high_watermark = log.log_start_offset
            try:
                log.delete_old_segments(wall_ms, high_watermark=high_watermark)
            except StorageFault as fault:
                self._fault(fault.directory, fault)

    def _expire_producers(self) -> Iterator[None]:
        wall_ms, expiration_ms = self._host.clock.wall_ms(), self._config.int_of("producer.id.expiration.ms")
        for log in tuple(self._logs.values()):
            log.producers.expiration_ms = expiration_ms  # the configuration may have changed
            log.producers.expire(wall_ms)
            yield

    def _flush_due(self) -> Iterator[None]:
        wall_ms = self._host.clock.wall_ms()
        for topic_partition, log in tuple(self._logs.items()):
            yield
            if self._logs.get(topic_partition) is not log:
                continue
            if log.recovery_point < log.log_end_offset and wall_ms - log.last_flushed_ms >= log.config.flush_ms:
                self.sync_in_background(log, log.log_end_offset)

    def _sync_all(self, log: Log, then: Callable[[], None]) -> None:
        self.sync_in_background(log, log.log_end_offset, then)

    def sync_in_background(self, log: Log, end_offset: int, then: Callable[[], None] | None = None) -> None:
        """Syncs the log below `end_offset` in the background, then calls `then`, whether that succeeded or not."""
        root = root_of(log.directory)
        if root in self._directories.offline:
            self._end_soon(then)
            return
        try:
            work, succeeded = log.sync_job(end_offset)
        except StorageFault as fault:
            self._fault(fault.directory, fault)
            self._end_soon(then)
            return

        def done(_: object, error: BaseException | None) -> None:
            if error is None:
                succeeded()
            elif self._logs.get(log.topic_partition) is log or self._is_future(log):
                self._fault(root, error)
            if then is not None:
                then()

        self._directories.health.run(root, work, done)

    def _end_soon(self, then: Callable[[], None] | None) -> None:
        if then is not None:
            self._host.timers.call_soon(then)


def _all_of(steps: Sequence[Callable[[Callable[[], None]], None]], then: Callable[[], None]) -> None:
    """Begins all steps, each of which gets a function to be called at its end; calls `then` once all have ended."""
    left = len(steps)
    if not left:
        then()
        return

    def ended() -> None:
        nonlocal left
        left -= 1
        if not left:
            then()

    for step in steps:
        step(ended)
