"""Incremental fetch sessions (KIP-227): a request names only what changed since the session's previous one.

A fetch reads only the session's active items. The response would contain nothing for the others; their partitions
activate them again (`Session.on_progress`, `on_note`), so thousands of idle partitions cost nothing. Partitions that
returned data move to the end of the active ones, so that all get a turn when the size limits apply.

The cache holds `max.incremental.fetch.session.cache.slots` sessions. A full one evicts a session that was idle for two
minutes, or one that is older than that and smaller than the new one; a follower's session outranks a consumer's.
Otherwise the reader gets no session.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Protocol

from barnabas.common.errors import ErrorCode
from barnabas.common.host import Random
from barnabas.replication.delayed_fetch import DelayedFetch
from barnabas.replication.fetch_items import NO_REPLICA, FetchItem, FetchResult, Reader
from barnabas.replication.leadership import SessionFetch
from barnabas.replication.partition import Isolation, Partition

_EVICTION_MS = 120_000
#: The minimum interval between scans of a full cache for a smaller session to evict.
_SCAN_INTERVAL_MS = 1000
#: The number of items that are added to a session, or detached from it, in about a quarter of a millisecond.
_ITEMS_PER_UNIT = 100
CONSUMER = Reader(Isolation.READ_UNCOMMITTED)
EPOCH_FINAL = -1
EPOCH_INITIAL = 0

Key = tuple[str | bytes, int]


class RequestedPartition(Protocol):
    """The fields of FetchRequest.FetchPartition that a session stores."""

    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    partition_max_bytes: int


class Session:
    """A reader's set of partitions. `epoch` is the session epoch of its next request."""

    __slots__ = (
        "_is_closed",
        "_session_fetch",
        "active",
        "created_ms",
        "epoch",
        "items",
        "progress",
        "reader",
        "rights",
        "session_id",
        "used_ms",
        "uses_topic_ids",
        "waiting",
    )

    def __init__(self, session_id: int, uses_topic_ids: bool, now_ms: int, reader: Reader = CONSUMER) -> None:
        self.session_id = session_id
        self.epoch = 1
        self.uses_topic_ids = uses_topic_ids
        self.reader = reader
        #: The state for which the rights to the items were last checked: version of the rules, principal, address, and
        #: whether the client claimed to be a replica.
        self.rights: tuple[int, str, str, bool] | None = None
        self.created_ms = now_ms
        self.used_ms = now_ms
        self.items: dict[Key, FetchItem] = {}
        #: The items that the next fetch must read, in the order of their turn.
        self.active: dict[FetchItem, None] = {}
        #: The number of progress notifications from its partitions.
        self.progress = 0
        #: The session's fetch that waits in the purgatory.
        self.waiting: DelayedFetch | None = None
        self._session_fetch = SessionFetch(now_ms)
        self._is_closed = False

    @property
    def is_follower(self) -> bool:
        return self.reader.replica_id >= 0

    @property
    def rank(self) -> tuple[bool, int, int]:
        """Returns the rank that a new session must reach to replace this one."""
        return (self.is_follower, len(self.items), self.session_id)

    # -- which partitions

    def keep(self, item: FetchItem) -> None:
        """Adds a partition to the session, or makes a partition that the request names active again."""
        if item.session is not self:
            self.items[_key(item, self.uses_topic_ids)] = item
            item.session = self
        self._activate(item)

    def forget(self, topic: str | bytes, indexes: Iterable[int]) -> None:
        for index in indexes:
            item = self.items.pop((topic, index), None)
            if item is not None:
                self._release(item)
                self.active.pop(item, None)

    def close(self) -> Generator[int, None, None]:
        """Completes the waiting fetch. Returns the work that detaches the session from its partitions."""
        self._is_closed = True
        waiting, self.waiting = self.waiting, None
        if waiting is not None:
            waiting.complete()
        return self._detach()

    def _detach(self) -> Generator[int, None, None]:
        for place, item in enumerate(list(self.items.values()), 1):
            self._release(item)
            if place % _ITEMS_PER_UNIT == 0:
                yield 1

    def _release(self, item: FetchItem) -> None:
        item.unwatch()
        item.session = None
        self._end_idle(item)

    def set_denied(self, item: FetchItem, is_denied: bool) -> None:
        """Records whether the reader may not read an item. The next fetch reports a change."""
        if item.is_denied is not is_denied:
            item.is_denied = is_denied
            self._activate(item)

    # -- events of its partitions

    def on_progress(self, item: FetchItem, size_bytes: int) -> None:
        self.progress += 1
        self._activate(item)
        if self.waiting is None:
            # The next fetch reads the item in any case, so an abandoned session gets no further notifications.
            item.unwatch()
        elif not (item.is_throttled and size_bytes):
            self.waiting.on_progress(size_bytes)

    def on_note(self, item: FetchItem) -> None:
        self._activate(item)
        if self.waiting is None:
            item.unwatch()

    def _activate(self, item: FetchItem) -> None:
        if item not in self.active:
            self.active[item] = None
            self._end_idle(item)

    def _end_idle(self, item: FetchItem) -> None:
        if item.idle_follower is not None:
            item.idle_follower.end_idle(self._session_fetch)
            item.idle_follower = None

    # -- fetches

    def begin_fetch(self, reader: Reader, now_ms: int) -> None:
        """Records that the session's next fetch begins."""
        self._session_fetch.ms = now_ms
        if reader != self.reader:
            self.reader = reader
            for item in self.items.values():
                item.unwatch()  # The reader determines the visible end of the log, and with it the events to watch.
                self._activate(item)

    def watch(self, items: Iterable[FetchItem]) -> None:
        """Subscribes to changes of partitions that have just been read, so that a change makes them active again."""
        if not self._is_closed:
            isolation = self.reader.isolation
            for item in items:
                if item.partition is not item.watched:
                    item.watch(isolation)

    def changed(
        self, items: Sequence[FetchItem], results: Sequence[FetchResult]
    ) -> list[tuple[FetchItem, FetchResult]]:
        """Returns the items that an incremental response must contain, and records what the response reports."""
        reported = []
        for item, result in zip(items, results, strict=True):
            if (
                len(result.data) > 0
                or result.error is not ErrorCode.NONE
                or result.diverging is not None
                or result.preferred != NO_REPLICA
                or result.high_watermark != item.answered_high_watermark
                or result.log_start_offset != item.answered_log_start_offset
            ):
                reported.append((item, result))
            self.note(item, result)
        return reported

    def note(self, item: FetchItem, result: FetchResult) -> None:
        """Records what the response reports for an item. An item that returned data moves to the end of the order in
        which items are read; one with nothing more to report becomes inactive.
        """
        # At a divergence the follower ignores the other fields: it truncates, possibly by an epoch without records.
        item.answered_high_watermark = result.high_watermark if result.diverging is None else -1
        # A partition with an error is included in the next response again, whatever its result.
        item.answered_log_start_offset = result.log_start_offset if result.error is ErrorCode.NONE else -2
        if len(result.data) > 0:
            if self.active.pop(item, self) is None:
                self.active[item] = None
        elif item in self.active and self._may_rest(item, result):
            del self.active[item]

    def _may_rest(self, item: FetchItem, result: FetchResult) -> bool:
        """Returns whether the response would contain nothing for this item until its partition reports a change."""
        partition = item.partition
        if (
            partition is None
            or partition is not item.watched
            or item.is_throttled
            or result.error is not ErrorCode.NONE
            or result.diverging is not None
            or result.preferred != NO_REPLICA
            or result.high_watermark != partition.high_watermark
            or result.log_start_offset != partition.log.log_start_offset
            or item.offset < partition.readable_end(self.reader.isolation)
            or partition.check_epoch(item.current_leader_epoch) is not ErrorCode.NONE
        ):
            return False
        return not self.is_follower or self._rests_in_sync(item, partition)

    def _rests_in_sync(self, item: FetchItem, partition: Partition) -> bool:
        """Returns whether the item of a follower can become inactive. A follower outside the ISR is checked with every
        fetch, because it can rejoin at any time."""
        leadership, replica_id = partition.leadership, self.reader.replica_id
        if leadership is None or leadership.proposed is not None or replica_id not in leadership.isr:
            return False
        follower = leadership.followers.get(replica_id)
        if follower is None or follower.leo != item.offset:
            return False
        follower.begin_idle(self._session_fetch)
        item.idle_follower = follower
        return True


def _key(item: FetchItem, uses_topic_ids: bool) -> Key:
    return (item.topic_id if uses_topic_ids else item.topic or "", item.index)


def update_item(item: FetchItem, requested: RequestedPartition) -> FetchItem:
    """Copies the fields of a request to a session's item, and returns the item."""
    if requested.current_leader_epoch != item.current_leader_epoch or requested.fetch_offset < item.offset:
        # A follower in another epoch, or one that truncated, has discarded what was reported to it since then, so it is
        # reported again.
        item.answered_high_watermark = item.answered_log_start_offset = -1
    item.offset = requested.fetch_offset
    item.max_bytes = requested.partition_max_bytes
    item.current_leader_epoch = requested.current_leader_epoch
    item.last_fetched_epoch = requested.last_fetched_epoch
    item.log_start_offset = requested.log_start_offset
    return item


class SessionCache:
    """All sessions of one broker, least recently used first."""

    def __init__(self, slots: int, random: Random, work: Callable[[Generator[int, None, None]], None]) -> None:
        """`work` does work in steps, in this turn of the loop and in later ones."""
        self._slots = slots
        self._random = random
        self._work = work
        self._sessions: dict[int, Session] = {}
        self._scanned_ms = -_SCAN_INTERVAL_MS
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def has_room(self) -> bool:
        """Returns whether a session can begin without the end of another one."""
        return len(self._sessions) < self._slots

    @property
    def partition_count(self) -> int:
        """Returns the number of partitions of all sessions."""
        return sum(len(session.items) for session in self._sessions.values())

    def begin(
        self,
        reported: Sequence[tuple[FetchItem, FetchResult]],
        *,
        uses_topic_ids: bool,
        now_ms: int,
        reader: Reader = CONSUMER,
    ) -> Generator[int, None, int]:
        """Creates a session of these partitions, all of which this response contains, in steps. Returns its id, or 0 if
        no existing session can be evicted for it."""
        if len(self._sessions) >= self._slots and not self._evict(reader.replica_id >= 0, len(reported), now_ms):
            return 0
        session_id = 0
        while session_id == 0 or session_id in self._sessions:
            session_id = self._random.below(0x7FFFFFFF) + 1
        session = self._sessions[session_id] = Session(session_id, uses_topic_ids, now_ms, reader)
        for begin in range(0, len(reported), _ITEMS_PER_UNIT):
            if begin:
                yield 1
            some = reported[begin : begin + _ITEMS_PER_UNIT]
            for item, _ in some:
                session.keep(item)
            session.watch([item for item, _ in some])
            for item, result in some:
                session.note(item, result)
        return session_id

    def _evict(self, is_follower: bool, size: int, now_ms: int) -> bool:
        """Makes room for a session of this rank. Returns whether one could be evicted."""
        victim = next(iter(self._sessions.values()), None)
        if victim is not None and now_ms - victim.used_ms <= _EVICTION_MS:
            if now_ms - self._scanned_ms < _SCAN_INTERVAL_MS:
                return False
            self._scanned_ms = now_ms
            victim = min(
                (
                    session
                    for session in self._sessions.values()
                    if now_ms - session.created_ms > _EVICTION_MS or (is_follower and not session.is_follower)
                ),
                key=lambda session: session.rank,
                default=None,
            )
            if victim is not None and (is_follower, size, 0) < victim.rank:
                return False
        if victim is None:
            return False
        self.remove(victim.session_id)
        self.evictions += 1
        return True

    def find(self, session_id: int, epoch: int, uses_topic_ids: bool, now_ms: int) -> Session | ErrorCode:
        """Returns the session that an incremental request names, or the error."""
        session = self._sessions.get(session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.uses_topic_ids != uses_topic_ids:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        session.used_ms = now_ms
        self._sessions[session_id] = self._sessions.pop(session_id)
        session.epoch = next_epoch(epoch)
        return session

    def remove(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._work(session.close())


def is_full(epoch: int) -> bool:
    """Returns whether a request with this session epoch lists all its partitions."""
    return epoch in (EPOCH_INITIAL, EPOCH_FINAL)


def next_epoch(epoch: int) -> int:
    return 1 if epoch == 0x7FFFFFFF else epoch + 1
