"""A simulated world: one seeded heap of events, virtual time in microseconds, and a hash of everything that happened.

Everything is an event in one heap: a timer that fires, bytes that arrive, a machine that loses power. Time advances
only from event to event; events at the same time run in the order of scheduling. Randomness comes from named streams:
draws of one part do not change what another part draws. Every event goes into the trace, so that two runs of one seed
can be compared by one hash.

An event belongs to a process or to the world itself. A paused process keeps its events for later, a dead one loses
them, a busy one (it waits for its disk) gets them when it is free again.
"""

from __future__ import annotations

import hashlib
import heapq
import random
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple, Protocol

from barnabas.simulation.cpu import Cpu

#: 2025-01-01T00:00:00Z, the start of the virtual wall clock.
EPOCH_WALL_US = 1_735_689_600_000_000
MILLISECOND_US = 1_000
SECOND_US = 1_000_000

_TRACE_CHUNK = 256
#: A greater number of events at one moment means an endless loop.
_EVENTS_AT_ONCE_MAX = 200_000


class Livelock(Exception):
    """The world does not advance: events follow events at the same time."""


class ProcessExit(BaseException):
    """The process ends immediately; the rest of its event does not run."""


class Note(NamedTuple):
    """A line of the time line of a run. `fact`: the same as data, if the line describes a step of the run and is not
    only a message; it can be pickled.
    """

    time_us: int
    node: str
    text: str
    fact: object = None

    def __str__(self) -> str:
        return f"{format_time(self.time_us)}  {self.node:<12} {self.text}"


def format_time(time_us: int) -> str:
    """Formats 3_723_004_005 as "1:02:03.004005"."""
    seconds, rest_us = divmod(time_us, SECOND_US)
    return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}.{rest_us:06}"


class Trace:
    """A hash of all events of a run, and the lines of its time line. With `keep`, also the events themselves."""

    def __init__(self, *, keep: bool = False) -> None:
        self.notes: list[Note] = []
        self.events: list[str] = []
        self._keep = keep
        self._absorbed = 0
        self._hash = hashlib.blake2b(digest_size=16)
        self._pending: list[str] = []

    @property
    def count(self) -> int:
        """The number of events and lines."""
        return self._absorbed + len(self._pending)

    def add(self, line: str) -> None:
        pending = self._pending
        pending.append(line)
        if len(pending) >= _TRACE_CHUNK:
            self._absorb()

    def note(self, time_us: int, node: str, text: str, fact: object = None) -> None:
        self.notes.append(Note(time_us, node, text, fact))
        self.add(f"{time_us} note {node} {text}")

    def observe(self, time_us: int, node: str, text: str, fact: object = None) -> None:
        """Adds the line of an observer, which is not an event of the world: it is neither counted nor hashed."""
        self.notes.append(Note(time_us, node, text, fact))

    def hexdigest(self) -> str:
        self._absorb()
        return self._hash.copy().hexdigest()

    def _absorb(self) -> None:
        pending, self._pending = self._pending, []
        if pending:
            self._absorbed += len(pending)
            self._hash.update("\n".join(pending).encode())
            self._hash.update(b"\n")
            if self._keep:
                self.events += pending


class ProcessState(Enum):
    RUNNING = "running"
    PAUSED = "paused"
    DEAD = "dead"


class Ending(Protocol):
    """A resource of a process that the system reclaims when the process ends."""

    def process_ended(self, *, orderly: bool) -> None:
        """Reclaims the resource of an ended process. `orderly`: the system closes it (kill -9); otherwise the machine
        has lost power.
        """


class Process:
    """An incarnation of a program on a machine. It works or waits until `busy_until_us`, and takes no event before."""

    __slots__ = (
        "_held",
        "_on_exit",
        "_output_holds",
        "busy_until_us",
        "cpu",
        "holdings",
        "name",
        "outbox",
        "owner",
        "state",
        "waited_us",
        "world",
    )

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.state = ProcessState.RUNNING
        self.busy_until_us = 0
        #: How long the process waited for a CPU that other processes used.
        self.waited_us = 0
        #: The simulated CPU cost of the process's code; None if code takes no time.
        self.cpu: Cpu | None = None
        #: Resources such as sockets, in the order of creation.
        self.holdings: dict[Ending, None] = {}
        self._on_exit: list[Callable[[str], None]] = []
        #: The owner of the program, if checkers check it: added to `World.dirty` whenever the program has run.
        self.owner: object | None = None
        #: The output of the process while it is held back.
        self.outbox: list[Callable[[], None]] | None = None
        self._output_holds = 0
        self._held: list[Event] = []

    @property
    def is_running(self) -> bool:
        return self.state is ProcessState.RUNNING

    @property
    def is_dead(self) -> bool:
        return self.state is ProcessState.DEAD

    @property
    def now_us(self) -> int:
        """Returns the world time as its code sees it, including the time spent waiting in the current event."""
        world_us, busy_us = self.world.now_us, self.busy_until_us
        return busy_us if busy_us > world_us else world_us

    def charge(self, duration_us: int) -> None:
        """Keeps the process busy for this long, as the cost of the current call."""
        world_us, busy_us = self.world.now_us, self.busy_until_us
        self.busy_until_us = (busy_us if busy_us > world_us else world_us) + duration_us

    def preempt(self, duration_us: int) -> None:
        """Lets other processes use the CPU for this long."""
        if self.state is ProcessState.RUNNING:
            self.charge(duration_us)
            self.waited_us += duration_us

    def enter(self, callback: Callable[[], None]) -> None:
        """Runs code of this process now, or as soon as it can run."""
        if self.state is ProcessState.RUNNING and self.busy_until_us <= self.world.now_us:
            self.run(callback)
        else:
            self.world.at(self.world.now_us, callback, self, "enter")

    def run(self, callback: Callable[[], None]) -> None:
        """Runs code of this process; the world gets the exceptions that it does not catch."""
        if self.owner is not None:
            self.world.dirty[self.owner] = None
        world = self.world
        before, world.running = world.running, self
        try:
            if self.cpu is None:
                callback()
            else:
                self.cpu.turn(callback)
        except ProcessExit as ended:
            self.end(str(ended))
        except Exception as error:
            world.on_error(self, error)
        finally:
            world.running = before

    def hold(self, event: Event) -> None:
        if self.state is ProcessState.PAUSED:
            self._held.append(event)

    def pause(self) -> None:
        if self.state is ProcessState.RUNNING:
            self.state = ProcessState.PAUSED

    def resume(self) -> None:
        if self.state is ProcessState.PAUSED:
            self.state = ProcessState.RUNNING
            self._send_held()
            held, self._held = self._held, []
            for event in held:
                self.world.push(self.world.now_us, event)

    def hold_output(self) -> None:
        """Keeps what the process sends from here on, until `release_output` was called as often as this method. If the
        process is paused by then, it sends when it is resumed; if it has ended, never.
        """
        self._output_holds += 1
        if self.outbox is None:
            self.outbox = []

    def release_output(self) -> None:
        self._output_holds -= 1
        if self.state is ProcessState.RUNNING:
            self._send_held()

    def _send_held(self) -> None:
        if self._output_holds == 0 and self.outbox is not None:
            outbox, self.outbox = self.outbox, None
            for send in outbox:
                send()

    def end(self, cause: str, *, orderly: bool = True) -> None:
        """Ends the process; the system reclaims its resources."""
        if self.state is ProcessState.DEAD:
            return
        self.state = ProcessState.DEAD
        self._held = []
        holdings, self.holdings = self.holdings, {}
        for holding in holdings:
            holding.process_ended(orderly=orderly)
        for callback in self._on_exit:
            callback(cause)

    def when_ended(self, callback: Callable[[str], None]) -> None:
        """Registers a callback for the end of the process, which gets the cause of the end."""
        self._on_exit.append(callback)


class Event:
    """A future event, which can be cancelled until it runs."""

    __slots__ = ("callback", "label", "process")

    def __init__(self, callback: Callable[[], None], process: Process | None, label: str) -> None:
        self.callback: Callable[[], None] | None = callback
        self.process = process
        self.label = label

    def cancel(self) -> None:
        self.callback = None


class World:
    """The simulated world: virtual time, randomness and the order of events."""

    def __init__(self, seed: int, *, keep_events: bool = False, events_max: int = 1 << 62) -> None:
        self.seed = seed
        self.events_max = events_max
        self.now_us = 0
        self.trace = Trace(keep=keep_events)
        self._after_event: Callable[[], None] | None = None
        self.dirty: dict[object, None] = {}
        #: The process whose code runs now.
        self.running: Process | None = None
        #: Exceptions that no code caught, each with its process.
        self.errors: list[tuple[int, str, BaseException]] = []
        self._heap: list[tuple[int, int, Event]] = []
        self._sequence = 0
        self._streams: dict[str, random.Random] = {}

    # -- chance

    def stream(self, name: str) -> random.Random:
        """Returns the random stream of this name, always the same object."""
        found = self._streams.get(name)
        if found is None:
            digest = hashlib.blake2b(f"{self.seed}/{name}".encode(), digest_size=16).digest()
            found = self._streams[name] = random.Random(int.from_bytes(digest, "big"))
        return found

    # -- scheduling

    def at(self, time_us: int, callback: Callable[[], None], process: Process | None = None, label: str = "") -> Event:
        event = Event(callback, process, label)
        self._sequence = sequence = self._sequence + 1
        heapq.heappush(self._heap, (time_us if time_us > self.now_us else self.now_us, sequence, event))
        return event

    def after(
        self, delay_us: int, callback: Callable[[], None], process: Process | None = None, label: str = ""
    ) -> Event:
        return self.at(self.now_us + delay_us, callback, process, label)

    def push(self, time_us: int, event: Event) -> None:
        """Puts an event into the heap, for this time."""
        self._sequence = sequence = self._sequence + 1
        heapq.heappush(self._heap, (time_us, sequence, event))

    # -- what happened

    def note(self, node: str, text: str, fact: object = None) -> None:
        self.trace.note(self.now_us, node, text, fact)

    def observe(self, node: str, text: str, fact: object = None) -> None:
        """Adds the line of an observer, which does not change the run."""
        self.trace.observe(self.now_us, node, text, fact)

    def on_error(self, process: Process, error: BaseException) -> None:
        self.note(process.name, f"unhandled {type(error).__name__}: {error}")
        self.errors.append((self.now_us, process.name, error))

    # -- running

    def run_for(self, duration_us: int) -> None:
        self.run_until(self.now_us + duration_us)

    def run_until(self, time_us: int) -> None:
        """Runs all events that are due at or before this time."""
        self.run_while(None, time_us)
        self.now_us = max(self.now_us, time_us)

    def run_while(self, condition: Callable[[], bool] | None, time_us: int) -> bool:
        """Runs events while `condition` holds, at most until `time_us`. Returns True if the condition ended it."""
        heap, trace, pop, dirty = self._heap, self.trace, heapq.heappop, self.dirty
        moment_us, at_once = -1, 0
        while condition is None or condition():
            if not heap or heap[0][0] > time_us:
                return False
            due_us, _, event = pop(heap)
            callback = event.callback
            if callback is None:
                continue
            if due_us == moment_us:
                at_once += 1
                if at_once > _EVENTS_AT_ONCE_MAX:
                    raise Livelock(f"{at_once} events at {format_time(due_us)}, the last one {event.label!r}")
            else:
                moment_us, at_once = due_us, 0
                if trace.count > self.events_max:
                    raise Livelock(f"more than {self.events_max} events, at {format_time(due_us)}")
            process = event.process
            if process is None:
                self.now_us = due_us
                event.callback = None
                trace.add(f"{due_us} {event.label}")
                callback()
            elif process.state is not ProcessState.RUNNING:
                process.hold(event)
                continue
            elif process.busy_until_us > due_us:
                self.push(process.busy_until_us, event)
                continue
            else:
                self.now_us = due_us
                event.callback = None
                trace.add(f"{due_us} {process.name} {event.label}")
                process.run(callback)
            if dirty and self._after_event is not None:
                self._after_event()
        return True

    def watch(self, callback: Callable[[], None]) -> None:
        """Sets a callback for each event in which an owner's program ran: checkers remove these owners from `dirty`."""
        self._after_event = callback

    @property
    def is_quiet_now(self) -> bool:
        """Returns whether no other event is due at this moment."""
        heap = self._heap
        return not heap or heap[0][0] > self.now_us
