"""Long work is done in slices, one slice in a turn of the loop, for every kind of caller."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from barnabas.broker.requests.steps import LARGE_FRAME_BYTES, SLICE_UNITS, Steps
from barnabas.simulation.host import VirtualTime


class World:
    def __init__(self) -> None:
        self.time = VirtualTime()
        self.steps = Steps(self.time, self.time)
        self.order: list[str] = []
        self.turns = 0
        self.failed: list[Exception] = []

    def work(self, name: str, units: int) -> Generator[int, None, str]:
        for _ in range(units):
            self.order.append(name)
            yield 1
        return name

    def on_error(self, error: Exception) -> None:
        self.failed.append(error)

    def turn_name(self) -> tuple[str, str]:
        return "Metadata", "of a client"

    def run(self) -> None:
        enter = self.time.enter

        def counted(callback: object) -> None:
            self.turns += 1
            enter(callback)  # type: ignore[arg-type]

        self.time.enter = counted  # type: ignore[method-assign]
        self.time.run_for(0)


def test_work_takes_turns() -> None:
    world = World()
    done: list[str] = []
    for name, slices in (("a", 3), ("b", 1), ("c", 2)):
        world.steps.start(world.work(name, slices * SLICE_UNITS), done.append, world)
    assert world.order == [], "nothing is done in the turn that asks"
    world.run()
    folded = [name for place, name in enumerate(world.order) if place % SLICE_UNITS == 0]
    assert folded == ["a", "b", "c", "a", "c", "a"]
    assert done == ["b", "c", "a"]
    assert world.turns == 3 + 1 + 2 + 3, "one slice a turn, and one turn to find that the end is reached"


def test_a_slice_is_named_by_its_work_and_its_request() -> None:
    world = World()
    world.steps.start(world.work("a", 1), lambda _: None, world)
    world.run()
    assert world.steps.turn_name() == ("a slice of Metadata", "of a client (World.work)")


def test_one_turn_begins_a_limited_amount_of_work() -> None:
    """A deadline or an append can complete hundreds of waiting fetches at once; each of them begins such work."""
    world = World()
    done: list[str] = []
    names = [f"fetch-{place}" for place in range(40)]
    for name in names:
        world.steps.begin(world.work(name, 9), done.append, world)
    begun = len(done)
    assert begun * 10 >= 3 * SLICE_UNITS > (begun - 1) * 10, "9 units, and one for the work itself"
    world.run()
    assert done == names, "in the order in which they began"
    assert world.turns == len(names) - begun + 1, "each later one has a turn of its own"
    world.steps.begin(world.work("next", 9), done.append, world)
    assert done[-1] == "next", "a later turn begins work again"


def test_the_clock_ends_a_slice_too() -> None:
    world = World()

    def slow() -> Generator[int, None, None]:
        for _ in range(3):
            world.time._now_ms += 5
            world.order.append("slow")
            yield 1

    world.steps.start(slow(), lambda _: world.order.append("slow is done"))
    world.steps.start(world.work("other", 1), lambda _: world.order.append("other is done"))
    world.time.run_for(100)
    assert world.order[:3] == ["slow", "other", "other is done"]
    assert world.order[-1] == "slow is done"


def test_a_failure_is_the_owners() -> None:
    world = World()

    def fails() -> Generator[int, None, None]:
        yield 1
        raise ValueError("no")

    done: list[object] = []
    world.steps.start(fails(), done.append, world)
    world.steps.start(world.work("other", 1), done.append, world)
    world.run()
    assert [str(error) for error in world.failed] == ["no"]
    assert done == ["other"]


@pytest.mark.parametrize("slices", [0, 2])
def test_what_nobody_wants_any_more_is_given_up(slices: int) -> None:
    world = World()
    done: list[str] = []
    closed: list[bool] = []

    def work() -> Generator[int, None, str]:
        try:
            yield from world.work("a", 10 * SLICE_UNITS)
        finally:
            closed.append(True)
        return "a"

    wanted = iter([True] * slices + [False])
    world.steps.start(work(), done.append, world, lambda: next(wanted))
    world.run()
    assert len(world.order) == slices * SLICE_UNITS
    assert done == []
    assert closed == ([True] if slices else []), "work that has begun is notified of its end"
    assert len(world.steps) == 0


def test_large_frames_are_taken_one_at_a_time() -> None:
    world = World()
    done: list[str] = []
    large = LARGE_FRAME_BYTES + 1
    for name, held_bytes in (("large 1", large), ("large 2", large), ("small", 10), ("large 3", large)):
        world.steps.start(world.work(name, 2 * SLICE_UNITS), done.append, world, held_bytes=held_bytes)
    assert world.steps.held_bytes == 3 * large + 10
    assert len(world.steps) == 4
    world.run()
    folded = [name for place, name in enumerate(world.order) if place % SLICE_UNITS == 0]
    assert folded == ["large 1", "small", "large 1", "small", "large 2", "large 2", "large 3", "large 3"]
    assert world.steps.held_bytes == 0


def test_the_next_large_frame_comes_after_one_that_fails_or_is_given_up() -> None:
    world = World()
    done: list[str] = []
    large = LARGE_FRAME_BYTES + 1

    def fails() -> Generator[int, None, None]:
        yield 1
        raise ValueError("no")

    world.steps.start(fails(), done.append, world, held_bytes=large)
    world.steps.start(world.work("unwanted", 1), done.append, world, lambda: False, held_bytes=large)
    world.steps.start(world.work("last", 1), done.append, world, held_bytes=large)
    world.run()
    assert done == ["last"]
    assert world.steps.held_bytes == 0
