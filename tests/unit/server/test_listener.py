"""Real sockets on a broker in memory: peers that request much and read late, or never."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine

import pytest
import uvloop
from tests.support.wired import PROPERTIES, WiredBroker
from tests.support.wired_requests import batch_of, fetch_request, produce, produce_request

from barnabas.broker.producing.produce_shortcut import ProduceShortcut
from barnabas.broker.requests.client_connection import Connection
from barnabas.common.config import BrokerConfig
from barnabas.protocol import codec
from barnabas.protocol.messages.header import RequestHeader
from barnabas.server.links import DialledLink, LoopLinks
from barnabas.server.listener import ConnectionProtocol, ListeningSocket, SocketOptions
from barnabas.server.turns import Turns

MIB = 1 << 20
_DEFAULTS = SocketOptions()
LOOPS: list[Callable[[], asyncio.AbstractEventLoop]] = [asyncio.new_event_loop, uvloop.new_event_loop]


def run(make_loop: Callable[[], asyncio.AbstractEventLoop], main: Coroutine[None, None, None]) -> None:
    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(asyncio.wait_for(main, 120))


@contextlib.asynccontextmanager
async def serving(wired: WiredBroker, options: SocketOptions = _DEFAULTS) -> AsyncIterator[ListeningSocket]:
    """Serves the broker on a socket; the virtual time follows the real one."""

    async def pump() -> None:
        while True:
            wired.host.time.run_for(1)
            await asyncio.sleep(0.001)

    dispatcher = wired.broker.dispatcher("PLAINTEXT")
    listening = await ListeningSocket.bind(dispatcher, "PLAINTEXT", "127.0.0.1", 0, options)
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
        async with serving(wired, SocketOptions(idle_ms_max=400)) as listening:
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
def test_a_chunk_that_is_sent_in_part_counts_whole(make_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """The transport keeps it whole, and 300 peers of which each took 2 MB held 100 MB more than was counted."""

    async def main() -> None:
        async with serving(WiredBroker()) as listening:
            reader, writer = await asyncio.open_connection("127.0.0.1", listening.port, limit=1024)
            while not listening._open:
                await asyncio.sleep(0.01)
            protocol = the_connection(listening)
            transport = protocol._transport
            assert transport is not None
            chunk = bytes(32 * MIB)
            protocol.write([b"head", chunk])
            protocol.write([b"tail"])
            while transport.get_write_buffer_size() > 32 * MIB:
                await asyncio.sleep(0.01)
            assert protocol.unsent_bytes in (32 * MIB + 4, 32 * MIB + 8)
            await reader.readexactly(32 * MIB + 8)
            while transport.get_write_buffer_size():
                await asyncio.sleep(0.01)
            assert protocol.unsent_bytes == 0
            writer.transport.abort()

    run(make_loop, main())


@pytest.mark.parametrize("make_loop", LOOPS)
def test_answers_that_a_peer_does_not_take_end_with_a_connection_that_is_hung_up_on(
    make_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """An orderly close would keep them until the peer takes them, which is never."""
    wired = filled()

    async def main() -> None:
        async with serving(wired) as listening:
            _, writer = await asyncio.open_connection("127.0.0.1", listening.port, limit=1024)
            writer.write(fetches(wired, 100))
            while not listening._open:
                await asyncio.sleep(0.01)
            protocol = the_connection(listening)
            core = protocol._connection
            assert core is not None
            while not protocol.unsent_bytes:
                await asyncio.sleep(0.01)
            core.abort("memory is short")
            for _ in range(100):
                if not listening._open:
                    break
                await asyncio.sleep(0.02)
            assert core.is_closed
            assert not listening._open
            assert protocol.unsent_bytes == 0
            writer.transport.abort()

    run(make_loop, main())


@pytest.mark.parametrize("make_loop", LOOPS)
def test_a_socket_refuses_peers_until_it_serves(make_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """The behaviour is Kafka's: a broker that does not know the metadata yet refuses clients, which then try another
    one.
    """
    dispatcher = WiredBroker().broker.dispatcher("PLAINTEXT")

    async def bind(port: int) -> ListeningSocket:
        return await ListeningSocket.bind(dispatcher, "PLAINTEXT", "127.0.0.1", port, SocketOptions(backlog=10))

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


@pytest.mark.parametrize("make_loop", LOOPS)
def test_socket_options_reach_the_sockets(make_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def main() -> None:
        options = SocketOptions(backlog=7, receive_buffer_bytes=50_000, send_buffer_bytes=30_000)
        async with serving(filled(), options) as listening:
            _, writer = await asyncio.open_connection("127.0.0.1", listening.port)
            while not listening.connection_count:
                await asyncio.sleep(0.01)
            (peer,) = listening._open
            assert peer._transport is not None
            sock = peer._transport.get_extra_info("socket")
            # Linux doubles what is asked for.
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) in (30_000, 60_000)
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) in (50_000, 100_000)
            assert _backlog_of(listening.port) in (7, None)
            writer.close()

    run(make_loop, main())


def test_options_come_from_the_configuration() -> None:
    plain = SocketOptions.from_config(BrokerConfig.from_properties(PROPERTIES))
    assert plain == SocketOptions(1024, 600_000, -1, -1)
    requested = {
        "socket.listen.backlog.size": "9",
        "socket.receive.buffer.bytes": "-1",
        "socket.send.buffer.bytes": "4096",
        "connections.max.idle.ms": "1000",
    }
    assert SocketOptions.from_config(BrokerConfig.from_properties({**PROPERTIES, **requested})) == (9, 1000, -1, 4096)


def _backlog_of(port: int) -> int | None:
    """Returns the length of the queue of connections to accept, as Linux shows it; None without `ss`."""
    try:
        shown = subprocess.run(["ss", "-Hltn", f"sport = :{port}"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    return int(shown.split()[2])


@pytest.mark.parametrize("make_loop", LOOPS)
def test_a_closed_connection_leaves_nothing_to_the_collector(
    make_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """Full garbage collections are switched off, so a connection in a cycle would never be freed."""
    wired = filled()
    kinds = ConnectionProtocol, Connection, ProduceShortcut
    # Tests of other files can leave connections in this process. The list keeps them, so that no id is used again.
    of_others = [one for one in gc.get_objects() if isinstance(one, kinds)]
    ids_of_others = {id(one) for one in of_others}
    header = RequestHeader(request_api_key=0, request_api_version=7, correlation_id=1, client_id="c")
    frame = codec.encode(header, 1)
    codec.encode_into(produce_request(wired, batch_of(b"x"), 7), 7, frame)

    async def come_and_go(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(len(frame).to_bytes(4, "big") + frame)
        await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
        writer.close()
        await writer.wait_closed()

    async def main() -> None:
        async with serving(wired) as listening:
            await come_and_go(listening.port)
            gc.collect()
            gc.disable()
            try:
                for _ in range(3):
                    await come_and_go(listening.port)
                while listening.connection_count:
                    await asyncio.sleep(0.01)
                await asyncio.sleep(0.01)
                found = Counter(
                    type(one) for one in gc.get_objects() if isinstance(one, kinds) and id(one) not in ids_of_others
                )
                # The dispatcher knows the connection of the latest request.
                assert found == {ConnectionProtocol: 1, Connection: 1}
            finally:
                gc.enable()

    run(make_loop, main())


@pytest.mark.parametrize("make_loop", LOOPS)
def test_dials_leave_nothing_to_the_collector(make_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """The first dial is refused, the second is closed while it connects, and the third connects and is then closed."""

    class End:
        over = False

        def get_buffer(self) -> memoryview:
            return memoryview(bytearray(100))

        def received(self, count: int) -> None:
            raise AssertionError(f"{count} bytes of nobody")

        def connected(self) -> None:
            self.over = True

        def closed(self, error: OSError | None) -> None:
            self.over = True

    async def main() -> None:
        async with serving(filled()) as listening:
            links = LoopLinks(asyncio.get_running_loop(), Turns())
            with socket.socket() as nobody:
                nobody.bind(("127.0.0.1", 0))
                gc.collect()
                gc.disable()
                try:
                    for port in (nobody.getsockname()[1], listening.port):
                        end = End()
                        link = links.dial("127.0.0.1", port, end)
                        while not end.over:
                            await asyncio.sleep(0.01)
                        link.close()
                    link = links.dial("127.0.0.1", listening.port, End())
                    await asyncio.sleep(0)
                    link.close()
                    await asyncio.sleep(0.1)
                    del link
                    assert [found for found in gc.get_objects() if isinstance(found, DialledLink)] == []
                finally:
                    gc.enable()

    run(make_loop, main())
