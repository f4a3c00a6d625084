"""The journal as its readers read it while a fault hits one of its replicas, in a simulated cluster."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest
from tests.support.journal_world import Event, JournalWorld

from barnabas.cli.incident import causes_of
from barnabas.cli.journal_reader import distinct
from barnabas.common.types import EVENTS_TOPIC
from barnabas.monitor.broker_connection import Security
from barnabas.monitor.journal_reading import JournalReading, Unreadable
from barnabas.simulation.fault_effects import FaultEffects
from barnabas.simulation.faults import Fault, FaultKind
from barnabas.simulation.world import EPOCH_WALL_US, SECOND_US

T = TypeVar("T")


class Reader:
    """The reader of the product, on a machine of its own."""

    def __init__(self, world: JournalWorld) -> None:
        self._world = world
        self._client = world.cluster.add_client("reader")
        self.reading = JournalReading([(f"broker{number}", 9092) for number in (1, 2, 3)], Security())
        self.position: int | None = None
        self.events: list[Event] = []

    def run(self, work: Callable[[], Coroutine[Any, Any, T]], within_s: float = 60.0) -> tuple[T, float]:
        """Returns the result of a coroutine, and the seconds that it took."""
        found: list[T] = []
        errors: list[Exception] = []
        world = self._world.world

        async def main() -> None:
            try:
                found.append(await work())
            except Unreadable as error:
                errors.append(error)

        begin_us = world.now_us
        self._client.run(main)
        world.run_while(lambda: not found and not errors, begin_us + round(within_s * SECOND_US))
        if errors:
            raise errors[0]
        assert found, "it ends in time"
        return found[0], (world.now_us - begin_us) / SECOND_US

    def look(self) -> float:
        return self.run(self.reading.look)[1]

    def read(self) -> float:
        """Reads what is new. Returns the seconds that it took."""
        self.position, took_s = self.run(lambda: self.reading.read(self.position, None, self.events.append))
        return took_s

    def kinds_waiting(self) -> list[tuple[str, int, int]]:
        return sorted(
            (event["kind"], event["broker"], event.get("peer", 0))
            for event in self.reading.waiting
            if "broker" in event
        )


def journal_world(seed: int, session_ms: int = 60_000) -> JournalWorld:
    """Returns a world with a journal whose three replicas are in sync, and stay so until a session has expired."""
    properties = {"broker.session.timeout.ms": str(session_ms), "replica.lag.time.max.ms": "60000"}
    world = JournalWorld(seed, controllers=1, properties=properties)
    world.create_topic("orders", [1, 2, 3], [2, 3, 1], [3, 1, 2])
    world.cluster.programs["broker2"].stop()
    world.run_for(3_000)
    world.settle()
    return world


def leader_of(world: JournalWorld) -> int:
    partition = world.image().partition(EVENTS_TOPIC, 0)
    assert partition is not None
    assert set(partition.isr) == {1, 2, 3}
    return int(partition.leader)


def begin(world: JournalWorld, kind: FaultKind, broker: int) -> Callable[[], None]:
    end = FaultEffects(world.cluster).begin(Fault(at_ms=0, kind=kind, node=f"broker{broker}"))
    assert end is not None
    return end


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_while_the_leader_is_paused_a_follower_is_read_up_to_its_hw(seed: int) -> None:
    world = journal_world(seed)
    committed = [event["id"] for event in world.events()]
    leader = leader_of(world)
    reader = Reader(world)
    end = begin(world, FaultKind.PAUSE, leader)
    assert reader.look() < 3, "it waits a second for the one that does not answer"
    assert list(reader.reading.silent) == [leader]
    assert reader.read() < 3
    assert [event["id"] for event in reader.events] == committed
    end()
    world.run_for(5_000)
    reader.look()
    reader.read()
    whole = [event["id"] for event in world.events()]
    assert [event["id"] for event in reader.events] == whole, "each offset once, whichever replica was read"
    assert len(whole) > len(committed), "the leader and its followers have reported the pause"
    assert reader.reading.silent == {}


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("hits_leader", [True, False])
def test_the_reports_about_a_replica_of_the_journal_wait_at_the_other_brokers(seed: int, hits_leader: bool) -> None:
    world = journal_world(seed)
    leader = leader_of(world)
    # Broker 2 leads nothing since its restart, so nobody waits for it.
    paused = leader if hits_leader else ({1, 3} - {leader}).pop()
    others = sorted({1, 2, 3} - {paused})
    reader = Reader(world)
    reader.look()
    assert reader.reading.waiting == []
    end = begin(world, FaultKind.PAUSE, paused)
    world.run_for(6_000)
    reader.look()
    assert set(reader.kinds_waiting()) == {("link-lost", broker, paused) for broker in others}
    assert {event.get("dialled") for event in reader.reading.waiting} <= {None, "connects"}
    waiting = {event["id"] for event in reader.reading.waiting}
    end()
    world.run_for(5_000)
    reader.look()
    reader.read()
    assert reader.reading.waiting == [], "all is written"
    assert waiting < {event["id"] for event in reader.events}, "with the same ids"


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(("kind", "code"), [(FaultKind.POWER, "power-lost"), (FaultKind.ISOLATE, "link-lost")])
def test_a_machine_without_power_is_told_from_one_that_is_cut_off(seed: int, kind: FaultKind, code: str) -> None:
    world = journal_world(seed)
    reader = Reader(world)
    begin(world, kind, 1)  # broker 2 leads nothing since its restart, so nobody waits for it
    world.run_for(8_000)
    reader.look()
    reader.read()
    since_ms = (EPOCH_WALL_US + world.world.now_us) // 1_000 - 10_000
    events = [event for event in (*reader.events, *reader.reading.waiting) if event["time_ms"] > since_ms]
    first = causes_of(distinct(events))[0]
    assert (first.code, first.component) == (code, "broker 1")


def test_a_journal_that_nobody_serves_is_said_so() -> None:
    world = journal_world(1)
    reader = Reader(world)
    reader.look()
    ends = [begin(world, FaultKind.PAUSE, broker) for broker in (1, 2, 3)]
    with pytest.raises(Unreadable, match="no response in time"):
        reader.read()
    for end in ends:
        end()
    world.run_for(3_000)
    reader.read()
    assert [event["id"] for event in reader.events] == [event["id"] for event in world.events()]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_broker_writes_to_the_new_leader_as_soon_as_there_is_one(seed: int) -> None:
    """A report that was sent to a leader that is paused does not wait for the timeout of its request, which is 15 s."""
    world = journal_world(seed, session_ms=6_000)
    leader = leader_of(world)
    begin(world, FaultKind.PAUSE, leader)
    world.run_for(4_000)
    reader = Reader(world)
    reader.look()
    reporters = {event["broker"] for event in reader.reading.waiting if event.get("peer") == leader}
    assert reporters == {1, 2, 3} - {leader}, "they have sent their reports to it"

    def has_new_leader() -> bool:
        partition = world.image().partition(EVENTS_TOPIC, 0)
        return partition is not None and partition.leader not in (-1, leader)

    world.run_until(has_new_leader, "a new leader")
    world.run_for(3_000)
    reader.look()
    reader.read()
    written = {event["broker"] for event in reader.events if event["kind"] == "link-lost" and event["peer"] == leader}
    assert (written, reader.reading.waiting) == (reporters, [])
