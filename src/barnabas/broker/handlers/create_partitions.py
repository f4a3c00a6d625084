"""CreatePartitions (37), versions 0-3: decided by the controller, answered when the partitions are committed."""

from __future__ import annotations

from typing import Final

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.broker.requests.error_responses import ErrorRows
from barnabas.broker.requests.pieces import Pieces
from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest

ERROR_ROWS: Final = (ErrorRows("results", "topics"),)
PIECES: Final = Pieces(30, "topics", "results", key="name", answers_once=True)


def handle(context: RequestContext, request: CreatePartitionsRequest, services: Services) -> None:
    services.controller.create_partitions(request, context.reply, actor=context.principal)
