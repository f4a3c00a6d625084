"""A simulated machine: clock, disk and network card, and the ports (`common.host.Host`) of the process that runs on it.

The machine remains when its process ends. Its disk keeps what a crash leaves, its clock runs slightly fast or slow and
can be set, and its name and address do not change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from barnabas.common.continuations import later
from barnabas.common.errors import DecodeError, FatalFault, RecordsRejected, RequestFailed, StorageFault
from barnabas.common.host import LinkEnd, PeerLink
from barnabas.common.kerberos import NoKerberos
from barnabas.simulation.cpu import Cpu
from barnabas.simulation.faulty_disk import FaultyDisk, Loss, charging
from barnabas.simulation.host import SeededRandom, UnlimitedMemory
from barnabas.simulation.network import Network, Socket
from barnabas.simulation.web import MemoryWeb
from barnabas.simulation.world import EPOCH_WALL_US, MILLISECOND_US, Event, Process, ProcessExit, ProcessState, World

#: The greatest error of a machine's oscillator, in parts per million.
_DRIFT_PPM = 50
_POOL_THREADS = 4
#: The time since its start that a machine shows to its first process: booting takes no virtual time.
_BOOT_MS = 1
_POOL_DELAY_US = 200
#: Errors that a disk, a network or a peer can cause in a node; any other reported error is a mistake in our code.
_MAY_HAPPEN = (OSError, StorageFault, DecodeError, RecordsRejected, RequestFailed, FatalFault)


class MachineClock:
    """A monotonic clock since the machine's start, and a wall clock that can be set."""

    def __init__(self, world: World, drift_ppm: int) -> None:
        self._world = world
        self._drift_ppm = drift_ppm
        self.wall_offset_us = 0
        self.process: Process | None = None

    def local_us(self, now_us: int) -> int:
        return now_us + now_us * self._drift_ppm // 1_000_000

    def world_us(self, local_us: int) -> int:
        """Returns the world time at which this clock shows at least `local_us`."""
        guess_us = local_us - local_us * self._drift_ppm // (1_000_000 + self._drift_ppm) - 2
        while self.local_us(guess_us) < local_us:
            guess_us += 1
        return guess_us

    @property
    def now_us(self) -> int:
        return self._world.now_us if self.process is None else self.process.now_us

    def now_ms(self) -> int:
        now_us = self._world.now_us if self.process is None else self.process.now_us
        return (now_us + now_us * self._drift_ppm // 1_000_000) // MILLISECOND_US

    def now_s(self) -> float:
        return self.now_ms() / 1000

    def wall_ms(self) -> int:
        return (EPOCH_WALL_US + self.local_us(self.now_us) + self.wall_offset_us) // MILLISECOND_US


class ProcessTimers:
    """The timers of a process: they use the machine's clock and end with the process."""

    def __init__(self, world: World, process: Process, clock: MachineClock) -> None:
        self._world = world
        self._process = process
        self._clock = clock

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Event:
        now_us = self._process.now_us
        callback = later(callback)
        if delay_ms <= 0:
            return self._world.at(now_us, callback, self._process, "timer")
        due_us = self._clock.world_us(self._clock.local_us(now_us) + delay_ms * MILLISECOND_US)
        return self._world.at(due_us, callback, self._process, "timer")

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._world.at(self._world.now_us, later(callback), self._process, "soon")


class SimulatedPool:
    """A `Blocking` with a few threads: work runs at one moment, and its result follows after the disk's time."""

    def __init__(self, world: World, process: Process, disk: FaultyDisk, name: str) -> None:
        self._world = world
        self._process = process
        self._disk = disk
        self._random = world.stream(f"pool/{name}")
        self._free_at_us = [0] * _POOL_THREADS

    def run(self, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        free = self._free_at_us
        thread = min(range(_POOL_THREADS), key=free.__getitem__)
        done = later(done)
        start_us = max(self._process.now_us, free[thread]) + self._random.randrange(1, _POOL_DELAY_US)
        free[thread] = start_us
        self._world.at(start_us, lambda: self._work(work, done, thread), None, f"work {self._process.name}")

    def run_all(self, work: Sequence[Callable[[], Any]], threads: int) -> Iterator[Any]:
        """Runs work one after the other: parts that threads would run in parallel must not depend on each other."""
        return (each() for each in work)

    def _work(self, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None], thread: int) -> None:
        """Runs the work of a thread in the background: its cost delays only this thread."""
        process, disk = self._process, self._disk
        if process.is_dead:
            return
        if not process.is_running:
            process.hold(Event(lambda: self._work(work, done, thread), process, "work"))
            return
        taken_us = 0

        def charge(duration_us: int) -> None:
            nonlocal taken_us
            taken_us += duration_us

        result: Any = None
        failed: BaseException | None = None
        before, self._world.running = self._world.running, process
        try:
            with charging(disk, charge):
                result = work() if process.cpu is None else Cpu(charge).run(work)
        except ProcessExit as ended:
            process.end(str(ended))
            return
        except Exception as error:
            failed = error
        finally:
            self._world.running = before
        end_us = self._world.now_us + taken_us
        self._free_at_us[thread] = max(self._free_at_us[thread], end_us)
        _note_call(disk, end_us)
        self._world.at(end_us, lambda: done(result, failed), process, "work done")


def _note_call(disk: FaultyDisk, end_us: int) -> None:
    """Notes when the call of the disk ends that begins now."""
    if disk.is_slow:
        disk.slow_until_us = max(disk.slow_until_us, end_us)


class DialledEnd:
    """The adapter from the network's `End` to `common.host.LinkEnd`."""

    def __init__(self, end: LinkEnd) -> None:
        self._end = end
        self.socket: Socket | None = None

    def connected(self) -> None:
        self._end.connected()

    def received(self, data: bytes) -> None:
        assert self.socket is not None
        view = memoryview(data)
        while len(view) and not self.socket.is_closed:
            room = self._end.get_buffer()
            count = min(len(room), len(view))
            room[:count] = view[:count]
            self._end.received(count)
            view = view[count:]

    def ended(self) -> None:
        assert self.socket is not None
        self.socket.close()
        self._end.closed(None)

    def closed(self, error: OSError | None) -> None:
        self._end.closed(error)

    def pause_writing(self) -> None:
        """Does nothing: `LinkEnd` has no such event."""

    def resume_writing(self) -> None: ...


class MachineLinks:
    """The `common.host.Links` of one machine."""

    def __init__(self, network: Network, process: Process, machine: str) -> None:
        self._network = network
        self._process = process
        self._machine = machine

    def dial(self, host: str, port: int, end: LinkEnd, tls: str | None = None) -> PeerLink:
        dialled = DialledEnd(end)
        dialled.socket = self._network.dial(self._process, self._machine, host, port, dialled)
        return dialled.socket


class MachineFaults:
    """The faults of a process: `fatal` ends it; reports go to the time line, and mistakes in our code to the world."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process
        self.reported: list[tuple[str, BaseException | None]] = []

    def fatal(self, message: str, error: BaseException | None = None) -> None:
        self._world.note(self._process.name, f"fatal: {message}")
        raise ProcessExit(f"fatal: {message}")

    def report(self, message: str, error: BaseException | None = None) -> None:
        self.reported.append((message, error))
        is_said = error is None or str(error) in message
        self._world.note(self._process.name, f"reports: {message}" + ("" if is_said else f" ({error})"))
        if isinstance(error, Exception) and not isinstance(error, _MAY_HAPPEN):
            self._world.on_error(self._process, error)

    def warn(self, message: str) -> None:
        self._world.note(self._process.name, f"warns: {message}")

    def inform(self, message: str) -> None:
        self._world.note(self._process.name, message)


class MachineHost:
    """The `common.host.Host` of one process of a machine."""

    def __init__(self, machine: Machine, process: Process) -> None:
        world = machine.world
        self._process = process
        self._machine = machine
        self.clock = machine.clock
        self.timers = ProcessTimers(world, process, machine.clock)
        self.random = SeededRandom(world.stream(f"host/{process.name}").getrandbits(64))
        self.disk = machine.disk
        self.blocking = SimulatedPool(world, process, machine.disk, process.name)
        self.links = MachineLinks(machine.network, process, machine.name)
        self.web = MemoryWeb(self.timers)
        self.memory = UnlimitedMemory()
        self.faults = MachineFaults(world, process)
        self.kerberos = NoKerberos()
        self.tickets = self.blocking

    def cpu_ns(self) -> int:
        """Returns the process's time, which passes within a turn only as far as its disk is slow."""
        return self.clock.now_ms() * 1_000_000

    def process_cpu_ns(self) -> int:
        """Returns the counted work of the process."""
        cpu = self._process.cpu
        return 0 if cpu is None else cpu.total_us * 1_000

    def cpu_wait_ns(self) -> int:
        return self._process.waited_us * 1_000

    def machine_up_ms(self) -> int:
        return _BOOT_MS + (self._machine.world.now_us - self._machine.on_since_us) // MILLISECOND_US


class Machine:
    """A machine by name. `spawn` starts a program; there is at most one at a time."""

    def __init__(self, world: World, network: Network, name: str) -> None:
        self.world = world
        self.network = network
        self.name = name
        self.address = network.add(name)
        random = world.stream(f"machine/{name}")
        self.clock = MachineClock(world, random.randrange(-_DRIFT_PPM, _DRIFT_PPM + 1))
        self.disk = FaultyDisk(world.stream(f"disk/{name}"), self.clock, self._charge)
        self.process: Process | None = None
        self.is_on = True
        self.on_since_us = world.now_us
        self.incarnation = 0

    def _charge(self, duration_us: int) -> None:
        if self.process is not None:
            self.process.charge(duration_us)
            _note_call(self.disk, self.process.busy_until_us)

    @property
    def is_running(self) -> bool:
        return self.process is not None and not self.process.is_dead

    def spawn(self) -> Process:
        assert self.is_on, f"{self.name} has no power"
        assert not self.is_running, f"{self.name} is already running"
        self.incarnation += 1
        self.disk.slow_until_us = 0
        process = Process(self.world, f"{self.name}.{self.incarnation}")
        process.when_ended(self._on_exit)
        self.process = self.clock.process = process
        return process

    def host_for(self, process: Process) -> MachineHost:
        """Returns the ports of this machine for `process`."""
        return MachineHost(self, process)

    def _on_exit(self, cause: str) -> None:
        self.disk.locked.clear()
        self.clock.process = None
        self.world.note(self.name, f"process ended: {cause}", ProcessState.DEAD)

    # -- faults

    def kill(self) -> None:
        """Kills the process (kill -9): connections end, and written data remains on the disk even if not synced."""
        if self.process is not None:
            self.process.end("killed")

    def power_off(self, loss: Loss) -> None:
        """Cuts the power: everything stops, and no peer is notified."""
        if not self.is_on:
            return
        self.is_on = False
        self.network.switch_off(self.name)
        self.world.note(self.name, f"power failure; of the unsynced data it loses {loss.value}")
        if self.process is not None:
            self.process.end("no power", orderly=False)
        self.disk.crash(loss)

    def power_on(self) -> None:
        if not self.is_on:
            self.is_on = True
            self.on_since_us = self.world.now_us
            self.network.switch_on(self.name)
            self.world.note(self.name, "power is back")

    def pause(self) -> None:
        if self.process is not None and self.process.is_running:
            self.world.note(self.name, "paused (SIGSTOP)", ProcessState.PAUSED)
            self.process.pause()

    def resume(self) -> None:
        if self.process is not None and not self.process.is_dead:
            self.world.note(self.name, "resumed (SIGCONT)", ProcessState.RUNNING)
            self.process.resume()

    def set_clock(self, jump_us: int) -> None:
        self.world.note(self.name, f"wall clock jumps by {jump_us / 1_000_000:+.3f} s")
        self.clock.wall_offset_us += jump_us
