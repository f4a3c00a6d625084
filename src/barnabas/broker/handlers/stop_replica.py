"""StopReplica (5), versions 0-4: the controller ends roles of replicas and deletes logs (ZooKeeper mode)."""

from __future__ import annotations

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.broker.requests.steps import Work
from barnabas.protocol.messages.stop_replica import StopReplicaRequest


def handle(context: RequestContext, request: StopReplicaRequest, services: Services) -> Work:
    return services.zookeeper.feed.stop_replica(request)
