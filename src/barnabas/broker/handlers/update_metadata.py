"""UpdateMetadata (6), versions 0-8: the controller sends this broker the brokers and partitions (ZooKeeper mode)."""

from __future__ import annotations

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.broker.requests.steps import Work
from barnabas.protocol.messages.update_metadata import UpdateMetadataRequest


def handle(context: RequestContext, request: UpdateMetadataRequest, services: Services) -> Work:
    return services.zookeeper.feed.update_metadata(request, context.client_id)
