"""The watch over a cluster: an endless sequence of its changes, for `barnabas monitor` and other callers.

    async for step in watch(feeds, interval_s=1.0, clock_ms=...):
        step.table, step.changes, step.problem

It never ends by itself, and continues after brokers could not be reached. A caller that stops iterating closes it
with `aclose`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import Final, NamedTuple

from barnabas.monitor.change_set import ChangeSet
from barnabas.monitor.changes import Change, Event
from barnabas.monitor.cluster_feeds import ClusterFeeds
from barnabas.monitor.course import Course
from barnabas.monitor.ending import end_tasks
from barnabas.monitor.packed_changes import PackedChanges
from barnabas.monitor.table import ClusterTable

#: The interval between two checks of changes that wait for their causes.
_CAUSE_INTERVAL_S: Final = 0.25
#: News that arrive within this time make one step.
_GATHER_S: Final = 0.1


class Step(NamedTuple):
    """The result of one step of a watch. `table` is None before the first look. `problem` says why no broker answers,
    `log_problem` why the metadata log that was wanted is not read.
    """

    table: ClusterTable | None
    changes: list[Change]
    problem: str | None
    log_problem: str | None = None
    #: Self-reports of brokers: pauses, slow disks, lost links.
    reports: tuple[Event, ...] = ()
    packed: tuple[PackedChanges, ...] = ()


#: The kinds of events that a broker writes about itself and its links (docs/explain.md).
REPORTS: Final = frozenset(
    {
        "stalled",
        "overloaded",
        "clock-jumped",
        "throttled",
        "disk-slow",
        "disk-full",
        "disk-failed",
        "link-lost",
        "recovering",
    }
)


async def watch(
    feeds: ClusterFeeds, *, interval_s: float, clock_ms: Callable[[], int], packs: bool = False
) -> AsyncGenerator[Step, None]:
    """Yields a step when something changed, and one in each interval. With `packs`, the changes of very many partitions
    by one version are in `packed`, and not among the others, which they follow.
    """
    course = Course(feeds.table, packs=packs)
    seen: deque[ChangeSet] = deque()
    is_filled = False

    def on_first() -> None:
        nonlocal is_filled
        is_filled = True
        feeds.table.subscribe(lambda change_set: seen.append(change_set) if change_set.is_of_states else None)
        feeds.news.set()

    task = asyncio.create_task(feeds.run(on_first))
    try:
        while True:
            await _news(feeds, task, _CAUSE_INTERVAL_S if course.waits else interval_s)
            now_ms = clock_ms()
            changes = [] if feeds.problem is not None else course.reachable(now_ms)
            course.has_journal = feeds.has_journal
            while seen:
                course.seen(seen.popleft())
                await asyncio.sleep(0)
            events = feeds.events()
            reports = tuple(event for event in events if event["kind"] in REPORTS)
            for some in course.explaining(events, now_ms):
                changes += some
                if packed := course.packed():
                    yield Step(feeds.table, changes, feeds.problem, feeds.log_problem, packed=tuple(packed))
                    changes = []
                await asyncio.sleep(0)
            if feeds.problem is not None:
                changes += course.unreachable(feeds.problem, now_ms)
            if is_filled or changes or reports or feeds.problem is not None:
                table = feeds.table if is_filled else None
                yield Step(table, changes, feeds.problem, feeds.log_problem, reports)
    finally:
        await end_tasks([task])


async def _news(feeds: ClusterFeeds, task: asyncio.Task[None], timeout_s: float) -> None:
    """Waits until the feeds have news, at most for `timeout_s`. Raises the exception that ended the feeds."""
    with suppress(TimeoutError):
        await asyncio.wait_for(feeds.news.wait(), timeout_s)
        await asyncio.sleep(_GATHER_S)
    await feeds.settled()
    feeds.news.clear()
    if task.done():
        task.result()
