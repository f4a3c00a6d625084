"""The directories of `log.dirs`: their locks, identities, checkpoints, and which of them work.

    .lock                  held while this process runs
    meta.properties        the directory's id, by which the controller knows it (KIP-858)
    barnabas-inventory     the segments of every log, as a clean shutdown left them
    .kafka_cleanshutdown   written last at a shutdown, removed first at startup (G12)
    *-checkpoint           one offset per partition whose log is in this directory

A directory that failed is not used again before a restart; the others continue (KIP-112). A full one refuses only what
needs space, and is tried again (decision 0012).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from barnabas.common.errors import ConfigError, StorageFault, is_exhausted, is_full
from barnabas.common.host import Host
from barnabas.common.types import ZERO_UUID, TopicPartition
from barnabas.storage.checkpoint_files import CheckpointFiles, LogDirectory, Offsets, has_entry, remove_drafts
from barnabas.storage.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    LOCK_FILE,
    META_PROPERTIES,
    CheckpointError,
    decode_clean_shutdown,
    decode_meta_properties,
    decode_offsets,
    encode_clean_shutdown,
    remove_quietly,
    write_atomically,
)
from barnabas.storage.health import PROBE_FILE, WriteHealth
from barnabas.storage.recovery.inventory import INVENTORY_FILE, Sizes, encode_inventory, read_inventory

__all__ = ["NO_BROKER_EPOCH", "LogDirectories", "LogDirectory", "Offsets", "root_of"]

NO_BROKER_EPOCH = -1
#: How soon a full directory is tried again; appends before that are refused immediately.
_FULL_RETRY_MS = 1000
_REPORT_AGAIN_MS = 60_000


def root_of(log_directory: str) -> str:
    """Returns which of `log.dirs` contains a log's directory."""
    return log_directory.rpartition("/")[0]


class LogDirectories:
    """The directories in the order of `log.dirs`. `on_failed(path, error)` is called when writing a checkpoint
    fails."""

    def __init__(
        self,
        host: Host,
        paths: Sequence[str],
        on_failed: Callable[[str, BaseException], None],
        health: WriteHealth | None = None,
    ) -> None:
        self._disk = host.disk
        self.files = CheckpointFiles(host, on_failed)
        self._on_failed = on_failed
        self._open: dict[str, LogDirectory] = {}
        self._epochs: list[int] = []
        self._clock = host.clock
        self._faults = host.faults
        self._listeners: list[Callable[[str, BaseException], None]] = []
        self.health = WriteHealth(host, paths) if health is None else health
        self._reported_ms: dict[str, int] = {}
        self._causes: dict[str, str] = {}
        self.paths = tuple(paths)
        self.offline: set[str] = set()
        #: Full directory -> time of the next attempt to write.
        self.full: dict[str, int] = {}

    def open(self, path: str) -> LogDirectory:
        """Locks a directory and removes its clean-shutdown marker. Raises OSError, CheckpointError, and ConfigError if
        another process uses it."""
        disk = self._disk
        disk.make_dirs(path)
        try:
            lock = disk.lock(f"{path}/{LOCK_FILE}")
        except BlockingIOError:
            raise ConfigError(
                f"log directory {path} is in use by another process: stop it, or configure another directory"
            ) from None
        directory = self._open[path] = LogDirectory(path, lock)
        remove_drafts(disk, path)
        remove_quietly(disk, f"{path}/{PROBE_FILE}")
        meta = f"{path}/{META_PROPERTIES}"
        if disk.exists(meta):
            directory.id = decode_meta_properties(meta, disk.read(meta)).directory_id or ZERO_UUID
        marker, inventory = f"{path}/{CLEAN_SHUTDOWN_FILE}", f"{path}/{INVENTORY_FILE}"
        if disk.exists(marker):
            directory.clean = True
            epoch = decode_clean_shutdown(disk.read(marker))
            self._epochs.append(epoch)
            try:
                directory.inventory = read_inventory(disk, inventory, epoch)
            except CheckpointError as error:
                self._faults.report(f"the segments of the last clean shutdown are unknown: {error}", error)
            disk.remove(marker)
            disk.sync_dir(path)
        if disk.exists(inventory):
            disk.remove(inventory)
        return directory

    def when_failed(self, callback: Callable[[str, BaseException], None]) -> None:
        """Calls back once for each directory that fails, with its path and the error; in the order of registration."""
        self._listeners.append(callback)

    def fail(self, path: str, error: BaseException) -> None:
        """Takes a directory of `log.dirs` offline; it is not used any more."""
        if path not in self.paths or path in self.offline:
            return
        self.offline.add(path)
        self._causes[path] = str(error)
        self.full.pop(path, None)
        self.health.failed(path)
        self._faults.report(f"log directory {path} failed and its partitions are offline: {error}", error)
        for notify in self._listeners:
            notify(path, error)

    def exhausted(self, path: str, error: BaseException) -> None:
        """Handles a write that failed for lack of space or descriptors; reports it at most once a minute."""
        now_ms = self._clock.now_ms()
        if is_full(error) or is_full(error.__cause__):
            self.full[path] = now_ms + _FULL_RETRY_MS
            self.health.refused(path)
        reported_ms = self._reported_ms.get(path)
        if reported_ms is None or now_ms - reported_ms >= _REPORT_AGAIN_MS:
            self._reported_ms[path] = now_ms
            self._faults.report(f"log directory {path} cannot be written: {error}", error)

    def is_offline(self, log_directory: str) -> bool:
        return root_of(log_directory) in self.offline

    def has_online(self, directory_id: bytes) -> bool:
        """Returns whether a working directory of `log.dirs` has this id."""
        return any(directory.id == directory_id for directory in self.online())

    def refuses(self, log_directory: str) -> bool:
        """Returns whether the directory of this log is known to be full, so that an append is refused without an
        attempt.
        """
        return self._clock.now_ms() < self.full.get(root_of(log_directory), 0)

    def append_succeeded(self, log_directory: str) -> None:
        """Records that an append to this log succeeded."""
        path = root_of(log_directory)
        if self.full.pop(path, None) is not None:
            self._reported_ms.pop(path, None)
            self._faults.inform(f"log directory {path} has free space again")

    def unwritable(self) -> list[bytes]:
        """Returns the ids of directories that currently refuse writes (`storage.health`)."""
        return [self.id_of(path) for path in self.health.unwritable() if path in self.paths]

    def check_one_is_left(self) -> None:
        """Raises ConfigError if all directories have failed."""
        if self.all_failed:
            raise ConfigError(
                f"none of log.dirs={','.join(self.paths)} can be used: {'; '.join(self._causes.values())}"
            )

    @property
    def all_failed(self) -> bool:
        return bool(self.paths) and len(self.offline) == len(self.paths)

    def cause_of(self, path: str) -> str:
        """Returns the reason why a directory is offline."""
        return self._causes.get(path, "")

    def previous_broker_epoch(self) -> int:
        """Returns the broker epoch in the clean-shutdown markers if every directory had one, else -1."""
        return min(self._epochs, default=NO_BROKER_EPOCH) if len(self._epochs) == len(self.paths) else NO_BROKER_EPOCH

    def online(self) -> Iterator[LogDirectory]:
        return (directory for path, directory in self._open.items() if path not in self.offline)

    def at(self, path: str) -> LogDirectory:
        return self._open[path]

    def id_of(self, path: str) -> bytes:
        """Returns the id of a directory of this process; zero if it has none or was never opened."""
        directory = self._open.get(path)
        return ZERO_UUID if directory is None else directory.id

    def path_of(self, directory_id: bytes) -> str | None:
        """Returns the working directory with this id, or None."""
        return next((known.path for known in self.online() if known.id == directory_id), None)

    def emptiest(self, counts: Mapping[str, int]) -> str:
        """Returns the working directory with the fewest partitions, as Kafka places logs. `counts`: the logs in each
        directory."""
        usable = [path for path in self.paths if path not in self.offline]
        if not usable:
            raise StorageFault(self.paths[0], "no log directory is available")
        return min(usable, key=lambda path: counts.get(path, 0))

    def write_checkpoint(self, directory: LogDirectory, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Writes a checkpoint if it changed. If the disk is full, the old file stays, which is older but not wrong."""
        try:
            self.files.write(directory, name, offsets)
        except OSError as error:
            self._on_failed(directory.path, error)

    def read_checkpoint(self, directory: LogDirectory, name: str) -> Offsets:
        """Returns the content of a checkpoint; empty if it is damaged, as the logs then give the offsets. Raises
        OSError."""
        path = f"{directory.path}/{name}"
        data = self._disk.read(path) if self._disk.exists(path) else None
        if not data:
            if data is None:
                self._begin_checkpoint(path)
            return {}
        try:
            offsets = decode_offsets(path, data)
        except CheckpointError as error:
            self._faults.report(f"cannot read a checkpoint; its offsets are determined from the logs: {error}", error)
            return {}
        directory.written[name] = dict(offsets)
        return offsets

    def _begin_checkpoint(self, path: str) -> None:
        """Creates an empty checkpoint, as Apache Kafka does at its first start; a lack of space does not matter."""
        try:
            self._disk.write(path, b"")
        except OSError as error:
            if not is_exhausted(error):
                raise

    def has_checkpoint_entry(self, topic_partition: TopicPartition) -> bool:
        """Returns whether a checkpoint has an entry for this partition, or is about to get one."""
        return any(has_entry(directory, topic_partition) for directory in self.online())

    def has_entry(self, path: str, name: str, topic_partition: TopicPartition) -> bool:
        """Returns whether a failure can leave an entry for this partition in a checkpoint of the directory."""
        return not self.files.is_at_most(self.at(path), name, topic_partition, 0)

    def close(
        self,
        broker_epoch: int,
        unclean: frozenset[str],
        sizes_in: Callable[[str], Iterable[tuple[TopicPartition, Sizes]]],
    ) -> None:
        """Marks the directories as cleanly shut down, except the failed and the unclean ones, writes their inventories,
        and unlocks them all."""
        for path, directory in self._open.items():
            if path not in self.offline and path not in unclean:
                try:
                    inventory = encode_inventory(broker_epoch, sizes_in(path))
                    write_atomically(self._disk, f"{path}/{INVENTORY_FILE}", inventory)
                    write_atomically(self._disk, f"{path}/{CLEAN_SHUTDOWN_FILE}", encode_clean_shutdown(broker_epoch))
                except OSError as error:
                    # Without the marker, the next startup scans the ends of the logs.
                    self._faults.report(f"log directory {path} is not marked as cleanly shut down: {error}", error)
            directory.lock.release()
        self._open.clear()
