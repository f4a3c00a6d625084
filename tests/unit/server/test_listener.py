"""Real sockets on a broker in memory: peers that ask for much and read late, or never."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine

import pytest
import uvloop
from tests.support.wired import WiredBroker
from tests.support.wired_requests import batch_of, fetch_request, produce

from barnabas.protocol import codec
from barnabas.protocol.api import BROKER_APIS
from barnabas.protocol.messages.header import RequestHeader
from barnabas.server.listener import ConnectionProtocol, ListeningSocket

MIB = 1 << 20
LOOPS: list[Callable[[], asyncio.AbstractEventLoop]] = [asyncio.new_event_loop, uvloop.new_event_loop]


def run(make_loop: Callable[[], asyncio.AbstractEventLoop], main: Coroutine[None, None, None]) -> None:
    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(asyncio.wait_for(main, 120))


@contextlib.asynccontextmanager
async def serving(wired: WiredBroker, *, idle_ms_max: int = 0) -> AsyncIterator[ListeningSocket]:
    """The virtual time goes on with the real one."""

    async def pump() -> None:
        while True:
            wired.host.time.run_for(1)
            await asyncio.sleep(0.001)

    dispatcher = wired.broker.dispatcher(BROKER_APIS)
    listening = await ListeningSocket.bind(dispatcher, "PLAINTEXT", "127.0.0.1", 0, backlog=10, idle_ms_max=idle_ms_max)
    await listening.serve()
    pumping = asyncio.get_running_loop().create_task(pump())
    try:
        yield listening
    finally:
        pumping.cancel()
        listening.close()


def fetches(wired: WiredBroker, count: int) -> bytes:
    data = bytearray()
    for number in range(count):
        header = RequestHeader(request_api_key=1, request_api_version=12, correlation_id=number, client_id="c")
        frame = codec.encode(header, 2)
        codec.encode_into(fetch_request(wired, 0, 12), 12, frame)
        data += len(frame).to_bytes(4, "big") + frame
    return bytes(data)


def filled() -> WiredBroker:
    wired = WiredBroker()
    wired.create_topic("orders")
    for _ in range(5):
        produce(wired, wired.connect(), batch_of(b"x" * 200_000))
    return wired


def the_connection(listening: ListeningSocket) -> ConnectionProtocol:
    (protocol,) = listening._open
    return protocol


@pytest.mark.parametrize("make_loop", LOOPS)
def test_unsent_answers_are_bounded_and_all_come_in_the_end(make_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    wired = filled()

    async def main() -> None:
        async with serving(wired) as listening:
            reader, writer = await asyncio.open_connection("127.0.0.1", listening.port, limit=4 * MIB)
            count = 100
            writer.write(fetches(wired, count))
            while not listening._open:
                await asyncio.sleep(0.01)
            protocol = the_connection(listening)
            assert protocol._connection is not None
            assert protocol._transport is not None
            while not protocol._connection._paused:
                await asyncio.sleep(0.01)
            for _ in range(20):
                assert protocol._transport.get_write_buffer_size() < 12 * MIB
                await asyncio.sleep(0.01)
            for number in range(count):
                size = int.from_bytes(await reader.readexactly(4), "big")
                answer = await reader.readexactly(size)
                assert int.from_bytes(answer[:4], "big") == number
                assert size > 800_000
            writer.write(fetches(wired, 1))
            assert len(await reader.readexactly(4)) == 4
            writer.close()

    run(make_loop, main())


@pytest.mark.parametrize("make_loop", LOOPS)
def test_a_peer_that_never_reads_is_given_up_after_its_idle_time(
    make_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    wired = filled()

    async def main() -> None:
        async with serving(wired, idle_ms_max=400) as listening:
            _, writer = await asyncio.open_connection("127.0.0.1", listening.port, limit=1024)
            writer.write(fetches(wired, 100))
            while not listening._open:
                await asyncio.sleep(0.01)
            core = the_connection(listening)._connection
            assert core is not None
            while listening._open:
                await asyncio.sleep(0.02)
            assert core.is_closed
            writer.transport.abort()

    run(make_loop, main())


@pytest.mark.parametrize("make_loop", LOOPS)
def test_a_socket_refuses_peers_until_it_serves(make_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """As Kafka's: a broker that does not know the metadata yet is not there for clients, who then ask another one."""
    dispatcher = WiredBroker().broker.dispatcher(BROKER_APIS)

    async def bind(port: int) -> ListeningSocket:
        return await ListeningSocket.bind(dispatcher, "PLAINTEXT", "127.0.0.1", port, backlog=10, idle_ms_max=1000)

    async def main() -> None:
        first = await bind(0)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", first.port)
        second = await bind(first.port)
        await first.serve()
        _, writer = await asyncio.open_connection("127.0.0.1", first.port)
        writer.close()
        with pytest.raises(OSError, match="in use"):
            await bind(first.port)
        with pytest.raises(OSError, match="in use"):
            await second.serve()
        first.close()
        second.close()
        (await bind(0)).close()

    run(make_loop, main())
