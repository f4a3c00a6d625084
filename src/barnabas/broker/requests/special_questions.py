"""Authorization checks of single APIs whose refusals need their own code."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

from barnabas.broker.requests.error_responses import PARTITIONS, ErrorRows, error_rows
from barnabas.broker.requests.judging import CODES, TEXTS, Judge, Judgement, Rows, Verdict, changed, only_rows, split
from barnabas.common.config_keys import ResourceType
from barnabas.common.errors import ErrorCode
from barnabas.common.types import INTERNAL_TOPICS, ZERO_UUID
from barnabas.metadata.acls import AclOperation, AclResource
from barnabas.protocol.message import Message
from barnabas.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from barnabas.protocol.messages.consumer_group_describe import ConsumerGroupDescribeResponse
from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from barnabas.protocol.messages.describe_log_dirs import DescribeLogDirsResponse
from barnabas.protocol.messages.describe_transactions import DescribeTransactionsResponse
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.list_groups import ListGroupsResponse
from barnabas.protocol.messages.list_offsets import ListOffsetsRequest
from barnabas.protocol.messages.list_transactions import ListTransactionsResponse
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

_TOPIC: Final = AclResource.TOPIC
_GROUP: Final = AclResource.GROUP
_CLUSTER: Final = AclResource.CLUSTER
_TRANSACTIONAL_ID: Final = AclResource.TRANSACTIONAL_ID
_HIDDEN_TOPICS: Final = "The group has described topic(s) that the client is not authorized to describe."


@dataclass(frozen=True)
class _Described:
    """A check with its texts for the documentation."""

    asks: str
    refusal: str


# -- topics


class CreateTopics(_Described):
    """CREATE on the cluster or on each topic; without DESCRIBE_CONFIGS the result does not show configurations."""

    _ROWS = Rows(AclOperation.CREATE, _TOPIC, ErrorRows("topics", "topics"), "name")

    def judge(self, judge: Judge, request: Message) -> Judgement:
        assert isinstance(request, CreateTopicsRequest)
        counts = Counter(topic.name for topic in request.topics)
        refused: list[Any] = []
        if not judge.may(AclOperation.CREATE, _CLUSTER, log_denied=False):
            # Duplicates are refused by the controller, whatever the rights.
            single = [topic for topic in request.topics if counts[topic.name] == 1]
            _, refused = yield from split(judge, AclOperation.CREATE, _TOPIC, single, self._ROWS.name_of)
        rows = self._ROWS.refused(judge, request, refused) if refused else []
        for row in rows:
            row.error_message = "Authorization failed."
        names = {topic.name for topic in refused}
        left = [topic for topic in request.topics if topic.name not in names]
        if not left and rows:
            return Verdict(request, only_rows(request, self._ROWS.shape, rows))

        def amend(response: CreateTopicsResponse) -> CreateTopicsResponse:
            for result in response.topics:
                if result.error_code == ErrorCode.NONE and not judge.may(
                    AclOperation.DESCRIBE_CONFIGS, _TOPIC, result.name, log_denied=False
                ):
                    result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                    result.num_partitions = result.replication_factor = -1
                    result.configs = []
            response.topics.extend(rows)
            return response

        return Verdict(changed(request, "topics", left), None, amend)


class DeleteTopics(_Described):
    """DELETE on the cluster or on each topic. The response names a topic that is requested by id only if the client may
    describe it; a refusal by name does not reveal whether the topic exists.
    """

    def judge(self, judge: Judge, request: Message) -> Judgement:
        assert isinstance(request, DeleteTopicsRequest)
        if judge.may(AclOperation.DELETE, _CLUSTER, log_denied=False):
            return Verdict(request)
        by_name = "topics" if judge.version >= 6 else "topic_names"
        rows: list[DeleteTopicsResponse.DeletableTopicResult] = []
        left: list[Any] = []
        for place, topic in enumerate(getattr(request, by_name)):
            refusal = self._refusal(judge, topic)
            if refusal is None:
                left.append(topic)
            else:
                rows.append(refusal)
            if place % 50 == 49:
                yield 1
        if not rows:
            return Verdict(request)
        if not left:
            return Verdict(request, DeleteTopicsResponse(responses=rows))

        def amend(response: DeleteTopicsResponse) -> DeleteTopicsResponse:
            response.responses.extend(rows)
            return response

        return Verdict(changed(request, by_name, left), None, amend)

    def _refusal(self, judge: Judge, topic: Any) -> DeleteTopicsResponse.DeletableTopicResult | None:
        name, topic_id = (topic, ZERO_UUID) if isinstance(topic, str) else (topic.name, topic.topic_id)
        by_id = name is None
        if by_id:
            known = judge.image.topics_by_id.get(topic_id)
            if known is None:
                return None
            name = known.name
        if judge.may(AclOperation.DELETE, _TOPIC, name):
            return None
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        is_shown = not by_id or judge.may(AclOperation.DESCRIBE, _TOPIC, name)
        return DeleteTopicsResponse.DeletableTopicResult(
            name=name if is_shown else None, topic_id=topic_id, error_code=code, error_message=TEXTS[code]
        )


class ListOffsets(_Described):
    """DESCRIBE on each topic. A request with a replica id comes from a broker and needs CLUSTER_ACTION."""

    _ROWS = Rows(AclOperation.DESCRIBE, _TOPIC, ErrorRows("topics", "topics", inner=PARTITIONS), "name")

    def judge(self, judge: Judge, request: Message) -> Judgement:
        assert isinstance(request, ListOffsetsRequest)
        if request.replica_id < 0:
            verdict = yield from self._ROWS.judge(judge, request)
            return verdict
        if judge.may(AclOperation.CLUSTER_ACTION, _CLUSTER):
            return Verdict(request)
        rows = self._ROWS.refused(judge, request, request.topics)
        return Verdict(request, only_rows(request, self._ROWS.shape, rows))


class Configs:
    """A check for each resource, by its type. The handler refuses unknown types."""

    def __init__(self, operation: AclOperation, shape: ErrorRows) -> None:
        self._operation = operation
        self._shape = shape

    @property
    def asks(self) -> str:
        return f"{self._operation.name} on each topic or group, and on the cluster for brokers, loggers and metrics"

    @property
    def refusal(self) -> str:
        return "TOPIC_, GROUP_ or CLUSTER_AUTHORIZATION_FAILED for each one"

    def judge(self, judge: Judge, request: Message) -> Judgement:
        left: list[Any] = []
        rows: list[Any] = []
        for place, resource in enumerate(getattr(request, self._shape.of)):
            kind = self._type_of(resource)
            name = () if kind is _CLUSTER else (resource.resource_name,)
            if kind is None or judge.may(self._operation, kind, *name):
                left.append(resource)
            else:
                code = CODES[kind]
                one = changed(request, self._shape.of, [resource])
                rows += error_rows(one, judge.version, code, TEXTS[code], self._shape)
            if place % 50 == 49:
                yield 1
        if not rows:
            return Verdict(request)
        if not left:
            return Verdict(request, only_rows(request, self._shape, rows))

        def amend(response: Any) -> Any:
            getattr(response, self._shape.to).extend(rows)
            return response

        return Verdict(changed(request, self._shape.of, left), None, amend)

    @staticmethod
    def _type_of(resource: Any) -> AclResource | None:
        return _CONFIG_RESOURCES.get(resource.resource_type)


_CONFIG_RESOURCES: Final = {
    ResourceType.TOPIC: _TOPIC,
    ResourceType.GROUP: _GROUP,
    ResourceType.BROKER: _CLUSTER,
    ResourceType.BROKER_LOGGER: _CLUSTER,
    ResourceType.CLIENT_METRICS: _CLUSTER,
}


class DescribeLogDirs(_Described):
    """DESCRIBE on the cluster; older versions have no field for the refusal and show no directory."""

    def judge(self, judge: Judge, request: Message) -> Judgement:
        if judge.may(AclOperation.DESCRIBE, _CLUSTER):
            return Verdict(request)
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED if judge.version >= 3 else ErrorCode.NONE
        return Verdict(request, DescribeLogDirsResponse(error_code=code))
        yield 1


# -- groups


class OffsetFetch(_Described):
    """DESCRIBE on each group and on each topic; of all topics, those that may be described."""

    _TOPICS = Rows(
        AclOperation.DESCRIBE,
        _TOPIC,
        ErrorRows("topics", "topics", inner=ErrorRows("partitions", "partition_indexes", key="partition_index")),
        "name",
        values=(("committed_offset", -1),),
    )

    def judge(self, judge: Judge, request: Message) -> Judgement:
        assert isinstance(request, OffsetFetchRequest)
        if judge.version >= 8:
            verdict = yield from self._groups(judge, request)
            return verdict
        if judge.may(AclOperation.DESCRIBE, _GROUP, request.group_id):
            if request.topics is not None:
                verdict = yield from self._TOPICS.judge(judge, request)
                return verdict

            def amend(response: OffsetFetchResponse) -> OffsetFetchResponse:
                response.topics = [topic for topic in response.topics if _may_describe(judge, topic.name)]
                return response

            return Verdict(request, None, amend)
        code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        if judge.version >= 2:
            return Verdict(request, OffsetFetchResponse(error_code=code))
        rows = error_rows(request, judge.version, code, None, self._TOPICS.shape)
        for row in rows:
            for partition in row.partitions:
                partition.committed_offset = -1
        return Verdict(request, OffsetFetchResponse(topics=rows))

    def _groups(self, judge: Judge, request: OffsetFetchRequest) -> Judgement:
        left: list[OffsetFetchRequest.OffsetFetchRequestGroup] = []
        refused: list[OffsetFetchResponse.OffsetFetchResponseGroup] = []
        #: Group id -> the rows of its refused topics; None if all topics were requested.
        more: dict[str, list[Any] | None] = {}
        for group in request.groups:
            if not judge.may(AclOperation.DESCRIBE, _GROUP, group.group_id):
                code = ErrorCode.GROUP_AUTHORIZATION_FAILED
                row = OffsetFetchResponse.OffsetFetchResponseGroup(group_id=group.group_id, error_code=code)
                refused.append(row)
                continue
            more[group.group_id] = None
            if group.topics is not None:
                allowed, denied = yield from split(
                    judge, AclOperation.DESCRIBE, _TOPIC, group.topics, self._TOPICS.name_of
                )
                more[group.group_id] = [_unauthorized(topic) for topic in denied]
                if denied:
                    group.topics = allowed
            left.append(group)
            yield 1

        def amend(response: OffsetFetchResponse) -> OffsetFetchResponse:
            for answer in response.groups:
                if answer.error_code != ErrorCode.NONE:
                    continue
                rows = more.get(answer.group_id)
                if rows is None:
                    answer.topics = [topic for topic in answer.topics if _may_describe(judge, topic.name)]
                else:
                    answer.topics.extend(rows)
            response.groups.extend(refused)
            return response

        if not left and refused:
            return Verdict(request, OffsetFetchResponse(groups=refused))
        return Verdict(changed(request, "groups", left), None, amend)


def _unauthorized(topic: OffsetFetchRequest.OffsetFetchRequestTopics) -> OffsetFetchResponse.OffsetFetchResponseTopics:
    return OffsetFetchResponse.OffsetFetchResponseTopics(
        name=topic.name,
        partitions=[
            OffsetFetchResponse.OffsetFetchResponsePartitions(
                partition_index=index, committed_offset=-1, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED
            )
            for index in topic.partition_indexes
        ],
    )


def _may_describe(judge: Judge, topic: str) -> bool:
    return judge.may(AclOperation.DESCRIBE, _TOPIC, topic, log_denied=False)


class ListGroups(_Described):
    """No refusal; groups that the client may not describe are left out."""

    def judge(self, judge: Judge, request: Message) -> Judgement:
        if judge.may(AclOperation.DESCRIBE, _CLUSTER, log_denied=False):
            return Verdict(request)

        def amend(response: ListGroupsResponse) -> ListGroupsResponse:
            response.groups = [
                group
                for group in response.groups
                if judge.may(AclOperation.DESCRIBE, _GROUP, group.group_id, log_denied=False)
            ]
            return response

        return Verdict(request, None, amend)
        yield 1


class ConsumerGroupDescribe(_Described):
    """DESCRIBE on each group and on each topic of its members; a group with a topic that the client may not describe is
    refused.
    """

    _ROWS = Rows(AclOperation.DESCRIBE, _GROUP, ErrorRows("groups", "group_ids", key="group_id"), is_silent=True)

    def judge(self, judge: Judge, request: Message) -> Judgement:
        verdict = yield from self._ROWS.judge(judge, request)
        if verdict.response is not None:
            return verdict

        def amend(response: ConsumerGroupDescribeResponse) -> ConsumerGroupDescribeResponse:
            for group in response.groups:
                topics = {
                    topic.topic_name
                    for member in group.members
                    for assignment in (member.assignment, member.target_assignment)
                    for topic in assignment.topic_partitions
                }
                if not all(judge.may(AclOperation.DESCRIBE, _TOPIC, topic) for topic in sorted(topics)):
                    group.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                    group.error_message = _HIDDEN_TOPICS
                    group.members = []
            return response if verdict.amend is None else verdict.amend(response)

        return verdict._replace(amend=amend)


class SubscribedTopics(_Described):
    """DESCRIBE on each topic that a member subscribes to by its name."""

    def judge(self, judge: Judge, request: Message) -> Judgement:
        assert isinstance(request, ConsumerGroupHeartbeatRequest)
        names = request.subscribed_topic_names
        if names:
            _, refused = yield from split(judge, AclOperation.DESCRIBE, _TOPIC, names, str)
            if refused:
                return Verdict(request, judge.refusal(request, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        return Verdict(request)


class FindCoordinator(_Described):
    """DESCRIBE on each group or transactional id, by the type of the keys."""

    def judge(self, judge: Judge, request: Message) -> Judgement:
        assert isinstance(request, FindCoordinatorRequest)
        resource = {0: _GROUP, 1: _TRANSACTIONAL_ID}.get(request.key_type)
        if resource is None:
            if judge.may(AclOperation.CLUSTER_ACTION, _CLUSTER):
                return Verdict(request)
            return Verdict(request, judge.refusal(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
        if judge.version < 4:
            if judge.may(AclOperation.DESCRIBE, resource, request.key):
                return Verdict(request)
            refusal: Any = judge.refusal(request, CODES[resource])
            nobody = FindCoordinatorResponse(
                error_code=refusal.error_code, error_message=refusal.error_message, node_id=-1, port=-1
            )
            return Verdict(request, nobody)
        rows = Rows(
            AclOperation.DESCRIBE,
            resource,
            ErrorRows("coordinators", "coordinator_keys", key="key"),
            values=(("node_id", -1), ("port", -1)),
        )
        verdict = yield from rows.judge(judge, request)
        return verdict


# -- transactions


class InitProducerId(_Described):
    """WRITE on the transactional id; without one, IDEMPOTENT_WRITE on the cluster, or WRITE on any topic."""

    def judge(self, judge: Judge, request: Message) -> Judgement:
        assert isinstance(request, InitProducerIdRequest)
        if request.transactional_id is not None:
            if judge.may(AclOperation.WRITE, _TRANSACTIONAL_ID, request.transactional_id):
                return Verdict(request)
            code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        else:
            if judge.may(AclOperation.IDEMPOTENT_WRITE, _CLUSTER, log_denied=False) or judge.authorizer.allows_any(
                judge.asker, AclOperation.WRITE, _TOPIC
            ):
                return Verdict(request)
            code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        response: Any = judge.refusal(request, code)
        response.producer_id = response.producer_epoch = -1
        return Verdict(request, response)
        yield 1


class AddPartitionsToTxn(_Described):
    """WRITE on the transactional id and on each topic for requests of producers; without one of these rights nothing is
    added. CLUSTER_ACTION for requests of brokers (from version 4).
    """

    def judge(self, judge: Judge, request: Message) -> Judgement:
        assert isinstance(request, AddPartitionsToTxnRequest)
        if judge.version >= 4:
            if judge.may(AclOperation.CLUSTER_ACTION, _CLUSTER):
                return Verdict(request)
            return Verdict(request, AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
        topics = request.v3_and_below_topics
        if not judge.may(AclOperation.WRITE, _TRANSACTIONAL_ID, request.v3_and_below_transactional_id):
            return Verdict(request, judge.refusal(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
        names = [topic.name for topic in topics if topic.name not in INTERNAL_TOPICS]
        allowed, _ = yield from split(judge, AclOperation.WRITE, _TOPIC, names, str)
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


class WriteTxnMarkers(_Described):
    """ALTER or CLUSTER_ACTION on the cluster."""

    def judge(self, judge: Judge, request: Message) -> Judgement:
        if judge.may(AclOperation.ALTER, _CLUSTER, log_denied=False) or judge.may(
            AclOperation.CLUSTER_ACTION, _CLUSTER
        ):
            return Verdict(request)
        return Verdict(request, judge.refusal(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
        yield 1


class DescribeTransactions(_Described):
    """DESCRIBE on each transactional id; topics that the client may not describe are left out."""

    _ROWS = Rows(
        AclOperation.DESCRIBE,
        _TRANSACTIONAL_ID,
        ErrorRows("transaction_states", "transactional_ids", key="transactional_id"),
    )

    def judge(self, judge: Judge, request: Message) -> Judgement:
        verdict = yield from self._ROWS.judge(judge, request)
        if verdict.response is not None:
            return verdict

        def amend(response: DescribeTransactionsResponse) -> DescribeTransactionsResponse:
            for state in response.transaction_states:
                state.topics = [topic for topic in state.topics if _may_describe(judge, topic.topic)]
            return response if verdict.amend is None else verdict.amend(response)

        return verdict._replace(amend=amend)


class ListTransactions(_Described):
    """No refusal; transactional ids that the client may not describe are left out."""

    def judge(self, judge: Judge, request: Message) -> Judgement:
        def amend(response: ListTransactionsResponse) -> ListTransactionsResponse:
            response.transaction_states = [
                state
                for state in response.transaction_states
                if judge.may(AclOperation.DESCRIBE, _TRANSACTIONAL_ID, state.transactional_id)
            ]
            return response

        return Verdict(request, None, amend)
        yield 1
