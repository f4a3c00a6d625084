"""AllocateProducerIds (67), version 0: allocates a block of producer ids to a broker (KIP-730)."""

from __future__ import annotations

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.common.errors import ErrorCode
from barnabas.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse


def handle(context: RequestContext, request: AllocateProducerIdsRequest, services: Services) -> None:
    def allocated(first_id: int, length: int, error: ErrorCode) -> None:
        context.reply(AllocateProducerIdsResponse(error_code=error, producer_id_start=first_id, producer_id_len=length))

    services.controller.allocate_producer_ids(request.broker_id, request.broker_epoch, allocated)
