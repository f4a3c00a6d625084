"""OffsetDelete (47), version 0: deletes a group's committed offsets of unsubscribed topics (KIP-496)."""

from __future__ import annotations

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.protocol.messages.offset_delete import OffsetDeleteRequest


def handle(context: RequestContext, request: OffsetDeleteRequest, services: Services) -> None:
    services.groups.delete_offsets(context, request, context.reply)
