"""The watch over a cluster: an endless sequence of its states and changes, for `barnabas monitor` and other callers.

    async for step in watch(reader, interval_s=1.0, clock_ms=...):
        step.snapshot, step.changes, step.problem

It never ends by itself, and continues after brokers could not be reached. A caller that stops iterating closes it
with `aclose`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Final, NamedTuple, Protocol

from barnabas.monitor.changes import Change, Event
from barnabas.monitor.cluster_reader import Unreachable
from barnabas.monitor.course import Course
from barnabas.monitor.snapshot import Snapshot

#: The interval between reads of the journal while changes wait for their causes.
_JOURNAL_INTERVAL_S: Final = 0.25


class Reader(Protocol):
    """The source of snapshots that `watch` reads: `cluster_reader.ClusterReader`."""

    async def read_snapshot(self) -> Snapshot:
        """Returns a snapshot. Raises Unreachable."""

    async def new_events(self) -> list[Event]: ...

    def close(self) -> None: ...


class Step(NamedTuple):
    """One step of a watch. `snapshot` is the last one, None before the first. `problem` says why no broker answers."""

    snapshot: Snapshot | None
    changes: list[Change]
    problem: str | None
    #: Whether this is a new snapshot, and not only news from the journal.
    is_snapshot: bool


async def watch(reader: Reader, *, interval_s: float, clock_ms: Callable[[], int]) -> AsyncGenerator[Step, None]:
    """Yields a step for each snapshot, and one whenever a change gets its cause in between."""
    course = Course()
    loop = asyncio.get_running_loop()
    try:
        while True:
            begin = loop.time()
            next_snapshot = begin + interval_s
            try:
                snapshot = await reader.read_snapshot()
            except Unreachable as error:
                yield Step(course.snapshot, course.unreachable(str(error), clock_ms()), course.problem, True)
            else:
                if all(broker.problem is None for broker in snapshot.brokers.values()):
                    # A snapshot of many partitions is work for the brokers: spend at most half of the time on it.
                    next_snapshot = max(next_snapshot, 2 * loop.time() - begin)
                changes = course.seen(snapshot, await reader.new_events())
                yield Step(course.snapshot, changes, None, True)
            while course.waits and loop.time() + _JOURNAL_INTERVAL_S < next_snapshot:
                await asyncio.sleep(_JOURNAL_INTERVAL_S)
                changes = course.explained(await reader.new_events(), clock_ms())
                if changes:
                    yield Step(course.snapshot, changes, course.problem, False)
            await asyncio.sleep(max(0.0, next_snapshot - loop.time()))
    finally:
        reader.close()
