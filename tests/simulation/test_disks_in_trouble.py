"""A disk of three is full, slow or hangs: every partition acknowledges again within a bound, and continues to do
so.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from barnabas.broker.assembly import Broker
from barnabas.metadata.registrations import BrokerImage
from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.raft.following import Following
from barnabas.raft.leading import Leading
from barnabas.simulation.checkers import NoUncaughtExceptions, Watch
from barnabas.simulation.faulty_disk import FaultyDisk
from barnabas.simulation.history import Violation
from barnabas.simulation.raft_checkers import QuorumSafety
from barnabas.simulation.simulated_cluster import Cluster, Layout
from barnabas.simulation.steady import SteadyWriters
from barnabas.simulation.world import MILLISECOND_US, SECOND_US, World
from barnabas.simulation.worlds.replicated import RawClient
from barnabas.storage.health import WriteHealth

_NUMBERS = (1, 2, 3)
_PARTITIONS = 6
_BOUND_MS = 3_000


class Combined:
    """Three nodes that are broker and controller each; a topic of six partitions on all of them, and writers."""

    def __init__(self, seed: int, controllers: int = 0) -> None:
        self.chance = random.Random(seed)
        self.world = World(seed, events_max=20_000_000)
        self.cluster = Cluster(self.world, Layout(3, controllers, {"min.insync.replicas": "2"}))
        self.watch = Watch(self.cluster, [NoUncaughtExceptions(), QuorumSafety()], interval=20)
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
        return next(n for n in _NUMBERS if (broker := self.broker(n)) is not None and broker.side.controller.is_active)

    def another(self, number: int) -> int:
        return self.chance.choice([each for each in _NUMBERS if each != number])

    def partitions_at(self, number: int) -> list[tuple[int, tuple[int, ...]]]:
        """Returns (leader, ISR) of each partition, as this node has it."""
        broker = self.broker(number)
        assert broker is not None
        topic = broker.metadata.image.topics_by_name["t"]
        return [(partition.leader, partition.isr) for partition in topic.partitions]

    def everything_is_in_sync(self) -> bool:
        return all(sorted(isr) == [1, 2, 3] for number in _NUMBERS for _, isr in self.partitions_at(number))

    def lines_of(self, number: int) -> list[str]:
        """Returns the faults that this node has reported."""
        host = self.cluster.nodes[f"broker{number}"].host
        assert host is not None
        return [text for text, _ in host.faults.reported]


def refuse(disk: FaultyDisk) -> Callable[[], None]:
    disk.is_unwritable = True

    def end() -> None:
        disk.is_unwritable = False

    return end


def fill(disk: FaultyDisk) -> Callable[[], None]:
    taken = disk.fill()

    def end() -> None:
        disk.free_bytes += taken

    return end


def slow(disk: FaultyDisk) -> Callable[[], None]:
    """Delays each call that writes by half a second."""
    disk.stall_us = SECOND_US // 2

    def end() -> None:
        disk.stall_us = 0

    return end


def hanging(disk: FaultyDisk) -> Callable[[], None]:
    """Blocks the next call that writes for 25 s, and the whole process with it."""
    disk.stall_us = 25 * SECOND_US

    def end() -> None:
        disk.stall_us = 0

    return end


def hanging_syncs(disk: FaultyDisk) -> Callable[[], None]:
    """Makes the disk hang: appends reach the page cache, but syncs in the background do not return for 25 s."""
    disk.sync_stall_us = 25 * SECOND_US

    def end() -> None:
        disk.sync_stall_us = 0

    return end


Kind = Callable[[FaultyDisk], Callable[[], None]]
_SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(1, 6))]


def strike(world: Combined, kind: Kind, who: str) -> tuple[int, Callable[[], None]]:
    """Begins the fault, and returns the victim and the function that ends the fault."""
    active = world.active()
    victim = active if who == "controller" else world.another(active)
    return victim, kind(world.disk(victim))


def has_left(world: Combined, victim: int) -> bool:
    """Returns whether the victim is out of every ISR in the metadata of all nodes, including its own."""
    return all(
        leader != victim and victim not in isr for number in _NUMBERS for leader, isr in world.partitions_at(number)
    )


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", [fill, refuse])
@pytest.mark.parametrize("who", ["controller", "other"])
@pytest.mark.parametrize("seed", _SEEDS)
def test_a_full_disk_stops_no_partition(seed: int, who: str, kind: Kind) -> None:
    world = Combined(seed)
    began_us = world.world.now_us
    victim, end = strike(world, kind, who)
    world.world.run_for(20 * SECOND_US)
    world.writers.check(began_us, world.world.now_us, _BOUND_MS)
    assert world.active() != victim
    assert has_left(world, victim), "although its metadata log has no room"
    for number in _NUMBERS:
        assert len(world.lines_of(number)) <= (15 if number == victim else 5)
    end()
    ended_us = world.world.now_us
    world.world.run_for(8 * SECOND_US)
    assert has_left(world, victim), "room is believed after ten seconds only"
    world.run_until(world.everything_is_in_sync, 15_000)
    world.writers.check(ended_us, world.world.now_us, _BOUND_MS)


@pytest.mark.parametrize("seed", _SEEDS)
def test_a_disk_that_has_room_now_and_then_does_not_flap(seed: int) -> None:
    world = Combined(seed)
    victim, end = strike(world, refuse, "other")
    began_us = world.world.now_us
    for _ in range(6):
        world.world.run_for(5 * SECOND_US)
        end()
        world.world.run_for(2 * SECOND_US)
        assert has_left(world, victim)
        end = refuse(world.disk(victim))
    world.writers.check(began_us, world.world.now_us, _BOUND_MS)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("kind", "bound_ms"), [(slow, 16_000), (hanging, 20_000), (hanging_syncs, 12_000)])
@pytest.mark.parametrize("who", ["controller", "other"])
@pytest.mark.parametrize("seed", _SEEDS)
def test_a_slow_or_hanging_disk_loses_leaderships(seed: int, who: str, kind: Kind, bound_ms: int) -> None:
    world = Combined(seed)
    began_us = world.world.now_us
    victim, end = strike(world, kind, who)
    world.world.run_for(24 * SECOND_US)
    world.writers.check(began_us, world.world.now_us, bound_ms)
    for number in _NUMBERS:
        if number != victim:
            assert all(leader != victim and victim not in isr for leader, isr in world.partitions_at(number))
    end()
    if kind is hanging_syncs:
        return  # several of them one after the other are yet to end
    ended_us = world.world.now_us
    world.run_until(world.everything_is_in_sync, 60_000)
    world.writers.check(ended_us, world.world.now_us, _BOUND_MS)


@pytest.mark.parametrize("seed", _SEEDS)
def test_with_all_disks_full_it_is_as_before_and_goes_on_with_room(seed: int) -> None:
    """No record is written, all brokers keep their roles, and the first one with free space works again."""
    world = Combined(seed)
    ends = {number: refuse(world.disk(number)) for number in _NUMBERS}
    world.world.run_for(15 * SECOND_US)
    ended_us = world.world.now_us
    for number in world.chance.sample(_NUMBERS, 2):
        ends[number]()
    world.run_until(lambda: world.writers.all_have_acked_since(ended_us), 20_000)


@pytest.mark.parametrize("seed", _SEEDS)
def test_a_second_broker_dies_while_one_is_full(seed: int) -> None:
    """The quorum has separate nodes, which both faults spare: the third broker leads everything."""
    world = Combined(seed, controllers=3)
    victim = world.chance.choice(_NUMBERS)
    refuse(world.disk(victim))
    world.world.run_for(5 * SECOND_US)
    dead = world.another(victim)
    (left,) = (number for number in _NUMBERS if number not in (victim, dead))
    world.cluster.prevent_start(f"broker{dead}")
    world.cluster.nodes[f"broker{dead}"].kill()
    world.run_until(lambda: all(leader == left for leader, _ in world.partitions_at(left)), 3_000)


# -- planted mistakes


def nobody_says_that_it_is_full(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(WriteHealth, "unwritable", lambda self: [])


def the_leader_of_the_quorum_stays(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Leading, "on_unwritable", lambda self: None)


def full_replicas_are_waited_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BrokerImage, "takes_writes", lambda self, directory: True)


def what_is_not_on_disk_is_not_followed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Following, "_follow_in_memory", lambda self, records, high_watermark: None)


@pytest.mark.parametrize(
    ("mistake", "who", "found_by"),
    [
        (nobody_says_that_it_is_full, "other", Violation),
        (the_leader_of_the_quorum_stays, "controller", Violation),
        (full_replicas_are_waited_for, "other", Violation),
        (what_is_not_on_disk_is_not_followed, "controller", AssertionError),
    ],
)
def test_planted_mistakes_are_found(
    mistake: Callable[[pytest.MonkeyPatch], None], who: str, found_by: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake(monkeypatch)
    with pytest.raises(found_by):
        test_a_full_disk_stops_no_partition(0, who, refuse)
