"""The watches of the brokers' processes by the active controller of ZooKeeper mode."""

from __future__ import annotations

from dataclasses import replace

from tests.support.process_links import Listening, ProcessLinks

from barnabas.controller.zookeeper.broker_processes import BrokerProcesses, ProcessListener
from barnabas.metadata.registrations import BrokerImage, Endpoint
from barnabas.simulation.host import MemoryHost

BROKER = BrokerImage(2, 7, b"", (Endpoint("PLAINTEXT", "broker2", 9092, 0),))


class World:
    def __init__(self) -> None:
        self.host = MemoryHost()
        self.links = ProcessLinks(self.host.time, lambda port: Listening.ACCEPTS)
        self.host.links = self.links  # type: ignore[assignment]
        listener = ProcessListener(lambda broker_id, epoch: None, lambda broker_id, epoch: None)
        self.processes = BrokerProcesses(self.host, 1, "PLAINTEXT", listener)

    def watch(self, broker: BrokerImage) -> int:
        """Watches the broker. Returns the number of open connections of all that were dialled so far."""
        self.processes.watch(broker, is_known=True)
        self.host.time.run_for(100)
        return len(self.links.dialled)


def test_a_registration_that_is_read_again_keeps_its_connection() -> None:
    world = World()
    assert world.watch(BROKER) == 1
    assert world.watch(BROKER) == 1


def test_another_registration_has_a_connection_of_its_own() -> None:
    world = World()
    world.watch(BROKER)
    assert world.watch(replace(BROKER, epoch=8)) == 2
    moved = replace(BROKER, epoch=8, endpoints=(Endpoint("PLAINTEXT", "broker2", 9093, 0),))
    assert world.watch(moved) == 3
    assert [link.is_closed for link in world.links.dialled] == [True, True, False]


def test_the_own_broker_is_not_watched() -> None:
    assert World().watch(replace(BROKER, broker_id=1)) == 0
