"""All logs of a broker in its log directories: opening, placement, deletion, checkpoints, retention, directory failure.

    log.dirs/                      .lock, meta.properties, the four offset checkpoints, .kafka_cleanshutdown
        orders-3/                  a log
        orders-3.<uuid>-delete/    to be removed after file.delete.delay.ms
        orders-3.<uuid>-future/    the copy of a move from another of log.dirs (storage.futures)
        orders-3.<uuid>-stray/     no longer assigned to this broker, as startup found; kept for a day

Invariants
- A directory that failed is not used again before a restart; the others continue (KIP-112).
- A full directory is not a failed one: what cannot be written now is written when there is space (decision 0012).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial

from barnabas.common.config import BrokerConfig
from barnabas.common.errors import ConfigError, StorageExhausted, StorageFault, is_exhausted, lacks_descriptors
from barnabas.common.host import Disk, Host
from barnabas.common.log_config import LogConfig
from barnabas.common.types import METADATA_TOPIC, ZERO_UUID, TopicPartition
from barnabas.records.append_rules import LoopBudget, RecordLimits
from barnabas.storage.background_files import EPOCHS, TOPIC_IDS, BackgroundWriter
from barnabas.storage.batch_file import Descriptors
from barnabas.storage.checkpoints import (
    DELETE_DIR_SUFFIX,
    FUTURE_DIR_SUFFIX,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    STRAY_DIR_SUFFIX,
    CheckpointError,
    dir_name,
    marked_dir_name,
    parse_dir_name,
    remove_tree_quietly,
)
from barnabas.storage.closing import Shape, close_all, shape_of, sizes_in
from barnabas.storage.compaction.choice import HighWatermark
from barnabas.storage.compaction.cleaner import LogCleaner
from barnabas.storage.directories import NO_BROKER_EPOCH, LogDirectories, LogDirectory, Offsets, root_of
from barnabas.storage.file_removal import DelayedRemoval
from barnabas.storage.futures import FutureLogs
from barnabas.storage.health import WriteHealth
from barnabas.storage.identity import is_misread as is_misread_id
from barnabas.storage.log import Log
from barnabas.storage.log_events import LogEvents
from barnabas.storage.log_reads import fault as storage_fault
from barnabas.storage.progress import ProgressLog
from barnabas.storage.recovery.damaged_logs import DamagedLogs
from barnabas.storage.recovery.recovery import Opening, is_unused, open_log
from barnabas.storage.recovery.segment_ends import Evidence
from barnabas.storage.segments import LogServices
from barnabas.storage.stray_removal import StrayRemoval
from barnabas.storage.upkeep import LogUpkeep


class _ManagerEvents(LogEvents[Log]):
    """Handles the events of all logs of the manager."""

    def __init__(self, disk: Disk, removal: DelayedRemoval, upkeep: LogUpkeep) -> None:
        super().__init__(disk)
        self._removal = removal
        self._upkeep = upkeep

    def on_segments_deleted(self, log: Log, files: list[str]) -> None:
        """Schedules the removal of the files after `file.delete.delay.ms`."""
        self._removal.add(files, log.config.file_delete_delay_ms)

    def on_rolled(self, log: Log) -> None:
        # A follower of a compacted log can begin the new segment above its LEO.
        self._upkeep.sync_in_background(log, min(log.segments.active.base_offset, log.log_end_offset))

    def on_truncating(self, log: Log) -> None:
        self._upkeep.on_truncating(log)

    def on_truncated(self, log: Log) -> None:
        self._upkeep.on_truncated(log)


class LogManager:
    """The logs of all partitions except the metadata log, which belongs to the quorum."""

    def __init__(self, host: Host, config: BrokerConfig) -> None:
        self._host = host
        self._config = config
        self._disk = host.disk
        self._logs: dict[TopicPartition, Log] = {}
        #: The number of logs in each directory, as of `_counted_at`, a value of the futures' `changes`.
        self._counts: Counter[str] | None = None
        self._counted_at = 0
        #: The `Shape` of each log that was opened after a clean shutdown.
        self._opened_as: dict[Log, Shape] = {}
        #: The write health of all directories, including that of the metadata log.
        self.health = WriteHealth(host, (*config.log_dirs, config.metadata_log_dir))
        self._directories = LogDirectories(host, config.log_dirs, self._fault, self.health)
        self._removal = DelayedRemoval(host)
        self._strays = StrayRemoval(host, self._removal)
        self._epoch_files = BackgroundWriter(host, EPOCHS, self._file_fault)
        self._topic_id_files = BackgroundWriter(host, TOPIC_IDS, self._file_fault)
        self._services = LogServices(
            host.disk,
            host.clock.wall_ms,
            lambda bound: host.random.below(bound) if bound > 0 else 0,
            Descriptors(),
            RecordLimits.of(config),
            LoopBudget(),
            now_s=host.clock.now_s,
            health=self.health,
        )
        #: The order is that of `log.dirs`.
        self.directories = self._directories.paths
        self.offline_directories = self._directories.offline
        self.roots = self._directories
        #: The epoch in the clean-shutdown marker, which shows the controller that no data was lost (KIP-966); -1 if
        #: unclean.
        self.previous_broker_epoch = NO_BROKER_EPOCH
        self.cleaner = LogCleaner(host, config, self._logs, self.offline_directories, self._fault)
        self.futures = FutureLogs(
            host,
            self._directories,
            self._logs,
            self.cleaner,
            self._removal,
            open_log=self._open,
            checkpoint=lambda: self._upkeep.write_checkpoints(),
        )
        self._directories.when_failed(lambda path, _: self.cleaner.state.directory_failed(path))
        self._directories.when_failed(lambda path, _: self.futures.directory_failed(path))
        self._upkeep = LogUpkeep(
            host, config, self._directories, self._logs, self._fault, cleaner=self.cleaner, futures=self.futures
        )
        self._removal.prepare = self._upkeep.forget
        self._events = _ManagerEvents(host.disk, self._removal, self._upkeep)
        #: Logs that lost records.
        self.damaged = DamagedLogs(host, self._services, self._logs, self._removal, self._connect)
        self.recovery_points = self._upkeep.recovery_points

    # -- life

    def start(self, *, high_watermark_of: HighWatermark) -> None:
        """Locks the directories and opens every log in them. Raises ConfigError if another process uses one."""
        for path in self.directories:
            try:
                self._load_directory(self._directories.open(path))
            except (OSError, CheckpointError) as error:
                self.directory_failed(path, error)
        self._directories.check_one_is_left()
        self._align_futures()
        for topic_partition in self._logs:
            # A log can have been moved to another directory after the checkpoint was written.
            self.damaged.missing.pop(topic_partition, None)
        self.damaged.report_rest()
        self.previous_broker_epoch = self._directories.previous_broker_epoch()
        if self.damaged.has_any:
            # Reports an unclean shutdown: the controller then removes this broker from ISR and ELR wherever there is
            # another replica, so that no election treats a damaged log as complete.
            self.previous_broker_epoch = NO_BROKER_EPOCH
        self._upkeep.start(high_watermark_of)
        self.cleaner.start(high_watermark_of)

    def _align_futures(self) -> None:
        try:
            self.futures.align()
        except StorageFault as fault:
            self.storage_fault(fault)

    def _load_directory(self, directory: LogDirectory) -> None:
        path = directory.path
        recovery_points = self._directories.read_checkpoint(directory, RECOVERY_POINT_CHECKPOINT)
        log_starts = self._directories.read_checkpoint(directory, LOG_START_CHECKPOINT)
        high_watermarks = self._directories.read_checkpoint(directory, HIGH_WATERMARK_CHECKPOINT)
        self.cleaner.state.load(path)
        defaults = LogConfig.resolve(self._config, {})
        openings: list[Opening] = []
        present: set[TopicPartition] = set()
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
                present.add(found.topic_partition)
                continue
            if found.suffix == STRAY_DIR_SUFFIX:
                self._strays.add(f"{path}/{name}")
                present.add(found.topic_partition)
                continue
            topic_partition = found.topic_partition
            present.add(topic_partition)
            opening = Opening(
                f"{path}/{name}",
                topic_partition,
                defaults,
                clean=directory.clean,
                recovery_point=recovery_points.get(topic_partition, 0),
                log_start_offset=log_starts.get(topic_partition, 0),
                high_watermark=high_watermarks.get(topic_partition, 0),
                producer_expiration_ms=self._config.int_of("producer.id.expiration.ms"),
                evidence=self.damaged.evidence(directory, topic_partition, f"{path}/{name}", self.cleaner.state),
            )
            if found.suffix == FUTURE_DIR_SUFFIX:
                self.damaged.load_future(opening, self.futures)
            elif not found.suffix:
                if self._is_left_over(opening):
                    continue
                openings.append(opening)
        self._open_all(directory, openings)
        for topic_partition, offset in recovery_points.items():
            if offset > 0 and topic_partition not in present and topic_partition.topic != METADATA_TOPIC:
                self.damaged.missing[topic_partition] = offset
        for topic_partition, high_watermark in high_watermarks.items():
            log = self._logs.get(topic_partition)
            if log is None:
                self._upkeep.checkpointed_high_watermarks.setdefault(topic_partition, high_watermark)
            elif root_of(log.directory) == path:
                self._upkeep.checkpointed_high_watermarks[topic_partition] = high_watermark

    def _open_all(self, directory: LogDirectory, openings: list[Opening]) -> None:
        """Opens the logs, in several threads if they have to be scanned. From then on only the loop uses them."""
        host, services = self._host, self._services
        threads = 1 if directory.clean else self._config.int_of("num.recovery.threads.per.data.dir")
        how = "after a clean shutdown" if directory.clean else "after an unclean shutdown"
        progress = ProgressLog(host, f"{directory.path}: opening logs {how}", len(openings))
        work = [partial(_try_to_open, services, opening) for opening in openings]
        for opening, log in zip(openings, host.blocking.run_all(work, threads), strict=True):
            if isinstance(log, CheckpointError):
                self.damaged.cannot_open(opening, log)
                continue
            self._logs[opening.topic_partition] = self._connect(log)
            self.damaged.report(log)
            if directory.clean:
                self._opened_as[log] = shape_of(log)
            progress.step()
        progress.end()

    def _is_left_over(self, opening: Opening) -> bool:
        """Removes the unused one of two directories of a partition. Such a directory remains if a log directory failed
        while the log was being created, and the partition was then placed in another one. Returns whether `opening` was
        removed. Raises ConfigError if both have records, because the right one cannot be determined here.
        """
        other = self._logs.get(opening.topic_partition)
        if other is None:
            return False
        if is_unused(self._disk, opening.directory):
            remove_tree_quietly(self._disk, opening.directory)
            return True
        if not is_unused(self._disk, other.directory):
            raise ConfigError(
                f"Duplicate log directories for {opening.topic_partition} are found in both {opening.directory} and "
                f"{other.directory}. It is likely that a log directory failed while the partition was being moved from "
                "one to the other: remove one of the two, preferably the one on the failed disk"
            )
        other.segments.release()
        del self._logs[opening.topic_partition]
        remove_tree_quietly(self._disk, other.directory)
        return False

    def _adopt(self, opening: Opening) -> Log:
        log = self._logs[opening.topic_partition] = self._open(opening)
        if self._counts is not None:
            self._counts[root_of(opening.directory)] += 1
        return log

    def _open(self, opening: Opening) -> Log:
        return self._connect(open_log(self._services, opening))

    def _connect(self, log: Log) -> Log:
        log.epochs.write_in_background(self._epoch_files, lambda: log.log_end_offset)
        if log.identity is not None:
            self._topic_id_files.changed(log.identity)
        log.signals.connect(self._events)
        return log

    def shutdown(self, broker_epoch: int) -> None:
        """Flushes and closes all logs, then writes the checkpoints, and last the clean-shutdown marker."""
        self._upkeep.stop()
        self.cleaner.stop()
        self._removal.cancel()
        self._strays.stop()
        self._epoch_files.stop()
        self._topic_id_files.stop()
        online = [
            log for log in (*self._logs.values(), *self.futures) if not self._directories.is_offline(log.directory)
        ]
        faults = close_all(self._host.blocking, online, self._opened_as)
        for fault in faults:
            self.storage_fault(fault)
        self._upkeep.write_checkpoints()
        self._directories.close(
            broker_epoch, frozenset(fault.directory for fault in faults), partial(sizes_in, self._logs)
        )

    # -- logs

    def get(self, topic_partition: TopicPartition) -> Log | None:
        return self._logs.get(topic_partition)

    def __iter__(self) -> Iterator[Log]:
        return iter(self._logs.values())

    def logs_in(self, directory: str) -> Iterator[Log]:
        """Returns the logs in one of `log.dirs`, including future ones."""
        return (log for log in (*self._logs.values(), *self.futures) if root_of(log.directory) == directory)

    def is_future(self, log: Log) -> bool:
        return self.futures.get(log.topic_partition) is log

    def checkpointed_high_watermarks(self) -> Offsets:
        return self._upkeep.checkpointed_high_watermarks

    def get_or_create(
        self, topic_partition: TopicPartition, topic_id: bytes, config: LogConfig, *, directory: str | None = None
    ) -> Log:
        """Returns the partition's log. A log of an earlier topic with this name is deleted first (G14). Raises
        StorageFault."""
        log = self._logs.get(topic_partition)
        is_misread = log is not None and is_misread_id(log.topic_id, topic_id)
        if log is not None and log.topic_id not in (topic_id, ZERO_UUID) and not is_misread:
            self.delete(topic_partition)
            log = None
        if log is not None:
            self.damaged.missing.pop(topic_partition, None)
            log.config = config
            if log.topic_id != topic_id:
                self._identify(log, topic_id)
            return log
        if self._directories.has_checkpoint_entry(topic_partition):
            # After a crash, entries of an earlier log with this name would be applied to the new one.
            self._upkeep.write_checkpoints()
        root = directory or self.futures.requested(topic_partition) or self._emptiest()
        vanished = self.damaged.missing.pop(topic_partition, 0)
        opening = Opening(
            f"{root}/{dir_name(topic_partition)}",
            topic_partition,
            config,
            topic_id,
            clean=True,
            recovery_point=vanished,
            high_watermark=vanished or None,
            producer_expiration_ms=self._config.int_of("producer.id.expiration.ms"),
            evidence=Evidence() if vanished else None,
        )
        was_there = self._disk.is_dir(opening.directory)
        try:
            log = self._adopt(opening)
            self.futures.request_done(topic_partition)
            self.damaged.report(log)
            return log
        except (OSError, CheckpointError) as error:
            if not was_there:
                # The next attempt can choose another directory, and a partition must not be in two.
                remove_tree_quietly(self._disk, opening.directory)
            kind = StorageExhausted if is_exhausted(error) else StorageFault
            raise kind(root, f"cannot open {topic_partition}: {error}") from error

    def _identify(self, log: Log, topic_id: bytes) -> None:
        """Gives a log its topic id. It lacks one if it was created just before a power failure, or by a broker without
        topic ids, or if the file is damaged. Raises StorageFault."""
        if log.topic_id != ZERO_UUID:
            self._host.faults.inform(
                f"{log.topic_partition}: partition.metadata has a damaged topic id and is rewritten"
            )
        try:
            file = log.identify(topic_id)
        except OSError as error:
            raise storage_fault(log, "cannot write the topic id", error) from error
        if file is not None:
            self._topic_id_files.changed(file)

    def _emptiest(self) -> str:
        """Returns the directory with the fewest logs. They are counted only after a move, so that creating ten thousand
        partitions stays fast."""
        if self._counts is None or self._counted_at != self.futures.changes:
            self._counts = Counter(root_of(log.directory) for log in (*self._logs.values(), *self.futures))
            self._counted_at = self.futures.changes
        return self._directories.emptiest(self._counts)

    def delete(self, topic_partition: TopicPartition) -> None:
        """Renames the log's directory immediately and removes it after `file.delete.delay.ms`. Raises StorageFault."""
        log = self._rename_away(topic_partition, DELETE_DIR_SUFFIX)
        if log is not None:
            self._removal.add([log.directory], log.config.file_delete_delay_ms)

    def set_aside(self, topic_partition: TopicPartition) -> str | None:
        """Renames the log's directory, to be removed after a day. Returns its new path. Raises StorageFault."""
        log = self._rename_away(topic_partition, STRAY_DIR_SUFFIX)
        if log is None:
            return None
        self._strays.add(log.directory)
        return log.directory

    def _rename_away(self, topic_partition: TopicPartition, suffix: str) -> Log | None:
        try:
            self.futures.cancel(topic_partition)
        except StorageFault as fault:
            self.storage_fault(fault)
        self.futures.request_done(topic_partition)
        self.damaged.missing.pop(topic_partition, None)
        log = self._logs.pop(topic_partition, None)
        if log is not None:
            self._opened_as.pop(log, None)
        self._upkeep.checkpointed_high_watermarks.pop(topic_partition, None)
        if log is None:
            return None
        self.cleaner.forget(log)
        root = root_of(log.directory)
        if self._counts is not None:
            self._counts[root] -= 1
        target = f"{root}/{marked_dir_name(topic_partition, self._host.random.uuid(), suffix)}"
        try:
            self._disk.rename(log.directory, target)
        except OSError as error:
            log.segments.release()
            raise StorageFault(root, f"cannot delete {topic_partition}: {error}") from error
        log.renamed(target)
        return log

    def storage_fault(self, fault: StorageFault) -> None:
        """Handles an error of a log or of its reader: the directory fails, unless only space or descriptors ran out."""
        self._fault(fault.directory, fault)

    def _file_fault(self, directory: str, error: OSError) -> None:
        """Handles a failed write of a log's small file. `directory` is the directory of the log."""
        self._fault(root_of(directory), error)

    def _fault(self, directory: str, error: BaseException) -> None:
        if is_exhausted(error):
            if lacks_descriptors(error) or lacks_descriptors(error.__cause__):
                # New connections need descriptors too, and cannot free any themselves.
                self._services.descriptors.close_half()
            self._directories.exhausted(directory, error)
        else:
            self.directory_failed(directory, error)

    def directory_failed(self, directory: str, error: BaseException) -> None:
        """Takes a failed directory offline; it is not used any more."""
        self._directories.fail(directory, error)


def _try_to_open(services: LogServices, opening: Opening) -> Log | CheckpointError:
    """Opens a log; returns an error instead if the log is damaged, so that the others are still opened. Raises
    OSError."""
    try:
        return open_log(services, opening)
    except CheckpointError as error:
        return error
