"""The reason for an ISR proposal, as the leader sends it with AlterPartition.

Kafka's schema has no field for it, so it is a tagged field. Flexible versions allow any tag, and receivers skip tags
they do not know (KIP-482), as Kafka's controllers do; Kafka's brokers send none. The number is far above those that
Kafka allocates from 0 (decision 0013).

    int64 leader's LEO, then for each replica that leaves or joins: int32 broker, int64 its LEO, int64 lag_ms

`lag_ms` is the time since the replica was last caught up with the leader's LEO; -1 if unknown. A LEO is -1 before the
first fetch.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from barnabas.protocol.message import UnknownTags
from barnabas.replication.leadership import Leadership

REASON_TAG: Final = 8_192
_LEADER: Final = struct.Struct(">q")
_MEMBER: Final = struct.Struct(">iqq")
#: No partition has more replicas than this, so a longer field was not written by Barnabas.
_BYTES_MAX: Final = _LEADER.size + 1_000 * _MEMBER.size


class ReplicaLag(NamedTuple):
    broker_id: int
    leo: int
    lag_ms: int


class IsrReason(NamedTuple):
    leader_leo: int
    members: tuple[ReplicaLag, ...]


def encode_reason(leadership: Leadership, leader_leo: int, now_ms: int) -> UnknownTags:
    """Returns the tagged field for the replicas that the leadership's proposal adds or removes."""
    proposed = leadership.proposed or ()
    moved = [
        replica for replica in (*leadership.isr, *proposed) if (replica in leadership.isr) != (replica in proposed)
    ]
    data = bytearray(_LEADER.pack(leader_leo))
    for replica in moved:
        follower = leadership.followers.get(replica)
        if follower is None:
            data += _MEMBER.pack(replica, -1, -1)
        else:
            lag_ms = now_ms - follower.caught_up_at()
            data += _MEMBER.pack(replica, follower.leo, lag_ms if 0 <= lag_ms < 1 << 60 else -1)
    return ((REASON_TAG, bytes(data)),)


def read_reason(tags: Iterable[tuple[int, bytes]]) -> IsrReason | None:
    """Returns the reason; None if missing or malformed, which is harmless because it is used for explanations only."""
    for tag, data in tags:
        if tag == REASON_TAG:
            size = len(data) - _LEADER.size
            if size < 0 or size % _MEMBER.size or len(data) > _BYTES_MAX:
                return None
            members = tuple(ReplicaLag(*fields) for fields in _MEMBER.iter_unpack(data[_LEADER.size :]))
            return IsrReason(_LEADER.unpack_from(data)[0], members)
    return None
