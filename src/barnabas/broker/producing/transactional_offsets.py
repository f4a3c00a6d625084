"""TxnOffsetCommit: adds the group's partition to the transaction, then passes the request to the group coordinator."""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from barnabas.broker.peers.partition_verification import Codes, Verification
from barnabas.broker.requests.authorization import AuthorizationResult
from barnabas.broker.requests.context import RequestContext, Services
from barnabas.broker.requests.request_rights import authorized
from barnabas.common.continuations import owner
from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.common.types import GROUP_METADATA_TOPIC, TopicPartition
from barnabas.coordinators.transactions.transitions import ProducerIdentity
from barnabas.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from barnabas.storage.marker_guard import MarkerGuard, has_ongoing

#: The versions from which a client understands TRANSACTION_ABORTABLE, and from which the broker adds the partition.
_LOADING_SINCE: Final = 2
_ABORTABLE_SINCE: Final = 4
_ADDS_SINCE: Final = 5
#: The name of the handler, for its authorization check.
_HANDLER: Final = "txn_offset_commit"

#: The number of rows built per step.
_ROWS_PER_STEP: Final = 200


def commit(context: RequestContext, request: TxnOffsetCommitRequest, services: Services) -> None:
    """Commits offsets in a transaction. Clients before version 2 can crash on COORDINATOR_LOAD_IN_PROGRESS
    (KAFKA-7296), so they get COORDINATOR_NOT_AVAILABLE."""
    partition = TopicPartition(GROUP_METADATA_TOPIC, services.groups.partition_for(request.group_id))
    producer = ProducerIdentity(request.producer_id, request.producer_epoch)
    adds = context.api_version >= _ADDS_SINCE

    def reply(response: TxnOffsetCommitResponse) -> None:
        for topic in response.topics if context.api_version < _LOADING_SINCE else ():
            for row in topic.partitions:
                if row.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                    row.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        context.reply(response)

    def refuse(code: ErrorCode) -> None:
        services.steps.begin(_refused(request, code), reply, owner())

    if not request.group_id:
        refuse(ErrorCode.INVALID_GROUP_ID)
        return
    try:
        producers = services.replicas.leader(*partition).log.producers
    except RequestFailed:
        refuse(ErrorCode.NOT_COORDINATOR)
        return
    if has_ongoing(producers, *producer) or not (adds or services.verifier.is_enabled):
        services.groups.commit_offsets_in_transaction(context, request, reply)
        return
    guard = MarkerGuard(producers, producer.producer_id)

    def answered(codes: Codes) -> None:
        code = codes[partition]
        if code is ErrorCode.NONE and not adds and not guard.holds:
            code = ErrorCode.INVALID_TXN_STATE
        if code is not ErrorCode.NONE:
            refuse(_refusal(code, context.api_version))
        elif services.authorizer is None:
            services.groups.commit_offsets_in_transaction(context, request, reply)
        else:
            # The client's right may have ended while the coordinator was asked.
            services.steps.begin(authorized(context, _HANDLER, request, services), judged, owner())

    def judged(outcome: AuthorizationResult) -> None:
        if outcome.response is not None:
            context.reply(outcome.response)
            return
        amend = outcome.amend or (lambda response: response)
        assert isinstance(outcome.request, TxnOffsetCommitRequest)
        services.groups.commit_offsets_in_transaction(context, outcome.request, lambda found: reply(amend(found)))

    services.verifier.verify(Verification(request.transactional_id, producer, [partition], adds), answered)


def _refusal(code: ErrorCode, api_version: int) -> ErrorCode:
    if code is ErrorCode.TRANSACTION_ABORTABLE and api_version < _ABORTABLE_SINCE:
        return ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.NETWORK_EXCEPTION or (code is ErrorCode.CONCURRENT_TRANSACTIONS and api_version < _ADDS_SINCE):
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    # The transaction coordinator has moved, not the one that the client asked: the client need not find another.
    return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if code is ErrorCode.NOT_COORDINATOR else code


def _refused(request: TxnOffsetCommitRequest, code: ErrorCode) -> Generator[int, None, TxnOffsetCommitResponse]:
    """Returns a response with the same code for each partition."""
    response = TxnOffsetCommitResponse()
    count = 0
    for topic in request.topics:
        rows: list[TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition] = []
        response.topics.append(TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic(name=topic.name, partitions=rows))
        for requested in topic.partitions:
            rows.append(
                TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition(
                    partition_index=requested.partition_index, error_code=code
                )
            )
            count += 1
            if count % _ROWS_PER_STEP == 0:
                yield 1
    return response
