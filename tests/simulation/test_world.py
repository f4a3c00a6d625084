"""The heap of events: order, chance, processes, the trace."""

from __future__ import annotations

import pytest

from barnabas.simulation.world import Livelock, Process, ProcessExit, World


def test_events_go_by_time_and_then_by_the_order_of_scheduling() -> None:
    world, seen = World(1), list[str]()
    world.at(20, lambda: seen.append("c"))
    world.at(10, lambda: seen.append("a"))
    world.at(10, lambda: seen.append("b"))
    cancelled = world.at(15, lambda: seen.append("never"))
    cancelled.cancel()
    world.run_until(20)
    assert (seen, world.now_us) == (["a", "b", "c"], 20)


def test_a_stream_does_not_feel_what_others_draw() -> None:
    one, other = World(7), World(7)
    one.stream("disk").random()
    assert [one.stream("net").random() for _ in range(5)] == [other.stream("net").random() for _ in range(5)]
    assert World(8).stream("net").random() != World(7).stream("net").random()


def test_a_paused_process_gets_its_events_late_and_a_dead_one_never() -> None:
    world, seen = World(1), list[tuple[str, int]]()
    paused, dead = Process(world, "paused"), Process(world, "dead")
    for at_us in (10, 20):
        world.at(at_us, lambda: seen.append(("paused", world.now_us)), paused)
        world.at(at_us, lambda: seen.append(("dead", world.now_us)), dead)
    world.at(15, paused.pause)
    world.at(15, lambda: dead.end("killed"))
    world.at(90, paused.resume)
    world.run_until(100)
    assert seen == [("paused", 10), ("dead", 10), ("paused", 90)]


def test_a_process_that_waits_for_its_disk_takes_no_events() -> None:
    world, seen = World(1), list[int]()
    process = Process(world, "busy")
    world.at(10, lambda: process.charge(500), process)
    world.at(11, lambda: seen.append(world.now_us), process)
    world.run_until(1000)
    assert seen == [510]


def test_an_exit_ends_the_process_and_an_exception_is_kept() -> None:
    world = World(1)
    causes: list[str] = []

    def leave() -> None:
        raise ProcessExit("enough")

    def fail() -> None:
        raise KeyError("mistake")

    leaving, failing = Process(world, "leaving"), Process(world, "failing")
    leaving.when_ended(causes.append)
    world.at(1, leave, leaving)
    world.at(2, fail, failing)
    world.run_until(5)
    assert leaving.is_dead
    assert causes == ["enough"]
    assert failing.is_running
    assert [(name, type(error)) for _, name, error in world.errors] == [("failing", KeyError)]


def test_events_that_follow_each_other_for_ever_are_noticed() -> None:
    world = World(1)

    def again() -> None:
        world.at(world.now_us, again, None, "again")

    again()
    with pytest.raises(Livelock, match="again"):
        world.run_until(1)


def test_different_events_have_different_traces() -> None:
    def trace(labels: list[str]) -> str:
        world = World(1)
        for at_us, label in enumerate(labels):
            world.at(at_us, lambda: None, None, label)
        world.run_until(100)
        return world.trace.hexdigest()

    assert trace(["a", "b"]) == trace(["a", "b"])
    assert trace(["a", "b"]) != trace(["b", "a"])
