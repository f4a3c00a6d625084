"""The threads for slow work (`common.host.Blocking`): of disks, and of the KDC.

A sync takes a tenth of a millisecond on a fast disk; the futures of `concurrent.futures`, with their locks, would add
half of that. One queue and one call back into the loop are enough, because nobody waits for a result.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any, Final

from barnabas.common.continuations import later
from barnabas.server.turns import Turns

_THREADS_MAX: Final = 5

Done = Callable[[Any, BaseException | None], None]


class ThreadPool:
    """Threads that are started when work arrives; an idle broker has none. The loop's thread calls all methods."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, turns: Turns, name: str = "disk", threads_max: int = _THREADS_MAX
    ) -> None:
        self._loop = loop
        self._turns = turns
        self._name = name
        self._threads_max = threads_max
        self._queue: SimpleQueue[tuple[Callable[[], Any], Done] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        #: Work that is not reported to the loop yet.
        self._unfinished = 0

    def run(self, work: Callable[[], Any], done: Done) -> None:
        self._unfinished += 1
        if self._unfinished > len(self._threads) and len(self._threads) < self._threads_max:
            name = f"barnabas-{self._name}_{len(self._threads)}"
            thread = threading.Thread(target=self._serve, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()
        self._queue.put((work, later(done)))

    def _serve(self) -> None:
        while (job := self._queue.get()) is not None:
            work, done = job
            result, error = None, None
            try:
                result = work()
            except BaseException as raised:
                error = raised
            self._loop.call_soon_threadsafe(self._done, done, result, error)
            del job, work, done, result, error  # A waiting thread must not keep references to finished work.

    def _done(self, done: Done, result: Any, error: BaseException | None) -> None:
        self._unfinished -= 1
        begin_ns = self._turns.begin()
        try:
            done(result, error)
        finally:
            self._turns.end(begin_ns, done)

    def run_all(self, work: Sequence[Callable[[], Any]], threads: int) -> Iterator[Any]:
        if threads <= 1 or len(work) <= 1:
            yield from (each() for each in work)
            return
        with ThreadPoolExecutor(threads, thread_name_prefix="barnabas-start") as pool:
            yield from pool.map(lambda each: each(), work)

    def close(self) -> None:
        """Waits for the work in progress. Its results are delivered only if the loop continues."""
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()
