"""The sorted names of an image, and its topics with an ELR, agree with its topics, whatever changed them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.metadata import topic_names
from barnabas.metadata.image import EMPTY_IMAGE, MetadataDelta, MetadataImage
from barnabas.protocol.messages.records_metadata import (
    ClearElrRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)

NAMES = st.sampled_from([f"t{number}" for number in range(8)])
CHANGES = st.one_of(
    st.tuples(st.just("toggle"), NAMES),
    st.tuples(st.sampled_from(["elr", "last", "none", "clear"]), NAMES),
    st.just(("clear", "")),
)
#: The changes of each delta, and whether the names of its image are read.
DELTAS = st.lists(st.tuples(st.lists(CHANGES, max_size=6), st.booleans()), max_size=20)


def partition_change(kind: str, topic_id: bytes) -> PartitionChangeRecord:
    eligible = [2] if kind == "elr" else []
    last = [1] if kind == "last" else []
    return PartitionChangeRecord(
        partition_id=0, topic_id=topic_id, eligible_leader_replicas=eligible, last_known_elr=last
    )


class Cluster:
    def __init__(self) -> None:
        self.image: MetadataImage = EMPTY_IMAGE
        self.ids: dict[str, bytes] = {}
        self._made = 0

    def change(self, delta: MetadataDelta, kind: str, name: str) -> None:
        topic_id = self.ids.get(name)
        if kind == "toggle" and topic_id is not None:
            delta.replay(RemoveTopicRecord(topic_id=self.ids.pop(name)))
        elif kind == "toggle":
            self._made += 1
            made = self.ids[name] = self._made.to_bytes(16, "big")
            delta.replay(TopicRecord(name=name, topic_id=made))
            for index in range(2):
                delta.replay(PartitionRecord(partition_id=index, topic_id=made, replicas=[1], isr=[1], leader=1))
        elif kind == "clear" and (not name or topic_id is not None):
            delta.replay(ClearElrRecord(topic_name=name))
        elif topic_id is not None:
            delta.replay(partition_change(kind, topic_id))


@pytest.mark.parametrize("merged_above", [0, 3, 1_000])
@given(deltas=DELTAS)
def test_indexes_after_any_changes(merged_above: int, deltas: list[tuple[list[tuple[str, str]], bool]]) -> None:
    cluster = Cluster()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(topic_names, "_CHANGES_MAX", merged_above)
        for number, (changes, is_read) in enumerate(deltas):
            delta = MetadataDelta(cluster.image)
            for kind, name in changes:
                cluster.change(delta, kind, name)
            image = cluster.image = delta.apply(number, 1, 0)
            with_elr = {topic.topic_id for topic in image.topics_by_id.values() if topic.has_elr}
            assert set(image.topics_with_elr) == with_elr
            if is_read:
                assert list(image.topic_names()) == sorted(cluster.ids)
    assert list(cluster.image.topic_names()) == sorted(cluster.ids)
    assert [topic.name for topic in cluster.image.topics()] == sorted(cluster.ids)


def test_an_image_with_other_topics_has_their_names() -> None:
    delta = MetadataDelta(EMPTY_IMAGE)
    delta.replay(TopicRecord(name="a", topic_id=bytes(15) + b"\1"))
    image = delta.apply(0, 1, 0)
    assert image.topic_names() == ["a"]
    without = replace(image, topics_by_name=EMPTY_IMAGE.topics_by_name, topics_by_id=EMPTY_IMAGE.topics_by_id)
    assert list(without.topic_names()) == []
    assert image.topic_names() == ["a"]
