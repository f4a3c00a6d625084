"""Requests that a client sends directly to the active controller, which answers once its decision is committed.

A majority of the voters can be connected and still confirm nothing, because their disks are full; then the decision is
neither committed nor refused. The client gets REQUEST_TIMED_OUT after its request's own timeout (5 s at least), or
after 30 s, as from a broker that forwards the request. The decision can still take effect.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.requests.forwarding import TIMEOUT_MS_MIN
from barnabas.broker.requests.in_flight import InFlight
from barnabas.broker.requests.unanswered import timed_out
from barnabas.common.continuations import detached, run
from barnabas.common.host import Timer, Timers

#: The longest wait for a decision, whatever the request's own timeout.
TIMEOUT_MS_MAX: Final = 30_000


class DecidedRequest(InFlight):
    """A request that waits for a decision of this node's controller."""

    __slots__ = ("_timer",)

    _timer: Timer | None

    def await_decision(self, timers: Timers) -> None:
        """Limits the wait, which begins now."""
        timeout_ms: int = getattr(self.message, "timeout_ms", TIMEOUT_MS_MAX)
        self._timer = detached(
            timers.call_later, min(max(timeout_ms, TIMEOUT_MS_MIN), TIMEOUT_MS_MAX), self._on_timeout
        )
        if self.on_abandoned is None:
            self.on_abandoned = self._cancel

    def release(self) -> None:
        self._cancel()
        super().release()

    def _cancel(self) -> None:
        timer: Timer | None = getattr(self, "_timer", None)
        if timer is not None:
            self._timer = None
            timer.cancel()

    def _on_timeout(self) -> None:
        self._timer = None
        if self.chunks is None and self._is_wanted():
            self._failed = True
            run(self.connection, self._time_out)

    def _time_out(self) -> None:
        message, connection = self.message, self.connection
        if message is None or connection.is_exclusive:
            connection.fail(f"{self} was not decided in time", None)
        else:
            connection.complete(self, self.encode(timed_out(message, self.api_version)))
