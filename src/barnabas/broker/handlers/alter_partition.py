"""AlterPartition (56), versions 2-3: a leader's change of its ISR, decided by the controller (KIP-497)."""

from __future__ import annotations

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.protocol.messages.alter_partition import AlterPartitionRequest


def handle(context: RequestContext, request: AlterPartitionRequest, services: Services) -> None:
    services.controller.alter_partition(request, context.reply, version=context.api_version)
