"""The lanes of a partition: who led and who was in sync, from the begin of the watch on, not from the first change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.support.console_server import RunningConsole
from tests.support.watched import partition

from barnabas.console import occurrences as module
from barnabas.console.occurrences import Occurrences
from barnabas.console.packed_lanes import NO_EVENT, Lane
from barnabas.monitor.changes import Change, partition_change
from barnabas.testing.phantom import PhantomCluster

BEGUN = 500
WELL, SHRUNK = partition("orders-0"), partition("orders-0", isr=(1, 2))
OTHER = partition("orders-1"), partition("orders-1", isr=(2, 3), leader=2, epoch=1)


def changes(count: int) -> list[Change]:
    """Returns a change of partition 0 at each full second: out of the ISR and back."""
    states = [WELL, SHRUNK] * count
    return [partition_change(states[place], states[place + 1], 1_000 * (place + 1)) for place in range(count)]


def facts(lanes: list[Lane]) -> list[tuple[int, tuple[int, ...], bool]]:
    return [(lane.time_ms, lane.isr, lane.id != NO_EVENT) for lane in lanes]


def test_the_first_lane_is_the_state_before_the_first_change() -> None:
    known = Occurrences()
    known.add(changes(2))
    expected = [(BEGUN, (1, 2, 3), False), (1_000, (1, 2), True), (2_000, (1, 2, 3), True)]
    assert facts(known.course("orders", 0, BEGUN)) == expected
    assert len(known.lanes("orders", 0)) == 2
    assert known.course("orders", 1, BEGUN) == []


def test_a_partition_that_is_created_has_no_lane_before_that() -> None:
    known = Occurrences()
    known.add([replace(partition_change(WELL, SHRUNK, 1_000), before=None, created=(WELL,))])
    assert facts(known.course("orders", 0, BEGUN)) == [(1_000, (1, 2, 3), True)]


def test_lanes_that_are_no_longer_kept_are_replaced_by_their_last_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of that state is the one from which on the changes of all partitions are kept."""
    monkeypatch.setattr(module, "_LANES_KEPT", 2)
    known = Occurrences()
    known.add(changes(4))
    assert facts(known.course("orders", 0, BEGUN)) == [
        (2_000, (1, 2, 3), False),
        (3_000, (1, 2), True),
        (4_000, (1, 2, 3), True),
    ]
    assert known.complete_from(BEGUN) == 2_000
    known.add(partition_change(*OTHER, at_ms) for at_ms in (5_000, 6_000))
    assert known.course("orders", 0, BEGUN) == []
    assert known.complete_from(BEGUN) == 4_000
    assert facts(known.course("orders", 1, BEGUN))[0] == (4_000, (1, 2, 3), False)


def test_a_page_shows_who_led_before_a_broker_died(console: RunningConsole, phantom: PhantomCluster) -> None:
    """Partitions without any change have the lane of their state, and the explanation says that none is known."""
    name = "topic-00001"
    before = console.get("lanes", topic=name)
    begun, leaders = before["from_ms"], {each["partition"]: each["leader"] for each in before["lanes"]}
    for each in before["lanes"]:
        (lane,) = each["lanes"]
        assert lane["time_ms"] >= begun
        assert (lane["leader"], lane["isr"], lane["is_change"]) == (each["leader"], each["isr"], False)
        assert each["changes"] == 0
    (line,) = console.get("partition", topic=name, partition=0)["explanation"][1:]
    assert "No change of this partition is known" in line
    broker = leaders[0]
    phantom.change(lambda state: state.kill(broker))
    found: dict[str, Any] = {}

    def is_shown() -> bool:
        """Returns whether the change is shown with its cause; the last lane is the present state all the time."""
        found.update(next(each for each in console.get("lanes", topic=name)["lanes"] if each["partition"] == 0))
        lanes = found["lanes"]
        assert (lanes[0]["leader"], lanes[-1]["leader"]) == (broker, found["leader"])
        return bool(lanes[-1]["cause"])

    console.until(is_shown, "another one leads")
    first, *later = found["lanes"]
    assert (first["cause"], first["is_change"]) == (None, False)
    assert found["leader"] != broker
    assert [lane["is_change"] for lane in later] == [True] * found["changes"]
    assert later[-1]["leader"] == found["leader"]


def test_a_period_begins_with_the_state_at_its_begin(console: RunningConsole, phantom: PhantomCluster) -> None:
    name = "topic-00002"
    phantom.change(lambda state: state.shrink_isr(name, 0, state.topics[name].partitions[0].isr[-1]))
    console.until(lambda: console.get("lanes", topic=name)["lanes"][0]["changes"] == 1, "the change is shown")
    shown = console.get("lanes", topic=name)["lanes"][0]["lanes"]
    change_ms = shown[-1]["time_ms"]
    until = next(each for each in console.get("lanes", topic=name, to=change_ms - 1)["lanes"] if not each["partition"])
    assert [lane["leader"] for lane in until["lanes"]] == [shown[0]["leader"]]
    assert until["changes"] == 0
    after = next(each for each in console.get("lanes", **{"topic": name, "from": change_ms + 1})["lanes"])
    assert [lane["leader"] for lane in after["lanes"]] == [after["leader"]]
    assert after["changes"] == 0
