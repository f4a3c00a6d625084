"""The reader of `spark.readStream`: admission control, AvailableNow, and offsets that detect lost records.

One object lives in the driver's source process for the whole query and plans micro-batches; a fresh one, which never
plans, is pickled for the tasks. So the constructor opens no connection.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from barnabas.common.types import ZERO_UUID, TopicPartition, uuid_from_text
from barnabas.spark import advance, checkpoint, lookup, lost_table
from barnabas.spark import cluster_client as clusters
from barnabas.spark.advance import ClusterState
from barnabas.spark.checkpoint import Position, Progress
from barnabas.spark.cluster_client import ClusterClient, TopicView
from barnabas.spark.errors import DataLost, SourceFailed
from barnabas.spark.group_commits import GroupCommits
from barnabas.spark.ranges import OffsetRange, RangePartition, cut, limited
from barnabas.spark.reading import read_range
from barnabas.spark.source_options import SourceOptions

_log = logging.getLogger(__name__)

#: The age of metadata after which new partitions and topics are requested.
_METADATA_AGE_S = 1.0
#: The time for which a topic must be missing before it counts as deleted.
_GONE_AFTER_S = 2.0


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of a stream. Method names and their meaning are Spark's."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._refreshed_at = -math.inf
        self._views: dict[str, TopicView] = {}
        self._target: ClusterState | None = None
        self._last_planned_at = time.monotonic()
        self._latest: Progress | None = None
        self._group: GroupCommits | None = None
        #: The end that was planned last, and the end that was last committed to the group.
        self._planned: dict[str, Any] | None = None
        self._committed: dict[str, Any] | None = None

    # -- offsets

    def initialOffset(self) -> dict[str, Any]:
        cluster, options = self._cluster(), self._options
        views = lookup.subscribed(cluster, options.subscription)
        lookup.must_exist(cluster, views, options.subscription)
        seen = self._read_state()
        begins = lookup.resolve(cluster, options.starting, seen.ends) if seen.ends else {}
        positions = {each: Position(begins[each], end.epoch) for each, end in seen.ends.items()}
        return Progress(positions, seen.topic_ids).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._read_state()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return None if self._latest is None else self._latest.to_json()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        begun = checkpoint.from_json(start)
        if start == self._planned:
            self.commit(start)  # Spark's next plan begins there: that micro-batch is complete
        seen = self._read_state(begun)
        self._latest = seen.progress()
        taken = advance.step(self._cluster(), begun, seen, self._options.subscription)
        if taken.lost and self._options.fail_on_data_loss:
            raise DataLost(taken.lost)
        available = {
            partition: (begin, max(begin, self._readable(partition, seen))) for partition, begin in taken.begins.items()
        }
        size = sum(end - begin for begin, end in available.values())
        if size and not taken.lost and self._waits_for_more(size, limit):
            return start
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        ends = {each: end for each, (_, end) in available.items()} if most is None else limited(available, most)
        progress = advance.end_of(begun, seen, taken, ends)
        if progress is begun:
            return start
        self._last_planned_at = time.monotonic()
        for lost in taken.lost:
            _log.warning("records are lost: %s", lost)
        self._planned = progress.to_json()
        return self._planned

    def _readable(self, partition: TopicPartition, seen: ClusterState) -> int:
        """Returns the end up to which this query can read: for AvailableNow, the end of the log when it began."""
        end = seen.ends[partition].offset
        if self._target is None:
            return end
        target = self._target.ends.get(partition)
        return 0 if target is None else min(end, target.offset)

    def _waits_for_more(self, size: int, limit: ReadLimit) -> bool:
        if self._target is not None or isinstance(limit, ReadAllAvailable):
            return False
        least = limit.min_rows if isinstance(limit, ReadMinRows) else self._options.min_offsets_per_trigger
        waited_ms = (time.monotonic() - self._last_planned_at) * 1000
        return least is not None and size < least and waited_ms < self._options.max_trigger_delay_ms

    # -- planning and reading

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        options = self._options
        begun, ended = checkpoint.from_json(start), checkpoint.from_json(end)
        if ended.lost and options.lost_ranges_path is not None:
            lost_table.write(options.lost_ranges_path, ended.lost)
        ranges = [
            self._range(partition, first, stop, epoch, ended)
            for partition, first, stop, epoch in checkpoint.spans(begun, ended)
        ]
        return [RangePartition(each) for each in cut(ranges, options.min_partitions, options.max_records_per_partition)]

    def _range(self, partition: TopicPartition, first: int, end: int, epoch: int, ended: Progress) -> OffsetRange:
        leader = self._cluster().leader(partition)
        text = ended.topic_ids.get(partition.topic, "")
        return OffsetRange(
            partition.topic,
            partition.partition,
            first,
            end,
            epoch,
            uuid_from_text(text) if text else ZERO_UUID,
            None if leader is None else (leader.host, leader.port),
        )

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if partition.value is None:
            return iter(())
        return read_range(self._options, partition.value)

    def commit(self, end: dict[str, Any]) -> None:
        """Commits the query's progress to the consumer group, for tools that show its lag; it is never read back.

        Spark itself calls this for a micro-batch only when the next one has records; `latestOffset` does so earlier.
        """
        if self._options.group_id is None or end == self._committed:
            return
        if self._group is None:
            self._group = GroupCommits(self._cluster(), self._options.group_id)
        try:
            self._group.commit(checkpoint.from_json(end))
            self._committed = end
        except (OSError, SourceFailed) as error:
            _log.warning("cannot commit the progress of this query to group %s: %s", self._options.group_id, error)

    def stop(self) -> None:
        self._cluster().close()

    # -- the cluster

    def _cluster(self) -> ClusterClient:
        return clusters.of(self._options.client)

    def _read_state(self, known: Progress | None = None) -> ClusterState:
        """Returns the topics and the ends of their logs. It waits a while for a missing topic of the checkpoint."""
        cluster, options = self._cluster(), self._options
        now = time.monotonic()
        fresh = now - self._refreshed_at > _METADATA_AGE_S
        if fresh or options.subscription.pattern is None or known is None:
            views = lookup.subscribed(cluster, options.subscription, fresh=fresh or known is None)
            self._views = views
            if fresh:
                self._refreshed_at = now
        views = self._views
        give_up = now + _GONE_AFTER_S
        while known is not None and set(known.topic_ids) - set(views) and time.monotonic() < give_up:
            if not set(known.topic_ids) - set(views) <= self._subscribed_names(known):
                break
            time.sleep(0.1)
            views = self._views = lookup.subscribed(cluster, options.subscription, fresh=True)
        partitions = lookup.partitions_of(views)
        ends = lookup.ends(cluster, partitions, options.fetch.read_committed) if partitions else {}
        return ClusterState(views, ends)

    def _subscribed_names(self, known: Progress) -> set[str]:
        subscription = self._options.subscription
        if subscription.pattern is not None:
            return {name for name in known.topic_ids if subscription.pattern.fullmatch(name)}
        return set(subscription.topics) | {each.topic for each in subscription.partitions}
