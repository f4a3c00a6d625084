"""The timer of the quorum that can be postponed cheaply."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from barnabas.common.host import Timer
from barnabas.raft.peers import Alarm
from barnabas.simulation.host import VirtualTime


class World:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.time = VirtualTime()
        self.fired_ms: list[int] = []
        self.timers = 0
        self.begin_ms = self.time.now_ms()
        call_later = self.time.call_later

        def counted(delay_ms: int, callback: Callable[[], None]) -> Timer:
            self.timers += 1
            return call_later(delay_ms, callback)

        monkeypatch.setattr(self.time, "call_later", counted)
        self.alarm = Alarm(self.time, self.time, lambda: self.fired_ms.append(self.time.now_ms() - self.begin_ms))


def test_an_alarm_that_is_postponed_often_needs_few_timers(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    for _ in range(50):
        world.alarm.set(1_000)
        world.time.run_for(100)
    assert world.timers <= 6
    world.time.run_for(2_000)
    assert world.fired_ms == [5_900]
    assert not world.alarm.is_set


def test_an_alarm_can_be_brought_forward_and_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    world.alarm.set(1_000)
    world.alarm.set(200)
    world.time.run_for(2_000)
    assert world.fired_ms == [200]
    world.alarm.set(100)
    world.alarm.cancel()
    world.time.run_for(2_000)
    assert world.fired_ms == [200]
