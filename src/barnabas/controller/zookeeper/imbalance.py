"""The rebalance of leaders in ZooKeeper mode: only for brokers that lead too few of the partitions that prefer them.

A broker's share is the part of the partitions preferring it that other brokers lead. Partitions under reassignment stay
as they are, and so do those whose preferred replica cannot lead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from barnabas.controller.decisions import Election
from barnabas.controller.partition_change import PartitionChange
from barnabas.controller.requests.partitions import Located, can_lead, find
from barnabas.controller.requests.reassignments import is_in_progress
from barnabas.controller.requests.result import Cause, ControllerEvent, Result, Versioned
from barnabas.controller.requests.view import ControllerView
from barnabas.controller.zookeeper.new_partitions import has_state
from barnabas.metadata.topics import PartitionImage
from barnabas.metadata.versions import partition_version


def imbalanced(view: ControllerView, percentage: int) -> list[Located]:
    """Returns the partitions that other brokers lead than those that prefer them and whose share is above the
    percentage.
    """
    preferred: Counter[int] = Counter()
    missed: Counter[int] = Counter()
    elsewhere: list[Located] = []
    for located in find(view, has_state):
        partition = located[2]
        preferred[partition.preferred_leader] += 1
        if partition.leader != partition.preferred_leader:
            missed[partition.preferred_leader] += 1
            elsewhere.append(located)
    above = {broker for broker in missed if missed[broker] * 100 > preferred[broker] * percentage}
    return [located for located in elsewhere if located[2].preferred_leader in above]


def rebalance(view: ControllerView, partitions: Iterable[Located]) -> Result[None]:
    """Moves leadership of these partitions back to the brokers that they prefer, where these can lead."""
    records: list[Versioned] = []
    for topic, index, partition in partitions:
        if partition.leader != partition.preferred_leader and _may_move(view, partition):
            rules = view.rules(topic.name, len(partition.replicas), can_lead(view, partition), Election.PREFERRED)
            record = PartitionChange(partition, rules).build(topic.topic_id, index)
            if record is not None:
                records.append((record, partition_version(view.image.metadata_version)))
    cause = Cause(ControllerEvent.LEADERS_REBALANCED, "controller", f"{len(records)} partitions")
    return Result(records, None, cause)


def _may_move(view: ControllerView, partition: PartitionImage) -> bool:
    leader = partition.preferred_leader
    return not is_in_progress(partition) and leader in partition.isr and can_lead(view, partition)(leader)
