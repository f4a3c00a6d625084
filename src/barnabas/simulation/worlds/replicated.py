"""Three brokers and a separate controller in the simulated world, and a client that sends bare requests.

Everything runs as in production (metadata, registration, heartbeats, fetchers); the timeouts are short, so that a
second of virtual time contains what would take a minute. Tests drive `Replicated`; `RawClient` sends single requests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from barnabas.broker.assembly import Broker
from barnabas.common.types import TopicPartition
from barnabas.controller.requests.result import Versioned
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.topics import PartitionImage
from barnabas.protocol.channel import Channel, ChannelTimes
from barnabas.protocol.frame_reader import ReceiveArea
from barnabas.protocol.message import Message
from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.fetch import FetchRequest, FetchResponse
from barnabas.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from barnabas.protocol.messages.produce import ProduceRequest, ProduceResponse
from barnabas.protocol.peer_security import PLAINTEXT, ChannelSecurity
from barnabas.records.batch import Record, decode_batch, encode_batch, iter_headers
from barnabas.replication.partition import Partition, Role
from barnabas.simulation.checkers import NoUncaughtExceptions
from barnabas.simulation.machine import Machine, MachineHost
from barnabas.simulation.node import Node
from barnabas.simulation.simulated_cluster import Cluster, Layout
from barnabas.simulation.world import MILLISECOND_US, World

M = TypeVar("M", bound=Message)

CONTROLLER = "controller1"
SHORT_TIMES = {
    "broker.session.timeout.ms": "1500",
    "broker.heartbeat.interval.ms": "300",
    "replica.lag.time.max.ms": "1000",
    "replica.socket.timeout.ms": "3000",
    "controller.quorum.request.timeout.ms": "1000",
    "controller.quorum.fetch.timeout.ms": "1500",
    "auto.create.topics.enable": "false",
}


def batch_of(*values: bytes, producer_id: int = -1, base_sequence: int = -1, producer_epoch: int = 0) -> bytes:
    records = [Record(0, 1_735_689_600_000, None, value, []) for value in values]
    return bytes(
        encode_batch(
            records,
            producer_id=producer_id,
            producer_epoch=producer_epoch if producer_id >= 0 else -1,
            base_sequence=base_sequence,
        )
    )


def values_in(data: bytes) -> list[tuple[int, bytes | None]]:
    """Returns (offset, value) of all records in whole batches."""
    found = []
    for position, header in iter_headers(memoryview(data)):
        for delta, record in enumerate(decode_batch(data, position)):
            found.append((header.base_offset + delta, record.value))
    return found


class RawClient:
    """A machine that sends single requests to brokers."""

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        times: ChannelTimes | None = None,
        security: ChannelSecurity = PLAINTEXT,
    ) -> None:
        self.cluster = cluster
        self.machine = Machine(cluster.world, cluster.network, name)
        self.process = self.machine.spawn()
        self.host = MachineHost(self.machine, self.process)
        self._area = ReceiveArea()
        self._times = times or ChannelTimes(3_000, 2_000, 20, 200)
        self._security = security
        self._channels: dict[str, Channel] = {}

    def send(self, node: str, request: Message, reply: Callable[[Message | None], None], **options: Any) -> None:
        channel = self._channels.get(node)
        if channel is None:
            channel = self._channels[node] = Channel(
                self.host, self._area, (node, 9092), self.machine.name, self._times, self._security
            )
        channel.send(request, reply, **options)

    def call(self, node: str, request: Message, response_type: type[M], *, within_ms: int = 5_000) -> M:
        """Sends a request and runs the world until the answer arrives."""
        answers: list[Message | None] = []

        def take(response: Message | None) -> None:
            if isinstance(response, FetchResponse):
                for topic in response.responses:
                    for row in topic.partitions:
                        row.records = None if row.records is None else bytes(row.records)
            answers.append(response)

        self.process.enter(lambda: self.send(node, request, take, timeout_ms=within_ms))
        world = self.cluster.world
        world.run_while(lambda: not answers, world.now_us + within_ms * MILLISECOND_US + 1)
        assert answers, f"{node} does not answer {type(request).__name__}"
        assert isinstance(answers[0], response_type), f"{node} answers {answers[0]}"
        return answers[0]


def produce_request(
    topic_id: bytes, index: int, data: bytes, *, acks: int = -1, timeout_ms: int = 1000, name: str = ""
) -> ProduceRequest:
    """Returns a request; before version 13 it needs the topic's name."""
    rows = [ProduceRequest.PartitionProduceData(index=index, records=data)]
    topic = ProduceRequest.TopicProduceData(name=name, topic_id=topic_id, partition_data=rows)
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[topic])


def fetch_request(topic_id: bytes, index: int, offset: int, *, max_wait_ms: int = 0, epoch: int = -1) -> FetchRequest:
    requested = FetchRequest.FetchPartition(
        partition=index, fetch_offset=offset, partition_max_bytes=1 << 20, current_leader_epoch=epoch
    )
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=[FetchRequest.FetchTopic(topic_id=topic_id, partitions=[requested])],
    )


def list_offsets_request(topic: str, index: int, timestamp: int = -1, *, epoch: int = -1) -> ListOffsetsRequest:
    row = ListOffsetsRequest.ListOffsetsPartition(
        partition_index=index, timestamp=timestamp, current_leader_epoch=epoch
    )
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[row])])


class Replicated:
    """A started cluster of brokers and separate controllers, in a world of its own."""

    #: The security settings of the client's connections.
    security: ChannelSecurity = PLAINTEXT
    #: The records that directories are formatted with; None means those of a new cluster.
    bootstrap: Sequence[Versioned] | None = None

    def __init__(
        self,
        seed: int = 1,
        brokers: int = 3,
        racks: Sequence[str] = (),
        *,
        controllers: int = 1,
        **properties: str,
    ) -> None:
        self.world = World(seed)
        settings = {**SHORT_TIMES, **{key.replace("_", "."): value for key, value in properties.items()}}
        self.cluster = Cluster(self.world, Layout(brokers, controllers, settings))
        for node in self.cluster.nodes.values():
            node.bootstrap = self.bootstrap
        for number, rack in enumerate(racks, 1):
            self.node(number).properties["broker.rack"] = rack
        self.client = RawClient(self.cluster, "client", security=self.security)
        self.cluster.start()
        self.run_until(lambda: self._all_unfenced(brokers), "all brokers are registered")

    def _all_unfenced(self, brokers: int) -> bool:
        nodes = [node.broker for node in self.cluster.nodes.values()]
        return all(
            broker is not None and sum(not b.fenced for b in broker.metadata.image.brokers.values()) == brokers
            for broker in nodes
        )

    # -- time

    def run_for(self, duration_ms: int) -> None:
        self.world.run_for(duration_ms * MILLISECOND_US)
        self.check()

    def run_until(self, condition: Callable[[], bool], what: str, within_ms: int = 20_000) -> None:
        reached = self.world.run_while(lambda: not condition(), self.world.now_us + within_ms * MILLISECOND_US)
        self.check()
        assert reached or condition(), f"not within {within_ms} ms: {what}"

    def check(self) -> None:
        NoUncaughtExceptions().check(self.cluster)

    # -- parts

    def node(self, number: int) -> Node:
        return self.cluster.nodes[f"broker{number}"]

    def broker(self, number: int) -> Broker:
        broker = self.node(number).broker
        assert broker is not None, f"broker {number} is not up"
        return broker

    @property
    def controller(self) -> Broker:
        """The controller that knows the most of the metadata log; with one controller it can be down."""
        brokers = [node.broker for name, node in self.cluster.nodes.items() if name.startswith("controller")]
        found = [broker for broker in brokers if broker is not None]
        assert found, "no controller was up"
        return max(found, key=lambda broker: broker.metadata.image.offset)

    @property
    def decided(self) -> MetadataImage:
        """The newest decided metadata."""
        return self.controller.metadata.image

    def partition(self, number: int, topic: str = "orders", index: int = 0) -> Partition:
        found = self.broker(number).replicas.find(topic, index)
        assert found is not None, f"no {topic}-{index} on broker {number}"
        return found

    def image(self, topic: str = "orders", index: int = 0) -> PartitionImage:
        found = self.decided.partition(topic, index)
        assert found is not None
        return found

    def topic_id(self, topic: str = "orders") -> bytes:
        return self.decided.topics_by_name[topic].topic_id

    def leader(self, topic: str = "orders", index: int = 0) -> int:
        return self.image(topic, index).leader

    # -- topics

    def create_topic(self, topic: str, assignments: Sequence[Sequence[int]], **configs: str) -> None:
        """Creates a topic with these replicas of each partition, the leader first."""
        request = CreateTopicsRequest(
            topics=[
                CreateTopicsRequest.CreatableTopic(
                    name=topic,
                    num_partitions=-1,
                    replication_factor=-1,
                    assignments=[
                        CreateTopicsRequest.CreatableReplicaAssignment(partition_index=index, broker_ids=list(replicas))
                        for index, replicas in enumerate(assignments)
                    ],
                    configs=[
                        CreateTopicsRequest.CreatableTopicConfig(name=key.replace("_", "."), value=value)
                        for key, value in configs.items()
                    ],
                )
            ],
            timeout_ms=5000,
        )
        up = next(name for name, node in self.cluster.nodes.items() if name.startswith("broker") and node.is_running)
        response = self.client.call(up, request, CreateTopicsResponse)
        assert [row.error_code for row in response.topics] == [0], response
        self.run_until(lambda: self.settled(topic), f"{topic} is led and followed")

    def settled(self, topic: str = "orders") -> bool:
        """Returns whether every live replica has the role that the controller's image gives it and is in the ISR."""
        found = self.decided.topics_by_name.get(topic)
        if found is None:
            return False
        for index, image in enumerate(found.partitions):
            if image.leader < 0:
                return False
            for replica in image.replicas:
                broker = self.node(replica).broker if self.node(replica).is_running else None
                if broker is None:
                    continue
                partition = broker.replicas.find(topic, index)
                wanted = Role.LEADER if replica == image.leader else Role.FOLLOWER
                if partition is None or partition.role is not wanted or partition.leader_epoch != image.leader_epoch:
                    return False
                if replica not in image.isr:
                    return False
        return True

    def await_isr(self, members: Sequence[int], topic: str = "orders", index: int = 0, within_ms: int = 20_000) -> None:
        wanted = set(members)
        self.run_until(lambda: set(self.image(topic, index).isr) == wanted, f"ISR {members}", within_ms)

    def await_equal(self, topic: str = "orders", index: int = 0, numbers: Sequence[int] = (1, 2, 3)) -> None:
        """Waits until the replicas on these brokers have the leader's LEO and HW."""

        def equal() -> bool:
            states = {
                (p.log.log_end_offset, p.high_watermark) for p in (self.partition(n, topic, index) for n in numbers)
            }
            return len(states) == 1 and next(iter(states))[0] == next(iter(states))[1]

        self.run_until(equal, "the replicas are equal")

    # -- records

    def produce(
        self, *values: bytes, to: int | None = None, topic: str = "orders", index: int = 0, **options: int
    ) -> tuple[int, int]:
        """Produces values, and returns (error code, base offset)."""
        acks, timeout_ms = options.pop("acks", -1), options.pop("timeout_ms", 1000)
        data = batch_of(*values, **options)
        request = produce_request(self.topic_id(topic), index, data, acks=acks, timeout_ms=timeout_ms)
        node = f"broker{self.leader(topic, index) if to is None else to}"
        row = self.client.call(node, request, ProduceResponse).responses[0].partition_responses[0]
        return row.error_code, row.base_offset

    def fetch(
        self, offset: int, *, at: int | None = None, topic: str = "orders", index: int = 0, epoch: int = -1
    ) -> FetchResponse.PartitionData:
        node = f"broker{self.leader(topic, index) if at is None else at}"
        request = fetch_request(self.topic_id(topic), index, offset, epoch=epoch)
        return self.client.call(node, request, FetchResponse).responses[0].partitions[0]

    def list_offset(self, timestamp: int = -1, *, at: int, topic: str = "orders", index: int = 0) -> tuple[int, int]:
        """Returns (error code, offset)."""
        response = self.client.call(f"broker{at}", list_offsets_request(topic, index, timestamp), ListOffsetsResponse)
        row = response.topics[0].partitions[0]
        return row.error_code, row.offset

    def values(self, number: int, topic: str = "orders", index: int = 0) -> list[bytes | None]:
        """Returns the values of all records on one replica, committed or not."""
        return [value for _, value in log_values(self.partition(number, topic, index))]


def log_values(partition: Partition) -> list[tuple[int, bytes | None]]:
    log = partition.log
    found: list[tuple[int, bytes | None]] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        part = values_in(bytes(log.read(offset, 1 << 20, up_to=log.log_end_offset).data))
        found += [entry for entry in part if entry[0] >= offset]
        offset = found[-1][0] + 1
    return found


def key_of(partition: Partition) -> TopicPartition:
    return partition.topic_partition
