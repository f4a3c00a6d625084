"""EndTxn (26), versions 0-5: commits or aborts a transaction.

The response is sent when the outcome is committed to `__transaction_state`; the markers follow. Producers of version 5+
use version 2 of the transaction protocol and receive their next epoch (KIP-890). Before version 2,
INVALID_PRODUCER_EPOCH replaces PRODUCER_FENCED.
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
