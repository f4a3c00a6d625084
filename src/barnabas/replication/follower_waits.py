"""Fetches of followers that wait here for records, and when they had better not.

A follower has one request under way per leader. While that one waits for records of the partitions that it names, the
follower cannot ask for a partition that it has begun to follow in the meantime, and a write with acks=all to such a
partition waits for the end of that wait. Both sides hear of a new leader at about the same time, but in no order. So
where this broker begins to lead a partition, what its followers wait for is answered at once, and for a while after
that they are kept waiting only briefly.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from barnabas.common.host import Clock, Timers
from barnabas.replication.purgatory import Watcher

#: So long a follower may need to hear of a new leader that has already begun.
_EXPECTED_MS: Final = 1_000
_SHORT_WAIT_MS: Final = 20


class FollowerWaits:
    def __init__(self, clock: Clock, timers: Timers) -> None:
        self._clock = clock
        self._timers = timers
        #: Follower -> until when it is expected to ask for more partitions.
        self._expected_until_ms: dict[int, int] = {}
        self._waiting: dict[int, dict[Watcher, None]] = {}
        self._to_wake: dict[int, None] = {}

    def expect(self, followers: Iterable[int]) -> None:
        """They are about to follow a partition that is led here from now on."""
        until_ms = self._clock.now_ms() + _EXPECTED_MS
        if not self._to_wake:
            self._timers.call_soon(self._wake)
        for follower in followers:
            self._expected_until_ms[follower] = until_ms
            self._to_wake[follower] = None

    def wait_ms(self, follower: int, asked_ms: int) -> int:
        """How long its fetch may wait, which would like to wait for `asked_ms`."""
        until_ms = self._expected_until_ms.get(follower)
        if until_ms is None:
            return asked_ms
        if until_ms <= self._clock.now_ms():
            del self._expected_until_ms[follower]
            return asked_ms
        return min(asked_ms, _SHORT_WAIT_MS)

    def enter(self, follower: int, watcher: Watcher) -> None:
        self._waiting.setdefault(follower, {})[watcher] = None

    def leave(self, follower: int, watcher: Watcher) -> None:
        waiting = self._waiting.get(follower)
        if waiting is not None:
            waiting.pop(watcher, None)
            if not waiting:
                del self._waiting[follower]

    def _wake(self) -> None:
        followers, self._to_wake = self._to_wake, {}
        for follower in followers:
            for watcher in tuple(self._waiting.get(follower, ())):
                watcher.on_progress(0)
