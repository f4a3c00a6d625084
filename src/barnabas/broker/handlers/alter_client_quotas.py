"""AlterClientQuotas (49), versions 0-1: sets and removes quotas of users, client ids and addresses (KIP-546)."""

from __future__ import annotations

from typing import Final

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.broker.requests.error_responses import ErrorRows
from barnabas.broker.requests.pieces import Pieces
from barnabas.controller.requests.client_quotas import entity_of
from barnabas.protocol.messages.alter_client_quotas import AlterClientQuotasRequest

ERROR_ROWS: Final = (ErrorRows("entries", "entries", inner=ErrorRows("entity", "entity")),)
PIECES: Final = Pieces(50, "entries", "entries", answers_once=True, key_of=entity_of)


def handle(context: RequestContext, request: AlterClientQuotasRequest, services: Services) -> None:
    services.side.alter_client_quotas(context, request)
