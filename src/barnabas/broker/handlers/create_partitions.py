"""CreatePartitions (37), versions 0-3: decided by the controller, answered when the partitions are committed."""

from __future__ import annotations

from typing import Final

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.broker.requests.error_responses import ErrorRows
from barnabas.broker.requests.mutation_requests import limited
from barnabas.broker.requests.pieces import Pieces
from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse

ERROR_ROWS: Final = (ErrorRows("results", "topics"),)
PIECES: Final = Pieces(30, "topics", "results", key="name", answers_once=True)

#: The first version whose client understands THROTTLING_QUOTA_EXCEEDED (KIP-599).
_STRICT_SINCE: Final = 3


def handle(context: RequestContext, request: CreatePartitionsRequest, services: Services) -> None:
    permit, reply = limited(context, services, _STRICT_SINCE, CreatePartitionsResponse)
    services.controller.create_partitions(request, reply, actor=context.principal, permit=permit)
