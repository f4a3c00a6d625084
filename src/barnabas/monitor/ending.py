"""The end of tasks. `asyncio.wait_for` loses a cancellation that arrives at the moment at which its wait ends, so one
cancellation is not enough: while brokers die, the feeds have something to wait for at every moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final

_AGAIN_S: Final = 0.5


async def end_tasks(tasks: Iterable[asyncio.Task[Any]], *, tries: int | None = None, again_s: float = _AGAIN_S) -> None:
    """Cancels tasks again and again until they have ended; with `tries`, at most that often, because some may never
    end.
    """
    left = {task for task in tasks if not task.done()}
    count = 0
    while left and (tries is None or count < tries):
        count += 1
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=again_s)
