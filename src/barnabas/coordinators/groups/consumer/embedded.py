"""The embedded consumer protocol: the metadata of classic consumers in JoinGroup and their assignment in SyncGroup.

int16 version | subscription or assignment in that version; of an unknown newer version, the known part is read
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from barnabas.common.errors import DecodeError
from barnabas.common.gradual import sorted_gradually
from barnabas.coordinators.groups.consumer.member import PER_UNIT, Assignment, assignment_in_steps
from barnabas.coordinators.groups.consumer.topic_summaries import Topics
from barnabas.protocol.codec import decode, decode_in_steps, encode_in_steps, encode_into
from barnabas.protocol.message import Message
from barnabas.protocol.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription

_INT16 = struct.Struct(">h")
_NEWEST: Final = 3
#: A message above this size is decoded in steps.
_LONG_BYTES: Final = 4 * 1024
#: The number of partitions that are listed in a quarter of a millisecond.
_FLAT_PER_UNIT: Final = 1_000
M = TypeVar("M", bound=Message)


class Subscription(NamedTuple):
    """The subscription of a classic consumer. `owned` contains (topic name, partition)."""

    topics: frozenset[str]
    owned: tuple[tuple[str, int], ...]
    rack_id: str | None


def _parse(kind: type[M], data: bytes) -> Generator[int, None, M]:
    version = embedded_version(data)
    if len(data) <= _LONG_BYTES:
        return decode(kind, version, data, _INT16.size)[0]
    body, _ = yield from decode_in_steps(kind, version, data, _INT16.size)
    return body


def _flat(
    topics: Sequence[ConsumerProtocolSubscription.TopicPartition | ConsumerProtocolAssignment.TopicPartition],
) -> Generator[int, None, tuple[tuple[str, int], ...]]:
    flat: list[tuple[str, int]] = []
    work = 0
    for one in topics:
        flat += [(one.topic, partition) for partition in one.partitions]
        work += 1 + len(one.partitions)
        if work > _FLAT_PER_UNIT:
            yield work // _FLAT_PER_UNIT
            work = 0
    return tuple(flat)


def embedded_version(data: bytes) -> int:
    """Returns the version with which to decode a classic consumer's subscription or assignment. Raises DecodeError."""
    if len(data) < _INT16.size:
        raise DecodeError("an embedded message has no version")
    version: int = _INT16.unpack_from(data)[0]
    if version < 0:
        raise DecodeError(f"an embedded message has the negative version {version}")
    return min(version, _NEWEST)


def parse_subscription(data: bytes) -> Generator[int, None, Subscription]:
    """Parses a classic consumer's subscription, in steps. Raises DecodeError."""
    body = yield from _parse(ConsumerProtocolSubscription, data)
    owned = yield from _flat(body.owned_partitions)
    return Subscription(frozenset(body.topics), owned, body.rack_id)


def parse_assignment(data: bytes) -> Generator[int, None, tuple[tuple[tuple[str, int], ...], bool]]:
    """Parses a classic consumer's assignment, in steps. Returns the (topic name, partition) tuples, and whether the
    assignor added its own user data. Raises DecodeError.
    """
    if not data:
        return (), False
    body = yield from _parse(ConsumerProtocolAssignment, data)
    assigned = yield from _flat(body.assigned_partitions)
    return assigned, bool(body.user_data)


def encode_assignment(assignment: Assignment, topics: Topics, version: int) -> Generator[int, None, bytes]:
    """Encodes an assignment for a classic consumer, without deleted topics, in steps."""
    by_name: dict[str, list[int]] = {}
    work = 0
    for topic_id, partitions in assignment.items():
        topic = topics.find_id(topic_id)
        if topic is not None:
            by_name[topic.name] = sorted(partitions)
        work += 1 + len(partitions)
        if work > _FLAT_PER_UNIT:
            yield work // _FLAT_PER_UNIT
            work = 0
    rows: list[ConsumerProtocolAssignment.TopicPartition] = []
    for count, name in enumerate(
        sorted(by_name) if len(by_name) <= PER_UNIT else (yield from sorted_gradually(by_name)), 1
    ):
        rows.append(ConsumerProtocolAssignment.TopicPartition(topic=name, partitions=by_name[name]))
        if not count % PER_UNIT:
            yield 1
    body = ConsumerProtocolAssignment(assigned_partitions=rows)
    out = bytearray(_INT16.pack(version))
    if len(rows) <= PER_UNIT:
        encode_into(body, version, out)
    else:
        yield from encode_in_steps(body, version, out)
    return bytes(out)


def with_ids(partitions: Iterable[tuple[str, int]], topics: Topics) -> Generator[int, None, Assignment]:
    """Returns the partitions by topic id, without deleted topics, in steps."""
    found = []
    ids: dict[str, bytes | None] = {}
    for count, (name, partition) in enumerate(partitions, 1):
        if not count % PER_UNIT:
            yield 1
        if name not in ids:
            topic = topics.find(name)
            ids[name] = None if topic is None else topic.topic_id
        topic_id = ids[name]
        if topic_id is not None:
            found.append((topic_id, partition))
    return (yield from assignment_in_steps(found))


def first_metadata(protocols: Mapping[str, bytes]) -> bytes:
    return next(iter(protocols.values()), b"")
