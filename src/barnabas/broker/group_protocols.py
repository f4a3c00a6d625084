"""The group protocols that this broker serves, and the operations allowed on a group."""

from __future__ import annotations

from typing import Final

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.metadata.acls import AclResource
from barnabas.metadata.image import GROUP_VERSION

#: Bits of READ (3), DELETE (6), DESCRIBE (8), DESCRIBE_CONFIGS (10) and ALTER_CONFIGS (11), as in Kafka's AclOperation:
#: without an authorizer, all these operations are allowed.
ALL_GROUP_OPERATIONS: Final = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11


def group_operations(context: RequestContext, services: Services, group_id: str) -> int:
    """Returns the bits of the operations that the client may do with a group (KIP-430)."""
    if services.authorizer is None:
        return ALL_GROUP_OPERATIONS
    return services.authorizer.operations(context, AclResource.GROUP, group_id)


def serves_consumer_protocol(services: Services) -> bool:
    """Returns whether the consumer protocol (KIP-848) is enabled in the cluster by its feature, and on this broker by
    config."""
    protocols = services.config.list_of("group.coordinator.rebalance.protocols")
    return services.metadata.image.features.get(GROUP_VERSION, 0) >= 1 and "consumer" in protocols
