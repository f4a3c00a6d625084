"""A replicated state machine on one partition of an internal topic: its ports and its writes.

    handle(request) -> records and the later answer      ShardLog.append
    committed       -> apply the records, then answer    (every replica in the ISR has them)
    elected         -> load the log (loading.py), then serve

Invariants
- A lasting effect is applied when its records are committed, never before; the answer follows it. What a reader has
  seen is therefore never revoked by a change of leader.
- A write that takes longer than its timeout is answered with REQUEST_TIMED_OUT, and still applied if it commits later.
  Requests that wait for it are answered within the same time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final, NamedTuple, Protocol

from barnabas.common.automaton import Automaton
from barnabas.common.continuations import later
from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.common.host import Buffer, Host
from barnabas.common.types import TopicPartition
from barnabas.coordinators.deadlines import Deadlines
from barnabas.records.batch import encode_batch
from barnabas.records.draft import BatchDraft
from barnabas.records.record import Record


class PartitionWriter(Protocol):
    """The port for writes to internal topics."""

    def append(self, partition: TopicPartition, batch: bytearray, done: Callable[[ErrorCode, int], None]) -> None:
        """Appends with acks=all. Calls `done(code, base offset)` once, when the batch is committed or has failed,
        possibly during this call."""

    def is_followed(self, partition: TopicPartition) -> bool:
        """Returns whether no other broker can lead the partition, except for about a second."""

    def batch_bytes_max(self, partition: TopicPartition) -> int:
        """Returns the largest accepted batch size (`max.message.bytes` of the topic)."""


class PartitionReader(Protocol):
    """The port for reads of partitions that this broker leads. Raises RequestFailed for other partitions."""

    def read(
        self, partition: TopicPartition, offset: int, max_bytes: int, done: Callable[[Buffer | Exception], None]
    ) -> None:
        """Reads batches from the one that contains `offset`, at least one whole batch, committed or not; no bytes at
        the end of the log. Calls `done` once with them, or with the error (RequestFailed, RecordsRejected,
        StorageFault): during this call, or after the disk read."""

    def next_segment(self, partition: TopicPartition, offset: int) -> int | None:
        """Returns the base offset of the first segment after `offset`; None if there is none."""

    def log_start_offset(self, partition: TopicPartition) -> int: ...

    def log_end_offset(self, partition: TopicPartition) -> int: ...

    def high_watermark(self, partition: TopicPartition) -> int: ...


class ShardState(Enum):
    """The states of a shard. LOADING: requests are answered with COORDINATOR_LOAD_IN_PROGRESS. FAILED: the log could
    not be read; requests are answered as if this broker were not the coordinator. CLOSED: leadership was lost."""

    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"
    CLOSED = "closed"


#: The possible next states of each state.
TRANSITIONS: Final = {
    ShardState.LOADING: frozenset({ShardState.ACTIVE, ShardState.FAILED, ShardState.CLOSED}),
    ShardState.ACTIVE: frozenset({ShardState.CLOSED}),
    ShardState.FAILED: frozenset({ShardState.CLOSED}),
    ShardState.CLOSED: frozenset[ShardState](),
}


class ShardLifecycle(Automaton[ShardState]):
    """The state of a shard, from the time that this broker becomes the leader of its partition until it no longer
    is.
    """

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(TRANSITIONS, ShardState.LOADING)

    def check_serving(self) -> None:
        """Raises RequestFailed unless requests can be served."""
        match self.state:
            case ShardState.ACTIVE:
                return
            case ShardState.LOADING:
                raise RequestFailed(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            case _:
                raise RequestFailed(ErrorCode.NOT_COORDINATOR)


def client_error(code: ErrorCode) -> ErrorCode:
    """Returns the error code for a client whose record could not be written."""
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


#: The results of writes that cannot be in the log.
_REFUSED: Final = frozenset(
    {ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE}
)


#: The deadline of a barrier without a timeout.
_NEVER: Final = -1

#: A batch is refused if its size before compression exceeds the log's limit by this factor.
_COMPRESSION_GAIN: Final = 16


class KeyValue(NamedTuple):
    """A coordinator's record before it has an offset. A value of None deletes the key."""

    key: bytes
    value: bytes | None


class _Write:
    """An append in flight, or a barrier: an entry without an append, which waits for the appends before it."""

    __slots__ = ("answered", "code", "deadline_ms", "finished", "number", "settled", "since")

    def __init__(
        self,
        settled: Callable[[ErrorCode], None] | None,
        answered: Callable[[ErrorCode], None] | None,
        deadline_ms: int,
        number: int,
    ) -> None:
        self.settled = settled
        self.answered = answered
        self.deadline_ms = deadline_ms
        self.finished = False
        self.code = ErrorCode.NONE
        self.number = number
        #: The number of the first write that a barrier waits for.
        self.since: int | None = None


class ShardLog:
    """The writes of one shard to its partition's log."""

    __slots__ = (
        "_base_sequence",
        "_codec",
        "_count",
        "_deadline",
        "_failures",
        "_host",
        "_is_closed",
        "_partition",
        "_queue",
        "_timeout_ms",
        "_writer",
    )

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
        """Creates a log without writes in flight. `base_sequence` is the one in Apache Kafka's batches, which have
        no producer id: 0 for groups, -1 for transactions."""
        self._host = host
        self._writer = writer
        self._partition = partition
        self._timeout_ms = timeout_ms
        self._codec = codec
        self._base_sequence = base_sequence
        self._queue: deque[_Write] = deque()
        self._count = 0
        #: The last failed write (number, code): True for lost leadership, False for other causes.
        self._failures = {True: (0, ErrorCode.NONE), False: (0, ErrorCode.NONE)}
        self._deadline = deadlines.new()
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        """Returns whether leadership was lost. A writer that works in several turns of the loop checks this before
        each."""
        return self._is_closed

    @property
    def is_followed(self) -> bool:
        """Returns whether the shard can only just have another coordinator, if it has one: the followers of its
        partition fetch.
        """
        return self._writer.is_followed(self._partition)

    def append(
        self,
        records: Sequence[KeyValue],
        answered: Callable[[ErrorCode], None] | None,
        settled: Callable[[ErrorCode], None] | None = None,
    ) -> None:
        """Writes one atomic batch. `settled(code)` is called once, when the batch is committed (NONE) or has failed;
        `answered(code)` is called once, right after that, or earlier with REQUEST_TIMED_OUT."""
        self.append_batch(self.batch_of(records), answered, settled)

    def batch_of(self, records: Sequence[KeyValue]) -> bytearray:
        """Returns the batch that `append` writes. A caller that counts writes in flight builds the batch first, so that
        a batch which cannot be encoded does not count as in flight."""
        assert records, "an empty batch has no effect"
        wall_ms = self._host.clock.wall_ms()
        return encode_batch(
            [Record(offset=0, timestamp=wall_ms, key=r.key, value=r.value, headers=[]) for r in records],
            codec=self._codec,
            base_sequence=self._base_sequence,
        )

    @property
    def batch_bytes_max(self) -> int:
        """Returns the size before compression above which the log refuses a batch, so that it need not be built. How
        much compression saves is unknown; with compression the bound is therefore a multiple of the log's limit."""
        return self.plain_bytes_max * _COMPRESSION_GAIN if self._codec else self.plain_bytes_max

    @property
    def plain_bytes_max(self) -> int:
        """Returns the size before compression up to which a batch is never too large."""
        return self._writer.batch_bytes_max(self._partition)

    def encode(self, draft: BatchDraft) -> bytearray:
        """Encodes a batch like `batch_of`, from a draft that was built in several turns of the loop."""
        return draft.encode(self._host.clock.wall_ms(), codec=self._codec, base_sequence=self._base_sequence)

    def append_batch(
        self,
        batch: bytearray,
        answered: Callable[[ErrorCode], None] | None,
        settled: Callable[[ErrorCode], None] | None = None,
    ) -> None:
        """Writes an encoded batch as `append` does, for example one of a transaction or a transaction marker."""
        self._count += 1
        write = _Write(
            None if settled is None else later(settled),
            None if answered is None else later(answered),
            self._host.clock.now_ms() + self._timeout_ms,
            self._count,
        )
        self._queue.append(write)
        self._writer.append(self._partition, batch, lambda code, _: self._done(write, code))
        if not write.finished and not self._deadline.is_scheduled:
            self._deadline.schedule(self._timeout_ms, self._on_timeout)

    def when_settled(self, callback: Callable[[ErrorCode], None], *, has_timeout: bool = False) -> None:
        """Calls back once every write that is in flight now is committed or has failed; immediately if there is none.
        The code is NONE if each of them was committed or refused before it was written, else the worst failure: another
        leader may have the records of these writes, so that the state here may be outdated. With `has_timeout` the code
        is REQUEST_TIMED_OUT if they are still in flight after the timeout of a write."""
        if not self._queue:
            callback(ErrorCode.NONE)
            return
        deadline_ms = self._host.clock.now_ms() + self._timeout_ms if has_timeout else _NEVER
        barrier = _Write(None, later(callback), deadline_ms, self._count)
        barrier.since = self._queue[0].number
        barrier.finished = True
        self._queue.append(barrier)
        if has_timeout and not self._deadline.is_scheduled:
            self._deadline.schedule(self._timeout_ms, self._on_timeout)

    def close(self) -> None:
        """Answers all requests whose writes are in flight: leadership was lost, although the writes may still be
        committed."""
        self._is_closed = True
        for write in tuple(self._queue):
            self._answer(write, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _done(self, write: _Write, code: ErrorCode) -> None:
        assert not write.finished, "an append ends once"
        write.finished = True
        if write.settled is not None:
            write.settled(code)
        self._answer(write, code)
        queue = self._queue
        write.code = code
        while queue and queue[0].finished:
            first = queue.popleft()
            if first.since is not None:
                self._answer(first, self._worst_since(first.since))
            elif first.code is not ErrorCode.NONE and first.code not in _REFUSED:
                is_lost = client_error(first.code) is ErrorCode.NOT_COORDINATOR
                self._failures[is_lost] = (first.number, first.code)

    def _worst_since(self, number: int) -> ErrorCode:
        """Returns the failure of the writes from `number` on; lost leadership takes precedence over other causes."""
        for failed, code in (self._failures[True], self._failures[False]):
            if failed >= number:
                return code
        return ErrorCode.NONE

    @staticmethod
    def _answer(write: _Write, code: ErrorCode) -> None:
        answered, write.answered = write.answered, None
        if answered is not None:
            answered(code)

    def _on_timeout(self) -> None:
        now_ms = self._host.clock.now_ms()
        for write in tuple(self._queue):
            if write.answered is None or write.deadline_ms == _NEVER:
                continue
            if write.deadline_ms > now_ms:
                self._deadline.schedule(write.deadline_ms - now_ms, self._on_timeout)
                break
            self._answer(write, ErrorCode.REQUEST_TIMED_OUT)
