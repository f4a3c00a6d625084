"""A paused leader keeps its connections: only the end of its session shows the pause, always within its time."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from barnabas.broker.assembly import Broker
from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.simulation.simulated_cluster import Cluster, Layout
from barnabas.simulation.world import MILLISECOND_US, World
from barnabas.simulation.worlds.replicated import CONTROLLER, SHORT_TIMES, RawClient, Replicated

_NUMBERS = (1, 2, 3)
#: The time from the end of a session until a survivor reports it.
_SPREAD_MS = 200


class Combined:
    """Three nodes that are broker and controller each, started one after the other."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.world = World(seed)
        settings = SHORT_TIMES if self.chance.random() < 0.5 else {"auto.create.topics.enable": "false"}
        # Only the test changes the metadata: a change that is sent once must arrive.
        self.cluster = Cluster(self.world, Layout(3, 0, {**settings, "metadata.max.idle.interval.ms": "0"}))
        self.session_ms = int(settings.get("broker.session.timeout.ms", "9000"))
        self.client = RawClient(self.cluster, "client")
        for node in self.cluster.nodes.values():
            self.world.after(self.chance.randrange(1_500) * MILLISECOND_US, node.start, None, "start")
        self.run_until(lambda: all(self._alive_at(number) == 3 for number in _NUMBERS), 30_000)

    def run_until(self, holds: Callable[[], bool], within_ms: int) -> None:
        self.world.run_while(lambda: not holds(), self.world.now_us + within_ms * MILLISECOND_US)
        assert holds(), f"seed {self.world.seed}: not within {within_ms} ms"

    def run_for_up_to(self, bound_ms: int) -> None:
        self.world.run_for(self.chance.randrange(bound_ms) * MILLISECOND_US)

    def broker(self, number: int) -> Broker | None:
        return self.cluster.nodes[f"broker{number}"].broker

    def _alive_at(self, number: int) -> int:
        broker = self.broker(number)
        return 0 if broker is None else sum(not each.fenced for each in broker.metadata.image.brokers.values())

    def active(self) -> int:
        return next(n for n in _NUMBERS if (broker := self.broker(n)) is not None and broker.side.controller.is_active)

    def leader_at(self, number: int) -> int:
        broker = self.broker(number)
        found = None if broker is None else broker.metadata.image.partition("orders", 0)
        return -1 if found is None else found.leader

    def create(self, replicas: list[int]) -> None:
        by_hand = CreateTopicsRequest.CreatableReplicaAssignment(partition_index=0, broker_ids=replicas)
        topic = CreateTopicsRequest.CreatableTopic(
            name="orders", num_partitions=-1, replication_factor=-1, assignments=[by_hand]
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=5_000)
        answer = self.client.call(f"broker{replicas[1]}", request, CreateTopicsResponse)
        assert [row.error_code for row in answer.topics] == [0]


@pytest.mark.parametrize("seed", range(12))
def test_a_paused_leader_is_replaced_when_its_session_ends(seed: int) -> None:
    """The session can end at any time: just after a start, an election, or the creation of the topic."""
    world = Combined(seed)
    world.run_for_up_to(3_000)
    active = world.active()
    victim, survivor = (number for number in _NUMBERS if number != active)
    world.create([victim, survivor, active])
    world.run_until(lambda: all(world.leader_at(number) == victim for number in _NUMBERS), 1_000)
    world.run_for_up_to(1_000)
    world.cluster.nodes[f"broker{victim}"].machine.pause()
    world.run_until(
        lambda: all(world.leader_at(number) not in (-1, victim) for number in (survivor, active)),
        world.session_ms + _SPREAD_MS,
    )


def test_a_paused_leader_is_replaced_after_a_controller_had_lost_all_brokers() -> None:
    """The sessions of brokers that return by a heartbeat, after all sessions had ended, are checked."""
    world = Replicated()
    world.create_topic("orders", [[1, 2, 3]])
    pairs = [pair for number in _NUMBERS for pair in ((f"broker{number}", CONTROLLER), (CONTROLLER, f"broker{number}"))]
    for pair in pairs:
        world.cluster.network.cut(*pair)
    world.run_until(lambda: all(broker.fenced for broker in world.controller.metadata.image.brokers.values()), "fenced")
    world.run_for(5_000)
    for pair in pairs:
        world.cluster.network.heal(*pair)
    world.run_until(
        lambda: not any(broker.fenced for broker in world.controller.metadata.image.brokers.values()), "all are back"
    )
    world.await_isr([1, 2, 3])
    leader = world.leader()
    world.node(leader).machine.pause()
    session_ms = int(SHORT_TIMES["broker.session.timeout.ms"])
    world.run_until(lambda: world.leader() not in (-1, leader), "another one leads", session_ms + _SPREAD_MS)
