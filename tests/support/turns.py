"""The CPU time of each turn of the loop in worlds on virtual time: each call of a timer, and the test's own calls."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from tests.support.core_speed import usual_ms, without_collections

from barnabas.common.host import Timer
from barnabas.simulation.host import VirtualTime

T = TypeVar("T")


class MeasuredTimers:
    """Timers of a `MemoryHost` that record the longest turn."""

    def __init__(self, time_: VirtualTime) -> None:
        self._time = time_
        self.longest_ms = 0.0
        self.turns = 0

    def measure(self, work: Callable[[], T]) -> T:
        began = time.thread_time()
        try:
            return work()
        finally:
            taken_ms = 1_000 * (time.thread_time() - began)
            self.turns += 1
            if taken_ms > self.longest_ms:
                self.longest_ms = max(self.longest_ms, usual_ms(taken_ms))

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Timer:
        return self._time.call_later(delay_ms, lambda: self.measure(callback))

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._time.call_soon(lambda: self.measure(callback))


def longest_turn_ms(timers: MeasuredTimers, work: Callable[[], object], for_ms: int = 0) -> float:
    """Returns the longest turn of this work and of what follows from it within `for_ms`, without the garbage
    collector.
    """
    timers.longest_ms, timers.turns = 0.0, 0
    with without_collections():
        timers.measure(work)
        timers._time.run_for(for_ms)
    return timers.longest_ms
