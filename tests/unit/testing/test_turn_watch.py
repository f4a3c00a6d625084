"""The judgment of the watch over all tests: long turns by the speed of the core at that moment."""

from __future__ import annotations

import pytest
from tests.support import turn_watch
from tests.support.turn_watch import LongTurn


@pytest.mark.parametrize(
    ("work_ms", "cpu_ms", "fails"),
    [(2.7, 51, True), (1.0, 51, True), (2.7, 50, False), (5.4, 100, False), (5.4, 101, True)],
)
def test_a_slower_core_may_take_longer(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, work_ms: float, cpu_ms: int, fails: bool
) -> None:
    monkeypatch.delenv("COVERAGE_RUN", raising=False)
    monkeypatch.setattr(turn_watch, "_known_work_ms", lambda: work_ms)
    found = [LongTurn(30, "short"), LongTurn(cpu_ms, "a long one")]
    if fails:
        with pytest.raises(pytest.fail.Exception, match="a long one"):
            turn_watch.judge(request.node, found)
    else:
        turn_watch.judge(request.node, found)
    turn_watch.judge(request.node, [])
