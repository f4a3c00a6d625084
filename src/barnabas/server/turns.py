"""The duration of each turn of the event loop, in which one request, timer or result delays all others.

Every entry into the broker's core is measured in wall time, which costs two reads of the clock. The CPU time of the
thread costs ten times as much to read, so it is read at most `_CPU_SAMPLES_PER_S` times a second and after long turns:
the CPU time of a long turn is known to within 5 ms, and never too low.

A turn above `WARN_NS` is logged with what it served, once in ten seconds for each kind. Turns before
`begin_serving` (recovery, the first image of the metadata) and after `end_serving` (checkpoints at shutdown) delay no
client and are not counted.
"""

from __future__ import annotations

import logging
import os
from bisect import bisect_left
from collections.abc import Callable, Iterator
from time import perf_counter_ns, thread_time_ns
from typing import Final

from barnabas.common.continuations import Named, plain
from barnabas.common.metrics import GAUGE, HISTOGRAM, Family, Sample, single

log = logging.getLogger("barnabas.turns")

_MS: Final = 1_000_000
#: Shorter turns are only counted and summed up.
SHORT_NS: Final = _MS
_CPU_SAMPLES_PER_S: Final = 200
_CPU_SAMPLE_NS: Final = 1_000 * _MS // _CPU_SAMPLES_PER_S
WARN_NS: Final = 100 * _MS
_WARN_PAUSE_NS: Final = 10_000 * _MS
#: Upper bounds of the buckets above the first one, in milliseconds.
_BOUNDS_MS: Final = (2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000)
_BOUNDS_NS: Final = [each * _MS for each in _BOUNDS_MS]
#: Turns with more CPU time than this are passed to the observer.
NOTED_CPU_NS: Final = 20 * _MS
#: Names a file that gets a line for each turn with more CPU time than that. For tests.
FILE_VARIABLE: Final = "BARNABAS_LONG_TURNS"

Callback = Callable[[], object]
#: Wall time, CPU time, and a description of the work served.
OnLong = Callable[[int, int, str], None]


class _Kind:
    """The logged turns of one kind."""

    __slots__ = ("longest_ns", "reported_ns", "suppressed")

    def __init__(self) -> None:
        self.reported_ns = -_WARN_PAUSE_NS
        self.suppressed = 0
        self.longest_ns = 0


class Turns:
    """Measures the turns of one event loop. `begin` and `end` surround every entry into the core; socket reads, the
    most frequent ones, contain the same code (`server/listener.py`).
    """

    __slots__ = (
        "_cpu_ns",
        "_kinds",
        "_on_long",
        "_serving",
        "buckets",
        "cpu_sample_ns",
        "longest_cpu_ns",
        "longest_ns",
        "short",
        "total_ns",
    )

    def __init__(self, on_long: OnLong | None = None) -> None:
        """Creates the meter. `on_long` is called for every turn with more CPU time than `NOTED_CPU_NS`."""
        self._on_long = on_long or _line_in(os.environ.get(FILE_VARIABLE))
        self._kinds: dict[str, _Kind] = {}
        self._serving = False
        self._reset()
        self.sample_cpu(perf_counter_ns())

    def _reset(self) -> None:
        self.short = 0
        self.total_ns = 0
        self.longest_ns = 0
        self.longest_cpu_ns = 0
        #: Turns by upper bound, for those that are not short; the last one holds the rest.
        self.buckets = [0] * (len(_BOUNDS_NS) + 1)

    def begin_serving(self) -> None:
        """Starts to count turns: startup is complete."""
        self._serving = True
        self._reset()
        self.sample_cpu(perf_counter_ns())

    def end_serving(self) -> None:
        """Stops counting turns: shutdown begins."""
        self._serving = False

    # -- around every turn

    def begin(self) -> int:
        now_ns = perf_counter_ns()
        if now_ns > self.cpu_sample_ns:
            self.sample_cpu(now_ns)
        return now_ns

    def end(self, begin_ns: int, what: object) -> None:
        """Ends a turn. `what` is the work that was served: a callback, or a `Named`, whose name is requested after long
        turns only.
        """
        now_ns = perf_counter_ns()
        elapsed_ns = now_ns - begin_ns
        self.total_ns += elapsed_ns
        if elapsed_ns < SHORT_NS:
            self.short += 1
        else:
            self.note(now_ns, elapsed_ns, what)

    def run(self, callback: Callback) -> None:
        """Runs `callback` as one turn."""
        begin_ns = self.begin()
        try:
            callback()
        finally:
            self.end(begin_ns, callback)

    def sample_cpu(self, now_ns: int) -> None:
        self.cpu_sample_ns = now_ns + _CPU_SAMPLE_NS
        self._cpu_ns = thread_time_ns()

    def note(self, now_ns: int, elapsed_ns: int, what: object) -> None:
        if not self._serving:
            return
        self.buckets[bisect_left(_BOUNDS_NS, elapsed_ns)] += 1
        self.longest_ns = max(self.longest_ns, elapsed_ns)
        if elapsed_ns < 10 * _MS:
            return
        cpu_ns = min(thread_time_ns() - self._cpu_ns, elapsed_ns)
        self.sample_cpu(now_ns)
        self.longest_cpu_ns = max(self.longest_cpu_ns, cpu_ns)
        if elapsed_ns > WARN_NS:
            self._warn(now_ns, elapsed_ns, cpu_ns, *name_of(what))
        if cpu_ns > NOTED_CPU_NS and self._on_long is not None:
            self._on_long(elapsed_ns, cpu_ns, " ".join(name_of(what)))

    def leave_out(self, cpu_ns: int) -> None:
        """Excludes this duration from the current turn."""
        self._cpu_ns += cpu_ns

    def _warn(self, now_ns: int, elapsed_ns: int, cpu_ns: int, kind: str, which: str) -> None:
        reported = self._kinds.setdefault(kind, _Kind())
        if now_ns - reported.reported_ns < _WARN_PAUSE_NS:
            reported.suppressed += 1
            reported.longest_ns = max(reported.longest_ns, elapsed_ns)
            return
        more = ""
        if reported.suppressed:
            longest_ms = reported.longest_ns // _MS
            more = f"; {reported.suppressed} more such turns since the last such line, of up to {longest_ms} ms"
        log.warning(
            "one turn of the event loop took %d ms (%d ms of CPU): %s%s%s",
            elapsed_ns // _MS,
            cpu_ns // _MS,
            kind,
            which and f" {which}",
            more,
        )
        reported.reported_ns, reported.suppressed, reported.longest_ns = now_ns, 0, 0

    # -- /metrics

    def families(self) -> Iterator[Family]:
        yield Family(
            "barnabas_loop_turn_seconds",
            HISTOGRAM,
            "Duration of one turn of the event loop while others waited; startup and shutdown are excluded",
            self._samples(),
        )
        yield single(
            "barnabas_loop_turn_seconds_max",
            GAUGE,
            "Duration of the longest turn since startup",
            self.longest_ns / 1_000_000_000,
        )
        yield single(
            "barnabas_loop_turn_cpu_seconds_max",
            GAUGE,
            "Largest CPU time of a turn since startup",
            self.longest_cpu_ns / 1_000_000_000,
        )

    def _samples(self) -> Iterator[Sample]:
        count = self.short
        yield Sample((("le", "0.001"),), count, "_bucket")
        for bound_ms, more in zip(_BOUNDS_MS, self.buckets, strict=False):
            count += more
            yield Sample((("le", repr(bound_ms / 1000)),), count, "_bucket")
        count += self.buckets[-1]
        yield Sample((("le", "+Inf"),), count, "_bucket")
        yield Sample((), self.total_ns / 1_000_000_000, "_sum")
        yield Sample((), count, "_count")


def _line_in(path: str | None) -> OnLong | None:
    if not path:
        return None

    def write(elapsed_ns: int, cpu_ns: int, what: str) -> None:
        with open(path, "a", encoding="utf-8") as stream:
            stream.write(f"{os.getpid()} {elapsed_ns // _MS} {cpu_ns // _MS} {what}\n")

    return write


def name_of(what: object) -> tuple[str, str]:
    """Returns a name for the work that a turn served (the function of a callback, or the kind of request), and its
    details: for a request that is served in parts, which request it is.
    """
    if isinstance(what, Named):
        return what.turn_name()
    what, owner = plain(what)
    function = getattr(what, "func", what)
    worker = getattr(function, "__self__", None)
    if isinstance(worker, Named):
        return worker.turn_name()
    module = str(getattr(function, "__module__", "")).removeprefix("barnabas.")
    details = " ".join(owner.turn_name()) if isinstance(owner, Named) else ""
    return f"{module}.{getattr(function, '__qualname__', repr(function))}", details and f"for {details}"
