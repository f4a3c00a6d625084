"""AddPartitionsToTxn (24), versions 0-5: adds partitions to a transaction, at its coordinator.

Versions 0-3 come from producers and contain one transaction; an unknown topic fails all its partitions. Versions 4+
come from brokers and contain several transactions, to be extended or only verified (KIP-890). INVALID_PRODUCER_EPOCH
replaces PRODUCER_FENCED before version 2, INVALID_TXN_STATE replaces TRANSACTION_ABORTABLE before version 5.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence, Set
from typing import Final

from barnabas.broker.requests.context import RequestContext, Services
from barnabas.broker.requests.error_responses import ErrorRows
from barnabas.broker.requests.late_responses import still_allowed
from barnabas.broker.requests.steps import Work
from barnabas.common.continuations import owner
from barnabas.common.errors import ErrorCode
from barnabas.common.types import TopicPartition
from barnabas.coordinators.gather import Gather
from barnabas.coordinators.transactions.coordinator import COMPLETION_WAIT_MS
from barnabas.coordinators.transactions.transitions import EPOCH_BUMP_SINCE, NO_EPOCH_BUMP, ProducerIdentity
from barnabas.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse

_ERROR_RESULTS: Final = ErrorRows("results_by_partition", "partitions", key="partition_index")
ERROR_ROWS: Final = (
    ErrorRows("results_by_topic_v3_and_below", "v3_and_below_topics", inner=_ERROR_RESULTS),
    ErrorRows(
        "results_by_transaction", "transactions", inner=ErrorRows("topic_results", "topics", inner=_ERROR_RESULTS)
    ),
)


_FENCED_SINCE: Final = 2
_BATCHED_SINCE: Final = 4
_ABORTABLE_SINCE: Final = 5

Result = AddPartitionsToTxnResponse.AddPartitionsToTxnResult
Topic = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
Row = AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult
Transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
Requested = Sequence[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic]
CodeOf = Callable[[TopicPartition], ErrorCode]


#: The number of rows read per step.
_ROWS_PER_STEP: Final = 200


def handle(context: RequestContext, request: AddPartitionsToTxnRequest, services: Services) -> Work:
    version = context.api_version
    if version < _BATCHED_SINCE:
        transaction = Transaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
        yield from _handle_transaction(
            version,
            transaction,
            services,
            lambda topics: context.reply(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)),
            still_allowed(context, request, "add_partitions_to_txn", services),
        )
        return

    def finish(results: Sequence[Result]) -> None:
        context.reply(AddPartitionsToTxnResponse(results_by_transaction=list(results)))

    gather: Gather[Result] = Gather(len(request.transactions), finish)
    for index, transaction in enumerate(request.transactions):
        yield from _handle_transaction(version, transaction, services, _result_of(transaction, gather.slot(index)))
        yield 1


def _result_of(transaction: Transaction, give: Callable[[Result], None]) -> Callable[[list[Topic]], None]:
    return lambda topics: give(Result(transactional_id=transaction.transactional_id, topic_results=topics))


def _handle_transaction(
    api_version: int,
    transaction: Transaction,
    services: Services,
    answered: Callable[[list[Topic]], None],
    is_allowed: Callable[[], bool] = lambda: True,
) -> Work:
    def answer(code_of: CodeOf) -> None:
        services.steps.begin(_topics(transaction.topics, code_of, api_version), answered, owner())

    transactional_id = transaction.transactional_id
    producer = ProducerIdentity(transaction.producer_id, transaction.producer_epoch)
    partitions, missing = yield from _find_partitions(transaction.topics, services)
    if transaction.verify_only:
        codes = services.transactions.verify_partitions(transactional_id, producer, partitions)
        answer(codes.__getitem__)
    elif missing:
        answer(_codes_if_missing(missing))
    else:
        is_producers = api_version < _BATCHED_SINCE
        services.transactions.add_partitions(
            transactional_id,
            producer,
            partitions,
            # A producer's own request uses version 1 of the transaction protocol.
            NO_EPOCH_BUMP if is_producers else EPOCH_BUMP_SINCE,
            lambda code: answer(lambda _: code),
            wait_ms=COMPLETION_WAIT_MS if is_producers else 0,
            is_allowed=is_allowed,
        )


def _find_partitions(
    topics: Requested, services: Services
) -> Generator[int, None, tuple[frozenset[TopicPartition], set[TopicPartition]]]:
    """Returns the partitions of the request, and which of them do not exist."""
    image = services.metadata.image
    requested: set[TopicPartition] = set()
    missing: set[TopicPartition] = set()
    count = 0
    for topic in topics:
        for index in topic.partitions:
            partition = TopicPartition(topic.name, index)
            requested.add(partition)
            if image.partition(*partition) is None:
                missing.add(partition)
            count += 1
            if count % _ROWS_PER_STEP == 0:
                yield 1
    return frozenset(requested), missing


def _codes_if_missing(missing: Set[TopicPartition]) -> CodeOf:
    """Returns the function from a partition to its error code, for a request with missing partitions, none of whose
    partitions is added.
    """

    def code_of(partition: TopicPartition) -> ErrorCode:
        if partition in missing:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.OPERATION_NOT_ATTEMPTED

    return code_of


def _older(code: ErrorCode, api_version: int) -> ErrorCode:
    """Returns the error code to send to clients of this version, which may not know `code`."""
    if code is ErrorCode.PRODUCER_FENCED and api_version < _FENCED_SINCE:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and api_version < _ABORTABLE_SINCE:
        return ErrorCode.INVALID_TXN_STATE
    return code


def _topics(topics: Requested, code_of: CodeOf, api_version: int) -> Generator[int, None, list[Topic]]:
    found = []
    count = 0
    for topic in topics:
        rows: list[Row] = []
        found.append(Topic(name=topic.name, results_by_partition=rows))
        for index in topic.partitions:
            code = _older(code_of(TopicPartition(topic.name, index)), api_version)
            rows.append(Row(partition_index=index, partition_error_code=code))
            count += 1
            if count % _ROWS_PER_STEP == 0:
                yield 1
    return found
