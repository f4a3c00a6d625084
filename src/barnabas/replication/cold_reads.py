"""Work that waits for the disk or a processor, a few pieces at a time: reads of cold data, batches to be opened.

All reads of a broker share one queue, so that readers of old data take neither all threads of the host (syncs and
compaction need some) nor memory without bound: besides the few that run, a read in the queue is only a note of what is
wanted. First come, first served; a fetch that asks for many partitions has one in the queue at a time (`ColdFetch`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from barnabas.common.continuations import detached, later
from barnabas.common.host import Blocking

#: Of the host's threads, which are five.
_RUNNING_MAX = 3


class Loadable(Protocol):
    """A `ColdRead`, a `TimeSearch`, a `DeferredValidation`."""

    def load(self) -> None:
        """Read, waiting for the disk, in a thread. What goes wrong with the disk is kept for who takes it over."""


class Waiting:
    """One read in the queue or running."""

    __slots__ = ("done", "wanted")

    def __init__(self, wanted: Loadable, done: Callable[[BaseException | None], None]) -> None:
        self.wanted = wanted
        self.done: Callable[[BaseException | None], None] | None = later(done)

    def cancel(self) -> None:
        """Nobody waits for it any more."""
        self.done = None


class ColdReads:
    """The queue of one broker."""

    __slots__ = ("_blocking", "_queue", "_running_max", "count", "running")

    def __init__(self, blocking: Blocking, running_max: int = _RUNNING_MAX) -> None:
        self._blocking = blocking
        self._running_max = running_max
        self._queue: deque[Waiting] = deque()
        self.running = 0
        #: How many have been run.
        self.count = 0

    def __len__(self) -> int:
        """Those that are not yet done."""
        return self.running + len(self._queue)

    def load(self, wanted: Loadable, done: Callable[[BaseException | None], None]) -> Waiting:
        """Load it beside the loop, then call `done` in an event of its own, with what nobody expected to go wrong."""
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
