"""Seeded runs of a replicated topic under faults: acknowledged records exist at the end, once and in order.

Producers write with acks=all to two partitions (replication factor 3, min ISR 2): one sends every batch once and
accepts any answer, the other is idempotent and repeats each batch until it is acknowledged. A reader follows each
partition, and records are deleted; in some runs replicas are moved, and another topic is deleted and created again
(`replication_workers`). Faults are drawn from the seed. A run ends with everything healed: then the ISR must be full
again within a bound, the replicas equal, and the history correct.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from random import Random

from barnabas.common.types import TopicPartition
from barnabas.metadata.image import MetadataImage
from barnabas.replication.partition import Partition
from barnabas.simulation.checkers import Checker, NoUncaughtExceptions, Watch
from barnabas.simulation.elections import Elections
from barnabas.simulation.fault_schedules import Ties, draw_aimed
from barnabas.simulation.faults import Fault, FaultEvent, FaultKind
from barnabas.simulation.history import Problem, Violation
from barnabas.simulation.injector import Injector
from barnabas.simulation.metadata_checkers import SameImages
from barnabas.simulation.node import Node
from barnabas.simulation.operator import AdminOperation
from barnabas.simulation.own_counts import OwnCounts
from barnabas.simulation.record_courses import LogEnds, course_of
from barnabas.simulation.replication_checkers import (
    Committed,
    Offsets,
    OneLeader,
    Quorum,
    ReplicaChecker,
    Replicas,
    State,
)
from barnabas.simulation.replication_decisions import Decisions
from barnabas.simulation.run_topics import Topic
from barnabas.simulation.second_decision_table import second_decisions
from barnabas.simulation.settings_operator import SettingsOperator
from barnabas.simulation.simulated_cluster import Cluster
from barnabas.simulation.sound_logs import SoundLogs
from barnabas.simulation.storage_checkers import StorageFiles
from barnabas.simulation.timeline import fold, partition_text
from barnabas.simulation.world import MILLISECOND_US, SECOND_US, Livelock, Note
from barnabas.simulation.worlds.replicated import CONTROLLER, Replicated, log_values
from barnabas.simulation.worlds.replication_workers import (
    AGAIN,
    BROKERS,
    PARTITIONS,
    TOPIC,
    Deleter,
    History,
    IdempotentProducer,
    Mover,
    Producer,
    Reader,
    Renewer,
    Worker,
    has_all_brokers,
)

_LIVENESS_S_MAX = 60
#: Faults that can happen together. A broker that loses power can lose what it had not synced. Replication does not
#: promise to survive a second one that ends uncleanly at the same time.
_WITHOUT_POWER = (FaultKind.KILL, FaultKind.STOP)
_LINKS = (FaultKind.PARTITION, FaultKind.ONE_WAY, FaultKind.RESET, FaultKind.SLOW_LINK)
_AIMED = (FaultKind.ISOLATE, FaultKind.HOLD_ANSWER, FaultKind.AWAY_AND_BACK)
_DURATIONS_MS = (30, 200, 800, 2_500)
#: The events of every run, and those of runs with short segments and frequent snapshots.
_EVENTS = (
    FaultEvent.APPEND,
    FaultEvent.DECISION,
    FaultEvent.LEADER,
    FaultEvent.ISR_SHRINK,
    FaultEvent.ISR_GROWTH,
    FaultEvent.LOG_CUT,
)
_OF_LOGS = (FaultEvent.ROLL, FaultEvent.SNAPSHOT)
_SHORT_LOGS = {"log_roll_ms": "700", "metadata_log_max_record_bytes_between_snapshots": "1500"}
#: How long a fault waits for its event: runs last a few seconds.
_WITHIN_MS = 2_000
#: Runs in which replicas move between log directories, and how often.
_SHIFT_CHANCE = 0.3
_SHIFT_GAP_MS = 500
#: Ranges of the pause between two actions of a client: from busy runs to runs with few records.
_PACES_MS = ((0, 10, 80), (5, 40, 150), (20, 80, 300), (40, 150, 400))


def draw_faults(
    random: Random,
    begin_ms: int,
    end_ms: int,
    kinds: Sequence[FaultKind],
    double_restarts: Random,
    ties: Ties | None = None,
) -> list[Fault]:
    """Draws faults: each seed has its own kinds, its own pace, and at most one broker that loses power. Some cut a
    broker off from all others at the same time, so that a deposed leader continues to lead. `kinds` replaces the seed's
    kinds. `double_restarts` draws the double restarts (`_double_restart`) after some power losses. `ties` ties faults
    to events, except those that belong together.
    """
    harms = list(random.choice(((FaultKind.POWER,), _WITHOUT_POWER)))
    kinds = kinds or [kind for kind in (*harms, FaultKind.PAUSE, *_LINKS) if random.random() < 0.6] or harms
    victim = random.choice(BROKERS)
    gap_ms = random.choice((150, 400, 1_000))
    isolates, comes_together = random.random() < 0.4, random.random() < 0.4
    restarted_ms = begin_ms if FaultKind.POWER in kinds and double_restarts.random() < 0.4 else end_ms
    faults: list[Fault] = []
    at_ms = begin_ms
    while (at_ms := at_ms + 1 + int(random.expovariate(1 / gap_ms))) < end_ms:
        if isolates and random.random() < 0.15:
            faults += _isolation(random, at_ms)
            continue
        kind = random.choice(kinds)
        node = victim if kind is FaultKind.POWER else random.choice(BROKERS)
        peer = random.choice([name for name in (*BROKERS, CONTROLLER) if name != node]) if kind in _LINKS else ""
        amount = random.randint(0, 2) if kind is FaultKind.POWER else random.choice((2, 20, 120))
        duration_ms = int(random.choice(_DURATIONS_MS) * (0.25 + random.random()))
        fault = Fault(at_ms, kind, node, peer, duration_ms, amount if not peer or kind in _LINKS else 0)
        faults.append(fault if ties is None else ties.tie(fault))
        if comes_together and kind is FaultKind.POWER:
            faults.append(_silence(random, node, at_ms))
        if restarted_ms <= at_ms:
            restarted_ms = at_ms + double_restarts.randint(1_500, 3_000)
            faults += _double_restart(double_restarts, victim, at_ms)
    return faults


def draw_tied_faults(random: Random, begin_ms: int, end_ms: int, ties: Ties) -> list[Fault]:
    """Draws faults whose effect depends on what the cluster is doing, most of them tied to events, in some seeds."""
    kinds = [kind for kind in _AIMED if random.random() < 0.4]
    gap_ms = random.choice((400, 1_000))
    faults: list[Fault] = []
    at_ms = begin_ms
    while kinds and (at_ms := at_ms + 1 + int(random.expovariate(1 / gap_ms))) < end_ms:
        duration_ms = int(random.choice(_DURATIONS_MS) * (0.25 + random.random()))
        faults.append(ties.tie(draw_aimed(random, random.choice(kinds), at_ms, random.choice(BROKERS), duration_ms)))
    return faults


def _isolation(random: Random, at_ms: int) -> list[Fault]:
    """Cuts a broker off from all nodes, but not from clients, for longer than a session lasts."""
    node = random.choice(BROKERS)
    duration_ms = random.randint(1_200, 3_500)
    peers = [name for name in (*BROKERS, CONTROLLER) if name != node]
    return [Fault(at_ms, FaultKind.PARTITION, node, peer, duration_ms) for peer in peers]


def _silence(random: Random, victim: str, at_ms: int) -> Fault:
    """Delays the AlterPartition requests of one broker, or the controller's decisions for it, while another one
    restarts.
    """
    node = random.choice([name for name in BROKERS if name != victim])
    kind = random.choice((FaultKind.PARTITION, FaultKind.ONE_WAY))
    return Fault(at_ms + random.randint(-300, 100), kind, node, CONTROLLER, random.randint(500, 1_300))


def _double_restart(random: Random, victim: str, at_ms: int) -> list[Fault]:
    """Restarts a broker twice while its leader is far from the controller. While the leader's request to add it to the
    ISR is under way, it dies again, which is noticed immediately, loses its records, and is back, cut off from the
    leader, before the request is handled: the request refers to an earlier incarnation (KIP-903).
    """
    leader = random.choice([name for name in BROKERS if name != victim])
    away_ms, far_ms = random.randint(30, 300), random.randint(150, 350)
    # The leader learns that the broker is back, fetches more, and learns that it is eligible: three one-way delays. The
    # fourth is that of its request.
    again_ms = at_ms + away_ms + 3 * far_ms + random.randint(30, far_ms - 70)
    return [
        Fault(at_ms, FaultKind.KILL, victim, duration_ms=away_ms),
        Fault(at_ms + 20, FaultKind.SLOW_LINK, leader, CONTROLLER, again_ms + far_ms - at_ms, far_ms),
        Fault(again_ms, FaultKind.KILL, victim, duration_ms=30),
        Fault(again_ms, FaultKind.PARTITION, leader, victim, random.randint(500, 1_200)),
        Fault(again_ms + 10, FaultKind.POWER, victim, duration_ms=15, amount=2),
    ]


@dataclass
class Outcome:
    seed: int
    problem: str | None
    faults: list[Fault]
    acked: int
    events: int
    notes: list[Note]
    #: The course of the offset concerned.
    course: list[Note]

    def __str__(self) -> str:
        lines = [f"seed {self.seed}: {self.problem}", *map(str, self.faults), *map(str, fold(self.notes)[-60:])]
        lines += ["its course:", *map(str, self.course)] if self.course else []
        return "\n".join(lines)


class OfClients:
    """A filter that passes the topics of clients only. The brokers' own topics have a min ISR of 1: one power failure,
    and the unclean election of the last known leader after it, can cost the ends of their logs.
    """

    def __init__(self, look: ReplicaChecker) -> None:
        self._look = look

    def on_replica(self, node: Node, partition: Partition, before: State | None, now: State) -> None:
        if partition.topic_partition.topic in (TOPIC, AGAIN):
            self._look.on_replica(node, partition, before, now)

    def on_image(self, before: MetadataImage, now: MetadataImage) -> None:
        self._look.on_image(before, now)


class NewTopicsAreEmpty:
    """A check that a broker's first replica of a topic is empty, whatever existed under that name before (G14)."""

    def __init__(self) -> None:
        self._seen: set[tuple[str, TopicPartition, bytes]] = set()

    def on_replica(self, node: Node, partition: Partition, before: State | None, now: State) -> None:
        key = (node.name, partition.topic_partition, partition.topic_id)
        if key not in self._seen:
            self._seen.add(key)
            if now.log_end_offset:
                name = f"{partition.topic_partition} on {node.name}"
                raise Violation(f"a new topic has old records: {name} ends at {now.log_end_offset}")

    def on_image(self, before: MetadataImage, now: MetadataImage) -> None:
        """Checks nothing: this rule is about replicas."""


class ReplicationRun:
    """A run. `schedule` replaces the faults that are drawn from the seed; all else is drawn as without it."""

    #: The time of faults, unless a run has another one.
    DURATION_S = 6

    def __init__(
        self,
        seed: int,
        *,
        duration_s: int | None = None,
        kinds: Sequence[FaultKind] = (),
        schedule: Sequence[Fault] | None = None,
        ties_faults: bool = True,
        **properties: str,
    ) -> None:
        """Prepares a run. Without `ties_faults` all faults strike at fixed times."""
        self.seed = seed
        self.duration_s = self.DURATION_S if duration_s is None else duration_s
        self._schedule = schedule
        #: The fetch size, which is small in some runs: then followers are far behind after an outage.
        random = Random(seed)
        small = {"replica_fetch_max_bytes": "300"} if random.random() < 0.3 else {}
        often = {"replica_high_watermark_checkpoint_interval_ms": "400"} if random.random() < 0.3 else {}
        self.pace_ms = random.choice(_PACES_MS)
        self._moves = random.random() < 0.25
        self._renews = random.random() < 0.2
        self._rolls = ties_faults and Random(f"{seed} rolls").random() < 0.3
        self._shifts = ties_faults and Random(f"{seed} shifts").random() < _SHIFT_CHANCE
        shifts = {"log_dirs": "/data,/more"} if self._shifts else {}
        self.properties = {**small, **shifts, **often, **(_SHORT_LOGS if self._rolls else {}), **properties}
        self.history = History()
        self.violations: list[str] = []
        self._kinds = kinds
        self._ties_faults = ties_faults

    def check(self, cluster: Cluster) -> None:
        """Raises the first violation that a worker found."""
        if self.violations:
            raise Violation(self.violations[0])

    def execute(self) -> Outcome:
        problem: str | None = None
        course: list[Note] = []
        try:
            with second_decisions().judging():
                self._run()
        except Violation as broken:
            problem = str(broken)
            if broken.at is not None:
                course = course_of(Problem(problem, (broken.at,)), self._log_ends, self.world.trace.notes)
        except Livelock as broken:
            problem = str(broken)
        except AssertionError as broken:
            problem = f"the run itself failed: {broken}"
        world = self.world
        return Outcome(
            self.seed, problem, self.faults, self.history.acked, world.trace.count, world.trace.notes, course
        )

    def _run(self) -> None:
        rig = self.rig = self._make_rig()
        self.world = rig.world
        begin_ms = self.world.now_us // MILLISECOND_US + 300
        end_ms = begin_ms + self.duration_s * 1000
        self.faults = self._faults_between(begin_ms, end_ms)
        self._lay_long_links(self.world.stream("replication faults"))
        rig.create_topic(TOPIC, [[1, 2, 3], [2, 3, 1]], min_insync_replicas="2")
        self.topic_id = rig.topic_id(TOPIC)
        self._committed = Committed(rig.cluster)
        self._elections = Elections(rig.cluster)
        self._log_ends = LogEnds(rig.world)
        self.watch = Watch(rig.cluster, [self, NoUncaughtExceptions(), *self._checkers()], interval=1)
        workers = self._workers()
        for worker in workers:
            worker.client.process.enter(worker.start)
        changes = [AdminOperation.SHIFT, AdminOperation.THROTTLE] if self._shifts else []
        topics = [Topic(TOPIC, PARTITIONS, {})]
        self._tuner = SettingsOperator(rig.cluster, topics, changes, [], "tuner", gap_ms=_SHIFT_GAP_MS)
        self._tuner.start()
        injector = Injector(rig.cluster)
        with injector.injecting(self.faults):
            self.world.run_until(end_ms * MILLISECOND_US)
            self._heal(injector, workers)

    def _make_rig(self) -> Replicated:
        return Replicated(self.seed, 3, (), controllers=1, **self.properties)

    def _faults_between(self, begin_ms: int, end_ms: int) -> list[Fault]:
        if self._schedule is None:
            return self._draw_faults(begin_ms, end_ms)
        # The same number of draws is made as without a schedule, so that later draws do not depend on it.
        self._draw_faults(begin_ms, begin_ms + self.DURATION_S * 1000)
        return list(self._schedule)

    def _draw_faults(self, begin_ms: int, end_ms: int) -> list[Fault]:
        random, double_restarts = (
            self.world.stream("replication faults"),
            self.world.stream("replication rebirths"),
        )
        if not self._ties_faults:
            return draw_faults(random, begin_ms, end_ms, self._kinds, double_restarts)
        tied = self.world.stream("replication ties")
        events = [*_EVENTS, *([FaultEvent.MOVE] if self._moves else []), *(_OF_LOGS if self._rolls else ())]
        ties = Ties(tied, events, _WITHIN_MS)
        faults = draw_faults(random, begin_ms, end_ms, self._kinds, double_restarts, ties)
        return faults if self._kinds else faults + draw_tied_faults(tied, begin_ms, end_ms, ties)

    def _looks(self) -> list[ReplicaChecker]:
        return [
            self._elections,
            self._log_ends,
            OneLeader(),
            NewTopicsAreEmpty(),
            OfClients(self._committed),
            OfClients(Offsets()),
            Quorum(self.rig.cluster),
        ]

    def _checkers(self) -> list[Checker]:
        return [
            self._elections,
            Replicas(CONTROLLER, [*self._looks(), Decisions({})]),
            SameImages(),
            StorageFiles(self.rig.cluster, 2 * SECOND_US),
            OwnCounts(),
            SoundLogs(),
        ]

    def _workers(self) -> list[Worker]:
        workers: list[Worker] = [
            Producer(self, "producer"),
            IdempotentProducer(self, "idempotent"),
            Reader(self, "reader"),
            Deleter(self, "deleter"),
        ]
        workers += [Mover(self, "mover")] if self._moves else []
        return workers + ([Renewer(self, "renewer")] if self._renews else [])

    def _lay_long_links(self, random: Random) -> None:
        """Draws delays: in some runs one follower is always a little behind, or decisions of the controller arrive
        late.
        """
        network = self.rig.cluster.network
        far = random.choice(BROKERS) if random.random() < 0.35 else ""
        is_controller_far = random.random() < 0.35
        for one, other in combinations((*BROKERS, CONTROLLER), 2):
            delay_us = random.randrange(2_000, 20_000) if far in (one, other) else 0
            if other == CONTROLLER and is_controller_far and random.random() < 0.6:
                delay_us += random.randrange(5_000, 150_000)
            network.direction(one, other).extra_us = network.direction(other, one).extra_us = delay_us

    def committed_end(self, index: int) -> int:
        return self._committed.ends.get((TopicPartition(TOPIC, index), self.topic_id), 0)

    def _heal(self, injector: Injector, workers: Sequence[Worker]) -> None:
        injector.heal()
        goal = self.history.acked + 10
        self._await(lambda: self.history.acked >= goal, "nothing is acknowledged although everything healed")
        self._tuner.stopping = True
        self._await(lambda: self._tuner.is_idle, "the limits are not removed although everything healed")
        for worker in workers:
            worker.stopping = True
            if isinstance(worker, Mover):
                worker.client.process.enter(worker.restore)
        self._await(self._is_whole, "the replicas are not in sync again although everything healed")
        self.world.run_for(2 * SECOND_US)
        # A request of the mover can still be under way; the mover then restores the replicas again.
        self._await(lambda: self._is_whole() and self._is_equal(), "the replicas do not become equal")
        self._judge()
        wrong = self._tuner.judge()
        if wrong:
            raise Violation(wrong[0])

    def _await(self, condition: Callable[[], bool], problem: str) -> None:
        until_us = self.world.now_us + _LIVENESS_S_MAX * SECOND_US
        if not self.world.run_while(lambda: not condition(), until_us) and not condition():
            raise Violation(f"{problem}: {self._decided_text()}")

    def _decided_text(self) -> str:
        return "; ".join(
            f"{TOPIC}-{index}: {partition_text(self.rig.image(TOPIC, index))}" for index in range(PARTITIONS)
        )

    def _is_whole(self) -> bool:
        rig = self.rig
        return (
            all(node.is_running and node.broker is not None for node in rig.cluster.nodes.values())
            and all(has_all_brokers(rig.image(TOPIC, index)) for index in range(PARTITIONS))
            and rig.settled(TOPIC)
            and (AGAIN not in rig.decided.topics_by_name or rig.settled(AGAIN))
        )

    def _is_equal(self) -> bool:
        for index in range(PARTITIONS):
            replicas = [self.rig.partition(number, TOPIC, index) for number in (1, 2, 3)]
            ends = {(p.log.log_end_offset, p.high_watermark) for p in replicas}
            if len(ends) > 1 or any(end != hw for end, hw in ends):
                return False
        return True

    def _judge(self) -> None:
        for index in range(PARTITIONS):
            logs = [dict(log_values(self.rig.partition(number, TOPIC, index))) for number in (1, 2, 3)]
            start = max(self.history.deleted_to[index], *(min(log, default=0) for log in logs))
            logs = [{offset: value for offset, value in log.items() if offset >= start} for log in logs]
            if logs[1] != logs[0] or logs[2] != logs[0]:
                raise Violation(f"the replicas of partition {index} differ in the end")
            self._judge_partition(index, logs[0], start)

    def _judge_partition(self, index: int, log: dict[int, bytes | None], start: int) -> None:
        for write in self.history.writes:
            if write.index != index or write.offset is None or write.offset < start:
                continue
            if log.get(write.offset) != write.value:
                raise Violation(
                    f"an acknowledged record is lost: {write.value!r} at {index}-{write.offset}, "
                    f"where {log.get(write.offset)!r} is",
                    ((TOPIC, index), write.offset),
                )
        values = list(log.values())
        written = [value for value in values if value is not None and value.startswith(b"i")]
        if len(set(values)) != len(values):
            raise Violation(f"a record is twice in partition {index}")
        acked = self.history.ordered[index]
        kept = [value for value in acked if value in set(written)]
        if [value for value in written if value in set(acked)] != kept:
            raise Violation(f"idempotent records are out of order in partition {index}")


def explore(seed: int, **options: object) -> Outcome:
    return ReplicationRun(seed, **options).execute()  # type: ignore[arg-type]
