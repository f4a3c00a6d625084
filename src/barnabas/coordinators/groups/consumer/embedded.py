"""What consumers of the classic protocol say inside JoinGroup and are told inside SyncGroup.

int16 version | subscription or assignment in that version; of a newer one than ours its known part is read
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeVar

from barnabas.common.errors import DecodeError
from barnabas.coordinators.groups.consumer.member import Assignment, assignment_of, partitions_of
from barnabas.coordinators.groups.consumer.topics import Topics
from barnabas.protocol.codec import decode, encode_into
from barnabas.protocol.message import Message
from barnabas.protocol.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription

_INT16 = struct.Struct(">h")
_NEWEST: Final = 3
M = TypeVar("M", bound=Message)


class Subscription(NamedTuple):
    """Of a classic consumer. `owned` are (topic name, partition)."""

    topics: frozenset[str]
    owned: tuple[tuple[str, int], ...]
    rack_id: str | None


def _parse(kind: type[M], data: bytes) -> M:
    version = embedded_version(data)
    return decode(kind, version, data, _INT16.size)[0]


def embedded_version(data: bytes) -> int:
    """DecodeError."""
    if len(data) < _INT16.size:
        raise DecodeError("an embedded message without a version")
    version: int = _INT16.unpack_from(data)[0]
    if version < 0:
        raise DecodeError(f"an embedded message of version {version}")
    return min(version, _NEWEST)


def parse_subscription(data: bytes) -> Subscription:
    """DecodeError."""
    body = _parse(ConsumerProtocolSubscription, data)
    owned = tuple((one.topic, partition) for one in body.owned_partitions for partition in one.partitions)
    return Subscription(frozenset(body.topics), owned, body.rack_id)


def parse_assignment(data: bytes) -> tuple[tuple[tuple[str, int], ...], bool]:
    """The (topic name, partition)s, and whether an assignor has put something of its own beside them. DecodeError."""
    if not data:
        return (), False
    body = _parse(ConsumerProtocolAssignment, data)
    assigned = tuple((one.topic, partition) for one in body.assigned_partitions for partition in one.partitions)
    return assigned, bool(body.user_data)


def encode_assignment(assignment: Assignment, topics: Topics, version: int) -> bytes:
    """Topics that are gone are left out."""
    by_name: dict[str, list[int]] = {}
    for topic_id, partition in partitions_of(assignment):
        topic = topics.find_id(topic_id)
        if topic is not None:
            by_name.setdefault(topic.name, []).append(partition)
    body = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignment.TopicPartition(topic=name, partitions=by_name[name]) for name in sorted(by_name)
        ]
    )
    out = bytearray(_INT16.pack(version))
    encode_into(body, version, out)
    return bytes(out)


def with_ids(partitions: Iterable[tuple[str, int]], topics: Topics) -> Assignment:
    """Partitions by topic id; of topics that are gone, none."""
    found = []
    ids: dict[str, bytes | None] = {}
    for name, partition in partitions:
        if name not in ids:
            topic = topics.find(name)
            ids[name] = None if topic is None else topic.topic_id
        topic_id = ids[name]
        if topic_id is not None:
            found.append((topic_id, partition))
    return assignment_of(found)


def first_metadata(protocols: Mapping[str, bytes]) -> bytes:
    return next(iter(protocols.values()), b"")
