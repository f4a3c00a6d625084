"""Checks of ConsumerGroupHeartbeat requests that do not depend on the group, made before all others."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Final

from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.coordinators.groups.consumer.member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    PER_UNIT,
    STATIC_LEAVE_EPOCH,
    Assignment,
)
from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

#: The version since which members choose their own ids (KIP-1082).
_MEMBER_ID_REQUIRED_SINCE: Final = 1

#: The number of topics in one member's subscription: each costs some microseconds with every change of the group. A
#: regular expression can match more.
TOPICS_MAX: Final = 10_000

#: The fixed cost of a reported topic, compared with one of its partitions, and the cost of a quarter of a millisecond.
_TOPIC_WORK: Final = 25
_WORK_PER_UNIT: Final = 10_000


def check_heartbeat(request: ConsumerGroupHeartbeatRequest, api_version: int, assignors: Sequence[str]) -> None:
    """Raises RequestFailed with INVALID_REQUEST or UNSUPPORTED_ASSIGNOR, and Kafka's message, for a heartbeat that is
    invalid in itself.
    """
    epoch = request.member_epoch
    needs_id = api_version >= _MEMBER_ID_REQUIRED_SINCE or epoch != JOIN_EPOCH
    if needs_id:
        _refuse_if(request.member_id == "", "MemberId can't be empty.")
    _refuse_if(request.group_id == "", "GroupId can't be empty.")
    _refuse_if(request.instance_id == "", "InstanceId can't be empty.")
    _refuse_if(request.rack_id == "", "RackId can't be empty.")
    is_long = len(request.subscribed_topic_names or ()) > TOPICS_MAX
    _refuse_if(is_long, f"SubscribedTopicNames has more than {TOPICS_MAX} names.")
    if epoch == JOIN_EPOCH:
        _refuse_if(request.rebalance_timeout_ms == -1, "RebalanceTimeoutMs must be provided in first request.")
        _refuse_if(request.topic_partitions != [], "TopicPartitions must be empty when (re-)joining.")
        _refuse_if(
            not request.subscribed_topic_names and not request.subscribed_topic_regex,
            "SubscribedTopicNames or SubscribedTopicRegex must be set in first request.",
        )
    elif epoch == STATIC_LEAVE_EPOCH:
        _refuse_if(request.instance_id is None, "InstanceId can't be null.")
    else:
        _refuse_if(epoch < STATIC_LEAVE_EPOCH, "MemberEpoch is invalid.")
    assignor = request.server_assignor
    if assignor is not None and assignor not in assignors:
        text = f"ServerAssignor {assignor} is not supported. Supported assignors: {', '.join(assignors)}."
        raise RequestFailed(ErrorCode.UNSUPPORTED_ASSIGNOR, text)


def _refuse_if(problem: bool, text: str) -> None:
    if problem:
        raise RequestFailed(ErrorCode.INVALID_REQUEST, text)


def is_leaving(request: ConsumerGroupHeartbeatRequest) -> bool:
    return request.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH)


def is_plain(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Returns whether the heartbeat is only a sign of life, without changed fields."""
    return (
        request.member_epoch > 0
        and request.topic_partitions is None
        and request.subscribed_topic_names is None
        and request.subscribed_topic_regex is None
        and request.server_assignor is None
        and request.rebalance_timeout_ms == -1
    )


def is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Returns whether the heartbeat has all fields, as a join or the first request after an error; the response then
    has the assignment.
    """
    return (
        request.rebalance_timeout_ms != -1
        and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
        and request.topic_partitions is not None
    )


def owned_of(rows: Sequence[ConsumerGroupHeartbeatRequest.TopicPartitions]) -> Generator[int, None, Assignment]:
    """Returns the partitions that a member reports in its heartbeat, in steps."""
    owned: dict[bytes, set[int]] = {}
    work = 0
    for topic in rows:
        if topic.partitions:
            owned.setdefault(topic.topic_id, set()).update(topic.partitions)
        work += _TOPIC_WORK + len(topic.partitions)
        if work > _WORK_PER_UNIT:
            yield work // _WORK_PER_UNIT
            work = 0
    frozen: dict[bytes, frozenset[int]] = {}
    for count, (topic_id, partitions) in enumerate(owned.items(), 1):
        frozen[topic_id] = frozenset(partitions)
        if not count % PER_UNIT:
            yield 1
    return frozen
