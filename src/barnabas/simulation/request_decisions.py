"""Second decisions about requests for topics, settings, quotas and producer ids, by a controller.

Where the product draws replicas, only what must hold of them is compared: their number, and the first state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from ipaddress import ip_address
from typing import Any, Final

from barnabas.common.config_keys import BROKER_KEYS, CLIENT_METRICS_KEYS, GROUP_KEYS, TOPIC_KEYS, ConfigType
from barnabas.common.config_rules import check_client_metrics, check_group
from barnabas.common.errors import ConfigError, ErrorCode, RequestFailed
from barnabas.common.log_config import validate_topic_overrides
from barnabas.simulation.controller_decisions import is_active, refuse, setting, version_of
from barnabas.simulation.election_decisions import check_assigned
from barnabas.simulation.second_decisions import UNJUDGED, Arguments, SecondDecision, costly

_GROWTH_MAX, _KEYS_MAX, _NAME_MAX = 10_000, 1_000, 249
_TOPIC, _BROKER, _METRICS, _GROUP = 2, 4, 16, 32
_MIN_ISR: Final = "min.insync.replicas"
_SET, _DELETE, _APPEND, _SUBTRACT = range(4)
_DEFAULT: Final = -1


# -- new topics and partitions


def _is_name(name: str) -> bool:
    allowed = all(letter in "._-" or (letter.isascii() and letter.isalnum()) for letter in name)
    return allowed and 0 < len(name) <= _NAME_MAX and name not in (".", "..")


def _alike(image: Any, names: Any) -> object:
    wanted = [name for name in names if set(name) & set("._")]
    same = {name.replace(".", "_"): [] for name in wanted}  # type: dict[str, list[str]]
    for existing in image.topics_by_name:
        if existing.replace(".", "_") in same:
            same[existing.replace(".", "_")].append(existing)
    return {key: min(found) for key, found in same.items() if found}


def _names(image: Any, names: Any) -> Any:
    return UNJUDGED if isinstance(names, Iterator) else _alike(image, names)


def _near_names(image: Any, names: Any) -> Iterator[Arguments]:
    for existing in list(image.topics_by_name)[:4]:
        yield image, [existing.replace(".", "_"), existing.replace("_", "."), "unlike.any"]
    yield image, ["plain"]


def _new_topic(view: Any, topic: Any, budget: int) -> tuple[int, int]:
    """Returns the number of partitions and replicas. Raises RequestFailed if the topic cannot be created."""
    image = view.image
    if topic.name in image.topics_by_name:
        refuse(ErrorCode.TOPIC_ALREADY_EXISTS)
    if not _is_name(topic.name) or _alike(image, [topic.name]):
        refuse(ErrorCode.INVALID_TOPIC_EXCEPTION)
    if len(topic.assignments) > budget or len(topic.configs) > _KEYS_MAX:
        refuse(ErrorCode.POLICY_VIOLATION)
    values = {each.name: each.value for each in topic.configs}
    if None in values.values():
        refuse(ErrorCode.INVALID_CONFIG)
    _check_values(view, _TOPIC, topic.name, values)
    if topic.assignments:
        return _assigned_topic(view, topic)
    if topic.replication_factor < 1 and topic.replication_factor != _DEFAULT:
        refuse(ErrorCode.INVALID_REPLICATION_FACTOR)
    if topic.num_partitions < 1 and topic.num_partitions != _DEFAULT:
        refuse(ErrorCode.INVALID_PARTITIONS)
    count, factor = topic.num_partitions, topic.replication_factor
    count = view.config.int_of("num.partitions") if count == _DEFAULT else count
    factor = view.config.int_of("default.replication.factor") if factor == _DEFAULT else factor
    if count > budget:
        refuse(ErrorCode.POLICY_VIOLATION)
    _check_factor(view, factor)
    return count, factor


def _check_factor(view: Any, factor: int) -> None:
    usable = [broker for broker in view.image.brokers.values() if not broker.in_controlled_shutdown]
    if not 1 <= factor <= len(usable) or all(broker.fenced for broker in usable):
        refuse(ErrorCode.INVALID_REPLICATION_FACTOR)


def _assigned_topic(view: Any, topic: Any) -> tuple[int, int]:
    if (topic.replication_factor, topic.num_partitions) != (_DEFAULT, _DEFAULT):
        refuse(ErrorCode.INVALID_REQUEST)
    factor = None
    for each in topic.assignments:
        _check_new(view, each.broker_ids, factor)
        factor = len(each.broker_ids)
    indexes = {each.partition_index for each in topic.assignments}
    if indexes != set(range(len(topic.assignments))):
        refuse(ErrorCode.INVALID_REPLICA_ASSIGNMENT)
    return len(indexes), factor or 0


def _check_new(view: Any, replicas: Any, factor: int | None) -> None:
    check_assigned(view, replicas, factor)
    if not any(is_active(view, each) for each in replicas):
        refuse(ErrorCode.INVALID_REPLICA_ASSIGNMENT)


def _created(view: Any, request: Any, actor: str) -> object:
    times = Counter(topic.name for topic in request.topics)
    rows: list[Any] = []
    budget = _GROWTH_MAX
    for name in times:
        topic = next(each for each in request.topics if each.name == name)
        if times[name] > 1 or name == "__cluster_metadata":
            rows.append((name, ErrorCode.INVALID_REQUEST, None))
            continue
        try:
            count, factor = _new_topic(view, topic, budget)
        except RequestFailed as refusal:
            rows.append((name, refusal.code, None))
            continue
        budget -= count
        overrides = {each.name: each.value for each in topic.configs}
        sources = {key: (overrides[key], 1) for key in overrides}
        rows.append((name, ErrorCode.NONE, (count, factor, sources, {} if request.validate_only else overrides)))
    return sorted(rows, key=repr)


def _created_of(result: Any, view: Any, request: Any, actor: str) -> object:
    """Returns the rows, each with what its records say; or what is wrong with a record."""
    given = {topic.name: topic for topic in request.topics}
    partitions: dict[bytes, list[Any]] = {}
    overrides: dict[str, dict[str, Any]] = {}
    names: dict[str, bytes] = {}
    for record, version in result.records:
        if record.NAME == "TopicRecord":
            names[record.name] = record.topic_id
        elif record.NAME == "ConfigRecord":
            overrides.setdefault(record.resource_name, {})[record.name] = record.value
        elif record.NAME == "PartitionRecord":
            problem = _first_problem(view, record, version, len(partitions.get(record.topic_id, ())))
            if problem:
                return problem
            partitions.setdefault(record.topic_id, []).append(record)
    rows: list[Any] = []
    for row in result.response.topics:
        if row.error_code != ErrorCode.NONE:
            rows.append((row.name, ErrorCode(row.error_code), None))
            continue
        made = partitions.get(names.get(row.name, b""), [])
        is_made = len(made) == row.num_partitions and names.get(row.name) == row.topic_id
        if is_made == request.validate_only or any(len(each.replicas) != row.replication_factor for each in made):
            return f"{row.name} has other partitions than its row says"
        asked = {each.partition_index: list(each.broker_ids) for each in given[row.name].assignments}
        if (
            asked
            and not request.validate_only
            and [asked[index] for index in range(len(made))] != [each.replicas for each in made]
        ):
            return f"{row.name} is not assigned as asked"
        own = {each.name: (each.value, each.config_source) for each in row.configs if each.config_source == 1}
        kept = overrides.get(row.name, {})
        rows.append((row.name, ErrorCode.NONE, (row.num_partitions, row.replication_factor, own, kept)))
    return sorted(rows, key=repr)


def _first_problem(view: Any, record: Any, version: int, index: int) -> str:
    """Describes what is wrong with a new partition: its number, its ISR, or its leader."""
    active = [each for each in record.replicas if is_active(view, each)]
    if (record.partition_id, version) != (index, version_of(view)):
        return f"partition {record.partition_id}, version {version}"
    if len(record.directories) not in ((len(record.replicas),) if version else (0,)):
        return "not one directory for each replica"
    if (
        not record.isr
        or record.leader != record.isr[0]
        or [each for each in active if each in record.isr] != record.isr
    ):
        return f"ISR {record.isr} of {record.replicas}"
    left_out = [view.image.brokers[each] for each in active if each not in record.isr]
    if any(not broker.unwritable for broker in left_out):
        return f"ISR {record.isr} without {[broker.broker_id for broker in left_out]}"
    return "" if (record.leader_epoch, record.partition_epoch) == (0, 0) else "epochs do not begin at 0"


def _near_topics(view: Any, request: Any, actor: str) -> Iterator[Arguments]:
    """Yields requests that are refused: others would draw random numbers."""
    make, row = type(request), type(request).CreatableTopic
    existing = [*list(view.image.topics_by_name)[:1], "a", "x" * 250, "", ".", "a/b"]
    topics = [row(name=name, num_partitions=1, replication_factor=0) for name in existing]
    topics += [row(name=f"n{count}", num_partitions=count, replication_factor=1) for count in (0, -2, 10_001)]
    topics += [row(name=f"f{factor}", num_partitions=1, replication_factor=factor) for factor in (-2, 0, 500)]
    assigned = type(request).CreatableReplicaAssignment
    for name, replicas, index in (("e", [], 0), ("u", [4_000], 0), ("h", list(view.image.brokers)[:1], 1)):
        rows = [assigned(partition_index=index, broker_ids=replicas)]
        topics.append(row(name=name, num_partitions=-1, replication_factor=-1, assignments=rows))
        topics.append(row(name=name + "2", num_partitions=1, replication_factor=-1, assignments=rows))
        topics.append(row(name=name + "3", num_partitions=-1, replication_factor=1, assignments=rows))
    yield view, make(topics=[*topics, *(row(name="twice") for _ in range(2)), row(name="__cluster_metadata")]), actor


def _grown(view: Any, request: Any, actor: str) -> object:
    times = Counter(topic.name for topic in request.topics)
    rows: list[tuple[str, ErrorCode, int]] = [
        (name, ErrorCode.INVALID_REQUEST, 0) for name, count in times.items() if count > 1
    ]
    budget = _GROWTH_MAX
    for topic in request.topics:
        if times[topic.name] == 1:
            try:
                added = _growth(view, topic, budget)
            except RequestFailed as refusal:
                rows.append((topic.name, refusal.code, 0))
                continue
            budget -= added
            rows.append((topic.name, ErrorCode.NONE, 0 if request.validate_only else added))
    return sorted(rows)


def _growth(view: Any, topic: Any, budget: int) -> int:
    known = view.image.topics_by_name.get(topic.name)
    if known is None:
        raise RequestFailed(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    added: int = topic.count - len(known.partitions)
    if added < 1:
        refuse(ErrorCode.INVALID_PARTITIONS)
    if topic.assignments is not None and added != len(topic.assignments):
        refuse(ErrorCode.INVALID_REPLICA_ASSIGNMENT)
    if added > budget:
        refuse(ErrorCode.POLICY_VIOLATION)
    factor = len(known.partitions[0].replicas)
    if topic.assignments is None:
        _check_factor(view, factor)
    for each in topic.assignments or ():
        _check_new(view, each.broker_ids, factor)
    return added


def _grown_of(result: Any, view: Any, request: Any, actor: str) -> object:
    added: Counter[str] = Counter()
    for record, version in result.records:
        topic = view.image.topics_by_id[record.topic_id]
        problem = _first_problem(view, record, version, len(topic.partitions) + added[topic.name])
        if problem or len(record.replicas) != len(topic.partitions[0].replicas):
            return problem or "another replication factor"
        added[topic.name] += 1
    rows = [(row.name, ErrorCode(row.error_code), added[row.name]) for row in result.response.results]
    return sorted(rows)


# -- settings


def _check_values(view: Any, kind: int, name: str, values: dict[str, Any]) -> None:
    """Raises RequestFailed if a resource cannot have these values."""
    if kind == _BROKER:
        digits = name.removeprefix("-")
        if name and (not digits.isdigit() or not digits.isascii() or name.startswith("-")):
            refuse(ErrorCode.INVALID_REQUEST)
        return
    if kind not in (_TOPIC, _METRICS, _GROUP) or not name:
        refuse(ErrorCode.INVALID_REQUEST)
    try:
        if kind == _TOPIC:
            validate_topic_overrides(values)
        elif kind == _GROUP:
            check_group(values, view.config)
        else:
            check_client_metrics(values)
    except ConfigError:
        refuse(ErrorCode.INVALID_CONFIG)


def _changed_value(view: Any, kind: int, name: str, change: Any, now: str | None) -> str | None:
    if change.operation in (_SET, _DELETE):
        return change.value if change.operation == _SET else None
    if change.operation not in (_APPEND, _SUBTRACT):
        refuse(ErrorCode.INVALID_REQUEST)
    keys: Any = {_TOPIC: TOPIC_KEYS, _BROKER: BROKER_KEYS, _METRICS: CLIENT_METRICS_KEYS, _GROUP: GROUP_KEYS}
    key = keys.get(kind, {}).get(change.key)
    if key is None or key.type is not ConfigType.LIST:
        refuse(ErrorCode.INVALID_CONFIG)
    if now is None:
        server = TOPIC_KEYS[change.key].server_default if kind == _TOPIC else None
        now = key.default if server is None else setting(view, name, server, key.default or "")
    items = [item for item in (now or "").split(",") if now]
    for item in (change.value or "").split(","):
        if change.operation == _APPEND:
            items += [item] * (item not in items)
        elif item in items:
            del items[items.index(item)]
    return ",".join(items)


def _altered(view: Any, kind: int, name: str, changes: Any, *, is_new: bool = False) -> object:
    _count(changes)
    values = dict(view.image.config_of(kind, name))
    rows = []
    for change in changes:
        before = values.pop(change.key, None)
        now = _changed_value(view, kind, name, change, before)
        if now is not None:
            values[change.key] = now
        if now != before or kind == _BROKER:
            rows.append(("set", kind, name, change.key, now))
    _check_values(view, kind, name, values)
    if kind == _TOPIC and not is_new and name not in view.image.topics_by_name:
        refuse(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if kind == _BROKER and name and not is_new and int(name) not in {*view.image.brokers, *view.image.controllers}:
        refuse(ErrorCode.BROKER_ID_NOT_REGISTERED)
    has_elrs = view.image.features.get("eligible.leader.replicas.version", 0) > 0
    limits = [row for row in rows if row[3] == _MIN_ISR]
    return [*rows, *(_cleared(view, kind, name, limits[-1][4]) if has_elrs and limits else ())]


def _cleared(view: Any, kind: int, name: str, value: str | None) -> list[tuple[Any, ...]]:
    """Returns that the ELRs are cleared where the min ISR changes, but kept where nobody is in sync."""
    if kind == _BROKER and (name or value is None):
        refuse(ErrorCode.INVALID_CONFIG)
    if kind not in (_BROKER, _TOPIC):
        return []
    rows: list[tuple[Any, ...]] = [("clear", name)]
    for topic in sorted(view.image.topics_by_name.values(), key=lambda topic: topic.name):
        for index, partition in enumerate(topic.partitions if name in ("", topic.name) else ()):
            kept = (partition.elr, partition.last_known_elr)
            if not partition.isr and any(kept):
                rows.append(("kept", topic.name, index, *(list(each) or None for each in kept), version_of(view)))
    return rows


def _altered_of(records: Any, view: Any, *_: Any, **__: Any) -> object:
    rows: list[tuple[Any, ...]] = []
    for record, version in records:
        if record.NAME == "ConfigRecord":
            rows.append(("set", record.resource_type, record.resource_name, record.name, record.value))
        elif record.NAME == "ClearElrRecord":
            rows.append(("clear", record.topic_name))
        else:
            name = view.image.topics_by_id[record.topic_id].name
            elrs = (record.eligible_leader_replicas, record.last_known_elr)
            is_more = record.isr is not None or record.leader != -2
            rows.append(("kept" if not is_more else "more", name, record.partition_id, *elrs, version))
    return rows


def near_settings(view: Any, kind: int, name: str, changes: Any, *, is_new: bool = False) -> Iterator[Arguments]:
    """Limits of the ISR and lists, set, removed, appended to and unchanged, of each kind of resource."""
    if not changes:
        return
    make = type(changes[0])
    topics = [*list(view.image.topics_by_name)[:2], "no such topic"]
    resources = [(_TOPIC, each) for each in topics]
    resources += [(_BROKER, each) for each in ("", "1", str(view.config.node_id), "4000", "x", "-1")]
    resources += [(_METRICS, "m"), (_GROUP, "g"), (_GROUP, ""), (8, "1"), (3, "x")]
    limit = make(_MIN_ISR, _SET, "2")
    for resource in resources:
        for wanted in (
            [limit],
            [limit, limit],
            [limit, make(_MIN_ISR, _DELETE, None)],
            [make(_MIN_ISR, _DELETE, None)],
            [make("cleanup.policy", _APPEND, "compact")],
            [make("cleanup.policy", _SUBTRACT, "delete"), make("cleanup.policy", _APPEND, "compact,delete")],
            [make("cleanup.policy", 4, "delete")],
            [make("retention.ms", _APPEND, "1")],
            [make("retention.ms", _SET, "x")],
        ):
            yield view, *resource, wanted


def _count(changes: Any) -> None:
    if len(changes) > _KEYS_MAX:
        refuse(ErrorCode.POLICY_VIOLATION)


def _near_counts(changes: Any) -> Iterator[Arguments]:
    for count in (_KEYS_MAX, _KEYS_MAX + 1):
        yield (range(count),)


# -- quotas

_OF_CLIENTS: Final = {
    "producer_byte_rate": 2.0**63,
    "consumer_byte_rate": 2.0**63,
    "request_percentage": None,
    "controller_mutation_rate": None,
}
_OF_ADDRESSES: Final = {"connection_creation_rate": 2.0**31 - 1}


def _is_ip(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _quotas(view: Any, entity: Any, ops: Any) -> list[tuple[Any, ...]]:
    """Returns what changes (entity, key, value, removed). Raises RequestFailed if a quota is not allowed."""
    parts = dict(entity)
    is_sound = bool(parts) and set(parts) <= {"user", "client-id", "ip"} and "" not in parts.values()
    if "ip" in parts:
        is_sound = is_sound and len(parts) == 1 and (parts["ip"] is None or _is_ip(parts["ip"]))
    if not is_sound:
        refuse(ErrorCode.INVALID_REQUEST)
    kinds: Any = _OF_ADDRESSES if "ip" in parts else _OF_CLIENTS
    present = view.image.security.quotas.get(entity, {})
    rows: list[tuple[Any, ...]] = []
    for op in ops:
        if op.remove:
            rows += [(entity, op.key, 0.0, True)] if op.key in present else []
            continue
        if op.key not in kinds or not op.value > 0:
            refuse(ErrorCode.INVALID_REQUEST)
        limit = kinds[op.key]
        if limit is not None and (op.value > limit or op.value == float("inf") or op.value % 1 > 1e-6):
            refuse(ErrorCode.INVALID_REQUEST)
        if present.get(op.key) != op.value:
            rows.append((entity, op.key, op.value, False))
    return rows


def _quotas_altered(view: Any, request: Any, actor: str) -> object:
    rows: dict[Any, ErrorCode] = {}
    changes: list[tuple[Any, ...]] = []
    for entry in request.entries:
        entity = tuple(sorted({each.entity_type: each.entity_name for each in entry.entity}.items()))
        keys = [op.key for op in entry.ops]
        if entity in rows or len(keys) != len(set(keys)):
            rows[entity] = ErrorCode.INVALID_REQUEST
            continue
        try:
            changes += _quotas(view, entity, entry.ops)
            rows[entity] = ErrorCode.NONE
        except RequestFailed as refusal:
            rows[entity] = refusal.code
    return list(rows.items()), changes


def _entity(parts: Any) -> tuple[Any, ...]:
    return tuple((each.entity_type, each.entity_name) for each in parts)


def _quotas_of(result: Any, *_: Any) -> object:
    rows = [(_entity(row.entity), ErrorCode(row.error_code)) for row in result.response.entries]
    changes = [(_entity(record.entity), record.key, record.value, record.remove) for record, _ in result.records]
    return rows, changes


def near_quotas(view: Any, request: Any, actor: str) -> Iterator[Arguments]:
    """Entities of each kind, also of wrong ones, with values at their limits."""
    make = type(request)
    if not request.entries or not request.entries[0].entity or not request.entries[0].ops:
        return
    row, op = type(request.entries[0].entity[0]), type(request.entries[0].ops[0])
    values = (0.0, -1.0, 0.5, 1.0, 1.0000001, 1.5, 2.0**31 - 1, 2.0**31, 2.0**63, 2.0**64, float("inf"))
    kinds = (*_OF_CLIENTS, *_OF_ADDRESSES, "no_such_rate")
    entities: tuple[tuple[tuple[str, str | None], ...], ...] = (
        (("user", "u"),),
        (("user", None), ("client-id", "c")),
        (("client-id", ""),),
        (("ip", "127.0.0.1"),),
        (("ip", None),),
        (("ip", "host"),),
        (("ip", "::1"), ("user", "u")),
        (("other", "x"),),
        (),
    )
    for number, entity in enumerate([*entities, *list(view.image.security.quotas)[:2]]):
        parts = [row(entity_type=kind, entity_name=name) for kind, name in entity]
        for place, key in enumerate(kinds):
            value = values[(number * len(kinds) + place * 4) % len(values)]
            for ops in ([op(key=key, value=value)], [op(key=key, remove=True)]):
                yield view, make(entries=[make.EntryData(entity=parts, ops=ops)]), actor
    user = [row(entity_type="user", entity_name="u")]
    for value in values:
        for key in kinds:
            ops = [op(key=key, value=value)]
            yield view, make(entries=[make.EntryData(entity=user, ops=ops)] * 2), actor
            address = [row(entity_type="ip", entity_name=None)]
            yield view, make(entries=[make.EntryData(entity=address, ops=ops)]), actor
    yield view, make(entries=[make.EntryData(entity=user, ops=[op(key=kinds[0], value=5.0)] * 2)]), actor


# -- producer ids

_BLOCK, _LAST_ID = 1_000, 2**63 - 1


def _allocated(view: Any, broker_id: int, broker_epoch: int) -> object:
    broker = view.image.brokers.get(broker_id)
    if broker is None or broker.epoch != broker_epoch:
        refuse(ErrorCode.STALE_BROKER_EPOCH)
    first = view.image.next_producer_id if view.image.next_producer_id > 0 else 0
    if first + _BLOCK > _LAST_ID:
        refuse(ErrorCode.UNKNOWN_SERVER_ERROR)
    return first, _BLOCK, [(broker_id, broker_epoch, first + _BLOCK)]


def _allocated_of(result: Any, *_: Any) -> object:
    block = result.response
    records = [(record.broker_id, record.broker_epoch, record.next_producer_id) for record, _ in result.records]
    return block.first_id, block.length, records


def _near_ids(view: Any, broker_id: int, broker_epoch: int) -> Iterator[Arguments]:
    for at in (-1, 0, 1, 5_000, _LAST_ID - _BLOCK - 1, _LAST_ID - _BLOCK, _LAST_ID - _BLOCK + 1):
        other = replace(view, image=replace(view.image, next_producer_id=at))
        yield other, broker_id, broker_epoch
        yield other, broker_id, broker_epoch + 1


_TOPICS: Final = "controller.requests.topics:"

REQUEST_DECISIONS: Final = costly(
    SecondDecision(_TOPICS + "names_alike", _names, _near_names),
    SecondDecision(_TOPICS + "create_topics", _created, _near_topics, _created_of),
    SecondDecision(_TOPICS + "create_partitions", _grown, shown=_grown_of),
    SecondDecision("controller.requests.configs:check_count", _count, _near_counts),
    SecondDecision("controller.requests.configs:alter_resource", _altered, near_settings, _altered_of),
    SecondDecision(
        "controller.requests.client_quotas:alter_client_quotas",
        _quotas_altered,
        near_quotas,
        _quotas_of,
    ),
    SecondDecision("controller.requests.producer_ids:allocate", _allocated, _near_ids, _allocated_of),
)
