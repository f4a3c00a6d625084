"""DeleteGroups (42), versions 0-2: deletes groups without members, with their offsets (KIP-229)."""

from __future__ import annotations

from typing import Final

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.broker.requests.error_responses import ErrorRows
from barnabas.broker.requests.pieces import Pieces
from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest

ERROR_ROWS: Final = (ErrorRows("results", "groups_names", key="group_id"),)
PIECES: Final = Pieces(300, "groups_names", "results")


def handle(context: RequestContext, request: DeleteGroupsRequest, services: Services) -> None:
    services.groups.delete_groups(context, request, context.reply)
