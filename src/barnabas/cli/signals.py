"""Signals that wait: between the start of a process and the note of it, nobody could stop what was started."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

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
