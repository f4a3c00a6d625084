"""A step of a stream: compares the end of the last micro-batch with what the cluster reports now.

The comparison, for each partition:

    topic id differs                     the topic was deleted and created again: what followed is lost, start over
    leader's epoch is above the kept one request the end of the kept epoch in the leader's log; an end below our offset
                                         means that an election truncated the log: [end, ours) was read and is gone
                                         (KIP-320)
    log start offset above our offset    retention was faster than the query
    the partition does not exist         deleted
    the partition is new                 begin at its first record

The result depends only on what the cluster reports, and is `start` itself (the same `Progress` object) if there is
nothing to read and nothing lost.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from barnabas.common.errors import ConfigError
from barnabas.common.types import TopicPartition
from barnabas.spark import cluster_client as clusters
from barnabas.spark import lookup
from barnabas.spark.checkpoint import Position, Progress
from barnabas.spark.cluster_client import ClusterClient, LogEnd, TopicView
from barnabas.spark.losses import LossCause, LostRange
from barnabas.spark.source_options import Subscription


class ClusterState(NamedTuple):
    """The state of the cluster at one moment."""

    views: dict[str, TopicView]
    ends: dict[TopicPartition, LogEnd]

    @property
    def topic_ids(self) -> dict[str, str]:
        return {name: lookup.id_text(view) for name, view in self.views.items()}

    def progress(self) -> Progress:
        """Returns the progress of a stream that has read everything in this state."""
        return Progress({each: Position(*end) for each, end in self.ends.items()}, self.topic_ids)


@dataclass
class Step:
    """The first offsets of the next micro-batch in each existing partition, and the ranges found lost."""

    begins: dict[TopicPartition, int] = field(default_factory=dict)
    #: The partitions whose first offset is not where the last micro-batch ended.
    moved: set[TopicPartition] = field(default_factory=set)
    lost: list[LostRange] = field(default_factory=list)


def step(cluster: ClusterClient, start: Progress, seen: ClusterState, subscription: Subscription) -> Step:
    """Returns the start of the next micro-batch, and the ranges that are lost.

    Raises:
        ConfigError: the checkpoint belongs to entirely different topics.
    """
    check_topics(start, seen, subscription)
    found = Step()
    unsure: dict[TopicPartition, int] = {}
    anew: list[TopicPartition] = []
    for partition, end in seen.ends.items():
        kept = start.positions.get(partition)
        if kept is None:
            anew.append(partition)
        elif _is_another_topic(start, seen, partition.topic):
            found.lost.append(_lost(start, partition, kept.offset, None, LossCause.RECREATED))
            anew.append(partition)
        else:
            found.begins[partition] = kept.offset
            if 0 <= kept.epoch < end.epoch:
                unsure[partition] = kept.epoch
            elif end.offset < kept.offset and kept.epoch < 0:
                _cut(found, start, partition, end.offset, kept.offset)
    _find_cuts(cluster, found, start, seen, unsure)
    for partition, kept in start.positions.items():
        if partition not in seen.ends and _is_subscribed(partition, subscription):
            found.lost.append(_lost(start, partition, kept.offset, None, LossCause.DELETED))
    _find_aged(cluster, found, start, seen, anew)
    return found


def end_of(start: Progress, seen: ClusterState, taken: Step, ends: dict[TopicPartition, int]) -> Progress:
    """Returns the progress after a micro-batch that reads up to `ends`; `start` itself if nothing changes."""
    positions: dict[TopicPartition, Position] = {}
    for partition, begin in taken.begins.items():
        end = max(begin, ends.get(partition, begin))
        if partition in taken.moved:
            positions[partition] = Position(end, seen.ends[partition].epoch, begin)
        elif end > begin:
            positions[partition] = Position(end, seen.ends[partition].epoch)
        else:
            kept = start.positions[partition]
            positions[partition] = Position(kept.offset, kept.epoch)
    changed = taken.lost or any(
        (position.offset, position.epoch) != start.positions.get(partition, Position(-1, -1))[:2]
        for partition, position in positions.items()
    )
    if not changed and set(positions) == set(start.positions):
        return start
    return Progress(positions, seen.topic_ids, tuple(taken.lost))


def check_topics(start: Progress, seen: ClusterState, subscription: Subscription) -> None:
    before = {each.topic for each in start.positions}
    now = set(seen.views) | set(subscription.topics) | {each.topic for each in subscription.partitions}
    if before and now and not before & now:
        raise ConfigError(
            f"the checkpoint belongs to {', '.join(sorted(before))}, but the query reads {', '.join(sorted(now))}: "
            "a query over other topics needs a checkpointLocation of its own"
        )


def _is_subscribed(partition: TopicPartition, subscription: Subscription) -> bool:
    if subscription.pattern is not None:
        return subscription.pattern.fullmatch(partition.topic) is not None
    return partition.topic in subscription.topics or partition in subscription.partitions


def _is_another_topic(start: Progress, seen: ClusterState, topic: str) -> bool:
    before, now = start.topic_ids.get(topic, ""), lookup.id_text(seen.views[topic])
    return bool(before) and bool(now) and before != now


def _lost(
    start: Progress, partition: TopicPartition, first: int, end: int | None, cause: LossCause, was_read: bool = False
) -> LostRange:
    topic_id = start.topic_ids.get(partition.topic, "")
    return LostRange(partition.topic, partition.partition, first, end, cause, was_read, topic_id)


def _cut(found: Step, start: Progress, partition: TopicPartition, at: int, offset: int) -> None:
    found.lost.append(_lost(start, partition, at, offset, LossCause.TRUNCATED, was_read=True))
    found.begins[partition] = at
    found.moved.add(partition)


def _find_cuts(
    cluster: ClusterClient, found: Step, start: Progress, seen: ClusterState, epochs: dict[TopicPartition, int]
) -> None:
    """Finds partitions whose log was truncated below the stream's offset: at the current leader, the epoch of that
    offset ends before it.
    """
    if not epochs:
        return
    ends = cluster.epoch_ends(epochs)
    nothing_left = [partition for partition, end in ends.items() if end.offset < 0]
    firsts = cluster.log_ends(dict.fromkeys(nothing_left, clusters.EARLIEST)) if nothing_left else {}
    for partition, end in ends.items():
        offset = start.positions[partition].offset
        # A leader that knows no epoch as old as ours has written its whole log since.
        at = end.offset if end.offset >= 0 else firsts[partition].offset
        if at < offset:
            _cut(found, start, partition, at, offset)


def _find_aged(
    cluster: ClusterClient, found: Step, start: Progress, seen: ClusterState, anew: list[TopicPartition]
) -> None:
    """Moves the start of each partition up to the log's first record, since retention removed the ones before; new
    partitions begin there.
    """
    unread = [partition for partition, begin in found.begins.items() if begin < seen.ends[partition].offset]
    if not unread and not anew:
        return
    firsts = cluster.log_ends(dict.fromkeys((*unread, *anew), clusters.EARLIEST))
    for partition in unread:
        begin, first = found.begins[partition], firsts[partition].offset
        if first > begin:
            found.lost.append(_lost(start, partition, begin, first, LossCause.AGED))
            found.begins[partition] = first
            found.moved.add(partition)
    for partition in anew:
        first = firsts[partition].offset
        if first > 0:
            topic_id = lookup.id_text(seen.views[partition.topic])
            found.lost.append(LostRange(*partition, 0, first, LossCause.AGED, topic_id=topic_id))
        found.begins[partition] = first
        found.moved.add(partition)
