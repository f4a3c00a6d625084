"""The TLS context of connections to ZooKeeper. Stores that were replaced are read again for the next connection, as by
ZooKeeper's own client.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Iterator

from barnabas.common.errors import ConfigError
from barnabas.common.settings import Settings
from barnabas.common.zookeeper_security import TLS_NAME
from barnabas.tls.certificates import Certificate
from barnabas.tls.listener_contexts import ListenerContexts, files_of
from barnabas.tls.node_contexts import warn_if_expired
from barnabas.tls.zookeeper_settings import zookeeper_settings

log = logging.getLogger("barnabas.tls")


class ZooKeeperContexts:
    """The context of a node's connections to ZooKeeper, made from the files of this moment."""

    def __init__(self, config: Settings) -> None:
        """Reads the stores. Raises ConfigError that names the key and what is wrong."""
        self._settings = zookeeper_settings(config)
        self._made = ListenerContexts(self._settings)
        warn_if_expired(self._made)

    def certificates(self) -> Iterator[tuple[str, Certificate]]:
        """Yields the certificates that ZooKeeper is shown, each with the name of these connections."""
        for _, certificate in self._made.certificates:
            yield TLS_NAME, certificate

    def client(self, name: str) -> ssl.SSLContext:
        """Returns the context for a connection that is dialled now. If the stores cannot be read, the former context
        stays.
        """
        if files_of(self._settings) != self._made.files:
            try:
                self._made = ListenerContexts(self._settings)
                warn_if_expired(self._made)
            except ConfigError as error:
                log.error("the former certificates stay: %s", error)
        return self._made.client
