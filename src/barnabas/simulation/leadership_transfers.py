"""Temporary leadership transfers: the partitions of a broker are led by other members of their ISRs for a short time.

An administrator changes the order of the replicas, so that another one is preferred, and elects the preferred leaders;
later, and not before these requests are answered, it does the same for the broker. No replica is added or removed.
Requests can be lost or refused under other faults; then leadership stays where it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from barnabas.common.types import TopicPartition
from barnabas.metadata.topics import PartitionImage
from barnabas.protocol.channel import Channel, ChannelTimes
from barnabas.protocol.frame_reader import ReceiveArea
from barnabas.protocol.message import Message
from barnabas.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest
from barnabas.simulation.decided_metadata import DecidedMetadata
from barnabas.simulation.machine import Machine, MachineHost
from barnabas.simulation.simulated_cluster import Cluster

_NAME: Final = "transfers"
_PORT: Final = 9092
_TIMEOUT_MS: Final = 2_000
_TIMES: Final = ChannelTimes(_TIMEOUT_MS, 1_000, 50, 500)
_PREFERRED: Final = 0

#: Partitions, each with its replicas in order.
_Orders = Mapping[TopicPartition, tuple[int, ...]]


class LeadershipTransfers:
    """The administrator, on a machine of its own."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._decided = DecidedMetadata(cluster)
        machine = Machine(cluster.world, cluster.network, _NAME)
        self._process = machine.spawn()
        self._host = MachineHost(machine, self._process)
        self._area = ReceiveArea()
        self._channels: dict[str, Channel] = {}
        self._random = cluster.world.stream(_NAME)

    def away(self, node: str) -> Callable[[], None]:
        """Begins to transfer the leaderships of this broker to others. Returns the function that begins to transfer
        them back.
        """
        broker_id = int(node.removeprefix("broker")) if node.startswith("broker") else -1
        led = {at: image for at, image in self._partitions().items() if image.leader == broker_id}
        orders: dict[TopicPartition, tuple[int, ...]] = {}
        for at, image in led.items():
            others = [replica for replica in image.isr if replica != broker_id]
            if others:
                orders[at] = _first(self._random.choice(others), image.replicas)
        way = _Way(lambda: self._bring_back(node, broker_id, orders))
        self._change(f"leadership of {node} moves to others", orders, way.arrived)
        return way.go_back

    def _bring_back(self, node: str, broker_id: int, orders: _Orders) -> None:
        now = self._partitions()
        back = {
            at: _first(broker_id, now[at].replicas)
            for at, replicas in orders.items()
            if at in now and set(now[at].replicas) == set(replicas)
        }
        self._change(f"leadership moves back to {node}", back, lambda: None)

    def _partitions(self) -> dict[TopicPartition, PartitionImage]:
        """Returns the partitions whose replicas are not being moved."""
        return {
            TopicPartition(topic.name, index): partition
            for topic in self._decided.image().topics()
            for index, partition in enumerate(topic.partitions)
            if partition.is_known and not partition.adding_replicas and not partition.removing_replicas
        }

    def _change(self, what: str, orders: _Orders, done: Callable[[], None]) -> None:
        """Sends the new orders, and when they are answered the elections. `done` is called at each broker's last
        answer, or when it is late.
        """
        if not orders:
            return
        names = ", ".join(map(str, orders))
        self._cluster.world.note(_NAME, f"{what}: {names}")
        topics: dict[str, list[TopicPartition]] = {}
        for at in orders:
            topics.setdefault(at.topic, []).append(at)
        row = AlterPartitionReassignmentsRequest.ReassignablePartition
        moved = AlterPartitionReassignmentsRequest.ReassignableTopic
        order = AlterPartitionReassignmentsRequest(
            timeout_ms=_TIMEOUT_MS,
            topics=[
                moved(
                    name=topic,
                    partitions=[row(partition_index=at.partition, replicas=list(orders[at])) for at in places],
                )
                for topic, places in topics.items()
            ],
        )
        chosen = [
            ElectLeadersRequest.TopicPartitions(topic=topic, partitions=[at.partition for at in places])
            for topic, places in topics.items()
        ]
        elect = ElectLeadersRequest(election_type=_PREFERRED, topic_partitions=chosen, timeout_ms=_TIMEOUT_MS)
        for broker in self._receivers():
            self._process.enter(lambda broker=broker: self._send(broker, order, elect, done))  # type: ignore[misc]

    def _receivers(self) -> list[str]:
        """Returns the brokers that get a request: in ZooKeeper mode all, because only the controller serves it."""
        brokers = [name for name in self._cluster.nodes if name.startswith("broker")]
        if self._cluster.zookeeper is not None:
            return brokers
        running = [name for name in brokers if self._cluster.nodes[name].is_running]
        return [self._random.choice(running or brokers)]

    def _send(self, broker: str, order: Message, elect: Message, done: Callable[[], None]) -> None:
        channel = self._channels.get(broker)
        if channel is None:
            channel = self._channels[broker] = Channel(self._host, self._area, (broker, _PORT), _NAME, _TIMES)

        def answered(response: Message | None) -> None:
            if response is None:
                done()
            else:
                channel.send(elect, lambda _: done(), timeout_ms=_TIMEOUT_MS)

        channel.send(order, answered, timeout_ms=_TIMEOUT_MS)


class _Way:
    """The state of one transfer: the return begins once it is due and the transfer is answered."""

    def __init__(self, back: Callable[[], None]) -> None:
        self._back = back
        self._has_arrived = False
        self._is_due = False
        self._is_over = False

    def arrived(self) -> None:
        self._has_arrived = True
        self._maybe_go_back()

    def go_back(self) -> None:
        self._is_due = True
        self._maybe_go_back()

    def _maybe_go_back(self) -> None:
        if self._has_arrived and self._is_due and not self._is_over:
            self._is_over = True
            self._back()


def _first(replica: int, replicas: tuple[int, ...]) -> tuple[int, ...]:
    return (replica, *(other for other in replicas if other != replica))
