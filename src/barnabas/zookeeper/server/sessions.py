"""Sessions: their ids, passwords and timeouts, expired in steps of a tick (`SessionTrackerImpl`, `ExpiryQueue`).

A session ends up to one tick after its timeout. Time in which this process did not run does not count, so no session
expires after a pause before its connection has been read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from barnabas.common.host import Clock, Timer, Timers

_SERVER_ID: Final = 1
_PASSWORD_SECRET: Final = 0xB3415C00
_PASSWORD_WORDS: Final = 4
#: The generator of `java.util.Random`.
_MULTIPLIER: Final = 0x5DEECE66D
_INCREMENT: Final = 0xB
_STATE_MASK: Final = (1 << 48) - 1


def password_of(session_id: int) -> bytes:
    """Returns the 16-byte password of a session, as every ZooKeeper server derives them from its id: 32-bit words of
    `java.util.Random`, the low byte first.
    """
    state = (session_id ^ _PASSWORD_SECRET ^ _MULTIPLIER) & _STATE_MASK
    password = b""
    for _ in range(_PASSWORD_WORDS):
        state = (state * _MULTIPLIER + _INCREMENT) & _STATE_MASK
        password += (state >> 16 & 0xFFFF_FFFF).to_bytes(4, "little")
    return password


def first_session_id(wall_ms: int) -> int:
    """Returns the first id of a server that starts at this time: the server's id in the highest byte, then the time."""
    return _SERVER_ID << 56 | (wall_ms << 24 & 0xFFFF_FFFF_FFFF_FFFF) >> 8


class Session:
    """An open session. `timeout_ms` is the timeout of its latest connection. A session that is closing accepts no
    requests.
    """

    __slots__ = ("bucket_ms", "is_closing", "session_id", "timeout_ms", "unanswered")

    def __init__(self, session_id: int, timeout_ms: int) -> None:
        self.session_id = session_id
        self.timeout_ms = timeout_ms
        self.is_closing = False
        #: The time at which its bucket expires.
        self.bucket_ms = 0
        #: The client's requests that wait for a sync; its later reads wait behind them.
        self.unanswered = 0


class SessionTracker:
    """The open sessions, in buckets by the tick in which they expire.

    New ids are greater than `session_id_max`: after a restart with a clock that was set back, the id of an ended
    session would let its client continue another client's session.
    """

    def __init__(
        self,
        clock: Clock,
        timers: Timers,
        tick_ms: int,
        sessions: Mapping[int, int],
        session_id_max: int,
        expire: Callable[[Session], None],
    ) -> None:
        self._clock = clock
        self._timers = timers
        self._tick_ms = tick_ms
        self._expire = expire
        self._timer: Timer | None = None
        #: How long this process did not run.
        self._paused_ms = 0
        self.sessions: dict[int, Session] = {}
        self.buckets: dict[int, dict[Session, None]] = {}
        self._next_ms = self._bucket_of(self._now_ms())
        self._next_id = max(first_session_id(clock.wall_ms()), session_id_max + 1)
        for session_id, timeout_ms in sessions.items():
            self.track(session_id, timeout_ms)

    def start(self) -> None:
        """Begins to expire sessions, from their full timeouts."""
        assert self._timer is None
        self._wait()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def create(self, timeout_ms: int) -> Session:
        """Returns a new session. It is in the database when its transaction is applied."""
        session_id, self._next_id = self._next_id, self._next_id + 1
        return self.track(session_id, timeout_ms)

    def track(self, session_id: int, timeout_ms: int) -> Session:
        session = self.sessions[session_id] = Session(session_id, timeout_ms)
        self.touch(session)
        return session

    def find(self, session_id: int) -> Session | None:
        """Returns the session if it is open and not closing."""
        session = self.sessions.get(session_id)
        return None if session is None or session.is_closing else session

    def touch(self, session: Session) -> None:
        """Restarts the session's timeout after a sign of life of its client."""
        bucket_ms = self._bucket_of(self._clock.now_ms() - self._paused_ms + session.timeout_ms)
        if bucket_ms != session.bucket_ms:
            self._leave(session)
            session.bucket_ms = bucket_ms
            self.buckets.setdefault(bucket_ms, {})[session] = None

    def remove(self, session_id: int) -> None:
        session = self.sessions.pop(session_id, None)
        if session is not None:
            session.is_closing = True
            self._leave(session)

    def wall_ms_of(self, bucket_ms: int) -> int:
        """Returns the wall-clock time at which a bucket expires."""
        return self._clock.wall_ms() + bucket_ms - self._now_ms()

    def _leave(self, session: Session) -> None:
        bucket = self.buckets.get(session.bucket_ms)
        if bucket is not None:
            bucket.pop(session, None)
            if not bucket:
                del self.buckets[session.bucket_ms]

    def _now_ms(self) -> int:
        return self._clock.now_ms() - self._paused_ms

    def _bucket_of(self, time_ms: int) -> int:
        return (time_ms // self._tick_ms + 1) * self._tick_ms

    def _wait(self) -> None:
        self._timer = self._timers.call_later(max(0, self._next_ms - self._now_ms()), self._on_tick)

    def _on_tick(self) -> None:
        late_ms = self._now_ms() - self._next_ms
        if late_ms >= self._tick_ms:
            self._paused_ms += late_ms
        while self._next_ms <= self._now_ms():
            for session in tuple(self.buckets.pop(self._next_ms, ())):
                session.is_closing = True
                self._expire(session)
            self._next_ms += self._tick_ms
        self._wait()
