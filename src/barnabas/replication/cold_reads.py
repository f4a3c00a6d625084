"""A queue for work that waits for the disk or a processor: reads of cold data, batches to be decompressed.

All reads of a broker share one queue, which runs a few at a time. So readers of old data take neither all of the host's
threads (syncs and compaction need some) nor unbounded memory: a queued read holds no data. The order is first come,
first served; a fetch of many partitions has one of them in the queue at a time (`ColdFetch`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from barnabas.common.continuations import detached, later
from barnabas.common.host import Blocking

#: The maximum number of reads at a time; the host has five threads.
_RUNNING_MAX = 3


class Loadable(Protocol):
    """Work for the queue: a `ColdRead`, a `TimeSearch`, a `DeferredValidation`."""

    def load(self) -> None:
        """Reads in a thread, waiting for the disk. A disk error is kept for the caller that takes the result."""


class Waiting:
    """An entry of the queue, waiting or running."""

    __slots__ = ("done", "wanted")

    def __init__(self, wanted: Loadable, done: Callable[[BaseException | None], None]) -> None:
        self.wanted = wanted
        self.done: Callable[[BaseException | None], None] | None = later(done)

    def cancel(self) -> None:
        """Drops the callback; the result is then discarded."""
        self.done = None


class ColdReads:
    """A broker's queue of reads and decompressions that run in threads."""

    __slots__ = ("_blocking", "_queue", "_running_max", "count", "running")

    def __init__(self, blocking: Blocking, running_max: int = _RUNNING_MAX) -> None:
        self._blocking = blocking
        self._running_max = running_max
        self._queue: deque[Waiting] = deque()
        self.running = 0
        #: The number of entries run since startup.
        self.count = 0

    def __len__(self) -> int:
        """Returns the number of entries that are not finished."""
        return self.running + len(self._queue)

    def load(self, wanted: Loadable, done: Callable[[BaseException | None], None]) -> Waiting:
        """Runs `wanted.load` in a thread, then calls `done` in a separate event, with the unexpected error if there was
        one.
        """
        waiting = Waiting(wanted, done)
        self._queue.append(waiting)
        self._run()
        return waiting

    def _run(self) -> None:
        queue = self._queue
        while queue and self.running < self._running_max:
            waiting = queue.popleft()
            if waiting.done is not None:
                self.running += 1
                self.count += 1
                self._start(waiting)

    def _start(self, waiting: Waiting) -> None:
        def loaded(_: None, error: BaseException | None) -> None:
            self.running -= 1
            done, waiting.done = waiting.done, None
            try:
                if done is not None:
                    done(error)
            finally:
                self._run()

        detached(self._blocking.run, waiting.wanted.load, loaded)
