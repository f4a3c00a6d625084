"""Incremental fetch sessions (KIP-227): what a reader asked for before need not be said again.

A session is an ordered map of items. Partitions that returned data move to its end, so that all get their turn when
the size limits bite. The cache holds `max.incremental.fetch.session.cache.slots`. A full one evicts a session that was
idle for two minutes, or one that is older than that and smaller than the new one; followers' sessions are worth more
than any consumer's. Else the reader goes without.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from barnabas.common.errors import ErrorCode
from barnabas.common.host import Random
from barnabas.replication.fetching import UNCHANGED, FetchItem, FetchResult

_EVICTION_MS = 120_000
#: A full cache looks for a smaller session to evict at most once in this time.
_SCAN_INTERVAL_MS = 1000
EPOCH_FINAL = -1
EPOCH_INITIAL = 0

Key = tuple[str | bytes, int]


class AskedPartition(Protocol):
    """The fields of FetchRequest.FetchPartition that a session keeps."""

    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    partition_max_bytes: int


class Session:
    """One reader's set of partitions. `epoch` is what its next request must carry."""

    __slots__ = ("created_ms", "epoch", "is_follower", "items", "session_id", "used_ms", "uses_topic_ids")

    def __init__(self, session_id: int, uses_topic_ids: bool, now_ms: int, *, is_follower: bool = False) -> None:
        self.session_id = session_id
        self.epoch = 1
        self.uses_topic_ids = uses_topic_ids
        self.is_follower = is_follower
        self.created_ms = now_ms
        self.used_ms = now_ms
        self.items: dict[Key, FetchItem] = {}

    @property
    def worth(self) -> tuple[bool, int, int]:
        """What a new session must be worth to take this one's slot."""
        return (self.is_follower, len(self.items), self.session_id)

    def forget(self, topic: str | bytes, indexes: Iterable[int]) -> None:
        for index in indexes:
            self.items.pop((topic, index), None)

    def changed(
        self, items: Sequence[FetchItem], results: Sequence[FetchResult]
    ) -> list[tuple[FetchItem, FetchResult]]:
        """What an incremental answer must say, noting what it said."""
        told = []
        for item, result in zip(items, results, strict=True):
            if result is UNCHANGED:
                continue
            data = len(result.data) > 0
            if (
                data
                or result.error is not ErrorCode.NONE
                or result.diverging is not None
                or result.high_watermark != item.answered_high_watermark
                or result.log_start_offset != item.answered_log_start_offset
            ):
                told.append((item, result))
            _note(item, result)
            if data:
                self._move_to_end(item)
        return told

    def _move_to_end(self, item: FetchItem) -> None:
        key = _key(item, self.uses_topic_ids)
        if self.items.pop(key, None) is not None:
            self.items[key] = item


def _key(item: FetchItem, uses_topic_ids: bool) -> Key:
    return (item.topic_id if uses_topic_ids else item.topic or "", item.index)


def _note(item: FetchItem, result: FetchResult) -> None:
    item.answered_high_watermark = result.high_watermark
    # An error is told again with the next answer, whatever it says.
    item.answered_log_start_offset = result.log_start_offset if result.error is ErrorCode.NONE else -2


def update_item(item: FetchItem, asked: AskedPartition) -> FetchItem:
    if asked.current_leader_epoch != item.current_leader_epoch or asked.fetch_offset < item.offset:
        # A follower in another epoch, or cut back: it has thrown away what it was told meanwhile, so tell it again.
        item.answered_high_watermark = item.answered_log_start_offset = -1
    item.offset = asked.fetch_offset
    item.max_bytes = asked.partition_max_bytes
    item.current_leader_epoch = asked.current_leader_epoch
    item.last_fetched_epoch = asked.last_fetched_epoch
    item.log_start_offset = asked.log_start_offset
    return item


class SessionCache:
    """All sessions of one broker, least recently used first."""

    def __init__(self, slots: int, random: Random) -> None:
        self._slots = slots
        self._random = random
        self._sessions: dict[int, Session] = {}
        self._scanned_ms = -_SCAN_INTERVAL_MS
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(
        self,
        told: Sequence[tuple[FetchItem, FetchResult]],
        *,
        uses_topic_ids: bool,
        now_ms: int,
        is_follower: bool = False,
    ) -> int:
        """A new session of these partitions, which were told all. Its id, or 0 when all slots are worth more."""
        if len(self._sessions) >= self._slots and not self._evict(is_follower, len(told), now_ms):
            return 0
        session_id = 0
        while session_id == 0 or session_id in self._sessions:
            session_id = self._random.below(0x7FFFFFFF) + 1
        session = self._sessions[session_id] = Session(session_id, uses_topic_ids, now_ms, is_follower=is_follower)
        for item, result in told:
            _note(item, result)
            session.items[_key(item, uses_topic_ids)] = item
        return session_id

    def _evict(self, is_follower: bool, size: int, now_ms: int) -> bool:
        """Make room for such a session. True if there was one that may go."""
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
                key=lambda session: session.worth,
                default=None,
            )
            if victim is not None and (is_follower, size, 0) < victim.worth:
                return False
        if victim is None:
            return False
        del self._sessions[victim.session_id]
        self.evictions += 1
        return True

    def find(self, session_id: int, epoch: int, uses_topic_ids: bool, now_ms: int) -> Session | ErrorCode:
        """The session that an incremental request names, or why not."""
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
        self._sessions.pop(session_id, None)


def is_full(epoch: int) -> bool:
    """Whether a request with this session epoch lists all its partitions."""
    return epoch in (EPOCH_INITIAL, EPOCH_FINAL)


def next_epoch(epoch: int) -> int:
    return 1 if epoch == 0x7FFFFFFF else epoch + 1
