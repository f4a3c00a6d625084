"""Progress of a long startup: a log line every few seconds, to show that it continues."""

from __future__ import annotations

from barnabas.common.host import Host

_INTERVAL_MS = 2_000


class ProgressLog:
    """Logs `what: done of total` at most every two seconds, and a last line if there was one before."""

    __slots__ = ("_done", "_host", "_reported_ms", "_started_ms", "_total", "_what")

    def __init__(self, host: Host, what: str, total: int) -> None:
        self._host = host
        self._what = what
        self._total = total
        self._done = 0
        self._started_ms = self._reported_ms = host.clock.now_ms()

    def step(self) -> None:
        """Counts one more item as done."""
        self._done += 1
        now_ms = self._host.clock.now_ms()
        if now_ms - self._reported_ms >= _INTERVAL_MS and self._done < self._total:
            self._reported_ms = now_ms
            self._host.faults.inform(f"{self._what}: {self._done} of {self._total}")

    def end(self) -> None:
        """Logs the final count, if a count was logged before: work that ends quickly logs nothing."""
        if self._reported_ms != self._started_ms:
            taken_ms = self._host.clock.now_ms() - self._started_ms
            self._host.faults.inform(f"{self._what}: {self._total} in {taken_ms / 1000:.1f} s")
