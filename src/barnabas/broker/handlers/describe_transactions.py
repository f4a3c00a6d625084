"""DescribeTransactions (65), version 0: the transactions of transactional ids, from their coordinator (KIP-664)."""

from __future__ import annotations

from typing import Final

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.broker.requests.error_responses import ErrorRows
from barnabas.broker.requests.pieces import Pieces
from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.coordinators.transactions.state import Transaction
from barnabas.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)

ERROR_ROWS: Final = (ErrorRows("transaction_states", "transactional_ids", key="transactional_id"),)
PIECES: Final = Pieces(200, "transactional_ids", "transaction_states")


Described = DescribeTransactionsResponse.TransactionState
Topic = DescribeTransactionsResponse.TopicData


def handle(
    context: RequestContext, request: DescribeTransactionsRequest, services: Services
) -> DescribeTransactionsResponse:
    found = dict.fromkeys(request.transactional_ids)
    return DescribeTransactionsResponse(transaction_states=[_describe(services, one) for one in found])


def _describe(services: Services, transactional_id: str) -> Described:
    try:
        transaction = services.transactions.describe(transactional_id)
    except RequestFailed as failure:
        return Described(error_code=failure.code, transactional_id=transactional_id)
    return _described(transaction)


def _described(transaction: Transaction) -> Described:
    image = transaction.image
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(image.partitions):
        topics.setdefault(topic, []).append(index)
    return Described(
        error_code=ErrorCode.NONE,
        transactional_id=transaction.transactional_id,
        transaction_state=image.state.shown,
        transaction_timeout_ms=image.timeout_ms,
        transaction_start_time_ms=image.start_ms,
        producer_id=image.producer_id,
        producer_epoch=image.producer_epoch,
        topics=[Topic(topic=topic, partitions=indexes) for topic, indexes in topics.items()],
    )
