"""The small worlds by name. The settings of a run identify it, and determine it completely.

Faults of the replicated topic are values: a run can have others than those of its seed, and a failing run can be
reduced to fewer. In the other worlds the seed decides step by step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from typing import Final

from barnabas.simulation.faults import Fault
from barnabas.simulation.history import Violation
from barnabas.simulation.rare_event_table import RARE_EVENTS
from barnabas.simulation.rare_events import Need, RareEvent, counted
from barnabas.simulation.shortening import kind_of, shorten
from barnabas.simulation.simulated_cluster import ZOOKEEPER
from barnabas.simulation.timeline import fold
from barnabas.simulation.worlds.quorum_plan import Plan
from barnabas.simulation.worlds.quorum_world import World as QuorumWorld
from barnabas.simulation.worlds.replicated import CONTROLLER
from barnabas.simulation.worlds.replication_explorer import ReplicationRun
from barnabas.simulation.worlds.replication_workers import BROKERS
from barnabas.simulation.worlds.security_explorer import SecurityRun
from barnabas.simulation.worlds.txn_explorer import Explorer
from barnabas.simulation.worlds.zookeeper_explorer import ZookeeperRun

#: The number of runs that a reduction may take.
_TRIES_MAX: Final = 80


class WorldKind(Enum):
    REPLICATION = "replication"
    TRANSACTIONS = "transactions"
    ZOOKEEPER = "zookeeper"
    QUORUM = "quorum"
    SECURITY = "security"


#: The machines that faults can strike, in worlds that have faults as values.
MACHINES: Final[Mapping[WorldKind, Sequence[str]]] = {
    WorldKind.REPLICATION: (*BROKERS, CONTROLLER),
    WorldKind.ZOOKEEPER: (*BROKERS, ZOOKEEPER),
}
_TOPIC_RUNS: Final[Mapping[WorldKind, type[ReplicationRun]]] = {
    WorldKind.REPLICATION: ReplicationRun,
    WorldKind.ZOOKEEPER: ZookeeperRun,
}
_NEEDS: Final[Mapping[WorldKind, frozenset[Need]]] = {
    WorldKind.REPLICATION: frozenset({Need.BROKERS, Need.QUORUM, Need.DIRECTORIES, Need.SMALL_WORLDS}),
    WorldKind.TRANSACTIONS: frozenset({Need.BROKERS, Need.QUORUM, Need.TRANSACTIONS, Need.SMALL_WORLDS}),
    WorldKind.ZOOKEEPER: frozenset({Need.BROKERS, Need.ZOOKEEPER, Need.DIRECTORIES, Need.SMALL_WORLDS}),
    WorldKind.QUORUM: frozenset({Need.CONTROLLERS, Need.QUORUM, Need.SMALL_WORLDS}),
    WorldKind.SECURITY: frozenset({Need.BROKERS, Need.CONTROLLERS, Need.QUORUM}),
}


@dataclass(frozen=True, slots=True)
class WorldSettings:
    """The settings of one run. `schedule` and `faults_s` None: those of the seed and of the world."""

    kind: WorldKind
    seed: int
    schedule: tuple[Fault, ...] | None = None
    faults_s: int | None = None


@dataclass(slots=True)
class WorldOutcome:
    """The result of a run in a small world."""

    settings: WorldSettings
    problem: str | None
    #: The faults that are values; none in worlds without them.
    schedule: tuple[Fault, ...]
    events: int
    cpu_s: float
    rare_events: Mapping[str, int]
    #: The events of the run, line by line.
    timeline: list[str]

    @property
    def failed(self) -> bool:
        return self.problem is not None


@dataclass(slots=True)
class _Result:
    """The result that a world returns, before settings and counts are added."""

    problem: str | None
    events: int
    timeline: list[str]
    schedule: tuple[Fault, ...] = ()


@cache
def watched(kind: WorldKind) -> tuple[RareEvent, ...]:
    """Returns the rare events that are possible in a world."""
    return tuple(event for event in RARE_EVENTS if event.needs <= _NEEDS[kind])


def run_world(settings: WorldSettings) -> WorldOutcome:
    """Runs a small world from beginning to end."""
    began_s = time.process_time()
    with counted(watched(settings.kind)) as counts:
        result = _RUNS[settings.kind](settings)
    return WorldOutcome(
        settings,
        result.problem,
        result.schedule,
        result.events,
        time.process_time() - began_s,
        {event.name: counts.get(event.name, 0) for event in watched(settings.kind)},
        result.timeline,
    )


def _run_topic(settings: WorldSettings) -> _Result:
    run = _TOPIC_RUNS[settings.kind](settings.seed, duration_s=settings.faults_s, schedule=settings.schedule)
    outcome = run.execute()
    lines = [str(line) for line in (*fold(outcome.notes), *outcome.course)]
    return _Result(outcome.problem, outcome.events, lines, tuple(outcome.faults))


def _run_transactions(settings: WorldSettings) -> _Result:
    explorer = Explorer(settings.seed)
    problem: str | None = None
    try:
        explorer.run()
    except (AssertionError, Violation) as broken:
        problem = str(broken)
    trace = explorer.world.world.trace
    return _Result(problem, trace.count, [str(line) for line in fold(trace.notes)])


def _run_security(settings: WorldSettings) -> _Result:
    outcome = SecurityRun(settings.seed).execute()
    lines = [*map(str, outcome.faults), *(str(line) for line in fold(outcome.notes))]
    return _Result(outcome.problem, outcome.events, lines)


def _run_quorum(settings: WorldSettings) -> _Result:
    world = QuorumWorld(Plan.of(settings.seed))
    problem: str | None = None
    try:
        world.run()
    except Exception as error:
        # Any exception of a node ends the run.
        problem = str(error) or type(error).__name__
    return _Result(problem, world.heap.count, [str(world.plan), *world.timeline])


_RUNS: Final[Mapping[WorldKind, Callable[[WorldSettings], _Result]]] = {
    WorldKind.REPLICATION: _run_topic,
    WorldKind.TRANSACTIONS: _run_transactions,
    WorldKind.ZOOKEEPER: _run_topic,
    WorldKind.QUORUM: _run_quorum,
    WorldKind.SECURITY: _run_security,
}


def shorten_world(outcome: WorldOutcome, on_try: Callable[[WorldSettings], None] | None = None) -> WorldOutcome:
    """Returns an outcome of the same seed with fewer faults in less time that fails alike, if faults are values."""
    if outcome.problem is None or outcome.settings.kind not in _TOPIC_RUNS:
        return outcome
    best, wanted, tries = outcome, kind_of(outcome.problem), 0

    def still_fails(settings: WorldSettings) -> bool:
        nonlocal best, tries
        if tries >= _TRIES_MAX:
            return False
        tries += 1
        if on_try is not None:
            on_try(settings)
        attempt = run_world(settings)
        if attempt.problem is None or kind_of(attempt.problem) != wanted:
            return False
        best = attempt
        return True

    def with_faults(faults: Sequence[Fault]) -> WorldSettings:
        return replace(best.settings, schedule=tuple(faults))

    shorten(outcome.schedule, lambda faults: still_fails(with_faults(faults)))
    for faults_s in range(1, best.settings.faults_s or _TOPIC_RUNS[outcome.settings.kind].DURATION_S):
        if still_fails(replace(with_faults(best.schedule), faults_s=faults_s)):
            break
    for divisor in (8, 2):
        shorter = [fault._replace(duration_ms=max(1, fault.duration_ms // divisor)) for fault in best.schedule]
        if still_fails(with_faults(shorter)):
            break
    return best
