"""Tasks that lose a cancellation end all the same."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from barnabas.monitor.ending import end_tasks


async def _loses(times: int) -> None:
    """Waits forever, and loses so many cancellations."""
    for _ in range(times):
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
    await asyncio.Event().wait()


def test_a_task_that_loses_its_cancellation_is_cancelled_again() -> None:
    async def main() -> None:
        tasks = [asyncio.create_task(_loses(times)) for times in (0, 1, 2)]
        await asyncio.sleep(0)
        await end_tasks(tasks)
        assert all(task.cancelled() for task in tasks)

    asyncio.run(asyncio.wait_for(main(), 20))


def test_a_task_that_never_ends_keeps_nobody_waiting() -> None:
    async def main() -> None:
        task = asyncio.create_task(_loses(3))
        await asyncio.sleep(0)
        await end_tasks([task], tries=2)
        assert not task.done()
        await end_tasks([task])

    asyncio.run(asyncio.wait_for(main(), 20))
