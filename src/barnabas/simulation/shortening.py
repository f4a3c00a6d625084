"""Reduction of a failing run to less that still fails: the fewest faults, nodes, clients and records, in less time.

The faults are reduced by delta debugging (Zeller's ddmin): it leaves out parts of the schedule, large ones first. Then
the run is made smaller in one respect after the other. A step is kept only if the same kind of property is violated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from barnabas.simulation.faults import THERE, Fault, FaultKind, FaultStep
from barnabas.simulation.scenario import BEGIN_FAULTS_S, Outcome, Settings, drawn_features, run, struck_clients
from barnabas.simulation.simulated_cluster import ZOOKEEPER
from barnabas.simulation.work import WorkKind
from barnabas.simulation.work_features import WorkFeature

T = TypeVar("T")

#: The number of runs that a reduction may take.
TRIES_MAX: Final = 60
_SLOWER_PER_S: Final = (1.0, 2.0, 5.0)
#: Coordinators need replicas: with fewer brokers, one power failure breaks guarantees.
_BROKERS_MIN: Final = {WorkKind.RECORDS: 1, WorkKind.TRANSACTIONS: 3, WorkKind.GROUPS: 3}
_BROKERS_OF_LOST_DISKS: Final = 3


def kind_of(problem: str) -> str:
    """Returns the kind of violated property: the text before the first colon, which names neither nodes nor records."""
    return problem.partition(":")[0]


def shorten_outcome(outcome: Outcome, on_try: Callable[[Settings], None] | None = None) -> Outcome:
    """Returns an outcome of the same seed with less that still violates the same kind of property.

    `on_try` gets the settings of each attempt.
    """
    return _Shortening(outcome, on_try).reduce()


class _Shortening:
    def __init__(self, outcome: Outcome, on_try: Callable[[Settings], None] | None) -> None:
        self._wanted = kind_of(outcome.problems[0])
        self._on_try = on_try
        self._tries = 0
        self.best = outcome

    def reduce(self) -> Outcome:
        self._reduce_faults()
        self._untie_faults()
        before = self.best
        for smaller in _RESPECTS:
            while any(self._still_fails(settings) for settings in smaller(self._settings)):
                """Continues from the smaller run."""
        if self.best is not before:
            self._reduce_faults()
        return self.best

    @property
    def _settings(self) -> Settings:
        """The settings of the best run, with the faults that it had."""
        return replace(self.best.settings, schedule=self.best.schedule)

    def _reduce_faults(self) -> None:
        base = self._settings
        shorten(self.best.schedule, lambda faults: self._still_fails(replace(base, schedule=tuple(faults))))

    def _untie_faults(self) -> None:
        """Replaces faults that strike at events by those that strike where and when these have struck."""
        notes = [note.fact for note in self.best.notes if isinstance(note.fact, FaultStep)]
        struck = {step.tied: step.fault for step in notes if step.tied is not None}
        tied = [fault for fault in self.best.schedule if fault in struck]
        for some in [tied, *([fault] for fault in tied if len(tied) > 1)]:
            schedule = tuple(struck[fault] if fault in some else fault for fault in self.best.schedule)
            if schedule != self.best.schedule:
                self._still_fails(replace(self._settings, schedule=schedule))

    def _still_fails(self, settings: Settings) -> bool:
        if self._tries >= TRIES_MAX:
            return False
        self._tries += 1
        if self._on_try is not None:
            self._on_try(settings)
        attempt = run(settings)
        if any(kind_of(problem) == self._wanted for problem in attempt.problems):
            self.best = attempt
            return True
        return False


# -- smaller in one respect: each function yields settings, the smallest first


def _fewer_brokers(settings: Settings) -> Iterator[Settings]:
    layout, schedule = settings.layout, settings.schedule or ()
    least = max(_BROKERS_MIN[settings.work], _highest("broker", schedule))
    if any(fault.kind is FaultKind.LOSE_DISK for fault in schedule):
        least = max(least, _BROKERS_OF_LOST_DISKS)
    for count in range(least, layout.brokers):
        yield replace(settings, layout=replace(layout, brokers=count))


def _fewer_controllers(settings: Settings) -> Iterator[Settings]:
    layout, schedule = settings.layout, settings.schedule or ()
    least = _highest("controller", schedule)
    if any(fault.kind is FaultKind.LOSE_DISK for fault in schedule):
        least = max(least, 1)
    for count in range(least, layout.controllers):
        yield replace(settings, layout=replace(layout, controllers=count))


def _highest(role: str, schedule: Sequence[Fault]) -> int:
    """Returns the highest number among the machines of this role that a fault of the run strikes."""
    at = [fault.trigger.node for fault in schedule if fault.trigger is not None]
    struck = [name for fault in schedule for name in (fault.node, fault.peer)]
    names = [name for name in (*struck, *at) if name.rstrip("0123456789") == role]
    return max((int(name.removeprefix(role)) for name in names), default=0)


def _fewer_consumers(settings: Settings) -> Iterator[Settings]:
    least = max(_highest(role, settings.schedule or ()) for role in ("consumer", "chain", "member"))
    for count in range(least, settings.consumers):
        yield replace(settings, consumers=count)


def _fewer_producers(settings: Settings) -> Iterator[Settings]:
    for count in range(max(1, _highest("producer", settings.schedule or ())), settings.producers):
        yield replace(settings, producers=count)


def _fewer_records(settings: Settings) -> Iterator[Settings]:
    for rate in _SLOWER_PER_S:
        if rate < settings.size.records_per_s:
            yield replace(settings, records_per_s=rate)


def _no_changes(settings: Settings) -> Iterator[Settings]:
    if settings.operations or settings.edits:
        yield replace(settings, operations=(), edits=())


def _fewer_changes(settings: Settings) -> Iterator[Settings]:
    for kind in settings.operations if len(settings.operations) > 1 else ():
        yield replace(settings, operations=tuple(each for each in settings.operations if each is not kind))


def _fewer_features(settings: Settings) -> Iterator[Settings]:
    """Yields the run without any feature, then without each single feature. Faults of removed clients are dropped."""
    drawn = drawn_features(settings)
    for fewer in [frozenset[WorkFeature](), *[drawn - {feature} for feature in WorkFeature if feature in drawn]]:
        if drawn and fewer != set(settings.features):
            smaller = replace(settings, features=tuple(feature for feature in WorkFeature if feature in fewer))
            names = {*settings.layout.node_properties(), *struck_clients(smaller), ZOOKEEPER, THERE, ""}
            if all(fault.node in names and fault.peer in names for fault in settings.schedule or ()):
                yield smaller


def _default_properties(settings: Settings) -> Iterator[Settings]:
    if settings.draws_properties:
        yield replace(settings, draws_properties=False)


def _earlier_faults(settings: Settings) -> Iterator[Settings]:
    """Yields the same faults, the first one soon after the beginning."""
    schedule = settings.schedule or ()
    early_ms = min((fault.at_ms for fault in schedule), default=0) - (BEGIN_FAULTS_S + 1) * 1000
    if early_ms > 0:
        yield replace(settings, schedule=tuple(fault._replace(at_ms=fault.at_ms - early_ms) for fault in schedule))


def _less_time(settings: Settings) -> Iterator[Settings]:
    """Yields times that still contain the beginnings of all faults: later ones strike while the cluster must heal."""
    last_ms = max((fault.at_ms for fault in settings.schedule or ()), default=0)
    least = max(1, last_ms // 1000 + 1 - BEGIN_FAULTS_S)
    for faults_s in sorted({least, (least + settings.faults_s) // 2}):
        if least <= faults_s < settings.faults_s:
            yield replace(settings, faults_s=faults_s)


def _shorter_faults(settings: Settings) -> Iterator[Settings]:
    schedule = settings.schedule or ()
    for divisor in (8, 2):
        shorter = tuple(fault._replace(duration_ms=max(1, fault.duration_ms // divisor)) for fault in schedule)
        if shorter != schedule:
            yield replace(settings, schedule=shorter)


_RESPECTS: Final = (
    _fewer_features,
    _no_changes,
    _less_time,
    _earlier_faults,
    _less_time,
    _fewer_controllers,
    _fewer_brokers,
    _fewer_consumers,
    _fewer_producers,
    _fewer_records,
    _default_properties,
    _shorter_faults,
    _less_time,
    _fewer_changes,
)


def shorten(items: Sequence[T], still_fails: Callable[[Sequence[T]], bool]) -> list[T]:
    """Returns a subsequence that still fails, from which no single item can be left out. `items` itself must fail."""
    kept = list(items)
    parts = 2
    if kept and still_fails([]):
        return []
    while len(kept) > 1:
        size = max(1, len(kept) // parts)
        for start in range(0, len(kept), size):
            fewer = kept[:start] + kept[start + size :]
            if still_fails(fewer):
                kept = fewer
                parts = max(2, parts - 1)
                break
        else:
            if size == 1:
                break
            parts = min(len(kept), parts * 2)
    return kept
