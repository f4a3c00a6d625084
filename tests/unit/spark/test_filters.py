"""Pushed-down filters choose ranges; conditions that they cannot express exactly stay with Spark."""

from __future__ import annotations

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from barnabas.spark.filters import RangeFilter
from barnabas.spark.ranges import OffsetRange

RANGES = [OffsetRange(topic, index, 10, 20) for topic in ("a", "b") for index in (0, 1)]


def _chosen(*filters: Filter) -> list[tuple[str, int, int, int]]:
    taken = RangeFilter()
    assert taken.push(filters) == []
    return [(each.topic, each.partition, each.first_offset, each.end_offset) for each in taken.chosen(RANGES)]


def test_topics_and_partitions() -> None:
    assert _chosen(EqualTo(("topic",), "a"), In(("partition",), (1, 7))) == [("a", 1, 10, 20)]
    assert _chosen(EqualTo(("partition",), 0), EqualTo(("partition",), 1)) == []


def test_offsets() -> None:
    def bounds(*filters: Filter) -> set[tuple[int, int]]:
        return {(first, end) for _, _, first, end in _chosen(*filters)}

    assert bounds(EqualTo(("offset",), 12)) == {(12, 13)}
    assert bounds(GreaterThan(("offset",), 12), LessThan(("offset",), 15)) == {(13, 15)}
    assert bounds(GreaterThanOrEqual(("offset",), 3), LessThanOrEqual(("offset",), 15)) == {(10, 16)}
    assert bounds(GreaterThan(("offset",), 19)) == set()


def test_the_others_stay_with_spark() -> None:
    others: list[Filter] = [
        IsNotNull(("offset",)),
        EqualTo(("value",), b"x"),
        EqualTo(("topic", "x"), "a"),
        In(("topic",), ("a", None)),
        EqualTo(("offset",), None),
    ]
    taken = RangeFilter()
    assert taken.push(others) == others
    assert taken.chosen(RANGES) == RANGES
