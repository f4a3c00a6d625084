"""The accept loop of one listener: takes connections from its sockets, and hands them to asyncio.

A connection with TLS costs nothing until the client's first byte arrives. Then it waits for its handshake; only a few
handshakes begin in one turn of the loop, because each takes up to a millisecond of CPU: after a restart, a thousand
returning clients must not delay those that are already connected. A handshake uses the certificates that are current
when it begins.

    accepted -> waits for the first byte -> waits for its turn -> handshake -> served
                 `_HANDSHAKE_S` for all of it, `_HALF_OPEN_MAX` such connections

With limits of connections (`admission.py`) each connection has a slot from its accept until it closes.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
import ssl
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.common.reports import LineLimit
from barnabas.server import memory
from barnabas.server.clock import SystemClock
from barnabas.tls.alerts import HANDSHAKING

if TYPE_CHECKING:
    from barnabas.broker.throttling.connection_limits import Slot
    from barnabas.server.admission import Admission

log = logging.getLogger("barnabas.connections")

#: The maximum number of connections accepted in one turn of the loop.
_ACCEPTS_PER_TURN: Final = 64
#: The maximum number of handshakes begun in one turn.
_HANDSHAKES_PER_TURN: Final = 4
#: The maximum number of connections before the end of their handshake; a further one replaces the one that has waited
#: longest.
_HALF_OPEN_MAX: Final = 4096
#: The time limits from the accept to the end of the handshake, and for a clean end of TLS.
_HANDSHAKE_S: Final = 10.0
_SHUTDOWN_S: Final = 5.0
#: The pause after the system could not accept a connection because memory or descriptors ran out.
_PAUSE_S: Final = 0.1
#: The first byte of a TLS handshake.
_TLS_HANDSHAKE: Final = b"\x16"
_DRAINED_BYTES: Final = 65536
_SHORTAGES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

#: Makes the protocol of a connection, which releases the slot when the connection is lost.
MakeProtocol = Callable[["Slot | None"], asyncio.BaseProtocol]
#: A connection that can be closed: the time of its last use in nanoseconds, and the function that closes it.
Closable = tuple[int, Callable[[], None]]


class TlsSide(NamedTuple):
    """The TLS of a listener."""

    #: Returns the current context.
    context: Callable[[], ssl.SSLContext]
    #: The callback for a failed handshake, with the peer and the cause.
    failed: Callable[[str, str], None]


class Acceptor:
    """Accepts the connections of one listener."""

    def __init__(self, loop: asyncio.AbstractEventLoop, sockets: list[socket.socket], make: MakeProtocol) -> None:
        self.sockets = sockets
        self._loop = loop
        self._make = make
        self._tls: TlsSide | None = None
        self._admission: Admission | None = None
        #: The slots of connections before the end of their handshake.
        self._slots: dict[socket.socket, Slot] = {}
        self._is_open = False
        #: A reserved descriptor: when all are in use, it is closed, so that a connection can be accepted and closed.
        self._spare: int | None = None
        self._reports = LineLimit(SystemClock().now_ms)
        #: Connections that wait for their first byte, oldest first, with their deadlines.
        self._silent: dict[socket.socket, float] = {}
        self._expiry: asyncio.TimerHandle | None = None
        #: Connections whose handshake can begin.
        self._ready: deque[socket.socket] = deque()
        self._begins_soon = False
        self._establishing: set[asyncio.Task[bool]] = set()

    def use_tls(self, tls: TlsSide) -> None:
        """Requires a TLS handshake on every connection."""
        self._tls = tls

    def use_limits(self, admission: Admission) -> None:
        """Lets connections in as the limits allow."""
        self._admission = admission
        admission.connect(self._enter, self._watch)

    @property
    def half_open(self) -> int:
        """Returns how many connections have not completed their handshake."""
        return len(self._silent) + len(self._ready) + len(self._establishing)

    def open(self, backlog: int) -> None:
        """Listens. Raises OSError if another process was faster."""
        for listening in self.sockets:
            listening.listen(backlog)
        self._is_open = True
        self._watch()

    def close(self) -> None:
        """Stops listening, and drops the connections whose handshake is not complete."""
        if self._is_open:
            self._is_open = False
            self._unwatch()
        for listening in self.sockets:
            listening.close()
        if self._admission is not None:
            self._admission.close()
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None
        if self._expiry is not None:
            self._expiry.cancel()
        for waiting in tuple(self._silent):
            self._forget_silent(waiting)
            self._drop(waiting)
        while self._ready:
            self._drop(self._ready.popleft())
        for task in tuple(self._establishing):
            task.cancel()

    def silent(self) -> Iterator[Closable]:
        """Yields the connections that have sent nothing yet."""
        for waiting, deadline in self._silent.items():
            yield int((deadline - _HANDSHAKE_S) * 1e9), partial(self._close_silent, waiting)

    def _close_silent(self, waiting: socket.socket) -> None:
        if waiting in self._silent:
            self._forget_silent(waiting)
            self._drop(waiting)

    def _drop(self, waiting: socket.socket) -> None:
        """Closes a connection that is not served."""
        waiting.close()
        slot = self._slots.pop(waiting, None)
        if slot is not None:
            slot.release()

    def _unwatch(self) -> None:
        for each in self.sockets:
            self._loop.remove_reader(each.fileno())

    def _watch(self) -> None:
        if self._is_open and (self._admission is None or not self._admission.is_blocked):
            if self._spare is None:
                with contextlib.suppress(OSError):
                    self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            for listening in self.sockets:
                self._loop.add_reader(listening.fileno(), self._accept, listening)

    # -- accept

    def _accept(self, listening: socket.socket) -> None:
        admission = self._admission
        for _ in range(_ACCEPTS_PER_TURN):
            try:
                accepted, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._on_refused(listening, error)
                return
            accepted.setblocking(False)
            if admission is None:
                self._enter(accepted, None)
                continue
            slot = admission.offer(accepted, address[0])
            if slot is not None:
                self._enter(accepted, slot)
            elif admission.is_blocked:
                self._unwatch()
                return

    def _enter(self, accepted: socket.socket, slot: Slot | None) -> None:
        """Begins a connection that the limits allow."""
        if self._tls is None:
            self._establish(accepted, slot, None, 0)
            return
        if slot is not None:
            self._slots[accepted] = slot
        self._await_first_byte(accepted)

    def _on_refused(self, listening: socket.socket, error: OSError) -> None:
        """Closes a connection for which there is no descriptor, so that its client knows, and accepts none for a
        moment.
        """
        suffix = self._reports.suffix(error.errno)
        if suffix is not None:
            log.warning("cannot accept a connection: %s%s", error.strerror, suffix)
        if error.errno not in _SHORTAGES:
            return
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None
            with contextlib.suppress(OSError):
                listening.accept()[0].close()
        self._unwatch()
        self._loop.call_later(_PAUSE_S, self._watch)

    # -- TLS

    def _await_first_byte(self, accepted: socket.socket) -> None:
        if self.half_open >= _HALF_OPEN_MAX and self._silent:
            oldest = next(iter(self._silent))
            self._forget_silent(oldest)
            self._fail(oldest, f"{_HALF_OPEN_MAX} connections have sent nothing yet, this one for the longest time")
        self._silent[accepted] = self._loop.time() + _HANDSHAKE_S
        self._loop.add_reader(accepted.fileno(), self._on_first_byte, accepted)
        if self._expiry is None:
            self._expiry = self._loop.call_later(_HANDSHAKE_S, self._expire)

    def _forget_silent(self, waiting: socket.socket) -> None:
        del self._silent[waiting]
        self._loop.remove_reader(waiting.fileno())

    def _expire(self) -> None:
        """Drops the connections whose time is over, and sets the timer for the next one."""
        self._expiry = None
        now = self._loop.time()
        for waiting, deadline in tuple(self._silent.items()):
            if deadline > now:
                self._expiry = self._loop.call_at(deadline, self._expire)
                return
            self._forget_silent(waiting)
            self._fail(waiting, f"no TLS handshake within {_HANDSHAKE_S:.0f} s")

    def _on_first_byte(self, waiting: socket.socket) -> None:
        self._forget_silent(waiting)
        try:
            first = waiting.recv(1, socket.MSG_PEEK)
        except OSError:
            first = b""
        if first == _TLS_HANDSHAKE:
            self._ready.append(waiting)
            self._begin_soon()
        elif first:
            with contextlib.suppress(OSError):
                # Read first: closing a socket with unread data would reset the connection instead of ending it cleanly.
                waiting.recv(_DRAINED_BYTES)
            self._fail(waiting, "the client does not speak TLS, which this listener requires (its security.protocol?)")
        else:
            self._drop(waiting)

    def _begin_soon(self) -> None:
        if not self._begins_soon and self._ready:
            self._begins_soon = True
            self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        self._begins_soon = False
        tls = self._tls
        assert tls is not None
        # The loop runs its callbacks in order, so exactly the first steps of these tasks, which allocate the buffers of
        # their connections, run between the two.
        self._loop.call_soon(memory.map_buffers)
        for _ in range(min(_HANDSHAKES_PER_TURN, len(self._ready))):
            ready = self._ready.popleft()
            self._establish(ready, self._slots.pop(ready, None), tls.context(), _HANDSHAKE_S)
        self._loop.call_soon(memory.keep_buffers)
        self._begin_soon()

    def _establish(
        self, accepted: socket.socket, slot: Slot | None, context: ssl.SSLContext | None, timeout_s: float
    ) -> None:
        task = self._loop.create_task(self._connect(accepted, slot, context, timeout_s))
        self._establishing.add(task)
        task.add_done_callback(partial(self._established, accepted, slot))

    def _established(self, accepted: socket.socket, slot: Slot | None, task: asyncio.Task[bool]) -> None:
        """Releases the socket and slot of a connection that does not become a transport, even if its task never ran."""
        self._establishing.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error("a connection cannot be served", exc_info=error)
        if error is not None or task.cancelled() or not task.result():
            accepted.close()
            if slot is not None:
                slot.release()

    async def _connect(
        self, accepted: socket.socket, slot: Slot | None, context: ssl.SSLContext | None, timeout_s: float
    ) -> bool:
        """Returns whether the connection has become a transport, which then releases the slot."""
        make = partial(self._make, slot)
        try:
            if context is None:
                await self._loop.connect_accepted_socket(make, accepted)
            else:
                peer = _peer(accepted)
                HANDSHAKING.set(accepted)
                await self._loop.connect_accepted_socket(
                    make,
                    accepted,
                    ssl=context,
                    ssl_handshake_timeout=timeout_s,
                    ssl_shutdown_timeout=_SHUTDOWN_S,
                )
        except OSError as error:
            if context is not None and self._tls is not None:
                self._tls.failed(peer, f"SSL handshake failed: {cause_of(error)}")
            return False
        return True

    def _fail(self, waiting: socket.socket, cause: str) -> None:
        assert self._tls is not None
        self._tls.failed(_peer(waiting), f"SSL handshake failed: {cause}")
        self._drop(waiting)


def cause_of(error: OSError) -> str:
    """Returns the cause of a failed handshake in words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the peer's certificate is refused: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        reason = str(error.reason or error.strerror or error).replace("_", " ").lower()
        if "alert" in reason:
            return f"the peer refuses this node's certificate or settings: {reason}"
        return reason
    if isinstance(error, ConnectionResetError):
        return "the peer ended the connection without a reason: possibly it refuses this node's certificate"
    if isinstance(error, ConnectionError | TimeoutError):
        return str(error) or type(error).__name__
    return error.strerror or str(error)


def _peer(accepted: socket.socket) -> str:
    try:
        address = accepted.getpeername()
    except OSError:
        return "/unknown"
    return f"/{address[0]}:{address[1]}" if isinstance(address, tuple) and address else "/unknown"


async def bind(loop: asyncio.AbstractEventLoop, host: str, port: int) -> list[socket.socket]:
    """Returns sockets bound to all addresses of `host`, or of this machine if it is empty. Raises OSError."""
    found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    bound: list[socket.socket] = []
    try:
        for family, kind, number, _, address in dict.fromkeys(found):
            try:
                made = socket.socket(family, kind, number)
            except OSError:
                continue  # The system has no IPv6.
            bound.append(made)
            made.setblocking(False)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            made.bind(address)
    except OSError:
        for each in bound:
            each.close()
        raise
    return bound
