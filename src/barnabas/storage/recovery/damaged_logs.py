"""The logs of a broker that lost records, as found when they were opened: reports them, and repairs them when the state
of the other replicas is known.

The first ones are logged with one ERROR line each, all others together in one line: a failing disk can damage
thousands.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from barnabas.common.errors import StorageFault, is_exhausted
from barnabas.common.host import Host
from barnabas.common.types import TopicPartition
from barnabas.storage.checkpoint_files import LogDirectory
from barnabas.storage.checkpoints import DELETE_DIR_SUFFIX, STRAY_DIR_SUFFIX, CheckpointError, marked_dir_name
from barnabas.storage.compaction.cleaner import CleanerState
from barnabas.storage.directories import root_of
from barnabas.storage.file_removal import DelayedRemoval
from barnabas.storage.futures import FutureLogs
from barnabas.storage.log import Log
from barnabas.storage.log_reads import fault as storage_fault
from barnabas.storage.recovery.hole_filling import fill_holes, truncate_at_loss
from barnabas.storage.recovery.lost_offsets import (
    LOST_OFFSETS_FILE,
    Damage,
    KnownHoles,
    Losses,
    merge,
    read_lost,
    write_lost,
)
from barnabas.storage.recovery.recovery import Opening, open_log
from barnabas.storage.recovery.segment_ends import Evidence
from barnabas.storage.segments import LogServices

_REPORTED_MAX: Final = 20


class DamagedLogs:
    """The damaged logs of a broker. `logs` are all its logs; `connect` registers a log that was opened again."""

    def __init__(
        self,
        host: Host,
        services: LogServices,
        logs: dict[TopicPartition, Log],
        removal: DelayedRemoval,
        connect: Callable[[Log], Log],
    ) -> None:
        self._host = host
        self._disk = host.disk
        self._services = services
        self._logs = logs
        self._removal = removal
        self._connect = connect
        self._reported = 0
        self._unreported = 0
        #: Damaged logs about which nothing has been decided: they must not be treated as complete.
        self.waiting: set[TopicPartition] = set()
        #: Logs that cannot be opened at all, with their directories.
        self.unusable: dict[TopicPartition, str] = {}
        #: Recovery points of partitions whose directories are missing.
        self.missing: dict[TopicPartition, int] = {}
        #: The number of logs found damaged since the process started.
        self.total = 0

    @property
    def has_any(self) -> bool:
        return bool(self.waiting or self.unusable or self.missing)

    # -- finding

    def evidence(
        self, directory: LogDirectory, topic_partition: TopicPartition, path: str, cleaned: CleanerState
    ) -> Evidence:
        """Returns the state of a log that the last run recorded. Raises OSError."""
        known = KnownHoles()
        if self._disk.exists(f"{path}/{LOST_OFFSETS_FILE}"):
            try:
                known = read_lost(self._disk, path)
            except CheckpointError as error:
                self._host.faults.report(f"earlier losses of {topic_partition} are unknown: {error}", error)
        may_be_compacted = (
            cleaned.is_unknown(directory.path) or cleaned.get(directory.path, topic_partition) is not None
        )
        return Evidence(directory.inventory.get(topic_partition), may_be_compacted, known)

    def load_future(self, opening: Opening, futures: FutureLogs) -> None:
        """Opens the copy of a move that an earlier run left. A damaged copy is abandoned, and the move begins again.
        Raises ConfigError, OSError."""
        try:
            futures.load(opening)
            return
        except CheckpointError as error:
            self._host.faults.report(f"{opening.directory}, an incomplete copy, is abandoned: {error}", error)
        target = self._rename(opening.directory, opening.topic_partition, DELETE_DIR_SUFFIX)
        self._removal.add([target], opening.config.file_delete_delay_ms)

    def _rename(self, directory: str, topic_partition: TopicPartition, suffix: str) -> str:
        target = f"{root_of(directory)}/{marked_dir_name(topic_partition, self._host.random.uuid(), suffix)}"
        self._disk.rename(directory, target)
        return target

    # -- reporting

    def report(self, log: Log) -> None:
        """Reports and records the losses that were found when the log was opened. Raises OSError."""
        damage = log.losses.damage
        if damage is not None:
            try:
                write_lost(self._disk, log.directory, KnownHoles(damage.holes, log.holes))
            except OSError as error:
                if not is_exhausted(error):
                    raise
            self.waiting.add(log.topic_partition)
            self._count(f"{log.topic_partition} is damaged: {damage.text}", log.directory)
        for note in log.losses.notes:
            self._host.faults.inform(f"{log.topic_partition}: {note}")

    def cannot_open(self, opening: Opening, error: CheckpointError) -> None:
        """Reports a log that cannot be opened, and leaves its files unchanged."""
        self.unusable[opening.topic_partition] = opening.directory
        text = f"{opening.topic_partition} is damaged: its log cannot be opened and is left unchanged: {error}"
        self._count(text, opening.directory)

    def _count(self, text: str, directory: str) -> None:
        self.total += 1
        if self._reported < _REPORTED_MAX:
            self._reported += 1
            self._host.faults.report(f"{text}. `barnabas log verify {directory}` lists the faults")
        else:
            self._unreported += 1

    def report_rest(self) -> None:
        """Reports how many logs beyond the first ones are damaged, at the end of startup."""
        if self._unreported:
            self._host.faults.report(
                f"{self._unreported} more partitions are damaged: `barnabas log verify` lists them for a log directory"
            )
            self._unreported = 0

    def _settled(self, topic_partition: TopicPartition, what: str) -> None:
        self.waiting.discard(topic_partition)
        self._host.faults.inform(f"{topic_partition}: {what}")

    # -- deciding

    def mark_damaged(self, log: Log) -> None:
        """Reports a log whose offsets are not consecutive as damaged: its topic is not compacted, so they are lost
        records. Raises StorageFault."""
        end_offset = log.log_end_offset
        causes = ("segments or batches do not begin where those before them end",)
        found = log.losses.damage or Damage((), end_offset, end_offset, ())
        holes = merge([*found.holes, *log.losses.suspected])
        log.losses = Losses(log.holes, found._replace(holes=holes, causes=(*found.causes, *causes)))
        try:
            self.report(log)
        except OSError as error:
            raise storage_fault(log, "cannot record which offsets were lost", error) from error

    def accept_losses(self, topic_partition: TopicPartition) -> Log:
        """Repairs a log whose lost records no other replica has, so that it continues without them. Returns the log
        opened again. Raises StorageFault."""
        log = self._logs[topic_partition]
        damage = log.losses.damage
        assert damage is not None, "only a damaged log is repaired"
        opening = Opening(
            log.directory,
            topic_partition,
            log.config,
            log.topic_id,
            recovery_point=damage.expected_end,
            log_start_offset=log.log_start_offset,
            producer_expiration_ms=log.producers.expiration_ms,
        )
        try:
            fill_holes(self._disk, log)
            known = Evidence(known=read_lost(self._disk, log.directory))
            mended = self._connect(open_log(self._services, replace(opening, evidence=known)))
        except (OSError, CheckpointError) as error:
            raise StorageFault(root_of(log.directory), f"cannot repair {topic_partition}: {error}") from error
        self._logs[topic_partition] = mended
        lost = ", ".join(hole.text for hole in mended.holes)
        self._settled(
            topic_partition,
            f"no other replica is in sync, so the partition continues without the lost offsets {lost}; new records "
            f"begin at offset {mended.log_end_offset}. Fetches of lost offsets fail with CORRUPT_MESSAGE: move "
            "consumers past them, or delete the records up to them",
        )
        return mended

    def truncate(self, topic_partition: TopicPartition) -> None:
        """Truncates the log at its first lost offset; the rest is fetched from another replica. Raises StorageFault."""
        log = self._logs[topic_partition]
        try:
            truncate_at_loss(self._disk, log)
        except OSError as error:
            raise storage_fault(log, "cannot truncate the log", error) from error
        self._settled(topic_partition, f"truncated to offset {log.log_end_offset}; the rest is fetched from the leader")

    def set_aside(self, topic_partition: TopicPartition) -> None:
        """Sets aside a log that cannot be opened, as another replica has its records; a new log replaces it. Raises
        StorageFault."""
        directory = self.unusable[topic_partition]
        try:
            target = self._rename(directory, topic_partition, STRAY_DIR_SUFFIX)
        except OSError as error:
            raise StorageFault(root_of(directory), f"cannot set {directory} aside: {error}") from error
        del self.unusable[topic_partition]
        self._settled(topic_partition, f"set aside as {target}; the whole log is fetched from the leader")
