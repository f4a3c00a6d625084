"""Waiting fetches of followers, and when they should not wait.

A follower has one request in flight per leader. While it waits for records of its partitions, the follower cannot fetch
a partition that it began to follow in the meantime, and writes with acks=all to that partition wait too. Leader and
follower learn of a new leader at about the same time, in either order. So when this broker becomes leader of a
partition, waiting fetches of its followers are answered immediately, and for a while they wait only briefly.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from barnabas.common.host import Clock, Timers
from barnabas.replication.purgatory import Watcher

#: The longest time that a follower needs to learn of a new leader that already leads.
_EXPECTED_MS: Final = 1_000
_SHORT_WAIT_MS: Final = 20


class FollowerWaits:
    def __init__(self, clock: Clock, timers: Timers) -> None:
        self._clock = clock
        self._timers = timers
        #: Follower -> the time until which it is expected to fetch more partitions.
        self._expected_until_ms: dict[int, int] = {}
        self._waiting: dict[int, dict[Watcher, None]] = {}
        self._to_wake: dict[int, None] = {}

    def expect(self, followers: Iterable[int]) -> None:
        """Records that these followers are about to follow a partition that this broker leads from now on."""
        until_ms = self._clock.now_ms() + _EXPECTED_MS
        if not self._to_wake:
            self._timers.call_soon(self._wake)
        for follower in followers:
            self._expected_until_ms[follower] = until_ms
            self._to_wake[follower] = None

    def wait_ms(self, follower: int, requested_ms: int) -> int:
        """Returns how long the follower's fetch can wait, at most the `requested_ms` of the request."""
        until_ms = self._expected_until_ms.get(follower)
        if until_ms is None:
            return requested_ms
        if until_ms <= self._clock.now_ms():
            del self._expected_until_ms[follower]
            return requested_ms
        return min(requested_ms, _SHORT_WAIT_MS)

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
