"""Many deadlines share one timer: they are extended, pulled forward and cancelled."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from barnabas.coordinators.deadlines import Deadlines
from barnabas.simulation.host import VirtualTime


def test_a_deadline_runs_once_when_it_is_due() -> None:
    time = VirtualTime()
    deadline = Deadlines(time, time).new()
    seen: list[int] = []
    deadline.schedule(100, lambda: seen.append(time.now_ms()))
    time.run_for(99)
    assert seen == []
    assert deadline.is_scheduled
    time.run_for(1000)
    assert seen == [100]
    assert not deadline.is_scheduled


def test_a_deadline_that_is_extended_runs_at_its_last_time_only() -> None:
    time = VirtualTime()
    deadline = Deadlines(time, time).new()
    seen: list[int] = []
    for _ in range(5):
        deadline.schedule(100, lambda: seen.append(time.now_ms()))
        time.run_for(60)
    time.run_for(1000)
    assert seen == [340]


def test_extending_does_not_grow_the_heap() -> None:
    time = VirtualTime()
    deadlines = Deadlines(time, time)
    deadline = deadlines.new()
    for _ in range(10_000):
        deadline.schedule(100, lambda: None)
    assert len(deadlines._heap) == 1


def test_a_deadline_that_is_pulled_forward_runs_at_the_earlier_time_only() -> None:
    time = VirtualTime()
    deadlines = Deadlines(time, time)
    deadline, other = deadlines.new(), deadlines.new()
    seen: list[tuple[str, int]] = []
    other.schedule(300, lambda: seen.append(("other", time.now_ms())))
    deadline.schedule(500, lambda: seen.append(("late", time.now_ms())))
    deadline.schedule(50, lambda: seen.append(("early", time.now_ms())))
    time.run_for(1000)
    assert seen == [("early", 50), ("other", 300)]


def test_a_cancelled_deadline_does_not_run_and_may_be_scheduled_again() -> None:
    time = VirtualTime()
    deadline = Deadlines(time, time).new()
    seen: list[int] = []
    deadline.schedule(100, lambda: seen.append(time.now_ms()))
    deadline.cancel()
    time.run_for(50)
    deadline.schedule(200, lambda: seen.append(time.now_ms()))
    time.run_for(1000)
    assert seen == [250]


def test_deadlines_due_together_run_in_the_order_of_scheduling_and_may_schedule_others() -> None:
    time = VirtualTime()
    deadlines = Deadlines(time, time)
    seen: list[str] = []
    first, second, third = deadlines.new(), deadlines.new(), deadlines.new()

    def run_first() -> None:
        seen.append("first")
        third.schedule(0, lambda: seen.append("third"))

    first.schedule(10, run_first)
    second.schedule(10, lambda: seen.append("second"))
    time.run_for(10)
    assert seen == ["first", "second", "third"]


def test_a_failing_callback_does_not_stop_the_others() -> None:
    time = VirtualTime()
    deadlines = Deadlines(time, time)
    seen: list[str] = []

    def fail() -> None:
        raise ValueError("on purpose")

    deadlines.new().schedule(10, fail)
    deadlines.new().schedule(20, lambda: seen.append("second"))
    try:
        time.run_for(15)
    except ValueError:
        seen.append("failed")
    time.run_for(100)
    assert seen == ["failed", "second"]


def test_nothing_runs_after_close() -> None:
    time = VirtualTime()
    deadlines = Deadlines(time, time)
    deadline = deadlines.new()
    deadline.schedule(10, lambda: pytest_fail())
    deadlines.close()
    deadline.schedule(10, lambda: pytest_fail())
    time.run_for(100)


def pytest_fail() -> None:
    raise AssertionError("ran after close")


def test_deadlines_whose_callbacks_take_long_run_in_several_turns() -> None:
    """The sessions of 5,000 members of one group ended in turns of 54 ms."""
    time = VirtualTime()
    deadlines = Deadlines(time, time)
    turns: list[list[int]] = []

    def take(number: int) -> None:
        turns[-1].append(number)
        time._now_ms += 3

    enter = time.enter

    def counted(callback: Callable[[], None]) -> None:
        turns.append([])
        enter(callback)

    time.enter = counted  # type: ignore[method-assign]
    for number in range(5):
        deadlines.new().schedule(100, partial(take, number))
    time.run_for(1_000)
    assert turns == [[0, 1], [2, 3], [4]]
