"""The topics of the metadata image, as the group coordinator queries them."""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.common.types import METADATA_TOPIC
from barnabas.coordinators.groups.consumer.topic_summaries import TopicSummary
from barnabas.metadata.image import MetadataDelta, MetadataImage
from barnabas.metadata.store import MetadataStore
from barnabas.metadata.topics import TopicImage


class ImageTopics:
    """The topics of the newest image. `version` is the offset of the last record that created, deleted or expanded a
    topic, as far as this broker has followed the metadata; another broker can have a lower version, but never for a
    newer state."""

    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata
        self.version = metadata.image.offset

    def on_image(self, delta: MetadataDelta, image: MetadataImage) -> None:
        if delta.deleted_topics or any(self._has_grown(delta, topic_id, image) for topic_id in delta.changed_topics):
            self.version = image.offset

    @staticmethod
    def _has_grown(delta: MetadataDelta, topic_id: bytes, image: MetadataImage) -> bool:
        before, after = delta.image.topics_by_id.get(topic_id), image.topics_by_id.get(topic_id)
        return before is None or after is None or len(before.partitions) != len(after.partitions)

    def find(self, name: str) -> TopicSummary | None:
        return _topic(self._metadata.image.topics_by_name.get(name))

    def find_id(self, topic_id: bytes) -> TopicSummary | None:
        return _topic(self._metadata.image.topics_by_id.get(topic_id))

    def names(self) -> Iterable[str]:
        return (name for name in self._metadata.image.topics_by_name if name != METADATA_TOPIC)


def _topic(image: TopicImage | None) -> TopicSummary | None:
    return None if image is None else TopicSummary(image.topic_id, image.name, len(image.partitions))
