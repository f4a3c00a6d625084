"""Mistakes that were made in systems like this one, patched in from outside, that the explorer must find."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from barnabas.broker.own_registration import OwnRegistrationFilter
from barnabas.common.errors import ErrorCode
from barnabas.common.host import Buffer
from barnabas.controller.requests import brokers, partitions
from barnabas.controller.requests.result import Portion
from barnabas.controller.requests.view import ControllerView
from barnabas.decisions import partition_change
from barnabas.decisions.leader_election import Candidates, Elected, Election
from barnabas.decisions.partition_change import PartitionChange
from barnabas.metadata.topics import NO_LEADER, PartitionImage, TopicImage
from barnabas.replication import fetcher
from barnabas.replication.environment import ReplicaEnvironment
from barnabas.replication.leadership import Leadership, MayJoin
from barnabas.replication.partition import Partition
from barnabas.replication.replica_manager import ReplicaManager
from barnabas.simulation.faults import FaultKind
from barnabas.storage import follower_append, producer_replay
from barnabas.storage import log as storage_log
from barnabas.storage.log import AppendInfo, Log
from barnabas.storage.log_manager import LogManager
from barnabas.storage.producers import ProducerStateManager

Mutation = Callable[[pytest.MonkeyPatch], None]


def truncate_to_the_hw(patch: pytest.MonkeyPatch) -> None:
    """Truncates a follower to the HW that it knows (before KIP-101, G1)."""
    become_follower = Partition.become_follower

    def mutated(self: Partition, image: PartitionImage) -> None:
        is_new_epoch = image.leader_epoch != self.leader_epoch
        become_follower(self, image)
        if is_new_epoch:
            self.truncate_to(self.high_watermark)

    patch.setattr(Partition, "become_follower", mutated)


def no_look_for_divergence(patch: pytest.MonkeyPatch) -> None:
    """Removes the last fetched epoch from the requests of followers (G2)."""

    class Silent(fetcher._Requested):
        def __init__(self, **fields: Any) -> None:
            super().__init__(**{**fields, "last_fetched_epoch": -1})

    patch.setattr(fetcher, "_Requested", Silent)


def isr_by_the_leader_alone(patch: pytest.MonkeyPatch) -> None:
    """Stops waiting for a replica when the leader proposes to remove it, before the controller decides."""
    patch.setattr(
        Leadership, "maximal_isr", property(lambda self: self.isr if self.proposed is None else self.proposed)
    )


def hw_beyond_the_log(patch: pytest.MonkeyPatch) -> None:
    """Lets a follower take the leader's HW although its log does not reach it."""
    append = Partition.append_as_follower

    def mutated(self: Partition, records: Buffer, high_watermark: int, log_start_offset: int) -> None:
        append(self, records, high_watermark, log_start_offset)
        self.high_watermark = max(self.high_watermark, high_watermark)

    patch.setattr(Partition, "append_as_follower", mutated)


def roles_of_the_last_life(patch: pytest.MonkeyPatch) -> None:
    """Lets a broker that restarts lead the partitions that it led, before the controller knows that it was down."""
    patch.setattr(OwnRegistrationFilter, "on_image", lambda self, delta, image: self._subscriber(delta, image))


def ends_are_announced_too_early(patch: pytest.MonkeyPatch) -> None:
    """Lets a new leader answer with a HW that is lower than what clients have seen (G6)."""
    patch.setattr(Partition, "is_end_known", property(lambda self: True))


def followers_do_not_know_producers(patch: pytest.MonkeyPatch) -> None:
    """Keeps producer state on the leader only (G20)."""
    append = Log.append_as_follower
    note = producer_replay.note_producer

    def mutated(self: Log, batches: Buffer) -> AppendInfo | None:
        for room in (storage_log, follower_append):
            patch.setattr(room, "note_producer", lambda *state: None)
        try:
            return append(self, batches)
        finally:
            for room in (storage_log, follower_append):
                patch.setattr(room, "note_producer", note)

    patch.setattr(Log, "append_as_follower", mutated)


def acks_of_the_leader_alone(patch: pytest.MonkeyPatch) -> None:
    """Answers acks=all when the leader has the records."""
    patch.setattr(Partition, "await_commit", lambda self, offset, done: done(ErrorCode.NONE))


def hw_of_the_leader_alone(patch: pytest.MonkeyPatch) -> None:
    """Advances the HW without waiting for followers (G8)."""
    patch.setattr(Leadership, "high_watermark", lambda self, leo, now_ms, lag_ms, may_join: leo)


# -- leaders and the ISR


def joiners_are_not_waited_for(patch: pytest.MonkeyPatch) -> None:
    """Computes the HW from the committed ISR, without replicas that are proposed or about to be (KIP-497, G8)."""

    def high_watermark(self: Leadership, leo: int, now_ms: int, lag_ms: int, may_join: MayJoin) -> int:
        return min([leo, *(follower.leo for replica, follower in self.followers.items() if replica in self.isr)])

    patch.setattr(Leadership, "high_watermark", high_watermark)


def min_isr_is_not_asked_of_the_hw(patch: pytest.MonkeyPatch) -> None:
    """Lets a leader alone in its ISR commit (before KIP-966, G8)."""
    advance, is_enough = Partition._advance_high_watermark, Partition.enough_in_sync

    def mutated(self: Partition, appended_bytes: int = 0) -> None:
        patch.setattr(Partition, "enough_in_sync", property(lambda self: True))
        try:
            advance(self, appended_bytes)
        finally:
            patch.setattr(Partition, "enough_in_sync", is_enough)

    patch.setattr(Partition, "_advance_high_watermark", mutated)


def joins_below_the_start_of_the_epoch(patch: pytest.MonkeyPatch) -> None:
    """Lets a replica join at a new leader's HW, although records above that HW are committed (G7)."""
    enlarged = Leadership.enlarged

    def mutated(self: Leadership, *requested: Any) -> tuple[int, ...] | None:
        start, self.epoch_start_offset = self.epoch_start_offset, 0
        try:
            return enlarged(self, *requested)
        finally:
            self.epoch_start_offset = start

    patch.setattr(Leadership, "enlarged", mutated)


def epoch_without_records_is_not_noted(patch: pytest.MonkeyPatch) -> None:
    """Records a new leader's epoch in its log with the first record only (G3)."""
    become_leader, assign = Partition.become_leader, Log.assign_epoch

    def mutated(self: Partition, image: PartitionImage) -> None:
        patch.setattr(Log, "assign_epoch", lambda self, epoch, start_offset: None)
        try:
            become_leader(self, image)
        finally:
            patch.setattr(Log, "assign_epoch", assign)

    patch.setattr(Partition, "become_leader", mutated)


def the_checkpoint_is_believed(patch: pytest.MonkeyPatch) -> None:
    """Takes the HW of `replication-offset-checkpoint` even if the log ends before it (G12)."""
    init = Partition.__init__

    def mutated(self: Partition, *arguments: Any, high_watermark: int = 0, **options: Any) -> None:
        init(self, *arguments, high_watermark=high_watermark, **options)
        self.high_watermark = max(high_watermark, self.log.log_start_offset)

    patch.setattr(Partition, "__init__", mutated)


# -- answers to clients


def consumers_see_the_log_end(patch: pytest.MonkeyPatch) -> None:
    """Returns records to consumers before they are replicated (G22)."""
    patch.setattr(Partition, "readable_end", lambda self, isolation: self.log.log_end_offset)


def epochs_of_clients_are_not_compared(patch: pytest.MonkeyPatch) -> None:
    """Lets a deposed leader answer clients that know a newer epoch (before KIP-320, G4)."""
    patch.setattr(Partition, "check_epoch", lambda self, current_leader_epoch: ErrorCode.NONE)


def retries_are_appended_again(patch: pytest.MonkeyPatch) -> None:
    """Skips the comparison of sequence numbers (G5)."""
    patch.setattr(ProducerStateManager, "check", lambda *arguments, **options: None)


def producers_are_forgotten_at_a_restart(patch: pytest.MonkeyPatch) -> None:
    """Clears producer state at a restart (G20)."""
    init = Partition.__init__

    def mutated(self: Partition, topic_partition: Any, topic_id: bytes, log: Log, *rest: Any, **options: Any) -> None:
        log.producers._clear()
        init(self, topic_partition, topic_id, log, *rest, **options)

    patch.setattr(Partition, "__init__", mutated)


# -- the controller


def any_live_replica_is_elected(patch: pytest.MonkeyPatch) -> None:
    """Elects the first live replica in the order of the assignment, in sync or not (G13)."""

    def elect(candidates: Candidates, may_lead: Callable[[int], bool], election: Election, *_: Any) -> Elected:
        alive = [replica for replica in (candidates.leader, *candidates.replicas) if replica >= 0 and may_lead(replica)]
        return Elected(alive[0], alive[0] not in candidates.isr) if alive else Elected(NO_LEADER, False)

    patch.setattr(partition_change, "elect", elect)


def unclean_elections_everywhere(patch: pytest.MonkeyPatch) -> None:
    """Elects leaders as if `unclean.leader.election.enable` were set (KAFKA-12670, G13)."""
    patch.setattr(ControllerView, "unclean_election_allowed", lambda self, topic: True)


def an_unclean_end_counts_as_clean(patch: pytest.MonkeyPatch) -> None:
    """Keeps brokers eligible that lost unsynced records (before KIP-966, G12)."""
    judged = brokers.end_incarnation
    patch.setattr(brokers, "end_incarnation", lambda view, broker_id, clean: judged(view, broker_id, clean=True))


def incarnations_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """Treats a broker that registers again as its earlier incarnation: it keeps its place in the ISR (G12)."""
    patch.setattr(brokers, "end_incarnation", lambda view, broker_id, clean: Portion([]))


def the_elr_forgets_who_crashed(patch: pytest.MonkeyPatch) -> None:
    """Ignores unclean shutdowns in one of the steps that set ELR and ISR (similar to KAFKA-19221, G11)."""
    settle = PartitionChange._settle_elr

    def mutated(self: PartitionChange) -> None:
        crashed, self.unclean_shutdown = self.unclean_shutdown, ()
        settle(self)
        self.unclean_shutdown = crashed

    patch.setattr(PartitionChange, "_settle_elr", mutated)


def fenced_brokers_may_join(patch: pytest.MonkeyPatch) -> None:
    """Lets leaders propose fenced brokers, and lets the controller accept them (before KIP-841, G9)."""
    patch.setattr(ReplicaEnvironment, "may_join", lambda self, *replica: True)
    patch.setattr(partitions, "_is_eligible", lambda view, broker_id, broker_epoch: True)


def broker_epochs_are_not_compared(patch: pytest.MonkeyPatch) -> None:
    """Applies a request for a broker to whichever incarnation exists when the request arrives (before KIP-903, G9)."""
    joins, is_eligible = ReplicaEnvironment.may_join, partitions._is_eligible
    patch.setattr(ReplicaEnvironment, "may_join", lambda self, broker_id, _, at: joins(self, broker_id, -1, at))
    patch.setattr(partitions, "_is_eligible", lambda view, broker_id, broker_epoch: is_eligible(view, broker_id, -1))


def requests_are_commands(patch: pytest.MonkeyPatch) -> None:
    """Accepts AlterPartition without a comparison of epochs and leader (G10)."""

    def problem(view: Any, broker_id: int, partition: PartitionImage, row: Any, isr: Any) -> ErrorCode:
        is_fine = isr and all(partitions._is_eligible(view, replica, epoch) for replica, epoch in isr)
        return ErrorCode.NONE if is_fine else ErrorCode.INELIGIBLE_REPLICA

    patch.setattr(partitions, "_problem", problem)


def topics_are_known_by_name(patch: pytest.MonkeyPatch) -> None:
    """Treats a topic that is created again as the old one (before KIP-516, G14)."""
    get_or_create, on_deleted = LogManager.get_or_create, ReplicaManager._on_topic_deleted

    def get(self: LogManager, topic_partition: Any, topic_id: bytes, config: Any, **options: Any) -> Log:
        log = self.get(topic_partition)
        if log is not None:
            log.topic_id = topic_id
            return log
        return get_or_create(self, topic_partition, topic_id, config, **options)

    def deleted(self: ReplicaManager, topic: TopicImage) -> None:
        if topic.name not in self._image.topics_by_name:
            on_deleted(self, topic)

    def keeps_log(self: ReplicaManager, partition: Partition, *, delete: bool = True) -> None:
        topic, index = partition.topic_partition
        del self._topics[topic][index]
        partition.go_offline()
        self.fetchers.unfollow(partition)

    patch.setattr(LogManager, "get_or_create", get)
    patch.setattr(ReplicaManager, "_on_topic_deleted", deleted)
    patch.setattr(ReplicaManager, "remove", keeps_log)


class Find(NamedTuple):
    """The first seed that finds the mistake, with kinds of faults that replace the seed's own, and the text of its
    finding.
    """

    seed: int
    says: str
    kinds: tuple[FaultKind, ...] = ()


_CANDIDATE = "a candidate lacks committed records"
_UNCLEAN = "an unclean election that was not allowed"

FOUND_BY: dict[Mutation, Find] = {
    truncate_to_the_hw: Find(3, _CANDIDATE),
    no_look_for_divergence: Find(3, "logs differ below the HW"),
    isr_by_the_leader_alone: Find(1, _CANDIDATE),
    hw_beyond_the_log: Find(1, "cannot be read"),
    roles_of_the_last_life: Find(17, "committed records are lost"),
    ends_are_announced_too_early: Find(14, "the end offset that clients see went back"),
    followers_do_not_know_producers: Find(1, "a record is twice in partition"),
    acks_of_the_leader_alone: Find(1, "idempotent producer was refused"),
    hw_of_the_leader_alone: Find(1, _CANDIDATE),
    joiners_are_not_waited_for: Find(24, _CANDIDATE),
    min_isr_is_not_asked_of_the_hw: Find(1, _CANDIDATE),
    joins_below_the_start_of_the_epoch: Find(24, _CANDIDATE),
    epoch_without_records_is_not_noted: Find(1, "a leader does not know its epoch"),
    the_checkpoint_is_believed: Find(4, "cannot be read", (FaultKind.POWER,)),
    consumers_see_the_log_end: Find(1, "read an uncommitted record"),
    epochs_of_clients_are_not_compared: Find(12, _CANDIDATE),
    retries_are_appended_again: Find(1, "a record is twice in partition"),
    producers_are_forgotten_at_a_restart: Find(8, "a record is twice in partition"),
    any_live_replica_is_elected: Find(7, _UNCLEAN),
    unclean_elections_everywhere: Find(7, _UNCLEAN),
    an_unclean_end_counts_as_clean: Find(3, _CANDIDATE, (FaultKind.POWER,)),
    incarnations_are_ignored: Find(3, _CANDIDATE, (FaultKind.POWER,)),
    the_elr_forgets_who_crashed: Find(3, _CANDIDATE, (FaultKind.POWER,)),
    fenced_brokers_may_join: Find(1, "a fenced broker is in the ISR"),
    broker_epochs_are_not_compared: Find(49, _CANDIDATE, (FaultKind.POWER,)),
    requests_are_commands: Find(18, "ISR and ELR are not parts of the replicas", (FaultKind.PAUSE,)),
    topics_are_known_by_name: Find(4, "a new topic has old records"),
}
