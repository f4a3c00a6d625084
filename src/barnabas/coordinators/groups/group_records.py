"""The records of `__consumer_offsets` as Kafka 4.1 writes them.

    key    int16 type | body (version 0)             type 0, 1 committed offset; 2 group
    value  int16 version | body                      offset: 4 (1 with its own expiry time); group: 3

Types 3 and above belong to the newer group protocols. A null value deletes the key.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final, NamedTuple

from barnabas.common.errors import DecodeError
from barnabas.coordinators.runtime import KeyValue
from barnabas.protocol.codec import decode, encode_into
from barnabas.protocol.message import Message
from barnabas.protocol.messages.records_group import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)

NO_LEADER_EPOCH: Final = -1
NO_EXPIRY: Final = -1

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
#: The start of a value of version 4, up to its metadata: version, offset, leader epoch, one byte for the length.
_OFFSET_HEAD = struct.Struct(">hqiB")
#: Metadata shorter than this has a length of one byte.
_SHORT_METADATA: Final = 0x7F
_LEGACY_OFFSET_KEY: Final = 0
_OFFSET_KEY: Final = 1
_GROUP_KEY: Final = 2
_OFFSET_VALUE: Final = 4
_OFFSET_VALUE_WITH_EXPIRY: Final = 1
_OFFSET_VALUES: Final = range(5)
_GROUP_VALUE: Final = 3
_GROUP_VALUES: Final = range(5)


class CommittedOffset(NamedTuple):
    """The offset that a group has committed for one partition."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_EXPIRY


class OffsetKey(NamedTuple):
    group_id: str
    topic: str
    partition: int


class GroupKey(NamedTuple):
    group_id: str


def _key(record_type: int, body: Message) -> bytes:
    out = bytearray(_INT16.pack(record_type))
    encode_into(body, 0, out)
    return bytes(out)


def _value(version: int, body: Message) -> bytes:
    out = bytearray(_INT16.pack(version))
    encode_into(body, version, out)
    return bytes(out)


def _offset_key(group_id: str, topic: str, partition: int) -> bytes:
    return _key(_OFFSET_KEY, OffsetCommitKey(group=group_id, topic=topic, partition=partition))


def offset_key_head(group_id: str, topic: str) -> bytes:
    """Returns an offset's key without its last four bytes, the partition (`offset_key`)."""
    return _offset_key(group_id, topic, 0)[:-4]


def offset_key(head: bytes, partition: int) -> bytes:
    return head + _INT32.pack(partition)


def offset_record(group_id: str, topic: str, partition: int, committed: CommittedOffset) -> KeyValue:
    return KeyValue(_offset_key(group_id, topic, partition), offset_value(committed))


def offset_value(committed: CommittedOffset) -> bytes:
    metadata = committed.metadata.encode()
    if committed.expire_timestamp_ms == NO_EXPIRY and len(metadata) < _SHORT_METADATA:
        head = _OFFSET_HEAD.pack(_OFFSET_VALUE, committed.offset, committed.leader_epoch, len(metadata) + 1)
        return b"%b%b%b\0" % (head, metadata, _INT64.pack(committed.commit_timestamp_ms))
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp_ms,
        expire_timestamp=committed.expire_timestamp_ms,
    )
    return _value(_OFFSET_VALUE if committed.expire_timestamp_ms == NO_EXPIRY else _OFFSET_VALUE_WITH_EXPIRY, value)


def offset_tombstone(group_id: str, topic: str, partition: int) -> KeyValue:
    return KeyValue(_offset_key(group_id, topic, partition), None)


def group_record(group_id: str, value: GroupMetadataValue) -> KeyValue:
    return KeyValue(_key(_GROUP_KEY, GroupMetadataKey(group=group_id)), _value(_GROUP_VALUE, value))


def group_tombstone(group_id: str) -> KeyValue:
    return KeyValue(_key(_GROUP_KEY, GroupMetadataKey(group=group_id)), None)


def parse_key(key: bytes) -> OffsetKey | GroupKey | None:
    """Returns the parsed key; None for other types of keys."""
    if len(key) < 2:
        raise DecodeError(f"a coordinator key has only {len(key)} bytes")
    record_type: int = _INT16.unpack_from(key)[0]
    if record_type in (_LEGACY_OFFSET_KEY, _OFFSET_KEY):
        offset_key, _ = decode(OffsetCommitKey, 0, key, 2)
        return OffsetKey(offset_key.group, offset_key.topic, offset_key.partition)
    if record_type == _GROUP_KEY:
        group_key, _ = decode(GroupMetadataKey, 0, key, 2)
        return GroupKey(group_key.group)
    return None


def parse_plain_offset(key: bytes, value: bytes) -> tuple[OffsetKey, CommittedOffset] | None:
    """Parses an offset in the usual form: version 4, short metadata, no tagged fields. Returns None for other
    records. This bypasses the codec, because a coordinator that takes over reads very many of them while clients
    wait."""
    names = _names(key[:-4])
    if names is None or len(value) < _OFFSET_HEAD.size:
        return None
    version, offset, leader_epoch, length = _OFFSET_HEAD.unpack_from(value)
    end = _OFFSET_HEAD.size + length - 1
    if version != _OFFSET_VALUE or not 0 < length < 0x80 or len(value) != end + 9 or value[-1]:
        return None
    try:
        metadata = value[_OFFSET_HEAD.size : end].decode() if length > 1 else ""
    except UnicodeDecodeError:
        return None
    partition: int = _INT32.unpack_from(key, len(key) - 4)[0]
    return OffsetKey(*names, partition), CommittedOffset(
        offset, leader_epoch, metadata, _INT64.unpack_from(value, end)[0]
    )


@lru_cache(maxsize=64)
def _names(head: bytes) -> tuple[str, str] | None:
    """Returns the group and the topic of an offset's key without its partition; None for other keys. Cached, because
    keys that are written together differ only in the partition."""
    try:
        if _INT16.unpack_from(head)[0] != _OFFSET_KEY:
            return None
        topic_at = 6 + _INT16.unpack_from(head, 2)[0]
        end = topic_at + _INT16.unpack_from(head, topic_at - 2)[0]
        if topic_at < 6 or end < topic_at or len(head) != end:
            return None
        return head[4 : topic_at - 2].decode(), head[topic_at:end].decode()
    except (struct.error, UnicodeDecodeError):
        return None


def _version(value: bytes, known: range) -> int:
    if len(value) < 2:
        raise DecodeError(f"a coordinator value has only {len(value)} bytes")
    version: int = _INT16.unpack_from(value)[0]
    if version not in known:
        raise DecodeError(f"a coordinator value has the unknown version {version}")
    return version


def parse_offset(value: bytes) -> CommittedOffset:
    body, _ = decode(OffsetCommitValue, _version(value, _OFFSET_VALUES), value, 2)
    return CommittedOffset(body.offset, body.leader_epoch, body.metadata, body.commit_timestamp, body.expire_timestamp)


def parse_group(value: bytes) -> GroupMetadataValue:
    return decode(GroupMetadataValue, _version(value, _GROUP_VALUES), value, 2)[0]
