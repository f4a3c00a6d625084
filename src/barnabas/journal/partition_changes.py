"""The change of one partition: its kinds, and its states as events show them."""

from __future__ import annotations

from typing import Any

from barnabas.journal.causes import is_unclean
from barnabas.metadata.topics import PartitionImage, TopicDelta
from barnabas.replication.isr_reasons import IsrReason


def partition_before(topic: TopicDelta, index: int) -> PartitionImage | None:
    """Returns the partition before the change; None if it is new, or had no state in ZooKeeper."""
    before = topic.partition_before(index)
    return before if before is not None and is_decided(before) else None


def is_decided(partition: PartitionImage) -> bool:
    """Returns whether a controller has assigned a state to the partition: in ZooKeeper mode, a partition can have
    replicas and no state."""
    return partition.partition_epoch >= 0


def changes_of(before: PartitionImage, after: PartitionImage, cause: str = "") -> list[str]:
    """Returns the kinds of change, the most important first; a replica's directory is not one of them."""
    found = []
    if after.leader != before.leader:
        found.append(_leader_kind(before, after, cause))
    if (before.adding_replicas, before.removing_replicas) != (after.adding_replicas, after.removing_replicas):
        found.append(_reassignment_kind(before, after))
    elif before.replicas != after.replicas:
        found.append("replicas-changed")
    before_isr, after_isr = set(before.isr), set(after.isr)
    if before_isr != after_isr:
        found.append(
            "isr-shrink" if after_isr < before_isr else "isr-expand" if after_isr > before_isr else "isr-change"
        )
    if (before.elr, before.last_known_elr) != (after.elr, after.last_known_elr):
        found.append("elr-change")
    if before.leader_recovery_state and not after.leader_recovery_state:
        found.append("leader-recovered")
    if after.leader == before.leader and after.leader_epoch != before.leader_epoch:
        found.append("leader-epoch")
    return found


def _leader_kind(before: PartitionImage, after: PartitionImage, cause: str) -> str:
    if is_unclean(before, after):
        return "unclean-election"
    if after.leader == after.preferred_leader and cause in ("election-asked", "rebalance"):
        return "preferred-election"
    return "leader-change"


def _reassignment_kind(before: PartitionImage, after: PartitionImage) -> str:
    was, now = (bool(each.adding_replicas or each.removing_replicas) for each in (before, after))
    if not was:
        return "reassignment-started"
    if now:
        return "reassignment-changed"
    replicas = set(after.replicas)
    is_done = replicas.issuperset(before.adding_replicas) and replicas.isdisjoint(before.removing_replicas)
    return "reassignment-ended" if is_done else "reassignment-cancelled"


def shown_partition(partition: PartitionImage) -> dict[str, Any]:
    """Returns the state of a partition as events show it."""
    shown: dict[str, Any] = {
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "isr": partition.isr,
        "replicas": partition.replicas,
        "partition_epoch": partition.partition_epoch,
    }
    if partition.elr:
        shown["elr"] = partition.elr
    if partition.last_known_elr:
        shown["last_known_elr"] = partition.last_known_elr
    if partition.adding_replicas:
        shown["adding"] = partition.adding_replicas
    if partition.removing_replicas:
        shown["removing"] = partition.removing_replicas
    if partition.leader_recovery_state:
        shown["recovering"] = True
    return shown


def seen_fields(seen: IsrReason) -> dict[str, Any]:
    """Returns the fields of an event that contain the leader's observations."""
    return {"leader_leo": seen.leader_leo, "members": [member._asdict() for member in seen.members]}
