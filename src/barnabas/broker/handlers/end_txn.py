"""EndTxn (26), versions 0-5: commit or abort a transaction.

Answered when the outcome is committed to `__transaction_state`; the markers follow. From version 5 on the producer
speaks version 2 of the protocol, and is told the epoch that it goes on with (KIP-890). Errors before version 2:
INVALID_PRODUCER_EPOCH for PRODUCER_FENCED.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.common.errors import ErrorCode
from barnabas.coordinators.transactions.coordinator import Ending
from barnabas.coordinators.transactions.transitions import EPOCH_BUMP_SINCE, NO_EPOCH_BUMP, ProducerIdentity
from barnabas.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse

_FENCED_SINCE: Final = 2
_BUMPS_SINCE: Final = 5


def handle(context: RequestContext, request: EndTxnRequest, services: Services) -> None:
    def answer(code: ErrorCode, producer: ProducerIdentity) -> None:
        if code is ErrorCode.PRODUCER_FENCED and context.api_version < _FENCED_SINCE:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        context.reply(EndTxnResponse(error_code=code, producer_id=producer.producer_id, producer_epoch=producer.epoch))

    services.transactions.end_transaction(
        Ending(
            request.transactional_id,
            ProducerIdentity(request.producer_id, request.producer_epoch),
            request.committed,
            EPOCH_BUMP_SINCE if context.api_version >= _BUMPS_SINCE else NO_EPOCH_BUMP,
            answer,
        )
    )
