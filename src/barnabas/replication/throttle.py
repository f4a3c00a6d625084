"""A limit on copied bytes: a rate over sliding windows, as in Kafka's replication quotas (KIP-73, KIP-113).

The throttle delays nothing itself: `quotas.py` and the moves between directories query how long to wait.
"""

from __future__ import annotations

from collections import deque

UNLIMITED = (1 << 63) - 1


class Throttle:
    """A limit of `rate_bytes` per second over `windows` windows of `window_ms` each. Traffic exceeds the limit by one
    response at most.
    """

    __slots__ = ("_samples", "_total", "_window_ms", "_windows", "rate_bytes")

    def __init__(self, windows: int, window_ms: int, rate_bytes: int = UNLIMITED) -> None:
        self._windows = windows
        self._window_ms = window_ms
        #: [start of the window, bytes in it], oldest first.
        self._samples: deque[list[int]] = deque()
        self._total = 0
        self.rate_bytes = rate_bytes

    def record(self, size_bytes: int, now_ms: int) -> None:
        samples = self._samples
        if not samples or now_ms - samples[-1][0] >= self._window_ms:
            samples.append([now_ms, 0])
        samples[-1][1] += size_bytes
        self._total += size_bytes
        self._forget(now_ms)

    def wait_ms(self, now_ms: int) -> int:
        """Returns how long copying has to pause; 0 while the rate is not exceeded."""
        self._forget(now_ms)
        samples = self._samples
        if not samples or self.rate_bytes >= UNLIMITED:
            return 0
        elapsed_ms = max(now_ms - samples[0][0], self._window_ms)
        due_ms = self._total * 1000 // max(self.rate_bytes, 1)
        return min(max(due_ms - elapsed_ms, 0), self._window_ms)

    def _forget(self, now_ms: int) -> None:
        samples = self._samples
        while samples and now_ms - samples[0][0] > self._window_ms * self._windows:
            self._total -= samples.popleft()[1]
