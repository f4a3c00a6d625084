"""Connections: order, partitions, failures, refusals, limits of buffers."""

from __future__ import annotations

import errno

import pytest

from barnabas.simulation.faulty_disk import Loss
from barnabas.simulation.machine import Machine
from barnabas.simulation.network import Network, Socket
from barnabas.simulation.world import SECOND_US, World


class Ear:
    """An end that remembers."""

    def __init__(self) -> None:
        self.heard = bytearray()
        self.events: list[str] = []
        self.error: OSError | None = None
        self.socket: Socket | None = None

    def connected(self) -> None:
        self.events.append("connected")

    def received(self, data: bytes) -> None:
        self.heard += data

    def ended(self) -> None:
        self.events.append("ended")
        if self.socket is not None:
            self.socket.close()

    def closed(self, error: OSError | None) -> None:
        self.events.append("closed")
        self.error = error

    def pause_writing(self) -> None:
        self.events.append("hold back")

    def resume_writing(self) -> None:
        self.events.append("continue")


class Pair:
    """Two machines; `dial` connects from a to b."""

    def __init__(self, seed: int = 1) -> None:
        self.world = World(seed)
        self.network = Network(self.world, give_up_us=30 * SECOND_US)
        self.a, self.b = (Machine(self.world, self.network, name) for name in "ab")
        self.a_process, self.b_process = self.a.spawn(), self.b.spawn()
        self.accepted: list[Ear] = []
        self.network.listen(self.b_process, (self.b.address, 9092), self._accept)

    def _accept(self, socket: Socket) -> Ear:
        ear = Ear()
        ear.socket = socket
        self.accepted.append(ear)
        return ear

    def dial(self, port: int = 9092, host: str = "b") -> tuple[Ear, Socket]:
        ear = Ear()
        ear.socket = self.network.dial(self.a_process, "a", host, port, ear)
        return ear, ear.socket

    def connect(self) -> tuple[Ear, Socket, Ear]:
        ear, socket = self.dial()
        self.world.run_for(SECOND_US)
        assert ear.events == ["connected"]
        return ear, socket, self.accepted[-1]


def test_bytes_arrive_in_order_both_ways() -> None:
    pair = Pair()
    ear, socket, other = pair.connect()
    parts = [b"%d," % number for number in range(500)]
    for part in parts:
        socket.write([part])
    assert other.socket is not None
    other.socket.write([b"answer", memoryview(b" in parts")])
    pair.world.run_for(SECOND_US)
    assert bytes(other.heard) == b"".join(parts)
    assert bytes(ear.heard) == b"answer in parts"


@pytest.mark.parametrize("seed", range(5))
def test_a_lossy_way_is_slow_and_loses_nothing(seed: int) -> None:
    pair = Pair(seed)
    _, socket, other = pair.connect()
    pair.network.direction("a", "b").loss_percent = 50
    began_us = pair.world.now_us
    for number in range(100):
        socket.write([b"%d," % number])
    pair.world.run_while(lambda: other.heard.count(b",") < 100, began_us + 600 * SECOND_US)
    assert bytes(other.heard) == b"".join(b"%d," % number for number in range(100))
    assert pair.world.now_us - began_us > SECOND_US // 10


def test_nobody_listens_and_no_such_host() -> None:
    pair = Pair()
    refused, _ = pair.dial(port=1)
    unknown, _ = pair.dial(host="nowhere")
    pair.network.unwritable.add("b")
    unwritable, _ = pair.dial()
    pair.world.run_for(SECOND_US)
    assert isinstance(refused.error, ConnectionRefusedError)
    assert isinstance(unwritable.error, ConnectionRefusedError)
    assert unknown.error is not None
    assert refused.events == ["closed"]


def test_a_cut_holds_bytes_back_until_it_heals() -> None:
    pair = Pair()
    ear, socket, other = pair.connect()
    pair.network.cut("a", "b")
    socket.write([b"late"])
    assert other.socket is not None
    other.socket.write([b"one way is open"])
    pair.world.run_for(10 * SECOND_US)
    assert bytes(other.heard) == b""
    assert bytes(ear.heard) == b"one way is open"
    pair.network.heal("a", "b")
    pair.world.run_for(15 * SECOND_US)
    assert bytes(other.heard) == b"late"
    assert ear.events == ["connected"]


def test_a_sender_gives_up_and_a_dial_too() -> None:
    pair = Pair()
    ear, socket, other = pair.connect()
    pair.network.cut("a", "b")
    socket.write([b"lost"])
    dialling, _ = pair.dial()
    pair.world.run_for(60 * SECOND_US)
    assert isinstance(ear.error, TimeoutError)
    assert isinstance(dialling.error, TimeoutError)
    assert other.events == []  # half open: this side learns nothing


def test_a_killed_process_says_goodbye_and_a_machine_without_power_does_not() -> None:
    pair = Pair()
    killed, _, _ = pair.connect()
    pair.b.kill()
    pair.world.run_for(SECOND_US)
    assert killed.events == ["connected", "ended"]
    pair = Pair()
    silent, socket, _ = pair.connect()
    pair.b.power_off(Loss.NONE)
    pair.world.run_for(SECOND_US)
    assert silent.events == ["connected"]
    unreachable, _ = pair.dial()
    pair.world.run_for(10 * SECOND_US)
    assert unreachable.error is not None
    assert unreachable.error.errno == errno.EHOSTUNREACH
    pair.b.power_on()
    socket.write([b"who are you?"])
    pair.world.run_for(SECOND_US)
    assert isinstance(silent.error, ConnectionResetError)


def test_a_paused_process_is_connected_to_and_gets_the_bytes_later() -> None:
    pair = Pair()
    pair.b.pause()
    ear, socket = pair.dial()
    pair.world.run_for(SECOND_US)
    socket.write([b"hello"])
    pair.world.run_for(SECOND_US)
    assert ear.events == ["connected"]
    assert pair.accepted == []
    pair.b.resume()
    pair.world.run_for(SECOND_US)
    assert bytes(pair.accepted[0].heard) == b"hello"


def test_a_reader_that_pauses_holds_the_writer_back() -> None:
    pair = Pair()
    ear, socket, other = pair.connect()
    assert other.socket is not None
    other.socket.pause_reading()
    for _ in range(20):
        socket.write([bytes(100_000)])
    pair.world.run_for(SECOND_US)
    assert len(other.heard) == 0
    assert ear.events == ["connected", "hold back"]
    other.socket.resume_reading()
    pair.world.run_for(SECOND_US)
    assert len(other.heard) == 2_000_000
    assert ear.events == ["connected", "hold back", "continue"]


def test_reset_breaks_both_sides() -> None:
    pair = Pair()
    ear, _, other = pair.connect()
    assert pair.network.reset_between("a", "b") == 1
    pair.world.run_for(SECOND_US)
    assert isinstance(ear.error, ConnectionResetError)
    assert isinstance(other.error, ConnectionResetError)
