"""Operations that wait for an append, a high watermark or a deadline, and complete exactly once.

All deadlines of a broker hang on one host timer: a heap of (deadline, sequence, operation), armed for its first entry.
Operations that complete early leave the heap lazily, so completing costs nothing there: the heap is swept when it has
grown to twice what was left of it by the last sweep. What wakes an operation before its deadline is its own affair: it
registers itself with the partitions that it watches (`Partition.watch`).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Protocol

from barnabas.common import continuations
from barnabas.common.host import Clock, Timer, Timers

_SWEEP_AT_MIN = 256


class DelayedOperation:
    """Base of what waits. Subclasses implement `on_complete`, which runs once, by `complete` or by the deadline."""

    __slots__ = ("_owner", "completed")

    def __init__(self) -> None:
        self.completed = False
        self._owner = continuations.owner()

    def complete(self, expired: bool = False) -> bool:
        """Finish now; False when it was finished before."""
        if self.completed:
            return False
        self.completed = True
        owner, self._owner = self._owner, None
        continuations.run(owner, self.on_complete, expired)
        return True

    def cancel(self) -> None:
        """Nobody waits for it any more: it ends without completing."""
        if not self.completed:
            self.completed = True
            self._owner = None
            self.on_cancel()

    def on_complete(self, expired: bool) -> None:
        raise NotImplementedError

    def on_cancel(self) -> None:
        """Leave whatever would wake it."""


class StartWatcher(Protocol):
    """What a partition wakes when something changed, but for its records."""

    def on_progress(self, size_bytes: int) -> None:
        """`size_bytes` more became readable; 0 when something else changed (leadership, log start, deletion)."""


class Watcher(StartWatcher, Protocol):
    """What a partition wakes when more can be read from it."""

    def on_note(self) -> None:
        """What it would be told has changed (HW for a follower, ISR, log start), but nobody needs to hurry."""


class Purgatory:
    """The deadlines of all delayed operations of one broker."""

    __slots__ = ("_armed_ms", "_clock", "_heap", "_sequence", "_sweep_at", "_timer", "_timers")

    def __init__(self, clock: Clock, timers: Timers) -> None:
        self._clock = clock
        self._timers = timers
        self._heap: list[tuple[int, int, DelayedOperation]] = []
        self._sequence = 0
        self._sweep_at = _SWEEP_AT_MIN
        self._timer: Timer | None = None
        self._armed_ms = 0

    def __len__(self) -> int:
        return sum(1 for _, _, operation in self._heap if not operation.completed)

    def waiting(self) -> Iterator[DelayedOperation]:
        """For metrics."""
        return (operation for _, _, operation in self._heap if not operation.completed)

    def expire_at(self, deadline_ms: int, operation: DelayedOperation) -> None:
        """Complete `operation` as expired at that monotonic time, unless something else did."""
        self._sequence += 1
        if len(self._heap) >= self._sweep_at:
            self._sweep()
        heapq.heappush(self._heap, (deadline_ms, self._sequence, operation))
        if self._timer is None or deadline_ms < self._armed_ms:
            self._arm(deadline_ms)

    def close(self) -> None:
        """Complete all that still waits, as expired."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        heap, self._heap = self._heap, []
        for _, _, operation in sorted(heap, key=lambda entry: entry[:2]):
            operation.complete(expired=True)

    def _sweep(self) -> None:
        self._heap = [entry for entry in self._heap if not entry[2].completed]
        heapq.heapify(self._heap)
        self._sweep_at = max(_SWEEP_AT_MIN, 2 * len(self._heap))

    def _arm(self, deadline_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._armed_ms = deadline_ms
        delay_ms = max(0, deadline_ms - self._clock.now_ms())
        self._timer = continuations.detached(self._timers.call_later, delay_ms, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now_ms = self._clock.now_ms()
        # An operation's completion may register a new one, which may sweep the heap and arm the timer.
        while (heap := self._heap) and (heap[0][2].completed or heap[0][0] <= now_ms):
            _, _, operation = heapq.heappop(heap)
            operation.complete(expired=True)
        if heap and (self._timer is None or heap[0][0] < self._armed_ms):
            self._arm(heap[0][0])
