"""Second decisions of a quorum's controller about its brokers: sessions, registrations, heartbeats, log directories and
feature levels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from copy import copy
from dataclasses import replace
from typing import Any, Final

from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.metadata.unwritable import unwritable_tags
from barnabas.raft.quorum import Leader
from barnabas.simulation.controller_decisions import (
    broker_change,
    change_of,
    ended,
    fenced,
    is_active,
    moved,
    portion,
    portion_of,
    refuse,
    rules_for,
    shown_records,
    stopping,
    unfenced,
)
from barnabas.simulation.partition_decisions import target_of
from barnabas.simulation.second_decisions import UNJUDGED, Arguments, SecondDecision, costly

_UNKNOWN, _NOBODY = -1, -1
_LOST: Final = bytes(15) + b"\x02"
_DIRECTORIES, _ELRS, _CONTROLLERS_REGISTER = 17, 23, 15
_UNWRITABLE_TAG: Final = 8_193
_BROKER: Final = 4


# -- sessions: contact, whether connected, metadata offset, offset of the shutdown

_Session = tuple[int, bool, int, int]


def _states(sessions: Any) -> dict[int, _Session]:
    return {
        broker_id: (each.contact_ms, each.is_connected, each.metadata_offset, each.shutdown_offset)
        for broker_id, each in sessions._sessions.items()
    }


def _states_after(_: Any, sessions: Any, *more: Any) -> dict[int, _Session]:
    return _states(sessions)


def _copied(sessions: Any) -> Any:
    other = copy(sessions)
    other._sessions = {broker_id: copy(each) for broker_id, each in sessions._sessions.items()}
    return other


def _some_ids(sessions: Any) -> list[int]:
    return [*list(sessions._sessions)[:2], 4_000]


def _started(sessions: Any, broker_id: int, now_ms: int) -> object:
    return {**_states(sessions), broker_id: (now_ms, False, _UNKNOWN, _UNKNOWN)}


def _near_start(sessions: Any, broker_id: int, now_ms: int) -> Iterator[Arguments]:
    for other in _some_ids(sessions):
        yield _copied(sessions), other, now_ms


def _touched(sessions: Any, broker_id: int, offset: int, now_ms: int) -> object:
    states = _states(sessions)
    shutdown = states[broker_id][3] if broker_id in states else _UNKNOWN
    return {**states, broker_id: (now_ms, True, offset, shutdown)}


def _near_touch(sessions: Any, broker_id: int, offset: int, now_ms: int) -> Iterator[Arguments]:
    for other in _some_ids(sessions):
        yield _copied(sessions), other, offset + 1, now_ms + 1


def _cut(sessions: Any, broker_id: int) -> object:
    return {each: (state[0], state[1] and each != broker_id, *state[2:]) for each, state in _states(sessions).items()}


def _near_cut(sessions: Any, broker_id: int) -> Iterator[Arguments]:
    for other in _some_ids(sessions):
        yield _copied(sessions), other


def _gone(sessions: Any, broker_id: int) -> object:
    return {each: state for each, state in _states(sessions).items() if each != broker_id}


def _cleared(sessions: Any) -> object:
    return {}


def _extended(sessions: Any, missed_ms: int, now_ms: int) -> object:
    states = _states(sessions).items()
    later = {each: state[0] + missed_ms for each, state in states}
    return {each: (now_ms if later[each] > now_ms else later[each], *state[1:]) for each, state in states}


def _near_extended(sessions: Any, missed_ms: int, now_ms: int) -> Iterator[Arguments]:
    for missed in (0, 1, missed_ms, missed_ms + 10_000):
        yield _copied(sessions), missed, now_ms


def _stops(sessions: Any, broker_id: int, offset: int) -> object:
    states = _states(sessions)
    if broker_id in states:
        states[broker_id] = (*states[broker_id][:3], offset)
    return states


def _near_stops(sessions: Any, broker_id: int, offset: int) -> Iterator[Arguments]:
    for other in _some_ids(sessions):
        yield _copied(sessions), other, offset + 1


def _next_check(sessions: Any, now_ms: int) -> int:
    ends = [state[0] + sessions.timeout_ms for state in _states(sessions).values()]
    return int(min([*ends, now_ms + max(sessions.timeout_ms // 4, 1)]))


def _near_checks(sessions: Any, now_ms: int) -> Iterator[Arguments]:
    yield _without_sessions(sessions), now_ms
    for state in list(sessions._sessions.values())[:2]:
        for part in (0, sessions.timeout_ms // 2, sessions.timeout_ms * 3 // 4, sessions.timeout_ms):
            yield sessions, state.contact_ms + part + 1


def _without_sessions(sessions: Any) -> Any:
    other = copy(sessions)
    other._sessions = {}
    return other


def _may_run(sessions: Any, broker_id: int, now_ms: int, *, has_its_directories: bool) -> bool:
    contact, connected, _, _ = _states(sessions).get(broker_id, (None, False, 0, 0))
    if contact is None or contact + sessions.timeout_ms <= now_ms:
        return False
    return connected or not has_its_directories


def _near_runs(sessions: Any, broker_id: int, now_ms: int, *, has_its_directories: bool) -> Iterator[Arguments]:
    for connected in (True, False):
        for more in (-1, 0):
            other = _copied(sessions)
            other.touch(1, 0, now_ms)
            other._sessions[1].is_connected = connected
            yield other, 1, now_ms + sessions.timeout_ms + more
    yield sessions, 4_000, now_ms


def _shutdown_of(sessions: Any, broker_id: int) -> int:
    return _states(sessions).get(broker_id, (0, False, 0, _UNKNOWN))[3]


def _near_shutdowns(sessions: Any, broker_id: int) -> Iterator[Arguments]:
    for other in _some_ids(sessions):
        yield sessions, other


def _lowest(sessions: Any, broker_ids: Any, otherwise: int) -> int:
    offsets = sorted(state[2] for each, state in _states(sessions).items() if each in broker_ids)
    return offsets[0] if offsets else otherwise


def _near_lowest(sessions: Any, broker_ids: Any, otherwise: int) -> Iterator[Arguments]:
    known = list(sessions._sessions)
    for ids in (known, known[:1], known[1:], [], [4_000], [4_000, *known]):
        yield sessions, ids, otherwise


# -- registrations


def _registered(
    view: Any, request: Any, *, cluster_id: str, next_offset: Callable[[], int], session_alive: bool
) -> object:
    image = view.image
    known = image.brokers.get(request.broker_id)
    is_same = known is not None and known.incarnation_id == request.incarnation_id
    if request.cluster_id != cluster_id:
        refuse(ErrorCode.INCONSISTENT_CLUSTER_ID)
    if known is not None and not is_same and session_alive:
        refuse(ErrorCode.DUPLICATE_BROKER_REGISTRATION)
    if request.is_migrating_zk_broker:
        refuse(ErrorCode.BROKER_ID_NOT_REGISTERED)
    if image.metadata_version >= _DIRECTORIES:
        _check_directories(view, request)
    ranges = {each.name: (each.min_supported_version, each.max_supported_version) for each in request.features}
    ranges.setdefault("metadata.version", (1, 1))
    for name, level in image.features.items():
        low, high = ranges.get(name, (0, 0))
        if not low <= level <= high and name != "share.version":
            refuse(ErrorCode.UNSUPPORTED_VERSION)
    facts = (request.broker_id, request.incarnation_id, request.rack, _endpoints(request.listeners), ranges)
    kept = list(request.log_dirs) if image.metadata_version >= _DIRECTORIES else []
    version = 3 if image.metadata_version >= _DIRECTORIES else 1
    if known is not None and is_same:
        state = (known.epoch, known.fenced, known.in_controlled_shutdown)
        return [("registered", facts, kept, state, version)], known.epoch, "REGISTRATION_AMENDED", True
    is_clean = known is None or known.epoch == request.previous_broker_epoch
    former: Any = ended(view, request.broker_id, clean=is_clean)
    if former is UNJUDGED or not former[1]:
        return UNJUDGED
    epoch = next_offset()
    event = "NEW_INCARNATION" if is_clean else "UNCLEAN_INCARNATION"
    return [*former[0], ("registered", facts, kept, (epoch, True, False), version)], epoch, event, True


def _check_directories(view: Any, request: Any) -> None:
    others = {
        each
        for broker_id, broker in view.image.brokers.items()
        for each in broker.directories
        if broker_id != request.broker_id
    }
    found = request.log_dirs
    reserved = any(int.from_bytes(each) < 100 for each in found)
    if not found or reserved or len(found) > len(set(found)) or others & set(found):
        refuse(ErrorCode.INVALID_REGISTRATION)


def _endpoints(rows: Iterable[Any]) -> list[tuple[Any, ...]]:
    return [(each.name, each.host, each.port, each.security_protocol) for each in rows]


def _registered_of(result: Any, view: Any, *_: Any, **__: Any) -> object:
    shown = shown_records(view, [each for each in result.records if each[0].NAME != "RegisterBrokerRecord"])
    for record, version in result.records:
        if record.NAME == "RegisterBrokerRecord":
            ranges = {each.name: (each.min_supported_version, each.max_supported_version) for each in record.features}
            facts = (record.broker_id, record.incarnation_id, record.rack, _endpoints(record.end_points), ranges)
            state = (record.broker_epoch, record.fenced, record.in_controlled_shutdown)
            shown.append(("registered", facts, list(record.log_dirs), state, version))
    return shown, result.response.broker_epoch, result.cause.event.name, result.rest is None


def _near_registrations(view: Any, request: Any, **_: Any) -> Iterator[Arguments]:
    """The same request with one part changed."""
    own, known = request.log_dirs, list(view.image.brokers.values())
    changes: list[dict[str, Any]] = [
        {},
        {"cluster_id": "another"},
        {"is_migrating_zk_broker": True},
        {"features": []},
        {"log_dirs": []},
        {"log_dirs": [*own, *own[:1]]},
        {"log_dirs": [bytes(15) + b"\x63"]},
        {"log_dirs": [bytes(15) + b"\x64"]},
        {"incarnation_id": b"?" * 16},
        {"broker_id": 4_000},
    ]
    for broker in known[:2]:
        changes.append({"log_dirs": list(broker.directories)})
        for epoch in (broker.epoch, broker.epoch - 1):
            other = {"broker_id": broker.broker_id, "log_dirs": list(broker.directories)}
            changes.append({**other, "incarnation_id": b"?" * 16, "previous_broker_epoch": epoch})
        changes.append({**other, "incarnation_id": broker.incarnation_id})
    for change in changes:
        yield view, _with(request, **change)


def _with(message: Any, **changes: Any) -> Any:
    slots = [slot for slot in type(message).__slots__ if slot != "unknown_tags"]
    other = type(message)(**{slot: getattr(message, slot) for slot in slots})
    other.unknown_tags = message.unknown_tags
    for name, value in changes.items():
        setattr(other, name, value)
    return other


# -- heartbeats


def _reported(request: Any) -> list[bytes] | None:
    data = next((bytes(data) for tag, data in request.unknown_tags if tag == _UNWRITABLE_TAG), None)
    if data is None or len(data) % 16:
        return None
    return [data[at : at + 16] for at in range(0, len(data), 16)]


def _beaten(view: Any, request: Any, *, lowest_offset: int, shutdown_offset: int) -> object:
    """Returns (caught up, fenced, stop), the event, and the records."""
    broker = view.image.brokers.get(request.broker_id)
    if broker is None or broker.epoch != request.broker_epoch:
        raise RequestFailed(ErrorCode.STALE_BROKER_EPOCH)
    if request.offline_log_dirs:
        return UNJUDGED
    full = _reported(request) or []
    is_news = [each for each in broker.directories if each in full] != list(broker.unwritable)
    is_caught_up = request.current_metadata_offset >= broker.epoch
    leads = any(
        each.leader == broker.broker_id for topic in view.image.topics_by_name.values() for each in topic.partitions
    )
    is_fenced, stop, event = broker.fenced, False, "BROKER_HEARTBEAT"
    records: Any = []
    if broker.fenced:
        stop = request.want_shut_down
        if not stop and not request.want_fence and is_caught_up and not (full and is_news):
            is_fenced, event = False, "UNFENCED"
            records = _records_of(unfenced(view, broker))
    elif request.want_fence:
        is_fenced, stop, event = True, request.want_shut_down, "FENCED_ON_REQUEST"
        records = _records_of(fenced(view, broker))
    elif request.want_shut_down or broker.in_controlled_shutdown:
        event = "CONTROLLED_SHUTDOWN"
        if leads:
            records = _records_of(stopping(view, broker))
        elif shutdown_offset <= lowest_offset or not broker.in_controlled_shutdown:
            is_fenced = stop = True
            records = _records_of(fenced(view, broker))
    if records is UNJUDGED:
        return UNJUDGED
    if not records and is_news:
        event = "REFUSES_WRITES" if full else "ACCEPTS_WRITES"
        records = _full(view, broker, full)
    return UNJUDGED if records is UNJUDGED else ((is_caught_up, is_fenced, stop), event, records)


def _records_of(found: Any) -> Any:
    return found if found is UNJUDGED else found[0]


def _full(view: Any, broker: Any, full: list[bytes]) -> Any:
    """Returns the changes when other directories of the broker take no writes than before."""
    unwritable = tuple(each for each in broker.directories if each in full)
    brokers = view.image.brokers.set(broker.broker_id, replace(broker, unwritable=unwritable))
    after = replace(view, image=replace(view.image, brokers=brokers))
    changes = moved(after, lambda partition: broker.broker_id in partition.isr)
    first = [broker_change(broker, 0, unknown_tags=unwritable_tags(unwritable))]
    return _records_of(portion(changes, first=first))


def _beaten_of(result: Any, view: Any, request: Any, **_: Any) -> object:
    answer = result.response
    said = (answer.is_caught_up, answer.is_fenced, answer.should_shut_down)
    return said, result.cause.event.name, shown_records(view, result.records)


def _near_beats(view: Any, request: Any, *, lowest_offset: int, shutdown_offset: int) -> Iterator[Arguments]:
    """The broker in each state, with each request, before and after its registration's offset."""
    broker = view.image.brokers.get(request.broker_id)
    if broker is None:
        return
    yield view, _with(request, broker_epoch=broker.epoch + 1)
    for is_fenced, is_stopping in ((True, False), (False, False), (False, True)):
        state = replace(broker, fenced=is_fenced, in_controlled_shutdown=is_stopping)
        other = replace(view, image=replace(view.image, brokers=view.image.brokers.set(broker.broker_id, state)))
        for wants_fence, wants_stop in ((False, False), (True, False), (False, True), (True, True)):
            wanted = {"want_fence": wants_fence, "want_shut_down": wants_stop, "offline_log_dirs": []}
            for offset in (broker.epoch - 1, broker.epoch):
                yield other, _with(request, **wanted, current_metadata_offset=offset)
            tags = unwritable_tags(broker.directories[:1])
            yield other, _with(request, **wanted, unknown_tags=tags)


def _closed(view: Any, broker: Any, offline: Any) -> object:
    """Returns the changes when log directories of a broker are lost: its replicas there leave, and then they."""
    current = view.image.brokers.get(broker.broker_id)
    lost = {each for each in broker.directories if each in offline}
    if not lost or current is None or current.epoch != broker.epoch or view.image.metadata_version < _DIRECTORIES:
        return [], True

    def is_there(partition: Any) -> bool:
        directories = dict(zip(partition.replicas, partition.directories, strict=True))
        return directories.get(broker.broker_id) in lost

    changes = moved(view, is_there, removed=broker.broker_id)
    left = [each for each in broker.directories if each not in lost]
    # An empty list has the same bytes as none.
    fields = {"log_dirs": left} if left else {}
    return portion(changes, [broker_change(broker, 2, **fields)])


def _near_closed(view: Any, broker: Any, offline: Any) -> Iterator[Arguments]:
    for other in list(view.image.brokers.values())[:3]:
        for directories in (other.directories, other.directories[:1], [b"?" * 16], []):
            yield view, other, list(directories)
        yield view, replace(other, epoch=other.epoch - 1), list(other.directories)


# -- the directories of replicas


def _placed(view: Any, request: Any) -> object:
    if view.image.metadata_version < _DIRECTORIES:
        refuse(ErrorCode.UNSUPPORTED_VERSION)
    broker = view.image.brokers.get(request.broker_id)
    if broker is None or broker.epoch != request.broker_epoch:
        raise RequestFailed(ErrorCode.STALE_BROKER_EPOCH)
    rows = []
    moves: list[Any] = []
    lost = []
    for directory in request.directories:
        is_lost = directory.id == _LOST or (
            int.from_bytes(directory.id) >= 100 and broker.directories and directory.id not in broker.directories
        )
        for each in directory.topics:
            topic = view.image.topics_by_id.get(each.topic_id)
            for row in each.partitions:
                index, code = row.partition_index, ErrorCode.NONE
                if topic is None:
                    code = ErrorCode.UNKNOWN_TOPIC_ID
                elif index not in range(len(topic.partitions)):
                    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                elif request.broker_id not in topic.partitions[index].replicas:
                    code = ErrorCode.NOT_LEADER_OR_FOLLOWER
                else:
                    moves.append(_move(view, topic, index, request.broker_id, directory.id))
                    lost += [(topic, index, topic.partitions[index])] if is_lost else []
                rows.append((directory.id, each.topic_id, index, code))
    changes = moved(view, lambda _: True, removed=request.broker_id, partitions=lost)
    if changes is UNJUDGED or UNJUDGED in moves:
        return UNJUDGED
    return rows, [*(move for move in moves if move is not None), *changes]


def _move(view: Any, topic: Any, index: int, broker_id: int, directory: bytes) -> Any:
    partition = topic.partitions[index]
    target = target_of(partition)
    target = target._replace(directories={**target.directories, broker_id: directory})
    rules = rules_for(view, topic.name, len(partition.replicas), lambda replica: is_active(view, replica))
    return change_of(view, topic, index, target, rules)


def _placed_of(result: Any, view: Any, request: Any) -> object:
    rows = [
        (directory.id, topic.topic_id, row.partition_index, row.error_code)
        for directory in result.response.directories
        for topic in directory.topics
        for row in topic.partitions
    ]
    return rows, shown_records(view, result.records)


def _near_placed(view: Any, request: Any) -> Iterator[Arguments]:
    make = type(request)
    for broker in list(view.image.brokers.values())[:3]:
        for directory in (*broker.directories[:1], _LOST, b"?" * 16):
            topics = []
            for topic_id in (*list(view.image.topics_by_id)[:2], b"?" * 16):
                partitions = [make.PartitionData(partition_index=index) for index in (0, 1, -1, 900)]
                topics.append(make.TopicData(topic_id=topic_id, partitions=partitions))
            directories = [make.DirectoryData(id=directory, topics=topics)]
            for epoch in (broker.epoch, broker.epoch + 1):
                yield view, make(broker_id=broker.broker_id, broker_epoch=epoch, directories=directories)


# -- records without an effect


def _has_audience(writer: Any) -> bool:
    """Returns whether another node follows the metadata log: a broker, or a voter."""
    return bool({*writer._brokers(), *writer._raft.voter_ids} - {writer._own_id})


def _end_after(writer: Any) -> object:
    """Returns the end of the log after a record for those who follow it."""
    raft = writer._raft
    if not isinstance(raft.quorum.role, Leader) or not raft._core.log_health.is_writable:
        return UNJUDGED
    return raft.log_end_offset + _has_audience(writer)


def _end_now(_: Any, writer: Any) -> object:
    """Returns the end of the log; a record that the disk refused counts."""
    is_refused = not writer._raft._core.log_health.is_writable
    return writer._raft.log_end_offset + (is_refused and _has_audience(writer))


_SESSIONS: Final = "controller.kraft.broker_sessions:BrokerSessions."
_REGISTRATIONS: Final = "controller.kraft.broker_registrations:"

KRAFT_DECISIONS: Final = costly(
    SecondDecision(_SESSIONS + "start", _started, _near_start, _states_after),
    SecondDecision(_SESSIONS + "touch", _touched, _near_touch, _states_after),
    SecondDecision(_SESSIONS + "disconnected", _cut, _near_cut, _states_after),
    SecondDecision(_SESSIONS + "end", _gone, _near_cut, _states_after),
    SecondDecision(_SESSIONS + "clear", _cleared, shown=_states_after),
    SecondDecision(_SESSIONS + "extend_all", _extended, _near_extended, _states_after),
    SecondDecision(_SESSIONS + "begin_shutdown", _stops, _near_stops, _states_after),
    SecondDecision(_SESSIONS + "next_check_ms", _next_check, _near_checks),
    SecondDecision(_SESSIONS + "may_still_run", _may_run, _near_runs),
    SecondDecision(_SESSIONS + "shutdown_offset", _shutdown_of, _near_shutdowns),
    SecondDecision(_SESSIONS + "lowest_offset", _lowest, _near_lowest),
    SecondDecision(_REGISTRATIONS + "register", _registered, _near_registrations, _registered_of),
    SecondDecision(_REGISTRATIONS + "heartbeat", _beaten, _near_beats, _beaten_of),
    SecondDecision(_REGISTRATIONS + "close_directories", _closed, _near_closed, portion_of),
    SecondDecision("controller.kraft.no_ops:NoOpWriter._write", _end_after, shown=_end_now),
    SecondDecision("controller.kraft.directories:assign_replicas", _placed, _near_placed, _placed_of),
)
