"""Callbacks that wait for a partition's HW, lowest offset first. Most are added in the order of their appends; the
callback of a repeated idempotent batch is added later, and waits for an offset that others wait for already. A
cancelled waiter drops its callback immediately; its entry stays until it is reached, or until half of all entries are
cancelled.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

from barnabas.common.continuations import later
from barnabas.common.errors import ErrorCode

Done = Callable[[ErrorCode], None]

_SWEEP_AT_MIN = 64


class CommitWaiter:
    """A waiting callback; `cancel` drops it."""

    __slots__ = ("_owner", "done")

    def __init__(self, owner: CommitWaiters, done: Done) -> None:
        self._owner = owner
        self.done: Done | None = later(done)

    def cancel(self) -> None:
        if self.done is not None:
            self.done = None
            self._owner.on_cancelled()


class CommitWaiters:
    """The waiting callbacks of one partition. The object is false if there are none."""

    __slots__ = ("_cancelled", "_heap", "_sequence")

    def __init__(self) -> None:
        #: Offset, sequence number of the `add`, waiter: tuples of integers are compared faster than objects.
        self._heap: list[tuple[int, int, CommitWaiter]] = []
        self._sequence = 0
        self._cancelled = 0

    def __bool__(self) -> bool:
        return bool(self._heap)

    def __len__(self) -> int:
        return len(self._heap) - self._cancelled

    def add(self, offset: int, done: Done) -> CommitWaiter:
        """Adds a callback that is called when the HW reaches `offset`."""
        self._sequence += 1
        waiter = CommitWaiter(self, done)
        heapq.heappush(self._heap, (offset, self._sequence, waiter))
        return waiter

    def take(self, high_watermark: int | None = None) -> list[Done]:
        """Removes and returns, in order, the callbacks whose offset is reached, or all of them."""
        heap, reached = self._heap, []
        while heap and (high_watermark is None or heap[0][0] <= high_watermark):
            waiter = heapq.heappop(heap)[2]
            if waiter.done is None:
                self._cancelled -= 1
            else:
                reached.append(waiter.done)
                waiter.done = None
        return reached

    def on_cancelled(self) -> None:
        self._cancelled += 1
        if self._cancelled * 2 >= max(len(self._heap), _SWEEP_AT_MIN):
            self._heap = [entry for entry in self._heap if entry[2].done is not None]
            heapq.heapify(self._heap)
            self._cancelled = 0
