"""Which protocols of groups this broker serves, and what may be done to a group."""

from __future__ import annotations

from typing import Final

from barnabas.broker.requests.context import Services
from barnabas.metadata.image import GROUP_VERSION

#: Bits of READ (3), DELETE (6), DESCRIBE (8), DESCRIBE_CONFIGS (10) and ALTER_CONFIGS (11), by Kafka's AclOperation:
#: without an authorizer, everything.
ALL_GROUP_OPERATIONS: Final = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11


def serves_consumer_protocol(services: Services) -> bool:
    """KIP-848: the feature is on in the cluster, and not switched off here."""
    protocols = services.config.list_of("group.coordinator.rebalance.protocols")
    return services.metadata.image.features.get(GROUP_VERSION, 0) >= 1 and "consumer" in protocols
