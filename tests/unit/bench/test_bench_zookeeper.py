"""The ZooKeeper rows of the bench: requests in flight, and the longest turns of brokers during a failure."""

from __future__ import annotations

import sys
from pathlib import Path

BENCH = Path(__file__).parents[3] / "bench"
sys.path.insert(0, str(BENCH))

import zookeeper  # noqa: E402
from barnabas.zookeeper.wire.frames import request_frame  # noqa: E402
from zookeeper_mode import Turns  # noqa: E402


def test_requests_in_flight_are_counted_once() -> None:
    """A server that answers several requests at once gets as many new ones, and never more than there are."""

    class Socket:
        def __init__(self) -> None:
            self.sent = 0

        def sendall(self, data: bytes) -> None:
            self.sent += len(data) // len(frame)

    class Line:
        socket = Socket()

        def receive(self) -> list[bytes]:
            return [b""] * 7

    op, request = zookeeper._REQUESTS["get"]
    frame = request_frame(1, op, request)
    assert zookeeper.piped(Line(), op, request, 30, in_flight=10) > 0  # type: ignore[arg-type]
    assert Line.socket.sent == 30


def test_the_longest_turn_of_a_failure_does_not_count_turns_before_it() -> None:
    before = Turns.of(_turns(0.08, 10, 11, 12))
    assert Turns.of(_turns(0.08, 15, 17, 18)).longest_since(before) == 0.05
    assert Turns.of(_turns(0.08, 15, 16, 18)).longest_since(before) == 0.08
    assert Turns.of(_turns(0.09, 15, 16, 18)).longest_since(before) == 0.09
    assert Turns.of(_turns(0.08, 15, 16, 17)).longest_since(before) == 0.001


def _turns(longest_s: float, *counts: int) -> str:
    rows = zip(("0.001", "0.05", "+Inf"), counts, strict=True)
    return "".join(f'barnabas_loop_turn_seconds_bucket{{le="{bound}"}} {count}\n' for bound, count in rows) + (
        f"barnabas_loop_turn_seconds_max {longest_s}\nbarnabas_loop_turn_cpu_seconds_max 0.5\n"
    )
