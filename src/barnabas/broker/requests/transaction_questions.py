"""Authorization checks of APIs about transactions whose refusals need their own code."""

from __future__ import annotations

from typing import Any

from barnabas.broker.requests.error_responses import ErrorRows
from barnabas.broker.requests.judging import (
    Described,
    Judge,
    Judgement,
    Rows,
    Verdict,
    may_describe_topic,
    split,
)
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

    def judge(self, judge: Judge, request: Message) -> Judgement:
        assert isinstance(request, InitProducerIdRequest)
        if request.transactional_id is not None:
            if judge.may(AclOperation.WRITE, AclResource.TRANSACTIONAL_ID, request.transactional_id):
                return Verdict(request)
            code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        else:
            if judge.may(
                AclOperation.IDEMPOTENT_WRITE, AclResource.CLUSTER, log_denied=False
            ) or judge.authorizer.allows_any(judge.asker, AclOperation.WRITE, AclResource.TOPIC):
                return Verdict(request)
            code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        response: Any = judge.refusal(request, code)
        response.producer_id = response.producer_epoch = -1
        return Verdict(request, response)
        yield 1


class AddPartitionsToTxn(Described):
    """WRITE on the transactional id and on each topic for requests of producers; without one of these rights nothing is
    added. CLUSTER_ACTION for requests of brokers (from version 4).
    """

    def judge(self, judge: Judge, request: Message) -> Judgement:
        assert isinstance(request, AddPartitionsToTxnRequest)
        if judge.version >= 4:
            if judge.may(AclOperation.CLUSTER_ACTION, AclResource.CLUSTER):
                return Verdict(request)
            return Verdict(request, AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
        topics = request.v3_and_below_topics
        if not judge.may(AclOperation.WRITE, AclResource.TRANSACTIONAL_ID, request.v3_and_below_transactional_id):
            return Verdict(request, judge.refusal(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
        names = [topic.name for topic in topics if topic.name not in INTERNAL_TOPICS]
        allowed, _ = yield from split(judge, AclOperation.WRITE, AclResource.TOPIC, names, str)
        writable = set(allowed)
        if all(topic.name in writable for topic in topics):
            return Verdict(request)

        def code_of(topic: str, index: int) -> ErrorCode:
            if topic not in writable:
                return ErrorCode.TOPIC_AUTHORIZATION_FAILED
            if judge.image.partition(topic, index) is None:
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
        return Verdict(request, AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results))


class WriteTxnMarkers(Described):
    """ALTER or CLUSTER_ACTION on the cluster."""

    def judge(self, judge: Judge, request: Message) -> Judgement:
        if judge.may(AclOperation.ALTER, AclResource.CLUSTER, log_denied=False) or judge.may(
            AclOperation.CLUSTER_ACTION, AclResource.CLUSTER
        ):
            return Verdict(request)
        return Verdict(request, judge.refusal(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
        yield 1


class DescribeTransactions(Described):
    """DESCRIBE on each transactional id; topics that the client may not describe are left out."""

    _ROWS = Rows(
        AclOperation.DESCRIBE,
        AclResource.TRANSACTIONAL_ID,
        ErrorRows("transaction_states", "transactional_ids", key="transactional_id"),
    )

    def judge(self, judge: Judge, request: Message) -> Judgement:
        verdict = yield from self._ROWS.judge(judge, request)
        if verdict.response is not None:
            return verdict

        def amend(response: DescribeTransactionsResponse) -> DescribeTransactionsResponse:
            for state in response.transaction_states:
                state.topics = [topic for topic in state.topics if may_describe_topic(judge, topic.topic)]
            return response if verdict.amend is None else verdict.amend(response)

        return verdict._replace(amend=amend)


class ListTransactions(Described):
    """No refusal; transactional ids that the client may not describe are left out."""

    def judge(self, judge: Judge, request: Message) -> Judgement:
        def amend(response: ListTransactionsResponse) -> ListTransactionsResponse:
            response.transaction_states = [
                state
                for state in response.transaction_states
                if judge.may(AclOperation.DESCRIBE, AclResource.TRANSACTIONAL_ID, state.transactional_id)
            ]
            return response

        return Verdict(request, None, amend)
        yield 1
