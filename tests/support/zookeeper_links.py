"""Clients of ours joined to a server in memory, by links on virtual time that a test delays, cuts and refuses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tests.support.zookeeper_world import World

from barnabas.common.host import Buffer, LinkEnd, PeerLink
from barnabas.simulation.host import MemoryHost, VirtualTime
from barnabas.zookeeper.client.hosts import parse_connect_string
from barnabas.zookeeper.client.session import SessionState
from barnabas.zookeeper.client.zookeeper_client import ClientSettings, ZooKeeperClient
from barnabas.zookeeper.server.connection import Address, Connection
from barnabas.zookeeper.wire.codes import EventType


class Wire:
    """A connection of a client to the server: each direction delivers in order, after `delay_ms`."""

    def __init__(self, time: VirtualTime, end: LinkEnd, delay_ms: int) -> None:
        self.time = time
        self.end = end
        self.delay_ms = delay_ms
        self.is_connected = False
        #: Whether the connection has ended, by a cut or by one of the sides.
        self.is_over = False
        #: Whether nothing is delivered and nothing ends, as with a firewall that drops packets.
        self.is_silent = False
        self.core: Connection | None = None
        #: Whether the client has closed its side.
        self.is_left = False

    def connect(self, world: World) -> None:
        if self.is_left or self.is_over:
            return
        core = world.server.accept(_ServerSide(self), Address("127.0.0.1", 50_000))
        assert core is not None
        self.core = core
        self.is_connected = True
        self.end.connected()

    def refuse(self) -> None:
        if not self.is_left:
            self.is_over = True
            self.end.closed(ConnectionRefusedError(111, "Connection refused"))

    def cut(self) -> None:
        """Ends both directions now; data in flight is lost."""
        if not self.is_over:
            self.is_over = True
            if self.core is not None:
                self.core.closed()
            if not self.is_left:
                self.end.closed(ConnectionResetError(104, "Connection reset by peer"))

    def to_server(self, data: bytes) -> None:
        core = self.core
        if self.is_over or self.is_silent or core is None:
            return
        for begin in range(0, len(data), 100_000):
            piece = data[begin : begin + 100_000]
            core.get_buffer()[: len(piece)] = piece
            core.received(len(piece))

    def to_client(self, data: bytes) -> None:
        while data and not (self.is_over or self.is_left or self.is_silent):
            buffer = self.end.get_buffer()
            piece, data = data[: len(buffer)], data[len(buffer) :]
            buffer[: len(piece)] = piece
            self.end.received(len(piece))

    def end_by_server(self) -> None:
        """Delivers the end of the connection to the client, after the data that was sent before."""
        if not self.is_over and not self.is_silent:
            self.is_over = True
            if not self.is_left:
                self.end.closed(None)

    def end_by_client(self) -> None:
        if not self.is_over and not self.is_silent:
            self.is_over = True
            if self.core is not None:
                self.core.closed()

    def later(self, callback: Callable[[], None]) -> None:
        self.time.call_later(self.delay_ms, callback)


class _Side:
    def __init__(self, wire: Wire) -> None:
        self.wire = wire

    @property
    def unsent_bytes(self) -> int:
        return 0

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def abort(self) -> None:
        self.close()

    def close(self) -> None:
        raise NotImplementedError


class _ServerSide(_Side):
    def write(self, chunks: Sequence[Buffer]) -> None:
        data = b"".join(chunks)
        self.wire.later(lambda: self.wire.to_client(data))

    def close(self) -> None:
        self.wire.later(self.wire.end_by_server)


class _ClientSide(_Side):
    def write(self, chunks: Sequence[Buffer]) -> None:
        assert self.wire.is_connected
        data = b"".join(chunks)
        if not self.wire.is_left:
            self.wire.later(lambda: self.wire.to_server(data))

    def condition(self) -> None:
        """Returns None: there is no network."""

    def close(self) -> None:
        if not self.wire.is_left:
            self.wire.is_left = True
            self.wire.later(self.wire.end_by_client)


class JoinedLinks:
    """The `Links` of a client's host: every dial leads to the world's server."""

    def __init__(self, world: World, delay_ms: int = 1) -> None:
        self.world = world
        self.delay_ms = delay_ms
        self.wires: list[Wire] = []
        #: The addresses that were dialled, with the time.
        self.dialled: list[tuple[int, str]] = []
        #: The names of the TLS contexts of the dials.
        self.tls: list[str | None] = []
        self.refuses = False
        #: Dials that are never answered.
        self.is_silent = False

    def dial(self, host: str, port: int, end: LinkEnd, tls: str | None = None) -> PeerLink:
        wire = Wire(self.world.host.time, end, self.delay_ms)
        wire.is_silent = self.is_silent
        self.wires.append(wire)
        self.tls.append(tls)
        self.dialled.append((self.world.host.time.now_ms(), f"{host}:{port}"))
        if not self.is_silent:
            wire.later(wire.refuse if self.refuses else lambda: wire.connect(self.world))
        return _ClientSide(wire)

    @property
    def wire(self) -> Wire:
        """Returns the last connection."""
        return self.wires[-1]


class RecordingListener:
    """A listener that records its notifications as lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def session_opened(self, session_id: int) -> None:
        self.lines.append("opened")

    def disconnected(self) -> None:
        self.lines.append("disconnected")

    def reconnected(self) -> None:
        self.lines.append("reconnected")

    def session_expired(self) -> None:
        self.lines.append("expired")

    def auth_failed(self) -> None:
        self.lines.append("auth failed")

    def changed(self, path: str, event_type: EventType) -> None:
        self.lines.append(f"{path} {event_type.name}")

    def take(self) -> list[str]:
        lines, self.lines = self.lines, []
        return lines


class JoinedClient:
    """A client of the world's server, with its own links, and the answers that it got."""

    def __init__(
        self,
        world: World,
        servers: str = "one:2181",
        *,
        seed: int = 0,
        listener: RecordingListener | None = None,
        settings: dict[str, Any] | None = None,
    ) -> None:
        self.world = world
        host = MemoryHost(seed, time=world.host.time)
        self.links = JoinedLinks(world)
        host.links = self.links  # type: ignore[assignment]
        self.faults = host.faults
        self.listener = listener or RecordingListener()
        wanted = {"session_timeout_ms": 6_000} | (settings or {})
        self.client = ZooKeeperClient(host, ClientSettings(parse_connect_string(servers), **wanted), self.listener)

    def run(self, duration_ms: int = 20) -> None:
        self.world.run_for(duration_ms)

    def state(self) -> SessionState:
        return self.client.state

    def opened(self) -> JoinedClient:
        """Opens the session."""
        self.client.open()
        self.run()
        assert self.listener.take() == ["opened"]
        return self

    def ask(self, method: Callable[..., None], *arguments: Any, **options: Any) -> Any:
        """Makes a request and returns its reply."""
        found: list[Any] = []
        method(*arguments, found.append, **options)
        assert found == [], "a reply comes after its call has returned"
        self.run()
        assert len(found) == 1, found
        return found[0]
