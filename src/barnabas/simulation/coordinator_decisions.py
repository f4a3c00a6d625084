"""Second decisions of coordinators and brokers: the effect of each request on a transaction, the age of offsets, and
the values of settings that are lists.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from barnabas.common.config_keys import ConfigType
from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.coordinators.groups.consumer.draft import Draft
from barnabas.coordinators.groups.group_records import CommittedOffset, offset_tombstone
from barnabas.coordinators.transactions.state import TxnState
from barnabas.coordinators.transactions.transitions import ProducerIdentity
from barnabas.simulation.second_decisions import UNJUDGED, Arguments, SecondDecision

_NONE: Final = -1
#: The last epoch is for the coordinator alone.
_LAST_OF_A_PRODUCER, _LAST = 32_766, 32_767
_COMPLETE: Final = (TxnState.COMPLETE_COMMIT, TxnState.COMPLETE_ABORT)
_DECIDED: Final = (TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT)
_FINISHED: Final = (TxnState.EMPTY, *_COMPLETE)
_LIVING: Final = (*_FINISHED, TxnState.ONGOING, *_DECIDED)


def _refuse(code: ErrorCode) -> None:
    raise RequestFailed(code)


# -- transactions


def _check(image: Any, producer: Any) -> None:
    if producer.producer_id != image.producer_id:
        _refuse(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if producer.epoch != image.producer_epoch:
        _refuse(ErrorCode.PRODUCER_FENCED)


def _verified(image: Any, producer: Any) -> None:
    _check(image, producer)
    if image.state in _DECIDED:
        _refuse(ErrorCode.CONCURRENT_TRANSACTIONS)


def _decision(image: Any, commit: bool, version: int, wall_ms: int, new_id: int | None) -> Any:
    """Returns the decided transaction: in version 2 each end raises the epoch."""
    decided = image._replace(
        state=TxnState.PREPARE_COMMIT if commit else TxnState.PREPARE_ABORT,
        updated_ms=wall_ms,
        client_version=version if version >= 2 else 0,
        next_producer_id=_NONE,
    )
    if version < 2:
        return decided
    return decided._replace(
        producer_epoch=min(image.producer_epoch + 1, _LAST),
        last_producer_epoch=image.producer_epoch,
        next_producer_id=_NONE if new_id is None else new_id,
    )


def _repeats(image: Any, producer: Any) -> bool:
    """Returns whether a producer of version 2 repeats the end of the transaction before. Refuses all others."""
    is_rotated = (
        image.producer_epoch == 0
        and producer.epoch == _LAST_OF_A_PRODUCER
        and producer.producer_id == image.previous_producer_id
    )
    if producer.producer_id != image.producer_id and not is_rotated:
        _refuse(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    is_one_before = image.producer_epoch - 1 == producer.epoch and (
        image.last_producer_epoch == _NONE or image.last_producer_epoch == producer.epoch
    )
    if image.state in _COMPLETE and (is_one_before or is_rotated):
        return True
    if image.producer_epoch != producer.epoch:
        _refuse(ErrorCode.PRODUCER_FENCED)
    return False


def _ended(image: Any, producer: Any, commit: bool, version: int, wall_ms: int, new_id: int | None) -> Any:
    if version < 2:
        _verified(image, producer)
    elif image.state in _DECIDED:
        _refuse(ErrorCode.CONCURRENT_TRANSACTIONS)
    is_repeated = version < 2 or _repeats(image, producer)
    if image.state is TxnState.ONGOING:
        return _decision(image, commit, version, wall_ms, new_id)
    if not is_repeated and not commit:
        return _decision(image._replace(start_ms=wall_ms), False, version, wall_ms, new_id)
    outcome = {TxnState.COMPLETE_COMMIT: True, TxnState.COMPLETE_ABORT: False}.get(image.state)
    if not is_repeated or outcome is not commit:
        _refuse(ErrorCode.INVALID_TXN_STATE)
    return None


def _identities(image: Any) -> Iterator[ProducerIdentity]:
    for producer_id in {image.producer_id, image.producer_id + 1, image.previous_producer_id}:
        for epoch in {image.producer_epoch + more for more in (-2, -1, 0, 1)} | {_LAST_OF_A_PRODUCER}:
            yield ProducerIdentity(producer_id, epoch)


def _near_ends(
    image: Any, producer: Any, commit: bool, version: int, wall_ms: int, new_id: int | None
) -> Iterator[Arguments]:
    """Each state and outcome, with the producer's id and epoch, and with the next lower and higher ones."""
    for state in _LIVING:
        for last in {_NONE, image.producer_epoch - 1, image.last_producer_epoch}:
            other = image._replace(state=state, last_producer_epoch=last)
            for identity in _identities(other):
                for outcome in (True, False):
                    yield other, identity, outcome, version, wall_ms, new_id


def _with_partitions(image: Any, producer: Any, partitions: Any, version: int, wall_ms: int) -> Any:
    if image.state in _DECIDED:
        _refuse(ErrorCode.CONCURRENT_TRANSACTIONS)
    _check(image, producer)
    all_of_them = frozenset({*image.partitions, *partitions})
    begun = image._replace(state=TxnState.ONGOING, partitions=all_of_them, updated_ms=wall_ms, client_version=version)
    if image.state is not TxnState.ONGOING:
        return begun._replace(start_ms=wall_ms)
    return begun if len(all_of_them) > len(image.partitions) else None


def _near_partitions(image: Any, producer: Any, partitions: Any, version: int, wall_ms: int) -> Iterator[Arguments]:
    for state in _LIVING:
        for identity in _identities(image):
            for added in (partitions, image.partitions):
                yield image._replace(state=state), identity, added, version, wall_ms


def _initialized(image: Any, expected: Any, timeout_ms: int, wall_ms: int, new_id: int | None) -> Any:
    epoch, last = image.producer_epoch, image.last_producer_epoch
    empty = image._replace(
        state=TxnState.EMPTY,
        timeout_ms=timeout_ms,
        partitions=frozenset(),
        start_ms=_NONE,
        updated_ms=wall_ms,
        next_producer_id=_NONE,
    )
    if new_id is not None:
        before = _NONE if expected is None else epoch
        return empty._replace(
            producer_id=new_id, producer_epoch=0, last_producer_epoch=before, previous_producer_id=image.producer_id
        )
    if expected is None:
        return empty._replace(producer_epoch=epoch + 1, last_producer_epoch=_NONE)
    if epoch in (_NONE, expected.epoch):
        return empty._replace(producer_epoch=epoch + 1, last_producer_epoch=epoch)
    if expected.epoch != last:
        _refuse(ErrorCode.PRODUCER_FENCED)
    return empty


def _near_initialized(image: Any, expected: Any, timeout_ms: int, wall_ms: int, new_id: int | None) -> Iterator[Any]:
    if image.producer_epoch < _LAST_OF_A_PRODUCER:
        for identity in (None, *_identities(image)):
            for last in (_NONE, image.producer_epoch - 1):
                yield image._replace(last_producer_epoch=last), identity, timeout_ms, wall_ms, new_id


def _is_expected(image: Any, expected: Any) -> None:
    if expected is not None and image.producer_epoch != _NONE and expected.producer_id != image.producer_id:
        is_before = expected.producer_id == image.previous_producer_id
        if not (is_before and expected.epoch >= _LAST_OF_A_PRODUCER):
            _refuse(ErrorCode.PRODUCER_FENCED)


def _near_expected(image: Any, expected: Any) -> Iterator[Arguments]:
    for identity in _identities(image):
        yield image, identity
        yield image, identity._replace(epoch=_LAST_OF_A_PRODUCER - 1)


def _needs_new_id(image: Any, expected: Any) -> bool:
    is_current = expected is None or expected.epoch == image.producer_epoch
    return image.state in _FINISHED and is_current and image.producer_epoch >= _LAST_OF_A_PRODUCER


def _near_last_epoch(image: Any, expected: Any) -> Iterator[Arguments]:
    for epoch in (_LAST_OF_A_PRODUCER - 1, _LAST_OF_A_PRODUCER, _LAST):
        for identity in (None, ProducerIdentity(image.producer_id, epoch), ProducerIdentity(image.producer_id, 3)):
            yield image._replace(producer_epoch=epoch), identity


def _end_needs_new_id(image: Any, version: int) -> bool:
    return version >= 2 and image.producer_epoch >= _LAST_OF_A_PRODUCER and image.state not in _DECIDED


def _near_last_end(image: Any, version: int) -> Iterator[Arguments]:
    for epoch in (_LAST_OF_A_PRODUCER - 1, _LAST_OF_A_PRODUCER):
        for state in _LIVING:
            for other in (1, 2):
                yield image._replace(producer_epoch=epoch, state=state), other


def _fenced(image: Any, version: int, wall_ms: int) -> Any:
    """Returns the abort by the coordinator, whose epoch nobody but the coordinator has."""
    raised = image._replace(producer_epoch=min(image.producer_epoch + 1, _LAST), last_producer_epoch=_NONE)
    return _decision(raised, False, version, wall_ms, None)


def _near_fenced(image: Any, version: int, wall_ms: int) -> Iterator[Arguments]:
    for epoch in (image.producer_epoch, _LAST_OF_A_PRODUCER - 1, _LAST_OF_A_PRODUCER, _LAST):
        for other in (0, 1, 2):
            yield image._replace(producer_epoch=epoch), other, wall_ms


def _completed(image: Any, wall_ms: int) -> Any:
    done = image._replace(
        state=TxnState.COMPLETE_COMMIT if image.state is TxnState.PREPARE_COMMIT else TxnState.COMPLETE_ABORT,
        partitions=frozenset(),
        updated_ms=wall_ms,
        next_producer_id=_NONE,
    )
    if image.next_producer_id == _NONE:
        return done
    return done._replace(producer_id=image.next_producer_id, producer_epoch=0, previous_producer_id=image.producer_id)


def _near_completed(image: Any, wall_ms: int) -> Iterator[Arguments]:
    for state in _DECIDED:
        for following in (_NONE, image.producer_id + 1):
            yield image._replace(state=state, next_producer_id=following), wall_ms


def _is_timed_out(image: Any, wall_ms: int) -> bool:
    return image.state is TxnState.ONGOING and wall_ms - image.start_ms > image.timeout_ms


def _near_time_out(image: Any, wall_ms: int) -> Iterator[Arguments]:
    for more in (-1, 0, 1):
        yield image, image.start_ms + image.timeout_ms + more
        yield image._replace(state=TxnState.ONGOING), image.start_ms + image.timeout_ms + more


# -- offsets


def _is_past_retention(removal: Any, committed: Any, since_ms: int, now_ms: int) -> bool:
    if committed.expire_timestamp_ms != _NONE:
        return bool(committed.expire_timestamp_ms <= now_ms)
    began_ms = since_ms if since_ms != _NONE else committed.commit_timestamp_ms
    return bool(began_ms + removal._context.config.offsets_retention_ms <= now_ms)


def _near_retention(removal: Any, committed: Any, since_ms: int, now_ms: int) -> Iterator[Arguments]:
    retention_ms = removal._context.config.offsets_retention_ms
    for more in (-1, 0):
        for began_ms in (committed.commit_timestamp_ms, since_ms):
            yield removal, committed, since_ms, began_ms + retention_ms + more
        if committed.expire_timestamp_ms != _NONE:
            yield removal, committed, since_ms, committed.expire_timestamp_ms + more


#: The letters of the longest name of a topic.
_NAME_MAX: Final = 249


def _is_enough(group_id: str) -> bool:
    """Returns that the size is enough for the largest record of a group, whose framing takes a few bytes per field."""
    return True


def _is_enough_of(size: int, group_id: str) -> bool:
    record = offset_tombstone(group_id, "t" * _NAME_MAX, 2**31 - 1)
    return sum(len(part or b"") for part in record) <= size


def _near_names(group_id: str) -> Iterator[Arguments]:
    for letters in (0, 1, 1_000):
        yield ("g" * letters,)


# -- groups, and records of offsets


def _memory(protocols: Any) -> int:
    """Returns the memory of a member: what it sent, and a thousand bytes for itself."""
    return 1_000 + len("".join(protocols).encode()) + len(b"".join(protocols.values()))


def _near_memory(protocols: Any) -> Iterator[Arguments]:
    for names in ((), ("a",), ("range", "robin")):
        for size in (0, 1, 500):
            yield (dict.fromkeys(names, b"x" * size),)


def _returned(draft: Any, mark: Any) -> object:
    """Returns the state of a draft that has returned to a savepoint: that of the savepoint."""
    return mark


def _state_of(_: Any, draft: Any, mark: Any) -> object:
    return draft.mark()


def _near_savepoints(draft: Any, mark: Any) -> Iterator[Arguments]:
    """Drafts to which something was added since: records, effects, another group, and the end of the batch."""
    for more in range(3):
        other = Draft(draft.group_id, mark.group)
        other.records, other.effects = draft.records[: mark.records], draft.effects[: mark.effects]
        before = other.mark()
        other.records += [offset_tombstone(draft.group_id, "t", index) for index in range(more)]
        other.effects += [lambda: None] * (2 - more)
        other.now, other.is_last = None, not mark.is_last
        yield other, before


def _is_waited_for(log: Any, callback: Any, has_timeout: bool = False) -> object:
    """Returns whether the end of the time of a write is scheduled: it is, for all that wait with a limit."""
    return (has_timeout or log._deadline.is_scheduled) if log._queue else UNJUDGED


def _is_scheduled(_: Any, log: Any, callback: Any) -> object:
    return log._deadline.is_scheduled


#: An offset in its usual form: its version, what it says, the length of its text as a compact number, and its time.
_LONGEST: Final = 126


def _plain_offset(key: bytes, value: bytes) -> object:
    """Returns an offset that is encoded in its usual form, as it is read field by field; None for any other bytes."""
    try:
        group, rest = _text(key[2:])
        topic, rest = _text(rest)
        partition = int.from_bytes(rest, "big", signed=True)
        length = value[14] - 1
        text, end = value[15 : 15 + length].decode(), value[15 + length :]
    except (IndexError, UnicodeDecodeError):
        return None
    is_plain = len(rest) == 4 and key[:2] == b"\0\1" and value[:2] == b"\0\4" and 0 <= length <= _LONGEST
    if not is_plain or len(end) != 9 or end[-1]:
        return None
    numbers = (int.from_bytes(part, "big", signed=True) for part in (value[2:10], value[10:14], end[:8]))
    offset, leader_epoch, commit_ms = numbers
    return (group, topic, partition), CommittedOffset(offset, leader_epoch, text, commit_ms)


def _text(data: bytes) -> tuple[str, bytes]:
    """Returns the text at the beginning, behind its length, and what follows."""
    end = 2 + int.from_bytes(data[:2], "big", signed=True)
    if not 2 <= end <= len(data):
        raise IndexError
    return data[2:end].decode(), data[end:]


def _plain_offset_of(found: Any, key: bytes, value: bytes) -> object:
    return None if found is None else (tuple(found[0]), found[1])


def _near_offsets(key: bytes, value: bytes) -> Iterator[Arguments]:
    """The record with a byte less or more at each end, with each of its first bytes changed, and cut short."""
    for bad in (key[:-1], key + b"\0", key[:3], b"", key[:2] + b"\xff\xff" + key[4:], key[:-5] + b"\xff" + key[-4:]):
        yield bad, value
    for place in range(min(6, len(key))):
        yield key[:place] + bytes([key[place] ^ 1]) + key[place + 1 :], value
    for bad in (value[:-1], value + b"\0", value[:-1] + b"\1", value[:10], b"", value[:14] + b"\0" + value[15:]):
        yield key, bad
    for place in range(min(17, len(value))):
        yield key, value[:place] + bytes([value[place] ^ 0x81]) + value[place + 1 :]


# -- settings

_SET, _DELETE, _APPEND, _SUBTRACT = range(4)


def _listed(before: str, operation: int, value: str) -> str:
    """Returns a list after an operation: what is appended is there once, at its first place."""
    items = before.split(",") if before else []
    for item in value.split(","):
        if operation == _APPEND:
            items += [] if item in items else [item]
        elif item in items:
            del items[items.index(item)]
    return ",".join(items)


def _applied(config: Any, before: Any, changes: Any) -> dict[str, str]:
    """Returns the settings of a broker after these changes."""
    after = dict(before)
    for name, operation, value in changes:
        if operation == _SET:
            after[name] = value
        elif operation == _DELETE:
            after = {each: text for each, text in after.items() if each != name}
        elif operation not in (_APPEND, _SUBTRACT):
            _refuse(ErrorCode.INVALID_REQUEST)
        else:
            key = config.base_key(name)
            if key is None or key.type is not ConfigType.LIST:
                _refuse(ErrorCode.INVALID_CONFIG)
            after[name] = _listed(after.get(name, key.default or ""), operation, value)
    return after


_A_LIST: Final = "ssl.cipher.suites"


def _near_changes(config: Any, before: Any, changes: Any) -> Iterator[Arguments]:
    """Each operation, also one that does not exist, on these keys and on a list."""
    for change in changes[:3]:
        for operation in range(-1, 5):
            value = change.value if change.value is not None else "1"
            yield config, before, [change._replace(operation=operation, value=value)]
            for present in ("", "a", "a,b", "b"):
                with_list = {**before, _A_LIST: present}
                yield config, with_list, [change._replace(key=_A_LIST, operation=operation, value="b,c")]


def _new_value(resource_type: int, change: Any, current: str | None, view: Any, name: str) -> object:
    if change.operation == _SET:
        return change.value
    if change.operation == _DELETE:
        return None
    if change.operation not in (_APPEND, _SUBTRACT):
        _refuse(ErrorCode.INVALID_REQUEST)
    if change.key != _POLICY:
        return UNJUDGED
    return UNJUDGED if current is None else _listed(current, change.operation, change.value or "")


_POLICY: Final = "cleanup.policy"
_TOPIC: Final = 2


def _near_values(resource_type: int, change: Any, current: str | None, view: Any, name: str) -> Iterator[Arguments]:
    if resource_type == _TOPIC:
        for operation in range(-1, 5):
            for present in ("", "delete", "delete,compact"):
                for value in ("compact", "delete", "compact,delete"):
                    other = change._replace(key=_POLICY, operation=operation, value=value)
                    yield resource_type, other, present, view, name


_TRANSITIONS: Final = "coordinators.transactions.transitions:"

COORDINATOR_DECISIONS: Final = (
    SecondDecision(_TRANSITIONS + "ended", _ended, _near_ends),
    SecondDecision(_TRANSITIONS + "with_partitions", _with_partitions, _near_partitions),
    SecondDecision(_TRANSITIONS + "initialized", _initialized, _near_initialized),
    SecondDecision(_TRANSITIONS + "check_expected", _is_expected, _near_expected),
    SecondDecision(_TRANSITIONS + "needs_new_id", _needs_new_id, _near_last_epoch),
    SecondDecision(_TRANSITIONS + "end_needs_new_id", _end_needs_new_id, _near_last_end),
    SecondDecision(_TRANSITIONS + "fenced", _fenced, _near_fenced),
    SecondDecision(_TRANSITIONS + "completed", _completed, _near_completed),
    SecondDecision(_TRANSITIONS + "verify", _verified),
    SecondDecision("coordinators.transactions.state:TxnImage.is_timed_out", _is_timed_out, _near_time_out),
    SecondDecision(
        "coordinators.groups.offset_removal:OffsetRemoval._is_past_retention", _is_past_retention, _near_retention
    ),
    SecondDecision("coordinators.groups.offset_removal:_record_bytes", _is_enough, _near_names, _is_enough_of),
    SecondDecision("coordinators.groups.classic.group:memory_of", _memory, _near_memory, judged_every=50),
    SecondDecision("coordinators.groups.consumer.draft:Draft.return_to", _returned, _near_savepoints, _state_of),
    SecondDecision("coordinators.runtime:ShardLog.when_settled", _is_waited_for, shown=_is_scheduled),
    SecondDecision(
        "coordinators.groups.group_records:parse_plain_offset",
        _plain_offset,
        _near_offsets,
        _plain_offset_of,
        judged_every=50,
    ),
    SecondDecision("broker.configs.config_changes:_applied", _applied, _near_changes),
    SecondDecision("controller.requests.configs:_new_value", _new_value, _near_values),
)
