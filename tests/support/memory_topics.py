"""The topics of a cluster as a dict of names and numbers of partitions, for group coordinators in memory."""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.coordinators.groups.consumer.topic_summaries import TopicSummary


class MemoryTopics:
    """A view of the dict: an entry that is added, removed or enlarged is a change of the cluster. A topic that was
    removed and added again has another id.
    """

    def __init__(self, counts: dict[str, int]) -> None:
        self.counts = counts
        self._known: dict[str, TopicSummary] = {}
        self._version = 0
        self._made = 0

    @property
    def version(self) -> int:
        self._follow()
        return self._version

    def _follow(self) -> None:
        if {name: topic.partition_count for name, topic in self._known.items()} == self.counts:
            return
        self._version += 1
        for name in [name for name in self._known if name not in self.counts]:
            del self._known[name]
        for name, count in self.counts.items():
            if name in self._known:
                self._known[name] = self._known[name]._replace(partition_count=count)
            else:
                self._made += 1
                self._known[name] = TopicSummary(self._made.to_bytes(16, "big"), name, count)

    def find(self, name: str) -> TopicSummary | None:
        self._follow()
        return self._known.get(name)

    def find_id(self, topic_id: bytes) -> TopicSummary | None:
        self._follow()
        return next((topic for topic in self._known.values() if topic.topic_id == topic_id), None)

    def names(self) -> Iterable[str]:
        self._follow()
        return list(self._known)

    def id_of(self, name: str) -> bytes:
        topic = self.find(name)
        assert topic is not None, f"no topic {name}"
        return topic.topic_id
