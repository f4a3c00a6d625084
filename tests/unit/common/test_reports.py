"""Repeated log lines: the first immediately, then one in ten seconds for each cause, with a count, and one at the
end.
"""

from __future__ import annotations

from barnabas.common.reports import LimitedReports, LineLimit


class _Clock:
    def __init__(self) -> None:
        self.ms = 0

    def now_ms(self) -> int:
        return self.ms

    def now_s(self) -> float:
        return self.now_ms() / 1000

    def wall_ms(self) -> int:
        return self.ms


class _Faults:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def fatal(self, message: str, error: BaseException | None = None) -> None:
        raise AssertionError(message)

    def report(self, message: str, error: BaseException | None = None) -> None:
        self.lines.append(f"ERROR {message}")

    def warn(self, message: str) -> None:
        self.report(message)

    def inform(self, message: str) -> None:
        self.lines.append(f"INFO {message}")


def test_one_line_in_ten_seconds_for_a_cause_with_a_count() -> None:
    clock, faults = _Clock(), _Faults()
    reports = LimitedReports(faults, clock)
    for _ in range(601):
        reports.report("full", "no room")
        clock.ms += 100
    assert faults.lines[0] == "ERROR no room"
    assert faults.lines[1:] == ["ERROR no room (99 more in the last 10 s)"] * 6


def test_causes_do_not_hide_each_other() -> None:
    clock, faults = _Clock(), _Faults()
    reports = LimitedReports(faults, clock)
    reports.report("a", "first")
    reports.inform("b", "second")
    reports.report("a", "third")
    assert faults.lines == ["ERROR first", "INFO second"]


def test_the_end_is_reported_once_and_a_new_report_begins() -> None:
    clock, faults = _Clock(), _Faults()
    reports = LimitedReports(faults, clock)
    assert not reports.over("full", "room again")
    reports.report("full", "no room")
    clock.ms = 2_500
    reports.report("full", "no room")
    assert reports.is_reported("full")
    assert reports.over("full", "room again")
    assert not reports.over("full", "room again")
    assert not reports.is_reported("full")
    reports.report("full", "no room")
    assert faults.lines == [
        "ERROR no room",
        "INFO room again, after 2.5 s (1 more in the last 2 s)",
        "ERROR no room",
    ]


def test_causes_that_peers_name_cost_no_memory_without_end() -> None:
    clock, faults = _Clock(), _Faults()
    reports = LimitedReports(faults, clock)
    for number in range(5_000):
        reports.report(number, f"{number}")
    assert len(faults.lines) == 5_000
    assert len(reports._limit) <= 1_000


def test_a_log_of_its_own_has_its_interval_and_its_number_of_causes() -> None:
    clock = _Clock()
    limit = LineLimit(clock.now_ms, 1_000, causes_max=2)
    assert [limit.suffix("a") for _ in range(3)] == ["", None, None]
    clock.ms = 1_500
    assert limit.suffix("a") == " (2 more in the last 2 s)"
    assert [limit.suffix(cause) for cause in ("b", "c", "b")] == ["", "", None]
    assert len(limit) == 2
    assert not limit.is_known("a")
