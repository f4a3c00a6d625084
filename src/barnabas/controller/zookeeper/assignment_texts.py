"""The contents of `/brokers/topics/T`, from images of topics.

Each part of a reassignment of thousands of partitions, and each growth of such a topic, writes the whole assignment.
The texts of the large topics that were written last are kept, and only partitions that have changed since are encoded
again. The first text of such a topic can be made in portions.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Final

from barnabas.common.portions import PARTITIONS_IN_PORTION
from barnabas.controller.zookeeper.slices import PARTITIONS_AT_ONCE
from barnabas.metadata.topics import PartitionImage, TopicImage
from barnabas.znodes.topic_text import TopicText

#: The maximum number of texts that are kept: jobs take turns, and each is about one topic at a time.
_TEXTS_MAX: Final = 8


class AssignmentTexts:
    """The cache of encoded topic assignments of one controller epoch."""

    def __init__(self) -> None:
        #: The text of a topic and the partitions that it is about, by topic id, in the order of their last use.
        self._known: OrderedDict[bytes, tuple[TopicText, Sequence[PartitionImage]]] = OrderedDict()

    def prepare(self, topic: TopicImage, added: Sequence[PartitionImage] = ()) -> Iterator[None]:
        """Makes the text of a large topic in portions, so that its next write has little left to encode. `added` are
        partitions that the write adds to the topic.
        """
        partitions = [*topic.partitions, *added]
        if len(partitions) <= PARTITIONS_IN_PORTION or (topic.topic_id in self._known and not added):
            return
        text = TopicText(topic.topic_id)
        for index, partition in enumerate(partitions):
            if index and not index % PARTITIONS_IN_PORTION:
                yield
            text.put(index, partition.replicas, partition.adding_replicas, partition.removing_replicas)
        yield
        text.encoded()  # The call sorts the partitions.
        yield
        self._keep(topic.topic_id, text, partitions)

    def encoded(self, topic: TopicImage) -> bytes:
        """Returns the content of `/brokers/topics/T`."""
        text, before = self._known.pop(topic.topic_id, (None, ()))
        if text is None or len(before) > len(topic.partitions):
            text, before = TopicText(topic.topic_id), ()
        count = len(before)
        for index, partition in enumerate(topic.partitions):
            if index >= count or before[index] is not partition:
                text.put(index, partition.replicas, partition.adding_replicas, partition.removing_replicas)
        if len(topic.partitions) > PARTITIONS_AT_ONCE:
            self._keep(topic.topic_id, text, topic.partitions)
        return text.encoded()

    def _keep(self, topic_id: bytes, text: TopicText, partitions: Sequence[PartitionImage]) -> None:
        self._known[topic_id] = (text, partitions)
        if len(self._known) > _TEXTS_MAX:
            self._known.popitem(last=False)
