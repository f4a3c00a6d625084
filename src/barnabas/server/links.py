"""Outgoing connections of this node: asyncio's side of `common.host.Links`.

The system probes a silent peer, and gives up unacknowledged data soon: otherwise, after a network partition has healed,
the next retransmission would come only after a delay as long as the partition. The peer's system answers the probes,
not its process: a paused or busy process keeps its connections.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import struct
from collections.abc import Sequence
from typing import Final, Protocol, cast

from barnabas.common.host import Buffer, LinkCondition, LinkEnd, PeerLink
from barnabas.common.reports import LineLimit
from barnabas.server.acceptor import cause_of
from barnabas.server.clock import SystemClock
from barnabas.server.turns import Turns

log = logging.getLogger("barnabas.connections")

#: How long the peer's system can leave data or a probe without an acknowledgement.
_SILENCE_MS: Final = 3_000
_PROBE_S: Final = 1
#: The time limit of a handshake. It is shorter than the timeouts of the connections' owners, so that they learn the
#: cause.
_HANDSHAKE_S: Final = 8.0
_SHUTDOWN_S: Final = 1.0
#: tcpi_unacked, tcpi_rtt and tcpi_total_retrans in Linux's `struct tcp_info`.
_TCP_INFO: Final = struct.Struct("=24xI40xI28xI")


class ClientContexts(Protocol):
    """The TLS contexts for listeners of other nodes (`tls.node_contexts`)."""

    def client(self, listener: str) -> ssl.SSLContext:
        """Returns the context for a connection that is dialled now."""


class _Failures:
    """Logs failed handshakes: one line in ten seconds for each peer and cause."""

    def __init__(self) -> None:
        self._limit = LineLimit(SystemClock().now_ms)

    def report(self, peer: str, error: ssl.SSLError) -> None:
        cause = cause_of(error)
        suffix = self._limit.suffix((peer, cause))
        if suffix is not None:
            log.warning("TLS with the node at %s failed: %s%s", peer, cause, suffix)


def notice_silence(sock: socket.socket) -> None:
    """Lets the system end this connection when the peer's system has been silent for `_SILENCE_MS`. Options that this
    system lacks are skipped.
    """
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", _PROBE_S),
        ("TCP_KEEPINTVL", _PROBE_S),
        ("TCP_KEEPCNT", _SILENCE_MS // 1000 // _PROBE_S),
        ("TCP_USER_TIMEOUT", _SILENCE_MS),
    ):
        option = getattr(socket, name, None)
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


class DialledLink(asyncio.BufferedProtocol):
    """An outgoing connection, from the dial on. It reads directly into its end's buffer."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        host: str,
        port: int,
        end: LinkEnd,
        turns: Turns,
        context: ssl.SSLContext | None = None,
        failures: _Failures | None = None,
    ) -> None:
        self._end = end
        self._context = context
        self._failures = failures
        self._turns = turns
        self._peer = f"{host}:{port}"
        self._transport: asyncio.Transport | None = None
        #: Whether this side closed the link, or it ended; its owner is not called any more.
        self._is_over = False
        self._dialling: asyncio.Task[None] | None = loop.create_task(self._dial(loop, host, port))

    async def _dial(self, loop: asyncio.AbstractEventLoop, host: str, port: int) -> None:
        """Tries the host's addresses one by one. The peer is known to be down only if all of them refuse."""
        failure: OSError | None = None
        try:
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            found, failure = [], error
        for address in dict.fromkeys(str(sockaddr[0]) for _, _, _, _, sockaddr in found):
            try:
                if self._context is None:
                    await loop.create_connection(lambda: self, address, port)
                else:
                    # TLS checks the configured host name, not the address that it resolves to.
                    await loop.create_connection(
                        lambda: self,
                        address,
                        port,
                        ssl=self._context,
                        server_hostname=host,
                        ssl_handshake_timeout=_HANDSHAKE_S,
                        ssl_shutdown_timeout=_SHUTDOWN_S,
                    )
                return
            except OSError as error:
                if failure is None or isinstance(failure, ConnectionRefusedError):
                    # The frames of the traceback refer to this link, and would keep it in memory.
                    failure = error.with_traceback(None)
        self._ended(failure or OSError(f"{host} has no address"))

    def _ended(self, error: OSError | None) -> None:
        if isinstance(error, ssl.SSLError) and self._failures is not None:
            self._failures.report(self._peer, error)
        if not self._is_over:
            self._is_over = True
            self._turns.run(lambda: self._end.closed(error))

    # -- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        sock: socket.socket | None = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            notice_silence(sock)
        if self._is_over:
            transport.close()
        else:
            self._turns.run(self._end.connected)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._end.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        if not self._is_over:
            begin_ns = self._turns.begin()
            self._end.received(nbytes)
            self._turns.end(begin_ns, self)

    def turn_name(self) -> tuple[str, str]:
        """Returns the name for `server.turns`."""
        return "a response from another node", f"at {self._peer}"

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended(exc if isinstance(exc, OSError) else None)

    # -- common.host.Link

    def write(self, chunks: Sequence[Buffer]) -> None:
        transport = self._transport
        assert transport is not None, "written to before it was connected"
        if self._is_over:
            return
        if len(chunks) == 1:
            transport.write(chunks[0])
        else:
            transport.writelines(chunks)

    @property
    def unsent_bytes(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def condition(self) -> LinkCondition | None:
        """Returns what TCP_INFO says (Linux)."""
        sock: socket.socket | None = None if self._transport is None else self._transport.get_extra_info("socket")
        if sock is None or not hasattr(socket, "TCP_INFO"):
            return None
        try:
            found = _TCP_INFO.unpack(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size))
        except (OSError, struct.error):
            return None
        unacknowledged, round_trip_us, retransmits = found
        return LinkCondition(round_trip_us, retransmits, unacknowledged > 0)

    def pause_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def close(self) -> None:
        self._is_over = True
        if self._transport is None:
            self._stop_dialling()
        else:
            self._transport.close()

    def abort(self) -> None:
        self._is_over = True
        if self._transport is None:
            self._stop_dialling()
        else:
            self._transport.abort()

    def _stop_dialling(self) -> None:
        # The error of a cancelled task refers to its frames, and would keep them in memory.
        dialling, self._dialling = self._dialling, None
        if dialling is not None:
            dialling.cancel()


class LoopLinks:
    """The implementation of `common.host.Links` on the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, turns: Turns) -> None:
        self._loop = loop
        self._turns = turns
        self._contexts: ClientContexts | None = None
        self._own_contexts: dict[str, ClientContexts] = {}
        self._failures = _Failures()

    def use_tls(self, contexts: ClientContexts, name: str | None = None) -> None:
        """Sets the contexts for links with TLS; with a name, only for the links that give it."""
        if name is None:
            self._contexts = contexts
        else:
            self._own_contexts[name] = contexts

    def dial(self, host: str, port: int, end: LinkEnd, tls: str | None = None) -> PeerLink:
        if tls is None:
            return DialledLink(self._loop, host, port, end, self._turns)
        contexts = self._own_contexts.get(tls, self._contexts)
        assert contexts is not None, "the node has no TLS contexts"
        return DialledLink(self._loop, host, port, end, self._turns, contexts.client(tls), self._failures)
