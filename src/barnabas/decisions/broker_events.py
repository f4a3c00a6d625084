"""The effects of the departure or the return of a broker on one partition, by the rules of a metadata quorum.

    fenced, in controlled shutdown, unregistered    the broker leaves the ISR, and can lead nothing
    unclean shutdown                                it leaves the ISR and the ELR, and can lead nothing
    unfenced                                        it can lead again
    a log directory lost                            the same as fenced, for the partitions of that directory

`PartitionChange.build` then elects the leader. ZooKeeper mode has rules of its own: `zookeeper_rules.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from barnabas.decisions.leader_election import Election
from barnabas.decisions.partition import NO_LEADER, PartitionImage
from barnabas.decisions.partition_change import PartitionChange, Rules


class Brokers(Protocol):
    """The facts about the brokers of the cluster that decisions need."""

    def is_active(self, broker_id: int) -> bool:
        """Returns whether the broker can lead and join an ISR."""
        ...

    def has_lost(self, broker_id: int, directory: bytes) -> bool:
        """Returns whether the broker is registered, and without this log directory."""
        ...

    def takes_writes(self, broker_id: int, directory: bytes) -> bool:
        """Returns whether a replica in this directory can be appended to, as far as its broker has reported."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerEvent:
    """The broker that leaves or joins. `added` can lead even though it still counts as fenced."""

    removed: int = NO_LEADER
    added: int = NO_LEADER
    #: A broker that lost unflushed records: it leaves ISR and ELR and cannot lead.
    unclean: int = NO_LEADER

    def concerns(self, partition: PartitionImage) -> bool:
        """Returns whether the event can change the partition."""
        if self.unclean != NO_LEADER and (self.unclean in partition.isr or self.unclean in partition.elr):
            return True
        if self.removed != NO_LEADER and self.removed in partition.isr:
            return True
        return self.added != NO_LEADER and partition.leader == NO_LEADER

    def may_lead(self, brokers: Brokers) -> Callable[[int], bool]:
        """Returns a function that returns whether a broker can lead partitions after the event."""

        def may_lead(broker_id: int) -> bool:
            if broker_id in (self.removed, self.unclean):
                return False
            return broker_id == self.added or brokers.is_active(broker_id)

        return may_lead


def change_at(brokers: Brokers, event: BrokerEvent, partition: PartitionImage, rules: Rules) -> PartitionChange:
    """Returns the change of the partition at the event. `rules.may_lead` takes the event and lost directories into
    account (`BrokerEvent.may_lead`, `all_but`).
    """
    change = PartitionChange(partition, rules)
    gone = {event.removed, event.unclean}
    staying = tuple(replica for replica in partition.isr if replica not in gone)
    change.target_isr = without_unwritable(brokers, partition, staying, rules.may_lead)
    if event.unclean != NO_LEADER:
        change.unclean_shutdown = (event.unclean,)
    return change


def without_unwritable(
    brokers: Brokers, partition: PartitionImage, isr: tuple[int, ...], may_lead: Callable[[int], bool]
) -> tuple[int, ...]:
    """Returns the ISR without replicas whose brokers report that they take no writes, since nothing is committed while
    the leader waits for them. If no other member can lead, the ISR stays as it is, because only its members have all
    committed records.
    """
    unwritable = {replica for replica in isr if not brokers.takes_writes(replica, partition.directory_of(replica))}
    if not unwritable or not any(may_lead(replica) for replica in isr if replica not in unwritable):
        return isr
    return tuple(replica for replica in isr if replica not in unwritable)


def can_lead(brokers: Brokers, partition: PartitionImage) -> Callable[[int], bool]:
    """Returns a function that returns whether a broker can lead the partition now: it and its log directory are
    online.
    """
    lost = in_lost_directories(brokers, partition)
    return all_but(lost, brokers.is_active) if lost else brokers.is_active


def all_but(lost: frozenset[int], allowed: Callable[[int], bool]) -> Callable[[int], bool]:
    return lambda broker_id: broker_id not in lost and allowed(broker_id)


def in_lost_directories(brokers: Brokers, partition: PartitionImage) -> frozenset[int]:
    """Returns the replicas whose broker is online without their log directory (KIP-858): they cannot lead."""
    return frozenset(
        replica
        for replica, directory in zip(partition.replicas, partition.directories, strict=True)
        if brokers.has_lost(replica, directory)
    )


def needs_election(partition: PartitionImage, election: Election) -> bool:
    """Returns whether an election of this kind is due: the preferred leader does not lead, or nobody does."""
    if election is Election.PREFERRED:
        return partition.leader != partition.preferred_leader
    return not partition.has_leader


def prefers_possible_leader(brokers: Brokers, partition: PartitionImage) -> bool:
    """Returns whether leadership can move to the preferred leader: it is in sync and online, and does not lead."""
    preferred = partition.preferred_leader
    if not needs_election(partition, Election.PREFERRED) or preferred not in partition.isr:
        return False
    return can_lead(brokers, partition)(preferred)
