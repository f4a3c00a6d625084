"""Clients that use up memory: the process stays within its budget, others are served, and memory is released."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from tests.clients.python_clients import ConfluentKafka
from tests.clients.servers import Server
from tests.clients.wire import PRODUCE, Wire, batch, produce_body, record, wait_until_led
from tests.support.flood import flooding
from tests.system.test_abuse import resident_bytes

MB = 1_000_000


class Watch(threading.Thread):
    """A well-behaved producer, and the memory of the server it talks to."""

    def __init__(self, server: Server, topic: str) -> None:
        super().__init__(daemon=True)
        self.server = server
        self.peak = 0
        self.waits_s: list[float] = []
        self.error: BaseException | None = None
        self._body = produce_body(topic, 0, batch([record(0, None, b"x" * 100)]))
        self._ends = threading.Event()

    def run(self) -> None:
        try:
            with Wire(self.server.port) as wire:
                while not self._ends.wait(0.005):
                    begun = time.monotonic()
                    answer = wire.request(PRODUCE, 7, self._body)
                    self.waits_s.append(time.monotonic() - begun)
                    assert answer
                    self.peak = max(self.peak, resident_bytes(self.server.pid))
        except BaseException as error:
            self.error = error

    def end(self) -> None:
        self._ends.set()
        self.join(60)
        assert self.error is None, self.error

    def p99_s(self) -> float:
        return sorted(self.waits_s)[len(self.waits_s) * 99 // 100]


@contextmanager
def watching(server: Server, topic: str) -> Iterator[Watch]:
    watch = Watch(server, topic)
    watch.start()
    try:
        yield watch
    finally:
        watch.end()


def flooded(server: Server, kind: str, count: int, hold_s: float) -> tuple[Watch, int, int]:
    """Watches the server during a flood of this duration; returns the watch, and the memory before and after it."""
    client = ConfluentKafka(server.bootstrap)
    for topic in ("flood", "bystander"):
        client.create_topic(topic, 1)
        wait_until_led(server.port, topic)
    with Wire(server.port) as wire:
        large = produce_body("flood", 0, batch([record(0, None, b"y" * 900_000)]))
        for _ in range(60):
            wire.request(PRODUCE, 7, large)
    before = resident_bytes(server.pid)
    with watching(server, "bystander") as watch, flooding(server.port, kind, count):
        time.sleep(hold_s)
    return watch, before, settled_bytes(server, before)


def settled_bytes(server: Server, before: int) -> int:
    """Returns the resident bytes once they are near the earlier value, or after a minute."""
    until = time.monotonic() + 60
    while (after := resident_bytes(server.pid)) - before >= 45 * MB and time.monotonic() < until:
        time.sleep(0.5)
    return after


@pytest.mark.parametrize(("kind", "count"), [("announce", 600), ("readers", 100)])
def test_a_flood_stays_within_the_budget(own_server: Callable[..., Server], kind: str, count: int) -> None:
    server = own_server(queued_max_request_bytes=str(32 * MB)).start()
    watch, before, after = flooded(server, kind, count, 1.0)
    assert watch.peak - before < 32 * MB + 60 * MB
    assert after - before < 50 * MB
    assert watch.p99_s() < 0.5, "on a busy machine; the whole test is stricter"


@pytest.mark.full
@pytest.mark.parametrize(("kind", "count"), [("announce", 3000), ("readers", 300)])
def test_a_large_flood_stays_within_the_budget(own_server: Callable[..., Server], kind: str, count: int) -> None:
    server = own_server(queued_max_request_bytes=str(256 * MB)).start()
    watch, before, after = flooded(server, kind, count, 20.0)
    figures = (round(each / MB) for each in (before, watch.peak, after))
    print(kind, count, "MB before, at its peak, after:", *figures, f"p99 {watch.p99_s():.3f} s of {len(watch.waits_s)}")
    assert watch.peak - before < 256 * MB + 100 * MB
    assert after - before < 50 * MB
    assert watch.p99_s() < 0.1


@pytest.mark.full
def test_twenty_thousand_members_with_large_metadata(own_server: Callable[..., Server]) -> None:
    """The members have 1 GB of metadata in a quarter of the budget: those that do not fit get a retriable error."""
    server = own_server(queued_max_request_bytes=str(256 * MB)).start()
    watch, before, after = flooded(server, "members", 200, 5.0)
    figures = (round(each / MB) for each in (before, watch.peak, after))
    print("members MB before, at its peak, a minute later:", *figures, f"p99 {watch.p99_s():.3f} s")
    assert watch.peak - before < 256 * MB + 100 * MB
    assert after - before < 50 * MB
    assert watch.p99_s() < 0.1
