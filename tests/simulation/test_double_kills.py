"""Two of three nodes, each broker and controller, are killed at the same time and restarted: the time until all is
whole.

The timers are Kafka's defaults, in virtual time, so that the result depends on timers and messages, not on the machine.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from barnabas.broker.assembly import Broker
from barnabas.metadata.image import MetadataImage
from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.simulation.simulated_cluster import Cluster, Layout
from barnabas.simulation.world import MILLISECOND_US, World
from barnabas.simulation.worlds.replicated import RawClient, batch_of, produce_request

_PARTITIONS = 6
_SOON_MS = 1_000


class Nodes:
    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        self.cluster = Cluster(self.world, Layout(3, 0, {"min.insync.replicas": "2"}))
        self.cluster.start()
        self.run_until(lambda: self._unfenced() == 3, 20_000)
        client = RawClient(self.cluster, "client")
        topic = CreateTopicsRequest.CreatableTopic(name="orders", num_partitions=_PARTITIONS, replication_factor=3)
        answer = client.call("broker1", CreateTopicsRequest(topics=[topic], timeout_ms=10_000), CreateTopicsResponse)
        assert answer.topics[0].error_code == 0
        self.run_for(2_000)
        for index in range(_PARTITIONS):
            partition = self.image.partition("orders", index)
            assert partition is not None
            request = produce_request(answer.topics[0].topic_id, index, batch_of(b"x" * 1000))
            name = f"broker{partition.leader}"
            client.process.enter(lambda name=name, request=request: client.send(name, request, lambda _: None))  # type: ignore[misc]
        self.run_for(2_000)

    def run_for(self, duration_ms: int) -> None:
        self.world.run_for(duration_ms * MILLISECOND_US)

    def run_until(self, condition: Callable[[], bool], within_ms: int) -> int:
        """Runs until the condition holds, and returns the milliseconds."""
        begin_us = self.world.now_us
        self.world.run_while(lambda: not condition(), begin_us + within_ms * MILLISECOND_US)
        assert condition(), f"not within {within_ms} ms"
        return (self.world.now_us - begin_us) // MILLISECOND_US

    @property
    def brokers(self) -> list[Broker]:
        return [node.broker for node in self.cluster.nodes.values() if node.is_running and node.broker is not None]

    @property
    def image(self) -> MetadataImage:
        return max((broker.metadata.image for broker in self.brokers), key=lambda image: image.offset)

    def _unfenced(self) -> int:
        return sum(not broker.fenced for broker in self.image.brokers.values()) if self.brokers else 0

    def active(self) -> str:
        (name,) = [
            name
            for name, node in self.cluster.nodes.items()
            if node.is_running and node.broker is not None and node.broker.quorum.controller.is_active
        ]
        return name

    def is_whole(self) -> bool:
        """Returns whether every process is registered and unfenced, every partition has a leader, and every ISR is
        full.
        """
        brokers = self.brokers
        if len(brokers) < 3 or self._unfenced() < 3 or "orders" not in self.image.topics_by_name:
            return False
        known = self.image.brokers
        partitions = self.image.topics_by_name["orders"].partitions
        return all(known[broker.config.node_id].epoch == broker.quorum.lifecycle.epoch for broker in brokers) and all(
            partition.leader >= 0 and len(partition.isr) == 3 for partition in partitions
        )


@pytest.mark.parametrize("with_active", [False, True])
@pytest.mark.parametrize("down_ms", [500, 3_500, 12_000])
def test_all_is_whole_soon_after_two_of_three_come_back(with_active: bool, down_ms: int) -> None:
    nodes = Nodes(seed=1)
    active = nodes.active()
    followers = [name for name in nodes.cluster.nodes if name != active]
    victims = [active, followers[0]] if with_active else followers
    for name in victims:
        nodes.cluster.prevent_start(name)
        nodes.cluster.nodes[name].kill()
    nodes.run_for(down_ms)
    for name in victims:
        nodes.cluster.allow_start(name)
    # The one that stayed may have led and resigned; those that come back still take it for the leader, and it says no.
    nodes.run_until(nodes.is_whole, _SOON_MS)
