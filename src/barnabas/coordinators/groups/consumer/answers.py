"""The descriptions of consumer groups: ConsumerGroupDescribe, and their entries in ListGroups."""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from barnabas.common.errors import ErrorCode
from barnabas.coordinators.groups.consumer.group import ConsumerGroup
from barnabas.coordinators.groups.consumer.member import Assignment, Member
from barnabas.coordinators.groups.consumer.topic_summaries import Topics
from barnabas.coordinators.groups.subscription import CONSUMER
from barnabas.protocol.messages.consumer_group_describe import ConsumerGroupDescribeResponse
from barnabas.protocol.messages.list_groups import ListGroupsResponse

_CLASSIC_MEMBER = 0
_CONSUMER_MEMBER = 1
#: The fixed cost of a described member, compared with one of its topics, and the work of a quarter of a millisecond.
_MEMBER_WORK: Final = 8
_WORK_PER_UNIT: Final = 400


def described(
    group: ConsumerGroup, assignor: str, topics: Topics
) -> Generator[int, None, ConsumerGroupDescribeResponse.DescribedGroup]:
    members = []
    work = 0
    for member in group.in_order():
        members.append(_described_member(group, member, topics))
        work += _MEMBER_WORK + len(member.topic_names) + len(member.assigned) + len(group.target(member.member_id))
        if work > _WORK_PER_UNIT:
            yield work // _WORK_PER_UNIT
            work = 0
    return ConsumerGroupDescribeResponse.DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=assignor,
        members=members,
    )


def describe_failed(
    group_id: str, code: ErrorCode, message: str | None = None
) -> ConsumerGroupDescribeResponse.DescribedGroup:
    return ConsumerGroupDescribeResponse.DescribedGroup(error_code=code, error_message=message, group_id=group_id)


def listed(group: ConsumerGroup) -> ListGroupsResponse.ListedGroup:
    return ListGroupsResponse.ListedGroup(
        group_id=group.group_id, protocol_type=CONSUMER, group_state=group.state.value, group_type="consumer"
    )


def _described_member(group: ConsumerGroup, member: Member, topics: Topics) -> ConsumerGroupDescribeResponse.Member:
    return ConsumerGroupDescribeResponse.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        subscribed_topic_regex=member.regex,
        assignment=_assignment(member.assigned, topics),
        target_assignment=_assignment(group.target(member.member_id), topics),
        member_type=_CLASSIC_MEMBER if member.is_classic else _CONSUMER_MEMBER,
    )


def _assignment(assignment: Assignment, topics: Topics) -> ConsumerGroupDescribeResponse.Assignment:
    """Returns the assignment without deleted topics, which have no name any more."""
    found = [(topics.find_id(topic_id), assignment[topic_id]) for topic_id in sorted(assignment)]
    return ConsumerGroupDescribeResponse.Assignment(
        topic_partitions=[
            ConsumerGroupDescribeResponse.TopicPartitions(
                topic_id=topic.topic_id, topic_name=topic.name, partitions=sorted(partitions)
            )
            for topic, partitions in found
            if topic is not None
        ]
    )
