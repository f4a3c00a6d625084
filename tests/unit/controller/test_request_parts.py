"""Requests about many partitions, cut into parts of whole topics."""

from __future__ import annotations

import pytest

from barnabas.controller.zookeeper.request_parts import parts_of_create_topics
from barnabas.controller.zookeeper.slices import PARTITIONS_AT_ONCE
from barnabas.protocol.messages.create_topics import CreateTopicsRequest


def names(*rows: tuple[str, int]) -> list[list[str]]:
    """Returns the names of the topics in each part, for topics with these numbers of partitions."""
    topics = [CreateTopicsRequest.CreatableTopic(name=name, num_partitions=count) for name, count in rows]
    return [
        [topic.name for topic in part.topics] for part in parts_of_create_topics(CreateTopicsRequest(topics=topics))
    ]


@pytest.mark.parametrize(("more", "parts"), [(-1, [["a", "b"]]), (0, [["a", "b"]]), (1, [["a"], ["b"]])])
def test_a_part_has_as_many_partitions_as_one_step_can_serve(more: int, parts: list[list[str]]) -> None:
    assert names(("a", 60), ("b", PARTITIONS_AT_ONCE - 60 + more)) == parts


def test_a_large_topic_and_rows_of_one_name_stay_whole() -> None:
    assert names(("a", 1), ("b", 10 * PARTITIONS_AT_ONCE), ("c", 1), ("a", 1)) == [["a", "a"], ["b"], ["c"]]
