"""Operations that wait for an append, a high watermark or a deadline, and complete exactly once.

All deadlines of a broker share one host timer: a heap of (deadline, sequence, operation), with the timer set for its
first entry. An operation that completes early stays in the heap, so that completion is cheap; the heap is swept when it
is twice as large as after the last sweep. An operation that can complete before its deadline registers itself with the
partitions that it watches (`Partition.watch`).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Protocol

from barnabas.common import continuations
from barnabas.common.host import Clock, Timer, Timers

_SWEEP_AT_MIN = 256
#: The number of operations that expire in one turn of the loop.
_EXPIRED_AT_ONCE = 64


class DelayedOperation:
    """The base of waiting operations. Subclasses implement `on_complete`, which runs once, by `complete` or a timer."""

    __slots__ = ("_owner", "completed")

    def __init__(self) -> None:
        self.completed = False
        self._owner = continuations.owner()

    def complete(self, expired: bool = False) -> bool:
        """Completes the operation; returns False if it was completed before."""
        if self.completed:
            return False
        self.completed = True
        owner, self._owner = self._owner, None
        continuations.run_within(owner, self.on_complete, expired)
        return True

    def cancel(self) -> None:
        """Ends the operation without completing it, because no caller waits for it any more."""
        if not self.completed:
            self.completed = True
            self._owner = None
            self.on_cancel()

    def on_complete(self, expired: bool) -> None:
        raise NotImplementedError

    def on_cancel(self) -> None:
        """Deregisters from everything that could complete the operation."""


class StartWatcher(Protocol):
    """The interface of an object that a partition notifies of changes other than records."""

    def on_progress(self, size_bytes: int) -> None:
        """Handles `size_bytes` more readable bytes; 0 if something else changed (leadership, log start, deletion)."""


class Watcher(StartWatcher, Protocol):
    """The interface of an object that a partition notifies when more can be read from it."""

    def on_note(self) -> None:
        """Handles a change for the next response (a follower's HW, the ISR, the log start); the watcher must not
        complete within this call.
        """


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
        """Returns the waiting operations, for metrics."""
        return (operation for _, _, operation in self._heap if not operation.completed)

    def expire_at(self, deadline_ms: int, operation: DelayedOperation) -> None:
        """Completes `operation` as expired at that monotonic time, unless it is completed before."""
        self._sequence += 1
        if len(self._heap) >= self._sweep_at:
            self._sweep()
        heapq.heappush(self._heap, (deadline_ms, self._sequence, operation))
        if self._timer is None or deadline_ms < self._armed_ms:
            self._arm(deadline_ms)

    def close(self) -> None:
        """Completes all waiting operations as expired."""
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
        left = _EXPIRED_AT_ONCE
        # The completion of an operation can add a new one, which can sweep the heap and set the timer.
        while (heap := self._heap) and (heap[0][2].completed or heap[0][0] <= now_ms) and left > 0:
            _, _, operation = heapq.heappop(heap)
            left -= operation.complete(expired=True)
        if heap and (self._timer is None or heap[0][0] < self._armed_ms):
            self._arm(heap[0][0])
