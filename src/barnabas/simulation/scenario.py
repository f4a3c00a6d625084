"""A run: a cluster, clients at work, faults from the seed, and the check.

warm up        nodes start, topics are created, clients begin
safety         faults come and go, an operator makes changes; checkers run
liveness       a core heals and the rest is down: within a bound every producer is acked again; then everything
               heals, and within a bound the cluster is whole
audit          clients stop; the whole log is read back and compared with the history
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from barnabas.simulation.ambient import ambient
from barnabas.simulation.checkers import Checker, NoUncaughtExceptions, Watch
from barnabas.simulation.coordinator_replay import Coordinators
from barnabas.simulation.decided_metadata import DecidedMetadata
from barnabas.simulation.descriptions import Descriptions
from barnabas.simulation.elections import Elections
from barnabas.simulation.fault_events import Reach, likely, possible
from barnabas.simulation.fault_schedules import FaultGenerator
from barnabas.simulation.faults import Fault, FaultKind
from barnabas.simulation.group_work import GroupWork
from barnabas.simulation.history import Problem, Violation
from barnabas.simulation.idle_days import IdleDays
from barnabas.simulation.injector import Injector
from barnabas.simulation.liveness import core, what_is_missing
from barnabas.simulation.metadata_checkers import SameImages
from barnabas.simulation.metadata_replay import MetadataLogs
from barnabas.simulation.metric_checkers import Metrics
from barnabas.simulation.needless_changes import NeedlessChanges
from barnabas.simulation.ongoing_writes import Bounds
from barnabas.simulation.opening_checkers import OpenAfterRegistration
from barnabas.simulation.operator import SETTINGS, TOPIC_CHANGES, AdminOperation, Operator
from barnabas.simulation.own_counts import OwnCounts
from barnabas.simulation.promises import promises
from barnabas.simulation.raft_checkers import QuorumSafety
from barnabas.simulation.rare_event_table import reachable
from barnabas.simulation.rare_events import counted
from barnabas.simulation.record_courses import LogEnds, course_of
from barnabas.simulation.replication_checkers import (
    Committed,
    Offsets,
    OneLeader,
    Quorum,
    ReplicaChecker,
    Replicas,
    UncleanElections,
)
from barnabas.simulation.replication_decisions import Decisions
from barnabas.simulation.second_decision_table import second_decisions
from barnabas.simulation.settings_operator import SettingsOperator
from barnabas.simulation.short_slices import SliceSize, draw_slices, short_slices
from barnabas.simulation.side_works import with_features
from barnabas.simulation.simulated_cluster import Client, Cluster, Layout
from barnabas.simulation.sound_logs import SoundLogs
from barnabas.simulation.storage_checkers import StorageFiles
from barnabas.simulation.swarm import draw_properties
from barnabas.simulation.transactional_work import TransactionalWork
from barnabas.simulation.work import PROPERTIES, RecordsWork, Size, Verdicts, Work, WorkKind, client_names
from barnabas.simulation.work_features import WorkFeature, clients_of, draw_features, properties_of
from barnabas.simulation.workload import create_topics
from barnabas.simulation.world import SECOND_US, Livelock, Note, World
from barnabas.simulation.znode_operator import ZnodeEdit, ZnodeOperator
from barnabas.simulation.zookeeper_checkers import Deletions, OneWriter, ServerTree, StateFollowed

_WARM_UP_S_MAX = 120
#: The beginning of the faults.
BEGIN_FAULTS_S = 3
_LIVENESS_S_MAX = 180
_WHOLE_S_MAX = 180
_QUIET_S_MAX = 20
#: The maximum number of events per node and second of a cluster without clients; 3 to 115 were measured.
_QUIET_EVENTS_PER_S = 400
_CALM_S = 20
_SETTLE_S_MAX = 240
_AUDIT_S_MAX = 300
_MORE_ACKS = 3
#: The maximum number of problems that are reported with the courses of their records.
_LIVES_MAX = 3
#: The records per second of each producer; a seed draws one of these. At low rates a run takes less CPU time, so that
#: more faults fit into it, and the next record does not hide the consequences of the last one.
_RATES_PER_S = (1.0, 3.0, 10.0)
_WORK: dict[WorkKind, Callable[[Cluster, Client, Size], Work]] = {
    WorkKind.RECORDS: RecordsWork,
    WorkKind.TRANSACTIONS: TransactionalWork,
    WorkKind.GROUPS: GroupWork,
}


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one run; equal settings give equal runs. `schedule` None: drawn from the seed."""

    seed: int
    layout: Layout = field(default_factory=Layout)
    faults_s: int = 60
    kinds: tuple[FaultKind, ...] = tuple(FaultKind)
    schedule: tuple[Fault, ...] | None = None
    #: Whether about half of the faults that are drawn are tied to events.
    ties_faults: bool = True
    work: WorkKind = WorkKind.RECORDS
    producers: int = 2
    #: The number of readers: consumers, chains or members.
    consumers: int = 2
    #: The records of each producer, on average; None: drawn from the seed.
    records_per_s: float | None = 10.0
    #: The changes that the operator can make; each seed draws some of them.
    operations: tuple[AdminOperation, ...] = tuple(AdminOperation)
    #: The edits of znodes that another operator can make in ZooKeeper mode; each seed draws some of them.
    edits: tuple[ZnodeEdit, ...] = tuple(ZnodeEdit)
    #: The features of work that the run has in addition; if these are all, each seed draws some of them.
    features: tuple[WorkFeature, ...] = ()
    #: Whether the seed draws properties of the nodes; those of the layout replace them.
    draws_properties: bool = False
    #: Whether rare events are counted, which changes nothing else.
    counts_rare_events: bool = True
    keep_events: bool = False
    #: A run with more events is in an endless loop.
    events_max: int = 3_000_000

    @property
    def size(self) -> Size:
        return Size(self.producers, self.consumers, self.records_per_s or _drawn_rate_per_s(self.seed))


@dataclass(slots=True)
class Outcome:
    """The result of a simulated run: its settings, schedule, problems and counts."""

    settings: Settings
    schedule: tuple[Fault, ...]
    problems: list[str]
    trace_hash: str
    events: int
    virtual_s: float
    cpu_s: float
    sent: int
    acked: int
    polled: int
    #: The number of partitions that had an unclean election; fewer guarantees are checked for these.
    unclean: int
    #: The number of changes by the operator that succeeded.
    operated: int
    #: The number of times that each rare event happened, for those that the run could reach.
    rare_events: Mapping[str, int]
    notes: list[Note]
    #: The courses of the records of the first problems: the text of a problem -> lines of all nodes and clients.
    courses: dict[str, list[Note]]

    @property
    def failed(self) -> bool:
        return bool(self.problems)


def _drawn_rate_per_s(seed: int) -> float:
    return World(seed).stream("rate").choice(_RATES_PER_S)


def schedule_of(settings: Settings) -> tuple[Fault, ...]:
    """Returns the faults of these settings, drawn if necessary."""
    if settings.schedule is not None:
        return settings.schedule
    return generator_of(settings).schedule(World(settings.seed), *fault_times_ms(settings))


def generator_of(settings: Settings) -> FaultGenerator:
    """Returns the generator of faults that these settings allow."""
    events = possible(settings.layout, settings.work) if settings.ties_faults else []
    reach = Reach(layout_of(settings).properties, drawn_features(settings), drawn_operations(settings))
    return FaultGenerator(settings.layout, struck_clients(settings), settings.kinds, likely(events, reach))


def struck_clients(settings: Settings) -> list[str]:
    """Returns the clients that faults can affect."""
    return [*client_names(settings.work, settings.size), *clients_of(drawn_features(settings))]


def _client_ids(settings: Settings) -> list[str]:
    """Returns the client ids of the work: the names of clients, or with records those of their first processes."""
    names = client_names(settings.work, settings.size)
    return [f"{name}.1" for name in names] if settings.work is WorkKind.RECORDS else names


def fault_times_ms(settings: Settings) -> tuple[int, int]:
    """Returns the period in which faults begin."""
    return BEGIN_FAULTS_S * 1000, (BEGIN_FAULTS_S + settings.faults_s) * 1000


def layout_of(settings: Settings) -> Layout:
    """Returns the layout with the properties of the work, and with those that the seed draws."""
    features = drawn_features(settings)
    properties = {**PROPERTIES[settings.work], **drawn_properties(settings), **properties_of(features)}
    properties.update(settings.layout.properties)
    return replace(settings.layout, properties=properties, has_racks=WorkFeature.READERS in features)


def drawn_features(settings: Settings) -> frozenset[WorkFeature]:
    """Returns the features of work that the run has."""
    drawn = draw_features(World(settings.seed).stream("features"), settings.layout, settings.features)
    # After idle days empty groups and their offsets are gone, and counts per generation start again.
    return drawn if settings.work is WorkKind.RECORDS else drawn - {WorkFeature.IDLE}


def drawn_operations(settings: Settings) -> list[AdminOperation]:
    """Returns the changes that operators of the run can make, as far as its work allows them."""
    random = World(settings.seed).stream("operations")
    drawn = [kind for kind in AdminOperation if random.random() < 0.5]
    return [kind for kind in drawn if kind in settings.operations]


def drawn_properties(settings: Settings) -> dict[str, str]:
    """Returns the properties that the seed draws for all nodes."""
    if not settings.draws_properties:
        return {}
    return draw_properties(World(settings.seed).stream("properties"), settings.layout)


def drawn_slices(settings: Settings) -> dict[SliceSize, int]:
    """Returns the sizes of slices that the seed draws; none where its properties are not drawn either."""
    if not settings.draws_properties:
        return {}
    return draw_slices(World(settings.seed).stream("slices"))


class Run:
    """A simulated run: builds the cluster, clients and faults, and executes the phases one after the other."""

    def __init__(self, settings: Settings, checkers: Sequence[Checker] | None = None) -> None:
        self.settings = settings
        self.schedule = schedule_of(settings)
        self.world = World(settings.seed, keep_events=settings.keep_events, events_max=settings.events_max)
        self.cluster = Cluster(self.world, layout_of(settings))
        self.decided = DecidedMetadata(self.cluster)
        self.injector = Injector(self.cluster)
        self.auditor = self.cluster.add_client("auditor")
        base = _WORK[settings.work](self.cluster, self.auditor, settings.size)
        features = drawn_features(settings)
        self.work = with_features(self.cluster, self.auditor, base, features)
        #: The offsets of the other clients must not expire.
        can_expire = settings.work is WorkKind.RECORDS and WorkFeature.STATIC not in features
        is_idle = WorkFeature.IDLE in features
        self.idle_days = IdleDays(self.cluster, lets_offsets_expire=can_expire) if is_idle else None
        kinds = [kind for kind in drawn_operations(settings) if kind in self.work.operations]
        topics = [*self.work.topics, *self.work.internal]
        of_topics = [kind for kind in kinds if kind in TOPIC_CHANGES]
        self.operator = Operator(self.cluster, topics, of_topics, "operator")
        of_settings = [kind for kind in kinds if kind in SETTINGS]
        self.settings_operator = SettingsOperator(self.cluster, topics, of_settings, _client_ids(settings), "tuner")
        in_zookeeper, random = settings.layout.zookeeper, self.world.stream("edits")
        edits = [kind for kind in settings.edits if in_zookeeper and random.random() < 0.4]
        self.editor = ZnodeOperator(self.cluster, self.work.topics, edits, "editor") if edits else None
        self._settled_us = 0
        self.unclean = UncleanElections()
        self.committed = Committed(self.cluster, self.unclean)
        self.log_ends = LogEnds(self.world)
        self.descriptions: Descriptions | None = None
        drawn = {size.name for size in drawn_slices(settings)}
        self.decides_in_portions = not drawn.isdisjoint({"PARTITIONS_IN_PORTION", "PARTITIONS_AT_ONCE"})
        #: The second decisions; None if the caller chooses the checkers.
        self.decided_again = second_decisions() if checkers is None else None
        self.checkers = tuple(self._checkers() if checkers is None else checkers)
        self.watch = Watch(self.cluster, self.checkers)

    def _checkers(self) -> list[Checker]:
        cluster, unclean = self.cluster, self.unclean
        in_zookeeper = self.settings.layout.zookeeper
        followed = StateFollowed()
        elections = Elections(cluster)
        needless = NeedlessChanges(cluster, lambda: self.injector.last_active_us, Bounds(cluster).aftermath_ms)
        replica_checkers: list[ReplicaChecker] = [
            elections,
            self.log_ends,
            unclean,
            OneLeader(),
            self.committed,
            Offsets(unclean),
            Quorum(cluster),
            Decisions(cluster.layout.properties, unregisters=in_zookeeper, in_portions=self.decides_in_portions),
            needless,
            *([followed] if in_zookeeper else []),
        ]
        replicas = Replicas(None, replica_checkers, self.decided if in_zookeeper else None)
        logs = None if in_zookeeper else MetadataLogs()
        own: list[Checker] = [QuorumSafety(), SameImages()] if logs is None else [QuorumSafety(), SameImages(), logs]
        if in_zookeeper:
            own = [ServerTree(cluster, [OneWriter(), followed, Deletions(cluster)])]
        coordinators = Coordinators(unclean)
        self.descriptions = Descriptions(cluster, coordinators, logs)
        own += [
            needless,
            replicas,
            StorageFiles(cluster),
            coordinators,
            Metrics(coordinators, logs),
            OwnCounts(),
            SoundLogs(),
            OpenAfterRegistration(),
        ]
        own += promises(cluster, self.decided, lambda: self.work.acked)
        own += [] if self.decided_again is None else [self.decided_again]
        return [elections, NoUncaughtExceptions(), *own, *self.work.checkers]

    def execute(self) -> Outcome:
        began_cpu_s = time.process_time()
        problems: list[Problem] = []
        watched = reachable(self.settings.layout, self.settings.work) if self.settings.counts_rare_events else []
        seen: Mapping[str, int] = {}
        try:
            with (
                short_slices(drawn_slices(self.settings)),
                nullcontext() if self.decided_again is None else self.decided_again.judging(),
                counted(watched) as seen,
                ambient(self.world),
                self.injector.injecting(self.schedule),
            ):
                self._phases()
                problems = self._audit()
        except (Violation, Livelock) as broken:
            self.world.note("checker", str(broken))
            problems = [self._problem_of(broken)]
        except Exception as error:
            self.world.note("run", f"{type(error).__name__}: {error}")
            problems = [Problem(f"the run itself failed: {type(error).__name__}: {error}")]
        counts = self.work.counts()
        return Outcome(
            settings=self.settings,
            schedule=self.schedule,
            problems=[problem.text for problem in problems],
            trace_hash=self.world.trace.hexdigest(),
            events=self.world.trace.count,
            virtual_s=self.world.now_us / SECOND_US,
            cpu_s=time.process_time() - began_cpu_s,
            sent=counts.sent,
            acked=counts.acked,
            polled=counts.polled,
            unclean=len(self.unclean.partitions),
            operated=sum(sum(operator.done.values()) for operator in self._operators()),
            rare_events={event.name: seen.get(event.name, 0) for event in watched},
            notes=self.world.trace.notes,
            courses=self._courses(problems),
        )

    def _operators(self) -> list[Operator | SettingsOperator | ZnodeOperator]:
        return [self.operator, self.settings_operator, *([] if self.editor is None else [self.editor])]

    def _problem_of(self, broken: Violation | Livelock) -> Problem:
        if isinstance(broken, Livelock) or broken.at is None:
            return Problem(str(broken))
        return Problem(str(broken), (broken.at,), self.work.notes_at(broken.at))

    def _courses(self, problems: Sequence[Problem]) -> dict[str, list[Note]]:
        shown = [problem for problem in problems if problem.spots or problem.notes][:_LIVES_MAX]
        return {problem.text: course_of(problem, self.log_ends, self.world.trace.notes) for problem in shown}

    # -- phases

    def _phases(self) -> None:
        self.cluster.start()
        replicas = self.settings.layout.replication_factor
        creating = create_topics(self.cluster, self.auditor, self.work.topics, replicas)
        self._finish("the topics are not created", self.auditor, creating, _WARM_UP_S_MAX)
        for worker in self.work.workers:
            worker.client.run(worker.run)
        for operator in self._operators():
            operator.start()
        self.world.run_until((BEGIN_FAULTS_S + self.settings.faults_s) * SECOND_US)
        for operator in self._operators():
            operator.stopping = True
        self._check_core_progress()
        self.world.note("world", "everything heals")
        self.injector.heal()
        self._progress("everything healed")
        if not self._wait(lambda: not (self.operator.is_idle and self.settings_operator.is_idle), _LIVENESS_S_MAX):
            raise Violation(f"the operators are not done {_LIVENESS_S_MAX} s after everything healed")
        self._settled_us = self.world.now_us
        self._progress("the operator is done")
        if self.idle_days is not None:
            self.idle_days.run(self.work.workers)
            self._progress("the idle days")
        self._finish("the work in progress does not end", self.auditor, self.work.settle(), _SETTLE_S_MAX)
        self._becomes_whole()
        self._becomes_quiet()
        self._stays_calm()

    def _check_core_progress(self) -> None:
        """Checks the progress of the core while the other nodes are down."""
        image, random = self.decided.image(), self.world.stream("core")
        kept = core(self.cluster, image, self.injector.active, random, self.operator.moves)
        rest = [name for name in self.cluster.nodes if name not in kept]
        if not rest:
            return
        self.world.note("world", f"{', '.join(sorted(kept))} heal, {', '.join(rest)} die")
        servers = [name for name in self.cluster.programs if name not in self.cluster.nodes]
        operators = (self.operator.name, self.settings_operator.name)
        self.injector.heal({*kept, *servers, *self.cluster.clients, *operators})
        for name in rest:
            self.cluster.prevent_start(name)
            self.cluster.nodes[name].kill()
        self._progress("a majority healed")
        for name in rest:
            self.cluster.allow_start(name)

    def _progress(self, since: str) -> None:
        """Waits until every worker has completed another operation."""
        goal = [(worker, worker.acked + _MORE_ACKS) for worker in self.work.must_make_progress]

        def waits() -> bool:
            return any(worker.acked < count for worker, count in goal)

        if not self._wait(waits, _LIVENESS_S_MAX):
            stuck = [worker.client.name for worker, count in goal if worker.acked < count]
            raise Violation(f"no progress within {_LIVENESS_S_MAX} s after {since}: {', '.join(stuck)}")

    def _becomes_whole(self) -> None:
        """Waits until the cluster is whole, checking every second."""
        for _ in range(_WHOLE_S_MAX):
            missing = what_is_missing(self.cluster, self.decided.image())
            if not missing:
                return
            self.world.run_for(SECOND_US)
        raise Violation(f"not whole within {_WHOLE_S_MAX} s: {missing}")

    def _becomes_quiet(self) -> None:
        """Waits for a second with few events: a node that does something endlessly continues even if no client
        works.
        """
        most = _QUIET_EVENTS_PER_S * len(self.cluster.programs)
        count = 0
        for _ in range(_QUIET_S_MAX):
            before = self.world.trace.count
            self.world.run_for(SECOND_US)
            count = self.world.trace.count - before
            if count <= most:
                return
        raise Violation(f"not quiet within {_QUIET_S_MAX} s: {count} events in a second in which nobody works")

    def _stays_calm(self) -> None:
        """Lets a time pass in which nobody works and nothing fails: no node has anything to report."""
        noted = len(self.world.trace.notes)
        self.world.run_for(_CALM_S * SECOND_US)
        reports = [note for note in self.world.trace.notes[noted:] if note.text.startswith("reports:")]
        if reports:
            raise Violation(f"a report although nothing fails: {reports[0].node} {reports[0].text}")

    def _wait(self, waits: Callable[[], bool], limit_s: int) -> bool:
        return self.world.run_while(waits, self.world.now_us + limit_s * SECOND_US)

    def _finish(self, what: str, client: Client, work: Any, limit_s: int) -> Any:
        task = client.loop.create_task(work)
        if not self._wait(lambda: not task.done(), limit_s):
            raise Violation(f"{what} within {limit_s} s")
        return task.result()

    def _audit(self) -> list[Problem]:
        found = self._finish("the log cannot be read", self.auditor, self.work.read(), _AUDIT_S_MAX)
        self.watch.check_all()
        if self.descriptions is not None:
            asking = self.descriptions.check(self.auditor)
            self._finish("the cluster does not describe itself", self.auditor, asking, _AUDIT_S_MAX)
        settings = [Problem(text) for text in self.settings_operator.judge()]
        return settings + self.work.judge(found, Verdicts(self._lossy(), self._settled_us))

    def _lossy(self) -> Collection[str]:
        """Returns the topics that can lose records. A topic with one replica has an unclean election after every power
        failure, but keeps what it had synced.
        """
        if self.settings.layout.replication_factor > 1:
            return self.unclean.topics
        has_lost = any(fault.kind is FaultKind.POWER and fault.amount > 0 for fault in self.schedule)
        return {topic.name for topic in self.work.topics if has_lost and not topic.is_synced}


def run(settings: Settings) -> Outcome:
    """Simulates a run with these settings from beginning to end."""
    return Run(settings).execute()
