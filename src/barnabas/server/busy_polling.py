"""Busy waiting between requests that follow each other closely.

A sleeping core takes some tens of microseconds to wake, more in a virtual machine: for a client with one request in
flight that is most of the latency. While requests arrive within `_WINDOW_NS` of each other, the loop polls for the next
one without sleeping, up to that time. An idle broker, or one with requests further apart, sleeps as usual.
"""

from __future__ import annotations

import asyncio
from time import perf_counter_ns

_WINDOW_NS = 200_000


class BusyPolling:
    """Busy waiting of one event loop, which reports every read to it."""

    __slots__ = ("_awake", "_last_ns", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._last_ns = 0
        self._awake = False

    def on_read(self, now_ns: int) -> None:
        """Records that requests arrived and are served, at this time of `perf_counter_ns`."""
        follows_closely = now_ns - self._last_ns < _WINDOW_NS
        self._last_ns = now_ns
        if follows_closely and not self._awake:
            self._awake = True
            self._loop.call_soon(self._look_again)

    def _look_again(self) -> None:
        if perf_counter_ns() - self._last_ns < _WINDOW_NS:
            self._loop.call_soon(self._look_again)
        else:
            self._awake = False
