"""The broker's quotas follow the metadata and the configuration: those of clients, and the limits of connections.

`Services.throttles` is None while the cluster has no quotas.
"""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.broker.requests.context import Services
from barnabas.broker.throttling.client_throttles import ClientThrottles, Windows
from barnabas.broker.throttling.connection_limits import CONNECTIONS, CREATION_RATE, PER_IP, ConnectionLimits, Limits
from barnabas.common.config import BrokerConfig
from barnabas.metadata.image import MetadataDelta, MetadataImage


def make_connection_limits(config: BrokerConfig) -> dict[str, ConnectionLimits]:
    """Returns the limits of each listener, which follow the configuration. The listeners of a role share them, as in
    Kafka, where controllers have a socket server of their own.
    """
    controllers = set(config.controller_listener_names)
    names = [each.name for each in config.listeners]
    found: dict[str, ConnectionLimits] = {}
    for role in ([name for name in names if name not in controllers], [name for name in names if name in controllers]):
        if role:
            protected = config.inter_broker_listener if config.is_broker else None
            made = ConnectionLimits(role, protected, Windows.of_clients(config), Limits.of(config, role))
            _follow_config(config, made)
            found.update(dict.fromkeys(role, made))
    return found


def _follow_config(config: BrokerConfig, limits: ConnectionLimits) -> None:
    def on_change(changed: frozenset[str]) -> None:
        if any(name.endswith((CONNECTIONS, CREATION_RATE)) or name.startswith(PER_IP) for name in changed):
            apply_limits(config, limits)

    config.subscribe(on_change)


def apply_limits(config: BrokerConfig, limits: ConnectionLimits) -> None:
    """Applies the limits of the configuration."""
    limits.change(Limits.of(config, [each.name for each in limits.listeners()]))


def follow_quotas(services: Services, connection_limits: Iterable[ConnectionLimits]) -> None:
    """Applies every change of quotas from now on, before the next request is served."""
    throttles = ClientThrottles(services.config, services.host.clock)

    def on_image(delta: MetadataDelta, _: MetadataImage) -> None:
        if delta.changed_quotas:
            throttles.follow(delta.changed_quotas)
            for limits in connection_limits:
                limits.follow(delta.changed_quotas)
            services.throttles = throttles if throttles else None

    services.metadata.subscribe(on_image)
