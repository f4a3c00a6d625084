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
from barnabas.common.continuations import later
from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.common.host import Buffer, Host
from barnabas.common.types import TopicPartition
from barnabas.coordinators.deadlines import Deadlines
from barnabas.records.batch import encode_batch
from barnabas.records.draft import BatchDraft
from barnabas.records.record import Record


class PartitionWriter(Protocol):
    def append(self, partition: TopicPartition, batch: bytearray, done: Callable[[ErrorCode, int], None]) -> None:
        """Append with acks=all. `done(code, base offset)` once, when committed or failed, maybe at once."""

    def batch_bytes_max(self, partition: TopicPartition) -> int:
        """Larger batches are refused (`max.message.bytes` of the topic)."""


class PartitionReader(Protocol):
    """What is in the log of a partition that this broker leads. Raises RequestFailed when it does not."""

    def read(
        self, partition: TopicPartition, offset: int, max_bytes: int, done: Callable[[Buffer | Exception], None]
    ) -> None:
        """Batches from the one with `offset` on, at least a whole one, committed or not; empty at the end. `done` once
        with them, or with why there are none (RequestFailed, RecordsRejected, StorageFault): at once, or when the disk
        has given them."""

    def next_segment(self, partition: TopicPartition, offset: int) -> int | None:
        """Where the first segment behind `offset` begins; None if there is none."""

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


#: A write that ends like this is not in the log.
_REFUSED: Final = frozenset(
    {ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE}
)


#: A batch that is this much too large before it is compressed is refused.
_COMPRESSION_GAIN: Final = 16


class KeyValue(NamedTuple):
    """A record of a coordinator, before it has an offset. A value of None deletes the key."""

    key: bytes
    value: bytes | None


def _ignore(code: ErrorCode) -> None:
    pass


class _Write:
    """One append on its way, or (already finished) a barrier behind those on their way."""

    __slots__ = ("answered", "code", "deadline_ms", "finished", "number", "settled", "since")

    def __init__(
        self,
        settled: Callable[[ErrorCode], None],
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
        #: Of a barrier, the number of the first write that it waits for.
        self.since: int | None = None


class ShardLog:
    """The way from one shard to its partition's log."""

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
        """`base_sequence` is that of Apache Kafka's batches, which have no producer id: 0 of groups, -1 of
        transactions."""
        self._host = host
        self._writer = writer
        self._partition = partition
        self._timeout_ms = timeout_ms
        self._codec = codec
        self._base_sequence = base_sequence
        self._queue: deque[_Write] = deque()
        self._count = 0
        #: The last write that failed, and how: because leadership was lost (True), and otherwise.
        self._failures = {True: (0, ErrorCode.NONE), False: (0, ErrorCode.NONE)}
        self._deadline = deadlines.new()
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        """Whether leadership has gone. Who writes in several turns of the loop looks before each."""
        return self._is_closed

    def append(
        self,
        records: Sequence[KeyValue],
        answered: Callable[[ErrorCode], None],
        settled: Callable[[ErrorCode], None] = _ignore,
    ) -> None:
        """Write one atomic batch. `settled(code)` once, when it is committed (NONE) or has failed; `answered(code)`
        once, right after that or before with REQUEST_TIMED_OUT."""
        self.append_batch(self.batch_of(records), answered, settled)

    def batch_of(self, records: Sequence[KeyValue]) -> bytearray:
        """What `append` writes. A caller that notes what is on its way makes the batch first: what cannot be encoded
        is then not noted."""
        assert records, "an empty batch says nothing"
        wall_ms = self._host.clock.wall_ms()
        return encode_batch(
            [Record(offset=0, timestamp=wall_ms, key=r.key, value=r.value, headers=[]) for r in records],
            codec=self._codec,
            base_sequence=self._base_sequence,
        )

    @property
    def batch_bytes_max(self) -> int:
        """What is larger need not be made: the log would refuse it. Compression may save more than we can know, so
        that there is no bound with it but a multiple of the log's."""
        return self.plain_bytes_max * _COMPRESSION_GAIN if self._codec else self.plain_bytes_max

    @property
    def plain_bytes_max(self) -> int:
        """A batch up to this size before compression is never too large."""
        return self._writer.batch_bytes_max(self._partition)

    def encode(self, draft: BatchDraft) -> bytearray:
        """As `batch_of`, of a batch that was made in several turns."""
        return draft.encode(self._host.clock.wall_ms(), codec=self._codec, base_sequence=self._base_sequence)

    def append_batch(
        self, batch: bytearray, answered: Callable[[ErrorCode], None], settled: Callable[[ErrorCode], None] = _ignore
    ) -> None:
        """As `append`, of a batch that is made already: one of a transaction, or its end."""
        self._count += 1
        write = _Write(later(settled), later(answered), self._host.clock.now_ms() + self._timeout_ms, self._count)
        self._queue.append(write)
        self._writer.append(self._partition, batch, lambda code, _: self._done(write, code))
        if not write.finished and not self._deadline.is_scheduled:
            self._deadline.schedule(self._timeout_ms, self._on_timeout)

    def when_settled(self, callback: Callable[[ErrorCode], None]) -> None:
        """Call back once all that is on its way now is committed or has failed; at once if nothing is. The code is NONE
        if all of it is committed or was refused before it was written, else the worst of those that failed: what they
        wrote may be known to another leader, so that what is known here may be old."""
        if not self._queue:
            callback(ErrorCode.NONE)
            return
        barrier = _Write(_ignore, later(callback), 0, self._count)
        barrier.since = self._queue[0].number
        barrier.finished = True
        self._queue.append(barrier)

    def close(self) -> None:
        """Leadership has gone: nobody waits here any longer for what is on its way, though it may yet be committed."""
        self._is_closed = True
        for write in tuple(self._queue):
            self._answer(write, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _done(self, write: _Write, code: ErrorCode) -> None:
        assert not write.finished, "an append ends once"
        write.finished = True
        write.settled(code)
        self._answer(write, code)
        queue = self._queue
        write.code = code
        while queue and queue[0].finished:
            first = queue.popleft()
            if first.since is not None:
                self._answer(first, self._worst_since(first.since))
            elif first.code is not ErrorCode.NONE and first.code not in _REFUSED:
                is_lost = storing_failed(first.code) is ErrorCode.NOT_COORDINATOR
                self._failures[is_lost] = (first.number, first.code)

    def _worst_since(self, number: int) -> ErrorCode:
        """Of the writes from this number on that have failed; that leadership was lost counts most."""
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
            if write.finished:
                continue
            if write.deadline_ms > now_ms:
                self._deadline.schedule(write.deadline_ms - now_ms, self._on_timeout)
                break
            self._answer(write, ErrorCode.REQUEST_TIMED_OUT)
