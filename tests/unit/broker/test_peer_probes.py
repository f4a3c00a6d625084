"""Dials to peers that do not answer: their results, and how often they are made."""

from __future__ import annotations

import errno

import pytest

from barnabas.broker.peers.peer_probes import PeerProbes
from barnabas.common.host import LinkEnd
from barnabas.simulation.host import MemoryHost, MemoryLink

_ADDRESS = ("peer", 9092)


class Dials:
    """The links of a host whose dials end when the test says so."""

    def __init__(self) -> None:
        self.ends: list[LinkEnd] = []
        self.links: list[MemoryLink] = []

    def dial(self, host: str, port: int, end: LinkEnd, tls: str | None = None) -> MemoryLink:
        assert (host, port, tls) == (*_ADDRESS, None)
        self.ends.append(end)
        self.links.append(MemoryLink())
        return self.links[-1]


class World:
    def __init__(self) -> None:
        self.host = MemoryHost()
        self.dials = Dials()
        self.host.links = self.dials  # type: ignore[assignment]
        self.probes = PeerProbes(self.host)

    def result(self) -> str:
        return self.probes.result(2, _ADDRESS)


@pytest.fixture
def world() -> World:
    return World()


def test_a_system_that_accepts_connections(world: World) -> None:
    assert world.result() == ""
    world.dials.ends[0].connected()
    assert world.dials.links[0].is_closed
    assert [world.result(), world.result()] == ["connects", "connects"]
    world.host.time.run_for(60_000)
    assert (world.result(), len(world.dials.ends)) == ("connects", 1), "it is dialled once"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ConnectionRefusedError(), "refused"),
        (OSError(errno.EHOSTUNREACH, "no route"), "unreachable"),
        (OSError(errno.ENETUNREACH, "no route"), "unreachable"),
        (TimeoutError(), "silent"),
        (None, "silent"),
    ],
)
def test_why_a_dial_failed(world: World, error: OSError | None, expected: str) -> None:
    world.result()
    world.dials.ends[0].closed(error)
    assert world.result() == expected


def test_a_dial_waits_until_the_network_can_say_that_there_is_no_such_machine(world: World) -> None:
    world.result()
    world.host.time.run_for(4_900)
    assert (world.result(), len(world.dials.ends)) == ("", 1)
    world.host.time.run_for(200)
    assert world.dials.links[0].is_closed
    assert (world.result(), len(world.dials.ends)) == ("silent", 2), "a lost packet is no proof: it is dialled again"
    world.dials.ends[1].connected()
    assert world.result() == "connects"


def test_a_peer_that_answers_again_is_forgotten(world: World) -> None:
    world.result()
    world.probes.keep([2])
    assert not world.dials.links[0].is_closed
    world.probes.keep([3])
    assert world.dials.links[0].is_closed
    assert (world.result(), len(world.dials.ends)) == ("", 2)
    world.probes.close()
    assert world.dials.links[1].is_closed
    world.host.time.run_for(60_000)
    assert len(world.dials.ends) == 2
