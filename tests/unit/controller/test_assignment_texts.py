"""The texts of topics that the controller keeps: always those of the topic as it is."""

from __future__ import annotations

from barnabas.controller.zookeeper.assignment_texts import AssignmentTexts
from barnabas.controller.zookeeper.slices import PARTITIONS_AT_ONCE
from barnabas.metadata.topics import PartitionImage, TopicImage
from barnabas.znodes.image_znodes import assignment_of
from barnabas.znodes.topic_znodes import encode_topic

COUNT = PARTITIONS_AT_ONCE + 1


def partition(*replicas: int, adding: tuple[int, ...] = ()) -> PartitionImage:
    return PartitionImage(replicas, replicas, replicas[0], 0, 0, adding_replicas=adding)


def topic(number: int, *partitions: PartitionImage) -> TopicImage:
    return TopicImage(f"t{number}", bytes([number]) * 16, partitions)


def test_a_topic_that_moves_grows_and_shrinks() -> None:
    texts = AssignmentTexts()
    first = [partition(0, 1)] * COUNT
    moving = [*first[:7], partition(0, 1, 2, adding=(2,)), *first[8:]]
    for partitions in (first, moving, first, [*moving, *first], moving, first[:3], first):
        now = topic(1, *partitions)
        assert texts.encoded(now) == encode_topic(assignment_of(now))


def test_more_topics_than_texts_are_kept() -> None:
    texts = AssignmentTexts()
    for leader in range(3):
        for number in range(20):
            now = topic(number, *[partition(leader, 9)] * COUNT)
            assert texts.encoded(now) == encode_topic(assignment_of(now))
    assert len(texts._known) < 20
