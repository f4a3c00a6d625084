"""Traffic of this broker's partitions by topic: plain counters that only grow.

Counting costs one addition per request; readers sum over the topics (`broker.metrics`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

_COUNTS: Final = (
    "bytes_in",
    "bytes_out",
    "failed_produce_requests",
    "messages_in",
    "produce_requests",
    "replication_bytes_in",
    "replication_bytes_out",
)


class TopicTraffic:
    """The counters of one topic. `produce_requests` counts each appended partition, as Kafka does."""

    __slots__ = _COUNTS

    def __init__(self) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        self.failed_produce_requests = 0
        self.messages_in = 0
        self.produce_requests = 0
        self.replication_bytes_in = 0
        self.replication_bytes_out = 0

    def add(self, other: TopicTraffic) -> None:
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Traffic:
    """The counters of all topics. Those of deleted topics stay in the total."""

    def __init__(self) -> None:
        self._topics: dict[str, TopicTraffic] = {}
        self._gone = TopicTraffic()

    def of(self, topic: str) -> TopicTraffic:
        found = self._topics.get(topic)
        if found is None:
            found = self._topics[topic] = TopicTraffic()
        return found

    def forget(self, topic: str) -> None:
        """Removes a topic that has no partitions left on this broker."""
        found = self._topics.pop(topic, None)
        if found is not None:
            self._gone.add(found)

    def topics(self) -> Iterator[tuple[str, TopicTraffic]]:
        yield from sorted(self._topics.items())

    def total(self) -> TopicTraffic:
        total = TopicTraffic()
        for each in (self._gone, *self._topics.values()):
            total.add(each)
        return total


def count_sent(traffic: TopicTraffic, size_bytes: int, *, to_follower: bool) -> None:
    """Counts the records in a response."""
    if to_follower:
        traffic.replication_bytes_out += size_bytes
    else:
        traffic.bytes_out += size_bytes
