"""The speed of the core that a test runs on, so that a limit of CPU time stands for the same work on every machine.

Virtual cores share caches and execution units with others: one turn takes 40 ms, and 60 ms a second later.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import thread_time_ns
from typing import Final

#: The CPU time of `_known_work` on the cores for which the limits were chosen. Measured: 2.6 to 2.9 ms in the fast
#: half of 1,500 tries, 4.6 to 5.1 in the slow quarter, on one machine within four seconds.
_KNOWN_WORK_MS: Final = 2.7
_TRIES: Final = 5
#: Shorter work is far within all limits (the least is 25 ms), so that nothing is measured for it.
_LONG_MS: Final = 15.0


def usual_ms(cpu_ms: float) -> float:
    """Returns the CPU time that work of this thread would have taken on a usual core; less than 15 ms is returned as it
    is. To be called right after the work.
    """
    return cpu_ms if cpu_ms < _LONG_MS else cpu_ms / slowness()


def measured_ms(work: Callable[[], object]) -> float:
    """Returns the CPU time of work on a usual core, without the garbage collector."""
    with without_collections():
        begin_ns = thread_time_ns()
        work()
        taken_ns = thread_time_ns() - begin_ns
    return usual_ms(taken_ns / 1_000_000)


def slowness() -> float:
    """Returns how many times as long as usual this core takes now, at least 1.0. A call takes about 15 ms."""
    return max(1.0, _known_work_ms() / _KNOWN_WORK_MS)


def _known_work() -> int:
    """Makes objects and finds them in a dictionary, as most turns do."""
    found = {}
    for number in range(10_000):
        found[number * 7919 % 65_536] = (number, str(number))
    return sum(len(text) for _, text in found.values())


def _known_work_ms() -> float:
    """Returns the CPU time of `_known_work`, the longest of some tries, because slow moments are shorter than all of
    them.
    """
    taken_ns = []
    with without_collections():
        for _ in range(_TRIES):
            begin_ns = thread_time_ns()
            _known_work()
            taken_ns.append(thread_time_ns() - begin_ns)
    return max(taken_ns) / 1_000_000


@contextmanager
def without_collections() -> Iterator[None]:
    """Switches the garbage collector off, because a collection visits the objects of all tests."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
