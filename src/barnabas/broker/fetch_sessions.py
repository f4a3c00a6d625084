"""Incremental fetch sessions (KIP-227): what a reader asked for before need not be said again.

A session is an ordered map of items. Partitions that returned data move to its end, so that all get their turn when
the size limits bite. The cache holds `max.incremental.fetch.session.cache.slots`; a full cache evicts a session that
was idle for two minutes, else the reader goes without one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from barnabas.common.errors import ErrorCode
from barnabas.common.host import Random
from barnabas.replication.fetching import FetchItem, FetchResult

_EVICTION_IDLE_MS = 120_000
_EPOCH_FINAL = -1
_EPOCH_INITIAL = 0

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

    __slots__ = ("epoch", "items", "session_id", "used_ms", "uses_topic_ids")

    def __init__(self, session_id: int, uses_topic_ids: bool, now_ms: int) -> None:
        self.session_id = session_id
        self.epoch = 1
        self.uses_topic_ids = uses_topic_ids
        self.used_ms = now_ms
        self.items: dict[Key, FetchItem] = {}

    def advance(self) -> None:
        self.epoch = 1 if self.epoch == 0x7FFFFFFF else self.epoch + 1

    def changed(
        self, items: Sequence[FetchItem], results: Sequence[FetchResult]
    ) -> list[tuple[FetchItem, FetchResult]]:
        """What an incremental answer must say, noting what it said."""
        told = []
        for item, result in zip(items, results, strict=True):
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

    def note_all(self, items: Sequence[FetchItem], results: Sequence[FetchResult]) -> None:
        """A full answer told everything."""
        for item, result in zip(items, results, strict=True):
            _note(item, result)

    def _move_to_end(self, item: FetchItem) -> None:
        key: Key = (item.topic_id if self.uses_topic_ids else item.topic or "", item.index)
        if self.items.pop(key, None) is not None:
            self.items[key] = item


def _note(item: FetchItem, result: FetchResult) -> None:
    item.answered_high_watermark = result.high_watermark
    # An error is told again with the next answer, whatever it says.
    item.answered_log_start_offset = result.log_start_offset if result.error is ErrorCode.NONE else -2


def update_item(item: FetchItem, asked: AskedPartition) -> FetchItem:
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
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def create(self, uses_topic_ids: bool, now_ms: int) -> Session | None:
        """A new session, or None when the cache is full of live ones."""
        if len(self._sessions) >= self._slots:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now_ms - oldest.used_ms < _EVICTION_IDLE_MS:
                return None
            del self._sessions[oldest.session_id]
            self.evictions += 1
        session_id = 0
        while session_id == 0 or session_id in self._sessions:
            session_id = self._random.below(0x7FFFFFFF) + 1
        session = self._sessions[session_id] = Session(session_id, uses_topic_ids, now_ms)
        return session

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
        session.advance()
        return session

    def remove(self, session_id: int) -> None:
        self._sessions.pop(session_id, None)


def is_full(epoch: int) -> bool:
    """Whether a request with this session epoch lists all its partitions."""
    return epoch in (_EPOCH_INITIAL, _EPOCH_FINAL)


def wants_session(epoch: int) -> bool:
    return epoch == _EPOCH_INITIAL


def forget(session: Session, keys: Iterable[Key]) -> None:
    for key in keys:
        session.items.pop(key, None)
