"""The limits of a simulated application. Calls whose results the simulation cannot repeat are refused, and the error
names them.

The simulation replaces asyncio with its timers, queues and streams, the clocks of `time` and `datetime`, `random`,
`uuid` and `os.urandom`. Work for an executor runs in the loop, and `time.sleep` blocks the process. It refuses threads,
processes, real sockets, and files that are opened for writing. Files can be read.
"""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import datetime
import io
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from barnabas.simulation.ambient import replaced
from barnabas.simulation.loop import SimulatedLoop
from barnabas.simulation.world import EPOCH_WALL_US, SECOND_US, World

_WRITES: Final = frozenset("wax+")
_REFUSED: Final[Sequence[tuple[Any, str, str]]] = (
    (threading.Thread, "start", "threading.Thread.start"),
    (subprocess.Popen, "__init__", "subprocess.Popen"),
    (socket.socket, "connect", "socket.connect"),
    (socket.socket, "connect_ex", "socket.connect_ex"),
    (socket.socket, "bind", "socket.bind"),
    (socket.socket, "sendto", "socket.sendto"),
    (socket, "create_connection", "socket.create_connection"),
    (socket, "getaddrinfo", "socket.getaddrinfo"),
    (asyncio.BaseEventLoop, "subprocess_exec", "asyncio.create_subprocess_exec"),
    (asyncio.BaseEventLoop, "subprocess_shell", "asyncio.create_subprocess_shell"),
)


class NotSimulated(BaseException):
    """Signals that the application did something that the simulation cannot repeat. No `except Exception` catches this
    error.
    """

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} cannot be simulated: replace it while the application is simulated")


@contextlib.contextmanager
def confined(world: World, packages: Sequence[str], on_escape: Callable[[NotSimulated], None]) -> Iterator[None]:
    """Refuses what cannot be simulated, and replaces the clocks of `datetime` in modules of these packages. `on_escape`
    gets each refusal, because the application can swallow the exception.
    """

    def refused(name: str) -> NotSimulated:
        error = NotSimulated(name)
        on_escape(error)
        return error

    with contextlib.ExitStack() as stack:
        for owner, attribute, name in _REFUSED:
            stack.enter_context(replaced(owner, attribute, _refusal(name, refused)))
        chance = world.stream("ambient/urandom")
        stack.enter_context(replaced(os, "urandom", chance.randbytes))
        stack.enter_context(replaced(time, "sleep", _blocking_sleep))
        for module in (builtins, io):
            stack.enter_context(replaced(module, "open", _reading_open(refused)))
        stack.enter_context(_virtual_dates(world, packages))
        yield


def _refusal(name: str, refused: Callable[[str], NotSimulated]) -> Callable[..., Any]:
    def refuse(*arguments: object, **options: object) -> Any:
        raise refused(name)

    return refuse


def _blocking_sleep(seconds: float) -> None:
    """Keeps the process of the running loop busy for this long, as a sleep without `await` does."""
    loop = asyncio._get_running_loop()
    if isinstance(loop, SimulatedLoop):
        loop.process.charge(int(seconds * SECOND_US))


def _reading_open(refused: Callable[[str], NotSimulated]) -> Callable[..., Any]:
    opened = io.open

    def open_to_read(file: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        if _WRITES & set(mode):
            raise refused(f"open({file!r}, {mode!r})")
        return opened(file, mode, *arguments, **options)

    return open_to_read


@contextlib.contextmanager
def _virtual_dates(world: World, packages: Sequence[str]) -> Iterator[None]:
    real = datetime.datetime

    def wall() -> float:
        return (EPOCH_WALL_US + world.now_us) / SECOND_US

    class VirtualDatetime(real):  # type: ignore[misc,valid-type]
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Any:
            return real.fromtimestamp(wall(), tz)

        @classmethod
        def utcnow(cls) -> Any:
            return real.fromtimestamp(wall(), datetime.UTC).replace(tzinfo=None)

        @classmethod
        def today(cls) -> Any:
            return real.fromtimestamp(wall())

    with contextlib.ExitStack() as stack:
        stack.enter_context(replaced(datetime, "datetime", VirtualDatetime))
        for name in sorted(sys.modules):
            if name.partition(".")[0] in packages and vars(sys.modules[name]).get("datetime") is real:
                stack.enter_context(replaced(sys.modules[name], "datetime", VirtualDatetime))
        yield
