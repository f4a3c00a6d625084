"""The actions that follow from an event of the quorum: a value that `raft.execution` carries out in field order.

    promise             epoch, leader and vote go into `quorum-state`, synced; then a role or vote takes effect
    restriction_lifted  `metadata-log-checkpoint` records, synced, that this voter votes again
    truncate_to         the log is truncated where the leader has other records
    install             the log and its listeners continue from a snapshot
    records             appended to the log, in the page cache (proposals were already appended, or refused)
    committed           batches before the high watermark go to the listeners, and proposals are completed
    messages            requests and responses are sent
    fetched, wakes      the fetches of this event, or all delayed fetches, are answered if they can be
    flush               appended records are synced; the end of that is a separate event

A message that depends on a promise is sent only if that is on disk, one that depends on records only if the log has
taken them (`Answer.if_not_saved`), and no request claims records that are not on disk (`Request.durable_end`). A
leader's records are sent in parallel to its own flush, and count for the leader itself only after the flush (G16).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from barnabas.common.continuations import later
from barnabas.protocol.message import Message
from barnabas.raft.commits import CommittedBatch
from barnabas.raft.peers import Address, Reply
from barnabas.raft.quorum_state import ElectionState
from barnabas.raft.snapshots import Snapshot, SnapshotId

AnswerReply = Callable[[Message], None]


class Promise(NamedTuple):
    """A state that must be on disk before the other actions of the event."""

    state: ElectionState
    #: A vote or leadership: it is dropped if the disk is full. An epoch that others began is followed anyway.
    is_binding: bool


class Append(NamedTuple):
    """A batch for the end of the log: this leader's own, or one from the leader, in memory that is only borrowed."""

    data: bytearray | memoryview
    batch: CommittedBatch

    @property
    def is_own(self) -> bool:
        return isinstance(self.data, bytearray)


class Install(NamedTuple):
    """A snapshot that replaces everything before its end."""

    snapshot_id: SnapshotId
    snapshot: Snapshot


class Committed(NamedTuple):
    """The committed end of the log. `is_all`: nothing beyond is known to be committed."""

    high_watermark: int
    is_all: bool


class Ahead(NamedTuple):
    """Committed batches that the log has no space for; they begin at its end."""

    batches: tuple[CommittedBatch, ...]
    log_end: int
    high_watermark: int


class Request(NamedTuple):
    """A request to another node. `reply` is called in a separate event."""

    address: Address
    message: Message
    reply: Reply
    timeout_ms: int
    #: The offset before which all records must be on disk before the message is sent.
    durable_end: int = 0


class Answer(NamedTuple):
    """The response to a request of another node or of a tool."""

    reply: AnswerReply
    message: Message
    #: The message to send instead if the promise or the records of this event could not be saved; None if it depends on
    #: neither.
    if_not_saved: Message | None = None


class Ready(NamedTuple):
    """The actions of one event, in the order in which they are carried out."""

    promise: Promise | None = None
    restriction_lifted: bool = False
    truncate_to: int | None = None
    install: Install | None = None
    records: tuple[Append, ...] = ()
    committed: Committed | Ahead | None = None
    messages: tuple[Request | Answer, ...] = ()
    fetched: bool = False
    wakes: bool = False
    flush: bool = False

    @property
    def changes_log(self) -> bool:
        """Whether the actions append records to the log, truncate it, or replace it by a snapshot."""
        return self.truncate_to is not None or self.install is not None or bool(self.records)


NOTHING = Ready()


class ReadyDraft:
    """The `Ready` of the current event under construction: the parts of the node add actions to it."""

    __slots__ = (
        "_committed",
        "_fetched",
        "_flush",
        "_install",
        "_is_empty",
        "_messages",
        "_promise",
        "_records",
        "_restriction_lifted",
        "_truncate_to",
        "_wakes",
    )

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._is_empty = True
        self._promise: Promise | None = None
        self._truncate_to: int | None = None
        self._install: Install | None = None
        self._records: list[Append] = []
        self._committed: Committed | Ahead | None = None
        self._messages: list[Request | Answer] = []
        self._restriction_lifted = self._fetched = self._wakes = self._flush = False

    def take(self) -> Ready:
        """Returns all actions that were added since the last call; `NOTHING` itself if there are none."""
        if self._is_empty:
            return NOTHING
        ready = Ready(
            self._promise,
            self._restriction_lifted,
            self._truncate_to,
            self._install,
            tuple(self._records),
            self._committed,
            tuple(self._messages),
            self._fetched,
            self._wakes,
            self._flush,
        )
        self._begin()
        return ready

    @property
    def changes_log(self) -> bool:
        return self._truncate_to is not None or self._install is not None or bool(self._records)

    def promise(self, state: ElectionState, *, is_binding: bool) -> None:
        """Sets the promise to be saved before messages leave: epoch and vote. A later promise of the same event
        replaces an earlier one.
        """
        self._is_empty, self._promise = False, Promise(state, is_binding)

    def lift_restriction(self) -> None:
        self._is_empty, self._restriction_lifted = False, True

    def truncate(self, end_offset: int) -> None:
        self._is_empty, self._truncate_to = False, end_offset

    def install(self, snapshot_id: SnapshotId, snapshot: Snapshot) -> None:
        self._is_empty, self._install = False, Install(snapshot_id, snapshot)

    def append(self, records: Sequence[Append]) -> None:
        self._is_empty = False
        self._records += records

    def commit(self, high_watermark: int, *, is_all: bool) -> None:
        """Sets the high watermark; a second call in the same event never lowers it."""
        self._is_empty, self._committed = False, Committed(high_watermark, is_all)

    def commit_ahead(self, ahead: Ahead) -> None:
        self._is_empty, self._committed = False, ahead

    def send(self, request: Request) -> None:
        self._is_empty = False
        self._messages.append(request)

    def answer(self, reply: AnswerReply, message: Message, if_not_saved: Message | None = None) -> None:
        self._is_empty = False
        self._messages.append(Answer(later(reply), message, if_not_saved))

    def fetch(self) -> None:
        """Records in the draft that a replica has fetched."""
        self._is_empty, self._fetched = False, True

    def wake(self) -> None:
        """Records in the draft that records were appended or committed, or that the role has changed."""
        self._is_empty, self._wakes = False, True

    def flush(self) -> None:
        self._is_empty, self._flush = False, True
