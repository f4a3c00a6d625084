"""CreatePartitions (37), versions 0-3: decided by the controller, answered when the partitions are committed."""

from __future__ import annotations

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest


def handle(context: RequestContext, request: CreatePartitionsRequest, services: Services) -> None:
    services.controller.create_partitions(request, context.reply, actor=context.principal)
