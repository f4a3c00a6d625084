"""Handshakes of TLS are authentications in Kafka's metrics: those that succeed, unless a log-in follows, and all that
fail.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path

import pytest
import uvloop
from tests.support.log_in import SECURED
from tests.support.metrics import Metrics, scraped
from tests.support.wired import WiredBroker

from barnabas.embedded.authority import Authority, issue, make_authority
from barnabas.server.listener import ConnectionProtocol, ListeningSocket, SocketOptions
from barnabas.tls.alerts import ServerContext

MakeLoop = Callable[[], asyncio.AbstractEventLoop]
loops = pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])


class Names:
    """The names of peers, who all have a certificate of one authority (`server.listener.PeerNames`)."""

    def __init__(self, authority: Authority) -> None:
        self._context = ServerContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(issue(authority, "server", ["localhost"]))
        self._context.load_verify_locations(authority.certificate)
        self._context.verify_mode = ssl.CERT_REQUIRED

    def server(self, listener: str) -> ssl.SSLContext:
        return self._context

    def principal(self, listener: str, certificate: bytes | None) -> str:
        assert certificate is not None
        return "User:CN=client"


@contextlib.asynccontextmanager
async def serving(authority: Authority, **properties: str) -> AsyncIterator[tuple[WiredBroker, int]]:
    wired = WiredBroker(**properties)  # type: ignore[arg-type]
    dispatcher = wired.broker.dispatcher("PLAINTEXT")
    listening = await ListeningSocket.bind(
        dispatcher, "PLAINTEXT", "127.0.0.1", 0, SocketOptions(), peer_names=Names(authority)
    )
    await listening.serve()
    try:
        yield wired, listening.port
    finally:
        listening.close()


def counted(wired: WiredBroker) -> tuple[float, float, float]:
    """Returns the numbers of successes, of those that cannot be renewed, and of failures."""
    metrics = Metrics(scraped(wired.broker))
    names = ("successful_authentication_total", "successful_authentication_no_reauth_total")
    found = [
        metrics(f"kafka_server_socket_server_metrics_{name}", listener="PLAINTEXT")
        for name in (*names, "failed_authentication_total")
    ]
    return found[0], found[1], found[2]


def client(authority: Authority) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=authority.certificate)
    made.load_cert_chain(issue(authority, "client", ["localhost"]))
    return made


async def connect(port: int, context: ssl.SSLContext | None, first: bytes = b"") -> None:
    """Connects, and waits until the broker ends the connection, or has nothing to say."""
    reader, writer = await asyncio.open_connection("localhost", port, ssl=context)
    writer.write(first)
    with contextlib.suppress(TimeoutError, OSError):
        await asyncio.wait_for(reader.read(), 0.3)
    writer.close()


def run(make_loop: MakeLoop, main: Coroutine[None, None, None]) -> None:
    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(asyncio.wait_for(main, 60))


@loops
def test_handshakes_are_counted_as_authentications(make_loop: MakeLoop, tmp_path: Path) -> None:
    """Guard S16: a client in the clear, one without a certificate, and one with that of a stranger are refused."""
    authority, other = make_authority(tmp_path / "own"), make_authority(tmp_path / "other")
    stranger = client(authority)
    stranger.load_cert_chain(issue(other, "stranger", ["localhost"]))

    async def main() -> None:
        async with serving(authority) as (wired, port):
            assert counted(wired) == (0, 0, 0)
            await connect(port, client(authority))
            await connect(port, client(authority))
            assert counted(wired) == (2, 2, 0)
            await connect(port, None, b"\0\0\0\x13\0\x12")
            assert counted(wired) == (2, 2, 1)
            await connect(port, ssl.create_default_context(cafile=authority.certificate))
            await connect(port, stranger)
            assert counted(wired) == (2, 2, 3)
            await connect(port, None)
            assert counted(wired) == (2, 2, 3), "a probe that sends nothing has tried nothing"

    run(make_loop, main())


@loops
def test_where_a_log_in_follows_only_a_failed_handshake_is_counted(make_loop: MakeLoop, tmp_path: Path) -> None:
    """Guard S16."""
    authority = make_authority(tmp_path)

    async def main() -> None:
        async with serving(authority, **SECURED) as (wired, port):
            await connect(port, client(authority))
            assert counted(wired) == (0, 0, 0)
            await connect(port, None, b"\0\0\0\x13\0\x12")
            assert counted(wired) == (0, 0, 1)

    run(make_loop, main())


@loops
def test_closed_connections_with_tls_leave_nothing_to_the_collector(make_loop: MakeLoop, tmp_path: Path) -> None:
    """Full garbage collections are switched off; a connection in a cycle would keep the memory of OpenSSL, 16 kB."""
    authority = make_authority(tmp_path)
    trusting = client(authority)
    of_others = {id(one) for one in gc.get_objects() if isinstance(one, ConnectionProtocol)}

    async def main() -> None:
        async with serving(authority) as (_, port):
            gc.collect()
            gc.disable()
            try:
                for _ in range(3):
                    _, writer = await asyncio.open_connection("localhost", port, ssl=trusting)
                    writer.transport.abort()
                for _ in range(30):
                    objects = gc.get_objects()
                    left = sum(isinstance(one, ConnectionProtocol) and id(one) not in of_others for one in objects)
                    del objects
                    if not left:
                        break
                    await asyncio.sleep(0.05)
                assert left == 0
            finally:
                gc.enable()

    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(asyncio.wait_for(main(), 60))
