"""What consumer groups know of topics: ids, names and numbers of partitions, as of the newest metadata.

A group remembers what it last shared out by a hash over its topics, so that after any change, and after a change of
coordinator, one comparison tells whether to share anew.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from hashlib import blake2b
from typing import Final, NamedTuple, Protocol

_TOPIC = struct.Struct(">16sih")
_HASH = struct.Struct(">q")
#: The hash of no topics, as Kafka writes it.
NO_TOPICS_HASH: Final = 0


class Topic(NamedTuple):
    topic_id: bytes
    name: str
    partition_count: int


class Topics(Protocol):
    """The topics of the cluster."""

    @property
    def version(self) -> int:
        """Grows whenever a topic comes, goes, or has more partitions: an offset of the metadata log."""

    def find(self, name: str) -> Topic | None: ...

    def find_id(self, topic_id: bytes) -> Topic | None: ...

    def names(self) -> Iterable[str]: ...


class NoTopics:
    """Of a coordinator that serves the classic protocol alone."""

    version: Final = 0

    def find(self, name: str) -> Topic | None:
        return None

    def find_id(self, topic_id: bytes) -> Topic | None:
        return None

    def names(self) -> Iterable[str]:
        return ()


def metadata_hash(topics: Topics, names: Iterable[str]) -> int:
    """Changes with the ids and the partitions of those of the topics that are there. Kafka hashes by another function,
    which costs a group whose log changes hands between the two one more rebalance."""
    digest = blake2b(digest_size=_HASH.size)
    found = False
    for name in sorted(names):
        topic = topics.find(name)
        if topic is not None:
            found = True
            encoded = name.encode()
            digest.update(_TOPIC.pack(topic.topic_id, topic.partition_count, len(encoded)) + encoded)
    return int(_HASH.unpack(digest.digest())[0]) if found else NO_TOPICS_HASH
