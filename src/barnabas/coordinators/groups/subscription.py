"""The topics in a consumer's subscription, as far as the broker must know them.

A consumer's protocol metadata begins, in every version, with `int16 version | [string] topics`; the rest belongs to the
clients alone, so nothing behind the topics is read.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

#: The protocol type of consumers, as against Connect's and others'.
CONSUMER: Final = "consumer"

_HEAD = struct.Struct(">hi")
_INT16 = struct.Struct(">h")


def subscribed_topics(metadata: Iterable[bytes]) -> frozenset[str] | None:
    """All topics that members with this metadata subscribe to; None if one of them does not say it Kafka's way."""
    topics: set[str] = set()
    try:
        for one in metadata:
            topics.update(_topics(one))
    except (struct.error, ValueError):
        return None
    return frozenset(topics)


@lru_cache(maxsize=64)
def _topics(metadata: bytes) -> tuple[str, ...]:
    """Remembered, for the members of a group mostly say the same."""
    version, count = _HEAD.unpack_from(metadata)
    if version < 0 or not 0 <= count <= len(metadata):
        raise ValueError("no consumer subscription")
    place = _HEAD.size
    topics = []
    for _ in range(count):
        size = _INT16.unpack_from(metadata, place)[0]
        place += _INT16.size
        if size < 0 or place + size > len(metadata):
            raise ValueError("no consumer subscription")
        topics.append(metadata[place : place + size].decode("utf-8"))
        place += size
    return tuple(topics)
