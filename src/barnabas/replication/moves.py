"""Replicas that move from one of `log.dirs` to another while they are written and read (KIP-113, AlterReplicaLogDirs).

    copying     slice by slice, from the current log to the future one
    telling     the copy has nearly all: the controller is told the new directory, and copying goes on when it knows
    exchanging  the copy has all at the end of a slice: in the same event it becomes the log

Invariants
- A slice is read beside the loop and appended on it, with few enough batches that nobody waits long; what it was read
  from must still be what it was (`_Move.generation`). The copy is synced beside the loop, piece by piece, and waits
  for that.
- The controller knows of a directory before the replica is there: a broker that dies in between is not believed to have
  the replica in a directory that it lost (KIP-858). A move that ends before its exchange takes that back.
- The last slice is small, and is read, appended and exchanged without leaving the loop: moves end under any load that
  copying can keep up with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from typing import NamedTuple, Protocol

from barnabas.common.config import BrokerConfig
from barnabas.common.errors import ErrorCode, RecordsRejected, RequestFailed, StorageExhausted, StorageFault
from barnabas.common.host import Disk, File, Host
from barnabas.common.log_config import LogConfig
from barnabas.common.types import ZERO_UUID, TopicPartition
from barnabas.metadata.image import BROKER_RESOURCE, MetadataImage
from barnabas.metadata.topics import PartitionImage
from barnabas.records.batch import iter_headers
from barnabas.records.header import LOG_OVERHEAD, corrupt
from barnabas.replication.partition import Partition
from barnabas.replication.throttle import UNLIMITED, Throttle
from barnabas.storage.checkpoints import NAME_BYTES_MAX
from barnabas.storage.directories import root_of
from barnabas.storage.futures import future_dir_name
from barnabas.storage.log import Log
from barnabas.storage.manager import LogManager
from barnabas.storage.segment import Segment

RATE_KEY = "replica.alter.log.dirs.io.max.bytes.per.second"
#: A slice is at most so long, and has about so many batches: a millisecond or two on the loop.
_SLICE_BYTES_MAX = 512 * 1024
_SLICE_BYTES_MIN = 16 * 1024
_SLICE_BATCHES = 64
#: What the last slice may have at most.
_LAST_SLICE_BYTES = 128 * 1024
#: So much of the copy is unsynced at most.
_UNSYNCED_BYTES_MAX = 32 * 1024 * 1024
#: A file that is not there is looked for again, for it may have been renamed.
_MISSING_MAX = 10


class Stage(Enum):
    COPYING = "copying"
    TELLING = "telling"
    EXCHANGING = "exchanging"
    ENDED = "ended"


class Assignments(Protocol):
    """Tells the controller in which directory a replica lies; `done` once it has decided so."""

    def assign(self, topic_id: bytes, partition: int, directory_id: bytes, done: Callable[[], None]) -> None: ...


class Replicas(Protocol):
    """The partitions that may be moved."""

    def find(self, topic: str, index: int) -> Partition | None: ...

    def log_config(self, topic: str) -> LogConfig: ...

    def leader_hint(self, topic: str, index: int) -> tuple[int, int] | None:
        """None for a partition that the metadata do not have."""


class _Place(NamedTuple):
    """Where the next slice begins in the current log."""

    segment: Segment
    position: int
    size_bytes: int


class _Slice(NamedTuple):
    """The source of one slice, to see whether it still is what was read."""

    place: _Place
    generation: int
    log: Log


class _Move:
    """One partition on its way."""

    __slots__ = (
        "batch_bytes",
        "file",
        "file_of",
        "future",
        "generation",
        "missing",
        "partition",
        "place",
        "source",
        "stage",
        "target",
        "unsynced_bytes",
    )

    def __init__(self, partition: Partition, future: Log) -> None:
        self.partition = partition
        self.future = future
        self.source = root_of(partition.log.directory)
        self.target = root_of(future.directory)
        self.stage = Stage.COPYING
        #: Changes when the current log is cut: what was read before is not to be appended.
        self.generation = 0
        self.place: tuple[Segment, int] | None = None
        self.batch_bytes = 1024
        is_synced = future.recovery_point >= future.log_end_offset
        self.unsynced_bytes = 0 if is_synced else _UNSYNCED_BYTES_MAX
        self.missing = 0
        self.file: File | None = None
        self.file_of: Segment | None = None

    @property
    def is_synced_less(self) -> bool:
        """Whether records that the current log would not lose with the power are not yet as safe in the copy."""
        return self.future.recovery_point < self.partition.log.recovery_point

    def read(self, disk: Disk, place: _Place, path: str, end: int) -> bytes:
        """Beside the loop, one at a time. At least one whole batch, if there is one before `end`."""
        position = place.position
        if self.file is None or self.file_of is not place.segment:
            self.close_file()
            self.file, self.file_of = disk.open(path, read_only=True), place.segment
        data = self.file.read_at(position, min(place.size_bytes, end - position))
        if len(data) >= LOG_OVERHEAD:
            whole = LOG_OVERHEAD + int.from_bytes(data[8:LOG_OVERHEAD], "big", signed=True)
            if whole > len(data):
                data = self.file.read_at(position, min(whole, end - position))
        return data

    def close_file(self) -> None:
        file, self.file = self.file, None
        if file is not None:
            file.close()


class ReplicaMoves:
    """All moves of a broker; `num.replica.alter.log.dirs.threads` of them at once, the others wait their turn."""

    def __init__(
        self,
        host: Host,
        config: BrokerConfig,
        logs: LogManager,
        replicas: Replicas,
    ) -> None:
        self._host = host
        self._logs = logs
        self._node_id = config.node_id
        self._replicas = replicas
        windows = config.int_of("alter.log.dirs.replication.quota.window.num")
        window_ms = config.int_of("alter.log.dirs.replication.quota.window.size.seconds") * 1000
        self.throttle = Throttle(windows, window_ms)
        threads = config.int_or_none("num.replica.alter.log.dirs.threads")
        self._at_once = max(1, threads if threads is not None else len(logs.directories))
        self._moves: dict[TopicPartition, _Move] = {}
        self._running: set[TopicPartition] = set()
        self._closed = False
        #: Who tells the controller; None where the metadata have no directories.
        self.assignments: Assignments | None = None
        logs.futures.on_truncated = self._on_truncated

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(tuple(self._moves))

    def close(self) -> None:
        """The process ends; the next one goes on."""
        self._closed = True
        for move in self._moves.values():
            move.stage = Stage.ENDED
        self._moves.clear()

    # -- what is asked for

    def alter(self, topic_partition: TopicPartition, directory: str) -> ErrorCode:
        """Move the replica to this one of `log.dirs`, or remember that it is to be made there. Codes as Kafka's."""
        try:
            self._alter(topic_partition, directory)
        except RequestFailed as failure:
            # What older clients expect of a replica that is not here.
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
        futures.wish(topic_partition, directory)
        if partition is None or log is None:
            is_known = self._replicas.leader_hint(*topic_partition) is not None
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            raise RequestFailed(code, f"{topic_partition} is not here")
        if root_of(log.directory) != directory:
            futures.create(topic_partition, directory, self._replicas.log_config(topic_partition.topic))
            self._begin(partition)

    def resume(self, partition: Partition) -> None:
        """A replica was opened: go on where an earlier run was."""
        future = self._logs.futures.get(partition.topic_partition)
        if future is not None:
            future_root = root_of(future.directory)
            assert future_root != root_of(partition.log.directory), "a move leads to another directory"
            self._logs.futures.reconfigure(partition.topic_partition, partition.log.config)
            self._begin(partition)

    def follow_rate(self, image: MetadataImage) -> None:
        """The one of this broker, else that of all brokers; it has no place in the properties file (KIP-113)."""
        rates = (image.config_of(BROKER_RESOURCE, name).get(RATE_KEY) for name in (str(self._node_id), ""))
        self.throttle.rate_bytes = next((int(rate) for rate in rates if rate is not None), UNLIMITED)

    def promote(self, topic_partition: TopicPartition, topic_id: bytes, directory: str | None) -> None:
        """Before a replica is opened that belongs into this directory: a copy may be all that is left of it."""
        try:
            self._logs.futures.promote(topic_partition, topic_id, assigned=directory)
        except StorageFault as fault:
            self._logs.storage_fault(fault)

    def tell_directory(self, partition: Partition, image: PartitionImage) -> None:
        """The replica lies where it lies: if the metadata say something else, have them changed (KIP-858)."""
        move = self._moves.get(partition.topic_partition)
        if self.assignments is None or (move is not None and move.stage in (Stage.TELLING, Stage.EXCHANGING)):
            return
        directory_id = self._logs.roots.id_of(root_of(partition.log.directory))
        if directory_id not in (ZERO_UUID, image.directory_of(self._node_id)):
            self.assignments.assign(partition.topic_id, partition.topic_partition.partition, directory_id, _nothing)

    def forget(self, topic_partition: TopicPartition) -> None:
        """The replica goes away, and its logs with it."""
        self._end(topic_partition, is_deleted=True)

    def directory_failed(self, directory: str) -> None:
        """Moves from it and to it end; those from it go on when it is there again, after a start."""
        for topic_partition, move in tuple(self._moves.items()):
            if directory in (move.source, move.target):
                self._end(topic_partition)

    # -- one after the other

    def _begin(self, partition: Partition) -> None:
        topic_partition = partition.topic_partition
        future = self._logs.futures.get(topic_partition)
        if future is None or topic_partition in self._moves or self._closed:
            return
        self._moves[topic_partition] = _Move(partition, future)
        self._start_next()

    def _start_next(self) -> None:
        for topic_partition in sorted(self._moves):
            if len(self._running) >= self._at_once:
                return
            if topic_partition not in self._running:
                self._running.add(topic_partition)
                self._soon(self._moves[topic_partition])

    def _end(self, topic_partition: TopicPartition, *, is_deleted: bool = False) -> None:
        """Copy no more. What the controller was told is taken back."""
        move = self._moves.pop(topic_partition, None)
        if move is None:
            return
        if move.stage in (Stage.TELLING, Stage.EXCHANGING) and not is_deleted and self.assignments is not None:
            directory_id = self._logs.roots.id_of(move.source)
            self.assignments.assign(move.partition.topic_id, topic_partition.partition, directory_id, _nothing)
        move.stage = Stage.ENDED
        self._running.discard(topic_partition)
        self._host.timers.call_soon(self._start_next)

    def _soon(self, move: _Move, delay_ms: int = 0) -> None:
        self._host.timers.call_later(delay_ms, lambda: self._step(move))

    # -- copying

    def _step(self, move: _Move) -> None:
        """Find out what to do next, and begin it. Nothing else of this move is under way now."""
        if move.stage is Stage.ENDED:
            move.close_file()
            return
        try:
            self._next(move)
        except (StorageFault, RecordsRejected, OSError) as error:
            self._failed(move, error)

    def _next(self, move: _Move) -> None:
        self._follow_log_start(move)
        if move.unsynced_bytes >= _UNSYNCED_BYTES_MAX:
            self._sync(move)
            return
        place = self._place(move)
        if place is not None and not self._fits_at_once(move, place):
            delay_ms = self.throttle.wait_ms(self._host.clock.now_ms())
            if delay_ms > 0:
                self._soon(move, delay_ms)
            else:
                self._read(move, place)
        elif move.unsynced_bytes > _LAST_SLICE_BYTES and move.is_synced_less:
            self._sync(move)
        elif move.stage is Stage.COPYING:
            self._tell(move)
        elif move.stage is Stage.EXCHANGING:
            self._exchange(move)

    def _follow_log_start(self, move: _Move) -> None:
        """Records that the current log no longer has are not to be copied, and go from the copy too."""
        current, future = move.partition.log, move.future
        if future.log_end_offset > current.log_end_offset:
            future.truncate_to(current.log_end_offset)
            move.place = None
        start = current.log_start_offset
        if future.log_start_offset > start or future.log_end_offset <= start:
            place = self._locate(current, start)
            # The batch that holds the log start may begin before it.
            base = start if place is None else min(start, place[0].header_at(place[1]).base_offset)
            if future.log_start_offset > start or base != future.log_end_offset:
                future.truncate_fully_and_start_at(base)
                move.place = place
        elif future.log_start_offset < start:
            future.delete_records_before(start)

    def _place(self, move: _Move) -> _Place | None:
        """Where to read on; None when there is nothing more."""
        current, future = move.partition.log, move.future
        if future.log_end_offset >= current.log_end_offset:
            return None
        if move.place is None or not _is_in(current, move.place[0]):
            move.place = self._locate(current, future.log_end_offset)
        while move.place is not None and move.place[1] >= move.place[0].size_bytes:
            segments = current.segments
            following = segments.place_of(move.place[0].base_offset) + 1
            move.place = (segments[following], 0) if following < len(segments) else None
        if move.place is None:
            # Compaction took the last records away: the end is reached without a batch that says so.
            return None
        segment, position = move.place
        size = min(max(move.batch_bytes * _SLICE_BATCHES, _SLICE_BYTES_MIN), _SLICE_BYTES_MAX)
        return _Place(segment, position, min(size, segment.size_bytes - position))

    def _locate(self, current: Log, offset: int) -> tuple[Segment, int] | None:
        for segment in current.segments.from_offset(offset):
            position = segment.locate(offset)
            if position is not None:
                return segment, position
        return None

    def _read(self, move: _Move, place: _Place) -> None:
        disk, path = self._host.disk, place.segment.log_path
        source = _Slice(place, move.generation, move.partition.log)
        end = place.segment.size_bytes
        self._host.blocking.run(
            lambda: move.read(disk, place, path, end),
            lambda data, error: self._on_read(move, source, data, error),
        )

    def _on_read(self, move: _Move, source: _Slice, data: bytes | None, error: BaseException | None) -> None:
        if move.stage is Stage.ENDED:
            move.close_file()
            return
        is_same = move.generation == source.generation and _is_in(move.partition.log, source.place.segment)
        try:
            if not is_same:
                move.place = None
            elif data is not None:
                move.missing = 0
                self._append(move, source.place, data)
            elif isinstance(error, FileNotFoundError) and move.missing < _MISSING_MAX:
                move.missing += 1
            else:
                assert error is not None, "either data or an error"
                raise StorageFault(move.source, f"{source.log.topic_partition}: cannot read: {error}") from error
        except (StorageFault, RecordsRejected, OSError) as failure:
            self._failed(move, failure)
            return
        self._soon(move)

    def _append(self, move: _Move, place: _Place, data: bytes) -> int:
        """The whole batches of a slice; at least one. Raises RecordsRejected, StorageFault."""
        future = move.future
        size = count = skipped = 0
        for position, header in iter_headers(data):
            size = position + header.size_bytes
            if header.next_offset <= future.log_end_offset and not count:
                skipped = size
                continue
            count += 1
        if count:
            future.append_as_follower(memoryview(data)[skipped:size])
            move.batch_bytes = max(1, (size - skipped) // count)
        elif not size:
            raise corrupt(f"no whole batch at byte {place.position} of {place.segment.log_path}")
        move.place = (place.segment, place.position + size)
        move.unsynced_bytes += size
        self.throttle.record(size, self._host.clock.now_ms())
        return size

    def _sync(self, move: _Move) -> None:
        work, succeeded = move.future.sync_job(move.future.log_end_offset)

        def done(_: object, error: BaseException | None) -> None:
            if move.stage is Stage.ENDED:
                move.close_file()
            elif error is not None:
                self._failed(move, StorageFault(move.target, f"cannot sync a future log: {error}"))
            else:
                succeeded()
                self._step(move)

        move.unsynced_bytes = 0
        self._host.blocking.run(work, done)

    # -- the end of a move

    def _tell(self, move: _Move) -> None:
        directory_id = self._logs.roots.id_of(move.target)
        if self.assignments is None:
            move.stage = Stage.EXCHANGING
            self._soon(move)
            return
        move.stage = Stage.TELLING

        def known() -> None:
            if move.stage is Stage.TELLING:
                move.stage = Stage.EXCHANGING
                self._soon(move)

        partition = move.partition
        self.assignments.assign(partition.topic_id, partition.topic_partition.partition, directory_id, known)

    def _fits_at_once(self, move: _Move, place: _Place) -> bool:
        """Whether what is left can be copied without leaving the loop."""
        segments = move.partition.log.segments
        if place.segment is not segments.active:
            return False
        return place.segment.size_bytes - place.position <= _LAST_SLICE_BYTES

    def _exchange(self, move: _Move) -> None:
        """Copy the rest and change the logs, in one event."""
        partition, current, future = move.partition, move.partition.log, move.future
        topic_partition = partition.topic_partition
        while (place := self._place(move)) is not None:
            self._append(move, place, place.segment.read(place.position, _LAST_SLICE_BYTES))
        if future.log_end_offset < current.log_end_offset:
            # The last batches were compacted away; the offsets were given all the same.
            future.roll(current.log_end_offset)
            future.log_end_offset = future.producers.map_end_offset = current.log_end_offset
        self._follow_log_start(move)
        moved = self._logs.futures.exchange(topic_partition, self._replicas.log_config(topic_partition.topic))
        partition.log = moved
        partition.wake(0)
        self._moves.pop(topic_partition, None)
        self._running.discard(topic_partition)
        move.stage = Stage.ENDED
        move.close_file()
        self._host.timers.call_soon(self._start_next)
        disk = self._host.disk
        self._host.blocking.run(
            lambda: disk.sync_dir(move.target), lambda _, error: self._on_named(move.target, topic_partition, error)
        )

    def _on_named(self, target: str, topic_partition: TopicPartition, error: BaseException | None) -> None:
        if error is not None:
            self._logs.storage_fault(StorageFault(target, f"cannot sync the name of {topic_partition}: {error}"))

    def _on_truncated(self, topic_partition: TopicPartition) -> None:
        move = self._moves.get(topic_partition)
        if move is not None:
            move.generation += 1
            move.place = None

    def _failed(self, move: _Move, error: BaseException) -> None:
        """The move ends; the replica stays where it is."""
        topic_partition = move.partition.topic_partition
        self._end(topic_partition)
        move.close_file()
        if isinstance(error, StorageFault) and not isinstance(error, StorageExhausted):
            self._logs.storage_fault(error)
            return
        self._host.faults.report(f"{topic_partition} cannot be moved to {move.target}: {error}", error)
        try:
            self._logs.futures.cancel(topic_partition, at_once=True)
        except StorageFault as fault:
            self._logs.storage_fault(fault)


def _is_in(log: Log, segment: Segment) -> bool:
    segments = log.segments
    return bool(len(segments)) and segments[segments.place_of(segment.base_offset)] is segment


def _nothing() -> None:
    return None
