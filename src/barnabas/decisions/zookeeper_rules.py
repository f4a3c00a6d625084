"""The effects of the departure or the return of a broker on one partition, by the rules of ZooKeeper mode.

A broker without a registration is not alive; one in controlled shutdown is alive, keeps its leaderships until another
replica can lead, and gets no new ones. The ISR keeps its last members when none of them is alive, and the partition has
no leader then, unless its topic allows unclean elections.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from barnabas.decisions.partition import LOST_DIRECTORY, PartitionImage


def online_replicas(partition: PartitionImage, registered: Callable[[int], bool]) -> list[int]:
    """Returns the replicas whose broker is registered and has not lost their directory, in the order of the
    assignment.
    """
    directories = partition.directories
    return [
        replica
        for place, replica in enumerate(partition.replicas)
        if registered(replica) and directories[place] != LOST_DIRECTORY
    ]


def may_lead(
    partition: PartitionImage, online: Collection[int], is_active: Callable[[int], bool]
) -> Callable[[int], bool]:
    """Returns a function that returns whether a replica can lead. A leader in controlled shutdown can continue to
    lead.
    """
    return lambda replica: replica in online and (replica == partition.leader or is_active(replica))


def isr_of_online(partition: PartitionImage, online: Collection[int]) -> tuple[int, ...] | None:
    """Returns the ISR without the members that are offline; None if it stays as it is, because all of them are."""
    return tuple(replica for replica in partition.isr if replica in online) or None


def isr_without_stopping(
    partition: PartitionImage, broker_id: int, online: Collection[int], is_active: Callable[[int], bool]
) -> tuple[int, ...] | None:
    """Returns the ISR after the controlled shutdown of a member, which `is_active` excludes already; None if no other
    member can lead, so that the broker keeps its place.
    """
    if partition.leader == broker_id:
        staying = tuple(member for member in partition.isr if member in online and is_active(member))
    else:
        staying = tuple(member for member in partition.isr if member != broker_id)
    leads = may_lead(partition, online, is_active)
    return staying if any(leads(member) for member in staying) else None
