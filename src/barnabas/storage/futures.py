"""Logs on their way to another of `log.dirs` (KIP-113), and where partitions are wished to be created.

    /d1/orders-3/                  the current log: appended to and read from
    /d2/orders-3.<32 hex>-future/  the future one: a copy that grows behind it, until it takes its place

Invariants
- A future log holds what the current one holds before its end: when the current one is truncated, so is it, at once;
  at a start too, before anything is appended.
- Two directories never both hold a partition under its own name: at the exchange the old one is renamed to `-delete`,
  for sure, before the new one gets the name. Between the two there is only the future log; it is complete, and takes
  the name at the next start (`promote`).
- When it takes the place, it is synced as far as the old one was, and all checkpoints of its directory speak of it.
- The current log is not compacted meanwhile: its copy would be of two minds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from barnabas.common.errors import ConfigError, ErrorCode, RequestFailed, StorageFault
from barnabas.common.host import Host
from barnabas.common.log_config import LogConfig
from barnabas.common.types import ZERO_UUID, TopicPartition
from barnabas.storage.checkpoints import (
    DELETE_DIR_SUFFIX,
    FUTURE_DIR_SUFFIX,
    CheckpointError,
    dir_name,
    marked_dir_name,
)
from barnabas.storage.compaction.cleaner import LogCleaner
from barnabas.storage.directories import LogDirectories, root_of
from barnabas.storage.log import Log
from barnabas.storage.recovery.recovery import Opening
from barnabas.storage.removal import DelayedRemoval

#: A copy is synced by whoever makes it, in large pieces beside the loop.
_NEVER = (1 << 63) - 1


def future_dir_name(topic_partition: TopicPartition, unique: bytes) -> str:
    """`orders-3.<32 hex digits>-future`, never cut: what it becomes must be told from it."""
    return f"{dir_name(topic_partition)}.{unique.hex()}{FUTURE_DIR_SUFFIX}"


class FutureLogs:
    """The future logs of a broker. `logs` are its current ones, changed by `exchange` and `promote`."""

    def __init__(
        self,
        host: Host,
        directories: LogDirectories,
        logs: dict[TopicPartition, Log],
        cleaner: LogCleaner,
        removal: DelayedRemoval,
        *,
        open_log: Callable[[Opening], Log],
        checkpoint: Callable[[], None],
    ) -> None:
        self._host = host
        self._disk = host.disk
        self._directories = directories
        self._logs = logs
        self._cleaner = cleaner
        self._removal = removal
        self._open_log = open_log
        self._checkpoint = checkpoint
        self._futures: dict[TopicPartition, Log] = {}
        self._wished: dict[TopicPartition, str] = {}
        #: Rises whenever a log begins to be in a directory, or ends to be there.
        self.changes = 0
        self._on_truncated: Callable[[TopicPartition], None] | None = None

    def watch_truncations(self, truncated: Callable[[TopicPartition], None]) -> None:
        """Call whoever moves replicas with each partition whose current log was cut; its future one is cut by then."""
        self._on_truncated = truncated

    def get(self, topic_partition: TopicPartition) -> Log | None:
        return self._futures.get(topic_partition)

    def __iter__(self) -> Iterator[Log]:
        return iter(tuple(self._futures.values()))

    # -- wishes

    def wish(self, topic_partition: TopicPartition, root: str) -> None:
        """If its log, or the next one, is made anew, it is to be there; nothing if one of them is there already."""
        for log in (self._logs.get(topic_partition), self._futures.get(topic_partition)):
            if log is not None and root_of(log.directory) == root:
                return
        self._wished[topic_partition] = root

    def wished(self, topic_partition: TopicPartition) -> str | None:
        """Where to make it, if somebody said so; forgotten when the log is there."""
        root = self._wished.get(topic_partition)
        return None if root in self._directories.offline else root

    def fulfilled(self, topic_partition: TopicPartition) -> None:
        self._wished.pop(topic_partition, None)

    # -- at the start

    def load(self, opening: Opening) -> None:
        """One that an earlier run left. Raises ConfigError if there are two, OSError, CheckpointError."""
        other = self._futures.get(opening.topic_partition)
        if other is not None:
            raise ConfigError(
                f"Duplicate log directories found: {opening.directory}, {other.directory}! Both are on their way to be "
                f"the log of {opening.topic_partition}: remove one of the two"
            )
        future = self._open_log(opening)
        if future.losses.damage is not None:
            future.segments.release()
            raise CheckpointError(opening.directory, future.losses.damage.text)
        self._add(future)

    def settle(self) -> None:
        """All logs are loaded: bring each future one into line with its current one."""
        for future in self:
            current = self._logs.get(future.topic_partition)
            if current is None:
                continue
            # One without a topic id is nobody's yet: whose it is it hears when it is opened (`ReplicaMoves.resume`).
            is_of_another = current.topic_id not in (future.topic_id, ZERO_UUID)
            if is_of_another or root_of(future.directory) == root_of(current.directory):
                self.cancel(future.topic_partition)
                continue
            _truncate_to_common(future, current)
            self._cleaner.pause(current)

    def promote(self, topic_partition: TopicPartition, topic_id: bytes, *, assigned: str | None) -> bool:
        """The current log is nowhere: let the future one be it. Not while the current one may be in a failed directory,
        unless the future one is in the directory that the metadata have. Raises StorageFault."""
        future = self._futures.get(topic_partition)
        if future is None or topic_partition in self._logs or future.topic_id != topic_id:
            return False
        if self._directories.offline and assigned != root_of(future.directory):
            return False
        try:
            self._take_name(future)
            self._disk.sync_dir(root_of(future.directory))
        except OSError as error:
            raise StorageFault(root_of(future.directory), f"cannot complete a move: {error}") from error
        self._host.faults.report(f"{topic_partition} continues in {future.directory}, the target of its move")
        return True

    # -- a move

    def create(self, topic_partition: TopicPartition, root: str, config: LogConfig) -> Log:
        """An empty future log, or the one there is. Raises StorageFault, RequestFailed."""
        future = self._futures.get(topic_partition)
        if future is not None:
            assert root_of(future.directory) == root, "one future log at a time"
            return future
        if self._directories.offline:
            # It might be there already, in a directory that cannot be read now.
            offline = ",".join(sorted(self._directories.offline))
            raise RequestFailed(ErrorCode.KAFKA_STORAGE_ERROR, f"log directories {offline} are offline")
        current = self._logs[topic_partition]
        name = future_dir_name(topic_partition, self._host.random.uuid())
        opening = Opening(
            f"{root}/{name}",
            topic_partition,
            _for_copying(config),
            current.topic_id,
            clean=True,
            log_start_offset=current.log_start_offset,
            producer_expiration_ms=current.producers.expiration_ms,
        )
        try:
            future = self._open_log(opening)
            # Without it, the next start would not know that it is on its way here.
            future.persist_identity()
            self._disk.sync_dir(root)
        except (OSError, CheckpointError) as error:
            raise StorageFault(root, f"cannot create a future log for {topic_partition}: {error}") from error
        self._add(future)
        self._wished.pop(topic_partition, None)
        self._cleaner.pause(current)
        # What a checkpoint says of an earlier stay in that directory must not be believed of this log.
        self._checkpoint()
        return future

    def _add(self, future: Log) -> None:
        self._futures[future.topic_partition] = future
        self.changes += 1

    def reconfigure(self, topic_partition: TopicPartition, config: LogConfig) -> None:
        future = self._futures.get(topic_partition)
        if future is not None:
            future.config = _for_copying(config)

    def cancel(self, topic_partition: TopicPartition, *, at_once: bool = False) -> None:
        """It is not wanted any more: renamed now, removed after `file.delete.delay.ms`, or `at_once` where its room is
        needed. Raises StorageFault."""
        future = self._futures.pop(topic_partition, None)
        if future is None:
            return
        self.changes += 1
        self._resume_cleaning(topic_partition)
        root = root_of(future.directory)
        if root in self._directories.offline:
            future.segments.release()
            return
        self._set_aside(future, root)
        self._removal.add([future.directory], 0 if at_once else future.config.file_delete_delay_ms)
        self._checkpoint()

    def directory_failed(self, root: str) -> None:
        """Those in it are not touched any more; the next start may find them."""
        for future in self:
            if root_of(future.directory) == root:
                del self._futures[future.topic_partition]
                self.changes += 1
                self._resume_cleaning(future.topic_partition)

    def current_truncated(self, current: Log) -> None:
        """The current log was cut short. Raises StorageFault for the future one's directory."""
        future = self._futures.get(current.topic_partition)
        if future is not None:
            future.truncate_to(current.log_end_offset)
            if self._on_truncated is not None:
                self._on_truncated(current.topic_partition)

    def prepare(self) -> None:
        """Soon there is an exchange: the checkpoints of its directory speak of the copy by then."""
        self._checkpoint()

    def exchange(self, topic_partition: TopicPartition, config: LogConfig) -> Log:
        """The future log, which has all records, becomes the current one; whoever asks for it has its directory synced.
        Raises StorageFault, with the current log where it was."""
        current, future = self._logs[topic_partition], self._futures[topic_partition]
        assert future.log_end_offset == current.log_end_offset, "the copy is complete"
        assert future.log_start_offset == current.log_start_offset, "the copy begins where the log begins"
        source, target = root_of(current.directory), root_of(future.directory)
        try:
            if future.recovery_point < current.recovery_point:
                future.flush()
            future.epochs.take_over(current.epochs)
            future.producers.take_over(current.producers)
            future.producers.take_snapshot(sync=False)
        except OSError as error:
            raise StorageFault(target, f"cannot complete the move of {topic_partition}: {error}") from error
        self._cleaner.resume(current)
        self._cleaner.state.move(topic_partition, source, target)
        directory = current.directory
        self._set_aside(current, source)
        # From here on a start finds the future log only, and promotes it.
        try:
            self._take_name(future)
        except OSError as error:
            self._put_back(current, directory, source)
            raise StorageFault(target, f"cannot complete the move of {topic_partition}: {error}") from error
        self._removal.add([current.directory], current.config.file_delete_delay_ms)
        future.config = config
        return future

    def _take_name(self, future: Log) -> None:
        """The partition's own. Raises OSError, with nothing changed."""
        name = f"{root_of(future.directory)}/{dir_name(future.topic_partition)}"
        self._disk.rename(future.directory, name)
        future.renamed(name)
        self._futures.pop(future.topic_partition, None)
        self._logs[future.topic_partition] = future
        self.changes += 1

    def _set_aside(self, log: Log, root: str) -> None:
        """Its directory is named as one to be deleted, for sure, when this returns. Raises StorageFault."""
        name = f"{root}/{marked_dir_name(log.topic_partition, self._host.random.uuid(), DELETE_DIR_SUFFIX)}"
        try:
            self._disk.rename(log.directory, name)
            log.renamed(name)
            self._disk.sync_dir(root)
        except OSError as error:
            log.segments.release()
            raise StorageFault(root, f"cannot delete {log.directory}: {error}") from error

    def _put_back(self, current: Log, directory: str, root: str) -> None:
        try:
            self._disk.rename(current.directory, directory)
        except OSError as error:
            raise StorageFault(root, f"cannot undo the move of {current.topic_partition}: {error}") from error
        current.renamed(directory)

    def _resume_cleaning(self, topic_partition: TopicPartition) -> None:
        current = self._logs.get(topic_partition)
        if current is not None:
            self._cleaner.resume(current)


def _for_copying(config: LogConfig) -> LogConfig:
    return replace(config, flush_messages=_NEVER, flush_ms=_NEVER)


def _truncate_to_common(future: Log, current: Log) -> None:
    """Cut off what the current log does not have, or has from another leader. Raises StorageFault."""
    while True:
        epoch = future.epochs.latest_epoch
        end_offset = current.log_end_offset
        if epoch >= 0:
            known, end = current.end_offset_for_epoch(epoch)
            if known >= 0:
                end_offset = min(end_offset, end)
            if known != epoch:
                end_offset = min(end_offset, future.epochs.entries[-1].start_offset)
        if end_offset >= future.log_end_offset:
            return
        future.truncate_to(end_offset)
