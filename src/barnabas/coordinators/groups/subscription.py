"""The topics in a consumer's subscription, as far as the broker needs them.

A consumer's protocol metadata begins, in every version, with `int16 version | [string] topics`; the rest is only for
clients, so nothing after the topics is read.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

#: The protocol type of consumers; Kafka Connect and others use their own.
CONSUMER: Final = "consumer"

_HEAD = struct.Struct(">hi")
_INT16 = struct.Struct(">h")


def subscribed_topics(metadata: Sequence[bytes]) -> frozenset[str] | None:
    """Returns all topics in these subscriptions; None if one of them is not in Kafka's format."""
    topics: set[str] = set()
    try:
        for one in metadata:
            topics.update(_topics(one))
    except (struct.error, ValueError):
        return None
    return frozenset(topics)


@lru_cache(maxsize=64)
def _topics(metadata: bytes) -> tuple[str, ...]:
    """Returns the topics of one subscription. The result is cached, because most members of a group have the same
    subscription.
    """
    version, count = _HEAD.unpack_from(metadata)
    if version < 0 or not 0 <= count <= len(metadata):
        raise ValueError("not a consumer subscription")
    place = _HEAD.size
    topics = []
    for _ in range(count):
        size = _INT16.unpack_from(metadata, place)[0]
        place += _INT16.size
        if size < 0 or place + size > len(metadata):
            raise ValueError("not a consumer subscription")
        topics.append(metadata[place : place + size].decode("utf-8"))
        place += size
    return tuple(topics)
