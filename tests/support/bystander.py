"""A well-behaved producer next to hostile clients: how long it waits while they send requests at full speed.

    with Bystander(port, "quiet") as bystander, repeated(port, [request]):
        bystander.serves(answers=500)
    assert bystander.percentile_ms(0.99) < ...

The turn watcher (`support.turn_watch`), which measures CPU time, judges how long a broker blocks its loop; times of the
wall clock depend on the load of the machine.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import NamedTuple

from tests.clients import wire

#: The pause between two requests of the bystander.
_PAUSE_S = 0.005


class HostileRequest(NamedTuple):
    api_key: int
    version: int
    body: bytes


class Bystander:
    """A producer that sends a small batch every few milliseconds on one connection and records how long each answer
    takes.
    """

    def __init__(self, port: int, topic: str) -> None:
        self._port = port
        self._body = wire.produce_body(topic, 0, wire.batch([wire.record(0, b"k", b"bystander")]))
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bystander")
        self._failed: BaseException | None = None
        self.waits_ms: list[float] = []

    def __enter__(self) -> Bystander:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            with wire.Wire(self._port) as connection:
                while not self._stopped.is_set():
                    begun = time.perf_counter()
                    connection.request(wire.PRODUCE, 7, self._body)
                    self.waits_ms.append((time.perf_counter() - begun) * 1000)
                    time.sleep(_PAUSE_S)
        except BaseException as error:
            self._failed = error

    def serves(self, *, answers: int, timeout_s: float = 120.0) -> None:
        """Waits until this many more answers have arrived."""
        wanted, deadline = len(self.waits_ms) + answers, time.monotonic() + timeout_s
        while len(self.waits_ms) < wanted:
            assert self._failed is None, self._failed
            assert time.monotonic() < deadline, f"{len(self.waits_ms)} of {wanted} answers within {timeout_s} s"
            time.sleep(0.02)

    def percentile_ms(self, share: float) -> float:
        ordered = sorted(self.waits_ms)
        return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


class Hostile:
    """The results of the requests of `repeated`: bytes of answers, and connections that ended."""

    def __init__(self) -> None:
        self.answers: Counter[bytes] = Counter()
        self.ended = 0

    @property
    def count(self) -> int:
        return sum(self.answers.values())


@contextmanager
def repeated(port: int, requests: Sequence[HostileRequest], *, connections: int = 2) -> Iterator[Hostile]:
    """Sends these requests again and again, on each connection as fast as the answers arrive."""
    hostile, stopped = Hostile(), threading.Event()

    def attack(first: int) -> None:
        at = first
        while not stopped.is_set():
            try:
                with wire.Wire(port) as connection:
                    while not stopped.is_set():
                        request = requests[at % len(requests)]
                        hostile.answers[connection.request(*request)] += 1
                        at += 1
            except (OSError, EOFError, AssertionError):
                hostile.ended += 1
                at += 1

    threads = [threading.Thread(target=attack, args=(place,), name=f"hostile-{place}") for place in range(connections)]
    for thread in threads:
        thread.start()
    try:
        yield hostile
    finally:
        stopped.set()
        for thread in threads:
            thread.join()
