"""Applies changes of quotas in the metadata to the broker. `Services.throttles` is None while the cluster has no
quotas.
"""

from __future__ import annotations

from barnabas.broker.requests.context import Services
from barnabas.broker.throttling.client_throttles import ClientThrottles
from barnabas.metadata.image import MetadataDelta, MetadataImage


def follow_quotas(services: Services) -> None:
    """Subscribes to the metadata: each change of quotas applies before the next request is served."""
    throttles = ClientThrottles(services.config, services.host.clock)

    def on_image(delta: MetadataDelta, _: MetadataImage) -> None:
        if delta.changed_quotas:
            throttles.follow(delta.changed_quotas)
            services.throttles = throttles if throttles else None

    services.metadata.subscribe(on_image)
