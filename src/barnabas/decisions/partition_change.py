"""Builds the record that brings a partition from its current state to a target state, if they differ.

ISR, ELR, leader and reassignment of a partition are determined together here and nowhere else (KIP-966, KIP-455):

1. A reassignment is complete when all replicas that stay are in the target ISR.
2. With ELR enabled: while the target ISR is smaller than the effective min ISR, replicas that leave the ISR join the
   ELR, except after an unclean shutdown or when they are no longer assigned; at min ISR or above the ELR is cleared.
3. A leader is elected (see `leader_election.py`).
4. The last known leader is recorded when the ISR becomes empty, and cleared when there is a leader again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial

from barnabas.decisions.leader_election import Candidates, Election, elect
from barnabas.decisions.partition import (
    MIGRATING_DIRECTORY,
    NO_LEADER,
    NO_LEADER_CHANGE,
    RECOVERING,
    UNASSIGNED_DIRECTORY,
    PartitionImage,
)
from barnabas.protocol.messages.records_metadata import PartitionChangeRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The settings that apply to the partitions of one topic."""

    may_lead: Callable[[int], bool]
    election: Election = Election.ONLINE
    elr_enabled: bool = False
    min_isr: int = 1
    #: Whether each change raises the leader epoch, as the changes of a controller in ZooKeeper mode do.
    raises_leader_epoch: bool = False
    #: Whether the beginning and the end of a reassignment raise the leader epoch, no matter who requested the change
    #: (ZooKeeper mode).
    raises_when_reassigned: bool = False
    #: The directory of a new replica on a broker.
    default_directory: Callable[[int], bytes] = lambda broker_id: UNASSIGNED_DIRECTORY
    #: Selects the leader of a partition of the topic among those that can lead cleanly; None: the first in AR order.
    choose: Callable[[int, Sequence[int]], int] | None = None


def effective_min_isr(min_isr: int, replication_factor: int) -> int:
    """Returns the min ISR in force, which is at most the replication factor (KIP-966)."""
    return min(min_isr, replication_factor)


class PartitionChange:
    """A change in preparation: the targets begin as the current state; the caller sets some and calls `build`."""

    __slots__ = (
        "_rules",
        "partition",
        "target_adding",
        "target_directories",
        "target_elr",
        "target_isr",
        "target_recovery_state",
        "target_removing",
        "target_replicas",
        "unclean_shutdown",
    )

    def __init__(self, partition: PartitionImage, rules: Rules) -> None:
        self.partition = partition
        self._rules = rules
        self.target_isr = partition.isr
        self.target_replicas = partition.replicas
        self.target_removing = partition.removing_replicas
        self.target_adding = partition.adding_replicas
        self.target_elr = partition.elr
        self.target_recovery_state = partition.leader_recovery_state
        self.target_directories = dict(zip(partition.replicas, partition.directories, strict=False))
        #: Replicas that lost unflushed records in an unclean shutdown; they leave the ELR too.
        self.unclean_shutdown: Collection[int] = ()

    def build(self, topic_id: bytes, partition_id: int) -> PartitionChangeRecord | None:
        record = PartitionChangeRecord(topic_id=topic_id, partition_id=partition_id)
        self._complete_reassignment()
        self._settle_elr()
        self._elect(record)
        self._bump_epoch_for_reassignment(record)
        self._record_elr(record)
        if (
            record.isr is None
            and (self.target_isr or self._rules.elr_enabled)
            and self.target_isr != self.partition.isr
        ):
            record.isr = list(self.target_isr)
        self._record_last_known_leader(record)
        self._record_assignment(record)
        if self.target_recovery_state != self.partition.leader_recovery_state:
            record.leader_recovery_state = self.target_recovery_state
        self._check(record)
        if _is_empty(record):
            return None
        if self._rules.raises_leader_epoch and record.leader == NO_LEADER_CHANGE:
            record.leader = self.partition.leader
        return record

    def _check(self, record: PartitionChangeRecord) -> None:
        """Asserts the invariants that every replica relies on when it takes a role."""
        leader = self.partition.leader if record.leader == NO_LEADER_CHANGE else record.leader
        isr = self.target_isr if record.isr is None else record.isr
        assert all(replica in self.target_replicas for replica in isr), f"ISR {isr}: replicas {self.target_replicas}"
        assert leader == NO_LEADER or leader in isr, f"leader {leader} of ISR {isr}"

    def _complete_reassignment(self) -> None:
        if not self.target_adding and not self.target_removing:
            return
        replicas = tuple(replica for replica in self.target_replicas if replica not in self.target_removing)
        isr = tuple(replica for replica in self.target_isr if replica not in self.target_removing)
        if not replicas or not set(replicas) <= set(isr):
            return
        self.target_replicas, self.target_isr = replicas, isr
        self.target_adding = self.target_removing = ()

    def _settle_elr(self) -> None:
        if not self._rules.elr_enabled:
            return
        if len(self.target_isr) >= self._rules.min_isr:
            self.target_elr = ()
            return
        before = (set(self.target_elr) | set(self.partition.isr)) & set(self.target_replicas)
        self.target_elr = tuple(sorted(before - set(self.target_isr) - set(self.unclean_shutdown)))

    def _elect(self, record: PartitionChangeRecord) -> None:
        partition = self.partition
        candidates = Candidates(
            partition.leader,
            self.target_replicas,
            self.target_isr,
            self.target_elr,
            partition.last_known_elr,
            self._rules.elr_enabled,
        )
        choose = self._rules.choose
        chosen = None if choose is None else partial(choose, record.partition_id)
        elected = elect(candidates, self._rules.may_lead, self._rules.election, chosen)
        if elected.leader == partition.leader:
            return
        if elected.leader in self.target_elr:
            self.target_isr = (elected.leader,)
            self.target_elr = tuple(replica for replica in self.target_elr if replica != elected.leader)
        record.leader = elected.leader
        if elected.unclean:
            record.isr = [elected.leader]
            if partition.leader_recovery_state != RECOVERING:
                record.leader_recovery_state = RECOVERING
                self.target_recovery_state = RECOVERING

    def _bump_epoch_for_reassignment(self, record: PartitionChangeRecord) -> None:
        """Repeats the leader in the record, which raises the leader epoch, so that fetches of removed replicas fail. In
        ZooKeeper mode brokers accept a changed reassignment only with a higher epoch.
        """
        if record.leader != NO_LEADER_CHANGE:
            return
        before = self.partition
        is_changed = (self.target_adding, self.target_removing) != (before.adding_replicas, before.removing_replicas)
        if not set(before.replicas) <= set(self.target_replicas) or (self._rules.raises_when_reassigned and is_changed):
            record.leader = before.leader

    def _record_elr(self, record: PartitionChangeRecord) -> None:
        unclean = record.isr is not None
        if unclean or not self._rules.elr_enabled:
            self.target_elr = ()
        if self.target_elr != self.partition.elr:
            record.eligible_leader_replicas = list(self.target_elr)

    def _record_last_known_leader(self, record: PartitionChangeRecord) -> None:
        if not self._rules.elr_enabled:
            return
        partition = self.partition
        if record.isr is not None and not record.isr and partition.last_known_elr != (partition.leader,):
            record.last_known_elr = [partition.leader]
        elif partition.last_known_elr and (
            record.leader >= 0 or (partition.leader != NO_LEADER and record.leader != NO_LEADER)
        ):
            record.last_known_elr = []

    def _record_assignment(self, record: PartitionChangeRecord) -> None:
        partition = self.partition
        if self.target_replicas:
            default = self._rules.default_directory
            directories = tuple(
                self.target_directories[replica] if replica in self.target_directories else default(replica)
                for replica in self.target_replicas
            )
            # Before metadata.version 3.7 all directories are the only ones, and no record can name them.
            are_named = {*directories, *partition.directories} != {MIGRATING_DIRECTORY}
            if directories != partition.directories and are_named:
                record.directories = list(directories)
            if self.target_replicas != partition.replicas:
                record.replicas = list(self.target_replicas)
        if self.target_removing != partition.removing_replicas:
            record.removing_replicas = list(self.target_removing)
        if self.target_adding != partition.adding_replicas:
            record.adding_replicas = list(self.target_adding)


def _is_empty(record: PartitionChangeRecord) -> bool:
    return (
        record.isr is None
        and record.leader == NO_LEADER_CHANGE
        and record.replicas is None
        and record.removing_replicas is None
        and record.adding_replicas is None
        and record.leader_recovery_state < 0
        and record.directories is None
        and record.eligible_leader_replicas is None
        and record.last_known_elr is None
    )
