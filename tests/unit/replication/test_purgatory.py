"""Delayed operations complete exactly once: by their event, or at their deadline, all on one host timer."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.replication.purgatory import DelayedOperation, Purgatory
from barnabas.simulation.host import VirtualTime


class Noted(DelayedOperation):
    def __init__(self, name: str, notes: list[tuple[str, bool, int]], time: VirtualTime) -> None:
        super().__init__()
        self.name, self.notes, self.time = name, notes, time

    def on_complete(self, expired: bool) -> None:
        self.notes.append((self.name, expired, self.time.now_ms()))


def test_operations_expire_at_their_deadlines_in_order() -> None:
    time = VirtualTime()
    purgatory = Purgatory(time, time)
    notes: list[tuple[str, bool, int]] = []
    for name, deadline in (("late", 300), ("early", 100), ("middle", 200)):
        purgatory.expire_at(deadline, Noted(name, notes, time))
    time.run_until(1_000)
    assert notes == [("early", True, 100), ("middle", True, 200), ("late", True, 300)]
    assert len(purgatory) == 0


def test_a_completed_operation_does_not_expire() -> None:
    time = VirtualTime()
    purgatory = Purgatory(time, time)
    notes: list[tuple[str, bool, int]] = []
    operation = Noted("done", notes, time)
    purgatory.expire_at(100, operation)
    time.run_until(50)
    assert operation.complete()
    assert not operation.complete()
    time.run_until(500)
    assert notes == [("done", False, 50)]


def test_an_expiry_may_add_an_operation() -> None:
    time = VirtualTime()
    purgatory = Purgatory(time, time)
    notes: list[tuple[str, bool, int]] = []

    class Again(Noted):
        def on_complete(self, expired: bool) -> None:
            super().on_complete(expired)
            purgatory.expire_at(time.now_ms() + 10, Noted("second", notes, time))

    purgatory.expire_at(100, Again("first", notes, time))
    purgatory.expire_at(500, Noted("third", notes, time))
    time.run_until(1_000)
    assert notes == [("first", True, 100), ("second", True, 110), ("third", True, 500)]


def test_closing_completes_what_waits() -> None:
    time = VirtualTime()
    purgatory = Purgatory(time, time)
    notes: list[tuple[str, bool, int]] = []
    purgatory.expire_at(100, Noted("a", notes, time))
    purgatory.expire_at(50, Noted("b", notes, time))
    purgatory.close()
    time.run_until(1_000)
    assert notes == [("b", True, 0), ("a", True, 0)]


def test_operations_that_expire_at_the_same_time_share_turns() -> None:
    time = VirtualTime()
    purgatory = Purgatory(time, time)
    notes: list[tuple[str, bool, int]] = []
    in_a_turn: list[int] = []
    enter = time.enter

    def counted(callback: Callable[[], None]) -> None:
        before = len(notes)
        enter(callback)
        in_a_turn.append(len(notes) - before)

    time.enter = counted  # type: ignore[method-assign]
    names = [str(place) for place in range(1_000)]
    for name in names:
        purgatory.expire_at(100, Noted(name, notes, time))
    time.run_until(200)
    assert notes == [(name, True, 100) for name in names]
    assert max(in_a_turn) <= 64
