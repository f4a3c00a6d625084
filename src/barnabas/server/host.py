"""The real host: the event loop's clock and timers, the machine's randomness, a thread pool for slow disk work."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from collections.abc import Callable
from functools import cached_property
from importlib import import_module
from pathlib import Path

from barnabas.common.continuations import later
from barnabas.common.errors import FatalFault, StorageFault
from barnabas.common.host import Timer, Web
from barnabas.common.kerberos import Kerberos
from barnabas.server.clock import SystemClock
from barnabas.server.disk import OsDisk
from barnabas.server.links import LoopLinks
from barnabas.server.memory import ProcessMemory
from barnabas.server.thread_pool import ThreadPool
from barnabas.server.turns import Turns

log = logging.getLogger("barnabas")

_SCHEDSTAT = Path("/proc/thread-self/schedstat")


class LoopTimers:
    def __init__(self, loop: asyncio.AbstractEventLoop, turns: Turns) -> None:
        self._loop = loop
        self._run = turns.run

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Timer:
        return self._loop.call_later(delay_ms / 1000, self._run, later(callback))

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._loop.call_soon(self._run, later(callback))


class SystemRandom:
    def __init__(self) -> None:
        self._random = random.SystemRandom()

    def below(self, bound: int) -> int:
        return self._random.randrange(bound)

    def uuid(self) -> bytes:
        while True:
            raw = bytearray(os.urandom(16))
            raw[6] = raw[6] & 0x0F | 0x40
            raw[8] = raw[8] & 0x3F | 0x80
            # Base64 starts with "-" for a first byte of 0xf8-0xfb; command lines would parse such an id as an option.
            if not 0xF8 <= raw[0] <= 0xFB:
                return bytes(raw)


class LoggedFaults:
    """Logs faults. `fatal` stops the process immediately: a broker in doubt about its own state must not continue to
    serve.
    """

    def fatal(self, message: str, error: BaseException | None = None) -> None:
        # The message contains the system's error about a disk or network; a traceback is only for bugs.
        is_ours = not isinstance(error, OSError | StorageFault | FatalFault | None)
        log.critical("%s", message, exc_info=error if is_ours else None)
        logging.shutdown()
        os._exit(70)

    def report(self, message: str, error: BaseException | None = None) -> None:
        is_ours = not isinstance(error, OSError | StorageFault | None)
        log.error(
            "%s",
            message if is_ours or error is None else _with_cause(message, error),
            exc_info=error if is_ours else None,
        )

    def warn(self, message: str) -> None:
        log.warning("%s", message)

    def inform(self, message: str) -> None:
        log.info("%s", message)


def _with_cause(message: str, error: BaseException) -> str:
    return message if str(error) in message else f"{message}: {error}"


class ServerHost:
    """The implementation of `common.host.Host` for a real process."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.clock = SystemClock()
        self.turns = Turns()
        self.timers = LoopTimers(loop, self.turns)
        self.random = SystemRandom()
        self.blocking = ThreadPool(loop, self.turns)
        self.disk = OsDisk()
        self.links = LoopLinks(loop, self.turns)
        self.memory = ProcessMemory()
        self.faults = LoggedFaults()

    @cached_property
    def web(self) -> Web:
        """Returns the client of the web. Its module is imported at the first use: few nodes need it, and HTTP takes
        25 ms.
        """
        made: Web = import_module("barnabas.server.web_requests").WebClient(self._loop, self.turns)
        return made

    @cached_property
    def kerberos(self) -> Kerberos:
        """Returns the system's library, which is loaded where it is needed. Raises KerberosUnavailable."""
        made: Kerberos = import_module("barnabas.server.kerberos").KerberosLibrary()
        return made

    @cached_property
    def tickets(self) -> ThreadPool:
        """Returns the thread for requests to the KDC. A KDC that does not answer delays neither disk work nor the end
        of the process."""
        return ThreadPool(self._loop, self.turns, "tickets", 1)

    def cpu_ns(self) -> int:
        return time.thread_time_ns()

    def process_cpu_ns(self) -> int:
        return time.process_time_ns()

    def cpu_wait_ns(self) -> int:
        """Returns the second number of schedstat (Linux): nanoseconds on a run queue."""
        try:
            return int(_SCHEDSTAT.read_bytes().split()[1])
        except (OSError, ValueError, IndexError):
            return 0

    def machine_up_ms(self) -> int:
        """Returns the time since the start of the machine, including suspended time if the system counts that."""
        clock = getattr(time, "CLOCK_BOOTTIME", None)
        return 0 if clock is None else time.clock_gettime_ns(clock) // 1_000_000

    def close(self) -> None:
        self.blocking.close()
