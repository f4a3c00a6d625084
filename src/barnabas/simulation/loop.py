"""An asyncio event loop in the world: unmodified asyncio clients run in virtual time on the simulated network.

One world has many loops, one for each client process. A loop has no thread of its own and never runs forever: its
callbacks are events of its process, so a client can be paused and killed like a broker. There is no real socket, thread
or name server behind it. Futures and tasks are hashed by their number, not by their address, so that sets of them have
the same order in every run.
"""

from __future__ import annotations

import asyncio
import contextvars
import socket as sockets
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterable
from functools import partial
from typing import Any, TypeVar, cast

from barnabas.simulation.network import Network, Socket
from barnabas.simulation.world import SECOND_US, Event, Process, World

T = TypeVar("T")

#: The longest time that an idle `run_until_complete` lets pass in the world.
_PATIENCE_US = 24 * 3600 * SECOND_US
_EXECUTOR_US = 2_000
#: The number of turns of a loop within one second above which each one takes a millisecond, so that time advances even
#: if a program spins.
_TURNS_PER_S_MAX = 2_000
_LOOK_UP_US = 300


class NumberedFuture(asyncio.Future[Any]):
    """A future whose position in a set does not depend on memory addresses."""

    number = 0

    def __hash__(self) -> int:
        return self.number


class NumberedTask(asyncio.Task[Any]):
    number = 0

    def __hash__(self) -> int:
        return self.number


class SimulatedTimer(asyncio.TimerHandle):
    """A timer, and its event in the world's heap."""

    __slots__ = ("event",)

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: SimulatedLoop,
        context: contextvars.Context | None,
        schedule: Callable[[SimulatedTimer], Event],
    ) -> None:
        super().__init__(when, callback, args, loop, context)
        self.event = schedule(self)


class SimulatedLoop(asyncio.BaseEventLoop):
    """The `asyncio.AbstractEventLoop` of one client process on machine `machine`."""

    def __init__(self, world: World, network: Network, process: Process, machine: str) -> None:
        self._runs = False
        super().__init__()
        self.world = world
        self.network = network
        self.process = process
        self.machine = machine
        self._random = world.stream(f"loop/{process.name}")
        self._queue: deque[asyncio.Handle] = deque()
        self._run_is_due = False
        self._numbers = 0
        self._turns = 0
        self._turns_since_s = 0
        #: The limit on turns per second, which is higher for clients that are meant to be busy.
        self.turns_per_s_max = _TURNS_PER_S_MAX
        self.set_task_factory(self._new_task)
        self.set_exception_handler(self._on_exception)

    # -- time and callbacks

    def time(self) -> float:
        return self.process.now_us / SECOND_US

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._queue.append(handle)
        if not self._run_is_due:
            self._run_is_due = True
            self.world.at(self.world.now_us, self._run_queue, self.process, "loop")
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        # The time is rounded up, so that `time()` is not before `when`, and is never the present moment: time advances
        # only with events, so a program that waits for less than a microsecond would wait forever.
        due_us = max(int(when * SECOND_US + 0.999), self.process.now_us + 1)

        def schedule(timer: SimulatedTimer) -> Event:
            return self.world.at(due_us, partial(self._enqueue, timer), self.process, "timer")

        return SimulatedTimer(when, callback, args, self, context, schedule)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Removes a cancelled timer's event from the world; clients cancel most of their timers."""
        cast(SimulatedTimer, handle).event.cancel()

    def _enqueue(self, handle: asyncio.Handle) -> None:
        self._queue.append(handle)
        if not self._run_is_due:
            self._run_queue()

    def _run_queue(self) -> None:
        """Runs the queue, turn by turn as long as no other event in the world is due at this moment."""
        queue, world = self._queue, self.world
        self._run_is_due = self._runs = True
        previous = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            self._turn()
            while queue and world.is_quiet_now and self.process.busy_until_us <= world.now_us:
                self._turn()
        finally:
            asyncio._set_running_loop(previous)
            self._runs = False
            if queue:
                self.world.at(self.world.now_us, self._run_queue, self.process, "loop")
            else:
                self._run_is_due = False

    def _turn(self) -> None:
        """Runs the callbacks that are in the queue now; those that they add run in the next turn."""
        self._pace()
        queue = self._queue
        for _ in range(len(queue)):
            handle = queue.popleft()
            if not handle._cancelled:
                handle._run()

    def _pace(self) -> None:
        """Slows down a program that spins: code takes no time here, and some clients repeat a request immediately."""
        second = self.world.now_us // SECOND_US
        if second != self._turns_since_s:
            self._turns_since_s, self._turns = second, 0
        self._turns += 1
        if self._turns > self.turns_per_s_max:
            self.process.charge(1_000)

    # -- futures and tasks

    def create_future(self) -> asyncio.Future[Any]:
        future = NumberedFuture(loop=self)
        self._numbers = future.number = self._numbers + 1
        return future

    def _new_task(
        self,
        loop: asyncio.AbstractEventLoop,
        coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
        **options: Any,
    ) -> asyncio.Task[T]:
        self._numbers = number = self._numbers + 1
        task: asyncio.Task[T] = _numbered_task(coro, loop, number, options)
        return task

    def _on_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Adds what asyncio would log to the time line, except for abandoned failed futures, which garbage collection
        reports.
        """
        cause, message = context.get("exception"), str(context.get("message"))
        if "never retrieved" not in message:
            self.world.note(self.process.name, f"asyncio: {message}: {type(cause).__name__}")

    # -- running

    def run_until_complete(self, future: Any) -> Any:
        """Runs the world until `future` is done. Only code outside of the world can call it."""
        task: asyncio.Future[Any] = asyncio.ensure_future(future, loop=self)
        limit_us = self.world.now_us + _PATIENCE_US
        self.world.run_while(lambda: not task.done(), limit_us)
        if not task.done():
            raise RuntimeError("the world came to rest before the future was done")
        return task.result()

    def run_forever(self) -> None:
        raise RuntimeError("a simulated loop runs with its world: World.run_until")

    def is_running(self) -> bool:
        return self._runs

    def __del__(self) -> None:
        """Does nothing: the loop owns no resource of the system."""

    def close(self) -> None:
        self._queue.clear()
        if not self.is_closed():
            super().close()

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Runs the work at one moment, after a short delay."""
        future = self.create_future()

        def work() -> None:
            if future.cancelled():
                return
            try:
                result = func(*args)
            except Exception as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        self.call_later(self._random.randrange(1, _EXECUTOR_US) / SECOND_US, work)
        return future

    # -- network

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> list[Any]:
        await asyncio.sleep(self._random.randrange(1, _LOOK_UP_US) / SECOND_US)
        address = self.network.resolve(host)
        if address is None:
            raise sockets.gaierror(sockets.EAI_NONAME, f"no such host: {host}")
        return [(sockets.AF_INET, sockets.SOCK_STREAM, sockets.IPPROTO_TCP, "", (address, int(port)))]

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: Any = None, port: Any = None, **options: Any
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        if options.get("ssl") or options.get("sock") is not None:
            raise NotImplementedError("simulated connections are plain, and dialled by host and port")
        found = await self.getaddrinfo(host, port)
        connected = self.create_future()
        protocol = protocol_factory()
        transport = SimulatedTransport(self, protocol, connected)
        address, number = found[0][4]
        transport.use(self.network.dial(self.process, self.machine, address, number, transport))
        try:
            await connected
        except BaseException:
            transport.abort()
            raise
        return transport, protocol

    async def create_server(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: Any = None, port: Any = None, **options: Any
    ) -> SimulatedServer:
        address = self.network.resolve(host or self.machine)
        if address is None:
            raise sockets.gaierror(sockets.EAI_NONAME, f"no such host: {host}")

        def accept(socket: Socket) -> SimulatedTransport:
            transport = SimulatedTransport(self, protocol_factory(), None)
            transport.use(socket)
            self.call_soon(transport.connected)
            return transport

        return SimulatedServer(self, self.network.listen(self.process, (address, int(port)), accept))


def _numbered_task(coro: Any, loop: asyncio.AbstractEventLoop, number: int, options: dict[str, Any]) -> Any:
    # The constructor adds the task to a set, and the task must have its number by then.
    task = NumberedTask.__new__(NumberedTask)
    task.number = number
    task.__init__(coro, loop=loop, **options)  # type: ignore[misc]
    return task


class SimulatedServer(asyncio.AbstractServer):
    """The result of `create_server`."""

    def __init__(self, loop: SimulatedLoop, listening: Any) -> None:
        self._loop = loop
        self._listening = listening
        self._closed = False

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._listening.close()

    def get_loop(self) -> SimulatedLoop:
        return self._loop

    def is_serving(self) -> bool:
        return not self._closed

    async def serve_forever(self) -> None:
        await self._loop.create_future()

    async def start_serving(self) -> None:
        """Does nothing: the server accepts connections from the beginning."""

    async def wait_closed(self) -> None:
        await asyncio.sleep(0)


class SimulatedTransport(asyncio.Transport):
    """A connection with asyncio's transport on one side, the network's `End` on the other."""

    def __init__(
        self, loop: SimulatedLoop, protocol: asyncio.BaseProtocol, connected: asyncio.Future[None] | None
    ) -> None:
        super().__init__()
        self._loop = loop
        self._protocol = protocol
        self._connected = connected
        self._socket: Socket | None = None
        self._lost = False

    def use(self, socket: Socket) -> None:
        self._socket = socket
        self._extra = {"peername": socket.remote, "sockname": socket.local, "socket": None}

    # -- the network's end: events of the process, outside of the loop's own

    def connected(self) -> None:
        self._inside(self._connection_made)

    def _connection_made(self) -> None:
        if self._lost:
            return
        self._protocol.connection_made(self)
        if self._connected is not None and not self._connected.done():
            self._connected.set_result(None)

    def received(self, data: bytes) -> None:
        self._inside(lambda: self._data_received(data))

    def _data_received(self, data: bytes) -> None:
        protocol = self._protocol
        if isinstance(protocol, asyncio.BufferedProtocol):
            view = memoryview(data)
            while len(view):
                room = memoryview(protocol.get_buffer(len(view)))
                count = min(len(room), len(view))
                room[:count] = view[:count]
                protocol.buffer_updated(count)
                view = view[count:]
        else:
            cast(asyncio.Protocol, protocol).data_received(data)

    def ended(self) -> None:
        def eof() -> None:
            if not cast(asyncio.Protocol, self._protocol).eof_received():
                self.close()

        self._inside(eof)

    def closed(self, error: OSError | None) -> None:
        if self._connected is not None and not self._connected.done():
            self._lost = True
            failed = error or ConnectionResetError("closed while connecting")
            self._inside(lambda: self._connected_failed(failed))
        else:
            self._lose(error)

    def _connected_failed(self, error: OSError) -> None:
        assert self._connected is not None
        if not self._connected.done():
            self._connected.set_exception(error)

    def pause_writing(self) -> None:
        # The caller is the protocol's own `write`, which must return first.
        self._loop.call_soon(self._protocol.pause_writing)

    def resume_writing(self) -> None:
        self._inside(self._protocol.resume_writing)

    def _inside(self, callback: Callable[[], object]) -> None:
        """Runs a callback in the loop's event, after those in its queue."""
        self._loop._enqueue(asyncio.Handle(callback, (), self._loop))

    # -- asyncio's transport

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert self._socket is not None
        self._socket.write_bytes(bytes(data))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        if self._socket is not None and not self._socket.is_closed:
            self._socket.close()
            self._loop.call_soon(self._lose, None)

    def abort(self) -> None:
        if self._socket is not None and not self._socket.is_closed:
            self._socket.abort()
            self._loop.call_soon(self._lose, None)

    def _lose(self, error: OSError | None) -> None:
        if not self._lost:
            self._lost = True
            self._inside(lambda: self._protocol.connection_lost(error))

    def is_closing(self) -> bool:
        return self._socket is None or self._socket.is_closed

    def pause_reading(self) -> None:
        if self._socket is not None:
            self._socket.pause_reading()

    def resume_reading(self) -> None:
        if self._socket is not None:
            self._socket.resume_reading()

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def can_write_eof(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0 if self._socket is None or self._socket.out is None else self._socket.out.unconsumed

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Does nothing: the network has its own limits."""
