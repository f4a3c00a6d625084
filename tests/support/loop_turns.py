"""The CPU time of each turn of an event loop that runs in a thread of the test's process.

    with watched_turns(thread) as turns:
        ...
    turns.longest        (CPU in ms, what ran), the longest first

Garbage collections are left out: they visit all objects of all tests. The time of a long turn is what it
would be on a usual core (`core_speed`).
"""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import thread_time
from typing import Any, Final

from tests.support.core_speed import usual_ms

#: Shorter turns are not kept.
_NOTED_MS: Final = 5.0
_SHOWN: Final = 20


class WatchedTurns:
    def __init__(self, thread: threading.Thread) -> None:
        self._thread = thread
        self._noted: list[tuple[float, str]] = []
        self._collected_s = 0.0
        self._collection_s = 0.0
        self.count = 0

    @property
    def longest(self) -> list[tuple[float, str]]:
        return sorted(self._noted, reverse=True)[:_SHOWN]

    def run(self, handle: Any, run: Any) -> None:
        if threading.current_thread() is not self._thread:
            run(handle)
            return
        name = _name_of(handle)
        self._collected_s, began_s = 0.0, thread_time()
        run(handle)
        taken_ms = usual_ms(1000 * (thread_time() - began_s - self._collected_s))
        self.count += 1
        if taken_ms >= _NOTED_MS:
            self._noted.append((round(taken_ms, 1), name))

    def on_collection(self, phase: str, _info: dict[str, int]) -> None:
        if threading.current_thread() is not self._thread:
            return
        if phase == "start":
            self._collection_s = thread_time()
        else:
            self._collected_s += thread_time() - self._collection_s


@contextmanager
def watched_turns(thread: threading.Thread) -> Iterator[WatchedTurns]:
    """Measures the turns of the loop in a thread, and of no other loop."""
    found = WatchedTurns(thread)
    handles: Any = asyncio.events.Handle
    run = handles._run
    handles._run = lambda handle: found.run(handle, run)
    gc.callbacks.append(found.on_collection)
    try:
        yield found
    finally:
        handles._run = run
        gc.callbacks.remove(found.on_collection)


def _name_of(handle: Any) -> str:
    """Returns the coroutine of a task, or the function of another handle."""
    callback = handle._callback
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        coroutine = owner.get_coro()
        return str(getattr(coroutine, "__qualname__", coroutine))
    return str(getattr(callback, "__qualname__", callback))
