"""Signals that wait: between the start of a process and the note of it, nobody could stop what was started; and on a
loop, where an exception out of nowhere would break off whatever is being closed."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_ENDING = (signal.SIGINT, signal.SIGTERM) if sys.platform == "win32" else (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def held() -> Iterator[None]:
    """SIGINT, SIGTERM and SIGHUP that come meanwhile are heeded at the end. Other threads than the main one, to which
    no signals come, go through it as if it were not there. Keep it short.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pending: list[int] = []

    def on_signal(number: int, _frame: FrameType | None) -> None:
        pending.append(number)

    before = [(number, signal.signal(number, on_signal)) for number in _ENDING]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        for came in dict.fromkeys(pending):
            signal.raise_signal(came)


async def until_signalled(work: Coroutine[Any, Any, None]) -> bool:
    """Does the work on the main thread's loop; the first SIGINT, SIGTERM or SIGHUP cancels it. Whether one came.

    Others that come while it closes what it had open change nothing.
    """
    loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work)
    came: list[int] = []

    def on_signal(number: int) -> None:
        came.append(number)
        if len(came) == 1:
            task.cancel()

    if sys.platform == "win32":
        await task
        return False
    before = [(number, signal.getsignal(number)) for number in _ENDING]
    for number in _ENDING:
        loop.add_signal_handler(number, on_signal, number)
    try:
        await task
    except asyncio.CancelledError:
        if not came:
            raise
    finally:
        for number, handler in before:
            loop.remove_signal_handler(number)
            signal.signal(number, handler)
    return bool(came)
