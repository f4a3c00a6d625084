"""Deferred signals: between the start of a process and its entry in the state file, an interrupted command could not
stop it; and an exception at an arbitrary point of an event loop would interrupt the closing of resources.
"""

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
    """Defers SIGINT, SIGTERM and SIGHUP to the end of the block. In a thread other than the main one, which gets no
    signals, it does nothing. Keep the block short.
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
    """Runs the work on the main thread's event loop; the first SIGINT, SIGTERM or SIGHUP cancels it. Returns whether
    one arrived.

    Further signals, while the work closes its resources, have no effect.
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
