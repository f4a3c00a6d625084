"""DescribeTopicPartitions (75), version 0: topics in pages, with their eligible leader replicas (KIP-966).

Topics are ordered by name. A page has at most `max.request.partition.size.limit` partitions; the cursor names the first
partition of the next one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator, Sequence
from typing import Final

from barnabas.broker.authorizer import Authorizer
from barnabas.broker.requests.context import RequestContext, Services
from barnabas.broker.requests.error_responses import ErrorRows
from barnabas.broker.requests.steps import Work
from barnabas.broker.topics.topic_views import leader_of, offline_replicas, topic_operations
from barnabas.common.errors import ErrorCode
from barnabas.common.gradual import sorted_gradually
from barnabas.common.topic_names import topic_name_problem
from barnabas.common.types import INTERNAL_TOPICS
from barnabas.metadata.acls import AclOperation, AclResource
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.topics import PartitionImage
from barnabas.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)

ERROR_ROWS: Final = (ErrorRows("topics", "topics"),)


_Topic = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
_Partition = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition


#: The number of topics or partitions read per step.
_ROWS_PER_STEP = 50


def handle(context: RequestContext, request: DescribeTopicPartitionsRequest, services: Services) -> Work:
    image = services.metadata.image
    cursor = request.cursor
    everything = not request.topics
    names = yield from _asked(image, request)
    if names is None:
        return _refuse(request)
    authorizer = services.authorizer
    hidden: list[_Topic] = []
    if authorizer is not None and not everything:
        names, hidden = yield from _judged(context, authorizer, names)
    limit = min(services.config.int_of("max.request.partition.size.limit"), request.response_partition_limit)
    left = max(limit, 1)
    response = DescribeTopicPartitionsResponse()
    for place, name in enumerate(names):
        if place % _ROWS_PER_STEP == _ROWS_PER_STEP - 1:
            yield 1
        # A page of all topics is judged up to its end only.
        if everything and authorizer is not None and not _may_describe(context, authorizer, name, log_denied=False):
            continue
        first = cursor.partition_index if cursor is not None and name == cursor.topic_name else 0
        if left == 0:
            response.next_cursor = DescribeTopicPartitionsResponse.Cursor(topic_name=name, partition_index=0)
            break
        topic = image.topics_by_name.get(name)
        if topic is None:
            if not everything:
                response.topics.append(_missing(name, topic_operations(context, services, name)))
            continue
        partitions = topic.partitions[first : first + left]
        rows: list[_Partition] = []
        response.topics.append(
            _Topic(
                error_code=ErrorCode.NONE,
                name=name,
                topic_id=topic.topic_id,
                is_internal=name in INTERNAL_TOPICS,
                partitions=rows,
                topic_authorized_operations=topic_operations(context, services, name),
            )
        )
        for index, partition in enumerate(partitions, first):
            rows.append(_describe(image, index, partition, context.listener))
            if len(rows) % _ROWS_PER_STEP == 0:
                yield 1
        left -= len(partitions)
        following = first + len(partitions)
        if following < len(topic.partitions):
            response.next_cursor = DescribeTopicPartitionsResponse.Cursor(topic_name=name, partition_index=following)
            break
    response.topics.extend(hidden)
    return response


def _asked(image: MetadataImage, request: DescribeTopicPartitionsRequest) -> Generator[int, None, Sequence[str] | None]:
    """Returns the names of the topics from the cursor on, in order; None if the cursor is invalid."""
    names: Sequence[str]
    if request.topics:
        names = yield from sorted_gradually({topic.name for topic in request.topics})
    else:
        names = image.topic_names()
    cursor = request.cursor
    if cursor is None:
        return names
    first = bisect_left(names, cursor.topic_name)
    is_named = first < len(names) and names[first] == cursor.topic_name
    if cursor.partition_index < 0 or (request.topics and not is_named):
        return None
    return names[first:]


def _may_describe(context: RequestContext, authorizer: Authorizer, name: str, *, log_denied: bool) -> bool:
    return authorizer.allows(context, AclOperation.DESCRIBE, AclResource.TOPIC, name, log_denied=log_denied)


def _judged(
    context: RequestContext, authorizer: Authorizer, names: Sequence[str]
) -> Generator[int, None, tuple[list[str], list[_Topic]]]:
    """Returns the names of topics that the client may describe, and the rows of the others."""
    shown: list[str] = []
    hidden: list[_Topic] = []
    for place, name in enumerate(names):
        if place % _ROWS_PER_STEP == _ROWS_PER_STEP - 1:
            yield 1
        if _may_describe(context, authorizer, name, log_denied=True):
            shown.append(name)
        else:
            hidden.append(_Topic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name))
    return shown, hidden


def _describe(image: MetadataImage, index: int, partition: PartitionImage, listener: str) -> _Partition:
    leader, _ = leader_of(image, partition, listener)
    return _Partition(
        error_code=ErrorCode.NONE,
        partition_index=index,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=list(partition.elr),
        last_known_elr=list(partition.last_known_elr),
        offline_replicas=offline_replicas(image, partition, listener),
    )


def _missing(name: str, operations: int) -> _Topic:
    valid = topic_name_problem(name) is None
    return _Topic(
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if valid else ErrorCode.INVALID_TOPIC_EXCEPTION,
        name=name,
        is_internal=name in INTERNAL_TOPICS,
        topic_authorized_operations=operations,
    )


def _refuse(request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(
        topics=[_Topic(error_code=ErrorCode.INVALID_REQUEST, name=topic.name) for topic in request.topics]
    )
