"""The link matrix: who fetches from whom, what is behind, and what brokers reported about each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.console_server import RunningConsole, target_of

from barnabas.console.state import ConsoleOptions
from barnabas.console.views.links import latest
from barnabas.testing.phantom import PhantomCluster


@pytest.fixture(scope="module")
def phantom() -> Iterator[PhantomCluster]:
    with PhantomCluster(topics=6, partitions=3, journal=True) as running:
        yield running


@pytest.fixture(scope="module")
def console(phantom: PhantomCluster) -> Iterator[RunningConsole]:
    options = ConsoleOptions(interval_s=0.1, timeout_s=1.0, budget_share=1.0)
    with RunningConsole([target_of(phantom)], options) as running:
        running.filled()
        yield running


def cells(console: RunningConsole) -> dict[tuple[int, int], dict[str, Any]]:
    return {(each["from"], each["to"]): each for each in console.get("links")["cells"]}


def test_each_direction_has_its_partitions_and_those_behind(console: RunningConsole, phantom: PhantomCluster) -> None:
    leader, follower = 0, 0

    def shrink(state: Any) -> None:
        nonlocal leader, follower
        row = state.topics["topic-00002"].partitions[1]
        leader, follower = row.leader, next(each for each in row.isr if each != row.leader)
        state.shrink_isr("topic-00002", 1, follower)

    phantom.change(shrink)
    console.until(lambda: cells(console)[follower, leader]["out_of_sync"] == 1, "the follower is behind")
    found = cells(console)
    assert set(found) == {(one, other) for one in (1, 2, 3) for other in (1, 2, 3) if one != other}
    for (one, other), each in found.items():
        assert each["partitions"] > 0
        assert (each["state"] == "behind") is ((one, other) == (follower, leader))


def test_a_lost_link_has_a_direction_and_an_end(console: RunningConsole, phantom: PhantomCluster) -> None:
    text = "broker 1 got no answer from broker 3 for 2.5 s so far"
    phantom.change(lambda state: state.report("link-lost", 1, text, peer=3, duration_ms=2_500))
    console.until(lambda: cells(console)[1, 3]["state"] == "lost", "the link is lost")
    assert cells(console)[1, 3]["report"] == text
    assert cells(console)[3, 1]["state"] != "lost"
    data = console.get("links")
    assert [each["kind"] for each in data["reports"]] == ["link-lost"]
    begin_ms = data["reports"][0]["begin_ms"]
    ended = {"peer": 3, "duration_ms": 9_000, "begin_ms": begin_ms, "end_ms": begin_ms + 9_000}
    phantom.change(lambda state: state.report("link-lost", 1, "for 9.0 s", **ended))
    console.until(lambda: cells(console)[1, 3]["state"] == "was lost", "the link is back")
    assert len(console.get("links")["reports"]) == 1, "the end replaces the beginning"


def test_other_reports_are_shown_and_mark_no_link(console: RunningConsole, phantom: PhantomCluster) -> None:
    phantom.change(lambda state: state.report("stalled", 2, "broker 2 stood still", how="paused", duration_ms=3_000))
    console.until(lambda: console.get("links")["reports"][0]["kind"] == "stalled", "the report is there")
    assert console.get("links")["reports"][0]["broker"] == 2


def test_a_silent_broker_marks_both_directions(console: RunningConsole, phantom: PhantomCluster) -> None:
    phantom.silence(2)
    try:
        console.until(lambda: cells(console)[2, 1]["state"] == "silent", "the broker is silent")
        assert cells(console)[1, 2]["state"] == "silent"
    finally:
        phantom.silence(2, is_silent=False)


def test_the_end_of_a_state_replaces_its_beginning() -> None:
    begun = {"kind": "disk-slow", "broker": 1, "directory": "/a", "begin_ms": 5}
    other = begun | {"directory": "/b"}
    ended = begun | {"end_ms": 9}
    assert latest([begun, other, ended]) == [ended, other]
