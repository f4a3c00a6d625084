"""Observers of connections: they see the bytes when a program gets and writes them, and change nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from barnabas.simulation.network import Socket


class Tap(Protocol):
    """An observer of one end of a connection."""

    def received(self, data: bytes) -> None: ...

    def sent(self, data: bytes) -> None: ...


class Follower(Protocol):
    """An observer of a network, which can put a `Tap` on the ends of new connections."""

    def connected(self, dialled: Socket, accepted: Socket) -> None: ...

    def closed(self, socket: Socket) -> None: ...
