"""The limits of connections on a node's listeners: admission, connections above the broker's limit, host names.

When an inter-broker connection exceeds `max.connections`, or the limit is lowered, those connections of other listeners
that were idle for longest are closed, a few per turn of the loop.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Final, Protocol

from barnabas.broker.throttling.connection_limits import OVERRIDES, ConnectionLimits
from barnabas.common.errors import ConfigError
from barnabas.server.acceptor import Closable
from barnabas.server.admission import Admission

log = logging.getLogger("barnabas.connections")

#: The number of connections closed in one turn of the loop.
_CLOSED_PER_TURN: Final = 64
#: The time after which connections whose handshake was in progress are checked again.
_HANDSHAKE_POLL_S: Final = 1.0


class _Listening(Protocol):
    """A listener whose connections can be closed for others (`listener.ListeningSocket`)."""

    @property
    def name(self) -> str: ...
    def closable(self) -> Iterator[Closable]: ...


class LimitedListeners:
    """The listeners of a node under their limits; those of one role share a `ConnectionLimits`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limits: Mapping[str, ConnectionLimits],
        now_ms: Callable[[], int],
        rejected: Callable[[str, int], None],
    ) -> None:
        """`limits` are those of each listener; `rejected` is called with an address that has too many connections."""
        self._loop = loop
        self._limits = limits
        self._sockets: list[_Listening] = []
        self._now_ms, self._rejected = now_ms, rejected
        self._closes_soon = False
        self._resolving: set[asyncio.Task[None]] = set()
        for each in self._pools():
            each.when_exceeded(self._close_soon)

    def _pools(self) -> list[ConnectionLimits]:
        return list({id(each): each for each in self._limits.values()}.values())

    def admission(self, listener: str) -> Admission:
        """Returns the admission of a listener that begins to accept."""
        return Admission(self._limits[listener], listener, self._now_ms, self._rejected)

    def use(self, sockets: Sequence[_Listening]) -> None:
        """Sets the listeners whose connections can be closed for others."""
        self._sockets = list(sockets)

    # -- connections above the limit of the broker

    def _close_soon(self) -> None:
        if not self._closes_soon:
            self._closes_soon = True
            self._loop.call_soon(self._close_excess)

    def _close_excess(self) -> None:
        self._closes_soon = False
        for limits in self._pools():
            count = min(limits.excess, _CLOSED_PER_TURN)
            if not count:
                continue
            found = [
                closable
                for each in self._sockets
                if self._limits.get(each.name) is limits and not limits.is_protected(each.name)
                for closable in each.closable()
            ]
            for _, close in heapq.nsmallest(count, found, key=itemgetter(0)):
                close()
            if limits.excess:
                # Connections in their handshake cannot be closed for others.
                self._loop.call_later(0 if len(found) > count else _HANDSHAKE_POLL_S, self._close_soon)

    # -- host names in max.connections.per.ip.overrides

    async def resolve(self) -> None:
        """Looks up the host names that limits are set for. Raises ConfigError if one has no address."""
        for limits in self._pools():
            for name in limits.unknown_names():
                try:
                    found = await self._loop.getaddrinfo(name, None, type=socket.SOCK_STREAM)
                except OSError as error:
                    raise ConfigError(f"{OVERRIDES} names {name}, which has no address: {error.strerror}") from error
                limits.resolved(name, (str(each[4][0]) for each in found))

    def resolve_soon(self) -> None:
        """Looks up host names that a change of the limits has brought; one without an address has no effect."""
        if not any(limits.unknown_names() for limits in self._pools()):
            return
        task = self._loop.create_task(self._resolve_or_warn())
        self._resolving.add(task)
        task.add_done_callback(self._resolving.discard)

    async def _resolve_or_warn(self) -> None:
        try:
            await self.resolve()
        except ConfigError as error:
            log.warning("%s", error)
