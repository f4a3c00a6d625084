"""The port through which a node sends requests to the other nodes of its quorum, and timers that are events.

Responses arrive as events of their own, never from within `send`. After a request without a response it is unknown
whether the peer has acted on it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from barnabas.common.host import Clock, Timer, Timers
from barnabas.protocol.message import Message

#: (host, port)
Address = tuple[str, int]
#: Receives the response; None: no response in time, no connection, or a peer too old for the request.
Reply = Callable[[Message | None], None]


class Peers(Protocol):
    """Requests to other nodes, in the newest version that both sides support.

    Records in a response are valid only until `reply` returns.
    """

    def send(self, address: Address, request: Message, reply: Reply, *, timeout_ms: int) -> None:
        """Sends a request; `reply` is called once, later."""

    def is_refused(self, address: Address) -> bool:
        """Returns whether the last connection to this address was refused, so that no process listens there."""


class NoPeers:
    """The port of a node without other nodes: no request is answered."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers

    def send(self, address: Address, request: Message, reply: Reply, *, timeout_ms: int) -> None:
        self._timers.call_soon(lambda: reply(None))

    def is_refused(self, address: Address) -> bool:
        return False


class EventTimers:
    """Timers whose callbacks are events: `run` carries out the actions of each."""

    def __init__(self, timers: Timers, run: Callable[[Callable[[], None]], None]) -> None:
        self._timers = timers
        self._run = run

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Timer:
        return self._timers.call_later(delay_ms, lambda: self._run(callback))

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._timers.call_soon(lambda: self._run(callback))


class Alarm:
    """A timer that can be postponed cheaply: the underlying timer keeps running, and is then set again."""

    __slots__ = ("_armed_ms", "_callback", "_clock", "_due_ms", "_timer", "_timers")

    def __init__(self, clock: Clock, timers: Timers, callback: Callable[[], None]) -> None:
        self._clock = clock
        self._timers = timers
        self._callback = callback
        self._due_ms: int | None = None
        self._armed_ms = 0
        self._timer: Timer | None = None

    @property
    def is_set(self) -> bool:
        return self._due_ms is not None

    def set(self, delay_ms: int) -> None:
        """Sets the alarm to `delay_ms` from now, replacing the time set before."""
        self._due_ms = self._clock.now_ms() + delay_ms
        if self._timer is not None:
            if self._armed_ms <= self._due_ms:
                return
            self._timer.cancel()
        self._arm(delay_ms)

    def cancel(self) -> None:
        self._due_ms = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, delay_ms: int) -> None:
        self._armed_ms = self._clock.now_ms() + delay_ms
        self._timer = self._timers.call_later(delay_ms, self._fired)

    def _fired(self) -> None:
        self._timer = None
        if self._due_ms is None:
            return
        left_ms = self._due_ms - self._clock.now_ms()
        if left_ms > 0:
            self._arm(left_ms)
            return
        self._due_ms = None
        self._callback()
