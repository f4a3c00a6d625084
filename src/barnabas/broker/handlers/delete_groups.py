"""DeleteGroups (42), versions 0-2: deletes groups without members, with their offsets (KIP-229)."""

from __future__ import annotations

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest


def handle(context: RequestContext, request: DeleteGroupsRequest, services: Services) -> None:
    services.groups.delete_groups(context, request, context.reply)
