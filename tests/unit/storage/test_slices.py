"""Work on all logs is done in slices."""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.common.host import Timer
from barnabas.simulation.host import MemoryHost
from barnabas.storage.slices import _STEPS_AT_ONCE, run_slices


def test_a_slice_has_few_steps_and_other_events_come_between() -> None:
    host = MemoryHost()
    done: list[int] = []
    waits: list[Timer] = []

    def steps() -> Iterator[None]:
        for number in range(3 * _STEPS_AT_ONCE - 1):
            done.append(number)
            yield

    run_slices(host, steps(), lambda: done.append(-1), waits.append)
    assert len(done) <= _STEPS_AT_ONCE + 1
    host.time.run_for(1)
    assert len(done) <= 2 * (_STEPS_AT_ONCE + 1)
    host.time.run_for(10)
    assert done == [*range(3 * _STEPS_AT_ONCE - 1), -1]
    assert len(waits) == 2


def test_a_slice_ends_when_its_time_is_up() -> None:
    host = MemoryHost()
    done: list[int] = []

    def slow() -> Iterator[None]:
        for number in range(5):
            done.append(number)
            host.time._now_ms += 10
            yield

    run_slices(host, slow())
    assert done == [0]


def test_a_cancelled_timer_ends_the_work() -> None:
    host = MemoryHost()
    done: list[int] = []
    waits: list[Timer] = []

    def steps() -> Iterator[None]:
        for number in range(1_000):
            done.append(number)
            yield

    run_slices(host, steps(), lambda: done.append(-1), waits.append)
    waits[-1].cancel()
    host.time.run_for(1_000)
    assert len(done) <= _STEPS_AT_ONCE + 1
