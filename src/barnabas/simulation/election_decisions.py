"""Second decisions about elections on request and by the controller itself, and about reassignments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.decisions.leader_election import Election
from barnabas.simulation.controller_decisions import (
    NO_TOPIC,
    allows_unclean,
    change_of,
    leads_of,
    partitions_of,
    refuse,
    rules_for,
    shown_records,
)
from barnabas.simulation.partition_decisions import changed_by, target_of
from barnabas.simulation.second_decisions import UNJUDGED, Arguments, SecondDecision, costly

#: The elections of one batch.
_PER_BATCH: Final = 1_000
_NOBODY: Final = -1
_RECOVERING: Final = 1

# -- elections


def _election(view: Any, topic: Any, index: int, election: Election) -> Any:
    partition = topic.partitions[index]
    rules = rules_for(view, topic.name, len(partition.replicas), leads_of(view, partition), election)
    return change_of(view, topic, index, target_of(partition), rules)


def _is_due(partition: Any, election: Election) -> bool:
    if election is Election.PREFERRED:
        return bool(partition.replicas[:1] != (partition.leader,))
    return bool(partition.leader == _NOBODY)


def _elected(view: Any, request: Any, actor: str) -> object:
    election = {0: Election.PREFERRED, 1: Election.UNCLEAN}.get(request.election_type)
    if election is None:
        rows = [
            (each.topic, [(index, ErrorCode.INVALID_REQUEST) for index in each.partitions])
            for each in request.topic_partitions or ()
        ]
        return ErrorCode.INVALID_REQUEST, rows, [], True
    if request.topic_partitions is None:
        if len(view.image.topics_by_name) > 500 or sum(1 for _ in partitions_of(view)) > 900:
            return UNJUDGED
        names = {name: range(len(view.image.topics_by_name[name].partitions)) for name in view.image.topics_by_name}
        wanted: list[tuple[str, Sequence[int]]] = sorted(names.items())
    else:
        wanted = [(each.topic, each.partitions) for each in request.topic_partitions]
    unavailable = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    if election is Election.PREFERRED:
        unavailable = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    rows, changes = [], []
    for name, indexes in wanted:
        topic = view.image.topics_by_name.get(name)
        codes: list[tuple[int, ErrorCode]] = []
        done: set[int] = set()
        for index in indexes:
            if topic is None or index not in range(len(topic.partitions)):
                codes.append((index, NO_TOPIC))
            elif index in done or not _is_due(topic.partitions[index], election):
                if request.topic_partitions is not None:
                    codes.append((index, ErrorCode.ELECTION_NOT_NEEDED))
            else:
                change = _election(view, topic, index, election)
                if change is UNJUDGED:
                    return UNJUDGED
                codes.append((index, ErrorCode.NONE if change else unavailable))
                if change:
                    done.add(index)
                    changes.append(change)
        rows.append((name, codes))
    return ErrorCode.NONE, rows, changes, True


def _elected_of(result: Any, view: Any, *_: Any) -> object:
    rows = [
        (row.topic, [(each.partition_id, each.error_code) for each in row.partition_result])
        for row in result.response.replica_election_results
    ]
    return result.response.error_code, rows, shown_records(view, result.records), result.rest is None


def near_elections(view: Any, request: Any, actor: str) -> Iterator[Arguments]:
    """Both kinds and an unknown one, of all partitions, of one twice, and of some that do not exist."""
    make, row = type(request), type(request).TopicPartitions
    names = sorted(view.image.topics_by_name)[:2]
    for kind in (0, 1, 2):
        named = [row(topic=name, partitions=[0, 0, 1, -1, 2, 900]) for name in (*names, "no such topic")]
        yield view, make(election_type=kind, topic_partitions=named), actor
        yield view, make(election_type=kind, topic_partitions=None), actor


def _named_partitions(view: Any, request: Any) -> object:
    if request.topic_partitions is not None or request.election_type not in (0, 1):
        return UNJUDGED
    kind = Election.UNCLEAN if request.election_type else Election.PREFERRED
    found: dict[str, list[int]] = {}
    for topic, index, partition in partitions_of(view):
        if _is_due(partition, kind):
            found.setdefault(topic.name, []).append(index)
    return request.election_type, found, request.timeout_ms


def _named_of(named: Any, view: Any, request: Any) -> object:
    rows = {each.topic: list(each.partitions) for each in named.topic_partitions or ()}
    return named.election_type, rows, named.timeout_ms


def _searched(view: Any, names: Any, limit: int = 5_000) -> Any:
    """Returns the partitions of one search; not judged if they are too many for one turn."""
    if names is None:
        return list(partitions_of(view))
    topics = [view.image.topics_by_name[name] for name in names if name in view.image.topics_by_name]
    found = [(topic, index, partition) for topic in topics for index, partition in enumerate(topic.partitions)]
    return UNJUDGED if len(found) + len(names) >= limit else found


def _unclean_due(view: Any, names: Any = None, count_max: int | None = None) -> object:
    located = _searched(view, names)
    if located is UNJUDGED:
        return UNJUDGED
    changes = []
    for topic, index, partition in located:
        if partition.leader == _NOBODY and allows_unclean(view, topic.name):
            changes.append(_election(view, topic, index, Election.UNCLEAN))
    return _some_of(changes, count_max)


def _some_of(changes: list[Any], count_max: int | None) -> object:
    if UNJUDGED in changes:
        return UNJUDGED
    return [change for change in changes if change is not None][: count_max or _PER_BATCH]


def _records_of(result: Any, view: Any, *_: Any, **__: Any) -> object:
    return shown_records(view, result.records)


def _near_due(view: Any, names: Any = None, count_max: int | None = None) -> Iterator[Arguments]:
    yield view, None, None
    yield view, None, 1


def _rebalanced(view: Any, names: Any = None, *, partitions: Any = None, count_max: int | None = None) -> object:
    if partitions is not None and not isinstance(partitions, list):
        return UNJUDGED
    located = _searched(view, names) if partitions is None else partitions
    if located is UNJUDGED:
        return UNJUDGED
    changes = []
    for topic, index, partition in located:
        wanted = partition.replicas[0] if partition.replicas else _NOBODY
        if partition.leader != wanted and wanted in partition.isr and leads_of(view, partition)(wanted):
            changes.append(_election(view, topic, index, Election.PREFERRED))
    return _some_of(changes, count_max)


def _near_rebalanced(view: Any, names: Any = None, **_: Any) -> Iterator[Arguments]:
    yield view, None


def _losses(before: Any, records: Any) -> list[tuple[str, int]]:
    """Returns the partitions and leaders of elections that may lose records: of replicas without all of them."""
    found = []
    for record, _ in records if isinstance(records, list | tuple) else ():
        topic = before.topics_by_id.get(getattr(record, "topic_id", None))
        if record.NAME != "PartitionChangeRecord" or topic is None or record.leader < 0:
            continue
        if record.partition_id < len(topic.partitions):
            partition = topic.partitions[record.partition_id]
            state = changed_by(partition, record)
            safe = {partition.leader, *partition.isr, *partition.elr}
            if record.leader not in safe and state.recovery == _RECOVERING:
                found.append((f"{topic.name}-{record.partition_id}", record.leader))
    return found


def _losses_of(found: Any, *_: Any) -> object:
    return [(text.partition(":")[0], int(text.split("leader ")[1].split(" ")[0])) for text in found]


# -- reassignments


def check_assigned(view: Any, replicas: Sequence[int], factor: int | None) -> None:
    is_wrong = not replicas or len(set(replicas)) < len(replicas) or not set(replicas) <= set(view.image.brokers)
    if is_wrong or (factor is not None and factor != len(replicas)):
        refuse(ErrorCode.INVALID_REPLICA_ASSIGNMENT)


def _near_assigned(view: Any, replicas: Sequence[int], factor: int | None) -> Iterator[Arguments]:
    known = list(view.image.brokers)[:3]
    for others in ([], known, [*known, known[0]], [*known[:1], 4_000], [-1, *known]) if known else ():
        for count in (None, len(others), len(others) + 1, len(others) - 1):
            yield view, others, count


def _reassigned(view: Any, topic: Any, index: int, replicas: Any, *, may_resize: bool) -> Any:
    partition = topic.partitions[index]
    old, target = partition.replicas, target_of(partition)
    if replicas is None:
        return _cancelled(view, topic, index)
    check_assigned(view, replicas, None)
    leaving = sorted(set(old).difference(replicas))
    coming = {each for each in replicas if each not in old or each in partition.adding_replicas}
    if not may_resize and len(replicas) != len(set(old).difference(partition.removing_replicas)):
        refuse(ErrorCode.INVALID_REPLICATION_FACTOR)
    target = target._replace(replicas=(*replicas, *leaving), removing=tuple(leaving), adding=tuple(sorted(coming)))
    rules = rules_for(view, topic.name, len(old), leads_of(view, partition), Election.ONLINE)
    return change_of(view, topic, index, target, rules)


def _cancelled(view: Any, topic: Any, index: int) -> Any:
    partition = topic.partitions[index]
    if not partition.adding_replicas and not partition.removing_replicas:
        refuse(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    kept = tuple(each for each in partition.replicas if each not in partition.adding_replicas)
    isr = tuple(each for each in partition.isr if each in kept)
    loses = not isr and not set(kept) & set(partition.elr)
    if not kept or (loses and not allows_unclean(view, topic.name)):
        refuse(ErrorCode.INVALID_REPLICA_ASSIGNMENT)
    target = target_of(partition)._replace(replicas=kept, isr=isr, removing=(), adding=())
    if loses:
        target = target._replace(isr=kept[:1], recovery=_RECOVERING)
    return change_of(view, topic, index, target, rules_for(view, topic.name, len(kept), leads_of(view, partition)))


def _is_decided(topic: Any, index: int) -> bool:
    """Returns whether the partition exists and had a leader once."""
    is_known = topic is not None and index in range(len(topic.partitions))
    return is_known and topic.partitions[index].partition_epoch != _NOBODY


def _reassigned_all(view: Any, request: Any, actor: str, decided: Any = None) -> object:
    done = set(decided or ())
    rows, changes = [], []
    for each in request.topics:
        topic = view.image.topics_by_name.get(each.name)
        for row in each.partitions:
            index, code, change = row.partition_index, ErrorCode.NONE, None
            try:
                if (each.name, index) in done:
                    refuse(ErrorCode.INVALID_REQUEST)
                if not _is_decided(topic, index):
                    refuse(NO_TOPIC)
                resizes = request.allow_replication_factor_change
                change = _reassigned(view, topic, index, row.replicas, may_resize=resizes)
                done.add((each.name, index))
            except RequestFailed as refusal:
                code = refusal.code
            if change is UNJUDGED:
                return UNJUDGED
            rows.append((each.name, index, code))
            changes += [change] if change is not None else []
    return rows, changes


def _reassigned_of(result: Any, view: Any, *_: Any) -> object:
    rows = [
        (row.name, each.partition_index, each.error_code)
        for row in result.response.responses
        for each in row.partitions
    ]
    return rows, shown_records(view, result.records)


def near_reassignments(view: Any, request: Any, actor: str, decided: Any = None) -> Iterator[Arguments]:
    """Each partition to other brokers, to fewer, to the same in another order, to none; cancelled; named twice."""
    make = type(request)
    brokers = sorted(view.image.brokers)
    names = sorted(view.image.topics_by_name)[:2]
    for replicas in (None, brokers[:1], brokers[:3], brokers[-3:], brokers[::-1][:3], [], [*brokers[:1], 4_000]):
        rows = [make.ReassignablePartition(partition_index=index, replicas=replicas) for index in (0, 1, 0, -1, 900)]
        topics = [make.ReassignableTopic(name=name, partitions=rows) for name in (*names, "no such topic")]
        for resizes in (True, False):
            yield view, make(topics=topics, allow_replication_factor_change=resizes), actor


_ELECTIONS: Final = "controller.requests.elections:"

ELECTION_DECISIONS: Final = costly(
    SecondDecision(_ELECTIONS + "elect_leaders", _elected, near_elections, _elected_of),
    SecondDecision(_ELECTIONS + "with_partitions", _named_partitions, shown=_named_of),
    SecondDecision(_ELECTIONS + "unclean_elections_due", _unclean_due, _near_due, _records_of),
    SecondDecision(_ELECTIONS + "rebalance", _rebalanced, _near_rebalanced, _records_of),
    SecondDecision(_ELECTIONS + "unclean_leaders", _losses, shown=_losses_of),
    SecondDecision("controller.requests.topics:check_assignment", check_assigned, _near_assigned),
    SecondDecision(
        "controller.requests.reassignments:alter_reassignments",
        _reassigned_all,
        near_reassignments,
        _reassigned_of,
    ),
)
