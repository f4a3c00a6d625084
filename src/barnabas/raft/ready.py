"""The actions that an event of the quorum leaves: a value that `raft.execution` carries out in the order of its fields.

    promise         epoch, leader and vote go into `quorum-state`, synced; then a role or vote that needs them is taken
    hold_released   `metadata-log-checkpoint` says, synced, that this voter votes again
    truncate_to     the log is cut off where the leader has other records
    install         the log and its listeners go on from a snapshot
    records         appended to the log, in the page cache (what is proposed is there already, or was refused)
    committed       batches before the high watermark go to the listeners, and proposals are answered
    messages        requests and answers leave
    fetched, wakes  those who have just fetched, or all who wait for something to fetch, are answered if there is any
    flush           what was appended is synced; the end of that is an event of its own

Nothing leaves before the promise that it rests on is on disk (`Answer.unless_kept`), and no request claims records that
are not (`Request.durable_end`). The records of a leader leave beside its own flush; they count for it after that (G16).
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
    """The state that must be on disk before anything else of the event happens."""

    state: ElectionState
    #: A vote, or leadership: without room on the disk it is not given. An epoch that others began is followed anyway.
    is_binding: bool


class Append(NamedTuple):
    """One batch for the end of the log: a leader's own, or as its leader sent it, in memory that is only lent."""

    data: bytearray | memoryview
    batch: CommittedBatch

    @property
    def is_own(self) -> bool:
        return isinstance(self.data, bytearray)


class Install(NamedTuple):
    """A snapshot in place of everything before its end."""

    snapshot_id: SnapshotId
    snapshot: Snapshot


class Committed(NamedTuple):
    """How far the log is committed. `is_all`: nothing beyond that is known to be."""

    high_watermark: int
    is_all: bool


class Ahead(NamedTuple):
    """Committed batches for which the log has no room; they begin where it ends."""

    batches: tuple[CommittedBatch, ...]
    log_end: int
    high_watermark: int


class Request(NamedTuple):
    """A question to another node; `reply` is an event of its own."""

    address: Address
    message: Message
    reply: Reply
    timeout_ms: int
    #: The message claims that everything before this offset is on this disk.
    durable_end: int = 0


class Answer(NamedTuple):
    """The answer to a request of another node, or of a tool."""

    reply: AnswerReply
    message: Message
    #: Leaves in place of `message` if the promise of this event could not be kept; None where it rests on none.
    unless_kept: Message | None = None


class Ready(NamedTuple):
    """The fields in the order in which they are carried out."""

    promise: Promise | None = None
    hold_released: bool = False
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
        """Whether records come, go, or give way to a snapshot."""
        return self.truncate_to is not None or self.install is not None or bool(self.records)


NOTHING = Ready()


class Draft:
    """The `Ready` of the event at hand, while the parts of the node add to it."""

    __slots__ = (
        "_committed",
        "_fetched",
        "_flush",
        "_hold_released",
        "_install",
        "_is_empty",
        "_messages",
        "_promise",
        "_records",
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
        self._hold_released = self._fetched = self._wakes = self._flush = False

    def take(self) -> Ready:
        """Everything since the last time; `NOTHING` itself where there is nothing to do."""
        if self._is_empty:
            return NOTHING
        ready = Ready(
            self._promise,
            self._hold_released,
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
        """The last one counts: it includes what an earlier one of the same event says."""
        self._is_empty, self._promise = False, Promise(state, is_binding)

    def release_hold(self) -> None:
        self._is_empty, self._hold_released = False, True

    def truncate(self, end_offset: int) -> None:
        self._is_empty, self._truncate_to = False, end_offset

    def install(self, snapshot_id: SnapshotId, snapshot: Snapshot) -> None:
        self._is_empty, self._install = False, Install(snapshot_id, snapshot)

    def append(self, records: Sequence[Append]) -> None:
        self._is_empty = False
        self._records += records

    def commit(self, high_watermark: int, *, is_all: bool) -> None:
        """The last one counts: a high watermark does not go back."""
        self._is_empty, self._committed = False, Committed(high_watermark, is_all)

    def commit_ahead(self, ahead: Ahead) -> None:
        self._is_empty, self._committed = False, ahead

    def ask(self, request: Request) -> None:
        self._is_empty = False
        self._messages.append(request)

    def answer(self, reply: AnswerReply, message: Message, unless_kept: Message | None = None) -> None:
        self._is_empty = False
        self._messages.append(Answer(later(reply), message, unless_kept))

    def fetch(self) -> None:
        """A replica has asked for records."""
        self._is_empty, self._fetched = False, True

    def wake(self) -> None:
        """Something was appended or committed, or the role has changed."""
        self._is_empty, self._wakes = False, True

    def flush(self) -> None:
        self._is_empty, self._flush = False, True
