"""An in-memory host: virtual time, seeded randomness, a disk and links in memory. It runs the broker's own objects.

No call waits: `run_for` advances the clock from timer to timer, so an hour takes only as long as its events.
"""

from __future__ import annotations

import heapq
import mmap
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from barnabas.common.continuations import detached, later
from barnabas.common.host import Buffer, LinkEnd, PeerLink
from barnabas.common.kerberos import Kerberos, NoKerberos
from barnabas.simulation.disk import MemoryDisk
from barnabas.simulation.web import MemoryWeb

#: 2025-01-01T00:00:00Z, the start of the virtual wall clock.
EPOCH_WALL_MS = 1_735_689_600_000


class VirtualTimer:
    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class VirtualTime:
    """Clock and timers in one: time advances only in `run_for` and `run_until`."""

    def __init__(self, start_ms: int = 0) -> None:
        self._now_ms = start_ms
        self._sequence = 0
        self._heap: list[tuple[int, int, VirtualTimer]] = []

    def now_ms(self) -> int:
        return self._now_ms

    def now_s(self) -> float:
        return self._now_ms / 1000

    def wall_ms(self) -> int:
        return EPOCH_WALL_MS + self._now_ms

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> VirtualTimer:
        timer = VirtualTimer(later(callback))
        self._sequence += 1
        heapq.heappush(self._heap, (self._now_ms + max(0, delay_ms), self._sequence, timer))
        return timer

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.call_later(0, callback)

    def run_for(self, duration_ms: int) -> None:
        """Runs everything due within the next `duration_ms`."""
        self.run_until(self._now_ms + duration_ms)

    def run_until(self, time_ms: int) -> None:
        heap = self._heap
        while heap and heap[0][0] <= time_ms:
            due_ms, _, timer = heapq.heappop(heap)
            self._now_ms = max(self._now_ms, due_ms)
            callback, timer.callback = timer.callback, None
            if callback is not None:
                self.enter(callback)
        self._now_ms = max(self._now_ms, time_ms)

    def enter(self, callback: Callable[[], None]) -> None:
        """Runs a callback as one turn of the node's loop."""
        callback()


class SeededRandom:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def below(self, bound: int) -> int:
        return self._random.randrange(bound)

    def uuid(self) -> bytes:
        while True:
            raw = bytearray(self._random.randbytes(16))
            raw[6] = raw[6] & 0x0F | 0x40
            raw[8] = raw[8] & 0x3F | 0x80
            if not 0xF8 <= raw[0] <= 0xFB:
                return bytes(raw)


class DeferredWork:
    """Slow disk work: it runs in a separate event, one millisecond later."""

    def __init__(self, time: VirtualTime) -> None:
        self._time = time

    def run(self, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        done = later(done)

        def perform() -> None:
            try:
                result = self.perform(work)
            except Exception as error:
                done(None, error)
            else:
                done(result, None)

        detached(self._time.call_later, 1, perform)

    def perform(self, work: Callable[[], Any]) -> Any:
        """Runs the work as a thread would."""
        return work()

    def run_all(self, work: Sequence[Callable[[], Any]], threads: int) -> Iterator[Any]:
        """Runs work one after the other: parts that threads would run in parallel must not depend on each other."""
        return (each() for each in work)


class RefusingLinks:
    """The links of a world with one node: every dial is refused."""

    def __init__(self, time: VirtualTime) -> None:
        self._time = time

    def dial(self, host: str, port: int, end: LinkEnd, tls: str | None = None) -> PeerLink:
        self._time.call_soon(lambda: end.closed(ConnectionRefusedError(f"nobody listens at {host}:{port}")))
        return MemoryLink()


class RaisedFaults:
    """The faults of a host: a fatal one ends the run; reported ones are kept for the test."""

    def __init__(self) -> None:
        self.reported: list[tuple[str, BaseException | None]] = []
        self.warned: list[str] = []
        self.informed: list[str] = []

    def fatal(self, message: str, error: BaseException | None = None) -> None:
        raise AssertionError(f"fatal fault: {message}") from error

    def report(self, message: str, error: BaseException | None = None) -> None:
        self.reported.append((message, error))

    def warn(self, message: str) -> None:
        self.warned.append(message)

    def inform(self, message: str) -> None:
        self.informed.append(message)


class UnlimitedMemory:
    """A `common.host.Memory` without limits."""

    def budget_bytes(self) -> int:
        return 1 << 30

    def allocate(self, size: int) -> Buffer:
        """Allocates a separate mapping, because zeroing 64 MB takes 50 ms."""
        return memoryview(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))


class MemoryHost:
    """A `common.host.Host` in one process. With the `disk` of an earlier host, it starts from that host's data."""

    def __init__(self, seed: int = 0, *, disk: MemoryDisk | None = None, time: VirtualTime | None = None) -> None:
        self.time = time or VirtualTime()
        self.clock = self.time
        self.timers = self.time
        self.random = SeededRandom(seed)
        self.blocking = DeferredWork(self.time)
        self.disk = disk or MemoryDisk(clock=self.time)
        self.links = RefusingLinks(self.time)
        self.web = MemoryWeb(self.timers)
        self.memory = UnlimitedMemory()
        self.faults = RaisedFaults()
        self.kerberos: Kerberos = NoKerberos()
        self.tickets = self.blocking
        #: The CPU time of one request; a test can set it.
        self.request_cpu_ns = 0
        self._used_cpu_ns = 0

    def cpu_ns(self) -> int:
        """Returns a time that grows by `request_cpu_ns` with each reading."""
        self._used_cpu_ns += self.request_cpu_ns
        return self._used_cpu_ns

    def process_cpu_ns(self) -> int:
        """Returns 0: code takes no time here."""
        return 0

    def cpu_wait_ns(self) -> int:
        """Returns 0: nothing else uses the CPU."""
        return 0

    def machine_up_ms(self) -> int:
        return self.clock.now_ms()


class MemoryLink:
    """The outgoing half of a broker's connection, as bytes in a list."""

    def __init__(self) -> None:
        self._chunks: list[bytes | bytearray] = []
        self.is_closed = False
        self.reading = True

    def write(self, chunks: Sequence[Buffer]) -> None:
        # The link takes buffers without a copy, as a socket does; views can point to reused memory.
        self._chunks += (bytes(chunk) if isinstance(chunk, memoryview) else chunk for chunk in chunks)

    @property
    def sent(self) -> bytes:
        """Returns the bytes sent since the last `take`."""
        return b"".join(self._chunks)

    @property
    def unsent_bytes(self) -> int:
        return 0

    def condition(self) -> None:
        """Returns None: there is no network."""

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = True

    def take(self) -> bytes:
        """Returns the bytes sent since the last call."""
        sent = self.sent
        self._chunks.clear()
        return sent
