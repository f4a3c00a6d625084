"""Second decisions of a controller in ZooKeeper mode: parts of requests, writes of znodes, what was read of topics,
the first states of partitions, and which leaders are moved back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final

from barnabas.common.errors import ErrorCode
from barnabas.controller.zookeeper import slices
from barnabas.controller.zookeeper.znode_writes import ZnodeWrite
from barnabas.metadata.topics import PartitionImage, partition_from_record
from barnabas.simulation.controller_decisions import (
    change_of,
    is_active,
    rules_for,
    shown_records,
    state_without_leader,
    version_of,
)
from barnabas.simulation.partition_decisions import state_of, target_of
from barnabas.simulation.second_decisions import UNJUDGED, Arguments, SecondDecision, costly
from barnabas.zookeeper.client.store import ZnodeContent
from barnabas.zookeeper.wire.codes import OpCode

_NOBODY, _ANY, _NO_STATE = -1, -1, -1
_LOST: Final = bytes(15) + b"\x02"


# -- parts of requests


def _parts_of_rows(topics: Iterable[tuple[Any, list[Any]]]) -> list[list[Any]]:
    """Returns the rows (topic, row) of each part; a topic without rows takes no space."""
    parts: list[list[Any]] = [[]]
    left = slices.PARTITIONS_AT_ONCE
    for topic, rows in topics:
        for row in rows or [None]:
            if left == 0:
                parts.append([])
                left = slices.PARTITIONS_AT_ONCE
            parts[-1].append((topic, row))
            left -= row is not None
    return parts


def _alter_parts(request: Any) -> object:
    rows = _parts_of_rows((topic.topic_id, topic.partitions) for topic in request.topics)
    return [(request.broker_id, request.broker_epoch, part) for part in rows]


def _flat(topics: Iterable[tuple[Any, list[Any]]]) -> list[Any]:
    return [(topic, row) for topic, rows in topics for row in rows or [None]]


def _alter_parts_of(parts: Any, request: Any) -> object:
    return [
        (part.broker_id, part.broker_epoch, _flat((topic.topic_id, topic.partitions) for topic in part.topics))
        for part in parts
    ]


_SIZES: Final = ((), (1,), (99, 1), (100,), (101,), (99, 2), (100, 1), (0, 100, 0, 1), (250, 60, 90, 1), (60, 60, 60))


def _near_alter_parts(request: Any) -> Iterator[Arguments]:
    make = type(request)
    for sizes in _SIZES:
        topics = [
            make.TopicData(
                topic_id=bytes(15) + bytes([number]),
                partitions=[make.PartitionData(partition_index=index) for index in range(size)],
            )
            for number, size in enumerate(sizes)
        ]
        yield (make(broker_id=3, broker_epoch=7, topics=topics),)


def _elect_parts(request: Any) -> object:
    rows = _parts_of_rows((each.topic, each.partitions) for each in request.topic_partitions or ())
    return [(request.election_type, request.timeout_ms, part) for part in rows]


def _elect_parts_of(parts: Any, request: Any) -> object:
    return [
        (part.election_type, part.timeout_ms, _flat((each.topic, each.partitions) for each in part.topic_partitions))
        for part in parts
    ]


def _near_elect_parts(request: Any) -> Iterator[Arguments]:
    make = type(request)
    for sizes in _SIZES:
        topics = [
            make.TopicPartitions(topic=f"t{number}", partitions=list(range(size))) for number, size in enumerate(sizes)
        ]
        yield (make(election_type=1, timeout_ms=9, topic_partitions=topics),)


def _move_parts(request: Any) -> object:
    rows = _parts_of_rows((topic.name, topic.partitions) for topic in request.topics)
    return [(request.timeout_ms, request.allow_replication_factor_change, part) for part in rows]


def _move_parts_of(parts: Any, request: Any) -> object:
    return [
        (
            part.timeout_ms,
            part.allow_replication_factor_change,
            _flat((topic.name, topic.partitions) for topic in part.topics),
        )
        for part in parts
    ]


def _near_move_parts(request: Any) -> Iterator[Arguments]:
    make = type(request)
    for sizes in _SIZES:
        topics = [
            make.ReassignableTopic(
                name=f"t{number}",
                partitions=[make.ReassignablePartition(partition_index=index) for index in range(size)],
            )
            for number, size in enumerate(sizes)
        ]
        for may_resize in (True, False):
            yield (make(timeout_ms=9, allow_replication_factor_change=may_resize, topics=topics),)


def _filled(sizes: Iterable[tuple[str, int]]) -> list[list[str]]:
    """Returns the names of the rows of each part: whole topics, until the next one does not fit."""
    rows: dict[str, list[int]] = {}
    for name, size in sizes:
        rows.setdefault(name, []).append(size if size > 1 else 1)
    parts: list[list[str]] = [[]]
    used = 0
    for name, taken in rows.items():
        if used and used + sum(taken) > slices.PARTITIONS_AT_ONCE:
            parts.append([])
            used = 0
        parts[-1] += [name] * len(taken)
        used += sum(taken)
    return parts


def _create_parts(request: Any) -> object:
    sizes = [(row.name, max(row.num_partitions, len(row.assignments))) for row in request.topics]
    return [(request.timeout_ms, request.validate_only, names) for names in _filled(sizes)]


def _names_of(parts: Any, *_: Any) -> object:
    return [(part.timeout_ms, part.validate_only, [row.name for row in part.topics]) for part in parts]


def _near_create_parts(request: Any) -> Iterator[Arguments]:
    make = type(request)
    for sizes in (*_SIZES, (50, 50, 1), (200, -1, -1), (50, 49, 1, 1)):
        rows = [make.CreatableTopic(name=f"t{number}", num_partitions=size) for number, size in enumerate(sizes)]
        twice = [make.CreatableTopic(name="t0", num_partitions=60)]
        assigned = make.CreatableTopic(name="a", num_partitions=-1)
        assigned.assignments = [make.CreatableReplicaAssignment(partition_index=index) for index in range(99)]
        for more in ([], twice, [assigned]):
            for only in (True, False):
                yield (make(timeout_ms=9, validate_only=only, topics=[*rows, *more]),)


def _growth_parts(request: Any, topics: Any) -> object:
    sizes = [
        (row.name, row.count - len(topics[row.name].partitions) if row.name in topics else 1) for row in request.topics
    ]
    return [(request.timeout_ms, request.validate_only, names) for names in _filled(sizes)]


def _near_growth_parts(request: Any, topics: Any) -> Iterator[Arguments]:
    make = type(request)
    for sizes in (*_SIZES, (98, 1, 1), (50, 51, 1)):
        rows = []
        for number, name in enumerate([*list(topics)[: len(sizes)], "no such topic"]):
            size = sizes[number] if number < len(sizes) else 500
            present = len(topics[name].partitions) if name in topics else 0
            rows.append(make.CreatePartitionsTopic(name=name, count=present + size))
        yield make(timeout_ms=9, validate_only=True, topics=rows), topics
        yield make(timeout_ms=9, validate_only=False, topics=[*rows, *rows[:1]]), topics


def _joined_rows(responses: Any, rows_of: Any, name_of: Any, cells_of: Any) -> object:
    for each in responses:
        if each.error_code:
            return each.error_code, None
    joined: dict[Any, list[Any]] = {}
    for each in responses:
        for row in rows_of(each):
            joined.setdefault(name_of(row), []).extend(cells_of(row))
    return 0, list(joined.items())


def _altered(response: Any) -> Any:
    return response.topics


def _topic_id(row: Any) -> Any:
    return row.topic_id


def _partitions(row: Any) -> Any:
    return row.partitions


def _join_alter(responses: Any) -> object:
    return _joined_rows(responses, _altered, _topic_id, _partitions)


def _join_alter_of(response: Any, _: Any) -> object:
    rows = [(row.topic_id, list(row.partitions)) for row in response.topics]
    return response.error_code, None if response.error_code else rows


def _join_elect(responses: Any) -> object:
    return _joined_rows(
        responses, lambda each: each.replica_election_results, lambda row: row.topic, lambda row: row.partition_result
    )


def _join_elect_of(response: Any, _: Any) -> object:
    rows = [(row.topic, list(row.partition_result)) for row in response.replica_election_results]
    return response.error_code, None if response.error_code else rows


# -- writes of znodes


def _is_done(write: Any, found: Any) -> bool:
    """Returns whether a znode is as a write leaves it: also when only its answer was lost."""
    if write.op == OpCode.DELETE:
        return found is None
    if found is None or bytes(found.data or b"") != bytes(write.data or b""):
        return False
    is_checked = write.op != OpCode.CREATE and write.version != _ANY
    return not is_checked or found.version - 1 == write.version


def _near_writes(write: Any, found: Any) -> Iterator[Arguments]:
    for op in (OpCode.CREATE, OpCode.SET_DATA, OpCode.DELETE):
        for data in (None, b"", b"x"):
            for version in (_ANY, 0, 3):
                other = ZnodeWrite(op, "/a", data, version)
                yield other, None
                for there in (None, b"", b"x", b"y"):
                    for after in (0, 1, 3, 4, 5):
                        yield other, ZnodeContent(there, after)


def _part(write: Any) -> object:
    if write.op == OpCode.CREATE:
        return OpCode.CREATE, (write.path, write.data, None, 1 if write.is_ephemeral else 0)
    if write.op == OpCode.SET_DATA:
        return OpCode.SET_DATA, (write.path, write.data, write.version)
    return OpCode.DELETE, (write.path, write.version)


def _part_of(part: Any, _: Any) -> object:
    return part.type, tuple(part.record)


def _near_parts(write: Any) -> Iterator[Arguments]:
    for op in (OpCode.CREATE, OpCode.SET_DATA, OpCode.DELETE):
        for is_ephemeral in (True, False):
            yield (ZnodeWrite(op, "/a", b"x", 4, is_ephemeral),)


def _fitting(write: Any, found: Any) -> object:
    op = write.op
    if write.is_put:
        op = OpCode.SET_DATA if found is not None else OpCode.CREATE
    return op, write.path, write.data, write.version, write.is_ephemeral


def _fitting_of(write: Any, *_: Any) -> object:
    return write.op, write.path, write.data, write.version, write.is_ephemeral


def _near_fitting(write: Any, found: Any) -> Iterator[Arguments]:
    for is_put in (True, False):
        for op in (OpCode.CREATE, OpCode.SET_DATA, OpCode.DELETE):
            for there in (None, ZnodeContent(b"", 0)):
                yield ZnodeWrite(op, "/a", b"x", 4, is_put=is_put), there


# -- topics that are read


def _change(reading: Any, topic_id: bytes, known: Any) -> object:
    """Returns the records of the topic, and its partitions that are new or different."""
    records = []
    before: tuple[Any, ...] = ()
    if known is not None and known.topic_id == topic_id:
        before = known.partitions
    elif known is not None:
        records.append(("RemoveTopicRecord", known.topic_id))
    if known is None or known.topic_id != topic_id:
        records.append(("TopicRecord", topic_id))
    now = reading._partitions
    if len(now) < len(before):
        return "fewer"
    changed = {}
    for index, partition in now.items():
        was = before[index] if index < len(before) else None
        if was is not None and was.replicas == partition.replicas:
            partition = partition._replace(directories=was.directories)
        if partition != was:
            changed[index] = partition
    return records, topic_id, changed, dict(reading.epochs)


def _change_of(found: Any, *_: Any) -> object:
    records, read = found
    return [(each.NAME, each.topic_id) for each in records], read.topic_id, dict(read.partitions), dict(read.epochs)


def _near_change(reading: Any, topic_id: bytes, known: Any) -> Iterator[Arguments]:
    if len(reading._partitions) == len(reading.assignment.partitions):
        yield reading, topic_id, None
        if known is not None:
            yield reading, b"?" * 16, known


def _added(reading: Any, index: int, znode: Any) -> object:
    return UNJUDGED if znode is not None else _without_state(reading, index)


def _without_state(reading: Any, index: int) -> PartitionImage:
    assigned = reading.assignment.partitions[index]
    directories = (bytes(16),) * len(assigned.replicas)
    none = (_NOBODY, _NO_STATE, _NO_STATE)
    return PartitionImage(assigned.replicas, (), *none, directories, assigned.removing, assigned.adding)


def _added_of(_: Any, reading: Any, index: int, znode: Any) -> object:
    return reading._partitions[index]


# -- partitions without a state, and leaders


def _first_states(view: Any, partitions: Any) -> object:
    if not isinstance(partitions, list | tuple):
        return UNJUDGED
    found = []
    for topic, index, partition in partitions:
        state = None if partition.partition_epoch != _NO_STATE else state_without_leader(view, partition)
        if state is not None:
            found.append((topic.topic_id, index, state))
    return found


def _first_states_of(result: Any, *_: Any) -> object:
    return [
        (record.topic_id, record.partition_id, state_of(partition_from_record(record))) for record, _ in result.records
    ]


def _near_first_states(view: Any, partitions: Any) -> Iterator[Arguments]:
    for name, topic in list(view.image.topics_by_name.items())[:3]:
        assert name == topic.name, "by name"
        for epoch in (_NO_STATE, 0):
            rows = [(topic, index, each._replace(partition_epoch=epoch)) for index, each in enumerate(topic.partitions)]
            yield view, rows


def _imbalanced(view: Any, percentage: int) -> object:
    """Returns the partitions led elsewhere, of brokers that miss too large a part of those that prefer them."""
    wanted: dict[int, list[tuple[str, int, bool]]] = {}
    for name in sorted(view.image.topics_by_name):
        for index, partition in enumerate(view.image.topics_by_name[name].partitions):
            if partition.partition_epoch != _NO_STATE:
                preferred = partition.replicas[0]
                wanted.setdefault(preferred, []).append((name, index, partition.leader != preferred))
    found = []
    for rows in wanted.values():
        missed = [row for row in rows if row[2]]
        if len(missed) / len(rows) > percentage / 100:
            found += [(name, index) for name, index, _ in missed]
    return sorted(found)


def _imbalanced_of(located: Any, *_: Any) -> object:
    return [(topic.name, index) for topic, index, _ in located]


def _near_imbalanced(view: Any, percentage: int) -> Iterator[Arguments]:
    shares: Counter[int] = Counter()
    for topic in view.image.topics_by_name.values():
        for partition in topic.partitions:
            shares[partition.replicas[0]] += 1
    for each in (0, 10, 25, 50, 75, 100, *(100 * part // (count or 1) for count in shares.values() for part in (1, 2))):
        yield view, each


def _online(view: Any, partition: Any) -> list[int]:
    pairs = zip(partition.replicas, partition.directories, strict=True)
    return [replica for replica, directory in pairs if replica in view.image.brokers and directory != _LOST]


def _settled(view: Any, partitions: Any) -> object:
    return _adapted(view, partitions, None)


def _stopped(view: Any, broker_id: int, partitions: Any) -> object:
    return _adapted(view, partitions, broker_id)


def _adapted(view: Any, partitions: Any, stopping: int | None) -> object:
    """Returns the partitions that change when members are offline, or when a broker stops."""
    if not isinstance(partitions, list | tuple):
        return UNJUDGED
    changes: list[Any] = []
    for topic, index, partition in partitions:
        online = _online(view, partition)
        leaders = {each for each in online if is_active(view, each) or each == partition.leader}
        if stopping is None:
            if partition.partition_epoch == _NO_STATE:
                continue
            isr = tuple(each for each in partition.isr if each in online) or partition.isr
        else:
            if stopping not in partition.isr:
                continue
            staying = [each for each in partition.isr if each != stopping]
            if partition.leader == stopping:
                staying = [each for each in partition.isr if each in online and is_active(view, each)]
            isr = tuple(staying)
            if not leaders & set(isr):
                continue
        rules = rules_for(view, topic.name, len(partition.replicas), leaders.__contains__)
        changes.append(change_of(view, topic, index, target_of(partition)._replace(isr=isr), rules))
    return UNJUDGED if UNJUDGED in changes else [change for change in changes if change is not None]


def _adapted_of(records: Any, view: Any, *_: Any) -> object:
    return shown_records(view, records)


def _located(view: Any) -> list[Any]:
    topics = list(view.image.topics_by_name.values())[:4]
    return [(topic, index, partition) for topic in topics for index, partition in enumerate(topic.partitions)]


def _near_settled(view: Any, partitions: Any) -> Iterator[Arguments]:
    yield view, _located(view)


def _near_stopped(view: Any, broker_id: int, partitions: Any) -> Iterator[Arguments]:
    for other in list(view.image.brokers)[:4]:
        yield view, other, _located(view)


def _is_unsettled(view: Any, partition: Any) -> bool:
    if partition.adding_replicas or partition.removing_replicas or partition.leader == _NOBODY:
        return True
    return not set(partition.isr) <= set(_online(view, partition))


def _near_unsettled(view: Any, partition: Any) -> Iterator[Arguments]:
    for other in ({}, {"leader": _NOBODY}, {"adding_replicas": (1,)}, {"removing_replicas": (1,)}, {"isr": (4_000,)}):
        yield view, partition._replace(**other)


def _raised(view: Any, partitions: Any) -> object:
    if not isinstance(partitions, list | tuple):
        return UNJUDGED
    return [
        ("changed", topic.name, index, state_of(each)._replace(leader_epoch=each.leader_epoch + 1), version_of(view))
        for topic, index, each in partitions
        if each.partition_epoch != _NO_STATE
    ]


# -- features


def _refused(request: Any, api_version: int, *, is_active: bool) -> object:
    if not is_active:
        return ErrorCode.NOT_CONTROLLER, []
    first: dict[str, Any] = {}
    for update in reversed(request.feature_updates):
        first[update.feature] = update
    order = list(dict.fromkeys(update.feature for update in request.feature_updates))
    return ErrorCode.NONE, [(name, ErrorCode.INVALID_REQUEST, _reason(first[name], api_version)) for name in order]


def _reason(update: Any, api_version: int) -> str:
    kind = 2 if api_version == 0 and update.allow_downgrade else update.upgrade_type
    if update.feature == "":
        return "empty"
    if kind not in (1, 2, 3):
        return "unknown upgrade"
    if update.max_version_level > 0:
        return "not supported"
    return "non-existing" if kind != 1 else "less than 1"


_REASONS: Final = ("empty", "unknown upgrade", "not supported", "non-existing", "less than 1")


def _refused_of(response: Any, *_: Any, **__: Any) -> object:
    rows = [
        (row.feature, row.error_code, next((each for each in _REASONS if each in row.error_message), ""))
        for row in response.results
    ]
    return response.error_code, rows


def _near_refused(request: Any, api_version: int, *, is_active: bool) -> Iterator[Arguments]:
    make = type(request)
    rows = [
        make.FeatureUpdateKey(feature=f"{level} {kind} {down}", max_version_level=level, upgrade_type=kind)
        for level in (-1, 0, 1, 2)
        for kind in (0, 1, 2, 3, 4)
        for down in (True, False)
    ]
    for row in rows:
        row.allow_downgrade = row.feature.endswith("True")
    rows += [make.FeatureUpdateKey(feature=name, max_version_level=0, upgrade_type=9) for name in ("", "0 1 True")]
    for version in (0, 1):
        yield make(feature_updates=rows), version


_PARTS: Final = "controller.zookeeper.request_parts:"
_WRITES: Final = "controller.zookeeper.znode_writes:ZnodeWrite."
_READS: Final = "controller.zookeeper.topic_reads:TopicReading."
_REPLICAS: Final = "controller.zookeeper.replica_changes:"

ZOOKEEPER_DECISIONS: Final = costly(
    SecondDecision(_PARTS + "parts_of_alter_partition", _alter_parts, _near_alter_parts, _alter_parts_of),
    SecondDecision(_PARTS + "parts_of_elect_leaders", _elect_parts, _near_elect_parts, _elect_parts_of),
    SecondDecision(_PARTS + "parts_of_alter_reassignments", _move_parts, _near_move_parts, _move_parts_of),
    SecondDecision(_PARTS + "parts_of_create_topics", _create_parts, _near_create_parts, _names_of),
    SecondDecision(_PARTS + "parts_of_create_partitions", _growth_parts, _near_growth_parts, _names_of),
    SecondDecision(_PARTS + "joined_alter_partition", _join_alter, shown=_join_alter_of),
    SecondDecision(_PARTS + "joined_elect_leaders", _join_elect, shown=_join_elect_of),
    SecondDecision(_WRITES + "is_done", _is_done, _near_writes),
    SecondDecision(_WRITES + "part", _part, _near_parts, _part_of),
    SecondDecision(_WRITES + "fitting", _fitting, _near_fitting, _fitting_of),
    SecondDecision(_READS + "change", _change, _near_change, _change_of),
    SecondDecision(_READS + "add", _added, shown=_added_of),
    SecondDecision(
        "controller.zookeeper.new_partitions:first_states", _first_states, _near_first_states, _first_states_of
    ),
    SecondDecision("controller.zookeeper.imbalance:imbalanced", _imbalanced, _near_imbalanced, _imbalanced_of),
    SecondDecision(_REPLICAS + "settle", _settled, _near_settled, _adapted_of),
    SecondDecision(_REPLICAS + "controlled_shutdown", _stopped, _near_stopped, _adapted_of),
    SecondDecision(_REPLICAS + "is_unsettled", _is_unsettled, _near_unsettled),
    SecondDecision(_REPLICAS + "raised", _raised, shown=_adapted_of),
    SecondDecision("controller.zookeeper.feature_answers:feature_answers", _refused, _near_refused, _refused_of),
)
