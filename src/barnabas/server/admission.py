"""The admission of accepted connections on one listener: what `ConnectionLimits` decides, with sockets and timers.

A listener without a free slot, or above a creation rate, keeps the connection that it accepted last and accepts no
other until that one can continue. A connection of an address above its rate is held for the time to wait, then closed,
and other addresses are served meanwhile.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final, NamedTuple

from barnabas.broker.throttling.connection_limits import ConnectionLimits, ConnectionThrottled, Slot, TooManyConnections
from barnabas.common.addresses import peer_address

#: Connections held for their addresses; with more, the one held for the longest time is closed early.
_HELD_MAX: Final = 1_000


class _Waiting(NamedTuple):
    """The accepted connection that waits for the listener's rest to end, and for a slot."""

    accepted: socket.socket
    address: str
    since_ms: int
    until_ms: int


class Admission:
    """The admission of the connections of one listener."""

    def __init__(
        self,
        limits: ConnectionLimits,
        listener: str,
        now_ms: Callable[[], int],
        rejected: Callable[[str, int], None],
    ) -> None:
        """`rejected` is called with the address and its limit when an address has too many connections."""
        self._limits = limits
        self._listener = listener
        self._now_ms = now_ms
        self._rejected = rejected
        self._enter: Callable[[socket.socket, Slot], None] | None = None
        self._resume: Callable[[], None] | None = None
        self._waiting: _Waiting | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._held: dict[socket.socket, asyncio.TimerHandle] = {}
        limits.when_free(self._continue)

    def connect(self, enter: Callable[[socket.socket, Slot], None], resume: Callable[[], None]) -> None:
        """Sets the functions of the accept loop. `enter` gets a connection that is admitted later; `resume` is called
        when the listener can accept again.
        """
        self._enter, self._resume = enter, resume

    @property
    def held(self) -> int:
        """Returns how many connections are kept without a slot."""
        return len(self._held) + (self._waiting is not None)

    @property
    def is_blocked(self) -> bool:
        """Returns whether the listener must not accept."""
        return self._waiting is not None

    def offer(self, accepted: socket.socket, host: str) -> Slot | None:
        """Returns the slot of the connection if it is admitted now; None if it is refused or waits (`is_blocked`)."""
        limits, now_ms = self._limits, self._now_ms()
        address = peer_address(host)
        rest_ms = limits.arrive(self._listener, now_ms)
        if rest_ms or not limits.has_slot(self._listener):
            self._waiting = _Waiting(accepted, address, now_ms, now_ms + rest_ms)
            if rest_ms:
                self._call_later(rest_ms)
            return None
        return self._take(accepted, address, now_ms)

    def _call_later(self, time_ms: int) -> None:
        self._timer = asyncio.get_running_loop().call_later(time_ms / 1000, self._rested)

    def _rested(self) -> None:
        self._timer = None
        self._continue()

    def _continue(self) -> None:
        """Admits the connection that waits, if it can be."""
        waiting = self._waiting
        if waiting is None or self._timer is not None or not self._limits.has_slot(self._listener):
            return
        now_ms = self._now_ms()
        if now_ms < waiting.until_ms:
            self._call_later(waiting.until_ms - now_ms)  # The timer can fire early: its clock is coarser.
            return
        self._waiting = None
        self._limits.waited(self._listener, now_ms - waiting.since_ms)
        slot = self._take(waiting.accepted, waiting.address, now_ms)
        assert self._enter is not None, "the accept loop is connected"
        assert self._resume is not None, "the accept loop is connected"
        if slot is not None:
            self._enter(waiting.accepted, slot)
        self._resume()

    def _take(self, accepted: socket.socket, address: str, now_ms: int) -> Slot | None:
        verdict = self._limits.take(self._listener, address, now_ms)
        if isinstance(verdict, Slot):
            return verdict
        if isinstance(verdict, TooManyConnections):
            self._rejected(address, verdict.count_max)
            accepted.close()
        else:
            self._hold(accepted, verdict)
        return None

    def _hold(self, accepted: socket.socket, throttled: ConnectionThrottled) -> None:
        if len(self._held) >= _HELD_MAX:
            self._drop(next(iter(self._held)))
        loop = asyncio.get_running_loop()
        self._held[accepted] = loop.call_later(throttled.time_ms / 1000, self._drop, accepted)

    def _drop(self, held: socket.socket) -> None:
        self._held.pop(held).cancel()
        held.close()

    def close(self) -> None:
        """Closes the connections that have no slot. No other will be admitted."""
        self._limits.no_longer_when_free(self._continue)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.accepted.close()
        for held in tuple(self._held):
            self._drop(held)
