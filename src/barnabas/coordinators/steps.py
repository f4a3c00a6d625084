"""Work for one request or one group that is too large for one turn of the loop.

A request can name hundreds of thousands of rows. They are processed by a generator that yields every `ROWS` rows: the
part before the first `yield` runs immediately, the rest in later turns of the loop, so that other requests are served
in between. Everything may have changed between two turns: a generator checks again what it relies on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Final, TypeVar, cast

from barnabas.common import effort
from barnabas.common.continuations import detached, later
from barnabas.common.effort import Work
from barnabas.common.host import Clock, Timers

T = TypeVar("T")
#: The number of rows that take some milliseconds.
ROWS: Final = 1_000
#: The fixed cost per name, and the bound for a part, in characters of a name.
_NAME_WEIGHT: Final = 60
_PART_WEIGHT: Final = 40_000


#: The work of a slice in the units of `broker.requests.steps`, and its time: the slice ends when either is used up.
_SLICE_UNITS: Final = 16
_SLICE_MS: Final = 4


class Turns:
    """A queue of long work, shared by all groups of a coordinator: a turn of the loop does one piece of it, so that
    other clients wait for one piece, however many groups have long work.
    """

    __slots__ = ("_is_scheduled", "_queue", "_timers")

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._queue: deque[Callable[[], None]] = deque()
        self._is_scheduled = False

    def call_soon(self, piece: Callable[[], None]) -> None:
        """Calls back in a later turn of the loop, in a turn of its own."""
        self._queue.append(later(piece))
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            detached(self._timers.call_soon, self._run_next)

    def _run_next(self) -> None:
        self._is_scheduled = False
        piece = self._queue.popleft()
        try:
            piece()
        finally:
            if self._queue:
                self._schedule()


class Slice:
    """The part of works in units that one turn of the loop does. Its time begins with the first unit."""

    __slots__ = ("_clock", "_units", "_until_ms")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._units = _SLICE_UNITS
        self._until_ms: int | None = None

    def run(self, work: Generator[int, None, T]) -> tuple[T] | None:
        """Continues the work. Returns its result as a tuple, or None if the slice is used up and there is more."""
        try:
            while True:
                units = next(work)
                effort.add(Work.UNIT, units)
                self._units -= units
                if self._until_ms is None:
                    self._until_ms = self._clock.now_ms() + _SLICE_MS
                elif self._units <= 0 or self._clock.now_ms() >= self._until_ms:
                    return None
        except StopIteration as end:
            return (end.value,)


def pauses(work: Generator[int, None, T]) -> Generator[None, None, T]:
    """Does work that yields units as a part of work for `in_steps`."""
    units = 0
    while True:
        try:
            units += next(work)
        except StopIteration as end:
            return cast("T", end.value)
        if units >= _SLICE_UNITS:
            yield
            units = 0


def in_steps(timers: Timers, work: Iterator[None]) -> None:
    """Runs `work` up to its first `yield` now, and the rest in later turns of the loop."""
    for _ in work:
        timers.call_soon(lambda: in_steps(timers, work))
        return


def parts(rows: Sequence[T], size: int = ROWS) -> Iterator[Sequence[T]]:
    """Yields `rows` in parts of `size`; `rows` itself if there are no more than that, even if there are none."""
    if len(rows) <= size:
        yield rows
        return
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        effort.add(Work.ROW, len(part))
        yield part


def by_weight(names: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yields names of groups in parts that each take some milliseconds: the hash of a name costs time per character."""
    part: list[str] = []
    weight = 0
    for name in names:
        part.append(name)
        weight += _NAME_WEIGHT + len(name)
        if weight >= _PART_WEIGHT:
            yield part
            part, weight = [], 0
    if part:
        yield part
