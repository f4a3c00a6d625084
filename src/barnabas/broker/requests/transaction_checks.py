"""Authorization checks of APIs about transactions whose refusals need their own code."""

from __future__ import annotations

from typing import Any

from barnabas.broker.requests.authorization import (
    AuthorizationContext,
    AuthorizationResult,
    AuthorizationSteps,
    Described,
    Rows,
    may_describe_topic,
    split,
)
from barnabas.broker.requests.error_responses import ErrorRows
from barnabas.common.errors import ErrorCode
from barnabas.common.types import INTERNAL_TOPICS
from barnabas.metadata.acls import AclOperation, AclResource
from barnabas.protocol.message import Message
from barnabas.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from barnabas.protocol.messages.describe_transactions import DescribeTransactionsResponse
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.list_transactions import ListTransactionsResponse


class InitProducerId(Described):
    """WRITE on the transactional id; without one, IDEMPOTENT_WRITE on the cluster, or WRITE on any topic."""

    def authorize(self, context: AuthorizationContext, request: Message) -> AuthorizationSteps:
        assert isinstance(request, InitProducerIdRequest)
        if request.transactional_id is not None:
            if context.allows(AclOperation.WRITE, AclResource.TRANSACTIONAL_ID, request.transactional_id):
                return AuthorizationResult(request)
            code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        else:
            if context.allows(
                AclOperation.IDEMPOTENT_WRITE, AclResource.CLUSTER, log_denied=False
            ) or context.authorizer.allows_any(context.requester, AclOperation.WRITE, AclResource.TOPIC):
                return AuthorizationResult(request)
            code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        response: Any = context.refusal(request, code)
        response.producer_id = response.producer_epoch = -1
        return AuthorizationResult(request, response)
        yield 1


class AddPartitionsToTxn(Described):
    """WRITE on the transactional id and on each topic for requests of producers; without one of these rights nothing is
    added. CLUSTER_ACTION for requests of brokers (from version 4).
    """

    def authorize(self, context: AuthorizationContext, request: Message) -> AuthorizationSteps:
        assert isinstance(request, AddPartitionsToTxnRequest)
        if context.version >= 4:
            if context.allows(AclOperation.CLUSTER_ACTION, AclResource.CLUSTER):
                return AuthorizationResult(request)
            return AuthorizationResult(
                request, AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            )
        topics = request.v3_and_below_topics
        if not context.allows(AclOperation.WRITE, AclResource.TRANSACTIONAL_ID, request.v3_and_below_transactional_id):
            return AuthorizationResult(
                request, context.refusal(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            )
        names = [topic.name for topic in topics if topic.name not in INTERNAL_TOPICS]
        allowed, _ = yield from split(context, AclOperation.WRITE, AclResource.TOPIC, names, str)
        writable = set(allowed)
        if all(topic.name in writable for topic in topics):
            return AuthorizationResult(request)

        def code_of(topic: str, index: int) -> ErrorCode:
            if topic not in writable:
                return ErrorCode.TOPIC_AUTHORIZATION_FAILED
            if context.image.partition(topic, index) is None:
                return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return ErrorCode.OPERATION_NOT_ATTEMPTED

        results = [
            AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult(
                        partition_index=index, partition_error_code=code_of(topic.name, index)
                    )
                    for index in topic.partitions
                ],
            )
            for topic in topics
        ]
        return AuthorizationResult(request, AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results))


class WriteTxnMarkers(Described):
    """ALTER or CLUSTER_ACTION on the cluster."""

    def authorize(self, context: AuthorizationContext, request: Message) -> AuthorizationSteps:
        if context.allows(AclOperation.ALTER, AclResource.CLUSTER, log_denied=False) or context.allows(
            AclOperation.CLUSTER_ACTION, AclResource.CLUSTER
        ):
            return AuthorizationResult(request)
        return AuthorizationResult(request, context.refusal(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
        yield 1


class DescribeTransactions(Described):
    """DESCRIBE on each transactional id; topics that the client may not describe are left out."""

    _ROWS = Rows(
        AclOperation.DESCRIBE,
        AclResource.TRANSACTIONAL_ID,
        ErrorRows("transaction_states", "transactional_ids", key="transactional_id"),
    )

    def authorize(self, context: AuthorizationContext, request: Message) -> AuthorizationSteps:
        outcome = yield from self._ROWS.authorize(context, request)
        if outcome.response is not None:
            return outcome

        def amend(response: DescribeTransactionsResponse) -> DescribeTransactionsResponse:
            for state in response.transaction_states:
                state.topics = [topic for topic in state.topics if may_describe_topic(context, topic.topic)]
            return response if outcome.amend is None else outcome.amend(response)

        return outcome._replace(amend=amend)


class ListTransactions(Described):
    """No refusal; transactional ids that the client may not describe are left out."""

    def authorize(self, context: AuthorizationContext, request: Message) -> AuthorizationSteps:
        def amend(response: ListTransactionsResponse) -> ListTransactionsResponse:
            response.transaction_states = [
                state
                for state in response.transaction_states
                if context.allows(AclOperation.DESCRIBE, AclResource.TRANSACTIONAL_ID, state.transactional_id)
            ]
            return response

        return AuthorizationResult(request, None, amend)
        yield 1
