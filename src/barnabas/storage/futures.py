"""Moves of logs to another of `log.dirs` (KIP-113), and the directories in which new logs are to be created.

    /d1/orders-3/                  the current log: appended to and read from
    /d2/orders-3.<32 hex>-future/  the future log: a copy that catches up with the current one, and then replaces it

Invariants
- The records of a future log are those of the current one: a truncation of the current log is applied to it
  immediately, at startup before anything is appended.
- A partition never has its own name in two directories: at the exchange the old directory is durably renamed to
  `-delete` before the new one gets the name. Between the two there is only the future log, which is complete and gets
  the name at the next startup (`promote`).
- When it replaces the current log, it is synced at least as far, and all checkpoints of its directory contain it.
- The current log is not compacted during a move, as its copy would then be a mixture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from barnabas.common.errors import (
    ConfigError,
    ErrorCode,
    RequestFailed,
    StorageExhausted,
    StorageFault,
    is_exhausted,
)
from barnabas.common.host import Host
from barnabas.common.log_config import LogConfig
from barnabas.common.types import ZERO_UUID, TopicPartition
from barnabas.storage.checkpoints import (
    DELETE_DIR_SUFFIX,
    FUTURE_DIR_SUFFIX,
    CheckpointError,
    dir_name,
    marked_dir_name,
    remove_tree_quietly,
)
from barnabas.storage.compaction.cleaner import LogCleaner
from barnabas.storage.directories import LogDirectories, root_of
from barnabas.storage.file_removal import DelayedRemoval
from barnabas.storage.log import Log
from barnabas.storage.recovery.recovery import Opening

#: The copying code syncs the future log itself, in large parts in the background.
_NEVER = (1 << 63) - 1


def future_dir_name(topic_partition: TopicPartition, unique: bytes) -> str:
    """Returns a name such as `orders-3.<32 hex digits>-future`. It is never cut, because the next startup derives the
    partition from it.
    """
    return f"{dir_name(topic_partition)}.{unique.hex()}{FUTURE_DIR_SUFFIX}"


class FutureLogs:
    """The future logs of a broker. `logs` are its current ones, which `exchange` and `promote` change."""

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
        self._requested: dict[TopicPartition, str] = {}
        #: A number that increases whenever a log appears in a directory or leaves it.
        self.changes = 0
        self._on_truncated: Callable[[TopicPartition], None] | None = None

    def watch_truncations(self, truncated: Callable[[TopicPartition], None]) -> None:
        """Sets a callback for each partition whose current log was truncated. The callback is called after its future
        log has been truncated too.
        """
        self._on_truncated = truncated

    def get(self, topic_partition: TopicPartition) -> Log | None:
        return self._futures.get(topic_partition)

    def __iter__(self) -> Iterator[Log]:
        return iter(tuple(self._futures.values()))

    # -- requested directories

    def request(self, topic_partition: TopicPartition, root: str) -> None:
        """Requests that the partition's log is created in this directory, if it is created later; ignored if its
        current or future log is in that directory already."""
        for log in (self._logs.get(topic_partition), self._futures.get(topic_partition)):
            if log is not None and root_of(log.directory) == root:
                return
        self._requested[topic_partition] = root

    def requested(self, topic_partition: TopicPartition) -> str | None:
        """Returns the requested directory of a log that does not exist yet, or None if there is none or it has
        failed.
        """
        root = self._requested.get(topic_partition)
        return None if root in self._directories.offline else root

    def request_done(self, topic_partition: TopicPartition) -> None:
        self._requested.pop(topic_partition, None)

    # -- at the start

    def load(self, opening: Opening) -> None:
        """Opens the future log that an earlier run left. Raises ConfigError if there are two, OSError,
        CheckpointError."""
        other = self._futures.get(opening.topic_partition)
        if other is not None:
            raise ConfigError(
                f"Duplicate log directories found: {opening.directory}, {other.directory}! Both are future logs "
                f"of {opening.topic_partition}: remove one of them"
            )
        future = self._open_log(opening)
        if future.losses.damage is not None:
            future.segments.release()
            raise CheckpointError(opening.directory, future.losses.damage.text)
        self._add(future)

    def align(self) -> None:
        """Aligns each future log with its current one, after all logs are loaded."""
        for future in self:
            current = self._logs.get(future.topic_partition)
            if current is None:
                continue
            # A log without a topic id belongs to no topic yet; `ReplicaMoves.resume` decides about it once it has one.
            is_of_another = current.topic_id not in (future.topic_id, ZERO_UUID)
            if is_of_another or root_of(future.directory) == root_of(current.directory):
                self.cancel(future.topic_partition)
                continue
            _truncate_to_common(future, current)
            self._cleaner.pause(current)

    def promote(self, topic_partition: TopicPartition, topic_id: bytes, *, assigned: str | None) -> bool:
        """Makes the future log the current one if that does not exist. It is refused while the current log could be in
        a failed directory, unless the metadata assigns the directory of the future log. Raises StorageFault."""
        future = self._futures.get(topic_partition)
        if future is None or topic_partition in self._logs or future.topic_id != topic_id:
            return False
        if self._directories.offline and assigned != root_of(future.directory):
            return False
        try:
            self._take_name(future)
            self._disk.sync_dir(root_of(future.directory))
        except OSError as error:
            raise _fault(root_of(future.directory), f"cannot complete a move: {error}", error) from error
        self._host.faults.report(f"{topic_partition} continues in {future.directory}, the target of its move")
        return True

    # -- a move

    def create(self, topic_partition: TopicPartition, root: str, config: LogConfig) -> Log:
        """Returns the future log, and creates an empty one if there is none. Raises StorageFault, RequestFailed."""
        future = self._futures.get(topic_partition)
        if future is not None:
            assert root_of(future.directory) == root, "one future log at a time"
            return future
        if self._directories.offline:
            # The log could exist in a directory that cannot be read now.
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
            # Without the topic id and a synced name, the next startup would not recognise the future log.
            future.persist_identity()
            self._disk.sync_dir(root)
        except (OSError, CheckpointError) as error:
            # The next attempt has another name, and a start refuses two copies of one log.
            remove_tree_quietly(self._disk, opening.directory)
            raise _fault(root, f"cannot create a future log for {topic_partition}: {error}", error) from error
        self._add(future)
        self._requested.pop(topic_partition, None)
        self._cleaner.pause(current)
        # Entries in the checkpoints from an earlier log in that directory must not be applied to this one.
        self._checkpoint()
        return future

    def _add(self, future: Log) -> None:
        self._futures[future.topic_partition] = future
        self.changes += 1

    def reconfigure(self, topic_partition: TopicPartition, config: LogConfig) -> None:
        future = self._futures.get(topic_partition)
        if future is not None:
            future.config = _for_copying(config)

    def cancel(self, topic_partition: TopicPartition, *, immediately: bool = False) -> None:
        """Removes a future log that is no longer needed: renames it now, and removes it after `file.delete.delay.ms`,
        or immediately with `immediately`, where its space is needed. Raises StorageFault."""
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
        self._removal.add([future.directory], 0 if immediately else future.config.file_delete_delay_ms)
        self._checkpoint()

    def directory_failed(self, root: str) -> None:
        """Stops using the future logs in a failed directory; the next startup can find them."""
        for future in self:
            if root_of(future.directory) == root:
                del self._futures[future.topic_partition]
                self.changes += 1
                self._resume_cleaning(future.topic_partition)

    def current_truncated(self, current: Log) -> None:
        """Truncates the future log to the end of its current log, which was truncated. Raises StorageFault for the
        future log's directory.
        """
        future = self._futures.get(current.topic_partition)
        if future is not None:
            future.truncate_to(current.log_end_offset)
            if self._on_truncated is not None:
                self._on_truncated(current.topic_partition)

    def prepare(self) -> None:
        """Writes the checkpoints before an exchange, so that they contain the copy."""
        self._checkpoint()

    def exchange(self, topic_partition: TopicPartition, config: LogConfig) -> Log:
        """Makes the future log, which has all records, the current one; the caller syncs its directory. Raises
        StorageFault, with the current log still in place."""
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
            raise _fault(target, f"cannot complete the move of {topic_partition}: {error}", error) from error
        self._cleaner.resume(current)
        self._cleaner.state.move(topic_partition, source, target)
        directory = current.directory
        self._set_aside(current, source)
        # A start from here on finds only the future log, and promotes it.
        try:
            self._take_name(future)
        except OSError as error:
            self._put_back(current, directory, source)
            raise _fault(target, f"cannot complete the move of {topic_partition}: {error}", error) from error
        self._removal.add([current.directory], current.config.file_delete_delay_ms)
        future.config = config
        return future

    def _take_name(self, future: Log) -> None:
        """Renames the future log to the partition's own name. Raises OSError, with nothing changed."""
        name = f"{root_of(future.directory)}/{dir_name(future.topic_partition)}"
        self._disk.rename(future.directory, name)
        future.renamed(name)
        self._futures.pop(future.topic_partition, None)
        self._logs[future.topic_partition] = future
        self.changes += 1

    def _set_aside(self, log: Log, root: str) -> None:
        """Renames a log's directory durably to one that is to be deleted. Raises StorageFault."""
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


def _fault(root: str, text: str, error: Exception) -> StorageFault:
    """Returns the fault of a directory. A full directory has not failed (decision 0012)."""
    return StorageExhausted(root, text) if is_exhausted(error) else StorageFault(root, text)


def _for_copying(config: LogConfig) -> LogConfig:
    return replace(config, flush_messages=_NEVER, flush_ms=_NEVER)


def _truncate_to_common(future: Log, current: Log) -> None:
    """Truncates the future log where it has records that the current one lacks, or has from another leader. Raises
    StorageFault."""
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
