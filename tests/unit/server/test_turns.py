"""The broker measures how long a turn holds its loop, and logs the cause once."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest
import uvloop
from tests.support.metrics import Metrics
from tests.support.wired import WiredBroker

from barnabas.broker.handlers import describe_cluster
from barnabas.broker.requests.steps import Steps
from barnabas.common.continuations import later, run
from barnabas.common.metrics import lines_of
from barnabas.protocol import codec
from barnabas.protocol.messages.describe_cluster import DescribeClusterRequest
from barnabas.protocol.messages.header import RequestHeader
from barnabas.server import turns as turns_module
from barnabas.server.host import ServerHost
from barnabas.server.listener import ListeningSocket, SocketOptions
from barnabas.server.turns import FILE_VARIABLE, Turns
from barnabas.simulation.host import VirtualTime

MS = 1_000_000


class Clocks:
    """Wall and CPU time as the test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall_ns = self.cpu_ns = 1_000 * MS
        monkeypatch.setattr(turns_module, "perf_counter_ns", lambda: self.wall_ns)
        monkeypatch.setattr(turns_module, "thread_time_ns", lambda: self.cpu_ns)

    def take(self, wall_ms: float, cpu_ms: float) -> None:
        self.wall_ns += int(wall_ms * MS)
        self.cpu_ns += int(cpu_ms * MS)


@pytest.fixture(autouse=True)
def not_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """The long turns here are wanted."""
    monkeypatch.delenv(FILE_VARIABLE, raising=False)


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    return Clocks(monkeypatch)


def metrics_of(turns: Turns) -> Metrics:
    return Metrics("".join(line for family in turns.families() for line in lines_of(family)))


def test_a_histogram_of_turns(clocks: Clocks) -> None:
    turns = Turns()
    turns.run(lambda: clocks.take(5_000, 5_000))
    turns.begin_serving()
    for wall_ms in (0.5, 0.5, 1.5, 30, 20_000):
        turns.run(lambda: clocks.take(wall_ms, wall_ms / 2))  # noqa: B023
    turns.end_serving()
    turns.run(lambda: clocks.take(5_000, 5_000))
    metrics = metrics_of(turns)
    buckets = {le: metrics("barnabas_loop_turn_seconds_bucket", le=le) for le in ("0.001", "0.002", "0.02", "0.05")}
    assert buckets == {"0.001": 2, "0.002": 3, "0.02": 3, "0.05": 4}
    assert metrics("barnabas_loop_turn_seconds_bucket", le="10.0") == 4
    assert metrics("barnabas_loop_turn_seconds_bucket", le="+Inf") == 5
    assert metrics("barnabas_loop_turn_seconds_count") == 5
    assert metrics("barnabas_loop_turn_seconds_max") == 20
    assert metrics("barnabas_loop_turn_cpu_seconds_max") == 10


def test_cpu_time_is_known_to_within_five_milliseconds_and_never_too_low(clocks: Clocks) -> None:
    turns = Turns()
    turns.begin_serving()
    for _ in range(1_000):
        turns.run(lambda: clocks.take(0.9, 0.9))
    turns.run(lambda: clocks.take(200, 40))
    assert 40 * MS <= turns.longest_cpu_ns <= 46 * MS


def test_a_long_turn_is_logged_once_in_ten_seconds_for_each_kind(
    clocks: Clocks, caplog: pytest.LogCaptureFixture
) -> None:
    turns = Turns()
    turns.begin_serving()

    def slow() -> None:
        clocks.take(150, 120)

    def slower() -> None:
        clocks.take(300, 20)

    with caplog.at_level(logging.WARNING, "barnabas.turns"):
        for _ in range(5):
            turns.run(slow)
        turns.run(slower)
        turns.run(lambda: clocks.take(99, 99))
        assert len(caplog.messages) == 2
        clocks.take(10_000, 0)
        turns.run(slow)
    first, other, again = caplog.messages
    assert "150 ms (120 ms of CPU)" in first
    assert first.endswith("slow")
    assert "300 ms (20 ms of CPU)" in other
    assert other.endswith("slower")
    assert again.endswith("slow; 4 more such turns since the last such line, of up to 150 ms")


class _Request:
    def on_error(self, error: Exception) -> None:
        raise error

    def turn_name(self) -> tuple[str, str]:
        return "Fetch", "of client 'lazy'"


def test_parts_of_a_request_are_named_by_the_request(clocks: Clocks, caplog: pytest.LogCaptureFixture) -> None:
    turns = Turns()
    turns.begin_serving()
    parts: list[Callable[[], None]] = []

    def slow_part() -> None:
        clocks.take(150, 120)

    def slow_work() -> Generator[int, None, None]:
        clocks.take(150, 120)
        yield 1

    virtual = VirtualTime()
    virtual.enter = turns.run  # type: ignore[method-assign]
    with caplog.at_level(logging.WARNING, "barnabas.turns"):
        run(_Request(), lambda: parts.append(later(slow_part)))
        turns.run(parts[0])
        Steps(virtual, virtual).start(slow_work(), lambda _: None, _Request())
        virtual.run_for(0)
    part, slice_ = caplog.messages
    assert part.endswith("slow_part for Fetch of client 'lazy'")
    assert "a slice of Fetch of client 'lazy' (" in slice_
    assert slice_.endswith("slow_work)")


def test_a_callback_that_raises_is_measured_too(clocks: Clocks) -> None:
    turns = Turns()
    turns.begin_serving()

    def fails() -> None:
        clocks.take(60, 60)
        raise ValueError

    with pytest.raises(ValueError):
        turns.run(fails)
    assert turns.longest_cpu_ns == 60 * MS


def test_tests_can_ask_for_a_line_of_each_long_turn(
    clocks: Clocks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "turns"
    monkeypatch.setenv(FILE_VARIABLE, str(file))
    turns = Turns()
    turns.run(lambda: clocks.take(60, 60))
    turns.begin_serving()
    turns.run(lambda: clocks.take(90, 15))
    assert not file.exists()
    turns.run(lambda: clocks.take(90, 60))
    (line,) = file.read_text().splitlines()
    assert line.split()[1:3] == ["90", "60"]


@pytest.mark.long_turns("they are what the broker is to notice")
@pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_the_request_the_connection_and_the_client_are_named(
    make_loop: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Every entry is measured: a request, a timer, what comes soon, a result from a thread."""
    wired = WiredBroker()
    dispatcher = wired.broker.dispatcher("PLAINTEXT")

    def spin() -> None:
        until_ns = time.perf_counter_ns() + 110 * MS
        while time.perf_counter_ns() < until_ns:
            pass

    def slow_handler(*_: Any) -> None:
        spin()

    def slow_timer() -> None:
        spin()

    def slow_callback() -> None:
        spin()

    def slow_result(result: Any, error: BaseException | None) -> None:
        spin()
        done.set()

    monkeypatch.setattr(describe_cluster, "handle", slow_handler)

    async def main() -> str:
        loop = asyncio.get_running_loop()
        host = ServerHost(loop)
        host.turns.begin_serving()
        listening = await ListeningSocket.bind(
            dispatcher, "PLAINTEXT", "127.0.0.1", 0, SocketOptions(), turns=host.turns
        )
        await listening.serve()
        _, writer = await asyncio.open_connection("127.0.0.1", listening.port)
        header = RequestHeader(request_api_key=60, request_api_version=1, correlation_id=1, client_id="greedy")
        frame = codec.encode(header, 2) + codec.encode(DescribeClusterRequest(), 1)
        writer.write(len(frame).to_bytes(4, "big") + frame)
        host.timers.call_later(1, slow_timer)
        host.timers.call_soon(slow_callback)
        host.blocking.run(lambda: None, slow_result)
        async with asyncio.timeout(60):
            await done.wait()
            while len(caplog.messages) < 4:
                await asyncio.sleep(0.01)
        peer: str = "/{}:{}".format(*writer.get_extra_info("sockname"))
        writer.close()
        listening.close()
        host.close()
        assert host.turns.longest_ns >= 110 * MS
        return peer

    done = asyncio.Event()
    with caplog.at_level(logging.WARNING, "barnabas.turns"), asyncio.Runner(loop_factory=make_loop) as runner:
        peer = runner.run(main())
    told = "\n".join(caplog.messages)
    assert f"DescribeCluster version 1 of client 'greedy' from {peer} (PLAINTEXT)" in told
    for name in ("slow_timer", "slow_callback", "slow_result"):
        assert name in told
