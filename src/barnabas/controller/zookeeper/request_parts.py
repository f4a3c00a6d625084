"""Requests about thousands of partitions, cut into requests about `PARTITIONS_AT_ONCE`, and their responses joined."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from barnabas.controller.zookeeper.slices import PARTITIONS_AT_ONCE, portions_by_topic
from barnabas.metadata.topics import TopicImage
from barnabas.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest
from barnabas.protocol.messages.create_topics import CreateTopicsRequest
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse

_Response = TypeVar("_Response", AlterPartitionResponse, ElectLeadersResponse)
_Row = TypeVar("_Row")


def _refusal(responses: Sequence[_Response]) -> _Response | None:
    """Returns the first response that refuses its part as a whole."""
    return next((each for each in responses if each.error_code), None)


# AlterPartition.


def parts_of_alter_partition(request: AlterPartitionRequest) -> list[AlterPartitionRequest]:
    return [
        AlterPartitionRequest(
            broker_id=request.broker_id,
            broker_epoch=request.broker_epoch,
            topics=[
                AlterPartitionRequest.TopicData(topic_id=topic_id, partitions=list(rows)) for topic_id, rows in part
            ],
        )
        for part in portions_by_topic((topic.topic_id, topic.partitions) for topic in request.topics)
    ]


def joined_alter_partition(responses: Sequence[AlterPartitionResponse]) -> AlterPartitionResponse:
    """Returns the rows of all responses, or the first that refuses its part as a whole."""
    if (refused := _refusal(responses)) is not None:
        return refused
    topics: dict[bytes, AlterPartitionResponse.TopicData] = {}
    for response in responses:
        for row in response.topics:
            known = topics.setdefault(row.topic_id, AlterPartitionResponse.TopicData(topic_id=row.topic_id))
            known.partitions += row.partitions
    return AlterPartitionResponse(topics=list(topics.values()))


# ElectLeaders.


def parts_of_elect_leaders(request: ElectLeadersRequest) -> list[ElectLeadersRequest]:
    """Returns a request that names its partitions, divided into parts."""
    return [
        ElectLeadersRequest(
            election_type=request.election_type,
            topic_partitions=[
                ElectLeadersRequest.TopicPartitions(topic=name, partitions=list(indexes)) for name, indexes in part
            ],
            timeout_ms=request.timeout_ms,
        )
        for part in portions_by_topic((topic.topic, topic.partitions) for topic in request.topic_partitions or ())
    ]


def joined_elect_leaders(responses: Sequence[ElectLeadersResponse]) -> ElectLeadersResponse:
    if (refused := _refusal(responses)) is not None:
        return refused
    topics: dict[str, ElectLeadersResponse.ReplicaElectionResult] = {}
    for response in responses:
        for row in response.replica_election_results:
            known = topics.setdefault(row.topic, ElectLeadersResponse.ReplicaElectionResult(topic=row.topic))
            known.partition_result += row.partition_result
    return ElectLeadersResponse(replica_election_results=list(topics.values()))


# AlterPartitionReassignments.


def parts_of_alter_reassignments(
    request: AlterPartitionReassignmentsRequest,
) -> list[AlterPartitionReassignmentsRequest]:
    return [
        AlterPartitionReassignmentsRequest(
            timeout_ms=request.timeout_ms,
            allow_replication_factor_change=request.allow_replication_factor_change,
            topics=[
                AlterPartitionReassignmentsRequest.ReassignableTopic(name=name, partitions=list(rows))
                for name, rows in part
            ],
        )
        for part in portions_by_topic((topic.name, topic.partitions) for topic in request.topics)
    ]


def joined_alter_reassignments(
    responses: Sequence[AlterPartitionReassignmentsResponse],
) -> AlterPartitionReassignmentsResponse:
    """Returns the rows of all responses; no part is refused as a whole."""
    first, *others = responses
    for response in others:
        for row in response.responses:
            if first.responses and first.responses[-1].name == row.name:
                first.responses[-1].partitions += row.partitions
            else:
                first.responses.append(row)
    return first


# CreateTopics, CreatePartitions.


def parts_of_create_topics(request: CreateTopicsRequest) -> list[CreateTopicsRequest]:
    """Returns the parts of a request, which consist of whole topics. Rows with the same name, which are an error, stay
    together.
    """
    rows = [(row.name, max(row.num_partitions, len(row.assignments), 1), row) for row in request.topics]
    return [
        CreateTopicsRequest(topics=part, timeout_ms=request.timeout_ms, validate_only=request.validate_only)
        for part in _filled(rows)
    ]


def parts_of_create_partitions(
    request: CreatePartitionsRequest, topics: Mapping[str, TopicImage]
) -> list[CreatePartitionsRequest]:
    """Returns the parts of a request, as `parts_of_create_topics` does. `topics` are those that exist, by name."""
    known = {name: len(topics[name].partitions) for name in (row.name for row in request.topics) if name in topics}
    rows = [(row.name, max(row.count - known.get(row.name, row.count), 1), row) for row in request.topics]
    return [
        CreatePartitionsRequest(topics=part, timeout_ms=request.timeout_ms, validate_only=request.validate_only)
        for part in _filled(rows)
    ]


def _filled(rows: Iterable[tuple[str, int, _Row]]) -> Iterator[list[_Row]]:
    """Yields the rows of each part. A row is given with the name of its topic and its number of new partitions."""
    by_name: dict[str, list[tuple[int, _Row]]] = {}
    for name, size, row in rows:
        by_name.setdefault(name, []).append((size, row))
    part: list[_Row] = []
    count = 0
    for named in by_name.values():
        added = sum(size for size, _ in named)
        if part and count + added > PARTITIONS_AT_ONCE:
            yield part
            part, count = [], 0
        part = [*part, *(row for _, row in named)]
        count += added
    yield part
