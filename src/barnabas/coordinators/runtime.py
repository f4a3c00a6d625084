"""A replicated state machine on one partition of an internal topic: its ports and its writes.

    handle(request) -> records + what the answer will be     ShardLog.append
    committed                  -> apply, then answer          (all replicas in sync have it)
    leadership comes           -> the log is loaded (loading.py), then the shard serves

Invariants
- An effect that lasts is applied when its records are committed, never before; the answer follows it. What a reader
  sees is therefore never taken back by a change of leader.
- A write that takes longer than its timeout is answered with REQUEST_TIMED_OUT, and still applied if it commits later.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final, NamedTuple, Protocol

from barnabas.common.automaton import Automaton
from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.common.host import Buffer, Host
from barnabas.common.types import TopicPartition
from barnabas.coordinators.deadlines import Deadlines
from barnabas.records.batch import encode_batch
from barnabas.records.record import Record


class PartitionWriter(Protocol):
    def append(self, partition: TopicPartition, batch: bytearray, done: Callable[[ErrorCode, int], None]) -> None:
        """Append with acks=all. `done(code, base offset)` once, when committed or failed, maybe at once."""


class PartitionReader(Protocol):
    """What is in the log of a partition that this broker leads. Raises RequestFailed when it does not."""

    def read(
        self, partition: TopicPartition, offset: int, max_bytes: int, done: Callable[[Buffer | Exception], None]
    ) -> None:
        """Batches from the one with `offset` on, at least a whole one, committed or not; empty at the end. `done` once
        with them, or with why there are none (RequestFailed, RecordsRejected, StorageFault): at once, or when the disk
        has given them."""

    def log_start_offset(self, partition: TopicPartition) -> int: ...

    def log_end_offset(self, partition: TopicPartition) -> int: ...

    def high_watermark(self, partition: TopicPartition) -> int: ...


class ShardState(Enum):
    """LOADING: requests are told to come again. FAILED: the log could not be read, as if this broker were not the
    coordinator. CLOSED: leadership has gone."""

    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"
    CLOSED = "closed"


_LIFE: Final = {
    ShardState.LOADING: frozenset({ShardState.ACTIVE, ShardState.FAILED, ShardState.CLOSED}),
    ShardState.ACTIVE: frozenset({ShardState.CLOSED}),
    ShardState.FAILED: frozenset({ShardState.CLOSED}),
    ShardState.CLOSED: frozenset[ShardState](),
}


class ShardLife(Automaton[ShardState]):
    """From the moment that leadership of the partition comes to the moment that it goes."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(_LIFE, ShardState.LOADING)

    def check_serving(self) -> None:
        """RequestFailed unless requests can be served."""
        match self.state:
            case ShardState.ACTIVE:
                return
            case ShardState.LOADING:
                raise RequestFailed(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            case _:
                raise RequestFailed(ErrorCode.NOT_COORDINATOR)


def storing_failed(code: ErrorCode) -> ErrorCode:
    """What a client is told when a coordinator's record could not be written."""
    match code:
        case ErrorCode.UNKNOWN_TOPIC_OR_PARTITION | ErrorCode.NOT_ENOUGH_REPLICAS | ErrorCode.REQUEST_TIMED_OUT:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        case ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        case ErrorCode.NOT_LEADER_OR_FOLLOWER | ErrorCode.KAFKA_STORAGE_ERROR | ErrorCode.FENCED_LEADER_EPOCH:
            return ErrorCode.NOT_COORDINATOR
        case ErrorCode.MESSAGE_TOO_LARGE | ErrorCode.RECORD_LIST_TOO_LARGE | ErrorCode.INVALID_FETCH_SIZE:
            return ErrorCode.UNKNOWN_SERVER_ERROR
        case _:
            return code


class KeyValue(NamedTuple):
    """A record of a coordinator, before it has an offset. A value of None deletes the key."""

    key: bytes
    value: bytes | None


def _ignore(code: ErrorCode) -> None:
    pass


class _Write:
    """One append on its way, or (already finished) a barrier behind those on their way."""

    __slots__ = ("answered", "deadline_ms", "finished", "settled")

    def __init__(
        self, settled: Callable[[ErrorCode], None], answered: Callable[[ErrorCode], None] | None, deadline_ms: int
    ) -> None:
        self.settled = settled
        self.answered = answered
        self.deadline_ms = deadline_ms
        self.finished = False


class ShardLog:
    """The way from one shard to its partition's log."""

    __slots__ = ("_base_sequence", "_codec", "_deadline", "_host", "_partition", "_queue", "_timeout_ms", "_writer")

    def __init__(
        self,
        host: Host,
        writer: PartitionWriter,
        partition: TopicPartition,
        deadlines: Deadlines,
        *,
        timeout_ms: int,
        codec: int = 0,
        base_sequence: int = 0,
    ) -> None:
        """`base_sequence` is that of Apache Kafka's batches, which have no producer id: 0 of groups, -1 of
        transactions."""
        self._host = host
        self._writer = writer
        self._partition = partition
        self._timeout_ms = timeout_ms
        self._codec = codec
        self._base_sequence = base_sequence
        self._queue: deque[_Write] = deque()
        self._deadline = deadlines.new()

    def append(
        self,
        records: Sequence[KeyValue],
        answered: Callable[[ErrorCode], None],
        settled: Callable[[ErrorCode], None] = _ignore,
    ) -> None:
        """Write one atomic batch. `settled(code)` once, when it is committed (NONE) or has failed; `answered(code)`
        once, right after that or before with REQUEST_TIMED_OUT."""
        assert records, "an empty batch says nothing"
        wall_ms = self._host.clock.wall_ms()
        batch = encode_batch(
            [Record(offset=0, timestamp=wall_ms, key=r.key, value=r.value, headers=[]) for r in records],
            codec=self._codec,
            base_sequence=self._base_sequence,
        )
        self.append_batch(batch, answered, settled)

    def append_batch(
        self, batch: bytearray, answered: Callable[[ErrorCode], None], settled: Callable[[ErrorCode], None] = _ignore
    ) -> None:
        """As `append`, of a batch that is made already: one of a transaction, or its end."""
        write = _Write(settled, answered, self._host.clock.now_ms() + self._timeout_ms)
        self._queue.append(write)
        self._writer.append(self._partition, batch, lambda code, _: self._done(write, code))
        if not write.finished and not self._deadline.is_scheduled:
            self._deadline.schedule(self._timeout_ms, self._on_timeout)

    def when_settled(self, callback: Callable[[], None]) -> None:
        """Call back once all that is on its way now is committed or failed; at once if nothing is."""
        if not self._queue:
            callback()
            return
        barrier = _Write(_ignore, lambda _: callback(), 0)
        barrier.finished = True
        self._queue.append(barrier)

    def close(self) -> None:
        """Leadership has gone: nobody waits here any longer for what is on its way, though it may yet be committed."""
        for write in tuple(self._queue):
            self._answer(write, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _done(self, write: _Write, code: ErrorCode) -> None:
        assert not write.finished, "an append ends once"
        write.finished = True
        write.settled(code)
        self._answer(write, code)
        queue = self._queue
        while queue and queue[0].finished:
            self._answer(queue.popleft(), ErrorCode.NONE)

    @staticmethod
    def _answer(write: _Write, code: ErrorCode) -> None:
        answered, write.answered = write.answered, None
        if answered is not None:
            answered(code)

    def _on_timeout(self) -> None:
        now_ms = self._host.clock.now_ms()
        for write in tuple(self._queue):
            if write.finished:
                continue
            if write.deadline_ms > now_ms:
                self._deadline.schedule(write.deadline_ms - now_ms, self._on_timeout)
                break
            self._answer(write, ErrorCode.REQUEST_TIMED_OUT)
