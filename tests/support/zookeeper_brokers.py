"""Three simulated brokers in ZooKeeper mode, with a ZooKeeper server and one topic."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.broker.assembly import Broker
from barnabas.broker.zookeeper.zookeeper_side import ZooKeeperSide
from barnabas.metadata.image import MetadataImage
from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.simulation.simulated_cluster import Cluster, Layout
from barnabas.simulation.world import MILLISECOND_US, World
from barnabas.simulation.worlds.replicated import RawClient

_PARTITIONS = 6


class Brokers:
    """Three brokers and a ZooKeeper server; the topic `orders` has a replica on each broker."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        self.cluster = Cluster(self.world, Layout(3, zookeeper=True))
        self.cluster.start()
        self.run_until(
            lambda: len(self.images()) == 3 and all(len(each.brokers) == 3 for each in self.images()), 20_000
        )
        client = RawClient(self.cluster, "client")
        topic = CreateTopicsRequest.CreatableTopic(name="orders", num_partitions=_PARTITIONS, replication_factor=3)
        request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
        answer = client.call(f"broker{self.controller_id()}", request, CreateTopicsResponse)
        assert answer.topics[0].error_code == 0
        self.run_until(self.is_whole, 20_000)
        self.run_for(2_000)

    def run_for(self, duration_ms: int) -> None:
        self.world.run_for(duration_ms * MILLISECOND_US)

    def run_until(self, condition: Callable[[], bool], within_ms: int) -> int:
        """Runs until the condition holds, and returns the milliseconds."""
        begin_us = self.world.now_us
        self.world.run_while(lambda: not condition(), begin_us + within_ms * MILLISECOND_US)
        assert condition(), f"not within {within_ms} ms"
        return int((self.world.now_us - begin_us) // MILLISECOND_US)

    @property
    def brokers(self) -> list[Broker]:
        return [node.broker for node in self.cluster.nodes.values() if node.is_running and node.broker is not None]

    def images(self) -> list[MetadataImage]:
        return [broker.metadata.image for broker in self.brokers]

    def active(self) -> list[ZooKeeperSide]:
        sides = [broker.side for broker in self.brokers]
        return [side for side in sides if isinstance(side, ZooKeeperSide) and side.controller.is_active]

    def controller_id(self) -> int:
        (side,) = self.active()
        return side.controller.leader_id

    def leaders(self, image: MetadataImage) -> set[int]:
        return {partition.leader for partition in image.topics_by_name["orders"].partitions}

    def is_whole(self) -> bool:
        """Returns whether every broker knows full ISRs and leaders of all partitions."""
        images = self.images()
        if len(images) < 3 or len(self.active()) != 1:
            return False
        return all(
            "orders" in image.topics_by_name
            and len(image.topics_by_name["orders"].partitions) == _PARTITIONS
            and all(each.leader > 0 and len(each.isr) == 3 for each in image.topics_by_name["orders"].partitions)
            for image in images
        )

    def kill(self, *broker_ids: int) -> None:
        """Kills these brokers; they start again after the test's own time."""
        for broker_id in broker_ids:
            self.cluster.prevent_start(f"broker{broker_id}")
            self.cluster.nodes[f"broker{broker_id}"].kill()

    def release(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            self.cluster.allow_start(f"broker{broker_id}")

    def is_taken_over(self, *killed: int) -> bool:
        """Returns whether there is a controller, and all survivors know live leaders of all partitions."""
        if len(self.active()) != 1 or self.controller_id() in killed:
            return False
        return all(not self.leaders(image) & {-1, *killed} for image in self.images())
