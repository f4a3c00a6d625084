"""The CPU time that one request is charged with."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from barnabas.broker.throttling.request_throttle import RequestThrottle


def test_the_time_since_the_last_reading_is_charged() -> None:
    cpu_ns = 7_000_000_000
    charged: list[int] = []

    def used(client: object, used_ns: int) -> int:
        charged.append(used_ns)
        return 0

    host: Any = SimpleNamespace(cpu_ns=lambda: cpu_ns)
    throttles: Any = SimpleNamespace(measures_cpu=True, used_cpu=used)
    connection: Any = SimpleNamespace()
    throttle = RequestThrottle(throttles, connection, "User:alice", "app", host)
    cpu_ns += 300
    throttle.answered()
    cpu_ns += 50
    throttle.leave()
    cpu_ns += 1_000_000
    throttle.enter()
    cpu_ns += 4
    throttle.leave()
    assert charged == [300, 50, 4], "not the time between leaving and entering"
