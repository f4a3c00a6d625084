"""Long work is done in slices, one slice in a turn of the loop, for every kind of caller."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from itertools import pairwise

import pytest

from barnabas.broker.requests.steps import LARGE_FRAME_BYTES, SLICE_UNITS, Steps
from barnabas.protocol.messages.list_offsets import ListOffsetsRequest
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
        # The traceback would keep what the work holds.
        self.failed.append(error.with_traceback(None))

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


# -- what ended work leaves

ROWS = 10_000


def rows_of(name: str) -> list[ListOffsetsRequest.ListOffsetsTopic]:
    return [ListOffsetsRequest.ListOffsetsTopic(name=name) for _ in range(ROWS)]


def in_a_list(name: str) -> Generator[int, None, None]:
    rows = rows_of(name)
    yield SLICE_UNITS
    del rows[0]


def in_a_message(name: str) -> Generator[int, None, None]:
    message = ListOffsetsRequest(topics=rows_of(name))
    yield SLICE_UNITS
    del message.topics[0]


def failing(name: str) -> Generator[int, None, None]:
    rows = rows_of(name)
    yield SLICE_UNITS
    raise ZeroDivisionError(len(rows))


def waiting_for(work: Generator[int, None, None]) -> Generator[int, None, None]:
    yield from work


@pytest.mark.parametrize("work", [in_a_list, in_a_message, failing])
def test_the_rows_of_work_that_ends_early_are_freed_in_steps(work: Callable[[str], Generator[int, None, None]]) -> None:
    """A million rows that are freed with the work that holds them take half a second."""
    world = World()
    name = "".join(["a", "b"])
    before, held = sys.getrefcount(name), []
    enter = world.time.enter

    def counted(callback: Callable[[], None]) -> None:
        enter(callback)
        held.append(sys.getrefcount(name) - before)

    world.time.enter = counted  # type: ignore[method-assign]
    world.steps.start(waiting_for(work(name)), lambda _: None, world, lambda: work is failing or not held)
    world.time.run_for(0)
    assert held[0] >= ROWS
    assert held[-1] == 0
    assert max(more - less for more, less in pairwise(held)) <= (SLICE_UNITS + 1) * 128
    assert [type(error) for error in world.failed] == ([ZeroDivisionError] if work is failing else [])
