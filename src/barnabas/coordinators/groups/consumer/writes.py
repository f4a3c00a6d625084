"""Writes of consumer groups: one in flight per group; requests that arrive in the meantime share the next one.

    request -> no write in flight: runs on the committed group; without records, it is answered immediately;
                                   else one batch has the records of all waiting requests, answered when committed
            -> a write in flight:  waits for it, at most for the timeout of a write

A request therefore sees all effects of earlier ones, and never a part of them: if a batch fails, the effects of all its
requests are undone, and all get the error. A hundred members that join together need about two writes, not a hundred.

The plan of a large group, or of a subscription to very many topics, takes longer than a turn of the loop may: it is a
generator, which is continued in several turns. The group cannot change meanwhile, because its requests wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from itertools import islice
from typing import Final, NamedTuple, TypeVar

from barnabas.common import continuations
from barnabas.common.continuations import Owner, later
from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.common.host import Host
from barnabas.coordinators.deadlines import Deadlines
from barnabas.coordinators.groups.consumer.draft import Draft, Savepoint
from barnabas.coordinators.groups.consumer.group import ConsumerGroup
from barnabas.coordinators.runtime import KeyValue, ShardLog, client_error
from barnabas.coordinators.steps import Slice, Turns
from barnabas.records.draft import BatchDraft

#: A batch above this takes no further request; with the target assignment of a large group it still fits into 1 MB.
_BATCH_BYTES: Final = 256 * 1024
_BATCH_OPERATIONS: Final = 256
#: The number of bytes that a batch adds to a key and a value, at most.
_RECORD_BYTES: Final = 16

#: The work of one turn, and the fixed cost of an operation; a new target assignment costs the partitions and members of
#: its group.
_TURN_WORK: Final = 10_000
_OPERATION_WORK: Final = 25
#: A batch with more records than this is encoded in several turns, with as many in each.
_ENCODED_PER_TURN: Final = 1_000

T = TypeVar("T")
Answer = Callable[[], None]
#: An operation that takes several turns of the loop; it returns the function that answers.
Steps = Generator[int, None, Answer | None]


class GroupOperation(NamedTuple):
    """A request for one group: `run` changes the draft and returns the function that answers after the commit, or a
    generator which does that in steps; either raises RequestFailed. `fail` answers with an error. Both functions are
    None if no caller waits.
    """

    run: Callable[[Draft], Answer | Steps | None]
    fail: Callable[[RequestFailed], None] | None
    #: The request's owner: an unexpected exception fails this request only, and the others continue.
    owner: Owner | None = None
    #: The time at which a request that still waits is refused.
    deadline_ms: int = 0

    def refuse(self, failure: RequestFailed) -> None:
        if self.fail is not None:
            self.fail(failure)


class Slot:
    """The state of one group id: its committed group, if there is one, and the operations that wait."""

    __slots__ = ("group", "group_id", "is_busy", "queue", "topics_version")

    def __init__(self, group_id: str, group: ConsumerGroup | None = None) -> None:
        self.group_id = group_id
        self.group = group
        self.queue: deque[GroupOperation] = deque()
        #: Whether a write is in flight or about to begin.
        self.is_busy = False
        #: The version of the topics that the group was last compared with; -1 before the first comparison.
        self.topics_version = -1


class _Before(NamedTuple):
    """The state of a batch to return to if an operation is refused."""

    draft: Savepoint
    size_bytes: int


class _InProgress(NamedTuple):
    """An operation whose steps are not done."""

    operation: GroupOperation
    before: _Before
    steps: Steps


class _Batch:
    """A batch being built: the draft, the operations that have run on it, and the one in progress."""

    __slots__ = ("_weighed", "draft", "encoded", "in_progress", "ran", "size_bytes")

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.ran: list[tuple[GroupOperation, Answer | None]] = []
        self.in_progress: _InProgress | None = None
        #: The size of the records so far, without those that the operation in progress has added in this turn.
        self.size_bytes = 0
        self._weighed = 0
        #: The first records of a large batch, encoded.
        self.encoded: BatchDraft | None = None

    def before(self) -> _Before:
        """Returns the state before the operation in progress, or before the next one."""
        going = self.in_progress
        return _Before(self.draft.mark(), self.size_bytes) if going is None else going.before

    @property
    def is_full(self) -> bool:
        return self.draft.is_last or len(self.ran) >= _BATCH_OPERATIONS or self.size_bytes >= _BATCH_BYTES

    def add(self, operation: GroupOperation, answer: Answer | None) -> None:
        """Adds an operation that has run."""
        self.ran.append((operation, answer))
        self._weigh()

    def _weigh(self) -> None:
        records = self.draft.records
        self.size_bytes += sum(_size(record) for record in records[self._weighed :])
        self._weighed = len(records)

    def suspend(self, operation: GroupOperation, before: _Before, steps: Steps) -> int:
        """Keeps an operation whose steps are not done. Returns the size of its records so far, without what the batch
        adds to each of them."""
        self.in_progress = _InProgress(operation, before, steps)
        self._weigh()
        records = len(self.draft.records) - before.draft.records
        return self.size_bytes - before.size_bytes - records * _RECORD_BYTES

    def undo(self, before: _Before) -> None:
        """Undoes what an operation has changed."""
        self.draft.return_to(before.draft)
        self._weighed = min(self._weighed, before.draft.records)
        self.size_bytes = before.size_bytes

    def encode_some(self) -> bool:
        """Encodes one turn's part of the records of a large batch. Returns whether there are no more."""
        records = self.draft.records
        if len(records) <= _ENCODED_PER_TURN:
            return True
        encoded = self.encoded = self.encoded or BatchDraft()
        for record in islice(records, encoded.count, encoded.count + _ENCODED_PER_TURN):
            encoded.add(record.key, record.value)
        return encoded.count == len(records)

    def answer(self) -> None:
        for _, answer in self.ran:
            if answer is not None:
                answer()

    def refuse(self, failure: RequestFailed) -> None:
        for operation, _ in self.ran:
            operation.refuse(failure)
        if self.in_progress is not None:
            self.in_progress.steps.close()
            self.in_progress.operation.refuse(failure)


class Writes:
    """The writes of one shard's consumer groups, with one `Slot` per group id."""

    __slots__ = ("_clock", "_expiry", "_is_closed", "_log", "_on_group", "_timeout_ms", "_turns", "slots")

    def __init__(
        self,
        log: ShardLog,
        host: Host,
        deadlines: Deadlines,
        on_group: Callable[[str], None],
        turns: Turns,
        *,
        timeout_ms: int,
    ) -> None:
        """Creates writes without groups. `on_group(group id)` is called when a consumer group is created; `turns` is
        the queue of long work of all shards."""
        self._log = log
        self._turns, self._clock = turns, host.clock
        self._timeout_ms = timeout_ms
        #: The earliest deadline of a request that waits for a write in flight.
        self._expiry = deadlines.new()
        self._on_group = on_group
        self._is_closed = False
        self.slots: dict[str, Slot] = {}

    def group(self, group_id: str) -> ConsumerGroup | None:
        """Returns the committed consumer group of this id, or None."""
        slot = self.slots.get(group_id)
        return None if slot is None else slot.group

    def install(self, group: ConsumerGroup) -> None:
        """Adds a group that was loaded from the log."""
        self.slots[group.group_id] = Slot(group.group_id, group)

    def submit(self, group_id: str, operation: GroupOperation, *, after_settled: bool = False) -> None:
        """Runs the operation as soon as no write of its group is in flight; with `after_settled`, after all writes
        of the shard that are in flight now."""
        slot = self.slots.get(group_id)
        if slot is None:
            slot = self.slots[group_id] = Slot(group_id)
        fail = None if operation.fail is None else later(operation.fail)
        deadline_ms = self._clock.now_ms() + self._timeout_ms
        slot.queue.append(operation._replace(fail=fail, owner=continuations.owner(), deadline_ms=deadline_ms))
        if (slot.is_busy or after_settled) and not self._expiry.is_scheduled:
            self._expiry.schedule(self._timeout_ms, self._expire)
        if slot.is_busy:
            return
        slot.is_busy = True
        if after_settled:
            self._log.when_settled(lambda _: self._run(slot))
        else:
            self._run(slot)

    def answer_in_steps(self, work: Generator[int, None, T], answer: Callable[[T], None]) -> None:
        """Does work that writes no records: its first slice now, the others in later turns of the loop. Raises what the
        first slice raises."""
        found = Slice(self._clock).run(work)
        if found is None:
            self._turns.call_soon(lambda: self.answer_in_steps(work, answer))
        else:
            answer(found[0])

    def close(self) -> None:
        """Fails all waiting operations after a loss of leadership: their clients then contact the next coordinator."""
        self._is_closed = True
        for slot in tuple(self.slots.values()):
            self._refuse(slot, ErrorCode.NOT_COORDINATOR)
        self.slots.clear()

    @staticmethod
    def _refuse(slot: Slot, code: ErrorCode) -> None:
        while slot.queue:
            slot.queue.popleft().refuse(RequestFailed(code))

    def _expire(self) -> None:
        """Refuses the requests that have waited for too long: the write before them is neither committed nor
        refused.
        """
        now_ms = self._clock.now_ms()
        left_ms: list[int] = []
        for slot in tuple(self.slots.values()):
            waiting, slot.queue = slot.queue, deque()
            for operation in waiting:
                if operation.fail is not None and operation.deadline_ms <= now_ms:
                    operation.refuse(RequestFailed(client_error(ErrorCode.REQUEST_TIMED_OUT)))
                    continue
                slot.queue.append(operation)
                if operation.fail is not None:
                    left_ms.append(operation.deadline_ms - now_ms)
        if left_ms:
            self._expiry.schedule(min(left_ms), self._expire)

    def _run(self, slot: Slot, begun: _Batch | None = None) -> None:
        """Runs the waiting operations until a write is in flight or none are left. A batch with much work is built
        in several turns of the loop, and what is done of it is undone if leadership is lost."""
        batch = begun
        while (batch is not None or slot.queue) and not self._is_closed:
            batch = batch or _Batch(Draft(slot.group_id, slot.group))
            if not self._fill(slot, batch) or not batch.encode_some():
                self._turns.call_soon(partial(self._run, slot, batch))
                return
            if batch.draft.records:
                self._write(slot, batch)
                return
            self._apply(slot, batch.draft)
            batch.answer()
            batch = None
        if batch is not None:
            batch.refuse(RequestFailed(ErrorCode.NOT_COORDINATOR))
        slot.is_busy = False
        if slot.group is None and self.slots.get(slot.group_id) is slot:
            del self.slots[slot.group_id]

    def _fill(self, slot: Slot, batch: _Batch) -> bool:
        """Runs operations on the batch; returns False if one turn's work is done and operations are left."""
        draft = batch.draft
        turn = Slice(self._clock)
        work = 0
        while batch.in_progress is not None or (slot.queue and not batch.is_full):
            if work >= _TURN_WORK:
                return False
            before = batch.before()
            if not self._run_next(slot, batch, before, turn):
                return False
            work += _work(draft, before.draft)
        return True

    def _run_next(self, slot: Slot, batch: _Batch, before: _Before, turn: Slice) -> bool:
        """Runs the operation in progress, or the next one; returns False if it has more steps."""
        going = batch.in_progress
        operation = slot.queue.popleft() if going is None else going.operation
        batch.in_progress = None
        is_done = continuations.run(operation.owner, self._run_one, batch, operation, before, going, turn)
        if is_done is None:
            # An unexpected failure, of which the operation's owner knows: the other operations continue.
            batch.undo(before)
            batch.add(operation, None)
        return is_done is not False

    def _run_one(
        self, batch: _Batch, operation: GroupOperation, before: _Before, going: _InProgress | None, turn: Slice
    ) -> bool:
        answer: Answer | None
        try:
            begun = operation.run(batch.draft) if going is None else going.steps
            if begun is None or callable(begun):
                answer = begun
            else:
                found = turn.run(begun)
                if found is None:
                    size_bytes = batch.suspend(operation, before, begun)
                    if size_bytes <= self._log.batch_bytes_max:
                        return False
                    # The write would be refused, so the rest of the work would be in vain.
                    begun.close()
                    raise RequestFailed(client_error(ErrorCode.MESSAGE_TOO_LARGE))
                answer = found[0]
        except RequestFailed as failure:
            batch.in_progress = None
            batch.undo(before)
            answer = _failing(operation, failure)
        batch.add(operation, answer)
        return True

    def _write(self, slot: Slot, batch: _Batch) -> None:
        draft = batch.draft
        outcome: list[ErrorCode] = []
        answered_late: list[bool] = []

        def settled(code: ErrorCode) -> None:
            if self._is_closed:
                return
            try:
                if code is ErrorCode.NONE:
                    self._apply(slot, draft)
            finally:
                outcome.append(code)
                if answered_late:
                    self._run(slot)

        def answered(code: ErrorCode) -> None:
            if code is ErrorCode.NONE:
                batch.answer()
            else:
                batch.refuse(RequestFailed(client_error(code)))
            if outcome:
                self._run(slot)
            else:
                # The batch can still be committed, so the next batch waits for it. Requests that have waited for this
                # timeout are answered now.
                answered_late.append(True)
                self._refuse(slot, client_error(code))

        encoded = self._log.batch_of(draft.records) if batch.encoded is None else self._log.encode(batch.encoded)
        self._log.append_batch(encoded, answered, settled)

    def _apply(self, slot: Slot, draft: Draft) -> None:
        is_new = slot.group is None and draft.now is not None
        slot.group = draft.now
        if is_new:
            self._on_group(slot.group_id)
        for effect in draft.effects:
            effect()


def _failing(operation: GroupOperation, failure: RequestFailed) -> Answer:
    return lambda: operation.refuse(failure)


def _size(record: KeyValue) -> int:
    return len(record.key) + len(record.value or b"") + _RECORD_BYTES


def _work(draft: Draft, before: Savepoint) -> int:
    """Returns the cost of the last operation, in units that do not depend on the machine."""
    now = draft.now
    if now is None or (before.group is not None and now.epoch == before.group.epoch):
        return _OPERATION_WORK
    return _OPERATION_WORK + len(now.members) + len(now.owners)
