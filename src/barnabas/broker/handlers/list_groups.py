"""ListGroups (16), versions 0-5: the groups that this broker coordinates.

KIP-518 (filter by state, 4+), KIP-848 (filter by type, 5).
"""

from __future__ import annotations

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.protocol.messages.list_groups import ListGroupsRequest


def handle(context: RequestContext, request: ListGroupsRequest, services: Services) -> None:
    services.groups.list_groups(context, request, context.reply)
