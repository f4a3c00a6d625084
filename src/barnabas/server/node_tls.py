"""The TLS of a node: its stores are read with the first listener that needs them, since most nodes do without."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from barnabas.common import zookeeper_security
from barnabas.common.config import BrokerConfig
from barnabas.common.endpoints import TLS_PROTOCOLS
from barnabas.common.settings import Settings
from barnabas.protocol.peer_security import tls_listeners
from barnabas.server.links import LoopLinks

_MODULE: Final = "barnabas.tls.node_contexts"
_ZOOKEEPER_MODULE: Final = "barnabas.tls.zookeeper_contexts"

if TYPE_CHECKING:
    from barnabas.tls.certificates import Certificate
    from barnabas.tls.node_contexts import NodeContexts
    from barnabas.tls.zookeeper_contexts import ZooKeeperContexts


class NodeTls:
    """The TLS contexts of a node; None until a listener needs them."""

    def __init__(self, config: BrokerConfig, links: LoopLinks, zookeeper: ZooKeeperContexts | None = None) -> None:
        """Loads what the configuration needs, and follows its changes. Raises ConfigError."""
        self._config = config
        self._links = links
        self._contexts: NodeContexts | None = None
        self._zookeeper = zookeeper
        if tls_listeners(config):
            self._load()
        config.use_files(self._check, self._refresh)

    def import_aside(self) -> threading.Thread | None:
        """Imports the modules of TLS in a thread, so that a listener with TLS that is added later does not import them
        in a turn of the event loop. Returns the thread; None if there is nothing to import, or no listener can come.
        """
        if self._contexts is not None or self._config.is_zookeeper_mode or not self._config.is_broker:
            return None
        thread = threading.Thread(target=importlib.import_module, args=(_MODULE,), name="import-tls", daemon=True)
        thread.start()
        return thread

    def _load(self) -> NodeContexts:
        made = self._contexts = _contexts_of(self._config)
        self._links.use_tls(made)
        return made

    def _check(self, proposed: BrokerConfig) -> None:
        if self._contexts is not None:
            self._contexts.check(proposed)
        elif tls_listeners(proposed):
            _contexts_of(proposed)

    def _refresh(self) -> None:
        if self._contexts is not None:
            self._contexts.refresh()

    def serve(self, listener: str) -> NodeContexts | None:
        """Returns the contexts for a listener that begins to accept; None if it has no TLS. Raises ConfigError."""
        if self._config.security_protocol_of(listener) not in TLS_PROTOCOLS:
            return None
        contexts = self._contexts or self._load()
        contexts.add(listener)
        return contexts

    def end(self, listener: str) -> None:
        """Forgets a listener that accepts no more connections."""
        if self._contexts is not None:
            self._contexts.remove(listener)

    def certificates(self) -> Iterator[tuple[str, Certificate]]:
        """Yields the listeners, and the connections to ZooKeeper, with their certificates of this moment."""
        if self._contexts is not None:
            yield from self._contexts.certificates()
        if self._zookeeper is not None:
            yield from self._zookeeper.certificates()


def use_zookeeper_tls(config: Settings, links: LoopLinks) -> ZooKeeperContexts | None:
    """Loads the TLS contexts of connections to ZooKeeper and gives them to the links. Returns None if these connections
    have no TLS. Raises ConfigError.
    """
    name = zookeeper_security.tls_name(config)
    if name is None:
        return None
    made: ZooKeeperContexts = importlib.import_module(_ZOOKEEPER_MODULE).ZooKeeperContexts(config)
    links.use_tls(made, name)
    return made


def _contexts_of(config: BrokerConfig) -> NodeContexts:
    made: NodeContexts = importlib.import_module(_MODULE).NodeContexts(config)
    return made
