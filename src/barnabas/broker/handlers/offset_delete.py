"""OffsetDelete (47), version 0: forget a group's offsets of topics that it does not consume (KIP-496)."""

from __future__ import annotations

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.protocol.messages.offset_delete import OffsetDeleteRequest


def handle(context: RequestContext, request: OffsetDeleteRequest, services: Services) -> None:
    services.groups.delete_offsets(context, request, context.reply)
