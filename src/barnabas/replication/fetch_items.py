"""The values of a fetch: what is asked of one partition, what it answers, and how one request reads.

An item of a session is also who waits at its partition: it hears of whatever could change its answer and hands that
to its session (`Keeper`). One of a fetch without a session is only a value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from barnabas.common.errors import ErrorCode
from barnabas.common.host import Buffer
from barnabas.replication.leadership import Follower
from barnabas.replication.partition import Isolation, Partition

NO_REPLICA = -1


class Keeper(Protocol):
    """The session that an item belongs to."""

    def on_progress(self, item: FetchItem, size_bytes: int) -> None:
        """As `Watcher.on_progress`, of that item's partition."""

    def on_note(self, item: FetchItem) -> None: ...


class FetchItem:
    """One partition that is asked for; lives as long as its fetch session. `topic` is None for an unknown topic id."""

    __slots__ = (
        "answered_high_watermark",
        "answered_log_start_offset",
        "current_leader_epoch",
        "index",
        "is_throttled",
        "keeper",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "offset",
        "partition",
        "resting",
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
        #: What the session's last answer said, to leave out what did not change (KIP-227).
        self.answered_high_watermark = -1
        self.answered_log_start_offset = -1
        #: Where it was read from last.
        self.partition: Partition | None = None
        #: It got nothing when it was read last, for it would have exceeded the leader's rate (KIP-73).
        self.is_throttled = False
        self.keeper: Keeper | None = None
        #: The partition that tells it of changes.
        self.watched: Partition | None = None
        #: What the leader knows of the follower that asks, while there is nothing for it here.
        self.resting: Follower | None = None

    def watch(self, isolation: Isolation) -> None:
        """Hear of changes of the partition that it was read from last."""
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
        if self.keeper is not None:
            self.keeper.on_progress(self, size_bytes)

    def on_note(self) -> None:
        if self.keeper is not None:
            self.keeper.on_note(self)


class FetchResult:
    """What one partition answers. Offsets are -1 when they are not known."""

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
        #: Whether it is not to wait for data: other segments lie behind `data`, or what it says is wanted soon.
        self.is_urgent = False
        #: (epoch, end offset) where the reader's history parted from ours (KIP-595).
        self.diverging: tuple[int, int] | None = None
        #: (leader id, leader epoch) for a reader that asked the wrong broker or epoch.
        self.leader: tuple[int, int] | None = None
        #: Which replica the consumer had better ask (KIP-392).
        self.preferred = NO_REPLICA


class Reader(NamedTuple):
    """Who reads, and how far it may see. Replica ids are negative for consumers; the broker epoch says which
    incarnation of a follower it is, -1 where it does not say."""

    isolation: Isolation
    replica_id: int = -1
    replica_epoch: int = -1


class FetchPlan:
    """How one request reads."""

    __slots__ = (
        "any_replica",
        "is_first_look",
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
        """`min_one_batch`: the first batch found may exceed `max_bytes`. `any_replica`: followers serve it, too.
        `rack`: where the consumer is, for a leader that knows a replica nearer to it which can be reached by
        `listener`."""
        self.reader = reader
        self.isolation = reader.isolation
        self.replica_id = reader.replica_id
        self.min_bytes = min_bytes
        self.max_bytes = max_bytes
        self.min_one_batch = min_one_batch
        self.any_replica = any_replica
        self.rack = rack
        self.listener = listener
        #: Only then it tells how far the follower is; when a fetch that waited is read again, that is old news.
        self.is_first_look = True
