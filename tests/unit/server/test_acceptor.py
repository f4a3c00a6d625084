"""The accept loop under TLS: what waits, what is refused, and that no connection is left over."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import cast

import pytest
import uvloop

from barnabas.embedded.authority import issue, make_authority
from barnabas.server import acceptor
from barnabas.server.acceptor import Acceptor, TlsSide
from barnabas.tls.alerts import ServerContext

MakeLoop = Callable[[], asyncio.AbstractEventLoop]
LOOPS: list[MakeLoop] = [asyncio.new_event_loop, uvloop.new_event_loop]
loops = pytest.mark.parametrize("make_loop", LOOPS, ids=["asyncio", "uvloop"])


class Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)


class Served:
    def __init__(self, accepting: Acceptor, trusted: Path) -> None:
        self.accepting = accepting
        self.port: int = accepting.sockets[0].getsockname()[1]
        self.client = ssl.create_default_context(cafile=trusted)
        self.failures: list[str] = []

    async def echo(self, context: ssl.SSLContext | None, data: bytes = b"hello") -> bytes:
        reader, writer = await asyncio.open_connection("localhost", self.port, ssl=context)
        try:
            writer.write(data)
            return await reader.read(100)
        finally:
            writer.close()

    def distrust(self) -> None:
        """Connects as a client that does not know the authority; the system's socket sends the alert that says so."""
        with socket.create_connection(("localhost", self.port), 10) as link:
            ssl.create_default_context().wrap_socket(link, server_hostname="localhost")

    async def settled(self) -> None:
        """Waits until no connection is between its accept and the end of its handshake."""
        for _ in range(500):
            if not self.accepting.half_open:
                return
            await asyncio.sleep(0.01)
        raise AssertionError(f"{self.accepting.half_open} connections are half-open")


@contextlib.asynccontextmanager
async def serving(folder: Path, *, tls: bool = True, client_auth: bool = False) -> AsyncIterator[Served]:
    authority = make_authority(folder)
    file = issue(authority, "server", ["localhost", "127.0.0.1"])
    context = ServerContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    if client_auth:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(authority.certificate)
    loop = asyncio.get_running_loop()
    accepting = Acceptor(loop, await acceptor.bind(loop, "127.0.0.1", 0), lambda slot: Echo())
    served = Served(accepting, authority.certificate)
    if tls:
        accepting.use_tls(TlsSide(lambda: context, lambda peer, why: served.failures.append(why)))
    accepting.open(100)
    try:
        yield served
    finally:
        accepting.close()


def run(
    make_loop: MakeLoop,
    folder: Path,
    what: Callable[[Served], object],
    tls: bool = True,
    client_auth: bool = False,
) -> None:
    async def main() -> None:
        async with serving(folder, tls=tls, client_auth=client_auth) as served:
            result = what(served)
            assert asyncio.iscoroutine(result)
            await result

    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(asyncio.wait_for(main(), 60))


@loops
def test_connections_with_tls_and_without_are_served(make_loop: MakeLoop, tmp_path: Path) -> None:
    async def over_tls(served: Served) -> None:
        assert await served.echo(served.client) == b"hello"
        await served.settled()

    async def plain(served: Served) -> None:
        assert await served.echo(None) == b"hello"

    run(make_loop, tmp_path, over_tls)
    run(make_loop, tmp_path, plain, tls=False)


@loops
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_client_whose_certificate_is_refused_gets_an_alert(
    make_loop: MakeLoop, version: ssl.TLSVersion, tmp_path: Path
) -> None:
    """Java's brokers send it, too; without the alert a client sees only a connection that was closed."""
    stranger = issue(make_authority(tmp_path / "elsewhere"), "stranger", ["localhost"])

    def refused(served: Served, certificate: Path | None) -> str:
        context = served.client
        context.maximum_version = context.minimum_version = version
        if certificate is not None:
            context.load_cert_chain(certificate)
        with socket.create_connection(("localhost", served.port), 10) as link:
            try:
                with context.wrap_socket(link, server_hostname="localhost") as over_tls:
                    over_tls.recv(1)
            except ssl.SSLError as error:
                return str(error.reason)
        return "closed without an alert"

    async def both(served: Served) -> None:
        reason = await asyncio.to_thread(refused, served, None)
        assert reason in ("TLSV13_ALERT_CERTIFICATE_REQUIRED", "SSLV3_ALERT_HANDSHAKE_FAILURE")
        # The other authority has the same name, so it is its signature that is wrong.
        assert await asyncio.to_thread(refused, served, stranger) == "TLSV1_ALERT_DECRYPT_ERROR"
        await served.settled()

    run(make_loop, tmp_path / "here", both, client_auth=True)


@loops
def test_a_storm_of_clients_is_served_while_a_former_one_is(make_loop: MakeLoop, tmp_path: Path) -> None:
    async def storm(served: Served) -> None:
        answers = await asyncio.gather(*(served.echo(served.client) for _ in range(100)))
        assert answers == [b"hello"] * 100
        await served.settled()

    run(make_loop, tmp_path, storm)


@pytest.mark.full
@pytest.mark.parametrize("make_loop", LOOPS)
def test_what_is_no_handshake_is_refused_with_its_cause(make_loop: MakeLoop, tmp_path: Path) -> None:
    """Guard S16."""

    async def refused(served: Served) -> None:
        assert await served.echo(None, b"\x00\x00\x00\x13") == b""
        assert await served.echo(None, b"\x16\x03\x01\x00\x02zz") != b"hello"
        _, writer = await asyncio.open_connection("localhost", served.port)
        writer.close()  # A probe of a load balancer sends no byte: no line in the log.
        await served.settled()
        assert ["does not speak TLS" in each for each in served.failures] == [True, False]
        with pytest.raises(ssl.SSLError):
            await asyncio.to_thread(served.distrust)
        await served.settled()
        assert "the peer refuses this node's certificate" in served.failures[-1]
        assert await served.echo(served.client) == b"hello"

    run(make_loop, tmp_path, refused)


@loops
def test_a_silent_connection_ends_after_the_time_of_a_handshake(
    make_loop: MakeLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acceptor, "_HANDSHAKE_S", 0.2)

    async def silent(served: Served) -> None:
        reader, writer = await asyncio.open_connection("localhost", served.port)
        halfway_reader, halfway = await asyncio.open_connection("localhost", served.port)
        halfway.write(b"\x16\x03\x01")
        assert await reader.read(1) == b""
        with contextlib.suppress(ConnectionError):
            assert await halfway_reader.read(1) == b""
        await served.settled()
        assert any("no TLS handshake within" in each for each in served.failures)
        writer.close()
        halfway.close()

    run(make_loop, tmp_path, silent)


@loops
def test_half_open_connections_are_bounded_and_the_oldest_gives_way(
    make_loop: MakeLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guard S17."""
    monkeypatch.setattr(acceptor, "_HALF_OPEN_MAX", 5)

    async def crowd(served: Served) -> None:
        links = [await asyncio.open_connection("localhost", served.port) for _ in range(12)]
        await asyncio.sleep(0.2)
        assert served.accepting.half_open == 5
        assert await served.echo(served.client) == b"hello"
        assert await links[0][0].read(1) == b""
        for _, writer in links:
            writer.close()
        await served.settled()

    run(make_loop, tmp_path, crowd)


@loops
def test_a_shortage_of_descriptors_closes_the_connection_and_passes(make_loop: MakeLoop, tmp_path: Path) -> None:
    async def short(served: Served) -> None:
        links: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        used = max(map(int, os.listdir("/proc/self/fd")))
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 12, hard))
        try:
            with contextlib.suppress(OSError):
                for _ in range(40):
                    links.append(await asyncio.open_connection("localhost", served.port))
                    await asyncio.sleep(0.01)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for _, writer in links:
            writer.close()
        await asyncio.sleep(0.3)
        assert await served.echo(None) == b"hello"

    run(make_loop, tmp_path, short, tls=False)
