"""DescribeTransactions (65), version 0: the transactions of transactional ids, from their coordinator (KIP-664)."""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.broker.requests.error_responses import ErrorRows
from barnabas.broker.requests.steps import Work
from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.common.gradual import sorted_gradually
from barnabas.coordinators.transactions.state import Transaction
from barnabas.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)

ERROR_ROWS: Final = (ErrorRows("transaction_states", "transactional_ids", key="transactional_id"),)
#: The numbers of transactions and of partitions that are described in about a quarter of a millisecond.
_TRANSACTIONS_PER_STEP: Final = 50
_PARTITIONS_PER_STEP: Final = 500


Described = DescribeTransactionsResponse.TransactionState
Topic = DescribeTransactionsResponse.TopicData


def handle(context: RequestContext, request: DescribeTransactionsRequest, services: Services) -> Work:
    """Describes each transaction once, even if the request repeats its id."""
    response = DescribeTransactionsResponse()
    for place, transactional_id in enumerate(dict.fromkeys(request.transactional_ids), 1):
        try:
            transaction = services.transactions.describe(transactional_id)
        except RequestFailed as failure:
            response.transaction_states.append(Described(error_code=failure.code, transactional_id=transactional_id))
        else:
            described = yield from _described(transaction)
            response.transaction_states.append(described)
        if place % _TRANSACTIONS_PER_STEP == 0:
            yield 1
    return response


def _described(transaction: Transaction) -> Generator[int, None, Described]:
    image = transaction.image
    topics: dict[str, list[int]] = {}
    for place, (topic, index) in enumerate(image.partitions, 1):
        topics.setdefault(topic, []).append(index)
        if place % _PARTITIONS_PER_STEP == 0:
            yield 1
    rows: list[Topic] = []
    for name in (yield from sorted_gradually(topics)):
        rows.append(Topic(topic=name, partitions=sorted(topics[name])))
        if len(rows) % _PARTITIONS_PER_STEP == 0:
            yield 1
    return Described(
        error_code=ErrorCode.NONE,
        transactional_id=transaction.transactional_id,
        transaction_state=image.state.shown,
        transaction_timeout_ms=image.timeout_ms,
        transaction_start_time_ms=image.start_ms,
        producer_id=image.producer_id,
        producer_epoch=image.producer_epoch,
        topics=rows,
    )
