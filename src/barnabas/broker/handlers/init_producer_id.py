"""InitProducerId (22), versions 0-5: a producer id and epoch for an idempotent or a transactional producer (KIP-98).

Without a transactional id every request gets a new id with epoch 0. With one, its coordinator returns the next epoch,
after it has aborted an open transaction of an earlier producer. KIP-360 (a producer names itself to continue after an
error, 3+). Two-phase commit (KIP-939, 6) is not offered, as in Kafka 4.1. Before version 4, INVALID_PRODUCER_EPOCH
replaces PRODUCER_FENCED.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.common.errors import ErrorCode
from barnabas.coordinators.transactions.coordinator import NO_PRODUCER, Initialization
from barnabas.coordinators.transactions.transitions import ProducerIdentity
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

_FENCED_SINCE: Final = 4


def handle(context: RequestContext, request: InitProducerIdRequest, services: Services) -> None:
    def answer(error: ErrorCode, producer: ProducerIdentity) -> None:
        if error is ErrorCode.PRODUCER_FENCED and context.api_version < _FENCED_SINCE:
            error = ErrorCode.INVALID_PRODUCER_EPOCH
        context.reply(
            InitProducerIdResponse(error_code=error, producer_id=producer.producer_id, producer_epoch=producer.epoch)
        )

    def taken(error: ErrorCode, producer_id: int) -> None:
        answer(error, ProducerIdentity(producer_id, 0) if error is ErrorCode.NONE else NO_PRODUCER)

    if (request.producer_id == -1) != (request.producer_epoch == -1):
        answer(ErrorCode.INVALID_REQUEST, NO_PRODUCER)
    elif request.transactional_id is None:
        services.producer_ids.take(taken)
    elif request.transactional_id == "":
        answer(ErrorCode.INVALID_REQUEST, NO_PRODUCER)
    else:
        expected = None if request.producer_id < 0 else ProducerIdentity(request.producer_id, request.producer_epoch)
        services.transactions.init_producer_id(
            Initialization(request.transactional_id, request.transaction_timeout_ms, expected, answer)
        )
