"""The feeds of the monitor on a phantom cluster: run during a test, and compared with its state."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

from barnabas.monitor.broker_connection import Security
from barnabas.monitor.cluster_feeds import ClusterFeeds
from barnabas.monitor.feed_options import FeedOptions
from barnabas.monitor.table import ClusterTable
from barnabas.testing.phantom import PhantomCluster
from barnabas.testing.phantom_state import PhantomState


def feeds_of(phantom: PhantomCluster, **options: Any) -> ClusterFeeds:
    options.setdefault("interval_s", 0.05)
    options.setdefault("timeout_s", 20.0)
    options.setdefault("budget_share", 1.0)
    return ClusterFeeds(list(phantom.addresses.values()), Security(), FeedOptions(**options), clock_ms=clock_ms)


def clock_ms() -> int:
    return time.time_ns() // 1_000_000


@asynccontextmanager
async def running(feeds: ClusterFeeds) -> AsyncIterator[ClusterFeeds]:
    """Runs the feeds; the first poll is complete when this yields."""
    first = asyncio.Event()
    task = asyncio.create_task(feeds.run(first.set))
    try:
        waits = asyncio.create_task(first.wait())
        await asyncio.wait([task, waits], timeout=40, return_when=asyncio.FIRST_COMPLETED)
        assert first.is_set(), task
        yield feeds
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def until(condition: Callable[[], bool], what: str, within_s: float = 30.0) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.05)


def run(main: Coroutine[None, None, None]) -> None:
    asyncio.run(asyncio.wait_for(main, 60))


Contents = dict[str, tuple[int, int, tuple[int, ...], tuple[int, ...]]]


def contents(table: ClusterTable) -> Contents:
    """Returns the contents of the table, without the journal's own topic."""
    return {
        str(state.key): (state.leader, state.leader_epoch, state.replicas, tuple(sorted(state.isr)))
        for state in table.values()
        if not state.topic.startswith("__")
    }


def truth(state: PhantomState) -> Contents:
    return {
        f"{topic.name}-{index}": (row.leader, row.leader_epoch, tuple(row.replicas), tuple(sorted(row.isr)))
        for topic, index, row in state.every()
    }
