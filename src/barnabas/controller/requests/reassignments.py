"""Reassignments: AlterPartitionReassignments and ListPartitionReassignments (KIP-455, KIP-860).

During a reassignment, a partition's replicas are the target replicas, in their order, followed by those to be removed:

    replicas [1, 2, 3], target [4, 2, 3]  ->  replicas [4, 2, 3, 1]  adding [4]  removing [1]

`PartitionChange` completes it, with the ISR change that brings the last target replica in sync. Until then the target
can be changed, or the reassignment cancelled: then the added replicas are dropped and the removed ones stay.

Error codes and messages are those of Kafka 4.1. Kafka keeps the old lists of added and removed replicas if a second
target adds or removes none itself, so that a replica in the new target can still be removed; here the lists always
follow the target.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Final, NamedTuple

from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.controller.requests.partitions import Located
from barnabas.controller.requests.result import Cause, ControllerEvent, Result, Versioned
from barnabas.controller.requests.topics import check_assignment
from barnabas.controller.requests.view import ControllerView
from barnabas.decisions.broker_events import can_lead
from barnabas.decisions.leader_election import Election
from barnabas.decisions.partition_change import PartitionChange
from barnabas.metadata.image import MetadataImage
from barnabas.metadata.topics import RECOVERING, PartitionImage
from barnabas.metadata.versions import partition_version
from barnabas.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from barnabas.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

NONE_IN_PROGRESS: Final = "No partition reassignment is in progress."
_Requested = AlterPartitionReassignmentsRequest.ReassignablePartition
_TopicRow = AlterPartitionReassignmentsResponse.ReassignableTopicResponse
_Row = AlterPartitionReassignmentsResponse.ReassignablePartitionResponse
_Ongoing = ListPartitionReassignmentsResponse.OngoingPartitionReassignment
#: The number of partitions that are looked at in about a quarter of a millisecond.
_LISTED_PER_UNIT: Final = 250


def alter_reassignments(
    view: ControllerView,
    request: AlterPartitionReassignmentsRequest,
    actor: str,
    decided: set[tuple[str, int]] | None = None,
) -> Result[AlterPartitionReassignmentsResponse]:
    """Returns one result per partition; a valid reassignment begins even if others in the request fail. `decided` are
    the partitions (topic, number) of earlier parts of the request; those of this part are added."""
    may_change_factor = request.allow_replication_factor_change
    response = AlterPartitionReassignmentsResponse(
        error_message=None, allow_replication_factor_change=may_change_factor
    )
    records: list[Versioned] = []
    done: list[str] = []
    decided = set() if decided is None else decided
    for topic in request.topics:
        row = _TopicRow(name=topic.name)
        response.responses.append(row)
        for requested in topic.partitions:
            index = requested.partition_index
            try:
                if (topic.name, index) in decided:
                    raise RequestFailed(
                        ErrorCode.INVALID_REQUEST, f"Partition {topic.name}:{index} is named more than once."
                    )
                located = _find(view, topic.name, index)
                change = (
                    _cancel(view, located) if requested.replicas is None else _begin(view, located, requested.replicas)
                )
                if requested.replicas is not None and not may_change_factor:
                    _check_factor(located[2], requested.replicas)
                record = change.build(located[0].topic_id, index)
            except RequestFailed as error:
                row.partitions.append(_Row(partition_index=index, error_code=error.code, error_message=error.message))
                continue
            decided.add((topic.name, index))
            row.partitions.append(_Row(partition_index=index, error_code=ErrorCode.NONE, error_message=None))
            if record is not None:
                records.append((record, partition_version(view.image.metadata_version)))
                done.append(_description(topic.name, requested))
    return Result(records, response, Cause(ControllerEvent.ALTER_PARTITION_REASSIGNMENTS, actor, "; ".join(done)))


def _description(name: str, requested: _Requested) -> str:
    return f"{name}-{requested.partition_index} " + (
        "cancelled" if requested.replicas is None else f"to {requested.replicas}"
    )


def refused(request: AlterPartitionReassignmentsRequest, code: ErrorCode) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(
        error_code=code,
        error_message=None,
        allow_replication_factor_change=request.allow_replication_factor_change,
        responses=[
            _TopicRow(
                name=topic.name,
                partitions=[
                    _Row(partition_index=requested.partition_index, error_code=code, error_message=None)
                    for requested in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _find(view: ControllerView, name: str, index: int) -> Located:
    topic = view.image.topics_by_name.get(name)
    if topic is None:
        raise RequestFailed(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
    if not 0 <= index < len(topic.partitions) or topic.partitions[index].partition_epoch < 0:
        # In ZooKeeper mode a partition without a state has no leader that could copy it.
        raise RequestFailed(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{index}.")
    return topic, index, topic.partitions[index]


def is_in_progress(partition: PartitionImage) -> bool:
    return bool(partition.adding_replicas or partition.removing_replicas)


def target_of(partition: PartitionImage) -> tuple[int, ...]:
    """Returns the replicas without those that are being removed."""
    return tuple(replica for replica in partition.replicas if replica not in partition.removing_replicas)


def _check_factor(partition: PartitionImage, target: Sequence[int]) -> None:
    before = len(target_of(partition))
    if before != len(target):
        text = f"The replication factor is changed from {before} to {len(target)}"
        raise RequestFailed(ErrorCode.INVALID_REPLICATION_FACTOR, text)


def _begin(view: ControllerView, located: Located, target: Sequence[int]) -> PartitionChange:
    topic, _, partition = located
    check_assignment(view, target, None)
    current = set(partition.replicas)
    removing = sorted(current - set(target))
    adding = (set(target) - current) | (set(partition.adding_replicas) & set(target))
    rules = view.rules(topic.name, len(partition.replicas), can_lead(view, partition), Election.ONLINE)
    change = PartitionChange(partition, rules)
    change.target_replicas = (*target, *removing)
    change.target_removing = tuple(removing)
    change.target_adding = tuple(sorted(adding))
    return change


class _Reverted(NamedTuple):
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    #: All in-sync replicas were being added, so the new leader lacks records.
    is_unclean: bool


def _revert(partition: PartitionImage) -> _Reverted:
    replicas = tuple(replica for replica in partition.replicas if replica not in partition.adding_replicas)
    if not replicas:
        text = "Invalid replica assignment: addingReplicas contains all replicas."
        raise RequestFailed(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
    isr = tuple(replica for replica in partition.isr if replica in replicas)
    if isr:
        return _Reverted(replicas, isr, False)
    if set(partition.elr) & set(replicas):
        # The remaining replicas have everything that was committed, although none can lead at the moment.
        return _Reverted(replicas, (), False)
    return _Reverted(replicas, replicas[:1], True)


def _cancel(view: ControllerView, located: Located) -> PartitionChange:
    topic, index, partition = located
    if not is_in_progress(partition):
        raise RequestFailed(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, NONE_IN_PROGRESS)
    reverted = _revert(partition)
    unclean_allowed = view.unclean_election_allowed(topic.name)
    if reverted.is_unclean and not unclean_allowed:
        raise RequestFailed(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Unable to revert partition assignment for {topic.name}:{index} because it would require an unclean "
            "leader election.",
        )
    change = PartitionChange(partition, view.rules(topic.name, len(reverted.replicas), can_lead(view, partition)))
    change.target_isr = reverted.isr
    change.target_replicas = reverted.replicas
    change.target_removing = change.target_adding = ()
    if reverted.is_unclean:
        change.target_recovery_state = RECOVERING
    return change


def list_reassignments(
    image: MetadataImage, request: ListPartitionReassignmentsRequest
) -> Generator[int, None, ListPartitionReassignmentsResponse]:
    """Lists ongoing reassignments, of all topics or of the requested partitions; unknown ones are left out. Yields
    units of work, of about a quarter of a millisecond.
    """
    response = ListPartitionReassignmentsResponse(error_message=None)
    place = 0
    for name, indexes in _listed(image, request):
        topic = image.topics_by_name.get(name)
        partitions = () if topic is None else topic.partitions
        rows: list[_Ongoing] = []
        for index in range(len(partitions)) if indexes is None else indexes:
            place += 1
            if place % _LISTED_PER_UNIT == 0:
                yield 1
            if 0 <= index < len(partitions) and is_in_progress(partitions[index]):
                rows.append(_ongoing(index, partitions[index]))
        if rows:
            response.topics.append(
                ListPartitionReassignmentsResponse.OngoingTopicReassignment(name=name, partitions=rows)
            )
    return response


def _listed(
    image: MetadataImage, request: ListPartitionReassignmentsRequest
) -> Iterator[tuple[str, Sequence[int] | None]]:
    """Yields the requested topics and partitions (None: all)."""
    if request.topics is None:
        for name in image.topic_names():
            yield name, None
    else:
        for topic in request.topics:
            yield topic.name, topic.partition_indexes


def _ongoing(index: int, partition: PartitionImage) -> _Ongoing:
    return _Ongoing(
        partition_index=index,
        replicas=list(partition.replicas),
        adding_replicas=list(partition.adding_replicas),
        removing_replicas=list(partition.removing_replicas),
    )
