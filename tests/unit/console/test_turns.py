"""The turns of the console's loop with 40,000 partitions: while one runs, no request is answered."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator

import pytest
from tests.support.console_server import RunningConsole, target_of
from tests.support.loop_turns import watched_turns

from barnabas.console.state import ConsoleOptions
from barnabas.testing.phantom import PhantomCluster

TOPICS, PARTITIONS = 10_000, 4
#: A first byte within 50 ms leaves no more for any turn before it.
TURN_MS_MAX = 50.0
ROUTES = (
    "overview",
    "map",
    "topics?limit=100",
    "topics?sort=severity&desc=1&limit=100",
    "topics?q=99&limit=100",
    "topic?name=topic-00042",
    "partition?topic=topic-00042&partition=1",
    "brokers",
    "broker?id=2",
    "timeline",
    "groups",
    "search?q=12",
)


@pytest.fixture(scope="module")
def phantom() -> Iterator[PhantomCluster]:
    with PhantomCluster(topics=TOPICS, partitions=PARTITIONS, journal=True) as running:
        yield running


@pytest.fixture(scope="module")
def console(phantom: PhantomCluster) -> Iterator[RunningConsole]:
    with RunningConsole([target_of(phantom)], ConsoleOptions()) as running:
        running.until(
            lambda: bool(running.ask("overview").json["is_filled"]), "the first poll is not complete", within_s=60
        )
        yield running


def _ask_for(console: RunningConsole, seconds: float) -> None:
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        for route in ROUTES:
            answer = console.request("GET", f"/api/{route}")
            assert answer.status == 200, answer.body
        time.sleep(0.05)


def test_no_turn_is_long_while_nothing_changes(console: RunningConsole) -> None:
    _ask_for(console, 1.0)
    with watched_turns(console._thread) as turns:
        _ask_for(console, 5.0)
    assert turns.count > 600
    assert turns.longest[0][0] <= TURN_MS_MAX, turns.longest


def test_no_turn_is_long_while_all_partitions_change(console: RunningConsole, phantom: PhantomCluster) -> None:
    with console.live("map") as messages, watched_turns(console._thread) as turns:
        for is_up in (False, True):
            phantom.change(lambda state, is_up=is_up: state.start(2) if is_up else state.kill(2))  # type: ignore[misc]
            assert any(event == "cells" for _, event, _ in messages)
            _ask_for(console, 4.0)
    assert turns.longest[0][0] <= TURN_MS_MAX, turns.longest
    third = TOPICS * PARTITIONS // 3
    wanted = {"isr-shrink": 2 * third, "leader-change": third, "isr-expand": 3 * third}

    def is_complete() -> bool:
        counts: Counter[str] = Counter()
        for each in console.get("timeline")["events"]:
            counts[each["kind"]] += each["count"] if each["count"] > 1 else 0
        return all(abs(counts[kind] - expected) <= 2 for kind, expected in wanted.items())

    console.until(is_complete, "the time line does not have all changes", within_s=30)
