"""Continuations: work has the owner of the work that registered it, and its errors end with that owner."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from barnabas.common import continuations
from barnabas.common.continuations import Background, detached, later, run, set_background
from barnabas.simulation.host import MemoryHost, RaisedFaults


class Owner:
    def __init__(self) -> None:
        self.errors: list[Exception] = []

    def on_error(self, error: Exception) -> None:
        self.errors.append(error)


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    yield
    set_background(None)
    assert continuations.owner() is None


def failing() -> None:
    raise ValueError("a mistake")


def test_work_runs_for_its_owner_and_returns_its_result() -> None:
    owner = Owner()
    assert run(owner, lambda a, b: (continuations.owner(), a + b), 1, 2) == (owner, 3)
    assert continuations.owner() is None
    assert run(owner, failing) is None
    assert [str(error) for error in owner.errors] == ["a mistake"]
    assert continuations.owner() is None


def test_what_is_registered_belongs_to_the_owner_of_the_work_at_hand() -> None:
    first, second = Owner(), Owner()
    kept: list[Callable[[], None]] = []
    run(first, lambda: kept.append(later(failing)))
    run(second, kept[0])
    assert (len(first.errors), len(second.errors)) == (1, 0)


def test_work_without_an_owner_raises_even_from_within_that_of_another() -> None:
    with pytest.raises(ValueError, match="a mistake"):
        run(None, failing)
    assert later(failing) is failing
    owner = Owner()
    run(owner, lambda: run(None, failing))
    assert len(owner.errors) == 1


def test_a_detached_call_registers_for_nobody() -> None:
    owner = Owner()
    kept: list[object] = []
    run(owner, lambda: detached(lambda: kept.extend([continuations.owner(), later(failing)])))
    assert kept == [None, failing]


def test_a_background_owner_takes_what_belongs_to_nobody() -> None:
    faults = RaisedFaults()
    background = Background(faults)
    set_background(background)
    assert continuations.owner() is background
    kept: list[Callable[[], None]] = []
    run(Owner(), lambda: detached(lambda: kept.append(later(failing))))
    kept[0]()
    later(failing)()
    assert [(message, type(error)) for message, error in faults.reported] == [
        ("background work failed: ValueError('a mistake')", ValueError)
    ] * 2
    set_background(None)
    assert continuations.owner() is None


def test_timers_and_slow_work_of_a_host_go_on_for_the_owner() -> None:
    host, owner = MemoryHost(), Owner()
    run(owner, lambda: host.timers.call_later(5, failing))
    run(owner, lambda: host.timers.call_soon(failing))
    run(owner, lambda: host.blocking.run(lambda: 1, lambda result, error: failing()))
    host.time.run_for(10)
    assert len(owner.errors) == 3
