"""Long work in small steps: what would hold the loop for long is done a little at a time, with others served between.

The work is a generator. Each `yield` is a place where others may be served; what it yields is how much was done since
the last one, in units of about a quarter of a millisecond. All long work of a broker shares one queue, and one slice of
one piece of work is done in a turn of the loop: however many clients ask for much, others wait for one slice.

Where others may change the state between two steps, the work must look again; images of the metadata are immutable.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from typing import Any, Final

from barnabas.common.continuations import Owner, run
from barnabas.common.host import Clock, Timers

#: Units of work in a slice, and its time: whichever is used up first.
SLICE_UNITS: Final = 16
_SLICE_MS: Final = 4

Work = Generator[int, None, Any]


def _always() -> bool:
    return True


class _Job:
    __slots__ = ("done", "is_wanted", "owner", "work")

    def __init__(
        self, work: Work, done: Callable[[Any], object], owner: Owner | None, is_wanted: Callable[[], bool]
    ) -> None:
        self.work = work
        self.done = done
        self.owner = owner
        self.is_wanted = is_wanted


class Steps:
    """The queue of one broker."""

    def __init__(self, timers: Timers, clock: Clock) -> None:
        self._timers = timers
        self._clock = clock
        self._queue: deque[_Job] = deque()
        self._is_scheduled = False

    def __len__(self) -> int:
        return len(self._queue)

    def start(
        self,
        work: Work,
        done: Callable[[Any], object],
        owner: Owner | None = None,
        is_wanted: Callable[[], bool] = _always,
    ) -> None:
        """Do this work, in turns of the loop after the one at hand, and call `done` with what it returns. It is given
        up where `is_wanted` says so, without `done`; where it fails, `owner` hears of it."""
        self._queue.append(_Job(work, done, owner, is_wanted))
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._timers.call_soon(self._go_on)

    def _go_on(self) -> None:
        """One slice of the work that has waited longest."""
        self._is_scheduled = False
        job = self._queue.popleft()
        try:
            run(job.owner, self._slice, job)
        finally:
            if self._queue:
                self._schedule()

    def _slice(self, job: _Job) -> None:
        work = job.work
        if not job.is_wanted():
            work.close()
            return
        left = SLICE_UNITS
        until_ms = self._clock.now_ms() + _SLICE_MS
        try:
            while left > 0:
                left -= next(work)
                if self._clock.now_ms() >= until_ms:
                    break
        except StopIteration as end:
            job.done(end.value)
        else:
            self._queue.append(job)
