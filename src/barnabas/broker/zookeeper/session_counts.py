"""Counts of what happens to a broker's sessions with ZooKeeper, as in Kafka's `SessionExpireListener` metrics."""

from __future__ import annotations

from barnabas.zookeeper.client.store import StoreListener
from barnabas.zookeeper.wire.codes import EventType


class SessionCounts:
    """A `StoreListener` that counts the events and passes them on. The first session is connected before it listens."""

    def __init__(self, listener: StoreListener) -> None:
        self._listener = listener
        #: Connections that began or continued a session.
        self.connects = 1
        self.disconnects = 0
        self.expiries = 0
        self.auth_failures = 0

    def session_opened(self, session_id: int) -> None:
        self.connects += 1
        self._listener.session_opened(session_id)

    def disconnected(self) -> None:
        self.disconnects += 1
        self._listener.disconnected()

    def reconnected(self) -> None:
        self.connects += 1
        self._listener.reconnected()

    def session_expired(self) -> None:
        self.expiries += 1
        self._listener.session_expired()

    def auth_failed(self) -> None:
        self.auth_failures += 1
        self._listener.auth_failed()

    def changed(self, path: str, event_type: EventType) -> None:
        self._listener.changed(path, event_type)
