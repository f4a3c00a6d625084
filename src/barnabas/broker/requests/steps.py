"""Long work in small steps, so that it does not block the loop: other clients are served in between.

The work is a generator. Each `yield` allows others to be served; the yielded value is the work done since the previous
one, in units of about a quarter of a millisecond. All long work of a broker shares one queue, and a turn of the loop
runs one slice of one job: however many clients send long requests, others wait for one slice. The objects decoded from
a large frame take many times its memory, so one such job runs at a time; the other frames wait.

If other events can change the state between two steps, the work must check it again; images of the metadata are
immutable.
"""

from __future__ import annotations

import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterator
from types import GeneratorType
from typing import Any, Final, Protocol

from barnabas.common import effort
from barnabas.common.continuations import Named, Owner, run
from barnabas.common.effort import Work as Effort
from barnabas.common.host import Clock, Timers
from barnabas.protocol import codec
from barnabas.protocol.message import Struct

#: The work of a slice in units, and its time: the slice ends when either is used up.
SLICE_UNITS: Final = 16
_SLICE_MS: Final = 4
#: The work in units that `begin` does in one turn; a piece of work counts as one more. One event can complete hundreds
#: of waiting fetches, and each reads its partitions again.
_BEGUN_UNITS: Final = 3 * SLICE_UNITS

#: Frames above this size are decoded one at a time.
LARGE_FRAME_BYTES: Final = 256 * 1024

Work = Generator[int, None, Any]


def _always() -> bool:
    return True


class Meter(Protocol):
    """Measures the CPU time of the request that owns a job (`throttling.request_throttle.RequestThrottle`)."""

    def enter(self) -> bool:
        """Begins to measure. Returns False if nothing is to be measured, or if it is measured already."""

    def leave(self) -> None:
        """Ends the measurement."""


def _meter_of(owner: Owner | None) -> Meter | None:
    """Returns the meter of a request of a client with quotas."""
    found: Meter | None = getattr(owner, "throttle", None)
    return found


class _Job:
    __slots__ = ("done", "held_bytes", "is_wanted", "owner", "work")

    def __init__(
        self,
        work: Work,
        done: Callable[[Any], object],
        owner: Owner | None,
        is_wanted: Callable[[], bool],
        held_bytes: int,
    ) -> None:
        self.held_bytes = held_bytes
        self.work = work
        self.done = done
        self.owner = owner
        self.is_wanted = is_wanted


def _name_of(job: _Job) -> tuple[str, str]:
    kind, details = "a request", ""
    if isinstance(job.owner, Named):
        kind, details = job.owner.turn_name()
    return f"a slice of {kind}", f"{details} ({getattr(job.work, '__qualname__', 'work')})".lstrip()


class Steps:
    """The queue of long work of one broker."""

    def __init__(self, timers: Timers, clock: Clock) -> None:
        self._timers = timers
        self._clock = clock
        self._queue: deque[_Job] = deque()
        #: Jobs of large frames that wait for the one in the queue.
        self._large: deque[_Job] = deque()
        self._has_large = False
        self._is_scheduled = False
        self._units = 0
        #: The name of the latest slice, logged if it took long; no reference to the job, which can hold much memory.
        self._latest = ("a slice of long work", "")
        #: The units of `begin` since the last reset; once they are used up, a reset follows after the turn.
        self._begun_units = 0
        #: The total size of the frames that wait in the queue, in bytes.
        self.held_bytes = 0
        #: The number of slices so far: a job that finds it changed was interrupted by others.
        self.slices = 0

    def __len__(self) -> int:
        return len(self._queue) + len(self._large)

    def start(
        self,
        work: Work,
        done: Callable[[Any], object],
        owner: Owner | None = None,
        is_wanted: Callable[[], bool] = _always,
        held_bytes: int = 0,
    ) -> None:
        """Does the work in later turns of the loop, and calls `done` with its result. If `is_wanted` returns False, the
        work is abandoned without `done`; if it fails, `owner` handles the error. `held_bytes` is the size of the frame
        that it processes."""
        job = _Job(work, done, owner, is_wanted, held_bytes)
        self.held_bytes += held_bytes
        if held_bytes <= LARGE_FRAME_BYTES:
            self._queue.append(job)
        elif self._has_large:
            self._large.append(job)
        else:
            self._has_large = True
            self._queue.append(job)
        self._schedule()

    def begin(self, work: Work, done: Callable[[Any], object], owner: Owner | None = None) -> None:
        """Starts work like `start`, but does its first slice in this turn, unless the turn has begun much other work:
        `done` can be called before this returns.
        """
        if self._begun_units >= _BEGUN_UNITS:
            self.start(work, done, owner)
            return
        meter = _meter_of(owner)
        is_measured = meter is not None and meter.enter()
        try:
            found = self._begun(work)
            if found is None:
                self.start(work, done, owner)
            else:
                done(found[0])
        finally:
            if meter is not None and is_measured:
                meter.leave()

    def _begun(self, work: Work) -> tuple[Any] | None:
        units = self._units
        found = self.first_slice(work)
        self._begun_units += 1 + self._units - units
        if self._begun_units >= _BEGUN_UNITS:
            self._timers.call_soon(self._allow_more)
        return found

    def _allow_more(self) -> None:
        self._begun_units = 0

    def first_slice(self, work: Work, now_ms: int | None = None) -> tuple[Any] | None:
        """Does one slice of the work. Returns its result as a tuple, or None if there is more to `start`. A caller that
        has just read the clock passes `now_ms`.
        """
        left = SLICE_UNITS
        until_ms = (self._clock.now_ms() if now_ms is None else now_ms) + _SLICE_MS
        try:
            while left > 0:
                units = next(work)
                effort.add(Effort.UNIT, units)
                left -= units
                self._units += units
                if self._clock.now_ms() >= until_ms:
                    break
        except StopIteration as end:
            return (end.value,)
        return None

    def turn_name(self) -> tuple[str, str]:
        """Returns the name for `server.turns`: the work of the latest slice, and the request that it serves."""
        return self._latest

    def _end(self, job: _Job) -> None:
        self.held_bytes -= job.held_bytes
        if job.held_bytes > LARGE_FRAME_BYTES:
            self._has_large = bool(self._large)
            if self._large:
                self._queue.append(self._large.popleft())

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._timers.call_soon(self._run_next)

    def _run_next(self) -> None:
        """Runs one slice of the job that has waited longest."""
        self._is_scheduled = False
        job = self._queue.popleft()
        self._latest = _name_of(job)
        has_more = False
        try:
            has_more = run(job.owner, self._slice, job) is True
        finally:
            if has_more:
                self._queue.append(job)
            else:
                self._end(job)
            if self._queue:
                self._schedule()

    def _slice(self, job: _Job) -> bool:
        """Runs one slice of a job. Returns whether the job has more work."""
        if not job.is_wanted():
            self.free(*_values_held_by(job.work))
            job.work.close()
            return False
        self.slices += 1
        meter = _meter_of(job.owner)
        if meter is None or not meter.enter():
            return self._has_more(job)
        try:
            return self._has_more(job)
        finally:
            meter.leave()

    def _has_more(self, job: _Job) -> bool:
        try:
            found = self.first_slice(job.work)
        except Exception as error:
            self.free(*_values_of_failed(error))
            raise
        if found is None:
            return True
        job.done(found[0])
        return False

    def free(self, *values: object) -> None:
        """Frees structs and lists in steps after the caller has dropped them (`codec.freed_in_steps`). Other values are
        ignored.
        """
        large = [value for value in values if isinstance(value, Struct) or (isinstance(value, list) and value)]
        if large:
            self.start(codec.freed_in_steps(*large), _ignore)


def _values_held_by(work: Work) -> Iterator[object]:
    """Yields the local variables of suspended work, and of the work that it waits for."""
    waiting: object = work
    while isinstance(waiting, GeneratorType) and waiting.gi_frame is not None:
        yield from waiting.gi_frame.f_locals.values()
        waiting = waiting.gi_yieldfrom


def _values_of_failed(error: Exception) -> Iterator[object]:
    """Yields the local variables of the functions that an error has left."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        yield from frame.f_locals.values()


def _ignore(_: object) -> None:
    pass
