"""Portions of a controller's work: every row once, in its order, and never more at once than is allowed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.controller.zookeeper import slices
from barnabas.controller.zookeeper.request_parts import parts_of_alter_partition, parts_of_elect_leaders
from barnabas.protocol.messages.alter_partition import AlterPartitionRequest
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest

MOST = slices.PARTITIONS_AT_ONCE


@given(st.lists(st.integers(0, 3 * MOST), max_size=6))
def test_portions_by_topic_hold_every_row_once(sizes: list[int]) -> None:
    topics = [(str(number), [(number, row) for row in range(size)]) for number, size in enumerate(sizes)]
    portions = list(slices.portions_by_topic(topics))
    rows = [(topic, row) for portion in portions for topic, taken in portion for row in taken]
    assert rows == [(topic, row) for topic, of_topic in topics for row in of_topic]
    assert {topic for portion in portions for topic, _ in portion} == {topic for topic, _ in topics}
    counts = [sum(len(taken) for _, taken in portion) for portion in portions]
    assert all(count == MOST for count in counts[:-1])
    assert 0 <= counts[-1] <= MOST
    with_rows = [bool(taken) for portion in portions for _, taken in portion]
    assert with_rows.count(False) == sizes.count(0), "no topic is divided into nothing and the rest"


@pytest.mark.parametrize(("sizes", "parts"), [([], 1), ([0], 1), ([MOST], 1), ([MOST, 1], 2), ([1, 2 * MOST], 3)])
def test_requests_are_divided_alike(sizes: list[int], parts: int) -> None:
    alter = AlterPartitionRequest(
        broker_id=1,
        broker_epoch=7,
        topics=[
            AlterPartitionRequest.TopicData(
                topic_id=bytes([number]) * 16,
                partitions=[AlterPartitionRequest.PartitionData(partition_index=index) for index in range(size)],
            )
            for number, size in enumerate(sizes)
        ],
    )
    elect = ElectLeadersRequest(
        election_type=1,
        timeout_ms=5,
        topic_partitions=[
            ElectLeadersRequest.TopicPartitions(topic=str(number), partitions=list(range(size)))
            for number, size in enumerate(sizes)
        ],
    )
    altered, elected = parts_of_alter_partition(alter), parts_of_elect_leaders(elect)
    assert len(altered) == len(elected) == parts
    assert {(part.broker_id, part.broker_epoch) for part in altered} == {(1, 7)}
    assert {(part.election_type, part.timeout_ms) for part in elected} == {(1, 5)}
    counts = [[len(topic.partitions) for topic in part.topics] for part in altered]
    assert [[len(topic.partitions) for topic in part.topic_partitions or ()] for part in elected] == counts
    assert sum(map(sum, counts)) == sum(sizes)
