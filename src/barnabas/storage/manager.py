"""All logs of a broker in its log directories: opening, placing, deleting, checkpoints, retention, directory failure.

    log.dirs/                      .lock, meta.properties, the four offset checkpoints, .kafka_cleanshutdown
        orders-3/                  a log
        orders-3.<uuid>-delete/    on its way out, for file.delete.delay.ms

Invariants
- No timers per partition: one timer each for checkpoints, retention and delayed removal.
- A directory that failed is not touched again until the next start; the others go on (KIP-112).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from barnabas.common.config import BrokerConfig
from barnabas.common.errors import StorageFault
from barnabas.common.host import Host, Timer
from barnabas.common.log_config import LogConfig
from barnabas.common.types import METADATA_TOPIC, TopicPartition
from barnabas.storage.batch_file import Descriptors
from barnabas.storage.checkpoints import (
    DELETE_DIR_SUFFIX,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    CheckpointError,
    dir_name,
    marked_dir_name,
    parse_dir_name,
    read_offsets,
)
from barnabas.storage.cleaner import LogCleaner
from barnabas.storage.directories import NO_BROKER_EPOCH, LogDirectories, LogDirectory, Offsets, root_of
from barnabas.storage.log import Log
from barnabas.storage.recovery import Opening, open_log
from barnabas.storage.removal import DelayedRemoval
from barnabas.storage.segments import LogServices

_INITIAL_TASK_DELAY_MS = 30_000


class LogManager:
    """The logs of all partitions but the metadata log, which its quorum keeps."""

    def __init__(self, host: Host, config: BrokerConfig) -> None:
        self._host = host
        self._config = config
        self._disk = host.disk
        self._logs: dict[TopicPartition, Log] = {}
        self._directories = LogDirectories(host, config.log_dirs, self._directory_failed)
        self._timers: dict[str, Timer] = {}
        self._removal = DelayedRemoval(host)
        self._hws: Offsets = {}
        self._high_watermarks: Callable[[], Offsets] = dict
        self._services = LogServices(
            host.disk,
            host.clock.wall_ms,
            lambda bound: host.random.below(bound) if bound > 0 else 0,
            Descriptors(),
        )
        #: In the order of `log.dirs`.
        self.directories = self._directories.paths
        self.offline_directories = self._directories.offline
        #: From the clean-shutdown marker: lets the controller see that nothing was lost (KIP-966); -1 if unclean.
        self.previous_broker_epoch = NO_BROKER_EPOCH
        self.cleaner = LogCleaner(host, config, self._logs, self.offline_directories, self._directory_failed)

    # -- life

    def start(self, *, high_watermarks: Callable[[], Offsets]) -> None:
        """Lock the directories and open every log in them. Raises ConfigError when another process has one."""
        self._high_watermarks = high_watermarks
        for path in self.directories:
            try:
                self._load_directory(self._directories.open(path))
            except (OSError, CheckpointError) as error:
                self._directory_failed(path, error)
        self._directories.check_one_is_left()
        self.previous_broker_epoch = self._directories.previous_broker_epoch()
        self._every("log.flush.offset.checkpoint.interval.ms", self._checkpoint_recovery_points)
        self._every("log.flush.start.offset.checkpoint.interval.ms", self._checkpoint_log_starts)
        self._every("replica.high.watermark.checkpoint.interval.ms", self._checkpoint_high_watermarks)
        self._every("log.retention.check.interval.ms", self._apply_retention)
        self._every("producer.id.expiration.check.interval.ms", self._expire_producers)
        self._every("log.flush.scheduler.interval.ms", self._flush_due)
        self.cleaner.start(high_watermarks)

    def _load_directory(self, directory: LogDirectory) -> None:
        path = directory.path
        recovery_points = read_offsets(self._disk, f"{path}/{RECOVERY_POINT_CHECKPOINT}")
        log_starts = read_offsets(self._disk, f"{path}/{LOG_START_CHECKPOINT}")
        self._hws.update(read_offsets(self._disk, f"{path}/{HIGH_WATERMARK_CHECKPOINT}"))
        self.cleaner.state.load(path)
        defaults = LogConfig.resolve(self._config, {})
        for name in self._disk.list_dir(path):
            found = parse_dir_name(name)
            if (
                found is None
                or found.topic_partition.topic == METADATA_TOPIC
                or not self._disk.is_dir(f"{path}/{name}")
            ):
                continue
            if found.suffix == DELETE_DIR_SUFFIX:
                self._removal.add([f"{path}/{name}"], defaults.file_delete_delay_ms)
                continue
            topic_partition = found.topic_partition
            if found.suffix or topic_partition in self._logs:
                continue
            self._adopt(
                Opening(
                    f"{path}/{name}",
                    topic_partition,
                    defaults,
                    clean=directory.clean,
                    recovery_point=recovery_points.get(topic_partition, 0),
                    log_start_offset=log_starts.get(topic_partition, 0),
                    producer_expiration_ms=self._config.int_of("producer.id.expiration.ms"),
                )
            )

    def _adopt(self, opening: Opening) -> Log:
        log = open_log(self._services, opening)
        log.on_segments_deleted = lambda files: self._removal.add(files, log.config.file_delete_delay_ms)
        log.on_rolled = lambda: self._sync_beside(log, log.segments.active.base_offset)
        log.on_truncated = lambda: self._on_truncated(log)
        self._logs[opening.topic_partition] = log
        return log

    def shutdown(self, broker_epoch: int) -> None:
        """Flush and close all logs, write the checkpoints, and last the marker of a clean stop."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self.cleaner.stop()
        self._removal.cancel()
        unclean: set[str] = set()
        for log in self._logs.values():
            root = root_of(log.directory)
            if root not in self.offline_directories:
                try:
                    log.close(clean=True)
                except StorageFault as fault:
                    unclean.add(root)
                    self._directory_failed(fault.directory, fault)
        for checkpoint in (
            self._checkpoint_recovery_points,
            self._checkpoint_log_starts,
            self._checkpoint_high_watermarks,
        ):
            checkpoint()
        self._directories.close(broker_epoch, frozenset(unclean))

    # -- logs

    def get(self, topic_partition: TopicPartition) -> Log | None:
        return self._logs.get(topic_partition)

    def __iter__(self) -> Iterator[Log]:
        return iter(self._logs.values())

    def logs_in(self, directory: str) -> Iterator[Log]:
        """The logs in one of `log.dirs`."""
        return (log for log in self._logs.values() if root_of(log.directory) == directory)

    def checkpointed_high_watermarks(self) -> Offsets:
        return self._hws

    def get_or_create(
        self, topic_partition: TopicPartition, topic_id: bytes, config: LogConfig, *, directory: str | None = None
    ) -> Log:
        """The partition's log; a log of an earlier topic of that name is moved away (G14). Raises StorageFault."""
        log = self._logs.get(topic_partition)
        if log is not None and log.topic_id not in (topic_id, bytes(16)):
            self.delete(topic_partition)
            log = None
        if log is not None:
            log.config = config
            return log
        root = directory or self._directories.emptiest(root_of(log.directory) for log in self._logs.values())
        opening = Opening(
            f"{root}/{dir_name(topic_partition)}",
            topic_partition,
            config,
            topic_id,
            clean=True,
            producer_expiration_ms=self._config.int_of("producer.id.expiration.ms"),
        )
        try:
            return self._adopt(opening)
        except (OSError, CheckpointError) as error:
            raise StorageFault(root, f"cannot open {topic_partition}: {error}") from error

    def delete(self, topic_partition: TopicPartition) -> None:
        """Rename the log's directory at once, remove it after `file.delete.delay.ms`."""
        log = self._logs.pop(topic_partition, None)
        self._hws.pop(topic_partition, None)
        if log is None:
            return
        self.cleaner.forget(log)
        root = root_of(log.directory)
        target = f"{root}/{marked_dir_name(topic_partition, self._host.random.uuid(), DELETE_DIR_SUFFIX)}"
        try:
            self._disk.rename(log.directory, target)
        except OSError as error:
            log.segments.release()
            raise StorageFault(root, f"cannot delete {topic_partition}: {error}") from error
        log.renamed(target)
        self._removal.add([target], log.config.file_delete_delay_ms)

    def directory_failed(self, directory: str) -> None:
        """Nothing in it is touched any more."""
        if directory in self.directories:
            self.offline_directories.add(directory)
            self.cleaner.state.directory_failed(directory)

    def _directory_failed(self, directory: str, error: BaseException) -> None:
        self.directory_failed(directory)
        self._host.faults.report(f"log directory {directory} failed", error)

    # -- what happens now and then

    def _every(self, key: str, task: Callable[[], None]) -> None:
        interval_ms = self._config.int_of(key)
        if interval_ms >= 1 << 40:
            return

        def run() -> None:
            try:
                task()
            except StorageFault as fault:
                self._directory_failed(fault.directory, fault)
            self._timers[key] = self._host.timers.call_later(max(1, self._config.int_of(key)), run)

        self._timers[key] = self._host.timers.call_later(min(max(1, interval_ms), _INITIAL_TASK_DELAY_MS), run)

    def _checkpoint(self, name: str, offsets: Offsets) -> None:
        """Write a checkpoint in each directory whose logs it concerns, if it says something new."""
        for directory in tuple(self._directories.online()):
            own = {
                log.topic_partition: offsets[log.topic_partition]
                for log in self.logs_in(directory.path)
                if log.topic_partition in offsets
            }
            self._directories.write_checkpoint(directory, name, own)

    def _checkpoint_recovery_points(self) -> None:
        self._checkpoint(RECOVERY_POINT_CHECKPOINT, {tp: log.recovery_point for tp, log in self._logs.items()})

    def _on_truncated(self, log: Log) -> None:
        self._checkpoint_recovery_points()
        self.cleaner.on_truncated(log)

    def _checkpoint_log_starts(self) -> None:
        """Only logs that start above their first segment need it: for the others the file name says it."""
        self._checkpoint(
            LOG_START_CHECKPOINT,
            {
                tp: log.log_start_offset
                for tp, log in self._logs.items()
                if log.log_start_offset > log.segments[0].base_offset
            },
        )

    def _checkpoint_high_watermarks(self) -> None:
        self._checkpoint(HIGH_WATERMARK_CHECKPOINT, {**self._hws, **self._high_watermarks()})

    def _apply_retention(self) -> None:
        wall_ms = self._host.clock.wall_ms()
        high_watermarks = self._high_watermarks()
        for topic_partition, log in tuple(self._logs.items()):
            if root_of(log.directory) in self.offline_directories:
                continue
            high_watermark = high_watermarks.get(topic_partition, log.log_start_offset)
            log.delete_old_segments(wall_ms, high_watermark=high_watermark)

    def _expire_producers(self) -> None:
        wall_ms = self._host.clock.wall_ms()
        for log in self._logs.values():
            log.producers.expire(wall_ms)

    def _flush_due(self) -> None:
        wall_ms = self._host.clock.wall_ms()
        for log in self._logs.values():
            if log.recovery_point < log.log_end_offset and wall_ms - log.last_flushed_ms >= log.config.flush_ms:
                self._sync_beside(log, log.log_end_offset)

    def _sync_beside(self, log: Log, end_offset: int) -> None:
        """Sync what is below `end_offset` without holding up the loop."""
        root = root_of(log.directory)
        if root in self.offline_directories:
            return
        work, succeeded = log.sync_job(end_offset)

        def done(_: object, error: BaseException | None) -> None:
            if error is None:
                succeeded()
            elif self._logs.get(log.topic_partition) is log:
                self._directory_failed(root, error)

        self._host.blocking.run(work, done)
