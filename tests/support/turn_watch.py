"""A watch over all tests: no turn of a broker's loop is allowed to take more than 50 ms of CPU on a usual core
(`core_speed`). How slow the core is, is measured right after a turn in memory, and at the end of a test with processes.

Brokers in memory are watched where the host enters them: bytes that arrive, timers, events of the simulated world.
Brokers in separate processes write their long turns into a file (`server.turns.FILE_VARIABLE`).

Work that does not belong to a turn is left out: the start of a simulated node, which serves nobody (a real broker
counts no turns before it serves); the work of threads, which in memory is done within an event; the comparisons of a
judged run; the measurement of the core's speed; garbage collections in the process of the tests, which check the
objects of all tests; and work that is done once in a process (imports, codecs built at their first use), which depends
on the tests that ran before.

`@pytest.mark.long_turns("why")` is for a test whose long turn is outside of what a broker promises.
"""

from __future__ import annotations

import gc
import importlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import thread_time_ns
from typing import Any, NamedTuple

import pytest
from tests.support import core_speed

from barnabas.broker.requests.client_connection import Connection
from barnabas.broker.requests.dispatch import Dispatcher
from barnabas.protocol import codec
from barnabas.server.turns import FILE_VARIABLE, Turns
from barnabas.simulation.host import DeferredWork, VirtualTime
from barnabas.simulation.node import Node
from barnabas.simulation.second_decisions import SecondDecisions
from barnabas.simulation.world import Process

MS = 1_000_000
MARK = "long_turns"
CPU_MS_MAX = 50
VERDICT = "turns of a broker's loop above"


class LongTurn(NamedTuple):
    #: The CPU time that the turn would have taken on a usual core.
    cpu_ms: float
    text: str


class InMemory:
    """A watch of the brokers in this process; nested turns count as one."""

    def __init__(self) -> None:
        self.long: list[LongTurn] = []
        self._turns = Turns(self._note)
        self._turns.begin_serving()
        self._inside = False
        self._left_out = 0

    def _note(self, elapsed_ns: int, cpu_ns: int, what: str) -> None:
        if cpu_ns > CPU_MS_MAX * MS:
            self._inside = False  # The turn has ended: nothing is left out of it any more.
            usual_ms = core_speed.usual_ms(cpu_ns / MS)
            text = f"{cpu_ns // MS} ms of CPU ({elapsed_ns // MS} ms): {what}"
            self.long.append(LongTurn(usual_ms, text))

    def run(self, callback: Callable[[], object], what: object) -> None:
        if self._inside:
            callback()
            return
        self._inside = True
        begin_ns = self._turns.begin()
        try:
            callback()
        finally:
            self._turns.end(begin_ns, what)
            self._inside = False

    @contextmanager
    def leaving_out(self) -> Iterator[None]:
        if not self._inside or self._left_out:
            yield
            return
        self._left_out = 1
        begin_ns = thread_time_ns()
        try:
            yield
        finally:
            self._left_out = 0
            self._turns.leave_out(thread_time_ns() - begin_ns)

    # -- where hosts call brokers

    def install(self) -> None:
        run = self.run
        world_run = Process.run

        def process_run(process: Process, callback: Callable[[], None]) -> None:
            if isinstance(process.owner, Node) and getattr(callback, "__func__", None) is not Node._main:
                run(lambda: world_run(process, callback), callback)
            else:
                world_run(process, callback)

        received = Connection.received

        def connection_received(connection: Connection, count: int) -> None:
            run(lambda: received(connection, count), _Request(connection))

        patched: Any = (Process, VirtualTime, Connection)
        patched[0].run = process_run
        patched[1].enter = lambda _, callback: run(callback, callback)
        patched[2].received = connection_received
        self._leave_out_what_is_not_the_loops()
        gc.callbacks.append(self._on_collection)

    def _leave_out_what_is_not_the_loops(self) -> None:
        def left_out(function: Any) -> Any:
            def wrapped(*arguments: Any, **options: Any) -> Any:
                with self.leaving_out():
                    return function(*arguments, **options)

            return wrapped

        module: Any = codec
        module.compile_decoder = left_out(module.compile_decoder)
        module.compile_encoder = left_out(module.compile_encoder)
        threads: Any = DeferredWork
        threads.perform = left_out(threads.perform)
        checks: Any = SecondDecisions
        checks._probe = left_out(checks._probe)
        imports: Any = importlib
        imports.import_module = left_out(imports.import_module)
        speed: Any = core_speed
        speed.slowness = left_out(speed.slowness)

    def _on_collection(self, phase: str, info: dict[str, int]) -> None:
        if self._inside and not self._left_out:
            if phase == "start":
                self._collection_ns = thread_time_ns()
            else:
                self._turns.leave_out(thread_time_ns() - self._collection_ns)


class _Request:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def turn_name(self) -> tuple[str, str]:
        dispatcher = self._connection._dispatcher
        assert isinstance(dispatcher, Dispatcher)
        latest = dispatcher.latest
        if latest is None or latest[0] is not self._connection:
            return "a request", ""
        return f"API {latest[1]}", f"version {latest[2]} of client {latest[3]!r}"


class InProcesses:
    """A reader of the long turns that broker processes write, whether this process or a child started them."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._read_bytes = 0
        os.environ[FILE_VARIABLE] = str(file)

    def take(self) -> list[LongTurn]:
        """Returns the turns since the last call."""
        if not self._file.exists():
            return []
        with self._file.open("rb") as stream:
            stream.seek(self._read_bytes)
            data = stream.read()
        self._read_bytes += len(data)
        found = []
        for line in data.decode().splitlines():
            pid, elapsed_ms, cpu_ms, what = line.split(" ", 3)
            if int(cpu_ms) > CPU_MS_MAX:
                text = f"{cpu_ms} ms of CPU ({elapsed_ms} ms) in process {pid}: {what}"
                found.append(LongTurn(core_speed.usual_ms(float(cpu_ms)), text))
        return found


def judge(item: pytest.Item, found: list[LongTurn]) -> None:
    """Fails the test that just ran, if it has long turns and no exemption. `make coverage` judges nothing, because
    traced lines take longer.
    """
    if not found or os.environ.get("COVERAGE_RUN") or item.get_closest_marker(MARK) is not None:
        return
    too_long = [turn for turn in found if turn.cpu_ms > CPU_MS_MAX]
    if too_long:
        lines = "\n  ".join(f"{turn.text}, {turn.cpu_ms:.0f} on a usual core" for turn in too_long)
        pytest.fail(f"{VERDICT} {CPU_MS_MAX} ms of CPU:\n  {lines}", pytrace=False)
