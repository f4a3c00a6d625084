"""All collectors of metrics, each with its name in the reports of failures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from barnabas.broker.metrics import (
    authentications,
    authorizations,
    client_rates,
    connections,
    controller,
    coordinators,
    logs,
    quorum,
    replicas,
    requests,
    traffic,
    zookeeper_sessions,
)
from barnabas.common.metrics import Family

if TYPE_CHECKING:
    from barnabas.broker.assembly import Broker

Collector = Callable[["Broker"], Iterator[Family]]

COLLECTORS: Final[Mapping[str, Collector]] = {
    "replicas": replicas.collect,
    "traffic": traffic.collect,
    "requests": requests.collect,
    "authentications": authentications.collect,
    "authorizations": authorizations.collect,
    "client-rates": client_rates.collect,
    "connections": connections.collect,
    "cluster": controller.collect,
    "logs": logs.collect,
    "coordinators": coordinators.collect,
}
#: Metrics of a node in KRaft mode only.
QUORUM_COLLECTORS: Final[Mapping[str, Collector]] = {"quorum": quorum.collect}

#: Metrics of a broker in ZooKeeper mode only.
ZOOKEEPER_COLLECTORS: Final[Mapping[str, Collector]] = {"zookeeper": zookeeper_sessions.collect}


def collectors_of(broker: Broker) -> Mapping[str, Collector]:
    return {**COLLECTORS, **(QUORUM_COLLECTORS if broker.is_in_quorum else ZOOKEEPER_COLLECTORS)}
