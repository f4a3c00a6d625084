"""Limits of connections on real sockets: who is refused, who waits, who gives way, and that no slot is left over."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import cast

import pytest
import uvloop
from tests.support.wired import PROPERTIES, WiredBroker

from barnabas.broker.throttling.connection_limits import ConnectionLimits, Limits, Slot
from barnabas.common.errors import ConfigError
from barnabas.embedded.authority import issue, make_authority
from barnabas.server import acceptor
from barnabas.server.acceptor import Acceptor, TlsSide
from barnabas.server.admission import Admission
from barnabas.server.limited_listeners import LimitedListeners
from barnabas.server.listener import ListeningSocket, SocketOptions

MakeLoop = Callable[[], asyncio.AbstractEventLoop]
LOOPS: list[MakeLoop] = [asyncio.new_event_loop, uvloop.new_event_loop]
loops = pytest.mark.parametrize("make_loop", LOOPS, ids=["asyncio", "uvloop"])
NONE = Limits(2**31 - 1, 2**31 - 1, 2**31 - 1, {}, {})
#: An ApiVersions request of version 0.
REQUEST = bytes.fromhex("0000000a00120000000000010000")


def now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class Echo(asyncio.Protocol):
    def __init__(self, slot: Slot | None) -> None:
        assert slot is not None
        self._slot = slot

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._slot.release()


class Served:
    def __init__(self, limits: ConnectionLimits, accepting: Acceptor, admission: Admission) -> None:
        self.limits, self.accepting, self.admission = limits, accepting, admission
        self.port: int = accepting.sockets[0].getsockname()[1]
        self.rejected: list[tuple[str, int]] = []
        self.trusted = Path()
        self._links: list[asyncio.StreamWriter] = []

    async def connect(self, context: ssl.SSLContext | None = None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        link = await asyncio.open_connection("127.0.0.1", self.port, ssl=context)
        self._links.append(link[1])
        return link

    async def is_served(self, link: tuple[asyncio.StreamReader, asyncio.StreamWriter], within_s: float = 5) -> bool:
        """Returns whether the connection is served. False: it is not yet, or was closed."""
        link[1].write(b"x")
        try:
            return await asyncio.wait_for(link[0].read(1), within_s) == b"x"
        except (TimeoutError, ConnectionError):
            return False

    async def closed(self, count: int) -> None:
        """Waits until so many connections have a slot."""
        for _ in range(1_000):
            if self.limits.total == count:
                return
            await asyncio.sleep(0.005)
        raise AssertionError(f"{self.limits.total} connections are counted, not {count}")

    def end(self) -> None:
        for each in self._links:
            each.transport.abort()


@contextlib.asynccontextmanager
async def serving(limit: Limits, folder: Path | None = None) -> AsyncIterator[Served]:
    loop = asyncio.get_running_loop()
    limits = ConnectionLimits(["L"], None, (3, 200), limit)
    accepting = Acceptor(loop, await acceptor.bind(loop, "127.0.0.1", 0), Echo)
    rejected: list[tuple[str, int]] = []
    admission = Admission(limits, "L", now_ms, lambda address, count: rejected.append((address, count)))
    accepting.use_limits(admission)
    served = Served(limits, accepting, admission)
    served.rejected = rejected
    if folder is not None:
        authority = make_authority(folder)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(issue(authority, "server", ["localhost", "127.0.0.1"]))
        accepting.use_tls(TlsSide(lambda: context, lambda peer, why: None))
        served.trusted = authority.certificate
    accepting.open(100)
    try:
        yield served
    finally:
        served.end()
        accepting.close()
        await asyncio.sleep(0.05)
        assert limits.total == 0
        assert admission.held == 0


def run(make_loop: MakeLoop, main: Coroutine[None, None, None]) -> None:
    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(asyncio.wait_for(main, 60))


@loops
def test_an_address_at_its_limit_is_refused_until_one_of_its_connections_closes(make_loop: MakeLoop) -> None:
    async def main() -> None:
        async with serving(NONE._replace(per_address=2)) as served:
            links = [await served.connect() for _ in range(2)]
            assert [await served.is_served(each) for each in links] == [True, True]
            assert not await served.is_served(await served.connect())
            assert served.rejected == [("127.0.0.1", 2)]
            links[0][1].close()
            await served.closed(1)
            assert await served.is_served(await served.connect())

    run(make_loop, main())


@loops
def test_a_full_listener_lets_connections_wait_and_serves_them_in_order(make_loop: MakeLoop) -> None:
    async def main() -> None:
        async with serving(NONE._replace(by_listener={"L": (2, 2**31 - 1)})) as served:
            links = [await served.connect() for _ in range(5)]
            assert [await served.is_served(each, 0.2) for each in links] == [True, True, False, False, False]
            assert served.admission.held == 1
            links[0][1].close()
            assert await links[2][0].read(1) == b"x"
            assert served.limits.total == 2
            served.limits.change(NONE)
            assert [await each[0].read(1) for each in links[3:]] == [b"x", b"x"]
            assert served.limits.total == 4

    run(make_loop, main())


@loops
def test_a_listener_above_its_rate_rests_and_serves_all(make_loop: MakeLoop) -> None:
    async def main() -> None:
        async with serving(NONE._replace(by_listener={"L": (2**31 - 1, 20)})) as served:
            begin = time.monotonic()
            links = [await served.connect() for _ in range(20)]
            assert all([await served.is_served(each) for each in links])
            # The two windows of 200 ms admit 8 connections; 12 more take at least 600 ms, less the current window.
            assert time.monotonic() - begin > 0.35
            (listener,) = served.limits.listeners()
            assert listener.blocked_ms >= 300
            assert 0 < (listener.throttle_times.average(now_ms()) or 0) <= 200

    run(make_loop, main())


@loops
def test_an_address_above_its_quota_is_held_then_closed(make_loop: MakeLoop) -> None:
    async def main() -> None:
        async with serving(NONE) as served:
            served.limits.follow({(("ip", "127.0.0.1"),): {"connection_creation_rate": 5.0}})
            links = [await served.connect() for _ in range(3)]
            results = [await served.is_served(each) for each in links[:2]]
            begin = time.monotonic()
            assert results == [True, True]
            assert not await served.is_served(links[2])
            assert 0.01 < time.monotonic() - begin < 1
            assert served.limits.total == 2
            await asyncio.sleep(0.6)
            assert await served.is_served(await served.connect())
            assert served.admission.held == 0

    run(make_loop, main())


@loops
def test_held_connections_are_bounded(make_loop: MakeLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.server.admission._HELD_MAX", 3)

    async def main() -> None:
        async with serving(NONE) as served:
            served.limits.follow({(("ip", None),): {"connection_creation_rate": 0.0}})
            links = [await served.connect() for _ in range(10)]
            assert await asyncio.wait_for(links[0][0].read(1), 0.15) == b""
            assert served.admission.held <= 3

    run(make_loop, main())


@loops
def test_connections_that_end_in_any_phase_of_tls_leave_no_slot(
    make_loop: MakeLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guard S17."""
    monkeypatch.setattr(acceptor, "_HANDSHAKE_S", 0.3)

    async def main() -> None:
        async with serving(NONE._replace(connections=40), tmp_path) as served:
            trusting = ssl.create_default_context(cafile=served.trusted)
            assert await served.is_served(await served.connect(trusting))
            for _ in range(5):
                (await served.connect())[1].close()  # without a byte
                (await served.connect())[1].transport.abort()
                (await served.connect())[1].write(b"GET / HTTP/1.1\r\n\r\n")
                (await served.connect())[1].write(b"\x16\x03\x01\x00\x02zz")
                await served.connect()  # silent until its time is over
                (await served.connect())[1].write(b"\x16\x03\x01")  # halfway until then
                with pytest.raises(ssl.SSLError):
                    await served.connect(ssl.create_default_context())
            await served.closed(1)
            begun = [await served.connect() for _ in range(3)]
            for _, writer in begun:
                writer.write(b"\x16\x03\x01")
            await served.connect()
            await served.closed(5)
            # The end of the test closes the listener while these are under way.

    run(make_loop, main())


@loops
def test_many_plain_connections_that_end_immediately_leave_no_slot(make_loop: MakeLoop) -> None:
    """Guard S17."""

    async def main() -> None:
        async with serving(NONE._replace(connections=20)) as served:
            for number in range(300):
                link = socket.create_connection(("127.0.0.1", served.port))
                if number % 3 == 0:
                    link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset
                link.close()
                if number % 10 == 0:
                    await asyncio.sleep(0.002)
            assert await served.is_served(await served.connect())
            await served.closed(1)

    run(make_loop, main())


@contextlib.asynccontextmanager
async def brokers_listeners(
    *, external: str = "PLAINTEXT", idle_ms_max: int = 0, **properties: str
) -> AsyncIterator[tuple[WiredBroker, dict[str, ListeningSocket]]]:
    """Two listeners of a broker in memory on sockets, as `server/main.py` opens them; `external` is the security
    protocol of one of them. Virtual time follows the real one.
    """

    async def pump() -> None:
        while True:
            wired.host.time.run_for(5)
            await asyncio.sleep(0.005)

    given = {name.replace("_", "."): value for name, value in properties.items()}
    given["listeners"] = PROPERTIES["listeners"] + ",EXTERNAL://localhost:9094"
    given["listener.security.protocol.map"] = PROPERTIES["listener.security.protocol.map"] + f",EXTERNAL:{external}"
    wired = WiredBroker(None, **given)
    loop = asyncio.get_running_loop()
    limited = LimitedListeners(loop, wired.broker.connection_limits, now_ms, lambda address, count: None)
    await limited.resolve()
    wired.broker.config.subscribe(lambda _: limited.resolve_soon())
    listening = {
        name: await ListeningSocket.bind(
            wired.broker.dispatcher(name),
            name,
            "127.0.0.1",
            0,
            SocketOptions(idle_ms_max=idle_ms_max),
            admission=limited.admission(name),
        )
        for name in ("PLAINTEXT", "EXTERNAL")
    }
    limited.use(list(listening.values()))
    for each in listening.values():
        await each.serve()
    pumping = loop.create_task(pump())
    try:
        yield wired, listening
    finally:
        pumping.cancel()
        for each in listening.values():
            each.close()
        await asyncio.sleep(0.05)
        assert wired.broker.connection_limits["EXTERNAL"].total == 0


async def served_on(listening: ListeningSocket) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Returns a connection that has been served."""
    link = await asyncio.open_connection("127.0.0.1", listening.port)
    await ask(link)
    return link


async def ask(link: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
    link[1].write(REQUEST)
    size = int.from_bytes(await asyncio.wait_for(link[0].readexactly(4), 10), "big")
    await link[0].readexactly(size)


@loops
def test_inter_broker_connections_displace_those_that_were_not_used_for_the_longest_time(make_loop: MakeLoop) -> None:
    async def main() -> None:
        async with brokers_listeners(max_connections="4") as (wired, listening):
            clients = [await served_on(listening["EXTERNAL"]) for _ in range(4)]
            await ask(clients[0])
            peers = [await served_on(listening["PLAINTEXT"]) for _ in range(2)]
            assert [await asyncio.wait_for(clients[each][0].read(1), 5) for each in (1, 2)] == [b"", b""]
            for link in (clients[0], clients[3], *peers):
                await ask(link)
            assert wired.broker.connection_limits["EXTERNAL"].total == 4
            assert len(wired.closes.causes) == 2
            assert "idle for longest" in wired.closes.causes[0]

    run(make_loop, main())


@loops
def test_a_lower_limit_closes_connections(make_loop: MakeLoop) -> None:
    async def main() -> None:
        async with brokers_listeners() as (wired, listening):
            peers = [await served_on(listening["PLAINTEXT"]) for _ in range(2)]
            clients = [await served_on(listening["EXTERNAL"]) for _ in range(100)]
            assert wired.broker.config.update_dynamic({"max.connections": "5"}, {}) == []
            assert await asyncio.wait_for(clients[96][0].read(1), 5) == b""
            for link in peers + clients[97:]:
                await ask(link)
            assert wired.broker.connection_limits["EXTERNAL"].total == 5

    run(make_loop, main())


@loops
def test_limits_of_host_names_hold_for_their_addresses(make_loop: MakeLoop) -> None:
    async def main() -> None:
        async with brokers_listeners(max_connections_per_ip_overrides="localhost:1") as (wired, listening):
            first = await served_on(listening["EXTERNAL"])
            refused = await asyncio.open_connection("127.0.0.1", listening["EXTERNAL"].port)
            assert await asyncio.wait_for(refused[0].read(1), 5) == b""
            wired.broker.config.update_dynamic({"max.connections.per.ip.overrides": "no.such.host.invalid:1"}, {})
            second = await served_on(listening["EXTERNAL"])
            for link in (first, second):
                await ask(link)

    run(make_loop, main())


def test_a_host_name_without_an_address_ends_the_start() -> None:
    async def main() -> None:
        with pytest.raises(
            ConfigError, match=r"max.connections.per.ip.overrides names no.such.host.invalid, which has no"
        ):
            async with brokers_listeners(max_connections_per_ip_overrides="no.such.host.invalid:1"):
                raise AssertionError("it is not served")

    run(asyncio.new_event_loop, main())


#: SaslHandshake version 1 for PLAIN, and SaslAuthenticate version 0 with a wrong password.
HANDSHAKE = bytes.fromhex("00000011001100010000000100000005") + b"PLAIN"
WRONG = b"\0alice\0wrong"
AUTHENTICATE = (
    (14 + len(WRONG)).to_bytes(4, "big") + bytes.fromhex("00240000000000020000") + len(WRONG).to_bytes(4, "big") + WRONG
)


@loops
def test_connections_that_end_before_and_after_their_log_in_leave_no_slot(make_loop: MakeLoop) -> None:
    """Guard S17."""
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret";'

    async def main() -> None:
        async with brokers_listeners(
            external="SASL_PLAINTEXT",
            sasl_enabled_mechanisms="PLAIN",
            listener_name_external_plain_sasl_jaas_config=jaas,
            idle_ms_max=400,
        ) as (wired, listening):
            limits = wired.broker.connection_limits["EXTERNAL"]
            links = []
            for data in (
                b"",
                REQUEST,
                HANDSHAKE,
                HANDSHAKE + AUTHENTICATE,
                b"GET / HTTP/1.1\r\n",
                bytes(4),
                b"\x7f" * 9,
            ):
                for ends in (True, False):
                    link = await asyncio.open_connection("127.0.0.1", listening["EXTERNAL"].port)
                    link[1].write(data)
                    links.append(link)
                    if ends:
                        await asyncio.sleep(0.01)
                        link[1].transport.abort()
            assert limits.total > 3
            # The others are closed for what they sent, or because they are idle.
            for _ in range(300):
                if not limits.total:
                    break
                await asyncio.sleep(0.01)
            assert limits.total == 0
            assert limits.counts() == {}
            answered = await links[7][0].read(1_000)
            assert b"Authentication failed: Invalid username or password" in answered

    run(make_loop, main())
