"""Seeded runs of a replicated topic under faults: what was acknowledged is there, once and in order, at the end.

Producers write with acks=all to two partitions (replication factor 3, min ISR 2): one sends every batch once and takes
any answer, the other is idempotent and repeats each batch until it is acknowledged. A reader follows each partition.
Faults are drawn from the seed. A run ends with everything healed: then the ISR must be full again within a bound, the
replicas equal, and the history right.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from tests.support.replicated import (
    CONTROLLER,
    RawClient,
    Replicated,
    batch_of,
    fetch_request,
    list_offsets_request,
    log_values,
    produce_request,
    values_in,
)
from tests.support.replication_checkers import Committed, Offsets, OneLeader

from barnabas.common.errors import ErrorCode
from barnabas.protocol.message import Message
from barnabas.protocol.messages.delete_records import DeleteRecordsRequest
from barnabas.protocol.messages.fetch import FetchResponse
from barnabas.protocol.messages.list_offsets import ListOffsetsResponse
from barnabas.protocol.messages.produce import ProduceResponse
from barnabas.simulation.checkers import Checker, NoMistakes, Watch
from barnabas.simulation.cluster import Cluster
from barnabas.simulation.faults import Fault, FaultKind, Injector
from barnabas.simulation.history import Violation
from barnabas.simulation.world import MILLISECOND_US, SECOND_US, Livelock, Note

TOPIC = "orders"
PARTITIONS = 2
BROKERS = ("broker1", "broker2", "broker3")
_LIVENESS_S_MAX = 60
#: A broker that loses power may lose what it had not synced. That a second one leaves at the same time, with an end
#: that counts as unclean, is more than replication promises to survive.
_WITHOUT_POWER = (FaultKind.KILL, FaultKind.STOP)
_LINKS = (FaultKind.PARTITION, FaultKind.ONE_WAY, FaultKind.RESET, FaultKind.SLOW_LINK)
_DURATIONS_MS = (30, 200, 800, 2_500)


def draw_faults(random: Random, begin_ms: int, end_ms: int, kinds: Sequence[FaultKind] = ()) -> list[Fault]:
    """A swarm: each seed has its own kinds, its own pace, and one broker at most that loses power. Some cut a broker
    off from all others at once, which is what a leader of the past needs to believe in itself. `kinds` in place of
    the swarm's."""
    harms = list(random.choice(((FaultKind.POWER,), _WITHOUT_POWER)))
    kinds = kinds or [kind for kind in (*harms, FaultKind.PAUSE, *_LINKS) if random.random() < 0.6] or harms
    victim = random.choice(BROKERS)
    gap_ms = random.choice((150, 400, 1_000))
    isolates = random.random() < 0.4
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
        faults.append(Fault(at_ms, kind, node, peer, duration_ms, amount if not peer or kind in _LINKS else 0))
    return faults


def _isolation(random: Random, at_ms: int) -> list[Fault]:
    """Nobody but clients reach this broker, for longer than a session lasts."""
    node = random.choice(BROKERS)
    duration_ms = random.randint(1_200, 3_500)
    peers = [name for name in (*BROKERS, CONTROLLER) if name != node]
    return [Fault(at_ms, FaultKind.PARTITION, node, peer, duration_ms) for peer in peers]


@dataclass
class Write:
    value: bytes
    index: int
    #: Base offset that was acknowledged.
    offset: int | None = None
    #: Answered with an error after which it may be there or not.
    failed: int | None = None


@dataclass
class History:
    writes: list[Write] = field(default_factory=list)
    #: Idempotent ones: partition -> values in the order of their acknowledgement.
    ordered: dict[int, list[bytes]] = field(default_factory=lambda: {index: [] for index in range(PARTITIONS)})
    deleted_to: dict[int, int] = field(default_factory=lambda: dict.fromkeys(range(PARTITIONS), 0))

    @property
    def acked(self) -> int:
        return sum(write.offset is not None for write in self.writes)


class Worker:
    """A client with its own idea of who leads; wrong ideas are part of the game. As clients do (KIP-951), it never goes
    back to an older leader epoch than it has seen."""

    def __init__(self, run: ReplicationRun, name: str) -> None:
        self.run = run
        self.random = run.world.stream(f"worker/{name}")
        self.client = RawClient(run.rig.cluster, name)
        self._leaders: dict[int, str] = {}
        self._newest: dict[int, tuple[int, int]] = {}
        self.stopping = False

    def later(self, delay_ms: int, callback: Callable[[], None]) -> None:
        self.client.host.timers.call_later(delay_ms, callback)

    def leader(self, index: int) -> str:
        if index not in self._leaders:
            self._leaders[index] = self._look_up(index)
        return self._leaders[index]

    def _look_up(self, index: int) -> str:
        """As some broker's metadata has it at this moment."""
        images = [
            node.broker.metadata.image.partition(TOPIC, index)
            for name, node in self.run.rig.cluster.nodes.items()
            if name != CONTROLLER and node.is_running and node.broker is not None
        ]
        known = self._newest.get(index, (-1, 0))
        leaders = [(image.leader_epoch, image.leader) for image in images if image is not None and image.leader > 0]
        leaders = [found for found in leaders if found[0] >= known[0]] or [known]
        self._newest[index] = found = self.random.choice(leaders)
        return f"broker{found[1]}" if found[1] else self.random.choice(BROKERS)

    def forget(self, index: int) -> None:
        self._leaders.pop(index, None)


class Producer(Worker):
    """Every batch once."""

    def start(self) -> None:
        self.number = 0
        for index in range(PARTITIONS):
            self._next(index)

    def _next(self, index: int) -> None:
        if self.stopping:
            return
        self.number += 1
        write = Write(b"p%d-%d" % (index, self.number), index)
        self.run.history.writes.append(write)
        request = produce_request(self.run.topic_id, index, batch_of(write.value), timeout_ms=600)
        self.client.ask(self.leader(index), request, lambda response: self._on_answer(write, response), timeout_ms=1500)

    def _on_answer(self, write: Write, response: Message | None) -> None:
        if isinstance(response, ProduceResponse):
            row = response.responses[0].partition_responses[0]
            if row.error_code == ErrorCode.NONE:
                write.offset = row.base_offset
            else:
                write.failed = row.error_code
        if write.offset is None:
            self.forget(write.index)
        self.later(self.random.choice((0, 5, 40)), lambda: self._next(write.index))


class IdempotentProducer(Worker):
    """One batch at a time per partition, again and again until it is acknowledged."""

    PRODUCER_ID = 4711

    def start(self) -> None:
        self.sequences = dict.fromkeys(range(PARTITIONS), 0)
        for index in range(PARTITIONS):
            self._next(index)

    def _next(self, index: int) -> None:
        if not self.stopping:
            sequence = self.sequences[index]
            self._send(index, b"i%d-%d" % (index, sequence), sequence)

    def _send(self, index: int, value: bytes, sequence: int) -> None:
        data = batch_of(value, producer_id=self.PRODUCER_ID, base_sequence=sequence)
        request = produce_request(self.run.topic_id, index, data, timeout_ms=600)

        def answered(response: Message | None) -> None:
            code = ErrorCode.REQUEST_TIMED_OUT
            if isinstance(response, ProduceResponse):
                row = response.responses[0].partition_responses[0]
                code = ErrorCode(row.error_code)
                if code is ErrorCode.NONE:
                    self.run.history.writes.append(Write(value, index, row.base_offset))
                    self.run.history.ordered[index].append(value)
                    self.sequences[index] = sequence + 1
                    self.later(self.random.choice((0, 5, 40)), lambda: self._next(index))
                    return
            if code in (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID):
                self.run.violations.append(f"idempotent producer was refused with {code.name}: {value!r}")
            self.forget(index)
            self.later(self.random.choice((5, 20, 60)), lambda: self._send(index, value, sequence))

        self.client.ask(self.leader(index), request, answered, timeout_ms=1500)


class Reader(Worker):
    """Reads one partition from its beginning on, and asks now and then where it ends."""

    def start(self) -> None:
        self.position = dict.fromkeys(range(PARTITIONS), 0)
        self.latest = dict.fromkeys(range(PARTITIONS), 0)
        self.read: dict[int, dict[int, bytes | None]] = {index: {} for index in range(PARTITIONS)}
        for index in range(PARTITIONS):
            self._next(index)

    def _next(self, index: int) -> None:
        if self.stopping:
            return
        if self.random.random() < 0.2:
            request: Message = list_offsets_request(TOPIC, index)
        else:
            request = fetch_request(self.run.topic_id, index, self.position[index], max_wait_ms=100)
        self.client.ask(self.leader(index), request, lambda response: self._on_answer(index, response), timeout_ms=1500)

    def _on_answer(self, index: int, response: Message | None) -> None:
        code = ErrorCode.REQUEST_TIMED_OUT
        if isinstance(response, ListOffsetsResponse):
            row = response.topics[0].partitions[0]
            code = ErrorCode(row.error_code)
            if code is ErrorCode.NONE:
                self._on_latest(index, row.offset)
        elif isinstance(response, FetchResponse):
            answer = response.responses[0].partitions[0]
            code = ErrorCode(answer.error_code)
            if code is ErrorCode.NONE:
                self._on_records(index, bytes(answer.records or b""))
            elif code is ErrorCode.OFFSET_OUT_OF_RANGE:
                if self.position[index] >= self.run.history.deleted_to[index]:
                    self.run.violations.append(f"a reader's offset is out of range: {self.position[index]} of {index}")
                self.position[index] = self.run.history.deleted_to[index]
        if code is not ErrorCode.NONE:
            self.forget(index)
        self.later(self.random.choice((0, 20)), lambda: self._next(index))

    def _on_latest(self, index: int, offset: int) -> None:
        if offset < self.latest[index] and self._is_new(index):
            self.run.violations.append(f"the end went back for clients: {index} from {self.latest[index]} to {offset}")
        self.latest[index] = max(self.latest[index], offset)

    def _is_new(self, index: int) -> bool:
        """A leader of the past may still answer with what it knew: only the present one is held to it."""
        return self.leader(index) == f"broker{self.run.rig.leader(TOPIC, index)}"

    def _on_records(self, index: int, data: bytes) -> None:
        for offset, value in values_in(data):
            if offset >= self.position[index]:
                known = self.read[index].setdefault(offset, value)
                if known != value:
                    self.run.violations.append(f"two values at one offset: {index}-{offset}: {known!r} and {value!r}")
                self.position[index] = offset + 1


class Deleter(Worker):
    """DeleteRecords now and then."""

    def start(self) -> None:
        self.later(self.random.randrange(500, 3000), self._next)

    def _next(self) -> None:
        if self.stopping:
            return
        index = self.random.randrange(PARTITIONS)
        end = self.run.committed_end(index)
        offset = self.random.randrange(end + 1)
        if offset <= self.run.history.deleted_to[index]:
            self.later(1000, self._next)
            return
        self.run.history.deleted_to[index] = offset
        request = DeleteRecordsRequest(
            timeout_ms=500,
            topics=[
                DeleteRecordsRequest.DeleteRecordsTopic(
                    name=TOPIC,
                    partitions=[DeleteRecordsRequest.DeleteRecordsPartition(partition_index=index, offset=offset)],
                )
            ],
        )
        again = self.random.randrange(500, 3000)
        self.client.ask(self.leader(index), request, lambda response: self.later(again, self._next), timeout_ms=1500)


@dataclass
class Outcome:
    seed: int
    problem: str | None
    faults: list[Fault]
    acked: int
    events: int
    notes: list[Note]

    def __str__(self) -> str:
        lines = [f"seed {self.seed}: {self.problem}", *map(str, self.faults), *map(str, self.notes[-60:])]
        return "\n".join(lines)


class ReplicationRun:
    def __init__(self, seed: int, *, duration_s: int = 6, kinds: Sequence[FaultKind] = (), **properties: str) -> None:
        self.seed = seed
        self.duration_s = duration_s
        #: In some runs followers get little with one answer, and are far behind when they were away.
        small = {"replica_fetch_max_bytes": "300"} if Random(seed).random() < 0.3 else {}
        self.properties = {**small, **properties}
        self.history = History()
        self.violations: list[str] = []
        self._kinds = kinds

    def check(self, cluster: Cluster) -> None:
        """What workers saw that must not be."""
        if self.violations:
            raise Violation(self.violations[0])

    def execute(self) -> Outcome:
        problem: str | None = None
        try:
            self._run()
        except (Violation, Livelock) as broken:
            problem = str(broken)
        except AssertionError as broken:
            problem = f"the run itself failed: {broken}"
        world = self.world
        return Outcome(self.seed, problem, self.faults, self.history.acked, world.trace.count, world.trace.notes)

    def _run(self) -> None:
        rig = self.rig = Replicated(self.seed, **self.properties)
        self.world = rig.world
        begin_ms = self.world.now_us // MILLISECOND_US + 300
        end_ms = begin_ms + self.duration_s * 1000
        random = self.world.stream("replication faults")
        self.faults = draw_faults(random, begin_ms, end_ms, self._kinds)
        rig.create_topic(TOPIC, [[1, 2, 3], [2, 3, 1]], min_insync_replicas="2")
        self.topic_id = rig.topic_id(TOPIC)
        self._committed = Committed()
        checkers: list[Checker] = [self, NoMistakes(), OneLeader(), self._committed, Offsets()]
        self.watch = Watch(rig.cluster, checkers, interval=1)
        workers: list[Worker] = [
            Producer(self, "producer"),
            IdempotentProducer(self, "idempotent"),
            Reader(self, "reader"),
            Deleter(self, "deleter"),
        ]
        for worker in workers:
            worker.client.process.enter(worker.start)  # type: ignore[attr-defined]
        injector = Injector(rig.cluster)
        injector.schedule(self.faults)
        self.world.run_until(end_ms * MILLISECOND_US)
        self._heal(injector, workers)

    def committed_end(self, index: int) -> int:
        return next((end for tp, end in self._committed.ends.items() if tp.partition == index), 0)

    def _heal(self, injector: Injector, workers: Sequence[Worker]) -> None:
        injector.heal()
        goal = self.history.acked + 10
        self._await(lambda: self.history.acked >= goal, "nothing is acknowledged although everything healed")
        for worker in workers:
            worker.stopping = True
        self._await(self._is_whole, "the replicas are not whole again although everything healed")
        self.world.run_for(2 * SECOND_US)
        self._await(self._is_equal, "the replicas do not become equal")
        self._judge()

    def _await(self, condition: Callable[[], bool], problem: str) -> None:
        until_us = self.world.now_us + _LIVENESS_S_MAX * SECOND_US
        if not self.world.run_while(lambda: not condition(), until_us) and not condition():
            raise Violation(f"{problem}: {[self.rig.image(TOPIC, index) for index in range(PARTITIONS)]}")

    def _is_whole(self) -> bool:
        return all(self.rig.node(n).is_running and self.rig.node(n).broker is not None for n in (1, 2, 3)) and (
            self.rig.settled(TOPIC)
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
                    f"where {log.get(write.offset)!r} is"
                )
        values = list(log.values())
        written = [value for value in values if value is not None and value.startswith(b"i")]
        if len(set(values)) != len(values):
            raise Violation(f"a record is there twice in partition {index}")
        acked = self.history.ordered[index]
        kept = [value for value in acked if value in set(written)]
        if [value for value in written if value in set(acked)] != kept:
            raise Violation(f"idempotent records are out of order in partition {index}")


def explore(seed: int, **options: object) -> Outcome:
    return ReplicationRun(seed, **options).execute()  # type: ignore[arg-type]
