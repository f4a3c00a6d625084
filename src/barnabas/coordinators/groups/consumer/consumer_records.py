"""The records of consumer groups in `__consumer_offsets`, as Kafka 4.1 writes them. A null value deletes the key.

key type   key                   value
3          group                 group epoch, hash of the topics
4          group                 (before 4.1: the topics themselves; neither written nor read)
5          group, member         the member's subscription and settings
6          group                 epoch of the target assignment
7          group, member         target assignment
8          group, member         member epoch, state, assigned partitions and those pending revocation
16         group, expression     topics that match the regular expression
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator
from enum import IntEnum
from typing import Final, NamedTuple, TypeVar

from barnabas.common.errors import DecodeError
from barnabas.common.gradual import sorted_gradually
from barnabas.coordinators.groups.consumer.member import (
    NO_REGEX,
    PER_UNIT,
    Assignment,
    ClassicInfo,
    Member,
    MemberState,
)
from barnabas.coordinators.groups.consumer.regex import ResolvedRegex
from barnabas.coordinators.runtime import KeyValue
from barnabas.protocol.codec import decode, encode_in_steps, encode_into
from barnabas.protocol.message import Message
from barnabas.protocol.messages.records_group import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)

_INT16 = struct.Struct(">h")
_VERSION: Final = 0
M = TypeVar("M", bound=Message)
T = TypeVar("T")
#: A record that is built in steps, if it has many topics or partitions.
RecordInSteps = Generator[int, None, KeyValue]
#: The number of topics up to which an assignment is encoded in one step, even if each has many partitions.
FEW_TOPICS: Final = 16
#: The fixed cost of a topic, compared with one of its partitions, and the cost of a step.
_TOPIC_WORK: Final = 25
_WORK_PER_UNIT: Final = _TOPIC_WORK * PER_UNIT


class ConsumerRecordType(IntEnum):
    GROUP = 3
    PARTITION_METADATA = 4
    MEMBER = 5
    TARGET_EPOCH = 6
    TARGET = 7
    CURRENT = 8
    REGEX = 16


class ConsumerKey(NamedTuple):
    """The key of a record. `name` is the member id or the regular expression; empty for records of the group itself."""

    type: ConsumerRecordType
    group_id: str
    name: str = ""


def _key(record_type: ConsumerRecordType, body: Message) -> bytes:
    out = bytearray(_INT16.pack(record_type))
    encode_into(body, _VERSION, out)
    return bytes(out)


def _value(body: Message) -> bytes:
    out = bytearray(_INT16.pack(_VERSION))
    encode_into(body, _VERSION, out)
    return bytes(out)


def encode_key(key: ConsumerKey) -> bytes:
    group_id, name = key.group_id, key.name
    match key.type:
        case ConsumerRecordType.GROUP:
            return _key(key.type, ConsumerGroupMetadataKey(group_id=group_id))
        case ConsumerRecordType.MEMBER:
            return _key(key.type, ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=name))
        case ConsumerRecordType.TARGET_EPOCH:
            return _key(key.type, ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id))
        case ConsumerRecordType.TARGET:
            return _key(key.type, ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=name))
        case ConsumerRecordType.CURRENT:
            return _key(key.type, ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=name))
        case ConsumerRecordType.REGEX:
            return _key(key.type, ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=name))
    raise AssertionError(f"{key.type.name} is not written")


def tombstone(key: ConsumerKey) -> KeyValue:
    return KeyValue(encode_key(key), None)


def _record(key: ConsumerKey, value: Message) -> KeyValue:
    return KeyValue(encode_key(key), _value(value))


def _long_record(key: ConsumerKey, value: Message) -> RecordInSteps:
    out = bytearray(_INT16.pack(_VERSION))
    yield from encode_in_steps(value, _VERSION, out)
    return KeyValue(encode_key(key), bytes(out))


def topic_rows(row: Callable[[bytes, list[int]], T], assignment: Assignment) -> list[T]:
    """Returns `row(topic id, partitions)` for each topic, in order; for assignments of few topics."""
    return [row(topic_id, sorted(assignment[topic_id])) for topic_id in sorted(assignment)]


def topic_rows_in_steps(row: Callable[[bytes, list[int]], T], assignment: Assignment) -> Generator[int, None, list[T]]:
    """Returns `row(topic id, partitions)` for each topic, in order and in steps."""
    rows: list[T] = []
    work = 0
    for topic_id in (yield from sorted_gradually(assignment)):
        partitions = assignment[topic_id]
        rows.append(row(topic_id, sorted(partitions)))
        work += _TOPIC_WORK + len(partitions)
        if work > _WORK_PER_UNIT:
            yield work // _WORK_PER_UNIT
            work = 0
    return rows


def group_record(group_id: str, epoch: int, metadata_hash: int) -> KeyValue:
    value = ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return _record(ConsumerKey(ConsumerRecordType.GROUP, group_id), value)


def target_epoch_record(group_id: str, epoch: int) -> KeyValue:
    value = ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch)
    return _record(ConsumerKey(ConsumerRecordType.TARGET_EPOCH, group_id), value)


def member_record(group_id: str, member: Member) -> RecordInSteps:
    names = member.topic_names
    is_long = len(names) > PER_UNIT
    in_order = (yield from sorted_gradually(names)) if is_long else sorted(names)
    classic = None
    if member.classic is not None:
        classic = ConsumerGroupMemberMetadataValue.ClassicMemberMetadata(
            session_timeout_ms=member.classic.session_timeout_ms,
            supported_protocols=[
                ConsumerGroupMemberMetadataValue.ClassicProtocol(name=name, metadata=metadata)
                for name, metadata in member.classic.protocols
            ],
        )
    value = ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=in_order,
        subscribed_topic_regex=member.regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.server_assignor,
        classic_member_metadata=classic,
    )
    key = ConsumerKey(ConsumerRecordType.MEMBER, group_id, member.member_id)
    return (yield from _long_record(key, value)) if is_long else _record(key, value)


def target_record(group_id: str, member_id: str, target: Assignment) -> RecordInSteps:
    key = ConsumerKey(ConsumerRecordType.TARGET, group_id, member_id)
    if len(target) <= FEW_TOPICS:
        rows = topic_rows(_target_row, target)
        return _record(key, ConsumerGroupTargetAssignmentMemberValue(topic_partitions=rows))
    rows = yield from topic_rows_in_steps(_target_row, target)
    return (yield from _long_record(key, ConsumerGroupTargetAssignmentMemberValue(topic_partitions=rows)))


def _target_row(topic_id: bytes, partitions: list[int]) -> ConsumerGroupTargetAssignmentMemberValue.TopicPartition:
    return ConsumerGroupTargetAssignmentMemberValue.TopicPartition(topic_id=topic_id, partitions=partitions)


def current_record(group_id: str, member: Member) -> RecordInSteps:
    is_long = len(member.assigned) + len(member.revoking) > FEW_TOPICS
    if is_long:
        assigned = yield from topic_rows_in_steps(_current_row, member.assigned)
        revoking = yield from topic_rows_in_steps(_current_row, member.revoking)
    else:
        assigned = topic_rows(_current_row, member.assigned)
        revoking = topic_rows(_current_row, member.revoking)
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state,
        assigned_partitions=assigned,
        partitions_pending_revocation=revoking,
    )
    key = ConsumerKey(ConsumerRecordType.CURRENT, group_id, member.member_id)
    return (yield from _long_record(key, value)) if is_long else _record(key, value)


def _current_row(topic_id: bytes, partitions: list[int]) -> ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions:
    return ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions(topic_id=topic_id, partitions=partitions)


def regex_record(group_id: str, regex: str, resolved: ResolvedRegex) -> RecordInSteps:
    topics = yield from sorted_gradually(resolved.topics)
    value = ConsumerGroupRegularExpressionValue(
        topics=topics, version=resolved.version, timestamp=resolved.timestamp_ms
    )
    return (yield from _long_record(ConsumerKey(ConsumerRecordType.REGEX, group_id, regex), value))


def parse_consumer_key(key: bytes) -> ConsumerKey | None:
    """Returns the parsed key; None for other types of keys. Raises DecodeError."""
    if len(key) < 2:
        raise DecodeError(f"a coordinator key has only {len(key)} bytes")
    number: int = _INT16.unpack_from(key)[0]
    match number:
        case 3 | 4 | 6:
            group, _ = decode(ConsumerGroupMetadataKey, _VERSION, key, 2)
            return ConsumerKey(ConsumerRecordType(number), group.group_id)
        case 5 | 7 | 8:
            member, _ = decode(ConsumerGroupMemberMetadataKey, _VERSION, key, 2)
            return ConsumerKey(ConsumerRecordType(number), member.group_id, member.member_id)
        case 16:
            regex, _ = decode(ConsumerGroupRegularExpressionKey, _VERSION, key, 2)
            return ConsumerKey(ConsumerRecordType.REGEX, regex.group_id, regex.regular_expression)
        case _:
            return None


def _parse(kind: type[M], value: bytes) -> M:
    if len(value) < 2:
        raise DecodeError(f"a coordinator value has only {len(value)} bytes")
    version: int = _INT16.unpack_from(value)[0]
    if version != _VERSION:
        raise DecodeError(f"a coordinator value has the unknown version {version}")
    return decode(kind, _VERSION, value, 2)[0]


def parse_group_epoch(value: bytes) -> tuple[int, int]:
    """Parses a group epoch record to (group epoch, hash of the topics)."""
    body = _parse(ConsumerGroupMetadataValue, value)
    return body.epoch, body.metadata_hash


def parse_target_epoch(value: bytes) -> int:
    return _parse(ConsumerGroupTargetAssignmentMetadataValue, value).assignment_epoch


def parse_target(value: bytes) -> Assignment:
    body = _parse(ConsumerGroupTargetAssignmentMemberValue, value)
    return {one.topic_id: frozenset(one.partitions) for one in body.topic_partitions if one.partitions}


def parse_member(member_id: str, value: bytes) -> Member:
    """Parses a member's subscription record; its epochs and partitions are in another record."""
    body = _parse(ConsumerGroupMemberMetadataValue, value)
    classic = None
    if body.classic_member_metadata is not None:
        written = body.classic_member_metadata
        protocols = tuple((one.name, bytes(one.metadata)) for one in written.supported_protocols)
        classic = ClassicInfo(written.session_timeout_ms, protocols)
    return Member(
        member_id=member_id,
        instance_id=body.instance_id,
        rack_id=body.rack_id,
        client_id=body.client_id,
        client_host=body.client_host,
        topic_names=frozenset(body.subscribed_topic_names),
        regex=body.subscribed_topic_regex or NO_REGEX,
        rebalance_timeout_ms=body.rebalance_timeout_ms,
        server_assignor=body.server_assignor,
        classic=classic,
    )


class Current(NamedTuple):
    """The fields of a member that each step of a rebalance changes."""

    epoch: int
    previous_epoch: int
    state: MemberState
    assigned: Assignment
    revoking: Assignment


def parse_current(value: bytes) -> Current:
    body = _parse(ConsumerGroupCurrentMemberAssignmentValue, value)
    return Current(
        epoch=body.member_epoch,
        previous_epoch=body.previous_member_epoch,
        state=MemberState.of(body.state),
        assigned={one.topic_id: frozenset(one.partitions) for one in body.assigned_partitions if one.partitions},
        revoking={
            one.topic_id: frozenset(one.partitions) for one in body.partitions_pending_revocation if one.partitions
        },
    )


def parse_regex(value: bytes) -> ResolvedRegex:
    body = _parse(ConsumerGroupRegularExpressionValue, value)
    return ResolvedRegex(frozenset(body.topics), body.version, body.timestamp)
