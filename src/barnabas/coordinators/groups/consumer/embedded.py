"""The embedded consumer protocol: the metadata of classic consumers in JoinGroup and their assignment in SyncGroup.

int16 version | subscription or assignment in that version; of an unknown newer version, the known part is read
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeVar

from barnabas.common.errors import DecodeError
from barnabas.coordinators.groups.consumer.member import Assignment, assignment_of, partitions_of
from barnabas.coordinators.groups.consumer.topic_summaries import Topics
from barnabas.protocol.codec import decode, encode_into
from barnabas.protocol.message import Message
from barnabas.protocol.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription

_INT16 = struct.Struct(">h")
_NEWEST: Final = 3
M = TypeVar("M", bound=Message)


class Subscription(NamedTuple):
    """The subscription of a classic consumer. `owned` contains (topic name, partition)."""

    topics: frozenset[str]
    owned: tuple[tuple[str, int], ...]
    rack_id: str | None


def _parse(kind: type[M], data: bytes) -> M:
    version = embedded_version(data)
    return decode(kind, version, data, _INT16.size)[0]


def embedded_version(data: bytes) -> int:
    """Returns the version with which to decode a classic consumer's subscription or assignment. Raises DecodeError."""
    if len(data) < _INT16.size:
        raise DecodeError("an embedded message has no version")
    version: int = _INT16.unpack_from(data)[0]
    if version < 0:
        raise DecodeError(f"an embedded message has the negative version {version}")
    return min(version, _NEWEST)


def parse_subscription(data: bytes) -> Subscription:
    """Parses a classic consumer's subscription. Raises DecodeError."""
    body = _parse(ConsumerProtocolSubscription, data)
    owned = tuple((one.topic, partition) for one in body.owned_partitions for partition in one.partitions)
    return Subscription(frozenset(body.topics), owned, body.rack_id)


def parse_assignment(data: bytes) -> tuple[tuple[tuple[str, int], ...], bool]:
    """Parses a classic consumer's assignment. Returns the (topic name, partition) tuples, and whether the assignor
    added its own user data. Raises DecodeError.
    """
    if not data:
        return (), False
    body = _parse(ConsumerProtocolAssignment, data)
    assigned = tuple((one.topic, partition) for one in body.assigned_partitions for partition in one.partitions)
    return assigned, bool(body.user_data)


def encode_assignment(assignment: Assignment, topics: Topics, version: int) -> bytes:
    """Encodes an assignment for a classic consumer, without deleted topics."""
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
    """Returns the partitions by topic id, without deleted topics."""
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
