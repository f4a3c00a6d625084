"""The journal of a simulated cluster has every change of a leader and an ISR once, whichever nodes fail in between."""

from __future__ import annotations

import pytest
from tests.support.journal_world import JournalWorld, Truth

from barnabas.common.bulk_events import BULK_KIND
from barnabas.journal import bulk, window

_TOPIC = "orders"
_PLACES = [[1, 2, 3], [2, 3, 1], [3, 1, 2], [1, 3, 2], [2, 1, 3]]


def _compare(world: JournalWorld, truth: Truth) -> None:
    world.settle()
    recorded = world.recorded_changes()
    assert not [event for event in world.events() if event["kind"] == "journal-gap"]
    changes = {
        key: (e["after"]["leader"], e["after"]["leader_epoch"], tuple(e["after"]["isr"])) for key, e in recorded.items()
    }
    assert changes == truth.changes


def test_nothing_is_written_where_nothing_happens() -> None:
    world = JournalWorld(1)
    world.create_topic(_TOPIC, *_PLACES)
    world.run_for(20_000)
    assert sorted(world.image().topics_by_name) == [_TOPIC]


def test_it_can_be_switched_off() -> None:
    world = JournalWorld(1, properties={"barnabas.cluster.events.enable": "false"})
    world.create_topic(_TOPIC, *_PLACES)
    world.cluster.nodes["broker2"].machine.kill()
    world.run_for(20_000)
    assert sorted(world.image().topics_by_name) == [_TOPIC]
    assert not any(broker.journal.window for broker in world.brokers())


@pytest.mark.parametrize(
    ("seed", "controllers"),
    [(1, 0), (4, 3), (6, 1), *(pytest.param(*more, marks=pytest.mark.full) for more in ((2, 0), (3, 0), (5, 3)))],
)
def test_every_change_has_one_event(seed: int, controllers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    truth = Truth(monkeypatch)
    world = JournalWorld(seed, controllers=controllers)
    world.create_topic(_TOPIC, *_PLACES)
    random = world.world.stream("deaths")
    for _ in range(5):
        names = [name for name in world.cluster.nodes if controllers != 1 or name != "controller1"]
        world.cluster.nodes[names[random.randrange(len(names))]].machine.kill()
        world.run_for(random.randrange(3_000))
        world.run_until(world.settled, "all replicas are in sync and every change is in the journal")
    assert truth.changes
    _compare(world, truth)


@pytest.mark.parametrize(
    "seed", [10, 12, 106, *(pytest.param(more, marks=pytest.mark.full) for more in (11, 13, 14, 15))]
)
def test_the_active_controller_dies_while_it_writes_events(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next controller continues where the first one ended, at any moment. 106: it leads the topic before it has
    it.
    """
    truth = Truth(monkeypatch)
    world = JournalWorld(seed)
    world.create_topic(_TOPIC, *([1, 2, 3] for _ in range(40)), *([2, 3, 1] for _ in range(40)))
    random = world.world.stream("deaths")
    for _ in range(3):
        active = world.active()
        assert active is not None
        other = next(name for name in world.cluster.nodes if name != active)
        world.cluster.nodes[other].machine.kill()
        # A moment between the decision and the last of its events.
        world.run_for(random.randrange(1_500))
        world.cluster.nodes[active].machine.kill()
        world.run_until(world.settled, "all replicas are in sync and every change is in the journal", 60_000)
    _compare(world, truth)


def test_large_decisions_are_written_in_bulk_and_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every decision about more than three partitions is large here, and most are packed before they are written."""
    monkeypatch.setattr(bulk, "UNPACKED_MAX", 3)
    monkeypatch.setattr(window, "_SMALL_MAX", 3)
    truth = Truth(monkeypatch)
    world = JournalWorld(8)
    world.create_topic(_TOPIC, *_PLACES * 50)
    for name in ("broker1", "broker2"):
        world.cluster.nodes[name].machine.kill()
        world.run_for(1_000)
        world.run_until(world.settled, "all replicas are in sync and every change is in the journal", 60_000)
    _compare(world, truth)
    bulks = [event for event in world.events() if event["kind"] == BULK_KIND]
    assert {event["cause"] for event in bulks} >= {"broker-gone", "isr-asked"}
    assert any(event.get("own") for event in bulks), "what leaders saw is kept"


def test_two_runs_write_the_same_events() -> None:
    def run() -> list[object]:
        world = JournalWorld(7)
        world.create_topic(_TOPIC, *_PLACES)
        world.cluster.nodes["broker1"].machine.kill()
        world.run_for(10_000)
        return [*world.events(), world.world.trace.hexdigest()]

    first = run()
    assert len(first) > 10
    assert run() == first
