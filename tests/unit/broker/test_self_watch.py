"""The watch of a broker over itself: which reports follow from which observations, and when they are told."""

from __future__ import annotations

import json

import pytest

from barnabas.journal import self_reports
from barnabas.journal.replica_events import ReplicaEvents
from barnabas.journal.self_watch import SelfWatch, Silence, Sources
from barnabas.simulation.host import EPOCH_WALL_MS, MemoryHost, VirtualTime


class StallingTime(VirtualTime):
    """A clock of a process that can stand still, and whose wall clock can jump."""

    def __init__(self) -> None:
        super().__init__()
        self.jumped_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.jumped_ms

    def stand_still(self, duration_ms: int) -> None:
        self._now_ms += duration_ms


class Watched(MemoryHost):
    """A watched process: `silent_since`, `disks` and `throttled` are what its parts report."""

    def __init__(self) -> None:
        self.stalling = StallingTime()
        super().__init__(time=self.stalling)
        self.used_cpu_ms = 0
        self.silent_since: dict[int, int] = {}
        self.disks: list[tuple[self_reports.SelfReportKind, str]] = []
        self.throttled: list[str] = []
        self.told: list[self_reports.SelfReport] = []
        sources = Sources(
            lambda now_ms: [Silence(*each) for each in self.silent_since.items()],
            lambda: self.disks,
            lambda now_ms: self.throttled,
        )
        self.watch = SelfWatch(self, sources, self.told.append)
        self.watch.start()

    def process_cpu_ns(self) -> int:
        return self.used_cpu_ms * 1_000_000

    def run_for(self, duration_ms: int) -> list[tuple[str, int | None]]:
        """Returns what was told in this time: the kind, and how long it lasted; None while it lasts."""
        self.told.clear()
        self.stalling.run_for(duration_ms)
        return [(str(each.kind), None if each.end_ms is None else each.duration_ms) for each in self.told]


@pytest.fixture
def host() -> Watched:
    return Watched()


def test_a_quiet_process_reports_nothing(host: Watched) -> None:
    assert host.run_for(600_000) == []


@pytest.mark.parametrize(("cpu_ms", "how"), [(0, "paused"), (4_900, "busy"), (1_500, "starved")])
def test_a_process_that_stood_still_reports_how(host: Watched, cpu_ms: int, how: str) -> None:
    host.run_for(4_300)
    host.stalling.stand_still(5_700)
    host.used_cpu_ms += cpu_ms
    assert host.run_for(500) == [("stalled", 5_000)], "it was due 0.7 s after the last tick"
    (told,) = host.told
    assert (told.facts["how"], told.facts["cpu_ms"], told.facts["longest_ms"]) == (how, cpu_ms, 6_000)
    assert (told.begin_ms, told.end_ms) == (EPOCH_WALL_MS + 5_000, EPOCH_WALL_MS + 10_000)
    assert told.text(2).startswith("broker 2 stood still for 5.0 s: its process ")
    assert host.run_for(60_000) == []


def test_a_tick_that_is_a_little_late_is_none(host: Watched) -> None:
    host.run_for(900)
    host.stalling.stand_still(350)
    assert host.run_for(10_000) == []


def test_a_clock_that_jumps(host: Watched) -> None:
    host.run_for(3_500)
    host.stalling.jumped_ms = -4_000
    assert host.run_for(1_000) == [("clock-jumped", 0)]
    assert host.told[0].text(1) == "the wall clock of broker 1 jumped by -4.0 s"
    assert host.run_for(10_000) == []


def test_a_loop_that_is_always_busy(host: Watched) -> None:
    for _ in range(10):
        host.used_cpu_ms += 950
        assert host.run_for(1_000) == []
    host.used_cpu_ms += 950
    assert host.run_for(1_000) == [("overloaded", None)]
    assert "used 95% of a CPU for 10.0 s so far" in host.told[0].text(1)
    ended = [each for _ in range(3) for each in host.run_for(1_000)]
    assert ended == [("overloaded", 11_000)]


def test_a_peer_that_does_not_answer_is_reported_twice(host: Watched) -> None:
    host.run_for(1_000)
    host.silent_since = {3: 500}
    assert host.run_for(1_000) == []
    assert host.run_for(1_000) == [("link-lost", None)]
    assert host.told[0].begin_ms == EPOCH_WALL_MS + 500
    assert host.run_for(20_000) == []
    host.silent_since = {}
    assert host.run_for(1_000) == [("link-lost", 23_500)]
    assert host.told[0].facts == {"peer": 3}


def test_a_process_that_was_paused_does_not_accuse_its_peers(host: Watched) -> None:
    host.run_for(1_500)
    host.silent_since = {3: 1_400}
    host.stalling.stand_still(9_000)
    assert host.run_for(1_900) == [("stalled", 8_500)]
    host.silent_since = {}
    assert host.run_for(10_000) == []


def test_one_report_a_second_and_the_newest_of_a_state(host: Watched) -> None:
    host.disks = [
        (self_reports.SelfReportKind.DISK_FULL, "/a"),
        (self_reports.SelfReportKind.DISK_SLOW, "/b"),
        (self_reports.SelfReportKind.DISK_FAILED, "/c"),
    ]
    assert host.run_for(1_000) == [("disk-slow", None)]
    host.disks = []
    host.throttled = ["leader"]
    told = [host.run_for(1_000) for _ in range(5)]
    assert told == [
        [("disk-full", 1_000)],
        [("disk-failed", 1_000)],
        [("disk-slow", 1_000)],
        [("throttled", None)],
        [],
    ], "the end of a state replaces its start, if that was not reported"


def test_it_starts_again_without_the_time_between(host: Watched) -> None:
    host.run_for(2_000)
    host.watch.close()
    assert not host.watch.is_running
    host.stalling.run_for(50_000)
    host.watch.start()
    host.watch.start()
    assert host.run_for(10_000) == []


def test_a_report_waits_for_a_journal_and_contains_the_time_of_writing(host: Watched) -> None:
    events = ReplicaEvents(2, host.clock)
    facts = {"how": "paused", "cpu_ms": 0, "longest_ms": 6_000}
    for number in range(70):
        events.report(self_reports.SelfReport(self_reports.SelfReportKind.STALLED, number, number + 5, 5, facts=facts))
    assert events
    assert not events.need_topic, "a report is no reason for a journal"
    host.stalling.run_for(7_000)
    (record, *_) = events.draw(10)
    told = json.loads(record.value or b"")
    assert (told["kind"], told["broker"], told["node"], told["begin_ms"], told["end_ms"]) == ("stalled", 2, 2, 6, 11)
    assert (told["time_ms"], told["reported_ms"]) == (11, EPOCH_WALL_MS + 7_000)
    assert record.timestamp == 11
    events.rewind()
    assert events.draw(10)[0].key == record.key
    assert len(events.draw(100)) == 54
    events.written()
    assert not events
