"""The loop stays awake only between requests that follow each other closely."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from barnabas.server import busy_polling
from barnabas.server.busy_polling import BusyPolling


class CountingLoop:
    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)

    def turn(self) -> None:
        due, self.soon = self.soon, []
        for callback in due:
            callback()


def test_it_looks_again_only_within_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ns = [10_000_000]
    monkeypatch.setattr(busy_polling, "perf_counter_ns", lambda: now_ns[0])
    loop = CountingLoop()
    awake = BusyPolling(cast(Any, loop))
    awake.on_read(now_ns[0])
    assert loop.soon == [], "a first request keeps nobody awake"
    now_ns[0] += 1_000_000
    awake.on_read(now_ns[0])
    assert loop.soon == [], "nor does one that comes much later"
    now_ns[0] += 50_000
    awake.on_read(now_ns[0])
    awake.on_read(now_ns[0])
    assert len(loop.soon) == 1, "one look at a time"
    now_ns[0] += 150_000
    loop.turn()
    assert len(loop.soon) == 1
    now_ns[0] += 60_000
    loop.turn()
    assert loop.soon == [], "the window is over: the loop sleeps"
    now_ns[0] += 10_000
    awake.on_read(now_ns[0])
    assert loop.soon == [], "the gap was longer than the window"
