"""The watch of a broker over itself: one timer a second, from which self-reports follow.

    the timer is late            stalled, with the CPU time that the process used meanwhile
    wall against monotonic time  clock-jumped
    CPU time of ten ticks        overloaded
    `Sources`                    link-lost, disk-*, throttled: states that last

At most one report a second is written; others wait, and a newer report of a state replaces one that waits. The timer
runs while the cluster has several brokers: a cluster of one has no journal. The silence of a peer counts from the end
of the last stall, because a process that was paused received nothing from anybody.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from barnabas.common.host import Host, Timer
from barnabas.journal.self_reports import BUSY_SHARE_MIN, PAUSED_SHARE_MAX, SelfReport, SelfReportKind

_TICK_MS: Final = 1_000
#: How late a tick must be to count as a stall.
LATE_MS: Final = 250
_JUMP_MS: Final = 500
_OVERLOAD_TICKS: Final = 10
_OVERLOAD_SHARE: Final = 0.9
#: How long a peer must be silent, beyond the longest time that an answer takes by itself.
SILENCE_MS: Final = 2_000
_THROTTLED_MS: Final = 1_000
_WAITING_MAX: Final = 64


class _State(NamedTuple):
    """A state that is there now. `since_ms`, by the monotonic clock, is known for some."""

    facts: Mapping[str, Any]
    since_ms: int | None = None


#: Subject of a state -> the state.
_States = dict[str, _State]


class Silence(NamedTuple):
    """A peer that has not answered since a time, by the monotonic clock."""

    peer: int
    since_ms: int


class Sources(NamedTuple):
    """The state of the broker's parts, read in each tick."""

    silences: Callable[[int], Iterable[Silence]]
    #: The log directories that cannot be written, with the kind of their state.
    disks: Callable[[], Iterable[tuple[SelfReportKind, str]]]
    #: The sides, leader or follower, whose replication quota is exhausted.
    throttled_sides: Callable[[int], Iterable[str]]


class _Lasting:
    """The states of one kind: each is reported when it has lasted for `least_ms`, and again with its end."""

    def __init__(self, kind: SelfReportKind, least_ms: int) -> None:
        self._kind = kind
        self._least_ms = least_ms
        #: Subject -> begin by the monotonic clock, begin by the wall clock, facts.
        self._begun: dict[str, tuple[int, int, Mapping[str, Any]]] = {}
        self._reported: set[str] = set()

    def seen(self, states: _States, now_ms: int, wall_ms: int) -> Iterator[SelfReport]:
        for subject, (facts, since_ms) in states.items():
            begin_ms = now_ms if since_ms is None else since_ms
            known = self._begun.setdefault(subject, (begin_ms, wall_ms - (now_ms - begin_ms), facts))
            began_ms, began_wall_ms, _ = known
            if subject not in self._reported and now_ms - began_ms >= self._least_ms:
                self._reported.add(subject)
                yield SelfReport(self._kind, began_wall_ms, None, now_ms - began_ms, subject, facts)
        for subject in [subject for subject in self._begun if subject not in states]:
            began_ms, began_wall_ms, facts = self._begun.pop(subject)
            if subject in self._reported:
                self._reported.discard(subject)
                yield SelfReport(self._kind, began_wall_ms, wall_ms, now_ms - began_ms, subject, facts)


class SelfWatch:
    """The watch. `report` gets one self-report at a time."""

    def __init__(self, host: Host, sources: Sources, report: Callable[[SelfReport], None]) -> None:
        self._host = host
        self._sources = sources
        self._report = report
        self._timer: Timer | None = None
        self._due_ms = self._ticked_ms = 0
        self._cpu_ns = 0
        self._wall_offset_ms = 0
        self._stall_ended_ms = 0
        #: CPU time and monotonic time of the last ticks.
        self._loads: deque[tuple[int, int]] = deque(maxlen=_OVERLOAD_TICKS + 1)
        self._lasting = {
            kind: _Lasting(kind, least_ms)
            for kind, least_ms in (
                (SelfReportKind.OVERLOADED, 0),
                (SelfReportKind.THROTTLED, _THROTTLED_MS),
                (SelfReportKind.LINK_LOST, 0),
                (SelfReportKind.DISK_SLOW, 0),
                (SelfReportKind.DISK_FULL, 0),
                (SelfReportKind.DISK_FAILED, 0),
            )
        }
        self._waiting: dict[tuple[SelfReportKind, str, int], SelfReport] = {}

    @property
    def is_running(self) -> bool:
        return self._timer is not None

    def start(self) -> None:
        """Begins to watch this process; does nothing if it is already watched."""
        if self._timer is None:
            clock = self._host.clock
            self._ticked_ms = now_ms = clock.now_ms()
            self._cpu_ns = self._host.process_cpu_ns()
            self._wall_offset_ms = clock.wall_ms() - now_ms
            self._loads.clear()
            self._arm(now_ms)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def add(self, report: SelfReport) -> None:
        """Queues a self-report. Reports are written in the order in which they were added."""
        key = (report.kind, report.subject, report.begin_ms)
        if key in self._waiting or len(self._waiting) < _WAITING_MAX:
            self._waiting[key] = report

    def _arm(self, now_ms: int) -> None:
        self._due_ms = now_ms + _TICK_MS
        self._timer = self._host.timers.call_later(_TICK_MS, self._tick)

    def _tick(self) -> None:
        clock = self._host.clock
        now_ms, wall_ms, cpu_ns = clock.now_ms(), clock.wall_ms(), self._host.process_cpu_ns()
        self._watch_clock(now_ms, wall_ms)
        self._watch_loop(now_ms, wall_ms, cpu_ns)
        for report in self._states(now_ms, wall_ms):
            self.add(report)
        if self._waiting:
            self._report(self._waiting.pop(next(iter(self._waiting))))
        self._ticked_ms, self._cpu_ns = now_ms, cpu_ns
        self._arm(now_ms)

    def _watch_clock(self, now_ms: int, wall_ms: int) -> None:
        jump_ms = wall_ms - now_ms - self._wall_offset_ms
        self._wall_offset_ms += jump_ms
        if abs(jump_ms) >= _JUMP_MS:
            self.add(SelfReport(SelfReportKind.CLOCK_JUMPED, wall_ms, wall_ms, 0, facts={"jump_ms": jump_ms}))

    def _watch_loop(self, now_ms: int, wall_ms: int, cpu_ns: int) -> None:
        late_ms = now_ms - self._due_ms
        if late_ms <= LATE_MS:
            return
        self._stall_ended_ms = now_ms
        # The time before the tick was due is counted neither as a part of the stall nor with its CPU.
        cpu_ms = (cpu_ns - self._cpu_ns) // 1_000_000
        share = cpu_ms / late_ms
        how = "paused" if share < PAUSED_SHARE_MAX else "busy" if share >= BUSY_SHARE_MIN else "starved"
        facts = {"how": how, "cpu_ms": cpu_ms, "longest_ms": now_ms - self._ticked_ms}
        self.add(SelfReport(SelfReportKind.STALLED, wall_ms - late_ms, wall_ms, late_ms, facts=facts))

    def _states(self, now_ms: int, wall_ms: int) -> Iterator[SelfReport]:
        sources = self._sources
        found: dict[SelfReportKind, _States] = {kind: {} for kind in self._lasting}
        share = self._load(now_ms)
        if share >= _OVERLOAD_SHARE:
            since_ms = self._loads[0][1]
            found[SelfReportKind.OVERLOADED][""] = _State({"share": round(share, 2)}, since_ms)
        for side in sources.throttled_sides(now_ms):
            found[SelfReportKind.THROTTLED][side] = _State({"side": side})
        for kind, directory in sources.disks():
            found[kind][directory] = _State({"directory": directory})
        for silence in sources.silences(now_ms):
            since_ms = max(silence.since_ms, self._stall_ended_ms)
            if now_ms - since_ms >= SILENCE_MS:
                found[SelfReportKind.LINK_LOST][str(silence.peer)] = _State({"peer": silence.peer}, since_ms)
        for kind, lasting in self._lasting.items():
            yield from lasting.seen(found[kind], now_ms, wall_ms)

    def _load(self, now_ms: int) -> float:
        """Returns the share of a CPU in the last ten ticks; 0 while there are fewer."""
        self._loads.append((self._host.process_cpu_ns(), now_ms))
        if len(self._loads) <= _OVERLOAD_TICKS:
            return 0.0
        (first_ns, first_ms), (last_ns, last_ms) = self._loads[0], self._loads[-1]
        return (last_ns - first_ns) / 1_000_000 / max(1, last_ms - first_ms)
