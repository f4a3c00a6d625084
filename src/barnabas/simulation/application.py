"""Runs of a user's application: unmodified asyncio programs on aiokafka, with a cluster and faults, in a world.

A scenario is a coroutine function with a `Simulation` as its argument. It starts the programs, each as a process on a
machine of its own, lets faults happen, and checks what must hold. Faults strike brokers and programs, not the scenario.
A program that a fault kills, or that fails, is started again; its variables at module level are those of the Python
process and stay as they are.
"""

from __future__ import annotations

import asyncio
import time
import traceback
import warnings
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import PurePath
from typing import Any, Final, TypeVar

from aiokafka import AIOKafkaConsumer, TopicPartition

from barnabas.simulation.ambient import ambient
from barnabas.simulation.checkers import NoUncaughtExceptions, Watch
from barnabas.simulation.client_recording import Recording, recorded
from barnabas.simulation.decided_metadata import DecidedMetadata
from barnabas.simulation.escapes import NotSimulated, confined
from barnabas.simulation.fault_events import possible
from barnabas.simulation.fault_schedules import FaultGenerator
from barnabas.simulation.faults import Fault, FaultKind
from barnabas.simulation.history import Violation
from barnabas.simulation.injector import Injector
from barnabas.simulation.reading import open_reader, read_to_ends, read_with_retries
from barnabas.simulation.run_topics import Topic
from barnabas.simulation.shortening import shorten
from barnabas.simulation.simulated_cluster import Client, Cluster, Layout
from barnabas.simulation.swarm import draw_properties
from barnabas.simulation.workload import create_topics
from barnabas.simulation.world import MILLISECOND_US, SECOND_US, Livelock, Note, World

#: The faults that an application must survive without losing records, by the names that users give. Faults of disks are
#: left out: with Kafka's defaults, power failures of several brokers lose acknowledged records.
FAULTS: Final[Mapping[str, Sequence[FaultKind]]] = {
    "kill": (FaultKind.KILL, FaultKind.KILL_CLIENT),
    "stop": (FaultKind.STOP,),
    "pause": (FaultKind.PAUSE, FaultKind.PAUSE_CLIENT),
    "partition": (FaultKind.PARTITION, FaultKind.ONE_WAY),
    "reset": (FaultKind.RESET,),
    "slow": (FaultKind.SLOW_LINK, FaultKind.SLOW_DISK),
    "lossy": (FaultKind.LOSSY_LINK,),
    "refuse": (FaultKind.REFUSE,),
}
#: A world of one to five brokers.
BROKERS_MAX: Final = 5
_START_S_MAX: Final = 120
_RESTART_US: Final = SECOND_US
_STOP_S: Final = 10.0
_INVARIANT_US: Final = 100 * MILLISECOND_US
_READ_S_MAX: Final = 60.0

#: The machine of the scenario itself.
_SCENARIO: Final = "scenario"

_T = TypeVar("_T")

#: A program of the application: it is called again for each start of its process.
Program = Callable[[], Coroutine[Any, Any, Any]]
Invariant = Callable[[], object]


@dataclass(frozen=True, slots=True)
class ApplicationSettings:
    """The settings of one run; equal settings give equal runs. `schedule` None: drawn from the seed. Times of the
    schedule count from the beginning of the faults.
    """

    seed: int
    brokers: int = 3
    kinds: tuple[FaultKind, ...] = tuple(kind for kinds in FAULTS.values() for kind in kinds)
    schedule: tuple[Fault, ...] | None = None
    #: The seed draws properties of the brokers.
    draws_properties: bool = True
    #: Packages whose modules get virtual dates.
    packages: tuple[str, ...] = ()
    #: The virtual time in which the scenario must end.
    timeout_s: float = 3_600.0
    events_max: int = 20_000_000


@dataclass(slots=True)
class ApplicationOutcome:
    """The result of a run. `problems` is empty if the scenario ended without an exception."""

    settings: ApplicationSettings
    schedule: tuple[Fault, ...]
    problems: list[str]
    #: The traceback of the exception that ended the scenario or an invariant.
    trace: str
    trace_hash: str
    virtual_s: float
    cpu_s: float
    notes: list[Note] = field(repr=False)

    @property
    def failed(self) -> bool:
        return bool(self.problems)


def fault_kinds(text: str) -> tuple[FaultKind, ...]:
    """Returns the kinds of a comma-separated list of names, of `all` or of `none`. Raises ValueError."""
    if text in ("none", ""):
        return ()
    names = list(FAULTS) if text == "all" else [name.strip() for name in text.split(",")]
    for name in names:
        if name not in FAULTS:
            raise ValueError(f"no such kind of fault: {name}; expected one of: all, none, {', '.join(FAULTS)}")
    return tuple(kind for name in names for kind in FAULTS[name])


class Simulation:
    """The world as a scenario sees it. Its coroutines run on a machine that no fault strikes."""

    def __init__(self, settings: ApplicationSettings) -> None:
        self.settings = settings
        self.world = World(settings.seed, events_max=settings.events_max)
        layout = Layout(brokers=settings.brokers)
        if settings.draws_properties:
            layout = replace(layout, properties=draw_properties(self.world.stream("properties"), layout))
        self._layout = layout
        self._cluster = Cluster(self.world, layout)
        self._injector = Injector(self._cluster)
        self._scenario = self._cluster.add_client(_SCENARIO)
        self._programs: dict[str, Client] = {}
        self._invariants: list[Invariant] = []
        self.schedule: tuple[Fault, ...] = ()
        #: The records that clients sent, and those that programs received, with the commits.
        self.history = Recording(silent=frozenset({_SCENARIO}))
        #: An error that ends the run in the middle of the scenario.
        self.failure: BaseException | None = None
        Watch(self._cluster, [NoUncaughtExceptions()])

    # -- for scenarios

    @property
    def seed(self) -> int:
        return self.settings.seed

    @property
    def bootstrap(self) -> str:
        """Returns the value for `bootstrap_servers`."""
        return self._cluster.bootstrap

    async def create_topic(self, name: str, partitions: int = 1, **configs: str) -> None:
        """Creates a topic with up to three replicas and waits until it exists. Config keys are written with "_" instead
        of ".".
        """
        settings = {
            "min.insync.replicas": str(self._layout.min_in_sync),
            **{key.replace("_", "."): value for key, value in configs.items()},
        }
        topic = Topic(name, partitions, settings)
        await create_topics(self._cluster, self._scenario, [topic], self._layout.replication_factor)

    def start(self, name: str, program: Program) -> None:
        """Starts a program as a process on a new machine with this name, at which it can listen, too."""
        if name in self._cluster.machines:
            raise ValueError(f"there is a machine {name} already")
        client = self._programs[name] = self._cluster.add_client(name)
        client.run(partial(self._supervised, client, program))

    async def stop(self, name: str) -> None:
        """Cancels a program, as SIGTERM does with most applications, and waits until it has ended."""
        client = self._programs.pop(name)
        tasks = [task for task in asyncio.all_tasks(client.loop) if task.get_name() == name]
        for task in tasks:
            client.loop.call_soon(task.cancel)
        for _ in range(int(_STOP_S / 0.1)):
            if all(task.done() for task in tasks):
                break
            await asyncio.sleep(0.1)
        client.kill()

    def note(self, text: str) -> None:
        """Adds a line to the time line."""
        self.world.note(_SCENARIO, text)

    def invariant(self, holds: Invariant) -> None:
        """Checks a function ten times a second and at the end; the run fails if it raises or returns False."""
        self._invariants.append(holds)

    async def inject_faults(self, seconds: float = 60.0) -> None:
        """Injects the seed's faults for this long. All of them have ended, and all programs run, when this returns."""
        begin_ms = self.world.now_us // MILLISECOND_US + 1
        if self.settings.schedule is None:
            events = possible(self._layout, None)
            generator = FaultGenerator(self._layout, list(self._programs), self.settings.kinds, events)
            self.schedule = generator.schedule(self.world, 0, int(seconds * 1000))
        else:
            self.schedule = self.settings.schedule
        with self._injector.injecting([fault._replace(at_ms=fault.at_ms + begin_ms) for fault in self.schedule]):
            await asyncio.sleep(seconds)
            self.world.note("world", "everything heals")
            self._injector.heal()
        for client in self._programs.values():
            client.restart()

    async def records(self, topic: str) -> list[Any]:
        """Returns all committed records of a topic as aiokafka's `ConsumerRecord`s, partition by partition."""

        async def read(consumer: AIOKafkaConsumer) -> list[Any]:
            found = await read_to_ends(consumer, await _partitions(consumer, topic))
            return [record for records in found.values() for record in records]

        return await self._read(None, read, f"{topic} cannot be read")

    async def committed(self, group: str, topic: str) -> dict[int, int | None]:
        """Returns the committed offset of each partition, None where there is none."""

        async def read(consumer: AIOKafkaConsumer) -> dict[int, int | None]:
            return {each.partition: await consumer.committed(each) for each in await _partitions(consumer, topic)}

        return await self._read(group, read, f"offsets of {group} cannot be read")

    async def _read(self, group: str | None, read: Callable[[AIOKafkaConsumer], Awaitable[_T]], problem: str) -> _T:
        def opened() -> AIOKafkaConsumer:
            return open_reader(self._cluster, _SCENARIO, group)

        return await read_with_retries(self._scenario, self._cluster, opened, read, problem, _READ_S_MAX)

    # -- programs

    async def _supervised(self, client: Client, program: Program) -> None:
        """Runs a program. One that fails is started again after a second, on a new loop."""
        task = asyncio.current_task()
        assert task is not None
        task.set_name(client.name)
        try:
            await program()
        except NotSimulated as error:
            self.escaped(error)
        except asyncio.CancelledError as error:
            if client.name not in self._programs:
                raise  # The scenario stops it.
            # A library can pass on the cancellation of one of its own tasks.
            self._fail(client, error)
        except Exception as error:
            self._fail(client, error)

    def _fail(self, client: Client, error: BaseException) -> None:
        self.world.note(client.name, f"the program failed and is started again: {error!r}")
        self.world.after(0, client.kill, None, "program failed")
        self.world.after(_RESTART_US, lambda: self._start_again(client), None, "program starts again")

    def _start_again(self, client: Client) -> None:
        if client.name in self._programs:
            client.restart()

    # -- the run

    def escaped(self, error: BaseException) -> None:
        """Ends the run with this error."""
        if self.failure is None:
            self.failure = error

    def run(self, scenario: Callable[[Simulation], Coroutine[Any, Any, Any]]) -> None:
        """Runs the scenario to its end. Raises the exceptions of the scenario, Violation and NotSimulated."""
        self._cluster.start()
        metadata = DecidedMetadata(self._cluster)

        def are_absent() -> bool:
            known = metadata.image().brokers.values()
            return sum(not broker.fenced for broker in known) < self.settings.brokers

        if not self._runs_while(are_absent, _START_S_MAX):
            raise Violation(f"the brokers did not start within {_START_S_MAX} s")
        self._check_regularly()
        task = self._scenario.loop.create_task(scenario(self))
        if not self._runs_while(lambda: not task.done(), self.settings.timeout_s):
            raise Violation(f"the scenario is not done after {self.settings.timeout_s:.0f} virtual seconds")
        task.result()
        self._check_invariants()

    def _runs_while(self, condition: Callable[[], bool], limit_s: float) -> bool:
        """Runs the world while the condition holds. Returns whether it ended within the limit."""
        until_us = self.world.now_us + int(limit_s * SECOND_US)
        ended = self.world.run_while(lambda: self.failure is None and condition(), until_us)
        if self.failure is not None:
            raise self.failure
        return ended

    def _check_regularly(self) -> None:
        try:
            self._check_invariants()
        except Exception as error:
            self.escaped(error)
            return
        self.world.after(_INVARIANT_US, self._check_regularly, None, "invariants")

    def _check_invariants(self) -> None:
        for holds in self._invariants:
            if holds() is False:
                name = getattr(holds, "__qualname__", repr(holds))
                raise Violation(f"the invariant {name} does not hold")


async def _partitions(consumer: AIOKafkaConsumer, topic: str) -> list[TopicPartition]:
    """Returns the partitions of a topic. Raises RuntimeError, an error of clients, before its metadata is known."""
    await consumer._client.add_topic(topic)
    numbers = consumer.partitions_for_topic(topic)
    if not numbers:
        raise RuntimeError(f"no metadata of {topic} yet")
    return [TopicPartition(topic, number) for number in sorted(numbers)]


def _text(error: BaseException) -> str:
    """Returns the error as a line. An assertion without a message is shown by its source."""
    if isinstance(error, Violation | Livelock | NotSimulated):
        return str(error)
    text = str(error)
    if not text and (frames := traceback.extract_tb(error.__traceback__)):
        text = f"{PurePath(frames[-1].filename).name}:{frames[-1].lineno}: {frames[-1].line}"
    return f"{type(error).__name__}: {text}"


#: Killed programs leave coroutines behind.
_NEVER_AWAITED: Final = "coroutine .* was never awaited"

Scenario = Callable[[Simulation], Coroutine[Any, Any, Any]]


def ignore_killed_programs() -> None:
    """Silences the warnings of this process about the coroutines of killed programs, which can be deleted long after
    their run.
    """
    warnings.filterwarnings("ignore", _NEVER_AWAITED, RuntimeWarning)


def run_application(scenario: Scenario, settings: ApplicationSettings) -> ApplicationOutcome:
    """Runs one seed of an application from beginning to end."""
    began_cpu_s = time.process_time()
    simulation = Simulation(settings)
    world = simulation.world
    problems: list[str] = []
    trace = ""
    try:
        with (
            warnings.catch_warnings(),
            ambient(world),
            recorded(simulation.history),
            confined(world, settings.packages, simulation.escaped),
        ):
            ignore_killed_programs()
            simulation.run(scenario)
    except (Exception, NotSimulated) as error:
        problems = [_text(error)]
        trace = "".join(traceback.format_exception(error))
        world.note("scenario", problems[0])
    return ApplicationOutcome(
        settings=settings,
        schedule=simulation.schedule,
        problems=problems,
        trace=trace,
        trace_hash=world.trace.hexdigest(),
        virtual_s=world.now_us / SECOND_US,
        cpu_s=time.process_time() - began_cpu_s,
        notes=world.trace.notes,
    )


def shorten_application(
    scenario: Scenario, outcome: ApplicationOutcome, on_try: Callable[[int], None] | None = None
) -> ApplicationOutcome:
    """Returns the outcome of the same seed with the fewest faults with which it still fails."""
    best = outcome

    def still_fails(schedule: Sequence[Fault]) -> bool:
        nonlocal best
        if on_try is not None:
            on_try(len(schedule))
        attempt = run_application(scenario, replace(outcome.settings, schedule=tuple(schedule)))
        if attempt.failed:
            best = attempt
        return attempt.failed

    shorten(outcome.schedule, still_fails)
    return best
