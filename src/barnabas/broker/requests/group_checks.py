"""Authorization checks of APIs about groups and coordinators whose refusals need their own code."""

from __future__ import annotations

from typing import Any, Final

from barnabas.broker.requests.authorization import (
    CODES,
    AuthorizationContext,
    AuthorizationResult,
    AuthorizationSteps,
    Described,
    Rows,
    changed,
    may_describe_topic,
    split,
)
from barnabas.broker.requests.error_responses import PARTITIONS, ErrorRows, error_rows
from barnabas.common.errors import ErrorCode
from barnabas.metadata.acls import AclOperation, AclResource
from barnabas.protocol.message import Message
from barnabas.protocol.messages.consumer_group_describe import ConsumerGroupDescribeResponse
from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.protocol.messages.list_groups import ListGroupsResponse
from barnabas.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

_HIDDEN_TOPICS: Final = "The group has described topic(s) that the client is not authorized to describe."


class OffsetDelete(Described):
    """DELETE on the group and READ on each topic. The coordinator decides about the group although no topic is left: an
    error of the group replaces the rows."""

    _ROWS = Rows(AclOperation.READ, AclResource.TOPIC, ErrorRows("topics", "topics", inner=PARTITIONS), "name")

    def authorize(self, context: AuthorizationContext, request: Message) -> AuthorizationSteps:
        assert isinstance(request, OffsetDeleteRequest)
        if not context.allows(AclOperation.DELETE, AclResource.GROUP, request.group_id):
            return AuthorizationResult(request, context.refusal(request, ErrorCode.GROUP_AUTHORIZATION_FAILED))
        allowed, denied = yield from split(
            context, AclOperation.READ, AclResource.TOPIC, request.topics, self._ROWS.name_of
        )
        if not denied:
            return AuthorizationResult(request)
        rows = self._ROWS.refused(context, request, denied)

        def amend(response: OffsetDeleteResponse) -> OffsetDeleteResponse:
            if response.error_code == ErrorCode.NONE:
                response.topics.extend(rows)
            return response

        return AuthorizationResult(changed(request, "topics", allowed), None, amend)


class OffsetFetch(Described):
    """DESCRIBE on each group and on each topic; of all topics, those that may be described."""

    _TOPICS = Rows(
        AclOperation.DESCRIBE,
        AclResource.TOPIC,
        ErrorRows("topics", "topics", inner=ErrorRows("partitions", "partition_indexes", key="partition_index")),
        "name",
        values=(("committed_offset", -1),),
    )

    def authorize(self, context: AuthorizationContext, request: Message) -> AuthorizationSteps:
        assert isinstance(request, OffsetFetchRequest)
        if context.version >= 8:
            outcome = yield from self._groups(context, request)
            return outcome
        if context.allows(AclOperation.DESCRIBE, AclResource.GROUP, request.group_id):
            if request.topics is not None:
                outcome = yield from self._TOPICS.authorize(context, request)
                return outcome

            def amend(response: OffsetFetchResponse) -> OffsetFetchResponse:
                response.topics = [topic for topic in response.topics if may_describe_topic(context, topic.name)]
                return response

            return AuthorizationResult(request, None, amend)
        code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        if context.version >= 2:
            return AuthorizationResult(request, OffsetFetchResponse(error_code=code))
        rows = error_rows(request, context.version, code, None, self._TOPICS.shape)
        for row in rows:
            for partition in row.partitions:
                partition.committed_offset = -1
        return AuthorizationResult(request, OffsetFetchResponse(topics=rows))

    def _groups(self, context: AuthorizationContext, request: OffsetFetchRequest) -> AuthorizationSteps:
        left: list[OffsetFetchRequest.OffsetFetchRequestGroup] = []
        refused: list[OffsetFetchResponse.OffsetFetchResponseGroup] = []
        #: The rows of the refused topics of each group in `left`; None if all topics were requested. A request can name
        #: a group several times.
        more: list[list[Any] | None] = []
        for group in request.groups:
            if not context.allows(AclOperation.DESCRIBE, AclResource.GROUP, group.group_id):
                code = ErrorCode.GROUP_AUTHORIZATION_FAILED
                row = OffsetFetchResponse.OffsetFetchResponseGroup(group_id=group.group_id, error_code=code)
                refused.append(row)
                continue
            rows: list[Any] | None = None
            if group.topics is not None:
                allowed, denied = yield from split(
                    context, AclOperation.DESCRIBE, AclResource.TOPIC, group.topics, self._TOPICS.name_of
                )
                rows = [_unauthorized(topic) for topic in denied]
                if denied:
                    group.topics = allowed
            left.append(group)
            more.append(rows)
            yield 1

        def amend(response: OffsetFetchResponse) -> OffsetFetchResponse:
            for answer, rows in zip(response.groups, more, strict=True):
                if answer.error_code != ErrorCode.NONE:
                    continue
                if rows is None:
                    answer.topics = [topic for topic in answer.topics if may_describe_topic(context, topic.name)]
                else:
                    answer.topics.extend(rows)
            response.groups.extend(refused)
            return response

        if not left and refused:
            return AuthorizationResult(request, OffsetFetchResponse(groups=refused))
        return AuthorizationResult(changed(request, "groups", left), None, amend)


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


class ListGroups(Described):
    """No refusal; groups that the client may not describe are left out."""

    def authorize(self, context: AuthorizationContext, request: Message) -> AuthorizationSteps:
        if context.allows(AclOperation.DESCRIBE, AclResource.CLUSTER, log_denied=False):
            return AuthorizationResult(request)

        def amend(response: ListGroupsResponse) -> ListGroupsResponse:
            response.groups = [
                group
                for group in response.groups
                if context.allows(AclOperation.DESCRIBE, AclResource.GROUP, group.group_id, log_denied=False)
            ]
            return response

        return AuthorizationResult(request, None, amend)
        yield 1


class ConsumerGroupDescribe(Described):
    """DESCRIBE on each group and on each topic of its members; a group with a topic that the client may not describe is
    refused.
    """

    _ROWS = Rows(
        AclOperation.DESCRIBE, AclResource.GROUP, ErrorRows("groups", "group_ids", key="group_id"), is_silent=True
    )

    def authorize(self, context: AuthorizationContext, request: Message) -> AuthorizationSteps:
        outcome = yield from self._ROWS.authorize(context, request)
        if outcome.response is not None:
            return outcome

        def amend(response: ConsumerGroupDescribeResponse) -> ConsumerGroupDescribeResponse:
            for group in response.groups:
                topics = {
                    topic.topic_name
                    for member in group.members
                    for assignment in (member.assignment, member.target_assignment)
                    for topic in assignment.topic_partitions
                }
                if not all(context.allows(AclOperation.DESCRIBE, AclResource.TOPIC, topic) for topic in sorted(topics)):
                    group.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                    group.error_message = _HIDDEN_TOPICS
                    group.members = []
            return response if outcome.amend is None else outcome.amend(response)

        return outcome._replace(amend=amend)


class SubscribedTopics(Described):
    """DESCRIBE on each topic that a member subscribes to by its name."""

    def authorize(self, context: AuthorizationContext, request: Message) -> AuthorizationSteps:
        assert isinstance(request, ConsumerGroupHeartbeatRequest)
        names = request.subscribed_topic_names
        if names:
            _, refused = yield from split(context, AclOperation.DESCRIBE, AclResource.TOPIC, names, str)
            if refused:
                return AuthorizationResult(request, context.refusal(request, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        return AuthorizationResult(request)


class FindCoordinator(Described):
    """DESCRIBE on each group or transactional id, by the type of the keys."""

    def authorize(self, context: AuthorizationContext, request: Message) -> AuthorizationSteps:
        assert isinstance(request, FindCoordinatorRequest)
        resource = {0: AclResource.GROUP, 1: AclResource.TRANSACTIONAL_ID}.get(request.key_type)
        if resource is None:
            if context.allows(AclOperation.CLUSTER_ACTION, AclResource.CLUSTER):
                return AuthorizationResult(request)
            return AuthorizationResult(request, context.refusal(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
        if context.version < 4:
            if context.allows(AclOperation.DESCRIBE, resource, request.key):
                return AuthorizationResult(request)
            refusal: Any = context.refusal(request, CODES[resource])
            nobody = FindCoordinatorResponse(
                error_code=refusal.error_code, error_message=refusal.error_message, node_id=-1, port=-1
            )
            return AuthorizationResult(request, nobody)
        rows = Rows(
            AclOperation.DESCRIBE,
            resource,
            ErrorRows("coordinators", "coordinator_keys", key="key"),
            values=(("node_id", -1), ("port", -1), ("error_message", "")),
        )
        outcome = yield from rows.authorize(context, request)
        return outcome
