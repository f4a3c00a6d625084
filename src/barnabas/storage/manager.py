"""All logs of a broker in its log directories: opening, placing, deleting, checkpoints, retention, directory failure.

    log.dirs/                      .lock, meta.properties, the four offset checkpoints, .kafka_cleanshutdown
        orders-3/                  a log
        orders-3.<uuid>-delete/    on its way out, for file.delete.delay.ms

Invariants
- The clean-shutdown marker is the last thing written at a stop and the first removed at a start (G12).
- No timers per partition: one timer each for checkpoints, retention and delayed removal.
- A directory that failed is not touched again until the next start; the others go on (KIP-112).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from barnabas.common.config import BrokerConfig
from barnabas.common.errors import ConfigError, StorageFault
from barnabas.common.host import Disk, Host, Lock, Timer
from barnabas.common.log_config import LogConfig
from barnabas.common.types import METADATA_TOPIC, TopicPartition
from barnabas.storage.batch_file import Descriptors
from barnabas.storage.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    DELETE_DIR_SUFFIX,
    HIGH_WATERMARK_CHECKPOINT,
    LOCK_FILE,
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    CheckpointError,
    decode_clean_shutdown,
    dir_name,
    encode_clean_shutdown,
    encode_offsets,
    marked_dir_name,
    parse_dir_name,
    read_offsets,
    write_atomically,
)
from barnabas.storage.cleaner import LogCleaner
from barnabas.storage.log import Log
from barnabas.storage.recovery import Opening, open_log
from barnabas.storage.segments import LogServices

Offsets = dict[TopicPartition, int]
_NO_BROKER_EPOCH = -1
_INITIAL_TASK_DELAY_MS = 30_000


class LogDirectory:
    """One of `log.dirs`: its lock and what its checkpoints said last."""

    __slots__ = ("clean", "lock", "path", "written")

    def __init__(self, path: str, lock: Lock) -> None:
        self.path = path
        self.lock = lock
        self.clean = False
        #: Checkpoint name -> bytes as last written, so that what did not change is not written again.
        self.written: dict[str, bytes] = {}


class DelayedRemoval:
    """Files and directories that are removed after a while, beside the loop; one timer for all."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._waiting: deque[tuple[int, list[str]]] = deque()
        self._timer: Timer | None = None

    def add(self, paths: list[str], delay_ms: int) -> None:
        if paths:
            self._waiting.append((self._host.clock.now_ms() + delay_ms, paths))
            self._arm()

    def cancel(self) -> None:
        """What still waits is found and removed at the next start."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        if self._timer is None and self._waiting:
            due_ms = min(due for due, _ in self._waiting)
            delay_ms = max(0, due_ms - self._host.clock.now_ms())
            self._timer = self._host.timers.call_later(delay_ms, self._remove_due)

    def _remove_due(self) -> None:
        self._timer = None
        now_ms = self._host.clock.now_ms()
        paths = [path for due, some in self._waiting if due <= now_ms for path in some]
        self._waiting = deque(entry for entry in self._waiting if entry[0] > now_ms)
        self._host.blocking.run(lambda: _remove(self._host.disk, paths), self._removed)
        self._arm()

    def _removed(self, _: object, error: BaseException | None) -> None:
        if error is not None:
            self._host.faults.report("cannot remove deleted files", error)


def _remove(disk: Disk, paths: list[str]) -> None:
    for path in paths:
        if disk.is_dir(path):
            disk.remove_tree(path)
        elif disk.exists(path):
            disk.remove(path)


class LogManager:
    """The logs of all partitions but the metadata log, which its quorum keeps."""

    def __init__(self, host: Host, config: BrokerConfig) -> None:
        self._host = host
        self._config = config
        self._disk = host.disk
        self._logs: dict[TopicPartition, Log] = {}
        self._dirs: dict[str, LogDirectory] = {}
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
        self.directories: tuple[str, ...] = config.log_dirs
        self.offline_directories: set[str] = set()
        #: From the clean-shutdown marker: lets the controller see that nothing was lost (KIP-966); -1 if unclean.
        self.previous_broker_epoch = _NO_BROKER_EPOCH
        self.cleaner = LogCleaner(host, config, self._logs, self.offline_directories, self._directory_failed)

    # -- life

    def start(self, *, high_watermarks: Callable[[], Offsets]) -> None:
        """Lock the directories and open every log in them. Raises ConfigError when another process has one."""
        self._high_watermarks = high_watermarks
        epochs: list[int] = []
        for path in self.directories:
            try:
                directory = self._open_directory(path, epochs)
                self._load_directory(directory)
            except (OSError, CheckpointError) as error:
                self._directory_failed(path, error)
        if self.directories and len(self.offline_directories) == len(self.directories):
            raise ConfigError(f"none of log.dirs={','.join(self.directories)} can be used")
        if len(epochs) == len(self.directories):
            self.previous_broker_epoch = min(epochs)
        self._every("log.flush.offset.checkpoint.interval.ms", self._checkpoint_recovery_points)
        self._every("log.flush.start.offset.checkpoint.interval.ms", self._checkpoint_log_starts)
        self._every("replica.high.watermark.checkpoint.interval.ms", self._checkpoint_high_watermarks)
        self._every("log.retention.check.interval.ms", self._apply_retention)
        self._every("producer.id.expiration.check.interval.ms", self._expire_producers)
        self._every("log.flush.scheduler.interval.ms", self._flush_due)
        self.cleaner.start(high_watermarks)

    def _open_directory(self, path: str, epochs: list[int]) -> LogDirectory:
        disk = self._disk
        disk.make_dirs(path)
        try:
            lock = disk.lock(f"{path}/{LOCK_FILE}")
        except BlockingIOError:
            raise ConfigError(
                f"log directory {path} is in use by another process: stop it, or give this node a directory of its own"
            ) from None
        directory = self._dirs[path] = LogDirectory(path, lock)
        marker = f"{path}/{CLEAN_SHUTDOWN_FILE}"
        if disk.exists(marker):
            directory.clean = True
            try:
                epochs.append(decode_clean_shutdown(disk.read(marker)))
            except CheckpointError:
                epochs.append(_NO_BROKER_EPOCH)
            disk.remove(marker)
            disk.sync_dir(path)
        return directory

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
        clean = dict.fromkeys(self._dirs, True)
        for log in self._logs.values():
            root = log.directory.rpartition("/")[0]
            if root not in self.offline_directories:
                try:
                    log.close(clean=True)
                except StorageFault as fault:
                    clean[root] = False
                    self._directory_failed(fault.directory, fault)
        for checkpoint in (
            self._checkpoint_recovery_points,
            self._checkpoint_log_starts,
            self._checkpoint_high_watermarks,
        ):
            checkpoint()
        for path, directory in self._dirs.items():
            if path not in self.offline_directories and clean[path]:
                write_atomically(self._disk, f"{path}/{CLEAN_SHUTDOWN_FILE}", encode_clean_shutdown(broker_epoch))
            directory.lock.release()
        self._dirs.clear()

    # -- logs

    def get(self, topic_partition: TopicPartition) -> Log | None:
        return self._logs.get(topic_partition)

    def __iter__(self) -> Iterator[Log]:
        return iter(self._logs.values())

    def logs_in(self, directory: str) -> Iterator[Log]:
        """The logs in one of `log.dirs`."""
        return (log for log in self._logs.values() if log.directory.rpartition("/")[0] == directory)

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
        root = directory or self._emptiest_directory()
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

    def _emptiest_directory(self) -> str:
        """Placement by fewest partitions, as Kafka does it."""
        counts = {path: 0 for path in self.directories if path not in self.offline_directories}
        if not counts:
            raise StorageFault(self.directories[0], "no log directory is left")
        for log in self._logs.values():
            root = log.directory.rpartition("/")[0]
            if root in counts:
                counts[root] += 1
        return min(counts, key=lambda path: counts[path])

    def delete(self, topic_partition: TopicPartition) -> None:
        """Rename the log's directory at once, remove it after `file.delete.delay.ms`."""
        log = self._logs.pop(topic_partition, None)
        self._hws.pop(topic_partition, None)
        if log is None:
            return
        self.cleaner.forget(log)
        root = log.directory.rpartition("/")[0]
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
        for path, directory in self._dirs.items():
            if path in self.offline_directories:
                continue
            own = {
                log.topic_partition: offsets[log.topic_partition]
                for log in self.logs_in(path)
                if log.topic_partition in offsets
            }
            data = encode_offsets(own)
            if directory.written.get(name) == data:
                continue
            try:
                write_atomically(self._disk, f"{path}/{name}", data)
            except OSError as error:
                self._directory_failed(path, error)
                continue
            directory.written[name] = data

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
            if log.directory.rpartition("/")[0] in self.offline_directories:
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
        root = log.directory.rpartition("/")[0]
        if root in self.offline_directories:
            return
        work, succeeded = log.sync_job(end_offset)

        def done(_: object, error: BaseException | None) -> None:
            if error is None:
                succeeded()
            elif self._logs.get(log.topic_partition) is log:
                self._directory_failed(root, error)

        self._host.blocking.run(work, done)
