"""The clock of this machine."""

from __future__ import annotations

import time


class SystemClock:
    now_s = staticmethod(time.monotonic)

    def now_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000
