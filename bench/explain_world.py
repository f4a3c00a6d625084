"""The simulated cluster of the score of `explain`: brokers under a steady load, whose journal and metrics are read
twice a second, the journal by the code of `explain`.

All timeouts are Kafka's defaults: a session lasts 9 s, and a follower may lag for 30 s.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from barnabas.broker.assembly import Broker
from barnabas.broker.metrics.replicas import is_under_min_isr, is_under_replicated
from barnabas.metadata.image import MetadataImage
from barnabas.protocol.message import Message
from barnabas.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsResponse
from barnabas.protocol.messages.create_topics import CreateTopicsRequest
from barnabas.records.batch import Record, encode_batch
from barnabas.replication.partition import Role
from barnabas.simulation.operator import reassignment
from barnabas.simulation.simulated_cluster import Cluster, Layout
from barnabas.simulation.world import EPOCH_WALL_US, MILLISECOND_US, World
from barnabas.simulation.worlds.replicated import RawClient, produce_request
from explain_reader import SimulatedReader

_SAMPLE_MS: Final = 500
_PRODUCE_MS: Final = 250
#: The topics: partitions by their replicas, and settings.
ORDERS, PAYMENTS, LOOSE = "orders", "payments", "clicks"
_SETTINGS: Final = {
    "auto.create.topics.enable": "false",
    # A replica that catches up needs several fetches, as with more data.
    "replica.fetch.max.bytes": "20000",
}


class Unsettled(Exception):
    """The cluster is not whole again in time."""


class ScoredCluster:
    """A cluster in a world of its own: `warm_up` first, then faults, then `settle`."""

    def __init__(self, seed: int, brokers: int, controllers: int) -> None:
        self.world = World(seed)
        self.random: Random = self.world.stream("score")
        self.cluster = Cluster(self.world, Layout(brokers, controllers, _SETTINGS))
        self.client = RawClient(self.cluster, "producer")
        self.admin = RawClient(self.cluster, "operator")
        self.brokers = list(range(1, brokers + 1))
        #: Brokers that do not come back.
        self.gone: set[int] = set()
        self.reader = SimulatedReader(self.cluster, [self.node(each) for each in self.brokers], lambda: self.now_ms)
        self.series: list[tuple[int, dict[str, float]]] = []
        #: The records of a batch, by topic: a burst raises it.
        self.batch_records = {ORDERS: 2, PAYMENTS: 1, LOOSE: 1}
        self.batch_bytes = {ORDERS: 200, PAYMENTS: 4_000, LOOSE: 200}
        self._counts: dict[str, float] = {}
        self._latencies: dict[int, list[int]] = {}
        self._waiting: dict[tuple[str, int], int] = {}

    # -- time

    @property
    def now_ms(self) -> int:
        """The true wall time."""
        return (EPOCH_WALL_US + self.world.now_us) // MILLISECOND_US

    def run_for(self, duration_ms: int) -> None:
        self.world.run_for(duration_ms * MILLISECOND_US)

    def later(self, delay_ms: int, step: Callable[[], None]) -> None:
        self.world.after(delay_ms * MILLISECOND_US, step, None, "score")

    def run_until(self, condition: Callable[[], bool], within_ms: int) -> None:
        for _ in range(within_ms // _SAMPLE_MS):
            if condition():
                return
            self.run_for(_SAMPLE_MS)
        if not condition():
            raise Unsettled(f"seed {self.world.seed}")

    def warm_up(self) -> None:
        """Starts the cluster, its topics and its load; a move of a replica gives it a journal."""
        self.cluster.start()
        self.run_until(lambda: self._unfenced() == len(self.brokers), 30_000)
        one, two, three = self.brokers[:3]
        self._create(ORDERS, [[one, two, three], [two, three, one], [three, one, two]], {"min.insync.replicas": "2"})
        self._create(PAYMENTS, [[one, two], [two, three], [three, one]], {})
        self._create(LOOSE, [[one, two], [two, three], [three, one]], {"unclean.leader.election.enable": "true"})
        self.run_until(lambda: LOOSE in self.image().topics_by_name, 10_000)
        self._produce()
        self._sample()
        self.reader.run()
        self.ask(reassignment(PAYMENTS, 0, [two, one]))
        self.run_for(12_000)
        self.run_until(self.is_whole, 30_000)

    def settle(self) -> None:
        self.run_for(3_000)
        self.run_until(self.is_whole, 90_000)
        self.run_for(8_000)

    # -- parts

    def node(self, broker: int) -> str:
        return f"broker{broker}"

    def running(self) -> list[Broker]:
        nodes = self.cluster.nodes.values()
        return [node.broker for node in nodes if node.is_running and node.broker is not None]

    def image(self) -> MetadataImage:
        return max((broker.metadata.image for broker in self.running()), key=lambda image: image.offset)

    def active_controller(self) -> str | None:
        for name, node in self.cluster.nodes.items():
            quorum = None if node.broker is None or not node.is_running else node.broker.quorum
            if quorum is not None and quorum.controller.is_active:
                return name
        return None

    def leader(self, topic: str, index: int) -> int:
        found = self.image().partition(topic, index)
        return -1 if found is None else found.leader

    def _unfenced(self) -> int:
        return sum(not broker.fenced for broker in self.image().brokers.values()) if self.running() else 0

    def is_whole(self) -> bool:
        name = self.active_controller()
        active = None if name is None else self.cluster.nodes[name].broker
        if active is None or self._unfenced() < len(self.brokers) - len(self.gone):
            return False
        image = self.image()
        return not active.journal.window and all(
            partition.leader >= 0 and set(partition.isr) == set(partition.replicas)
            for topic in image.topics()
            for partition in topic.partitions
        )

    # -- requests

    def ask(self, request: Message, retries: int = 3, to: int | None = None) -> None:
        """Sends a request of an operator to this broker, else to one that runs."""
        running = [broker for broker in self.brokers if self.cluster.nodes[self.node(broker)].broker is not None]
        node = self.node(self.random.choice(running) if to is None else to)

        def answered(response: Message | None) -> None:
            refused = isinstance(response, AlterPartitionReassignmentsResponse) and response.error_code
            if (response is None or refused) and retries:
                self.ask(request, retries - 1, to)

        self.admin.process.enter(lambda: self.admin.send(node, request, answered, timeout_ms=3_000))

    def _create(self, name: str, assignments: Sequence[Sequence[int]], configs: dict[str, str]) -> None:
        topics = CreateTopicsRequest.CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                CreateTopicsRequest.CreatableReplicaAssignment(partition_index=index, broker_ids=list(replicas))
                for index, replicas in enumerate(assignments)
            ],
            configs=[CreateTopicsRequest.CreatableTopicConfig(name=key, value=configs[key]) for key in configs],
        )
        self.ask(CreateTopicsRequest(topics=[topics], timeout_ms=5_000))

    def _produce(self) -> None:
        """Sends a batch to each partition whose last one was answered, and schedules the next call."""
        image = self.image() if self.running() else None
        for name, count in self.batch_records.items():
            topic = None if image is None else image.topics_by_name.get(name)
            for index, partition in enumerate(() if topic is None else topic.partitions):
                if topic is not None and partition.leader >= 0 and (name, index) not in self._waiting:
                    size = self.batch_bytes[name]
                    value = self.random.randbytes(self.random.randrange(size // 2, size * 3 // 2))
                    self._send(name, index, topic.topic_id, partition.leader, [value] * count)
        jitter_ms = self.random.randrange(-_PRODUCE_MS // 4, _PRODUCE_MS // 4)
        self.later(_PRODUCE_MS + jitter_ms, self._produce)

    def _send(self, name: str, index: int, topic_id: bytes, leader: int, values: Sequence[bytes]) -> None:
        records = [Record(0, self.now_ms, None, value, []) for value in values]
        request = produce_request(topic_id, index, bytes(encode_batch(records)), timeout_ms=2_000, name=name)
        sent_ms = self._waiting[name, index] = self.now_ms

        def answered(response: Message | None) -> None:
            del self._waiting[name, index]
            self._latencies.setdefault(leader, []).append(self.now_ms - sent_ms)

        client = self.client
        client.process.enter(lambda: client.send(self.node(leader), request, answered, timeout_ms=3_000))

    # -- what can be read from outside

    def _sample(self) -> None:
        self.series.append((self.now_ms, self._metrics()))
        self.later(_SAMPLE_MS, self._sample)

    def _metrics(self) -> dict[str, float]:
        """Returns the values of the brokers' /metrics that a dashboard shows, those of the client, and `up`."""
        found: dict[str, float] = {}
        for number in self.brokers:
            node = self.cluster.nodes[self.node(number)]
            process, broker = node.machine.process, node.broker
            is_up = process is not None and process.is_running and broker is not None and number not in self.gone
            found[f"up@{number}"] = float(is_up)
            latencies = self._latencies.pop(number, None)
            if latencies:
                found[f"produce_ms@{number}"] = sum(latencies) / len(latencies)
            if not is_up or broker is None or process is None:
                continue
            partitions = list(broker.replicas.partitions())
            led = [each for each in partitions if each.role is Role.LEADER]
            total = broker.replicas.traffic.total()
            found[f"leaders@{number}"] = len(led)
            found[f"under_replicated@{number}"] = sum(map(is_under_replicated, led))
            found[f"under_min_isr@{number}"] = sum(map(is_under_min_isr, led))
            found[f"offline_directories@{number}"] = len(list(broker.logs.roots.offline))
            found[f"isr_shrinks@{number}"] = self._rate(
                f"shrinks@{number}", broker.replicas.environment.isr_changes.shrinks
            )
            found[f"bytes_in@{number}"] = self._rate(f"in@{number}", total.bytes_in)
            found[f"fetched@{number}"] = self._rate(f"fetched@{number}", total.replication_bytes_in)
            found[f"cpu@{number}"] = self._rate(f"cpu@{number}", 0 if process.cpu is None else process.cpu.total_us)
        return found

    def _rate(self, name: str, count: float) -> float:
        before = self._counts.get(name, count)
        self._counts[name] = count
        return max(0.0, count - before)
