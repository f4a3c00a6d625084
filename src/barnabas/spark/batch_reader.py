"""The reader of `spark.read`: all records between two bounds, which are resolved when the query is planned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from barnabas.spark import cluster_client as clusters
from barnabas.spark import lookup
from barnabas.spark.filters import RangeFilter
from barnabas.spark.ranges import OffsetRange, RangePartition, cut
from barnabas.spark.reading import read_range
from barnabas.spark.source_options import SourceOptions


class BatchReader(DataSourceReader):
    """A reader that plans in the driver and reads in the tasks; the constructor opens no connection."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._filter = RangeFilter()

    def partitions(self) -> list[InputPartition]:
        options = self._options
        ranges = self._filter.chosen(planned_ranges(options))
        return [RangePartition(each) for each in cut(ranges, options.min_partitions, options.max_records_per_partition)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        # For an empty plan, Spark calls this with one partition without a value.
        if partition.value is None:
            return iter(())
        return read_range(self._options, partition.value)


class FilteringBatchReader(BatchReader):
    """The reader with the option pushFilters. Spark pushes filters down to any reader that has the method for it."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._filter.push(filters)


def planned_ranges(options: SourceOptions) -> list[OffsetRange]:
    """Returns one range for each partition, including empty ones.

    Raises:
        ConfigError, ClusterUnreachable, RequestRefused.
    """
    cluster = clusters.of(options.client)
    views = lookup.subscribed(cluster, options.subscription)
    lookup.must_exist(cluster, views, options.subscription)
    partitions = lookup.partitions_of(views)
    if not partitions:
        return []
    latest = lookup.ends(cluster, partitions, options.fetch.read_committed)
    first = lookup.resolve(cluster, options.starting, latest)
    end = lookup.resolve(cluster, options.ending, latest)
    ranges = []
    for each in partitions:
        leader = cluster.leader(each)
        ranges.append(
            OffsetRange(
                each.topic,
                each.partition,
                first[each],
                max(first[each], end[each]),
                latest[each].epoch,
                views[each.topic].topic_id,
                None if leader is None else (leader.host, leader.port),
            )
        )
    return ranges
