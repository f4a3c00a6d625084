"""Changes of partitions: when brokers leave or join, and when a leader changes its ISR (KIP-497, KIP-903)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Final

from barnabas.common.errors import ErrorCode
from barnabas.common.portions import PARTITIONS_IN_PORTION
from barnabas.controller.requests.result import Cause, ControllerEvent, Portion, Result, Versioned
from barnabas.controller.requests.view import ControllerView
from barnabas.decisions.broker_events import (
    BrokerEvent,
    all_but,
    can_lead,
    change_at,
    in_lost_directories,
    without_unwritable,
)
from barnabas.decisions.partition_change import PartitionChange, Rules
from barnabas.metadata.topics import NO_LEADER_CHANGE, RECOVERED, RECOVERING, PartitionImage, TopicImage
from barnabas.metadata.versions import partition_version
from barnabas.protocol.message import UnknownTags
from barnabas.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse

Located = tuple[TopicImage, int, PartitionImage]
#: The number of partitions that a search looks at in one turn of the loop, in about 4 ms.
SEARCHED_AT_ONCE: Final = 5_000


def find(view: ControllerView, wanted: Callable[[PartitionImage], bool]) -> Iterator[Located]:
    """Yields the partitions that satisfy `wanted`, by topic name and partition id."""
    image = view.image
    for name in image.topic_names():
        topic = image.topics_by_name[name]
        for partition_id, partition in enumerate(topic.partitions):
            if wanted(partition):
                yield topic, partition_id, partition


def search(
    view: ControllerView, wanted: Callable[[PartitionImage], bool], names: deque[str] | None
) -> Iterator[Located]:
    """Yields like `find`, from the topics `names` (None: all). It ends after `SEARCHED_AT_ONCE` partitions, and removes
    from `names` the topics that it is done with: a caller continues with the rest in a later turn of the loop.
    """
    if names is None:
        yield from find(view, wanted)
        return
    left = SEARCHED_AT_ONCE
    while names and left > 0:
        topic = view.image.topics_by_name.get(names[0])
        for partition_id, partition in enumerate(() if topic is None else topic.partitions):
            if wanted(partition):
                assert topic is not None, "the topic has partitions"
                yield topic, partition_id, partition
        left -= 1 if topic is None else 1 + len(topic.partitions)
        names.popleft()


def leads_any(view: ControllerView, broker_id: int) -> bool:
    return any(
        partition.leader == broker_id for topic in view.image.topics_by_name.values() for partition in topic.partitions
    )


def leader_and_isr_records(view: ControllerView, event: BrokerEvent, partitions: Iterator[Located]) -> list[Versioned]:
    """Returns the changes of these partitions: the broker leaves ISR and ELR, and a leader is elected if possible."""
    return list(_leader_and_isr_changes(view, event, partitions))


def leader_and_isr_portion(view: ControllerView, event: BrokerEvent, partitions: Iterator[Located]) -> Portion:
    """Returns one portion of the leader and ISR changes, and whether it is the last. Portions keep turns short: a
    broker can have tens of thousands of partitions.
    """
    changes = _leader_and_isr_changes(view, event, partitions)
    records = list(islice(changes, PARTITIONS_IN_PORTION))
    return Portion(records, next(changes, None) is None)


def _leader_and_isr_changes(
    view: ControllerView, event: BrokerEvent, partitions: Iterator[Located]
) -> Iterator[Versioned]:
    may_lead = event.may_lead(view)
    rules_of: dict[tuple[str, int], Rules] = {}
    for topic, partition_id, partition in partitions:
        key = (topic.name, len(partition.replicas))
        rules = rules_of.get(key)
        if rules is None:
            rules = rules_of[key] = view.rules(*key, may_lead)
        lost = in_lost_directories(view, partition)
        if lost:
            rules = view.rules(*key, all_but(lost, may_lead))
        record = _built(view, change_at(view, event, partition, rules), topic, partition_id)
        if record is not None:
            yield record


def change_record(
    view: ControllerView, located: Located, rules: Rules, isr: tuple[int, ...] | None = None
) -> Versioned | None:
    """Returns the change that elects a leader by these rules, with this ISR or the current one; None if the partition
    stays as it is."""
    topic, partition_id, partition = located
    change = PartitionChange(partition, rules)
    if isr is not None:
        change.target_isr = isr
    return _built(view, change, topic, partition_id)


def directory_record(view: ControllerView, located: Located, broker_id: int, directory: bytes) -> Versioned | None:
    """Returns the change that assigns the broker's replica to this directory; None if it is assigned already."""
    topic, partition_id, partition = located
    change = PartitionChange(partition, view.rules(topic.name, len(partition.replicas), view.is_active))
    change.target_directories[broker_id] = directory
    return _built(view, change, topic, partition_id)


def _built(view: ControllerView, change: PartitionChange, topic: TopicImage, partition_id: int) -> Versioned | None:
    record = change.build(topic.topic_id, partition_id)
    return None if record is None else (record, partition_version(view.image.metadata_version))


def with_first_state(view: ControllerView, partition: PartitionImage) -> PartitionImage | None:
    """Returns a partition that has never had a leader with its first ISR, whose first member leads; None if none of its
    replicas is active."""
    isr = view.in_sync_at_first(partition.replicas)
    if not isr:
        return None
    return partition._replace(isr=tuple(isr), leader=isr[0], leader_epoch=0, partition_epoch=0)


def alter_partition(
    view: ControllerView, request: AlterPartitionRequest, version: int
) -> Result[AlterPartitionResponse]:
    """Applies a leader's request for its ISR: compare-and-set on leader epoch and partition epoch (guards G9, G10)."""
    response = AlterPartitionResponse()
    records: list[Versioned] = []
    isr_reasons: dict[tuple[bytes, int], UnknownTags] = {}
    cause = Cause(ControllerEvent.ALTER_PARTITION, f"broker {request.broker_id}", isr_reasons=isr_reasons)
    broker = view.image.brokers.get(request.broker_id)
    if broker is None or broker.epoch != request.broker_epoch:
        response.error_code = ErrorCode.STALE_BROKER_EPOCH
        return Result([], response, cause)
    for requested in request.topics:
        answered = AlterPartitionResponse.TopicData(topic_id=requested.topic_id)
        response.topics.append(answered)
        topic = view.image.topics_by_id.get(requested.topic_id)
        for proposal in requested.partitions:
            if topic is None:
                answered.partitions.append(_refused(proposal.partition_index, ErrorCode.UNKNOWN_TOPIC_ID))
                continue
            record, answer = _alter_one(view, request.broker_id, topic, proposal, version)
            answered.partitions.append(answer)
            if record is not None:
                records.append(record)
                if proposal.unknown_tags:
                    isr_reasons[requested.topic_id, proposal.partition_index] = proposal.unknown_tags
    return Result(records, response, cause)


def _refused(partition_id: int, code: ErrorCode) -> AlterPartitionResponse.PartitionData:
    return AlterPartitionResponse.PartitionData(partition_index=partition_id, error_code=code)


def _alter_one(
    view: ControllerView,
    broker_id: int,
    topic: TopicImage,
    proposal: AlterPartitionRequest.PartitionData,
    version: int,
) -> tuple[Versioned | None, AlterPartitionResponse.PartitionData]:
    partition_id = proposal.partition_index
    if not 0 <= partition_id < len(topic.partitions):
        return None, _refused(partition_id, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    partition = topic.partitions[partition_id]
    isr = _proposed_isr(proposal, version)
    if view.raises_leader_epochs and _is_done(broker_id, partition, proposal, isr):
        return None, _accepted(partition_id, partition)
    code = _problem(view, broker_id, partition, proposal, isr)
    if code is not ErrorCode.NONE:
        return None, _refused(partition_id, code)
    rules = view.rules(topic.name, len(partition.replicas), can_lead(view, partition), by_leader=True)
    change = PartitionChange(partition, rules)
    change.target_isr = without_unwritable(view, partition, tuple(replica for replica, _ in isr), rules.may_lead)
    change.target_recovery_state = proposal.leader_recovery_state
    record = change.build(topic.topic_id, partition_id)
    if record is not None:
        partition = partition.merge(record)
        if record.leader not in (broker_id, NO_LEADER_CHANGE):
            # The new ISR completed a reassignment that moves the leadership away: the old leader must refresh.
            return (record, _version(view)), _refused(partition_id, ErrorCode.NEW_LEADER_ELECTED)
    return (record, _version(view)) if record is not None else None, _accepted(partition_id, partition)


def _accepted(partition_id: int, partition: PartitionImage) -> AlterPartitionResponse.PartitionData:
    return AlterPartitionResponse.PartitionData(
        partition_index=partition_id,
        error_code=ErrorCode.NONE,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=list(partition.isr),
        leader_recovery_state=partition.leader_recovery_state,
        partition_epoch=partition.partition_epoch,
    )


def _is_done(
    broker_id: int,
    partition: PartitionImage,
    proposal: AlterPartitionRequest.PartitionData,
    isr: Sequence[tuple[int, int]],
) -> bool:
    """Returns whether an earlier request, whose answer was lost, has already made the change that the leader asks for.
    In ZooKeeper mode a leader learns the partition epoch only from the answer, and would never learn it after an error
    (G39).
    """
    return (
        proposal.leader_epoch == partition.leader_epoch
        and proposal.partition_epoch <= partition.partition_epoch
        and broker_id == partition.leader
        and sorted(replica for replica, _ in isr) == sorted(partition.isr)
        and proposal.leader_recovery_state == partition.leader_recovery_state
    )


def _version(view: ControllerView) -> int:
    return partition_version(view.image.metadata_version)


def _proposed_isr(proposal: AlterPartitionRequest.PartitionData, version: int) -> list[tuple[int, int]]:
    """Returns (broker id, broker epoch) per member; the epoch is -1 if the leader did not send one."""
    if version >= 3:
        return [(state.broker_id, state.broker_epoch) for state in proposal.new_isr_with_epochs]
    return [(broker_id, -1) for broker_id in proposal.new_isr]


def _problem(
    view: ControllerView,
    broker_id: int,
    partition: PartitionImage,
    proposal: AlterPartitionRequest.PartitionData,
    isr: Sequence[tuple[int, int]],
) -> ErrorCode:
    if proposal.leader_epoch > partition.leader_epoch or proposal.partition_epoch > partition.partition_epoch:
        # The leader has newer metadata than this controller, which is therefore no longer the active one.
        return ErrorCode.NOT_CONTROLLER
    if proposal.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if broker_id != partition.leader:
        return ErrorCode.INVALID_REQUEST
    if proposal.partition_epoch < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    members = [replica for replica, _ in isr]
    if not members or len(set(members)) != len(members) or not set(members) <= set(partition.replicas):
        return ErrorCode.INVALID_REQUEST
    if partition.leader not in members:
        return ErrorCode.INVALID_REQUEST
    if proposal.leader_recovery_state == RECOVERING and (
        len(members) > 1 or partition.leader_recovery_state == RECOVERED
    ):
        return ErrorCode.INVALID_REQUEST
    if not all(_is_eligible(view, replica, epoch) for replica, epoch in isr):
        return ErrorCode.INELIGIBLE_REPLICA
    joining = (replica for replica in members if replica not in partition.isr)
    if not all(view.takes_writes(replica, partition.directory_of(replica)) for replica in joining):
        return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE


def _is_eligible(view: ControllerView, broker_id: int, broker_epoch: int) -> bool:
    """Returns whether the broker can join an ISR: not fenced or shutting down, same incarnation (KIP-841, KIP-903)."""
    broker = view.image.brokers.get(broker_id)
    return broker is not None and broker.is_active and broker_epoch in (-1, broker.epoch)
