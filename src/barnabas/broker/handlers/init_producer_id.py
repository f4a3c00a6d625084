"""InitProducerId (22), versions 0-5: a producer id for an idempotent producer (KIP-98).

Without a transactional id every call gets a new id with epoch 0. Transactional producers are answered NOT_COORDINATOR
until this broker coordinates transactions.
"""

from __future__ import annotations

from barnabas.broker.context import RequestContext, Services
from barnabas.common.errors import ErrorCode
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


def handle(context: RequestContext, request: InitProducerIdRequest, services: Services) -> None:
    def answer(error: ErrorCode, producer_id: int) -> None:
        epoch = 0 if error is ErrorCode.NONE else -1
        context.reply(InitProducerIdResponse(error_code=error, producer_id=producer_id, producer_epoch=epoch))

    if (request.producer_id == -1) != (request.producer_epoch == -1):
        answer(ErrorCode.INVALID_REQUEST, -1)
    elif request.transactional_id is None:
        services.producer_ids.take(answer)
    elif request.transactional_id == "":
        answer(ErrorCode.INVALID_REQUEST, -1)
    else:
        answer(ErrorCode.NOT_COORDINATOR, -1)
