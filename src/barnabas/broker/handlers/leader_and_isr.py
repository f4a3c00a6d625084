"""LeaderAndIsr (4), versions 0-7: the controller gives replicas of this broker their roles (ZooKeeper mode)."""

from __future__ import annotations

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.broker.requests.steps import Work
from barnabas.protocol.messages.leader_and_isr import LeaderAndIsrRequest


def handle(context: RequestContext, request: LeaderAndIsrRequest, services: Services) -> Work:
    return services.zookeeper.feed.leader_and_isr(request, context.api_version, context.client_id)
