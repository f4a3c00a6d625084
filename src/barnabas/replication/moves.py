"""Moves of replicas between `log.dirs` while they are written and read (KIP-113, AlterReplicaLogDirs).

    copying     slice by slice, from the current log to the future log
    reporting   the copy is almost complete: the new directory is reported to the controller; then copying continues
    exchanging  the copy is complete after a slice, and replaces the log in the same event

Invariants
- A slice is read in a thread and appended on the event loop, with so few batches that the loop is not delayed. The log
  it was read from must not have changed (`Move.generation`). The copy waits for its syncs, which run in a thread.
- The controller learns the new directory before the exchange, so that after a crash in between it never assumes the
  replica to be in a directory that is lost (KIP-858). A move that ends before its exchange revokes the report.
- The last slice is small; it is read and appended, and the logs exchanged, in one event: a move completes under any
  load with which copying keeps up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from barnabas.common.config import BrokerConfig
from barnabas.common.errors import (
    ErrorCode,
    RecordsRejected,
    RequestFailed,
    StorageExhausted,
    StorageFault,
    is_exhausted,
)
from barnabas.common.host import Host
from barnabas.common.log_config import LogConfig
from barnabas.common.types import ZERO_UUID, TopicPartition
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.topics import PartitionImage
from barnabas.replication.move import LAST_SLICE_BYTES, UNSYNCED_BYTES_MAX, Move, MovePosition, MoveStage, is_in
from barnabas.replication.partition import Partition
from barnabas.replication.quotas import dynamic_rate
from barnabas.replication.throttle import Throttle
from barnabas.storage.checkpoints import NAME_BYTES_MAX
from barnabas.storage.directories import root_of
from barnabas.storage.futures import future_dir_name
from barnabas.storage.log import Log
from barnabas.storage.log_manager import LogManager

RATE_KEY = "replica.alter.log.dirs.io.max.bytes.per.second"
#: How often a missing file is looked up again, since it was possibly renamed.
_MISSING_MAX = 10


class Assignments(Protocol):
    """Reports the directory of a replica to the controller; calls `done` once that is committed."""

    def assign(self, topic_id: bytes, partition: int, directory_id: bytes, done: Callable[[], None]) -> None: ...


class Replicas(Protocol):
    """The partitions that can be moved."""

    def find(self, topic: str, index: int) -> Partition | None: ...

    def log_config(self, topic: str) -> LogConfig: ...

    def leader_hint(self, topic: str, index: int) -> tuple[int, int] | None:
        """Returns (leader id, leader epoch); None if the metadata does not contain the partition."""


class _Slice(NamedTuple):
    """The source of one slice, to detect that it changed since it was read."""

    place: MovePosition
    generation: int
    log: Log


class ReplicaMoves:
    """All moves of a broker; `num.replica.alter.log.dirs.threads` of them run at a time, the others wait."""

    def __init__(
        self,
        host: Host,
        config: BrokerConfig,
        logs: LogManager,
        replicas: Replicas,
        assignments: Assignments,
    ) -> None:
        """Creates the moves of a broker. `assignments` reports the directories of replicas to the controller."""
        self._host = host
        self._logs = logs
        self._node_id = config.node_id
        self._replicas = replicas
        windows = config.int_of("alter.log.dirs.replication.quota.window.num")
        window_ms = config.int_of("alter.log.dirs.replication.quota.window.size.seconds") * 1000
        self.throttle = Throttle(windows, window_ms)
        threads = config.int_or_none("num.replica.alter.log.dirs.threads")
        self._at_once = max(1, threads if threads is not None else len(logs.directories))
        self._moves: dict[TopicPartition, Move] = {}
        self._running: set[TopicPartition] = set()
        self._closed = False
        self._assignments = assignments
        logs.futures.watch_truncations(self._on_truncated)

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(tuple(self._moves))

    def close(self) -> None:
        """Stops all moves, without cleaning up: the next process continues them."""
        self._closed = True
        for move in self._moves.values():
            move.stage = MoveStage.ENDED
        self._moves.clear()

    # -- requests

    def alter(self, topic_partition: TopicPartition, directory: str) -> ErrorCode:
        """Moves the replica to this log directory, or records the directory for a replica that is created later.
        Returns Kafka's error codes.
        """
        try:
            self._alter(topic_partition, directory)
        except RequestFailed as failure:
            # Older clients expect this code for a replica that is not on this broker.
            is_absent = failure.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
            return ErrorCode.REPLICA_NOT_AVAILABLE if is_absent else failure.code
        except StorageFault as fault:
            self._logs.storage_fault(fault)
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE

    def _alter(self, topic_partition: TopicPartition, directory: str) -> None:
        logs, futures = self._logs, self._logs.futures
        if directory not in logs.directories:
            raise RequestFailed(ErrorCode.LOG_DIR_NOT_FOUND, f"Log dir {directory} is not found in the config.")
        if directory in logs.offline_directories:
            raise RequestFailed(ErrorCode.KAFKA_STORAGE_ERROR, f"Log directory {directory} is offline")
        if len(future_dir_name(topic_partition, ZERO_UUID)) > NAME_BYTES_MAX:
            raise RequestFailed(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic name is too long.")
        partition = self._replicas.find(*topic_partition)
        log = logs.get(topic_partition)
        if log is not None and root_of(log.directory) in logs.offline_directories:
            raise RequestFailed(ErrorCode.KAFKA_STORAGE_ERROR, f"Partition {topic_partition} is offline")
        future = futures.get(topic_partition)
        if future is not None and root_of(future.directory) != directory:
            self._end(topic_partition)
            futures.cancel(topic_partition)
            future = None
        futures.request(topic_partition, directory)
        if partition is None or log is None:
            is_known = self._replicas.leader_hint(*topic_partition) is not None
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            raise RequestFailed(code, f"{topic_partition} is not on this broker")
        if root_of(log.directory) != directory:
            futures.create(topic_partition, directory, self._replicas.log_config(topic_partition.topic))
            self._begin(partition)

    def resume(self, partition: Partition) -> None:
        """Continues a move of an earlier run, after the replica was opened."""
        futures, topic_partition = self._logs.futures, partition.topic_partition
        future = futures.get(topic_partition)
        if future is None:
            return
        here = root_of(partition.log.directory)
        if future.topic_id != partition.topic_id or root_of(future.directory) == here:
            # The future log is a remnant of an earlier topic with this name.
            try:
                futures.cancel(topic_partition)
            except StorageFault as fault:
                self._logs.storage_fault(fault)
            return
        futures.reconfigure(topic_partition, partition.log.config)
        self._begin(partition)

    def follow_rate(self, image: MetadataImage) -> None:
        """Applies the rate of this broker, else that of all brokers; a properties file cannot set it (KIP-113)."""
        self.throttle.rate_bytes = dynamic_rate(image, self._node_id, RATE_KEY)

    def promote(self, topic_partition: TopicPartition, topic_id: bytes, directory: str | None) -> None:
        """Makes a copy the current log if the current log does not exist, before a replica of this directory is
        opened.
        """
        try:
            self._logs.futures.promote(topic_partition, topic_id, assigned=directory)
        except StorageFault as fault:
            self._logs.storage_fault(fault)

    def report_directory(self, partition: Partition, image: PartitionImage) -> None:
        """Reports the replica's directory to the controller if the metadata contains another one (KIP-858)."""
        move = self._moves.get(partition.topic_partition)
        if move is not None and move.stage in (MoveStage.REPORTING, MoveStage.EXCHANGING):
            return
        directory_id = self._logs.roots.id_of(root_of(partition.log.directory))
        if directory_id not in (ZERO_UUID, image.directory_of(self._node_id)):
            self._assignments.assign(partition.topic_id, partition.topic_partition.partition, directory_id, _nothing)

    def forget(self, topic_partition: TopicPartition) -> None:
        """Ends the move of a replica that is deleted together with its logs."""
        self._end(topic_partition, is_deleted=True)

    def directory_failed(self, directory: str) -> None:
        """Ends the moves from and to the directory. Moves from it continue after a restart in which it works again."""
        for topic_partition, move in tuple(self._moves.items()):
            if directory in (move.source, move.target):
                self._end(topic_partition)

    # -- scheduling

    def _begin(self, partition: Partition) -> None:
        topic_partition = partition.topic_partition
        future = self._logs.futures.get(topic_partition)
        if future is None or topic_partition in self._moves or self._closed:
            return
        self._moves[topic_partition] = Move(partition, future)
        self._start_next()

    def _start_next(self) -> None:
        for topic_partition in sorted(self._moves):
            if len(self._running) >= self._at_once:
                return
            if topic_partition not in self._running:
                self._running.add(topic_partition)
                self._soon(self._moves[topic_partition])

    def _end(self, topic_partition: TopicPartition, *, is_deleted: bool = False) -> None:
        """Stops copying, and revokes the report to the controller."""
        move = self._moves.pop(topic_partition, None)
        if move is None:
            return
        if move.stage in (MoveStage.REPORTING, MoveStage.EXCHANGING) and not is_deleted:
            directory_id = self._logs.roots.id_of(move.source)
            self._assignments.assign(move.partition.topic_id, topic_partition.partition, directory_id, _nothing)
        move.stage = MoveStage.ENDED
        self._running.discard(topic_partition)
        self._host.timers.call_soon(self._start_next)

    def _soon(self, move: Move, delay_ms: int = 0) -> None:
        self._host.timers.call_later(delay_ms, lambda: self._step(move))

    # -- copying

    def _step(self, move: Move) -> None:
        """Begins the next step of the move. No other step is in progress now."""
        if move.stage is MoveStage.ENDED:
            move.close_file()
            return
        try:
            self._next(move)
        except (StorageFault, RecordsRejected, OSError) as error:
            self._failed(move, error)

    def _next(self, move: Move) -> None:
        move.follow_log_start()
        if move.unsynced_bytes >= UNSYNCED_BYTES_MAX:
            self._sync(move)
            return
        place = move.next_place()
        if place is not None and not move.fits_at_once(place):
            delay_ms = self.throttle.wait_ms(self._host.clock.now_ms())
            if delay_ms > 0:
                self._soon(move, delay_ms)
            else:
                self._read(move, place)
        elif move.unsynced_bytes > LAST_SLICE_BYTES and move.is_synced_less:
            self._sync(move)
        elif move.stage is MoveStage.COPYING:
            self._report_target(move)
        elif move.stage is MoveStage.EXCHANGING:
            self._exchange(move)

    def _read(self, move: Move, place: MovePosition) -> None:
        disk, path = self._host.disk, place.segment.log_path
        source = _Slice(place, move.generation, move.partition.log)
        end = place.segment.size_bytes
        self._host.blocking.run(
            lambda: move.read(disk, place, path, end),
            lambda data, error: self._on_read(move, source, data, error),
        )

    def _on_read(self, move: Move, source: _Slice, data: bytes | None, error: BaseException | None) -> None:
        if move.stage is MoveStage.ENDED:
            move.close_file()
            return
        is_same = move.generation == source.generation and is_in(move.partition.log, source.place.segment)
        try:
            if not is_same:
                move.place = None
            elif data is not None:
                move.missing = 0
                self.throttle.record(move.append(source.place, data), self._host.clock.now_ms())
            elif isinstance(error, FileNotFoundError) and move.missing < _MISSING_MAX:
                move.missing += 1
            else:
                assert error is not None, "either data or an error"
                raise _fault(move.source, f"{source.log.topic_partition}: cannot read", error)
        except (StorageFault, RecordsRejected, OSError) as failure:
            self._failed(move, failure)
            return
        self._soon(move)

    def _sync(self, move: Move) -> None:
        work, succeeded = move.future.sync_job(move.future.log_end_offset)

        def done(_: object, error: BaseException | None) -> None:
            if move.stage is MoveStage.ENDED:
                move.close_file()
            elif error is not None:
                self._failed(move, _fault(move.target, "cannot sync a future log", error))
            else:
                succeeded()
                self._step(move)

        move.unsynced_bytes = 0
        self._host.blocking.run(work, done)

    # -- completion

    def _report_target(self, move: Move) -> None:
        self._logs.futures.prepare()
        directory_id = self._logs.roots.id_of(move.target)
        move.stage = MoveStage.REPORTING

        def known() -> None:
            if move.stage is MoveStage.REPORTING:
                move.stage = MoveStage.EXCHANGING
                self._soon(move)

        partition = move.partition
        self._assignments.assign(partition.topic_id, partition.topic_partition.partition, directory_id, known)

    def _exchange(self, move: Move) -> None:
        """Copies the remaining part and exchanges the logs, in one event."""
        partition, current, future = move.partition, move.partition.log, move.future
        topic_partition = partition.topic_partition
        while (place := move.next_place()) is not None:
            data = place.segment.read(place.position, LAST_SLICE_BYTES)
            self.throttle.record(move.append(place, data), self._host.clock.now_ms())
        if future.log_end_offset < current.log_end_offset:
            # The last batches were compacted away; the copy still has to continue at the same LEO.
            future.roll(current.log_end_offset)
            future.log_end_offset = future.producers.map_end_offset = current.log_end_offset
        move.follow_log_start()
        moved = self._logs.futures.exchange(topic_partition, self._replicas.log_config(topic_partition.topic))
        partition.log = moved
        moved.signals.take_over_from(current.signals)
        partition.wake(0)
        self._moves.pop(topic_partition, None)
        self._running.discard(topic_partition)
        move.stage = MoveStage.ENDED
        move.close_file()
        self._host.timers.call_soon(self._start_next)
        disk = self._host.disk
        self._host.blocking.run(
            lambda: disk.sync_dir(move.target), lambda _, error: self._on_named(move.target, topic_partition, error)
        )

    def _on_named(self, target: str, topic_partition: TopicPartition, error: BaseException | None) -> None:
        if error is not None:
            self._logs.storage_fault(_fault(target, f"cannot sync the name of {topic_partition}", error))

    def _on_truncated(self, topic_partition: TopicPartition) -> None:
        move = self._moves.get(topic_partition)
        if move is not None:
            move.generation += 1
            move.place = None

    def _failed(self, move: Move, error: BaseException) -> None:
        """Ends the move; the replica stays in its directory."""
        topic_partition = move.partition.topic_partition
        self._end(topic_partition)
        move.close_file()
        if isinstance(error, OSError):
            # Errors of the future log arrive as StorageFault, so this error is from the current log.
            error = _fault(move.source, f"{topic_partition}: cannot read", error)
        if isinstance(error, StorageFault) and not isinstance(error, StorageExhausted):
            self._logs.storage_fault(error)
            return
        self._host.faults.report(f"{topic_partition} cannot be moved to {move.target}: {error}", error)
        try:
            self._logs.futures.cancel(topic_partition, immediately=True)
        except StorageFault as fault:
            self._logs.storage_fault(fault)


def _fault(directory: str, what: str, error: BaseException) -> StorageFault:
    kind = StorageExhausted if is_exhausted(error) else StorageFault
    fault = kind(directory, f"{what}: {error}")
    fault.__cause__ = error
    return fault


def _nothing() -> None:
    return None
