"""asyncio on virtual time: clients and servers that do not notice it."""

from __future__ import annotations

import asyncio
import time

import pytest

from barnabas.simulation.ambient import ambient
from barnabas.simulation.loop import SimulatedLoop
from barnabas.simulation.machine import Machine
from barnabas.simulation.network import Network
from barnabas.simulation.world import SECOND_US, World


class Two:
    """A loop on each of two machines."""

    def __init__(self, seed: int = 1) -> None:
        self.world = World(seed)
        self.network = Network(self.world)
        self.machines = {name: Machine(self.world, self.network, name) for name in ("client", "server")}
        self.client, self.server = (
            SimulatedLoop(self.world, self.network, machine.spawn(), name) for name, machine in self.machines.items()
        )


def test_sleeping_takes_virtual_time_only() -> None:
    two = Two()
    began_s = time.perf_counter()

    async def sleep_long() -> float:
        before = asyncio.get_running_loop().time()
        await asyncio.gather(asyncio.sleep(3600), asyncio.sleep(7200))
        return asyncio.get_running_loop().time() - before

    assert two.client.run_until_complete(sleep_long()) == pytest.approx(7200, abs=0.001)
    assert time.perf_counter() - began_s < 60


def test_streams_talk_over_the_simulated_network() -> None:
    two = Two()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line.upper())
            await writer.drain()
        writer.close()

    async def call() -> list[bytes]:
        reader, writer = await asyncio.open_connection("server", 80)
        answers = []
        for word in (b"one\n", b"two\n", b"x" * 60_000 + b"\n"):
            writer.write(word)
            answers.append(await reader.readline())
        writer.close()
        await writer.wait_closed()
        return answers

    server = two.server.run_until_complete(asyncio.start_server(answer, "server", 80))
    answers = two.client.run_until_complete(call())
    assert [each[:3] for each in answers] == [b"ONE", b"TWO", b"XXX"]
    server.close()
    with pytest.raises(ConnectionRefusedError):
        two.client.run_until_complete(asyncio.open_connection("server", 80))
    with pytest.raises(OSError):
        two.client.run_until_complete(asyncio.open_connection("nowhere", 80))


def test_a_client_notices_that_its_peer_has_died() -> None:
    two = Two()

    async def listen() -> bytes:
        reader, _ = await asyncio.open_connection("server", 80)
        return await reader.read()

    async def ignore(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(3600)

    two.server.run_until_complete(asyncio.start_server(ignore, "server", 80))
    listening = two.client.create_task(listen())
    two.world.run_for(SECOND_US)
    assert not listening.done()
    two.machines["server"].kill()
    two.world.run_for(SECOND_US)
    assert listening.result() == b""


def test_timeouts_executors_and_errors() -> None:
    two = Two()

    async def work() -> tuple[int, bool]:
        loop = asyncio.get_running_loop()
        value = await loop.run_in_executor(None, lambda: 41 + 1)
        with pytest.raises(ZeroDivisionError):
            await loop.run_in_executor(None, lambda: 1 // 0)
        timed_out = False
        try:
            await asyncio.wait_for(loop.create_future(), 5)
        except TimeoutError:
            timed_out = True
        return value, timed_out

    assert two.client.run_until_complete(work()) == (42, True)


def test_a_wait_shorter_than_the_resolution_of_the_clock_ends() -> None:
    two = Two()

    async def wait() -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + 0.1
        while loop.time() < deadline:
            await asyncio.sleep(1e-15)

    two.client.run_until_complete(wait())
    assert 0.1 <= two.client.time() < 0.11


def test_the_clock_functions_return_the_worlds_time_while_it_runs() -> None:
    two = Two()
    real = time.monotonic
    with ambient(two.world):
        two.world.run_for(90 * SECOND_US)
        assert time.monotonic() == 90
        assert time.gmtime(time.time())[:5] == (2025, 1, 1, 0, 1)
    assert time.monotonic is real
