"""Clock, timers, chance, slow work and links behave the same on the real host and on a simulated machine."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from typing import Protocol

import pytest

from barnabas.common.host import Host, Link
from barnabas.server.host import ServerHost
from barnabas.simulation.machine import Machine
from barnabas.simulation.network import Network, Socket
from barnabas.simulation.world import MILLISECOND_US, World


class Place(Protocol):
    """A host, time that passes, and a peer: every byte it gets comes back, and "bye" makes it hang up."""

    host: Host
    peer: tuple[str, int]
    nobody: tuple[str, int]

    def wait(self, condition: Callable[[], bool], turns: int = 30_000) -> bool: ...

    def close(self) -> None: ...


class _Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)
        if data.endswith(b"bye"):
            self.transport.close()


class RealPlace:
    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.host: Host = ServerHost(self.loop)
        self.server = self.loop.run_until_complete(self.loop.create_server(_Echo, "127.0.0.1", 0))
        self.peer = ("127.0.0.1", self.server.sockets[0].getsockname()[1])
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.nobody = free.getsockname()

    def wait(self, condition: Callable[[], bool], turns: int = 30_000) -> bool:
        async def until() -> bool:
            for _ in range(turns):
                if condition():
                    return True
                await asyncio.sleep(0.002)
            return False

        return self.loop.run_until_complete(until())

    def close(self) -> None:
        self.server.close()
        self.loop.run_until_complete(self.server.wait_closed())
        assert isinstance(self.host, ServerHost)
        self.host.close()
        self.loop.close()


class _SimulatedEcho:
    def __init__(self, socket: Socket) -> None:
        self.socket = socket

    def connected(self) -> None: ...

    def received(self, data: bytes) -> None:
        self.socket.write([data])
        if data.endswith(b"bye"):
            self.socket.close()

    def ended(self) -> None:
        self.socket.close()

    def closed(self, error: OSError | None) -> None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...


class SimulatedPlace:
    def __init__(self) -> None:
        self.world = World(1)
        network = Network(self.world)
        own, other = Machine(self.world, network, "own"), Machine(self.world, network, "other")
        self.host: Host = own.host_for(own.spawn())
        network.listen(other.spawn(), (other.address, 9092), _SimulatedEcho)
        self.peer, self.nobody = ("other", 9092), ("other", 1)

    def wait(self, condition: Callable[[], bool], turns: int = 30_000) -> bool:
        for _ in range(turns):
            if condition():
                return True
            self.world.run_for(2 * MILLISECOND_US)
        return False

    def close(self) -> None: ...


@pytest.fixture(params=[RealPlace, SimulatedPlace])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    made: Place = request.param()
    yield made
    made.close()


class Caller:
    """A `LinkEnd` that remembers."""

    def __init__(self) -> None:
        self._room = memoryview(bytearray(7))
        self.heard = bytearray()
        self.events: list[str] = []
        self.error: OSError | None = None

    def connected(self) -> None:
        self.events.append("connected")

    def get_buffer(self) -> memoryview:
        return self._room

    def received(self, count: int) -> None:
        self.heard += self._room[:count]

    def closed(self, error: OSError | None) -> None:
        self.events.append("closed")
        self.error = error


def dial(place: Place, address: tuple[str, int]) -> tuple[Caller, Link]:
    caller = Caller()
    link = place.host.links.dial(*address, caller)
    assert caller.events == [], "nothing is called before the dial has returned"
    return caller, link


def test_timers_fire_in_their_order_and_not_early(place: Place) -> None:
    clock, timers, seen = place.host.clock, place.host.timers, list[str]()
    began_ms = clock.now_ms()
    elapsed: list[int] = []

    def later() -> None:
        seen.append("later")
        elapsed.append(clock.now_ms() - began_ms)

    timers.call_later(60, later)
    timers.call_later(20, lambda: seen.append("sooner"))
    timers.call_later(30, lambda: seen.append("never")).cancel()
    timers.call_soon(lambda: seen.append("first"))
    timers.call_soon(lambda: seen.append("second"))
    assert seen == []
    assert place.wait(lambda: len(seen) == 4)
    assert seen == ["first", "second", "sooner", "later"]
    assert elapsed[0] >= 59


def test_both_clocks_go_on(place: Place) -> None:
    clock = place.host.clock
    now_ms, wall_ms = clock.now_ms(), clock.wall_ms()
    assert wall_ms > 1_700_000_000_000
    assert place.wait(lambda: clock.now_ms() >= now_ms + 30 and clock.wall_ms() >= wall_ms + 25)


def test_chance_is_within_its_bounds(place: Place) -> None:
    random = place.host.random
    assert {random.below(3) for _ in range(200)} == {0, 1, 2}
    ids = {random.uuid() for _ in range(50)}
    assert len(ids) == 50
    assert {(len(each), each[6] >> 4, each[8] >> 6) for each in ids} == {(16, 4, 2)}


def test_slow_work_is_done_and_reported_later(place: Place) -> None:
    told: list[object] = []
    blocking = place.host.blocking
    blocking.run(lambda: 6 * 7, lambda result, error: told.append(result))
    blocking.run(lambda: 1 // 0, lambda result, error: told.append(type(error)))
    assert told == []
    assert place.wait(lambda: len(told) == 2)
    assert set(map(str, told)) == {"42", str(ZeroDivisionError)}


def test_a_link_carries_bytes_both_ways_and_reports_its_end(place: Place) -> None:
    caller, link = dial(place, place.peer)
    assert place.wait(lambda: caller.events == ["connected"])
    link.write([b"hello ", bytearray(b"peer, "), memoryview(b"how are you? ")])
    assert place.wait(lambda: bytes(caller.heard) == b"hello peer, how are you? ")
    link.write([b"bye"])
    assert place.wait(lambda: caller.events == ["connected", "closed"])
    assert caller.heard.endswith(b"bye")
    assert caller.error is None


def test_a_dial_that_nobody_answers_is_refused(place: Place) -> None:
    caller, _ = dial(place, place.nobody)
    assert place.wait(lambda: caller.events == ["closed"])
    assert isinstance(caller.error, ConnectionRefusedError)


def test_a_side_that_closes_a_link_gets_no_more_events(place: Place) -> None:
    caller, link = dial(place, place.peer)
    early, closed_early = dial(place, place.peer)
    closed_early.close()
    assert place.wait(lambda: caller.events == ["connected"])
    link.write([b"one word"])
    link.close()
    link.write([b"too late"])
    assert not place.wait(lambda: caller.events != ["connected"] or early.events != [], turns=50)


def test_a_paused_link_takes_nothing_until_it_resumes(place: Place) -> None:
    caller, link = dial(place, place.peer)
    assert place.wait(lambda: caller.events == ["connected"])
    link.pause_reading()
    link.write([b"wait for it"])
    assert not place.wait(lambda: len(caller.heard) > 0, turns=50)
    link.resume_reading()
    assert place.wait(lambda: bytes(caller.heard) == b"wait for it")
