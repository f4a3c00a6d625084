"""Second decisions about the ISRs that leaders ask for, and about deletions of topics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from barnabas.common.errors import ErrorCode
from barnabas.common.types import ZERO_UUID
from barnabas.simulation.controller_decisions import (
    NO_TOPIC,
    can_write,
    change_of,
    is_active,
    leads_of,
    partitions_of,
    rules_for,
    shown_records,
    writable_of,
)
from barnabas.simulation.partition_decisions import State, state_of, target_of
from barnabas.simulation.second_decisions import UNJUDGED, Arguments, SecondDecision, costly

_NOBODY: Final = -1
_RECOVERING: Final = 1

# -- changes of ISRs by leaders


def _isr_problem(view: Any, broker_id: int, partition: Any, row: Any, isr: list[tuple[int, int]]) -> ErrorCode:
    if row.leader_epoch > partition.leader_epoch or row.partition_epoch > partition.partition_epoch:
        return ErrorCode.NOT_CONTROLLER
    if row.leader_epoch != partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if partition.leader != broker_id:
        return ErrorCode.INVALID_REQUEST
    if row.partition_epoch != partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    members = Counter(member for member, _ in isr)
    is_sound = set(members) <= set(partition.replicas) and partition.leader in members and len(members) == len(isr)
    if row.leader_recovery_state == _RECOVERING:
        is_sound = is_sound and len(isr) == 1 and partition.leader_recovery_state == _RECOVERING
    if not is_sound:
        return ErrorCode.INVALID_REQUEST
    directories = dict(zip(partition.replicas, partition.directories, strict=True))
    for member, epoch in isr:
        known = view.image.brokers.get(member)
        if not is_active(view, member) or epoch not in (_NOBODY, known.epoch):
            return ErrorCode.INELIGIBLE_REPLICA
        if member not in partition.isr and not can_write(view, member, directories[member]):
            return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE


def _isr_row(view: Any, broker_id: int, topic: Any, row: Any, version: int) -> Any:
    """Returns the answer (code, then the accepted state) and the change."""
    index = row.partition_index
    if topic is None:
        return (ErrorCode.UNKNOWN_TOPIC_ID,), None
    if index not in range(len(topic.partitions)):
        return (NO_TOPIC,), None
    partition = topic.partitions[index]
    isr = [(each, _NOBODY) for each in row.new_isr]
    if version > 2:
        isr = [(each.broker_id, each.broker_epoch) for each in row.new_isr_with_epochs]
    repeats = (row.leader_epoch, broker_id, {each for each, _ in isr}, row.leader_recovery_state, len(isr)) == (
        partition.leader_epoch,
        partition.leader,
        set(partition.isr),
        partition.leader_recovery_state,
        len(partition.isr),
    )
    if view.raises_leader_epochs and repeats and row.partition_epoch <= partition.partition_epoch:
        return _accepted(state_of(partition), partition.partition_epoch), None
    code = _isr_problem(view, broker_id, partition, row, isr)
    if code is not ErrorCode.NONE:
        return (code,), None
    leads = leads_of(view, partition)
    rules = rules_for(view, topic.name, len(partition.replicas), leads)
    rules.raises_leader_epoch = False
    members = writable_of(view, partition, tuple(each for each, _ in isr), leads)
    target = target_of(partition)._replace(isr=members, recovery=row.leader_recovery_state)
    change = change_of(view, topic, index, target, rules)
    if change is None:
        return _accepted(state_of(partition), partition.partition_epoch), None
    if change is UNJUDGED:
        return UNJUDGED
    state = change[3]
    if state.leader != broker_id:
        return (ErrorCode.NEW_LEADER_ELECTED,), change
    return _accepted(state, partition.partition_epoch + 1), change


def _accepted(state: State, epoch: int) -> tuple[Any, ...]:
    return ErrorCode.NONE, state.leader, state.leader_epoch, state.isr, state.recovery, epoch


def _isr_changes(view: Any, request: Any, version: int) -> object:
    broker = view.image.brokers.get(request.broker_id)
    if broker is None or broker.epoch != request.broker_epoch:
        return ErrorCode.STALE_BROKER_EPOCH, [], [], {}
    rows, changes, reasons = [], [], {}
    for each in request.topics:
        topic = view.image.topics_by_id.get(each.topic_id)
        for row in each.partitions:
            decided = _isr_row(view, request.broker_id, topic, row, version)
            if decided is UNJUDGED:
                return UNJUDGED
            rows.append((each.topic_id, row.partition_index, *decided[0]))
            if decided[1] is not None:
                changes.append(decided[1])
                if row.unknown_tags:
                    reasons[each.topic_id, row.partition_index] = row.unknown_tags
    return ErrorCode.NONE, rows, changes, reasons


def _isr_changes_of(result: Any, view: Any, *_: Any) -> object:
    rows: list[tuple[Any, ...]] = []
    for each in result.response.topics:
        for row in each.partitions:
            state = (row.leader_id, row.leader_epoch, tuple(row.isr), row.leader_recovery_state, row.partition_epoch)
            is_refused = row.error_code != ErrorCode.NONE
            rows.append((each.topic_id, row.partition_index, row.error_code, *(() if is_refused else state)))
    reasons = dict(result.cause.isr_reasons)
    return result.response.error_code, rows, shown_records(view, result.records), reasons


def near_isr_changes(view: Any, request: Any, version: int) -> Iterator[Arguments]:
    """Requests about the first partitions with epochs and members around those that are right."""
    make = type(request)
    for topic, index, partition in [each for each, _ in zip(partitions_of(view), range(3), strict=False)]:
        leader = view.image.brokers.get(partition.leader)
        if leader is None:
            continue
        yield view, make(broker_id=leader.broker_id, broker_epoch=leader.epoch - 1), version
        rows = list(_isr_rows(make, view, index, partition))
        for sender in {leader.broker_id, *list(view.image.brokers)[:1]}:
            epoch = view.image.brokers[sender].epoch
            for topic_id in (topic.topic_id, b"?" * 16):
                topics = [make.TopicData(topic_id=topic_id, partitions=rows)]
                yield view, make(broker_id=sender, broker_epoch=epoch, topics=topics), 3
                yield view, make(broker_id=sender, broker_epoch=epoch, topics=topics), 2


def _isr_rows(make: Any, view: Any, index: int, partition: Any) -> Iterator[Any]:
    def row(isr: Sequence[int], *more: int, epochs: int = 0, recovery: int = partition.leader_recovery_state) -> Any:
        at, leader_epoch, partition_epoch = (*more, 0, 0, 0)[:3]
        found = view.image.brokers
        states = [
            make.BrokerState(broker_id=each, broker_epoch=found[each].epoch + epochs if each in found else 0)
            for each in isr
        ]
        row = make.PartitionData(
            partition_index=index + at,
            leader_epoch=partition.leader_epoch + leader_epoch,
            partition_epoch=partition.partition_epoch + partition_epoch,
            new_isr=list(isr),
            new_isr_with_epochs=states,
            leader_recovery_state=recovery,
        )
        row.unknown_tags = ((8_192, bytes([len(isr)])),) if len(isr) != 1 else ()
        return row

    leader = partition.leader
    yield row(partition.isr, 900)
    yield row(partition.isr, -1 - index)
    for more in ((0, 1), (0, -1), (0, 0, 1), (0, 0, -1), (0, 1, -1)):
        yield row(partition.replicas, *more)
    for isr in (partition.replicas, (leader,), partition.isr, (), (leader, leader), (leader, 4_000)):
        yield row(isr)
        yield row(isr, epochs=1)
        yield row(isr, recovery=1)
        yield row(isr, recovery=0)
    yield row(tuple(each for each in partition.replicas if each != leader))


# -- deletions


def _deleted(view: Any, request: Any, actor: str, permit: Any = None) -> object:
    if permit is not None:
        return UNJUDGED  # A permit counts how often it is asked.
    asked = Counter([(name, ZERO_UUID) for name in request.topic_names])
    asked.update((each.name, each.topic_id) for each in request.topics)
    rows, found = [], []
    for (name, topic_id), times in asked.items():
        topic = None
        if (name is None) == (topic_id == ZERO_UUID) or times > 1:
            rows.append((name, topic_id, ErrorCode.INVALID_REQUEST))
        elif name is None:
            topic = view.image.topics_by_id.get(topic_id)
        else:
            topic = view.image.topics_by_name.get(name)
        if topic is not None:
            found.append(topic)
        elif (name, topic_id, ErrorCode.INVALID_REQUEST) not in rows:
            rows.append((name, topic_id, ErrorCode.UNKNOWN_TOPIC_ID if name is None else NO_TOPIC))
    once = [topic for topic in found if found.count(topic) == 1]
    rows += [(topic.name, topic.topic_id, ErrorCode.NONE) for topic in once]
    twice = {topic.topic_id: topic.name for topic in found if found.count(topic) == 2}
    rows += [(name, topic_id, ErrorCode.INVALID_REQUEST) for topic_id, name in twice.items()]
    return _sorted(rows), [topic.topic_id for topic in once]


def _sorted(rows: Iterable[Any]) -> list[Any]:
    return sorted(rows, key=repr)


def _deleted_of(result: Any, *_: Any) -> object:
    rows = [(each.name, each.topic_id, ErrorCode(each.error_code)) for each in result.response.responses]
    return _sorted(rows), [record.topic_id for record, _ in result.records]


def near_deletions(view: Any, request: Any, actor: str, permit: Any = None) -> Iterator[Arguments]:
    """Topics by name, by id, by both, by neither, twice, and unknown ones."""
    make, row = type(request), type(request).DeleteTopicState
    topics = list(view.image.topics_by_name.values())[:2]
    for topic in topics:
        by_id, by_name = row(name=None, topic_id=topic.topic_id), row(name=topic.name, topic_id=ZERO_UUID)
        for rows in (
            [by_id],
            [by_name, by_name],
            [by_id, by_name],
            [row(name=topic.name, topic_id=topic.topic_id), row(name=None, topic_id=ZERO_UUID)],
            [row(name=None, topic_id=b"?" * 16), row(name="no such topic", topic_id=ZERO_UUID), by_name],
        ):
            yield view, make(topics=rows), actor
        yield view, make(topic_names=[each.name for each in topics]), actor


ISR_DECISIONS: Final = costly(
    SecondDecision(
        "controller.requests.partitions:alter_partition",
        _isr_changes,
        near_isr_changes,
        _isr_changes_of,
    ),
    SecondDecision("controller.requests.topics:delete_topics", _deleted, near_deletions, _deleted_of),
)
