"""Authorization checks of APIs about groups and coordinators whose refusals need their own code."""

from __future__ import annotations

from typing import Any, Final

from barnabas.broker.requests.error_responses import PARTITIONS, ErrorRows, error_rows
from barnabas.broker.requests.judging import (
    CODES,
    Described,
    Judge,
    Judgement,
    Rows,
    Verdict,
    changed,
    may_describe_topic,
    split,
)
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

    def judge(self, judge: Judge, request: Message) -> Judgement:
        assert isinstance(request, OffsetDeleteRequest)
        if not judge.may(AclOperation.DELETE, AclResource.GROUP, request.group_id):
            return Verdict(request, judge.refusal(request, ErrorCode.GROUP_AUTHORIZATION_FAILED))
        allowed, denied = yield from split(
            judge, AclOperation.READ, AclResource.TOPIC, request.topics, self._ROWS.name_of
        )
        if not denied:
            return Verdict(request)
        rows = self._ROWS.refused(judge, request, denied)

        def amend(response: OffsetDeleteResponse) -> OffsetDeleteResponse:
            if response.error_code == ErrorCode.NONE:
                response.topics.extend(rows)
            return response

        return Verdict(changed(request, "topics", allowed), None, amend)


class OffsetFetch(Described):
    """DESCRIBE on each group and on each topic; of all topics, those that may be described."""

    _TOPICS = Rows(
        AclOperation.DESCRIBE,
        AclResource.TOPIC,
        ErrorRows("topics", "topics", inner=ErrorRows("partitions", "partition_indexes", key="partition_index")),
        "name",
        values=(("committed_offset", -1),),
    )

    def judge(self, judge: Judge, request: Message) -> Judgement:
        assert isinstance(request, OffsetFetchRequest)
        if judge.version >= 8:
            verdict = yield from self._groups(judge, request)
            return verdict
        if judge.may(AclOperation.DESCRIBE, AclResource.GROUP, request.group_id):
            if request.topics is not None:
                verdict = yield from self._TOPICS.judge(judge, request)
                return verdict

            def amend(response: OffsetFetchResponse) -> OffsetFetchResponse:
                response.topics = [topic for topic in response.topics if may_describe_topic(judge, topic.name)]
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
            if not judge.may(AclOperation.DESCRIBE, AclResource.GROUP, group.group_id):
                code = ErrorCode.GROUP_AUTHORIZATION_FAILED
                row = OffsetFetchResponse.OffsetFetchResponseGroup(group_id=group.group_id, error_code=code)
                refused.append(row)
                continue
            more[group.group_id] = None
            if group.topics is not None:
                allowed, denied = yield from split(
                    judge, AclOperation.DESCRIBE, AclResource.TOPIC, group.topics, self._TOPICS.name_of
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
                    answer.topics = [topic for topic in answer.topics if may_describe_topic(judge, topic.name)]
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


class ListGroups(Described):
    """No refusal; groups that the client may not describe are left out."""

    def judge(self, judge: Judge, request: Message) -> Judgement:
        if judge.may(AclOperation.DESCRIBE, AclResource.CLUSTER, log_denied=False):
            return Verdict(request)

        def amend(response: ListGroupsResponse) -> ListGroupsResponse:
            response.groups = [
                group
                for group in response.groups
                if judge.may(AclOperation.DESCRIBE, AclResource.GROUP, group.group_id, log_denied=False)
            ]
            return response

        return Verdict(request, None, amend)
        yield 1


class ConsumerGroupDescribe(Described):
    """DESCRIBE on each group and on each topic of its members; a group with a topic that the client may not describe is
    refused.
    """

    _ROWS = Rows(
        AclOperation.DESCRIBE, AclResource.GROUP, ErrorRows("groups", "group_ids", key="group_id"), is_silent=True
    )

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
                if not all(judge.may(AclOperation.DESCRIBE, AclResource.TOPIC, topic) for topic in sorted(topics)):
                    group.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                    group.error_message = _HIDDEN_TOPICS
                    group.members = []
            return response if verdict.amend is None else verdict.amend(response)

        return verdict._replace(amend=amend)


class SubscribedTopics(Described):
    """DESCRIBE on each topic that a member subscribes to by its name."""

    def judge(self, judge: Judge, request: Message) -> Judgement:
        assert isinstance(request, ConsumerGroupHeartbeatRequest)
        names = request.subscribed_topic_names
        if names:
            _, refused = yield from split(judge, AclOperation.DESCRIBE, AclResource.TOPIC, names, str)
            if refused:
                return Verdict(request, judge.refusal(request, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        return Verdict(request)


class FindCoordinator(Described):
    """DESCRIBE on each group or transactional id, by the type of the keys."""

    def judge(self, judge: Judge, request: Message) -> Judgement:
        assert isinstance(request, FindCoordinatorRequest)
        resource = {0: AclResource.GROUP, 1: AclResource.TRANSACTIONAL_ID}.get(request.key_type)
        if resource is None:
            if judge.may(AclOperation.CLUSTER_ACTION, AclResource.CLUSTER):
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
            values=(("node_id", -1), ("port", -1), ("error_message", "")),
        )
        verdict = yield from rows.judge(judge, request)
        return verdict
