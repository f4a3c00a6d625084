"""The time for which a leader lets its followers wait for records."""

from __future__ import annotations

from barnabas.replication.follower_waits import FollowerWaits
from barnabas.simulation.host import VirtualTime


class Woken:
    def __init__(self) -> None:
        self.sizes: list[int] = []

    def on_progress(self, size_bytes: int) -> None:
        self.sizes.append(size_bytes)

    def on_note(self) -> None: ...


def test_as_long_as_they_like_when_nothing_is_expected() -> None:
    time = VirtualTime()
    assert FollowerWaits(time, time).wait_ms(2, 500) == 500


def test_briefly_while_they_are_expected_to_ask_for_more() -> None:
    time = VirtualTime()
    waits = FollowerWaits(time, time)
    waits.expect([2])
    assert waits.wait_ms(2, 500) == 20
    assert waits.wait_ms(2, 5) == 5
    assert waits.wait_ms(3, 500) == 500
    time.run_for(999)
    assert waits.wait_ms(2, 500) == 20
    time.run_for(1)
    assert waits.wait_ms(2, 500) == 500


def test_what_they_wait_for_is_answered_at_once_and_once() -> None:
    time = VirtualTime()
    waits = FollowerWaits(time, time)
    second, third, gone = Woken(), Woken(), Woken()
    waits.enter(2, second)
    waits.enter(3, third)
    waits.enter(2, gone)
    waits.leave(2, gone)
    waits.leave(2, gone)
    waits.expect([2])
    waits.expect([2])
    assert not second.sizes, "not from within the change of role"
    time.run_for(0)
    assert (second.sizes, third.sizes, gone.sizes) == ([0], [], [])
