"""The topics as consumer groups see them: ids, names and partition counts in the newest metadata.

A group stores a hash of the topics of its last assignment: after any change, and after a failover of the coordinator,
one comparison shows whether a new assignment is needed.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Generator, Iterable
from hashlib import blake2b
from typing import Final, NamedTuple, Protocol

from barnabas.common.gradual import sorted_gradually

_TOPIC = struct.Struct(">16sih")
_HASH = struct.Struct(">q")
#: The hash of no topics, as Kafka writes it.
NO_TOPICS_HASH: Final = 0
#: The number of topics that are looked up in a quarter of a millisecond.
_PER_UNIT: Final = 250


class TopicSummary(NamedTuple):
    topic_id: bytes
    name: str
    partition_count: int


class Topics(Protocol):
    """The topics of the cluster."""

    @property
    def version(self) -> int:
        """Returns an offset of the metadata log, which grows whenever a topic is created, deleted or gets more
        partitions."""

    def find(self, name: str) -> TopicSummary | None: ...

    def find_id(self, topic_id: bytes) -> TopicSummary | None: ...

    def names(self) -> Iterable[str]:
        """Returns the names of the topics that exist now, even if they are read in several turns of the loop."""


def metadata_hash(topics: Topics, names: Collection[str]) -> Generator[int, None, int]:
    """Returns a hash over the ids and partition counts of the existing topics among `names`, in steps. Kafka uses
    another function, so that a group whose log moves between the two has one additional rebalance."""
    digest = blake2b(digest_size=_HASH.size)
    found = False
    in_order = sorted(names) if len(names) <= _PER_UNIT else (yield from sorted_gradually(names))
    for count, name in enumerate(in_order, 1):
        topic = topics.find(name)
        if not count % _PER_UNIT:
            yield 1
        if topic is not None:
            found = True
            encoded = name.encode()
            digest.update(_TOPIC.pack(topic.topic_id, topic.partition_count, len(encoded)) + encoded)
    return int(_HASH.unpack(digest.digest())[0]) if found else NO_TOPICS_HASH
