"""The listeners of a broker and their connections, on asyncio: sockets are bound, accepted, read, written and closed.

Each peer has a `BufferedProtocol` that reads directly into the buffer of the broker's `Connection`. Idle connections
are closed here (`connections.max.idle.ms`); when to stop reading is decided in `broker/requests/client_connection.py`.
"""

from __future__ import annotations

import asyncio
import logging
import re
import resource
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from sys import intern
from time import perf_counter_ns
from typing import Final, NamedTuple, Protocol, cast

from barnabas.broker.requests.client_connection import Connection
from barnabas.broker.requests.dispatch import Dispatcher
from barnabas.broker.throttling.connection_limits import Slot
from barnabas.common.config import BrokerConfig
from barnabas.common.host import Buffer, Clock
from barnabas.common.reports import LimitedReports
from barnabas.protocol.messages.index import API_NAMES
from barnabas.server import acceptor
from barnabas.server.acceptor import Acceptor, Closable, TlsSide
from barnabas.server.admission import Admission
from barnabas.server.busy_polling import BusyPolling
from barnabas.server.turns import SHORT_NS, Turns

log = logging.getLogger("barnabas.connections")

#: The amount of unsent responses above which a connection is not served.
_WRITE_BUFFER_BYTES_MAX = 8 * 1024 * 1024
#: How many sizes of written chunks are kept before those of sent chunks are dropped.
_WRITTEN_MAX: Final = 64

_SWEEPS_PER_IDLE_TIME = 8
#: The length of the accept queue, if the configuration does not set it.
BACKLOG = 1024
#: With fewer free file descriptors than this, a warning is logged.
_DESCRIPTORS_LEFT_MIN = 8
#: The parts of a cause that differ between frames of one peer: numbers, and texts in quotes that the peer chose.
_VARIABLE = re.compile(r"""['"].*['"]|[0-9]+""", re.DOTALL)
_GIVES_WAY: Final = "there are more than max.connections, and this one was idle for longest"


class SocketOptions(NamedTuple):
    """The socket options of a listener. Sizes are in bytes; -1 leaves a buffer to the system."""

    #: `socket.listen.backlog.size`; the system can reduce it.
    backlog: int = BACKLOG
    #: `connections.max.idle.ms`; 0 means no limit.
    idle_ms_max: int = 0
    receive_buffer_bytes: int = -1
    send_buffer_bytes: int = -1

    @classmethod
    def from_config(cls, config: BrokerConfig) -> SocketOptions:
        """Reads Kafka's keys if the configuration sets them. Kafka's defaults do not apply: buffers of 100 kB would
        disable the system's autotuning, which serves large fetches faster, and a queue of 50 connections fills up soon
        while a process is paused, so that clients wait for seconds.
        """

        def value_of(key: str, default: int) -> int:
            return config.int_of(key) if key in config.originals else default

        return cls(
            value_of("socket.listen.backlog.size", BACKLOG),
            config.int_of("connections.max.idle.ms"),
            value_of("socket.receive.buffer.bytes", -1),
            value_of("socket.send.buffer.bytes", -1),
        )


class PeerNames(Protocol):
    """The methods of `tls.node_contexts.NodeContexts` that connections use."""

    def server(self, listener: str) -> ssl.SSLContext:
        """Returns the context for a connection that is accepted now."""

    def principal(self, listener: str, certificate: bytes | None) -> str:
        """Returns the principal of a peer with this certificate. Raises ValueError if it has none."""


class ConnectionProtocol(asyncio.BufferedProtocol):
    """A peer's connection: asyncio's protocol on one side, the core's `Link` on the other."""

    __slots__ = (
        "_connection",
        "_dispatcher",
        "_listener",
        "_on_accepted",
        "_on_read",
        "_open",
        "_peer_names",
        "_send_buffer_bytes",
        "_transport",
        "_turns",
        "_written",
        "idle_sweeps",
        "slot",
        "used_ns",
    )

    def __init__(
        self,
        dispatcher: Dispatcher,
        listener: str,
        open_connections: set[ConnectionProtocol],
        busy_polling: BusyPolling,
        send_buffer_bytes: int,
        on_accepted: Callable[[int], None] | None,
        turns: Turns,
        peer_names: PeerNames | None = None,
    ) -> None:
        self._peer_names = peer_names
        self._on_accepted = on_accepted
        self._send_buffer_bytes = send_buffer_bytes
        self._dispatcher = dispatcher
        self._turns = turns
        self._on_read = busy_polling.on_read
        self._listener = listener
        self._open = open_connections
        self._connection: Connection | None = None
        self._transport: asyncio.Transport | None = None
        #: Sizes of the chunks that were passed to the transport and may be unsent.
        self._written: list[int] = []
        #: Sweeps of the listener since the last byte was received or sent.
        self.idle_sweeps = 0
        #: The time of the last read.
        self.used_ns = perf_counter_ns()
        #: The place of the connection in the counts of limits, if there are limits.
        self.slot: Slot | None = None

    # -- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_WRITE_BUFFER_BYTES_MAX)
        sock: socket.socket | None = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._on_accepted is not None:
                self._on_accepted(sock.fileno())
            if self._send_buffer_bytes >= 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer_bytes)
        peer = transport.get_extra_info("peername")
        host = intern(f"/{peer[0]}") if peer else "/unknown"  # Many connections come from the same host.
        connection = self._dispatcher.connect(self, host, self._listener, f"{host}:{peer[1]}" if peer else host)
        self._connection = connection
        self._open.add(self)
        if self._peer_names is not None:
            self._name_peer(connection, self._peer_names)

    def _name_peer(self, connection: Connection, names: PeerNames) -> None:
        """Sets the principal of the peer from its certificate; closes the connection if the certificate gives none."""
        transport = self._transport
        assert transport is not None
        link: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        certificate = None if link is None else link.getpeercert(binary_form=True)
        try:
            connection.principal = names.principal(self._listener, certificate)
        except ValueError as error:
            connection.abort(str(error))
        self._dispatcher.count_peer(self._listener, is_refused=connection.is_closed)

    def get_buffer(self, sizehint: int) -> memoryview:
        assert self._connection is not None
        return self._connection.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        assert self._connection is not None
        self.idle_sweeps = 0
        turns, begin_ns = self._turns, perf_counter_ns()
        if begin_ns > turns.cpu_sample_ns:
            turns.sample_cpu(begin_ns)
        self._connection.received(nbytes)
        self.used_ns = now_ns = perf_counter_ns()
        elapsed_ns = now_ns - begin_ns
        turns.total_ns += elapsed_ns
        if elapsed_ns < SHORT_NS:
            turns.short += 1
        else:
            turns.note(now_ns, elapsed_ns, self)
        self._on_read(now_ns)

    def turn_name(self) -> tuple[str, str]:
        """Returns the name for `server.turns`: the last request served on this connection, and its sender."""
        assert self._connection is not None
        where = f"from {self._connection.peer}"
        latest = self._dispatcher.latest
        if latest is None or latest[0] is not self._connection:
            return "a request", where
        _, api_key, version, client_id = latest
        return API_NAMES[api_key], f"version {version} of client {client_id!r} {where} ({self._listener})"

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._open.discard(self)
        self._release_slot()
        # Reference cycles would exist until a full collection, one of them with the memory of OpenSSL.
        connection, self._connection = self._connection, None
        self._transport = None
        if connection is not None:
            self._turns.run(connection.closed)

    def _release_slot(self) -> None:
        slot, self.slot = self.slot, None
        if slot is not None:
            slot.release()

    def give_way(self, cause: str) -> None:
        """Closes the connection in favour of others; its slot is free immediately."""
        self._release_slot()
        if self._connection is not None:
            self._connection.abort(cause)

    def pause_writing(self) -> None:
        if self._connection is not None:
            self._connection.pause_writing()

    def resume_writing(self) -> None:
        if self._connection is not None:
            self._connection.resume_writing()

    # -- common.host.Link

    def write(self, chunks: Sequence[Buffer]) -> None:
        transport = self._transport
        if transport is None:
            return  # The connection is lost.
        self.idle_sweeps = 0
        if not transport.get_write_buffer_size():
            self._written.clear()
        elif len(self._written) > _WRITTEN_MAX:
            self._forget_sent()
        if len(chunks) == 1:
            self._written.append(len(chunks[0]))
            transport.write(chunks[0])
        else:
            self._written += map(len, chunks)
            transport.writelines(chunks)

    @property
    def unsent_bytes(self) -> int:
        """Returns the memory of unsent responses; a chunk that was sent in part still uses all of its memory."""
        return self._forget_sent()

    def _forget_sent(self) -> int:
        """Drops the sizes of sent chunks and returns the sum of the others."""
        left = 0 if self._transport is None else self._transport.get_write_buffer_size()
        written = self._written
        kept = 0
        first = len(written)
        while kept < left and first:
            first -= 1
            kept += written[first]
        del written[:first]
        return kept

    def pause_reading(self) -> None:
        transport = self._transport
        if transport is not None and not transport.is_closing():
            transport.pause_reading()

    def resume_reading(self) -> None:
        transport = self._transport
        if transport is not None and not transport.is_closing():
            transport.resume_reading()

    def close(self) -> None:
        """Closes the connection after its written data is sent; a second call drops the data."""
        transport = self._transport
        if transport is None:
            return
        if transport.is_closing():
            transport.abort()
        else:
            transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class _Warnings:
    """Writes the reports about connections: a fault of a peer is a warning, not a fault of this broker."""

    def fatal(self, message: str, error: BaseException | None = None) -> None:
        raise AssertionError("a connection ends no process")

    def report(self, message: str, error: BaseException | None = None) -> None:
        log.warning("%s", message, exc_info=error)

    def warn(self, message: str) -> None:
        log.warning("%s", message)

    def inform(self, message: str) -> None:
        log.info("%s", message)


class ListenerLog:
    """Reports about connections: one line in ten seconds for each peer and cause, with a count."""

    def __init__(self, clock: Clock) -> None:
        self._reports = LimitedReports(_Warnings(), clock)
        self._descriptors_max = resource.getrlimit(resource.RLIMIT_NOFILE)[0]

    def closed_for_cause(self, peer: str, cause: str, error: BaseException | None) -> None:
        # The name of a cause has neither the port nor the parts that differ between frames of the same peer.
        kind = (peer.partition(":")[0], _VARIABLE.sub("#", cause))
        self._reports.report(kind, f"closing the connection of {peer}: {cause}", error)

    def request_failed(self, peer: str, what: str, error: BaseException | None) -> None:
        kind = (peer.partition(":")[0], _VARIABLE.sub("#", what))
        self._reports.report(kind, f"request of {peer}: {what}", error)

    def rejected(self, address: str, count: int) -> None:
        self._reports.inform(
            ("rejected", address),
            f"Rejected connection from /{address}, address already has the configured maximum of {count} connections.",
        )

    def accepted(self, descriptor: int) -> None:
        """Warns when the descriptors run out. The system assigns the lowest free number, so a high one means that
        almost all are in use; libuv then closes new connections silently.
        """
        if descriptor >= self._descriptors_max - _DESCRIPTORS_LEFT_MIN:
            self._reports.report(
                "descriptors",
                f"{descriptor} of {self._descriptors_max} file descriptors are in use (ulimit -n): connections beyond "
                "them are refused",
            )


class ListeningSocket:
    """A listener of the broker: bound, then serving. Until `serve`, connections are refused.

    A periodic sweep closes connections that are idle for connections.max.idle.ms. A connection then needs no timer, and
    serving a request does not read the clock.
    """

    def __init__(
        self,
        name: str,
        accepting: Acceptor,
        open_connections: set[ConnectionProtocol],
        options: SocketOptions,
    ) -> None:
        self.name = name
        self._acceptor = accepting
        self._backlog = options.backlog
        self._open = open_connections
        self._sweep_s = options.idle_ms_max / 1000 / _SWEEPS_PER_IDLE_TIME
        self._sweep_timer: asyncio.TimerHandle | None = None

    @classmethod
    async def bind(
        cls,
        dispatcher: Dispatcher,
        name: str,
        host: str,
        port: int,
        options: SocketOptions,
        on_accepted: Callable[[int], None] | None = None,
        turns: Turns | None = None,
        peer_names: PeerNames | None = None,
        admission: Admission | None = None,
    ) -> ListeningSocket:
        """Binds the address. Raises OSError if it is in use. `on_accepted` is called with the descriptor of each
        connection. With `peer_names` the connections use TLS, with `admission` they are limited.
        """
        loop = asyncio.get_running_loop()
        watch = turns or Turns()
        open_connections: set[ConnectionProtocol] = set()
        busy_polling = BusyPolling(loop)
        sockets = await acceptor.bind(loop, host, port)
        if options.receive_buffer_bytes >= 0:
            # The receive buffer is set before listening: accepted sockets inherit it, and a later change cannot enlarge
            # their TCP window.
            for bound in sockets:
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, options.receive_buffer_bytes)

        def make(slot: Slot | None) -> ConnectionProtocol:
            made = ConnectionProtocol(
                dispatcher,
                name,
                open_connections,
                busy_polling,
                options.send_buffer_bytes,
                on_accepted,
                watch,
                peer_names,
            )
            made.slot = slot
            return made

        accepting = Acceptor(loop, sockets, make)
        if admission is not None:
            accepting.use_limits(admission)

        def refused(peer: str, why: str) -> None:
            dispatcher.count_peer(name, is_refused=True)
            dispatcher.log.closed_for_cause(peer, why, None)

        if peer_names is not None:
            dispatcher.expect_peers(name)
            accepting.use_tls(TlsSide(lambda: peer_names.server(name), refused))
        return cls(name, accepting, open_connections, options)

    async def serve(self) -> None:
        """Accepts connections. Raises OSError if another process was faster."""
        self._acceptor.open(self._backlog)
        if self._sweep_s > 0:
            self._schedule_sweep()

    @property
    def port(self) -> int:
        port: int = self._acceptor.sockets[0].getsockname()[1]
        return port

    @property
    def connection_count(self) -> int:
        return len(self._open)

    def closable(self) -> Iterator[Closable]:
        """Yields the connections that can be closed for others."""
        yield from self._acceptor.silent()
        for protocol in self._open:
            if protocol.slot is not None:
                yield protocol.used_ns, partial(protocol.give_way, _GIVES_WAY)

    def close(self) -> None:
        """Stops listening, and ends the open connections."""
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        self._acceptor.close()
        for protocol in tuple(self._open):
            protocol.close()

    def _schedule_sweep(self) -> None:
        self._sweep_timer = asyncio.get_running_loop().call_later(self._sweep_s, self._sweep)

    def _sweep(self) -> None:
        for protocol in tuple(self._open):
            protocol.idle_sweeps += 1
            if protocol.idle_sweeps > _SWEEPS_PER_IDLE_TIME:
                protocol.close()
        self._schedule_sweep()
