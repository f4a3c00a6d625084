"""ConsumerGroupHeartbeat (68), versions 0-1: joins, stays in or leaves a group of the consumer protocol (KIP-848).

Version 1 adds regular expressions, and member ids that clients generate (KIP-1082). With an authorizer, an expression
matches the topics that the client may describe. The response is UNSUPPORTED_VERSION
unless the cluster has `group.version` 1 and this broker has `consumer` in `group.coordinator.rebalance.protocols`.
"""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.broker.group_protocols import serves_consumer_protocol
from barnabas.broker.requests.context import RequestContext, Services
from barnabas.common.errors import ErrorCode
from barnabas.metadata.acls import AclOperation, AclResource
from barnabas.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


def handle(
    context: RequestContext, request: ConsumerGroupHeartbeatRequest, services: Services
) -> ConsumerGroupHeartbeatResponse | None:
    if not serves_consumer_protocol(services):
        return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    authorizer = services.authorizer
    if authorizer is None:
        services.groups.consumer_group_heartbeat(context, request, context.reply)
        return None

    def describable(topics: Iterable[str]) -> set[str]:
        return authorizer.allowed_names(context, AclOperation.DESCRIBE, AclResource.TOPIC, topics, log_denied=False)

    services.groups.consumer_group_heartbeat(context, request, context.reply, describable)
    return None
