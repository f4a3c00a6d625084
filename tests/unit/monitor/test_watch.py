"""The watch itself: its events when a cluster answers, stops answering, and reports causes late."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from tests.support.watched import T0, explained, partition, snapshot

from barnabas.monitor.changes import Event
from barnabas.monitor.cluster_reader import Unreachable
from barnabas.monitor.snapshot import Snapshot
from barnabas.monitor.watch import Step, watch

FAILED_OVER = partition(leader=2, epoch=1, isr=(2, 3))


class Scripted:
    """A cluster whose answers are written down; the last one stays."""

    def __init__(self, *looks: Snapshot | str, events: list[list[Event]] | None = None) -> None:
        self._looks = list(looks)
        self._events = events or []
        self.looks = 0
        self.closed = False

    async def read_snapshot(self) -> Snapshot:
        self.looks += 1
        found = self._looks.pop(0) if len(self._looks) > 1 else self._looks[0]
        if isinstance(found, str):
            raise Unreachable(found)
        return found

    async def new_events(self) -> list[Event]:
        return self._events.pop(0) if self._events else []

    def close(self) -> None:
        self.closed = True


def steps_of(reader: Scripted, count: int, *, interval_s: float = 0.01) -> list[Step]:
    async def main() -> list[Step]:
        found: list[Step] = []
        async with aclosing(watch(reader, interval_s=interval_s, clock_ms=lambda: T0 + 100)) as steps:
            async for step in steps:
                found.append(step)
                if len(found) == count:
                    break
        return found

    return asyncio.run(asyncio.wait_for(main(), 120))


def test_it_goes_on_when_nobody_answers_and_when_somebody_does_again() -> None:
    read_snapshot = snapshot(partition())
    reader = Scripted("refused", read_snapshot, "refused", "refused", read_snapshot)
    steps = steps_of(reader, 5)
    assert [step.problem for step in steps] == ["refused", None, "refused", "refused", None]
    assert [[change.kind for change in step.changes] for step in steps] == [
        ["unreachable"],
        ["reachable"],
        ["unreachable"],
        [],
        ["reachable"],
    ]
    assert steps[0].snapshot is None
    assert steps[2].snapshot is not None, "what was seen last"
    assert reader.closed


def test_a_late_cause_comes_between_two_looks() -> None:
    before, after = snapshot(partition(), has_journal=True), snapshot(FAILED_OVER, at_ms=T0 + 50, has_journal=True)
    event = explained(1, partition(), FAILED_OVER, "broker 1 was fenced")
    reader = Scripted(before, after, events=[[], [], [], [event]])
    steps = steps_of(reader, 3, interval_s=2.0)
    assert [step.is_snapshot for step in steps] == [True, True, False]
    assert reader.looks == 2
    (change,) = steps[2].changes
    assert change.cause == "broker 1 was fenced"
