"""Filters on topic, partition and offset, pushed down into a batch: they select ranges, so that no record is read
needlessly.

    topic, partition    =, IN
    offset              =, <, <=, >, >=

Spark applies all others. Only the option pushFilters enables this, because Spark refuses a source that takes filters
while `spark.sql.python.filterPushdown.enabled` is false.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from barnabas.spark.ranges import OffsetRange

_OFFSET_MAX = (1 << 63) - 1


class RangeFilter:
    """The filters on topic, partition and offset that Spark pushed down."""

    def __init__(self) -> None:
        self._first_offset = 0
        self._end_offset = _OFFSET_MAX
        #: Column -> the allowed values.
        self._allowed: dict[str, set[Any]] = {}

    def push(self, filters: Iterable[Filter]) -> list[Filter]:
        """Accepts the supported filters, and returns the others."""
        return [each for each in filters if not self._take(each)]

    def _take(self, pushed: Filter) -> bool:
        path: tuple[str, ...] = getattr(pushed, "attribute", ())
        column = path[0] if len(path) == 1 else ""
        match pushed:
            case EqualTo(value=value) if column in ("topic", "partition") and value is not None:
                self._allow(column, {value})
            case In(value=values) if column in ("topic", "partition") and None not in values:
                self._allow(column, set(values))
            case EqualTo(value=int(value)) if column == "offset":
                self._bound(value, value + 1)
            case GreaterThan(value=int(value)) if column == "offset":
                self._bound(value + 1, _OFFSET_MAX)
            case GreaterThanOrEqual(value=int(value)) if column == "offset":
                self._bound(value, _OFFSET_MAX)
            case LessThan(value=int(value)) if column == "offset":
                self._bound(0, value)
            case LessThanOrEqual(value=int(value)) if column == "offset":
                self._bound(0, value + 1)
            case _:
                return False
        return True

    def _allow(self, column: str, values: set[Any]) -> None:
        self._allowed[column] = self._allowed.get(column, values) & values

    def _bound(self, first: int, end: int) -> None:
        self._first_offset = max(self._first_offset, first)
        self._end_offset = min(self._end_offset, end)

    def chosen(self, ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
        """Returns the parts of the ranges whose records all pass the accepted filters."""
        found = []
        for each in ranges:
            values = {"topic": each.topic, "partition": each.partition}
            if any(values[column] not in allowed for column, allowed in self._allowed.items()):
                continue
            first = max(each.first_offset, self._first_offset)
            end = min(each.end_offset, self._end_offset)
            if first < end:
                found.append(replace(each, first_offset=first, end_offset=end))
        return found
