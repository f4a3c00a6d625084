"""The composition of a broker in ZooKeeper mode: it needs a session first, because its identity is in ZooKeeper."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.broker.assembly import Broker
from barnabas.broker.requests.in_flight import ConnectionLog
from barnabas.broker.zookeeper.identity import Identity
from barnabas.broker.zookeeper.session import ZooKeeperSession
from barnabas.broker.zookeeper.zookeeper_side import ZooKeeperSide
from barnabas.common.config import BrokerConfig
from barnabas.common.errors import ConfigError
from barnabas.common.host import Host


def compose(
    host: Host,
    config: BrokerConfig,
    connection_log: ConnectionLog,
    done: Callable[[Broker | ConfigError], None],
) -> None:
    """Opens a session with ZooKeeper and connects the parts of the broker; `done` receives it, or the error with which
    startup fails. Raises ConfigError for a malformed `zookeeper.connect`."""
    session = ZooKeeperSession(host, config)

    def identified(found: Identity | ConfigError) -> None:
        if isinstance(found, ConfigError):
            done(found)
            return
        cluster_id = found.cluster_id
        try:
            done(Broker(host, found.config, connection_log, lambda parts: ZooKeeperSide(parts, session, cluster_id)))
        except ConfigError as error:
            done(error)

    session.identify(identified)
