"""Faults in a simulated cluster, and the cause that `explain` finds behind their effects when all is well again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.support.journal_world import JournalWorld

from barnabas.cli.journal_reader import distinct
from barnabas.cli.root_causes import CERTAIN, LIKELY, RootCause, root_cause
from barnabas.simulation.fault_effects import FaultEffects
from barnabas.simulation.faults import Fault, FaultKind

_LASTS_MS = 12_000
_TOPIC = "orders"
Event = dict[str, Any]


def told(
    fault: Fault, *, seed: int, while_it_lasts: Callable[[JournalWorld], None] | None = None, **properties: str
) -> list[Event]:
    """Returns the events after a fault of some seconds has ended and the cluster is whole."""
    world = JournalWorld(seed, properties={key.replace("_", "."): value for key, value in properties.items()})
    world.create_topic(_TOPIC, [1, 2, 3], [2, 3, 1], [3, 1, 2])
    end = FaultEffects(world.cluster).begin(fault)
    world.run_for(_LASTS_MS)
    if while_it_lasts is not None:
        while_it_lasts(world)
    if end is not None:
        end()
    world.settle()
    world.run_for(20_000)
    return distinct(world.unpacked_events())


def causes_of_losses(events: list[Event], broker: int) -> list[RootCause]:
    fenced = [event for event in events if event["kind"] == "broker-fenced" and event["broker"] == broker]
    led = [
        event
        for event in events
        if event.get("topic") == _TOPIC and event.get("before", {}).get("leader") == broker != event["after"]["leader"]
    ]
    assert fenced, "the fault had an effect"
    assert led
    return [found for event in (*fenced, *led) if (found := root_cause(event, events)) is not None]


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(
    ("kind", "code", "certainties"),
    [
        (FaultKind.PAUSE, "paused", {CERTAIN}),
        # A broker can have a link to the controller only.
        (FaultKind.ISOLATE, "link-lost", {CERTAIN, LIKELY}),
        (FaultKind.KILL, "crashed", {CERTAIN}),
    ],
)
def test_the_loss_of_a_broker(seed: int, kind: FaultKind, code: str, certainties: set[str]) -> None:
    events = told(Fault(at_ms=0, kind=kind, node="broker2"), seed=seed)
    causes = causes_of_losses(events, 2)
    assert {(each.code, each.component, each.is_hindsight) for each in causes} == {(code, "broker 2", True)}
    assert {each.certainty for each in causes} <= certainties


@pytest.mark.parametrize("kind", [FaultKind.PARTITION, FaultKind.ONE_WAY])
def test_a_broker_that_is_cut_off_from_the_controller_alone(kind: FaultKind) -> None:
    world = JournalWorld(5)
    active = world.active()
    assert active is not None
    node = next(name for name in ("broker1", "broker2", "broker3") if name != active)
    events = told(Fault(at_ms=0, kind=kind, node=node, peer=active), seed=5)
    causes = causes_of_losses(events, int(node[-1]))
    assert {(each.code, each.certainty) for each in causes} == {("link-lost", LIKELY)}
    assert f"got no answer from broker {active[-1]}" in causes[0].text


def test_before_its_return_nobody_knows_why_a_broker_is_silent() -> None:
    found: list[RootCause | None] = []

    def look(world: JournalWorld) -> None:
        events = distinct(world.unpacked_events())
        fenced = next(event for event in events if event["kind"] == "broker-fenced")
        found.append(root_cause(fenced, events))

    told(Fault(at_ms=0, kind=FaultKind.PAUSE, node="broker3"), seed=1, while_it_lasts=look)
    (cause,) = found
    assert cause is not None
    assert (cause.code, cause.certainty, cause.component) == ("unknown", "unknown", "broker 3")
    assert "has not returned" in cause.text


def test_a_controller_that_stops_before_it_can_say_so_was_stopped() -> None:
    """Broker 2 is the active controller here: the next one only finds that nobody listens at its address."""
    fault = Fault(at_ms=0, kind=FaultKind.STOP, node="broker2")
    causes = causes_of_losses(told(fault, seed=4, controlled_shutdown_enable="false"), 2)
    assert {(each.code, each.certainty) for each in causes} == {("stopped", CERTAIN)}


def test_a_stop_and_a_full_disk_need_no_further_cause() -> None:
    for kind, expected in ((FaultKind.STOP, "controlled-shutdown"), (FaultKind.FULL_DISK, "broker-full")):
        events = told(Fault(at_ms=0, kind=kind, node="broker2"), seed=3)
        moved = [event for event in events if event.get("topic") == _TOPIC and event["kind"] == "leader-change"]
        assert {event["cause"] for event in moved} == {expected}
        assert [root_cause(event, events) for event in moved] == [None] * len(moved)


def test_a_lag_over_a_lost_link() -> None:
    """Brokers 2 and 3 cannot reach each other, and both reach the controller."""
    world = JournalWorld(3)
    assert world.active() == "broker1", "the seed"
    events = told(Fault(at_ms=0, kind=FaultKind.PARTITION, node="broker2", peer="broker3"), seed=3)
    lagged = [event for event in events if event.get("cause") == "follower-lagged" and event["topic"] == _TOPIC]
    assert lagged
    causes = [root_cause(event, events) for event in lagged]
    assert {cause and (cause.code, cause.certainty) for cause in causes} == {("link-lost", CERTAIN)}
