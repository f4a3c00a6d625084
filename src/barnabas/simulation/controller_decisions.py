"""Second decisions about requests to a controller: which partitions change, how, and which code each row is answered
with. What a changed partition becomes is `partition_decisions.after`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Final

from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.common.types import ZERO_UUID
from barnabas.decisions.leader_election import Election
from barnabas.simulation.partition_decisions import State, Target, after, changed_by, state_of, target_of
from barnabas.simulation.second_decisions import UNJUDGED, Arguments, SecondDecision, costly

_NOBODY: Final = -1
_NO_TOPIC: Final = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
_RECOVERING: Final = 1
_LOST, _UNASSIGNED, _MIGRATING = bytes(15) + b"\x02", bytes(15) + b"\x01", bytes(16)
#: The partitions of one portion, and the metadata versions that brought directories, and ELRs.
_PORTION: Final = 1_000
_DIRECTORIES, _ELRS = 17, 23
_BROKER: Final = 4

#: A topic's name, a partition's number, and what it becomes.
_Change = tuple[str, str, int, State, int]


def refuse(code: ErrorCode) -> None:
    raise RequestFailed(code)


# -- what is known about brokers and topics


def is_active(view: Any, broker_id: int) -> bool:
    broker = view.image.brokers.get(broker_id)
    return not (broker is None or broker.fenced or broker.in_controlled_shutdown)


def _has_directory(broker: Any, directory: bytes) -> bool:
    is_reserved = int.from_bytes(directory) < 100
    return directory != _LOST and (is_reserved or not broker.directories or directory in broker.directories)


def _can_write(view: Any, broker_id: int, directory: bytes) -> bool:
    broker = view.image.brokers.get(broker_id)
    if broker is None or not broker.unwritable:
        return True
    if int.from_bytes(directory) < 100:
        return any(each not in broker.unwritable for each in broker.directories)
    return directory not in broker.unwritable


def _new_directory(view: Any, broker_id: int) -> bytes:
    if view.image.metadata_version < _DIRECTORIES:
        return _MIGRATING
    broker = view.image.brokers.get(broker_id)
    single = broker is not None and len(broker.directories) == 1
    return broker.directories[0] if single else _UNASSIGNED


def setting(view: Any, topic: str, key: str, default: str) -> str:
    image = view.image
    layers = (
        image.topic_config(topic),
        image.config_of(_BROKER, str(view.config.node_id)),
        image.config_of(_BROKER, ""),
    )
    for layer in (*layers, view.config.originals):
        if key in layer:
            return str(layer[key])
    return default


def _min_isr(view: Any, topic: str, factor: int) -> int:
    wanted = int(setting(view, topic, "min.insync.replicas", "1"))
    return factor if wanted > factor else wanted


def _allows_unclean(view: Any, topic: str) -> bool:
    return setting(view, topic, "unclean.leader.election.enable", "false").strip().lower() == "true"


def rules_for(view: Any, topic: str, factor: int, may_lead: Callable[[int], bool], election: Any = None) -> Any:
    if election is None:
        election = Election.UNCLEAN if _allows_unclean(view, topic) else Election.ONLINE
    return SimpleNamespace(
        may_lead=may_lead,
        election=election,
        elr_enabled=view.image.features.get("eligible.leader.replicas.version", 0) > 0,
        min_isr=_min_isr(view, topic, factor),
        raises_leader_epoch=view.raises_leader_epochs,
        raises_when_reassigned=view.raises_leader_epochs,
        default_directory=lambda broker_id: _new_directory(view, broker_id),
        choose=None,
    )


def _shown_rules(rules: Any) -> tuple[object, ...]:
    named = (rules.election, rules.elr_enabled, rules.min_isr, rules.raises_leader_epoch, rules.raises_when_reassigned)
    return (*named, rules.choose is None)


def _expected_rules(
    view: Any, topic: str, factor: int, may_lead: Any, election: Any = None, *, by_leader: bool = False
) -> object:
    rules = rules_for(view, topic, factor, may_lead, election)
    rules.raises_leader_epoch = view.raises_leader_epochs and not by_leader
    rules.choose = view.strategy
    return _shown_rules(rules)


def _rules_of(rules: Any, *_: Any, **__: Any) -> object:
    return _shown_rules(rules)


def _near_rules(
    view: Any, topic: str, factor: int, may_lead: Any, election: Any = None, *, by_leader: bool = False
) -> Iterator[Arguments]:
    for other in (topic, "no such topic"):
        for smaller in (1, 2, 3):
            for kind in (None, *Election):
                yield view, other, smaller, may_lead, kind


def _leads(view: Any, partition: Any, gone: Iterable[int] = (), added: int = _NOBODY) -> Callable[[int], bool]:
    """Returns who can lead: active, or just added, and with its directory."""
    directories = dict(zip(partition.replicas, partition.directories, strict=True))
    out = {_NOBODY, *gone}

    def leads(replica: int) -> bool:
        broker = view.image.brokers.get(replica)
        if replica in directories and broker is not None and not _has_directory(broker, directories[replica]):
            return False
        return replica not in out and (replica == added or is_active(view, replica))

    return leads


def _partitions(view: Any) -> Iterator[tuple[Any, int, Any]]:
    for name in sorted(view.image.topics_by_name):
        topic = view.image.topics_by_name[name]
        for index, partition in enumerate(topic.partitions):
            yield topic, index, partition


# -- records, shown as what they change


def version_of(view: Any) -> int:
    level = view.image.metadata_version
    return 2 if level >= _ELRS else int(level >= _DIRECTORIES)


def _with_fields(record: Any, version: int) -> tuple[Any, ...]:
    fresh = type(record)()
    slots = [slot for slot in type(record).__slots__ if slot != "topic_id"]
    fields = {slot: getattr(record, slot) for slot in slots if getattr(record, slot) != getattr(fresh, slot)}
    return record.NAME, version, fields


def shown_records(view: Any, records: Sequence[Any]) -> list[object]:
    """Returns the records: changes of partitions as the partitions that they lead to, others with their fields."""
    shown: list[object] = []
    topics: dict[bytes, Any] = dict(view.image.topics_by_id)
    for record, version in records:
        topic = topics.get(getattr(record, "topic_id", b""))
        if record.NAME == "PartitionChangeRecord" and topic is not None:
            index = record.partition_id
            shown.append(_changed(topic, index, changed_by(topic.partitions[index], record), version))
        else:
            shown.append(_with_fields(record, version))
    return shown


def _changed(topic: Any, index: int, state: State, version: int) -> _Change:
    return "changed", topic.name, index, state, version


def change_of(view: Any, topic: Any, index: int, target: Target, rules: Any) -> Any:
    """Returns the changed partition, None, or that it is not judged."""
    partition = topic.partitions[index]
    if view.strategy is not None:
        return UNJUDGED
    state = after(partition, target, rules, index)
    return _changed(topic, index, state, version_of(view)) if isinstance(state, State) else state


# -- brokers


def _writable(view: Any, partition: Any, isr: tuple[int, ...], leads: Callable[[int], bool]) -> tuple[int, ...]:
    directories = dict(zip(partition.replicas, partition.directories, strict=True))
    kept = tuple(each for each in isr if _can_write(view, each, directories[each]))
    return kept if any(map(leads, kept)) else isr


def moved(
    view: Any,
    wanted: Callable[[Any], bool],
    *,
    removed: int = _NOBODY,
    unclean: int = _NOBODY,
    added: int = _NOBODY,
    partitions: Iterable[Any] | None = None,
) -> Any:
    """Returns the changes of all partitions of a kind when a broker leaves or joins."""
    gone = {removed, unclean} - {_NOBODY}
    changes = []
    for topic, index, partition in _partitions(view) if partitions is None else partitions:
        if not wanted(partition):
            continue
        leads = _leads(view, partition, gone, added)
        isr = tuple(each for each in partition.isr if each not in gone)
        target = target_of(partition)._replace(
            isr=_writable(view, partition, isr, leads), careless={unclean} - {_NOBODY}
        )
        change = change_of(view, topic, index, target, rules_for(view, topic.name, len(partition.replicas), leads))
        if change is UNJUDGED:
            return UNJUDGED
        if change is not None:
            changes.append(change)
    return changes


def _portion(changes: Any, last: Sequence[object] = (), first: Sequence[object] = ()) -> object:
    if changes is UNJUDGED:
        return UNJUDGED
    if len(changes) > _PORTION:
        return [*first, *changes[:_PORTION]], False
    return [*first, *changes, *last], True


def _portion_of(portion: Any, view: Any, *_: Any, **__: Any) -> object:
    return shown_records(view, portion.records), portion.is_last


def _broker_change(broker: Any, version: int, **fields: object) -> tuple[Any, ...]:
    values = {"broker_id": broker.broker_id, "broker_epoch": broker.epoch, **fields}
    return "BrokerRegistrationChangeRecord", version, {key: value for key, value in values.items() if value != 0}


def _is_same(view: Any, broker: Any) -> bool:
    current = view.image.brokers.get(broker.broker_id)
    return current is not None and current.epoch == broker.epoch


_NOTHING: Final[tuple[list[object], bool]] = ([], True)


def _fenced(view: Any, broker: Any) -> object:
    if not _is_same(view, broker):
        return _NOTHING
    changes = moved(view, lambda partition: broker.broker_id in partition.isr, removed=broker.broker_id)
    return _portion(changes, [_fence(broker, 1)])


def _fence(broker: Any, fenced: int) -> tuple[Any, ...]:
    name, version, fields = _broker_change(broker, 0)
    return name, version, {**fields, "fenced": fenced}


def _unfenced(view: Any, broker: Any) -> object:
    now = view.image.brokers.get(broker.broker_id)
    if now is None or now.epoch != broker.epoch or (now is not broker and now.fenced):
        return _NOTHING
    changes = moved(view, lambda partition: partition.leader == _NOBODY, added=broker.broker_id)
    return _portion(changes, first=[_fence(broker, -1)] if now is broker else [])


def _stopping(view: Any, broker: Any) -> object:
    if not _is_same(view, broker):
        return _NOTHING
    changes = moved(view, lambda partition: broker.broker_id in partition.isr, removed=broker.broker_id)
    begun = view.image.brokers[broker.broker_id].in_controlled_shutdown
    return _portion(changes, first=[] if begun else [_broker_change(broker, 1, in_controlled_shutdown=1)])


def _near_brokers(view: Any, broker: Any) -> Iterator[Arguments]:
    """Every broker of the image, and an earlier incarnation of each; then with different rules for topics."""
    for other in list(view.image.brokers.values())[:4]:
        yield view, other
        yield view, replace(other, epoch=other.epoch - 1)
        yield view, replace(other, rack="another")


def _ended(view: Any, broker_id: int, *, clean: bool) -> object:
    if clean or view.image.metadata_version < _ELRS:
        return _portion(moved(view, lambda partition: broker_id in partition.isr, removed=broker_id))
    return _portion(moved(view, lambda partition: broker_id in (*partition.isr, *partition.elr), unclean=broker_id))


def _near_incarnations(view: Any, broker_id: int, *, clean: bool) -> Iterator[Arguments]:
    for other in [*view.image.brokers][:4]:
        yield view, other


def _registered(view: Any, broker_id: int, broker_epoch: int) -> int:
    broker = view.image.brokers.get(broker_id)
    if broker is None or broker.epoch != broker_epoch:
        refuse(ErrorCode.STALE_BROKER_EPOCH)
    return broker_id


def _id_of(broker: Any, *_: Any) -> int:
    return int(broker.broker_id)


def _near_epochs(view: Any, broker_id: int, broker_epoch: int) -> Iterator[Arguments]:
    yield view, 4_000, broker_epoch
    for broker in list(view.image.brokers.values())[:3]:
        for more in (-1, 0, 1):
            yield view, broker.broker_id, broker.epoch + more


def _unregistered(view: Any, broker_id: int, actor: str) -> object:
    broker = view.image.brokers.get(broker_id)
    if broker is None:
        raise RequestFailed(ErrorCode.BROKER_ID_NOT_REGISTERED)
    changes = moved(view, lambda partition: broker_id in (*partition.isr, *partition.elr), removed=broker_id)
    fields = {"broker_id": broker_id, "broker_epoch": broker.epoch}
    portion = _portion(changes, [("UnregisterBrokerRecord", 0, {key: each for key, each in fields.items() if each})])
    if not isinstance(portion, tuple):
        return portion
    return portion[0], None, "UNREGISTER_BROKER", portion[1]


def result_of(result: Any, view: Any, *_: Any, **__: Any) -> object:
    return shown_records(view, result.records), result.response, result.cause.event.name, result.rest is None


def _near_ids(view: Any, broker_id: int, actor: str) -> Iterator[Arguments]:
    for other in (*list(view.image.brokers)[:3], 4_000):
        yield view, other, actor


def _near_placed(view: Any) -> Iterator[Arguments]:
    """Each broker in turn is full, stops, or is fenced; and all of them are."""
    brokers = view.image.brokers
    kinds: tuple[dict[str, Any], ...] = ({"fenced": True}, {"fenced": False}, {"in_controlled_shutdown": True})
    for broker_id, broker in list(brokers.items())[:3]:
        for kind in (*kinds, {"unwritable": broker.directories}, {"unwritable": broker.directories[:1]}):
            changed = brokers.set(broker_id, replace(broker, **kind))
            yield (replace(view, image=replace(view.image, brokers=changed)),)
    everybody = brokers
    for broker_id, broker in brokers.items():
        everybody = everybody.set(broker_id, replace(broker, fenced=False, unwritable=broker.directories))
    yield (replace(view, image=replace(view.image, brokers=everybody)),)


def _usable(view: Any) -> object:
    found = {
        broker.broker_id: (broker.rack, broker.fenced, not _can_write(view, broker.broker_id, _UNASSIGNED))
        for broker in view.image.brokers.values()
        if not broker.in_controlled_shutdown
    }
    some_write = any(not fenced and not full for _, fenced, full in found.values())
    return [(each, rack, fenced or (full and some_write)) for each, (rack, fenced, full) in sorted(found.items())]


def _usable_of(brokers: Any, view: Any) -> object:
    return [(each.broker_id, each.rack, each.fenced) for each in brokers]


def state_without_leader(view: Any, partition: Any) -> State | None:
    """Returns the first state of a partition, or None if none of its replicas is active."""
    active = [each for each in partition.replicas if is_active(view, each)]
    isr = [each for each in active if _can_write(view, each, _new_directory(view, each))] or active
    if not isr:
        return None
    return state_of(partition)._replace(isr=tuple(isr), leader=isr[0], leader_epoch=0)


def _state(partition: Any, *_: Any) -> State | None:
    return None if partition is None else state_of(partition)


def _near_first(view: Any, partition: Any) -> Iterator[Arguments]:
    for (other,) in _near_placed(view):
        yield other, partition


# -- elections


def _election(view: Any, topic: Any, index: int, election: Election) -> Any:
    partition = topic.partitions[index]
    rules = rules_for(view, topic.name, len(partition.replicas), _leads(view, partition), election)
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
        if len(view.image.topics_by_name) > 500 or sum(1 for _ in _partitions(view)) > 900:
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
                codes.append((index, _NO_TOPIC))
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
    for topic, index, partition in _partitions(view):
        if _is_due(partition, kind):
            found.setdefault(topic.name, []).append(index)
    return request.election_type, found, request.timeout_ms


def _named_of(named: Any, view: Any, request: Any) -> object:
    rows = {each.topic: list(each.partitions) for each in named.topic_partitions or ()}
    return named.election_type, rows, named.timeout_ms


def _searched(view: Any, names: Any, limit: int = 5_000) -> Any:
    """Returns the partitions of one search; not judged if they are too many for one turn."""
    if names is None:
        return list(_partitions(view))
    topics = [view.image.topics_by_name[name] for name in names if name in view.image.topics_by_name]
    found = [(topic, index, partition) for topic in topics for index, partition in enumerate(topic.partitions)]
    return UNJUDGED if len(found) + len(names) >= limit else found


def _unclean_due(view: Any, names: Any = None, count_max: int | None = None) -> object:
    located = _searched(view, names)
    if located is UNJUDGED:
        return UNJUDGED
    changes = []
    for topic, index, partition in located:
        if partition.leader == _NOBODY and _allows_unclean(view, topic.name):
            changes.append(_election(view, topic, index, Election.UNCLEAN))
    return _some_of(changes, count_max)


def _some_of(changes: list[Any], count_max: int | None) -> object:
    if UNJUDGED in changes:
        return UNJUDGED
    return [change for change in changes if change is not None][: count_max or _PORTION]


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
        if partition.leader != wanted and wanted in partition.isr and _leads(view, partition)(wanted):
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
    rules = rules_for(view, topic.name, len(old), _leads(view, partition), Election.ONLINE)
    return change_of(view, topic, index, target, rules)


def _cancelled(view: Any, topic: Any, index: int) -> Any:
    partition = topic.partitions[index]
    if not partition.adding_replicas and not partition.removing_replicas:
        refuse(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    kept = tuple(each for each in partition.replicas if each not in partition.adding_replicas)
    isr = tuple(each for each in partition.isr if each in kept)
    loses = not isr and not set(kept) & set(partition.elr)
    if not kept or (loses and not _allows_unclean(view, topic.name)):
        refuse(ErrorCode.INVALID_REPLICA_ASSIGNMENT)
    target = target_of(partition)._replace(replicas=kept, isr=isr, removing=(), adding=())
    if loses:
        target = target._replace(isr=kept[:1], recovery=_RECOVERING)
    return change_of(view, topic, index, target, rules_for(view, topic.name, len(kept), _leads(view, partition)))


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
                    refuse(_NO_TOPIC)
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
        if member not in partition.isr and not _can_write(view, member, directories[member]):
            return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE


def _isr_row(view: Any, broker_id: int, topic: Any, row: Any, version: int) -> Any:
    """Returns the answer (code, then the accepted state) and the change."""
    index = row.partition_index
    if topic is None:
        return (ErrorCode.UNKNOWN_TOPIC_ID,), None
    if index not in range(len(topic.partitions)):
        return (_NO_TOPIC,), None
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
    leads = _leads(view, partition)
    rules = rules_for(view, topic.name, len(partition.replicas), leads)
    rules.raises_leader_epoch = False
    members = _writable(view, partition, tuple(each for each, _ in isr), leads)
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
    for topic, index, partition in [each for each, _ in zip(_partitions(view), range(3), strict=False)]:
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
            rows.append((name, topic_id, ErrorCode.UNKNOWN_TOPIC_ID if name is None else _NO_TOPIC))
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


_BROKERS: Final = "controller.requests.brokers:"
_ELECTIONS: Final = "controller.requests.elections:"

CONTROLLER_DECISIONS: Final = costly(
    SecondDecision(_BROKERS + "registration", _registered, _near_epochs, _id_of),
    SecondDecision(_BROKERS + "fence", _fenced, _near_brokers, _portion_of),
    SecondDecision(_BROKERS + "unfence", _unfenced, _near_brokers, _portion_of),
    SecondDecision(_BROKERS + "shut_down", _stopping, _near_brokers, _portion_of),
    SecondDecision(_BROKERS + "end_incarnation", _ended, _near_incarnations, _portion_of),
    SecondDecision(_BROKERS + "unregister", _unregistered, _near_ids, result_of),
    SecondDecision("controller.requests.view:ControllerView.usable_brokers", _usable, _near_placed, _usable_of),
    SecondDecision("controller.requests.view:ControllerView.rules", _expected_rules, _near_rules, _rules_of),
    SecondDecision("controller.requests.partitions:with_first_state", state_without_leader, _near_first, _state),
    SecondDecision(
        "controller.requests.partitions:alter_partition",
        _isr_changes,
        near_isr_changes,
        _isr_changes_of,
    ),
    SecondDecision(_ELECTIONS + "elect_leaders", _elected, near_elections, _elected_of),
    SecondDecision(_ELECTIONS + "with_partitions", _named_partitions, shown=_named_of),
    SecondDecision(_ELECTIONS + "unclean_elections_due", _unclean_due, _near_due, _records_of),
    SecondDecision(_ELECTIONS + "rebalance", _rebalanced, _near_rebalanced, _records_of),
    SecondDecision(_ELECTIONS + "unclean_leaders", _losses, shown=_losses_of),
    SecondDecision("controller.requests.topics:check_assignment", check_assigned, _near_assigned),
    SecondDecision("controller.requests.topics:delete_topics", _deleted, near_deletions, _deleted_of),
    SecondDecision(
        "controller.requests.reassignments:alter_reassignments",
        _reassigned_all,
        near_reassignments,
        _reassigned_of,
    ),
)
