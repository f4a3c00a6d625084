"""One disk of three that is full, slow or hangs: every partition acknowledges again within a bound, and stays so."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from tests.support.replicated import RawClient

from barnabas.broker.assembly import Broker
from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.simulation.checkers import NoMistakes, Watch
from barnabas.simulation.cluster import Cluster, Layout
from barnabas.simulation.faulty_disk import FaultyDisk
from barnabas.simulation.raft_checkers import QuorumSafety
from barnabas.simulation.steady import SteadyWriters
from barnabas.simulation.world import MILLISECOND_US, SECOND_US, World

_NUMBERS = (1, 2, 3)
_PARTITIONS = 6
_BOUND_MS = 3_000


class Combined:
    """Three nodes that are broker and controller each; a topic of six partitions on all of them, and writers."""

    def __init__(self, seed: int, **properties: str) -> None:
        self.chance = random.Random(seed)
        self.world = World(seed, events_max=20_000_000)
        self.cluster = Cluster(self.world, Layout(3, 0, {"min.insync.replicas": "2", **properties}))
        self.watch = Watch(self.cluster, [NoMistakes(), QuorumSafety()], interval=20)
        self.client = RawClient(self.cluster, "client")
        self.cluster.start()
        self.run_until(lambda: all(self._alive_at(number) == 3 for number in _NUMBERS), 30_000)
        topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=_PARTITIONS, replication_factor=3)
        answer = self.client.call(
            "broker1", CreateTopicsRequest(topics=[topic], timeout_ms=5_000), CreateTopicsResponse
        )
        assert [row.error_code for row in answer.topics] == [0]
        self.writers = SteadyWriters(self.cluster, "t", _PARTITIONS)
        self.writers.start()
        self.run_until(lambda: self.writers.all_have_begun, 10_000)
        self.world.run_for(self.chance.randrange(3_000) * MILLISECOND_US)

    def run_until(self, holds: Callable[[], bool], within_ms: int) -> None:
        self.world.run_while(lambda: not holds(), self.world.now_us + within_ms * MILLISECOND_US)
        assert holds(), f"seed {self.world.seed}: not within {within_ms} ms"

    def broker(self, number: int) -> Broker | None:
        return self.cluster.nodes[f"broker{number}"].broker

    def disk(self, number: int) -> FaultyDisk:
        return self.cluster.nodes[f"broker{number}"].disk

    def _alive_at(self, number: int) -> int:
        broker = self.broker(number)
        return 0 if broker is None else sum(not each.fenced for each in broker.metadata.image.brokers.values())

    def active(self) -> int:
        return next(n for n in _NUMBERS if (broker := self.broker(n)) is not None and broker.controller.is_active)

    def another(self, number: int) -> int:
        return self.chance.choice([each for each in _NUMBERS if each != number])

    def partitions_at(self, number: int) -> list[tuple[int, tuple[int, ...]]]:
        """(leader, ISR) of each partition, as this node knows it."""
        broker = self.broker(number)
        assert broker is not None
        topic = broker.metadata.image.topics_by_name["t"]
        return [(partition.leader, partition.isr) for partition in topic.partitions]

    def everything_is_in_sync(self) -> bool:
        return all(sorted(isr) == [1, 2, 3] for number in _NUMBERS for _, isr in self.partitions_at(number))

    def lines_of(self, number: int) -> list[str]:
        """What this node has reported as faults."""
        host = self.cluster.nodes[f"broker{number}"].host
        assert host is not None
        return [text for text, _ in host.faults.reported]


def refuse(disk: FaultyDisk) -> Callable[[], None]:
    disk.is_refusing = True

    def end() -> None:
        disk.is_refusing = False

    return end


def fill(disk: FaultyDisk) -> Callable[[], None]:
    taken = disk.fill()

    def end() -> None:
        disk.free_bytes += taken

    return end


@pytest.mark.parametrize("kind", [fill, refuse])
@pytest.mark.parametrize("who", ["controller", "other"])
@pytest.mark.parametrize("seed", range(3))
def test_a_full_disk_stops_no_partition(seed: int, who: str, kind: Callable[[FaultyDisk], Callable[[], None]]) -> None:
    world = Combined(seed)
    active = world.active()
    victim = active if who == "controller" else world.another(active)
    others = [number for number in _NUMBERS if number != victim]
    began_us = world.world.now_us
    end = kind(world.disk(victim))
    world.world.run_for(20 * SECOND_US)
    world.writers.check(began_us, world.world.now_us, _BOUND_MS)
    assert world.active() != victim
    for number in _NUMBERS:
        # The full one follows the metadata too, although its log has no room for them.
        assert all(leader != victim and victim not in isr for leader, isr in world.partitions_at(number))
    assert len(world.lines_of(victim)) <= 50
    for number in others:
        assert len(world.lines_of(number)) <= 5
    end()
    ended_us = world.world.now_us
    world.run_until(world.everything_is_in_sync, 30_000)
    world.writers.check(ended_us, world.world.now_us, _BOUND_MS)
