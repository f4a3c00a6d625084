"""The listeners of a node: bound at its start, opened in two groups, and added and removed while it runs.

`listeners` and `listener.security.protocol.map` can be changed for a running broker (KIP-226). A new listener opens. A
listener that is no longer named closes with its connections. One that has another address now stays where it is until
the node starts again, as in Kafka.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from barnabas.broker.assembly import Broker
from barnabas.common.config_keys import LISTENER_KEYS
from barnabas.common.endpoints import Listener
from barnabas.common.errors import ConfigError
from barnabas.server.host import ServerHost
from barnabas.server.limited_listeners import LimitedListeners
from barnabas.server.listener import ListenerLog, ListeningSocket, SocketOptions
from barnabas.server.node_tls import NodeTls

if TYPE_CHECKING:
    from barnabas.tls.certificates import Certificate

log = logging.getLogger("barnabas")


class NodeListeners:
    """The sockets of a node's listeners."""

    def __init__(self, broker: Broker, host: ServerHost, listener_log: ListenerLog, tls: NodeTls) -> None:
        self._broker = broker
        self._config = broker.config
        self._host = host
        self._log = listener_log
        self._tls = tls
        self._limited = LimitedListeners(
            asyncio.get_running_loop(), broker.connection_limits, host.clock.now_ms, listener_log.rejected
        )
        self._sockets: dict[str, ListeningSocket] = {}
        #: Whether the listeners for clients serve connections.
        self._serves_clients = False
        self._is_closed = False
        self._follows_again = False
        self._following: asyncio.Task[None] | None = None

    def counts(self) -> list[tuple[str, int]]:
        """Returns the number of connections of each listener."""
        return [(name, each.connection_count) for name, each in self._sockets.items()]

    def certificates(self) -> Iterable[tuple[str, Certificate]]:
        """Returns the listeners with their certificates of this moment."""
        return self._tls.certificates()

    async def bind(self) -> None:
        """Binds the addresses of all listeners. Raises ConfigError if one is unavailable."""
        await self._limited.resolve()
        listeners, limits = self._config.listeners, self._broker.connection_limits
        # The listeners of the properties file can have been changed since, in the metadata.
        for name in limits.keys() - {each.name for each in listeners}:
            self._broker.remove_listener(name)
        for listener in listeners:
            if listener.name not in limits:
                self._broker.add_listener(listener.name)
            await self._bind(listener)
        self._config.subscribe(self._on_config)
        self._on_config(frozenset(LISTENER_KEYS))

    async def _bind(self, listener: Listener) -> ListeningSocket:
        """Binds the address of a listener. Raises ConfigError."""
        broker, name = self._broker, listener.name
        peer_names = self._tls.serve(name)
        dispatcher = broker.dispatcher(name)
        try:
            bound = await ListeningSocket.bind(
                dispatcher,
                name,
                listener.host,
                listener.port,
                SocketOptions.from_config(self._config),
                self._log.accepted,
                self._host.turns,
                peer_names,
                self._limited.admission(name),
            )
        except OSError as error:
            raise ConfigError(
                f"cannot listen on {listener.host or '*'}:{listener.port} ({name}): {error.strerror}"
            ) from error
        self._sockets[name] = bound
        self._limited.use(list(self._sockets.values()))
        return bound

    async def open_early(self) -> None:
        """Opens the listeners that serve from the beginning. Raises ConfigError."""
        await self._open([each for each in self._sockets.values() if self._broker.is_served_at_once(each.name)])

    async def open_all(self) -> None:
        """Opens the listeners that wait until the broker has its metadata. Raises ConfigError."""
        self._serves_clients = True
        await self._open([each for each in self._sockets.values() if not self._broker.is_served_at_once(each.name)])

    async def _open(self, sockets: list[ListeningSocket]) -> None:
        for listening in sockets:
            try:
                await listening.serve()
            except OSError as error:
                text = f"cannot listen on port {listening.port} ({listening.name}): {error.strerror}"
                raise ConfigError(text) from error

    def close(self) -> None:
        """Closes all listeners and their connections."""
        self._is_closed = True
        for listening in self._sockets.values():
            listening.close()

    # -- changes

    def _on_config(self, changed: frozenset[str]) -> None:
        self._limited.resolve_soon()
        if changed.isdisjoint(LISTENER_KEYS) or self._is_closed:
            return
        if self._following is None:
            self._following = asyncio.get_running_loop().create_task(self._follow())
        else:
            self._follows_again = True

    async def _follow(self) -> None:
        """Closes and opens listeners until they are those of the configuration."""
        while True:
            self._follows_again = False
            await self._follow_once()
            if not self._follows_again or self._is_closed:
                break
        self._following = None

    async def _follow_once(self) -> None:
        named = {each.name: each for each in self._config.listeners}
        for name in [each for each in self._sockets if each not in named]:
            self._sockets.pop(name).close()
            self._limited.use(list(self._sockets.values()))
            self._broker.remove_listener(name)
            self._tls.end(name)
            log.info("closed listener %s and its connections", name)
        for listener in [each for each in named.values() if each.name not in self._sockets]:
            self._broker.add_listener(listener.name)
            try:
                bound = await self._bind(listener)
                if self._is_closed:
                    bound.close()
                    return
                if self._serves_clients:
                    await self._open([bound])
            except ConfigError as error:
                log.error("the added listener %s cannot be opened: %s", listener, error)
                self._forget(listener.name)
                continue
            log.info("added listener %s", listener)

    def _forget(self, name: str) -> None:
        listening = self._sockets.pop(name, None)
        if listening is not None:
            listening.close()
        self._broker.remove_listener(name)
        self._tls.end(name)
