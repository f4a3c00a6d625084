"""Ranges of offsets: cut into tasks, and limited by the size of a micro-batch."""

from __future__ import annotations

import pickle

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.common.types import TopicPartition
from barnabas.spark.ranges import OffsetRange, RangePartition, cut, limited

sizes = st.lists(st.integers(0, 300), max_size=8)


def _ranges(counts: list[int]) -> list[OffsetRange]:
    return [OffsetRange("t", index, 100, 100 + count) for index, count in enumerate(counts)]


def _offsets(ranges: list[OffsetRange]) -> list[tuple[int, int]]:
    return sorted((each.partition, at) for each in ranges for at in range(each.first_offset, each.end_offset))


@settings(deadline=None, max_examples=50)
@given(sizes, st.integers(0, 20), st.none() | st.integers(1, 300))
def test_cutting_loses_and_repeats_nothing(counts: list[int], wanted: int, most: int | None) -> None:
    whole = _ranges(counts)
    parts = cut(whole, wanted, most)
    assert _offsets(parts) == _offsets(whole)
    assert all(each.size > 0 for each in parts)
    assert len(parts) >= min(wanted, sum(counts))
    if most is not None:
        assert all(each.size <= most for each in parts)


@settings(deadline=None, max_examples=50)
@given(sizes, st.integers(1, 500))
def test_a_limit_holds_and_every_partition_goes_on(counts: list[int], records: int) -> None:
    available = {TopicPartition("t", index): (7, 7 + count) for index, count in enumerate(counts)}
    ends = limited(available, records)
    taken = {partition: ends[partition] - first for partition, (first, _) in available.items()}
    assert all(0 <= taken[partition] <= end - first for partition, (first, end) in available.items())
    assert all(taken[partition] > 0 for partition, (first, end) in available.items() if end > first)
    assert sum(taken.values()) <= max(records, sum(1 for count in counts if count))
    if sum(counts) <= records:
        assert sum(taken.values()) == sum(counts)


def test_a_range_travels_to_its_task() -> None:
    sent = RangePartition(OffsetRange("t", 1, 2, 3, 4, b"x" * 16, ("h", 9)))
    assert pickle.loads(pickle.dumps(sent)).value == sent.value
