"""The values of a fetch: the request for one partition, its result, and the limits of one read.

An item of a fetch session also watches its partition: it passes every change that can affect its response to its
session (`ItemSession`). An item of a fetch without a session is only a value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from barnabas.common.errors import ErrorCode
from barnabas.common.host import Buffer
from barnabas.replication.leadership import FollowerState
from barnabas.replication.partition import Isolation, Partition

NO_REPLICA = -1


class ItemSession(Protocol):
    """The interface of a fetch session that its items use."""

    def on_progress(self, item: FetchItem, size_bytes: int) -> None:
        """Handles `Watcher.on_progress` of the item's partition."""

    def on_note(self, item: FetchItem) -> None: ...


class FetchItem:
    """A requested partition; kept as long as its fetch session. `topic` is None for an unknown topic id."""

    __slots__ = (
        "answered_high_watermark",
        "answered_log_start_offset",
        "current_leader_epoch",
        "idle_follower",
        "index",
        "is_denied",
        "is_throttled",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "offset",
        "partition",
        "session",
        "topic",
        "topic_id",
        "watched",
    )

    def __init__(self, topic: str | None, topic_id: bytes, index: int) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.offset = 0
        self.max_bytes = 0
        self.current_leader_epoch = -1
        self.last_fetched_epoch = -1
        self.log_start_offset = -1
        #: The values of the session's last response, to leave out what did not change (KIP-227).
        self.answered_high_watermark = -1
        self.answered_log_start_offset = -1
        #: The partition as found by the last read.
        self.partition: Partition | None = None
        #: Whether the last read returned nothing because data would have exceeded the replication quota (KIP-73).
        self.is_throttled = False
        #: Whether the reader may not read the topic; None if that is not checked yet.
        self.is_denied: bool | None = None
        self.session: ItemSession | None = None
        #: The partition that this item watches.
        self.watched: Partition | None = None
        #: The fetching follower's state at the leader, while it is caught up here.
        self.idle_follower: FollowerState | None = None

    def watch(self, isolation: Isolation) -> None:
        """Watches the partition that the last read found. Stops watching the one found before, if it is another."""
        partition = self.partition
        if partition is not self.watched:
            self.unwatch()
            if partition is not None:
                partition.watch(self, isolation)
                self.watched = partition

    def unwatch(self) -> None:
        if self.watched is not None:
            self.watched.unwatch(self)
            self.watched = None

    def on_progress(self, size_bytes: int) -> None:
        if self.session is not None:
            self.session.on_progress(self, size_bytes)

    def on_note(self) -> None:
        if self.session is not None:
            self.session.on_note(self)


class FetchResult:
    """The response for one partition. Unknown offsets are -1."""

    __slots__ = (
        "aborted",
        "data",
        "diverging",
        "error",
        "high_watermark",
        "is_urgent",
        "last_stable_offset",
        "leader",
        "log_start_offset",
        "preferred",
    )

    def __init__(self, error: ErrorCode = ErrorCode.NONE) -> None:
        self.error = error
        self.high_watermark = -1
        self.last_stable_offset = -1
        self.log_start_offset = -1
        #: (producer id, first offset) of the aborted transactions in `data`; None unless read_committed.
        self.aborted: Sequence[tuple[int, int]] | None = None
        self.data: Buffer = b""
        #: Whether the response must not wait for more data: `data` is not from the active segment, or another change is
        #: urgent.
        self.is_urgent = False
        #: (epoch, end offset) at which the reader's log diverges from this one (KIP-595).
        self.diverging: tuple[int, int] | None = None
        #: (leader id, leader epoch) for a reader that used the wrong broker or epoch.
        self.leader: tuple[int, int] | None = None
        #: The replica that the consumer should read from (KIP-392).
        self.preferred = NO_REPLICA


class Reader(NamedTuple):
    """The reader and its isolation. Replica ids of consumers are negative; `replica_epoch` is the follower's broker
    epoch, -1 if not sent."""

    isolation: Isolation
    replica_id: int = -1
    replica_epoch: int = -1


class FetchPlan:
    """The limits and conditions under which one request reads."""

    __slots__ = (
        "any_replica",
        "is_first_read",
        "isolation",
        "listener",
        "max_bytes",
        "min_bytes",
        "min_one_batch",
        "rack",
        "reader",
        "replica_id",
    )

    def __init__(
        self,
        reader: Reader,
        min_bytes: int,
        max_bytes: int,
        *,
        any_replica: bool = False,
        rack: str = "",
        listener: str = "",
        min_one_batch: bool = True,
    ) -> None:
        """`min_one_batch`: the first batch found can exceed `max_bytes`. `any_replica`: followers serve the request
        too. `rack`: the consumer's rack, for which the leader can name a nearer replica that `listener` reaches."""
        self.reader = reader
        self.isolation = reader.isolation
        self.replica_id = reader.replica_id
        self.min_bytes = min_bytes
        self.max_bytes = max_bytes
        self.min_one_batch = min_one_batch
        self.any_replica = any_replica
        self.rack = rack
        self.listener = listener
        #: Only the first read reports the follower's position; a re-read after waiting would repeat an old one.
        self.is_first_read = True
