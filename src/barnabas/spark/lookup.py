"""Resolution of the subscription and the bounds: the existing partitions, and their first and last offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from barnabas.common.errors import ConfigError
from barnabas.common.types import ZERO_UUID, TopicPartition, uuid_to_text
from barnabas.spark import cluster_client as clusters
from barnabas.spark.bounds import EARLIEST, LATEST, Bound
from barnabas.spark.cluster_client import ClusterClient, LogEnd, TopicView
from barnabas.spark.source_options import Subscription


def subscribed(cluster: ClusterClient, subscription: Subscription, *, fresh: bool = True) -> dict[str, TopicView]:
    """Returns the existing topics, each with the requested partitions."""
    if subscription.pattern is not None:
        return cluster.matching(subscription.pattern)
    if subscription.topics:
        return cluster.topics(subscription.topics, fresh=fresh)
    views = cluster.topics(dict.fromkeys(each.topic for each in subscription.partitions), fresh=fresh)
    wanted = set(subscription.partitions)
    return {
        name: view._replace(
            leaders={index: leader for index, leader in view.leaders.items() if TopicPartition(name, index) in wanted}
        )
        for name, view in views.items()
    }


def must_exist(cluster: ClusterClient, views: Mapping[str, TopicView], subscription: Subscription) -> None:
    """Raises ConfigError for a named topic or partition that does not exist. A pattern may match no topic yet."""
    for name in dict.fromkeys((*subscription.topics, *(each.topic for each in subscription.partitions))):
        if name not in views:
            raise ConfigError(f"topic {name} does not exist at {cluster.settings.shown}: create it, or check its name")
    for each in subscription.partitions:
        if each.partition not in views[each.topic].leaders:
            there = sorted(cluster.topics([each.topic])[each.topic].leaders)
            raise ConfigError(
                f"option assign names {each}, but topic {each.topic} has partitions {', '.join(map(str, there))}"
            )


def partitions_of(views: Mapping[str, TopicView]) -> list[TopicPartition]:
    return [TopicPartition(name, index) for name, view in sorted(views.items()) for index in sorted(view.leaders)]


def id_text(view: TopicView) -> str:
    """Returns the topic id as text; empty if the cluster has no topic ids."""
    return "" if view.topic_id == ZERO_UUID else uuid_to_text(view.topic_id)


def ends(
    cluster: ClusterClient, partitions: Iterable[TopicPartition], read_committed: bool
) -> dict[TopicPartition, LogEnd]:
    """Returns the end of each log as a reader of this isolation level sees it, and the epoch of its leader."""
    return cluster.log_ends(dict.fromkeys(partitions, clusters.LATEST), int(read_committed))


def resolve(cluster: ClusterClient, bound: Bound, latest: Mapping[TopicPartition, LogEnd]) -> dict[TopicPartition, int]:
    """Returns the offset that the bound resolves to in every partition of `latest`. Raises ConfigError if there is
    none.
    """
    wanted = _wanted(bound, latest)
    found: dict[TopicPartition, int] = {}
    questions: dict[TopicPartition, int] = {}
    for partition, number in wanted.items():
        if bound.is_timestamp or number == EARLIEST:
            questions[partition] = number
        elif number == LATEST:
            found[partition] = latest[partition].offset
        elif number > latest[partition].offset:
            raise ConfigError(
                f"option {bound.option} names offset {number} of {partition}, whose log ends at "
                f"{latest[partition].offset}"
            )
        else:
            found[partition] = number
    for partition, answer in cluster.log_ends(questions).items() if questions else ():
        if answer.offset >= 0:
            found[partition] = min(answer.offset, latest[partition].offset)
        elif bound.late_is_end:
            found[partition] = latest[partition].offset
        else:
            raise ConfigError(
                f"option {bound.option}: {partition} has no record at or after {questions[partition]} ms; with "
                "startingOffsetsByTimestampStrategy=latest it would be read from its end"
            )
    return found


def _wanted(bound: Bound, latest: Mapping[TopicPartition, LogEnd]) -> dict[TopicPartition, int]:
    if bound.everywhere is not None:
        return dict.fromkeys(latest, bound.everywhere)
    missing = sorted(set(latest) - set(bound.by_partition))
    strange = sorted(set(bound.by_partition) - set(latest))
    if missing or strange:
        parts = [f"{each} is missing" for each in missing[:10]] + [f"{each} is not read" for each in strange[:10]]
        raise ConfigError(f"option {bound.option} must name exactly the partitions that are read: {', '.join(parts)}")
    return {partition: bound.by_partition[partition] for partition in latest}
