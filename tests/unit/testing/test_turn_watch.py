"""The judgment of the watch over all tests: long turns by the speed of the core at that moment."""

from __future__ import annotations

from pathlib import Path
from time import thread_time_ns

import pytest
from tests.support import core_speed, turn_watch
from tests.support.turn_watch import MS, InMemory, InProcesses, LongTurn

from barnabas.server.turns import FILE_VARIABLE
from barnabas.simulation.host import VirtualTime


@pytest.fixture(autouse=True)
def judging(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COVERAGE_RUN", raising=False)


def judged(request: pytest.FixtureRequest, found: list[LongTurn]) -> bool:
    """Returns whether the test would fail, with the long turn in its message."""
    try:
        turn_watch.judge(request.node, found)
    except pytest.fail.Exception as error:
        message = str(error)
    else:
        return False
    assert "a long one" in message
    assert "short" not in message
    return True


@pytest.mark.parametrize(("cpu_ms", "fails"), [(51, True), (50, False)])
def test_a_test_with_a_long_turn_fails(request: pytest.FixtureRequest, cpu_ms: int, fails: bool) -> None:
    assert judged(request, [LongTurn(30, "short"), LongTurn(cpu_ms, "a long one")]) is fails
    assert not judged(request, [])


def test_a_turn_in_memory_is_judged_by_the_core_right_after_it(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = InMemory()
    monkeypatch.setattr(core_speed, "slowness", lambda: 1.5)
    watch._note(70 * MS, 70 * MS, "a long one")
    monkeypatch.setattr(core_speed, "slowness", lambda: 1.0)
    assert not judged(request, watch.long)
    watch._note(70 * MS, 70 * MS, "a long one")
    assert judged(request, watch.long[1:])


def test_a_turn_of_a_process_is_judged_by_the_core_now(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(FILE_VARIABLE, "")
    watch = InProcesses(tmp_path / "turns")
    (tmp_path / "turns").write_text("17 80 70 a long one\n")
    monkeypatch.setattr(core_speed, "slowness", lambda: 1.5)
    assert not judged(request, watch.take())
    (tmp_path / "turns").write_text("17 80 70 a long one\n17 80 80 a long one\n")
    assert judged(request, watch.take())


@pytest.mark.parametrize(
    ("work_ms", "taken_ms", "expected_ms"),
    [
        (1.0, 60.0, 60.0),
        (core_speed._KNOWN_WORK_MS * 1.5, 60.0, 40.0),
        (core_speed._KNOWN_WORK_MS * 1.5, 27.0, 18.0),
        (core_speed._KNOWN_WORK_MS * 1.5, 14.0, 14.0),
    ],
)
def test_what_a_usual_core_would_take(
    monkeypatch: pytest.MonkeyPatch, work_ms: float, taken_ms: float, expected_ms: float
) -> None:
    """A core faster than usual lowers no limit."""
    monkeypatch.setattr(core_speed, "_known_work_ms", lambda: work_ms)
    assert core_speed.usual_ms(taken_ms) == pytest.approx(expected_ms)


def test_the_measurement_of_the_core_is_no_work_of_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn within a turn measured the core, which took 50 ms of the outer one. The watch over all tests judges this
    one.
    """

    def long_work() -> float:
        begin_ns = thread_time_ns()
        while thread_time_ns() - begin_ns < 4 * turn_watch.CPU_MS_MAX * MS:
            pass
        return 1.0

    monkeypatch.setattr(core_speed, "_known_work_ms", long_work)

    def turn() -> None:
        core_speed.usual_ms(20.0)

    VirtualTime().enter(turn)
