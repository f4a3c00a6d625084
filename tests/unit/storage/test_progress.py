"""Log lines of a long start."""

from __future__ import annotations

from barnabas.simulation.host import MemoryHost
from barnabas.storage.progress import ProgressLog


def lines_of(step_ms: int, total: int) -> list[str]:
    host = MemoryHost()
    progress = ProgressLog(host, "/data: opening logs", total)
    for _ in range(total):
        host.time.run_for(step_ms)
        progress.step()
    progress.end()
    return list(host.faults.informed)


def test_a_quick_start_logs_nothing() -> None:
    assert lines_of(step_ms=100, total=19) == []
    assert lines_of(step_ms=0, total=0) == []


def test_a_slow_start_logs_every_two_seconds_and_the_end_once() -> None:
    assert lines_of(step_ms=700, total=8) == [
        "/data: opening logs: 3 of 8",
        "/data: opening logs: 6 of 8",
        "/data: opening logs: 8 in 5.6 s",
    ]


def test_the_last_step_is_logged_by_the_end_alone() -> None:
    assert lines_of(step_ms=2_000, total=2) == ["/data: opening logs: 1 of 2", "/data: opening logs: 2 in 4.0 s"]
