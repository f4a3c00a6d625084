"""The watch of a broker over itself: one timer a second, from which self-reports follow.

    the timer is late            stalled, with the CPU time that the process used meanwhile
    wall against monotonic time  clock-jumped
    CPU time of ten ticks        overloaded
    waiting time of five ticks   starved: ready to run, and other processes used the CPU
    `Sources`                    link-lost, disk-*, throttled: states that last
    `Sources`, and `trends`      link-slow, link-lossy, disk-slow, burst: what is unusual

At most one report a second is written; others wait, and a newer report of a state replaces one that waits. The timer
runs while the cluster has several brokers: a cluster of one has no journal. The silence of a peer counts from the end
of the last stall, because a process that was paused received nothing from anybody.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from barnabas.common.host import Host, LinkCondition, Timer
from barnabas.journal.self_reports import BUSY_SHARE_MIN, PAUSED_SHARE_MAX, SelfReport, SelfReportKind
from barnabas.journal.trends import Bursts, LossyPeers, SlowDisks, SlowPeers

_TICK_MS: Final = 1_000
#: How late a tick must be to count as a stall.
LATE_MS: Final = 250
_JUMP_MS: Final = 500
_OVERLOAD_TICKS: Final = 10
_OVERLOAD_SHARE: Final = 0.9
_STARVED_TICKS: Final = 5
_STARVED_SHARE: Final = 0.5
#: How long a peer must be silent, beyond the longest time that an answer takes by itself.
SILENCE_MS: Final = 2_000
_THROTTLED_MS: Final = 1_000
_WAITING_MAX: Final = 64


class _State(NamedTuple):
    """A state that exists now. `since_ms`, by the monotonic clock, is known for some states."""

    facts: Mapping[str, Any]
    since_ms: int | None = None


#: Subject of a state -> the state.
_States = dict[str, _State]


class Silence(NamedTuple):
    """A peer that has not answered since a time, by the monotonic clock."""

    peer: int
    since_ms: int
    #: Whether its system left the last request without an acknowledgement; None if that is unknown.
    is_unacknowledged: bool | None = None
    #: The result of the last dial since ("connects", "refused", "unreachable", "silent"); "" before there was one.
    dialled: str = ""

    @property
    def facts(self) -> dict[str, Any]:
        known = {"dialled": self.dialled} if self.dialled else {}
        unacknowledged = {} if self.is_unacknowledged is None else {"unacknowledged": self.is_unacknowledged}
        return {"peer": self.peer, **known, **unacknowledged}


class Sources(NamedTuple):
    """The state of the broker's parts, read in each tick."""

    silences: Callable[[int], Iterable[Silence]]
    #: The log directories that cannot be written, with the kind of their state.
    disks: Callable[[], Iterable[tuple[SelfReportKind, str]]]
    #: The sides, leader or follower, whose replication quota is exhausted.
    throttled_sides: Callable[[int], Iterable[str]]
    #: The condition of the network to each peer.
    links: Callable[[], Iterable[tuple[int, LinkCondition]]] = lambda: ()
    #: The durations of the last syncs by log directory, each once.
    syncs: Callable[[], Mapping[str, Sequence[int]]] = dict
    #: The bytes that producers sent, by topic, since the start.
    bytes_in: Callable[[], Mapping[str, int]] = dict


class _Lasting:
    """The states of one kind: each is reported when it has lasted for `least_ms`, and again with its end. The loss of
    a link is reported again when its dials have a result.
    """

    def __init__(self, kind: SelfReportKind, least_ms: int) -> None:
        self._kind = kind
        self._least_ms = least_ms
        #: Subject -> begin by the monotonic clock, begin by the wall clock, facts.
        self._begun: dict[str, tuple[int, int, Mapping[str, Any]]] = {}
        #: Subject -> the facts that were reported.
        self._reported: dict[str, Mapping[str, Any]] = {}

    def seen(self, states: _States, now_ms: int, wall_ms: int) -> Iterator[SelfReport]:
        for subject, (facts, since_ms) in states.items():
            begin_ms = now_ms if since_ms is None else since_ms
            known = self._begun.setdefault(subject, (begin_ms, wall_ms - (now_ms - begin_ms), facts))
            began_ms, began_wall_ms, _ = known
            is_news = subject not in self._reported or _is_news(self._reported[subject], facts)
            if is_news and now_ms - began_ms >= self._least_ms:
                self._reported[subject] = facts
                yield SelfReport(self._kind, began_wall_ms, None, now_ms - began_ms, subject, facts)
        for subject in [subject for subject in self._begun if subject not in states]:
            began_ms, began_wall_ms, facts = self._begun.pop(subject)
            if subject in self._reported:
                reported = self._reported.pop(subject)
                yield SelfReport(self._kind, began_wall_ms, wall_ms, now_ms - began_ms, subject, reported)


def _is_news(reported: Mapping[str, Any], facts: Mapping[str, Any]) -> bool:
    return facts.get("dialled") is not None and reported.get("dialled") != facts["dialled"]


class SelfWatch:
    """The watch. `report` gets one self-report at a time."""

    def __init__(self, host: Host, sources: Sources, report: Callable[[SelfReport], None]) -> None:
        self._host = host
        self._sources = sources
        self._report = report
        self._timer: Timer | None = None
        self._due_ms = self._ticked_ms = 0
        self._cpu_ns = self._wait_ns = 0
        self._wall_offset_ms = 0
        self._stall_ended_ms = 0
        #: CPU time and monotonic time of the last ticks.
        self._loads: deque[tuple[int, int]] = deque(maxlen=_OVERLOAD_TICKS + 1)
        #: Waiting time and monotonic time of the last ticks.
        self._waits: deque[tuple[int, int]] = deque(maxlen=_STARVED_TICKS + 1)
        self._slow_peers, self._lossy_peers = SlowPeers(), LossyPeers()
        self._slow_disks, self._bursts = SlowDisks(), Bursts()
        self._lasting = {
            kind: _Lasting(kind, least_ms)
            for kind, least_ms in (
                (SelfReportKind.OVERLOADED, 0),
                (SelfReportKind.STARVED, 0),
                (SelfReportKind.THROTTLED, _THROTTLED_MS),
                (SelfReportKind.LINK_LOST, 0),
                (SelfReportKind.LINK_SLOW, _THROTTLED_MS),
                (SelfReportKind.LINK_LOSSY, 0),
                (SelfReportKind.DISK_SLOW, 0),
                (SelfReportKind.DISK_FULL, 0),
                (SelfReportKind.DISK_FAILED, 0),
                (SelfReportKind.BURST, 0),
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
            self._cpu_ns, self._wait_ns = self._host.process_cpu_ns(), self._host.cpu_wait_ns()
            self._wall_offset_ms = clock.wall_ms() - now_ms
            self._loads.clear()
            self._waits.clear()
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
        wait_ns = self._host.cpu_wait_ns()
        self._watch_clock(now_ms, wall_ms)
        self._watch_loop(now_ms, wall_ms, cpu_ns, wait_ns)
        for report in self._states(now_ms, wall_ms):
            self.add(report)
        if self._waiting:
            self._report(self._waiting.pop(next(iter(self._waiting))))
        self._ticked_ms, self._cpu_ns, self._wait_ns = now_ms, cpu_ns, wait_ns
        self._arm(now_ms)

    def _watch_clock(self, now_ms: int, wall_ms: int) -> None:
        jump_ms = wall_ms - now_ms - self._wall_offset_ms
        self._wall_offset_ms += jump_ms
        if abs(jump_ms) >= _JUMP_MS:
            self.add(SelfReport(SelfReportKind.CLOCK_JUMPED, wall_ms, wall_ms, 0, facts={"jump_ms": jump_ms}))

    def _watch_loop(self, now_ms: int, wall_ms: int, cpu_ns: int, wait_ns: int) -> None:
        late_ms = now_ms - self._due_ms
        if late_ms <= LATE_MS:
            return
        self._stall_ended_ms = now_ms
        # The time before the tick was due is counted neither as a part of the stall nor with its CPU.
        cpu_ms = (cpu_ns - self._cpu_ns) // 1_000_000
        share, waited = cpu_ms / late_ms, (wait_ns - self._wait_ns) / 1_000_000 / late_ms
        how = "busy" if share >= BUSY_SHARE_MIN else "paused" if share < PAUSED_SHARE_MAX else "starved"
        if waited >= _STARVED_SHARE:
            how = "starved"
        facts = {"how": how, "cpu_ms": cpu_ms, "longest_ms": now_ms - self._ticked_ms}
        self.add(SelfReport(SelfReportKind.STALLED, wall_ms - late_ms, wall_ms, late_ms, facts=facts))

    def _states(self, now_ms: int, wall_ms: int) -> Iterator[SelfReport]:
        sources = self._sources
        found: dict[SelfReportKind, _States] = {kind: {} for kind in self._lasting}
        share = self._load(now_ms)
        if share >= _OVERLOAD_SHARE:
            since_ms = self._loads[0][1]
            found[SelfReportKind.OVERLOADED][""] = _State({"share": round(share, 2)}, since_ms)
        starved = _share(self._waits, (self._host.cpu_wait_ns(), now_ms))
        if starved >= _STARVED_SHARE:
            found[SelfReportKind.STARVED][""] = _State({"share": round(starved, 2)}, self._waits[0][1])
        for side in sources.throttled_sides(now_ms):
            found[SelfReportKind.THROTTLED][side] = _State({"side": side})
        for kind, directory in sources.disks():
            found[kind][directory] = _State({"directory": directory})
        for silence in sources.silences(now_ms):
            since_ms = max(silence.since_ms, self._stall_ended_ms)
            if now_ms - since_ms >= SILENCE_MS:
                found[SelfReportKind.LINK_LOST][str(silence.peer)] = _State(silence.facts, since_ms)
        self._add_unusual(found, now_ms)
        for kind, lasting in self._lasting.items():
            yield from lasting.seen(found[kind], now_ms, wall_ms)

    def _add_unusual(self, found: dict[SelfReportKind, _States], now_ms: int) -> None:
        sources = self._sources
        links = dict(sources.links())
        slow = self._slow_peers.slow({peer: each.round_trip_us for peer, each in links.items()})
        for peer, round_trip_us in slow.items():
            state = _State({"peer": peer, "round_trip_ms": round_trip_us // 1_000})
            found[SelfReportKind.LINK_SLOW][str(peer)] = state
        lossy = self._lossy_peers.lossy({peer: each.retransmits for peer, each in links.items()})
        for peer, count in lossy.items():
            found[SelfReportKind.LINK_LOSSY][str(peer)] = _State({"peer": peer, "retransmits": count})
        for directory, sync_ms in self._slow_disks.slow(sources.syncs()).items():
            state = _State({"directory": directory, "sync_ms": sync_ms})
            found[SelfReportKind.DISK_SLOW].setdefault(directory, state)
        ticks = max(1.0, (now_ms - self._ticked_ms) / _TICK_MS)
        for topic, (rate, usual) in self._bursts.bursts(sources.bytes_in(), ticks).items():
            state = _State({"topic": topic, "bytes_per_s": rate, "usual_bytes_per_s": usual})
            found[SelfReportKind.BURST][topic] = state

    def _load(self, now_ms: int) -> float:
        """Returns the share of a CPU in the last ten ticks; 0 while there are fewer."""
        return _share(self._loads, (self._host.process_cpu_ns(), now_ms))


def _share(times: deque[tuple[int, int]], now: tuple[int, int]) -> float:
    """Returns the share of the last ticks that a counter of nanoseconds grew by; 0 while there are fewer of them."""
    times.append(now)
    if len(times) < (times.maxlen or 0):
        return 0.0
    (first_ns, first_ms), (last_ns, last_ms) = times[0], times[-1]
    return (last_ns - first_ns) / 1_000_000 / max(1, last_ms - first_ms)
