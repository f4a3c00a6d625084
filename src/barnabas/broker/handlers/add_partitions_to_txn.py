"""AddPartitionsToTxn (24), versions 0-5: partitions that a transaction writes to, told to its coordinator.

Versions 0-3 come from producers, one transaction in each; a topic that is not there fails them all. From 4 on they come
from brokers, several transactions in each, to be added or only verified (KIP-890). Errors: INVALID_PRODUCER_EPOCH for
PRODUCER_FENCED before version 2, INVALID_TXN_STATE for TRANSACTION_ABORTABLE before version 5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from barnabas.broker.context import RequestContext, Services
from barnabas.common.errors import ErrorCode
from barnabas.common.types import TopicPartition
from barnabas.coordinators.gather import Gather
from barnabas.coordinators.transactions.coordinator import PATIENCE_MS
from barnabas.coordinators.transactions.transitions import EPOCH_BUMP_SINCE, NO_EPOCH_BUMP, ProducerIdentity
from barnabas.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse

_FENCED_SINCE: Final = 2
_BATCHED_SINCE: Final = 4
_ABORTABLE_SINCE: Final = 5
_OLDER: Final = {ErrorCode.TRANSACTION_ABORTABLE: ErrorCode.INVALID_TXN_STATE}

Result = AddPartitionsToTxnResponse.AddPartitionsToTxnResult
Topic = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
Row = AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult
Transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
Asked = Sequence[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic]


def handle(context: RequestContext, request: AddPartitionsToTxnRequest, services: Services) -> None:
    if context.api_version < _BATCHED_SINCE:
        _handle_one(context, request, services)
        return

    def finish(results: Sequence[Result]) -> None:
        context.reply(AddPartitionsToTxnResponse(results_by_transaction=list(results)))

    gather: Gather[Result] = Gather(len(request.transactions), finish)
    for index, transaction in enumerate(request.transactions):
        _handle_transaction(context.api_version, transaction, services, gather.slot(index))


def _handle_transaction(
    api_version: int, transaction: Transaction, services: Services, give: Callable[[Result], None]
) -> None:
    def answer(codes: Mapping[TopicPartition, ErrorCode]) -> None:
        if api_version < _ABORTABLE_SINCE:
            codes = {partition: _OLDER.get(code, code) for partition, code in codes.items()}
        give(Result(transactional_id=transaction.transactional_id, topic_results=_topics(transaction.topics, codes)))

    producer = ProducerIdentity(transaction.producer_id, transaction.producer_epoch)
    partitions = frozenset(_partitions(transaction.topics))
    if transaction.verify_only:
        answer(services.transactions.verify_partitions(transaction.transactional_id, producer, partitions))
        return
    codes = _missing(transaction.topics, services)
    if codes:
        answer(codes)
        return
    services.transactions.add_partitions(
        transaction.transactional_id,
        producer,
        partitions,
        EPOCH_BUMP_SINCE,
        lambda code: answer(dict.fromkeys(partitions, code)),
    )


def _handle_one(context: RequestContext, request: AddPartitionsToTxnRequest, services: Services) -> None:
    topics = request.v3_and_below_topics

    def answer(codes: Mapping[TopicPartition, ErrorCode]) -> None:
        context.reply(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_topics(topics, codes)))

    codes = _missing(topics, services)
    if codes:
        answer(codes)
        return
    partitions = frozenset(_partitions(topics))

    def done(code: ErrorCode) -> None:
        if code is ErrorCode.PRODUCER_FENCED and context.api_version < _FENCED_SINCE:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        answer(dict.fromkeys(partitions, code))

    services.transactions.add_partitions(
        request.v3_and_below_transactional_id,
        ProducerIdentity(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch),
        partitions,
        NO_EPOCH_BUMP,  # what a producer's own request speaks for
        done,
        patience_ms=PATIENCE_MS,
    )


def _partitions(topics: Asked) -> list[TopicPartition]:
    return [TopicPartition(topic.name, index) for topic in topics for index in topic.partitions]


def _missing(topics: Asked, services: Services) -> dict[TopicPartition, ErrorCode]:
    """Codes for all, if some are not there; else nothing."""
    image = services.metadata.image
    partitions = _partitions(topics)
    missing = {partition for partition in partitions if image.partition(*partition) is None}
    if not missing:
        return {}
    return {
        partition: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if partition in missing else ErrorCode.OPERATION_NOT_ATTEMPTED
        for partition in partitions
    }


def _topics(topics: Asked, codes: Mapping[TopicPartition, ErrorCode]) -> list[Topic]:
    return [
        Topic(
            name=topic.name,
            results_by_partition=[
                Row(partition_index=index, partition_error_code=codes[TopicPartition(topic.name, index)])
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]
