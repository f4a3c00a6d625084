"""AddOffsetsToTxn (25), versions 0-4: announces that a transaction will commit offsets of this group.

The coordinator adds the group's partition of `__consumer_offsets` to the transaction. Before version 2,
INVALID_PRODUCER_EPOCH replaces PRODUCER_FENCED.
"""

from __future__ import annotations

from typing import Final

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.broker.requests.late_responses import still_allowed
from barnabas.common.errors import ErrorCode
from barnabas.common.types import GROUP_METADATA_TOPIC, TopicPartition
from barnabas.coordinators.transactions.coordinator import COMPLETION_WAIT_MS
from barnabas.coordinators.transactions.transitions import NO_EPOCH_BUMP, ProducerIdentity
from barnabas.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

_FENCED_SINCE: Final = 2


def handle(context: RequestContext, request: AddOffsetsToTxnRequest, services: Services) -> None:
    def done(code: ErrorCode) -> None:
        if code is ErrorCode.PRODUCER_FENCED and context.api_version < _FENCED_SINCE:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        context.reply(AddOffsetsToTxnResponse(error_code=code))

    partition = TopicPartition(GROUP_METADATA_TOPIC, services.groups.partition_for(request.group_id))
    producer = ProducerIdentity(request.producer_id, request.producer_epoch)
    services.transactions.add_partitions(
        request.transactional_id,
        producer,
        frozenset({partition}),
        NO_EPOCH_BUMP,
        done,
        wait_ms=COMPLETION_WAIT_MS,
        is_allowed=still_allowed(context, request, "add_offsets_to_txn", services),
    )
