"""Second decisions of a controller about its brokers: who can lead, what changes when one leaves or joins, and the
rules of a topic. What a changed partition becomes is `partition_decisions.after`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Final

from barnabas.common import portions
from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.decisions.leader_election import Election
from barnabas.simulation.partition_decisions import State, Target, after, changed_by, state_of, target_of
from barnabas.simulation.second_decisions import UNJUDGED, Arguments, SecondDecision, costly

_NOBODY: Final = -1
NO_TOPIC: Final = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
_RECOVERING: Final = 1
_LOST, _UNASSIGNED, _MIGRATING = bytes(15) + b"\x02", bytes(15) + b"\x01", bytes(16)
#: The metadata versions that brought directories, and ELRs.
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


def can_write(view: Any, broker_id: int, directory: bytes) -> bool:
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


def allows_unclean(view: Any, topic: str) -> bool:
    return setting(view, topic, "unclean.leader.election.enable", "false").strip().lower() == "true"


def rules_for(view: Any, topic: str, factor: int, may_lead: Callable[[int], bool], election: Any = None) -> Any:
    if election is None:
        election = Election.UNCLEAN if allows_unclean(view, topic) else Election.ONLINE
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


def leads_of(view: Any, partition: Any, gone: Iterable[int] = (), added: int = _NOBODY) -> Callable[[int], bool]:
    """Returns who can lead: active, or just added, and with its directory."""
    directories = dict(zip(partition.replicas, partition.directories, strict=True))
    out = {_NOBODY, *gone}

    def leads(replica: int) -> bool:
        broker = view.image.brokers.get(replica)
        if replica in directories and broker is not None and not _has_directory(broker, directories[replica]):
            return False
        return replica not in out and (replica == added or is_active(view, replica))

    return leads


def partitions_of(view: Any) -> Iterator[tuple[Any, int, Any]]:
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


def writable_of(view: Any, partition: Any, isr: tuple[int, ...], leads: Callable[[int], bool]) -> tuple[int, ...]:
    directories = dict(zip(partition.replicas, partition.directories, strict=True))
    kept = tuple(each for each in isr if can_write(view, each, directories[each]))
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
    for topic, index, partition in partitions_of(view) if partitions is None else partitions:
        if not wanted(partition):
            continue
        leads = leads_of(view, partition, gone, added)
        isr = tuple(each for each in partition.isr if each not in gone)
        target = target_of(partition)._replace(
            isr=writable_of(view, partition, isr, leads), careless={unclean} - {_NOBODY}
        )
        change = change_of(view, topic, index, target, rules_for(view, topic.name, len(partition.replicas), leads))
        if change is UNJUDGED:
            return UNJUDGED
        if change is not None:
            changes.append(change)
    return changes


def portion(changes: Any, last: Sequence[object] = (), first: Sequence[object] = ()) -> Any:
    """Returns the records of the first portion, and whether it is the last one. A seed can draw short portions."""
    if changes is UNJUDGED:
        return UNJUDGED
    size = portions.PARTITIONS_IN_PORTION
    if len(changes) > size:
        return [*first, *changes[:size]], False
    return [*first, *changes, *last], True


def portion_of(portion: Any, view: Any, *_: Any, **__: Any) -> object:
    return shown_records(view, portion.records), portion.is_last


def broker_change(broker: Any, version: int, **fields: object) -> tuple[Any, ...]:
    values = {"broker_id": broker.broker_id, "broker_epoch": broker.epoch, **fields}
    return "BrokerRegistrationChangeRecord", version, {key: value for key, value in values.items() if value != 0}


def _is_same(view: Any, broker: Any) -> bool:
    current = view.image.brokers.get(broker.broker_id)
    return current is not None and current.epoch == broker.epoch


_NOTHING: Final[tuple[list[object], bool]] = ([], True)


def fenced(view: Any, broker: Any) -> object:
    if not _is_same(view, broker):
        return _NOTHING
    changes = moved(view, lambda partition: broker.broker_id in partition.isr, removed=broker.broker_id)
    return portion(changes, [_fence(broker, 1)])


def _fence(broker: Any, fenced: int) -> tuple[Any, ...]:
    name, version, fields = broker_change(broker, 0)
    return name, version, {**fields, "fenced": fenced}


def unfenced(view: Any, broker: Any) -> object:
    now = view.image.brokers.get(broker.broker_id)
    if now is None or now.epoch != broker.epoch or (now is not broker and now.fenced):
        return _NOTHING
    changes = moved(view, lambda partition: partition.leader == _NOBODY, added=broker.broker_id)
    return portion(changes, first=[_fence(broker, -1)] if now is broker else [])


def stopping(view: Any, broker: Any) -> object:
    if not _is_same(view, broker):
        return _NOTHING
    changes = moved(view, lambda partition: broker.broker_id in partition.isr, removed=broker.broker_id)
    begun = view.image.brokers[broker.broker_id].in_controlled_shutdown
    return portion(changes, first=[] if begun else [broker_change(broker, 1, in_controlled_shutdown=1)])


def _near_brokers(view: Any, broker: Any) -> Iterator[Arguments]:
    """Every broker of the image, and an earlier incarnation of each; then with different rules for topics."""
    for other in list(view.image.brokers.values())[:4]:
        yield view, other
        yield view, replace(other, epoch=other.epoch - 1)
        yield view, replace(other, rack="another")


def ended(view: Any, broker_id: int, *, clean: bool) -> object:
    if clean or view.image.metadata_version < _ELRS:
        return portion(moved(view, lambda partition: broker_id in partition.isr, removed=broker_id))
    return portion(moved(view, lambda partition: broker_id in (*partition.isr, *partition.elr), unclean=broker_id))


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
    found = portion(changes, [("UnregisterBrokerRecord", 0, {key: each for key, each in fields.items() if each})])
    if not isinstance(found, tuple):
        return found
    return found[0], None, "UNREGISTER_BROKER", found[1]


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
        broker.broker_id: (broker.rack, broker.fenced, not can_write(view, broker.broker_id, _UNASSIGNED))
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
    isr = [each for each in active if can_write(view, each, _new_directory(view, each))] or active
    if not isr:
        return None
    return state_of(partition)._replace(isr=tuple(isr), leader=isr[0], leader_epoch=0)


def _state(partition: Any, *_: Any) -> State | None:
    return None if partition is None else state_of(partition)


def _near_first(view: Any, partition: Any) -> Iterator[Arguments]:
    for (other,) in _near_placed(view):
        yield other, partition


_BROKERS: Final = "controller.requests.brokers:"

CONTROLLER_DECISIONS: Final = costly(
    SecondDecision(_BROKERS + "registration", _registered, _near_epochs, _id_of),
    SecondDecision(_BROKERS + "fence", fenced, _near_brokers, portion_of),
    SecondDecision(_BROKERS + "unfence", unfenced, _near_brokers, portion_of),
    SecondDecision(_BROKERS + "shut_down", stopping, _near_brokers, portion_of),
    SecondDecision(_BROKERS + "end_incarnation", ended, _near_incarnations, portion_of),
    SecondDecision(_BROKERS + "unregister", _unregistered, _near_ids, result_of),
    SecondDecision("controller.requests.view:ControllerView.usable_brokers", _usable, _near_placed, _usable_of),
    SecondDecision("controller.requests.view:ControllerView.rules", _expected_rules, _near_rules, _rules_of),
    SecondDecision("controller.requests.partitions:with_first_state", state_without_leader, _near_first, _state),
)
