"""Broker sessions: which brokers are alive. State in memory, which each active controller builds from the beginning.

A session ends `timeout_ms` after the last heartbeat. A controller that did not run for a while (paused, or starved of
CPU) cannot know which brokers were silent, so it extends all sessions by the time it missed. It checks every
`check_ms`, so that it soon notices how long it did not run.

Invariant: no contact time is in the future, so a broker that falls silent is fenced within `timeout_ms` of the
controller's own time.
"""

from __future__ import annotations

from typing import Final

_NO_OFFSET: Final = -1


class _Session:
    __slots__ = ("contact_ms", "is_connected", "metadata_offset", "shutdown_offset")

    def __init__(self, contact_ms: int) -> None:
        self.contact_ms = contact_ms
        self.is_connected = False
        self.metadata_offset = _NO_OFFSET
        self.shutdown_offset = _NO_OFFSET


class BrokerSessions:
    __slots__ = ("_sessions", "check_ms", "timeout_ms")

    def __init__(self, timeout_ms: int) -> None:
        self.timeout_ms = timeout_ms
        #: The longest time between two checks. A check that is late by more than this means that the controller paused.
        self.check_ms = max(timeout_ms // 4, 1)
        self._sessions: dict[int, _Session] = {}

    def start(self, broker_id: int, now_ms: int) -> None:
        """Starts a session: on registration, or for a broker registered before this controller became active."""
        self._sessions[broker_id] = _Session(now_ms)

    def touch(self, broker_id: int, metadata_offset: int, now_ms: int) -> None:
        session = self._sessions.get(broker_id)
        if session is None:
            session = self._sessions[broker_id] = _Session(now_ms)
        session.contact_ms = now_ms
        session.is_connected = True
        session.metadata_offset = metadata_offset

    def disconnected(self, broker_id: int) -> None:
        """Records that the connection with the broker's heartbeats has ended."""
        session = self._sessions.get(broker_id)
        if session is not None:
            session.is_connected = False

    def may_still_run(self, broker_id: int, now_ms: int, *, has_its_directories: bool) -> bool:
        """Returns whether the previous incarnation may still run: its session is current, and it is connected or may
        still hold the locks of its log directories. A new incarnation that has its directories holds those locks."""
        return self.is_alive(broker_id, now_ms) and (self.is_connected(broker_id) or not has_its_directories)

    def is_connected(self, broker_id: int) -> bool:
        """Returns whether the connection that carried the broker's heartbeats is open."""
        session = self._sessions.get(broker_id)
        return session is not None and session.is_connected

    def end(self, broker_id: int) -> None:
        self._sessions.pop(broker_id, None)

    def clear(self) -> None:
        self._sessions.clear()

    def is_alive(self, broker_id: int, now_ms: int) -> bool:
        session = self._sessions.get(broker_id)
        return session is not None and now_ms < session.contact_ms + self.timeout_ms

    def expired(self, now_ms: int) -> list[int]:
        return sorted(
            broker_id for broker_id, session in self._sessions.items() if now_ms >= session.contact_ms + self.timeout_ms
        )

    def next_check_ms(self, now_ms: int) -> int:
        """Returns the time at which the next session can expire, `check_ms` from now at the latest."""
        contacts = (session.contact_ms for session in self._sessions.values())
        return min(min(contacts, default=now_ms) + self.timeout_ms, now_ms + self.check_ms)

    def extend_all(self, missed_ms: int, now_ms: int) -> None:
        """Extends all sessions, after the controller did not run for `missed_ms`; no contact becomes later than now."""
        for session in self._sessions.values():
            session.contact_ms = min(session.contact_ms + missed_ms, now_ms)

    def begin_shutdown(self, broker_id: int, offset: int) -> None:
        """Records that the changes up to `offset` moved the broker's leaderships."""
        session = self._sessions.get(broker_id)
        if session is not None:
            session.shutdown_offset = offset

    def shutdown_offset(self, broker_id: int) -> int:
        session = self._sessions.get(broker_id)
        return _NO_OFFSET if session is None else session.shutdown_offset

    def lowest_offset(self, broker_ids: list[int], otherwise: int) -> int:
        """Returns the lowest metadata offset that these brokers have reported; or `otherwise` if none has a session."""
        offsets = [self._sessions[broker_id].metadata_offset for broker_id in broker_ids if broker_id in self._sessions]
        return min(offsets, default=otherwise)
