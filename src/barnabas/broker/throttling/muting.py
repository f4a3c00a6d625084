"""The muting of a connection: none of its requests is served for some time, because its client is above a quota
(KIP-219).
"""

from __future__ import annotations

from typing import Final, Protocol

from barnabas.common.host import Clock, Host, Timer

#: The reasons not to serve a connection: the host's output buffer is full; the client is above a quota.
BY_HOST: Final = 1
BY_QUOTA: Final = 2


class Mutable(Protocol):
    """A connection that can be muted (`broker.requests.client_connection.Connection`)."""

    is_closed: bool
    muting: Muting | None

    def pause_writing(self, reason: int = BY_HOST) -> None: ...
    def resume_writing(self, reason: int = BY_HOST) -> None: ...


class Muting:
    """The muting of one connection, with one timer."""

    __slots__ = ("_clock", "_connection", "_timer", "_until_ms")

    def __init__(self, connection: Mutable, clock: Clock) -> None:
        self._connection: Mutable | None = connection
        self._clock = clock
        self._timer: Timer | None = None
        self._until_ms = 0

    def extend(self, time_ms: int, host: Host) -> None:
        """Mutes the connection for this time from now on, unless it is already muted for longer."""
        until_ms = self._clock.now_ms() + time_ms
        if self._connection is None or until_ms <= self._until_ms:
            return
        self._until_ms = until_ms
        if self._timer is not None:
            self._timer.cancel()
        self._timer = host.timers.call_later(time_ms, self._end)
        self._connection.pause_writing(BY_QUOTA)

    def _end(self) -> None:
        self._timer = None
        if self._connection is not None:
            self._connection.resume_writing(BY_QUOTA)

    def close(self) -> None:
        """Ends the muting, because the connection is closed."""
        self._connection = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def mute(connection: Mutable, time_ms: int, host: Host) -> None:
    if connection.is_closed:
        return
    if connection.muting is None:
        connection.muting = Muting(connection, host.clock)
    connection.muting.extend(time_ms, host)
