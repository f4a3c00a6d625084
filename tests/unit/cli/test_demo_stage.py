"""The demo's replay: the first records are sent, and the others wait until the pipeline is warm."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from barnabas.cli.demo_stage import WARM_UP, Replay
from barnabas.orders import replay as producer
from barnabas.orders.replay import Progress, ReplayOptions


class Producer:
    """Sends a record whenever it may, until all are sent or it is stopped."""

    def __init__(self, total: int) -> None:
        self.progress = Progress()
        self.is_waiting = threading.Event()
        self._total = total

    def __call__(self, _: ReplayOptions, **callbacks: Any) -> None:
        progress = self.progress
        for _number in range(self._total):
            while callbacks["hold"](progress) and not callbacks["stop"]():
                callbacks["on_progress"](progress)
                self.is_waiting.set()
            if callbacks["stop"]():
                return
            progress.sent += 1
            progress.acknowledged["order"] += 1
        progress.finished = True
        callbacks["on_progress"](progress)


@pytest.fixture
def options(tmp_path: Path) -> ReplayOptions:
    return ReplayOptions("127.0.0.1:1", tmp_path / "ledger")


def test_the_others_wait_until_they_are_released(options: ReplayOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Producer(1_000)
    monkeypatch.setattr(producer, "replay", fake)
    replay = Replay(options)
    assert fake.is_waiting.wait(10)
    assert replay.warm_up_records == WARM_UP
    fake.progress.in_flight = 1
    assert replay.warm_up_records is None
    fake.progress.in_flight = 0
    assert replay.is_running
    replay.release()
    replay._thread.join(10)
    assert fake.progress.finished


def test_fewer_orders_than_it_takes_to_warm_up(options: ReplayOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer, "replay", Producer(5))
    replay = Replay(options)
    replay._thread.join(10)
    assert replay.warm_up_records == 5


def test_a_demo_that_ends_early_does_not_wait_for_a_held_replay(
    options: ReplayOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = Producer(1_000)
    monkeypatch.setattr(producer, "replay", fake)
    replay = Replay(options)
    assert fake.is_waiting.wait(10)
    replay.close()
    assert not replay.is_running
    assert fake.progress.sent == WARM_UP
