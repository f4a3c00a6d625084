"""A task that a controller repeats while it is active."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.common.host import Timer, Timers


class Periodic:
    """Runs `task` every `period_ms`; the first time after `first_ms` if that is given."""

    __slots__ = ("_first_ms", "_period_ms", "_task", "_timer", "_timers")

    def __init__(
        self, timers: Timers, period_ms: int, task: Callable[[], None], *, first_ms: int | None = None
    ) -> None:
        self._timers = timers
        self._period_ms = period_ms
        self._first_ms = period_ms if first_ms is None else first_ms
        self._task = task
        self._timer: Timer | None = None

    def start(self) -> None:
        self._schedule(self._first_ms)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _schedule(self, delay_ms: int) -> None:
        self.stop()
        self._timer = self._timers.call_later(delay_ms, self._run)

    def _run(self) -> None:
        self._schedule(self._period_ms)
        self._task()
