"""Rare events of the metadata quorum and its controller: elections, snapshots, voters, ISRs and ELRs, registrations."""

from __future__ import annotations

from typing import Any, Final

from barnabas.common.errors import ErrorCode
from barnabas.controller.requests.result import ControllerEvent
from barnabas.metadata.topics import NO_LEADER, RECOVERING
from barnabas.raft.log_checkpoint import VotingRestriction
from barnabas.raft.messages import only_partition
from barnabas.raft.quorum import Candidate, Follower, Leader, Prospective, Resigned, Unattached
from barnabas.simulation.rare_events import Call, Need, RareEvent

_QUORUM: Final = frozenset({Need.QUORUM})
_VOTERS: Final = frozenset({Need.QUORUM, Need.CONTROLLERS})
_BROKERS: Final = frozenset({Need.BROKERS})
_FENCED: Final = frozenset({Need.QUORUM, Need.BROKERS})
_SMALL_WORLDS: Final = frozenset({Need.SMALL_WORLDS})
_STATE: Final = "raft.quorum:QuorumState."
_ELECTIONS: Final = "raft.elections:Elections."
_FOLLOWING: Final = "raft.following:Following."
_CHANGE: Final = "decisions.partition_change:PartitionChange."
_CONTROLLER: Final = "controller.kraft.controller:Controller."


def _role(call: Call) -> Any:
    return call.subject.role


def _role_of_core(call: Call) -> Any:
    return call.subject._core.quorum.role


def _resigns(call: Call) -> bool:
    return isinstance(call.before, Leader) and isinstance(_role_of_core(call), Resigned)


def _is_refused(call: Call, *, pre_vote: bool) -> bool:
    requested, answer = only_partition(call.arguments[0]), only_partition(call.result)
    if requested is None or answer is None or answer.error_code:
        return False
    return not answer.vote_granted and bool(requested.pre_vote) is pre_vote


ELECTIONS: Final = (
    RareEvent(
        "a voter asks for pre-votes", f"{_STATE}_take", lambda call: isinstance(_role(call), Prospective), needs=_VOTERS
    ),
    RareEvent(
        "a voter stands for election", f"{_STATE}_take", lambda call: isinstance(_role(call), Candidate), needs=_VOTERS
    ),
    RareEvent(
        "a candidate tries again",
        f"{_STATE}_take",
        lambda call: isinstance(call.before, Candidate) and isinstance(_role(call), Prospective),
        _role,
        needs=_VOTERS,
    ),
    RareEvent(
        "a candidate follows the winner",
        f"{_STATE}_take",
        lambda call: isinstance(call.before, Candidate) and isinstance(_role(call), Follower),
        _role,
        needs=_VOTERS,
    ),
    RareEvent(
        "a quorum has a new leader", f"{_STATE}_take", lambda call: isinstance(_role(call), Leader), needs=_VOTERS
    ),
    RareEvent(
        "a leader of the quorum learns a higher epoch",
        f"{_STATE}_take",
        lambda call: isinstance(call.before, Leader) and isinstance(_role(call), Unattached | Follower),
        _role,
        needs=_VOTERS,
    ),
    RareEvent("a pre-vote fails", f"{_ELECTIONS}_end_pre_vote", needs=_VOTERS),
    RareEvent("a candidate backs off", f"{_ELECTIONS}_back_off", needs=_VOTERS),
    RareEvent(
        "a voter finds that its leader's process is gone",
        f"{_ELECTIONS}leader_is_gone",
        lambda call: call.subject._ended_epoch != call.before,
        lambda call: call.subject._ended_epoch,
        needs=_VOTERS,
    ),
    RareEvent(
        "a leader of the quorum hands over",
        f"{_ELECTIONS}on_end",
        lambda call: call.subject._ended_epoch != call.before,
        lambda call: call.subject._ended_epoch,
        needs=_VOTERS,
    ),
    RareEvent(
        "a vote is refused", f"{_ELECTIONS}on_vote", lambda call: _is_refused(call, pre_vote=False), needs=_VOTERS
    ),
    RareEvent(
        "a pre-vote is refused", f"{_ELECTIONS}on_vote", lambda call: _is_refused(call, pre_vote=True), needs=_VOTERS
    ),
    RareEvent(
        "a restricted voter refuses its vote",
        "raft.core:Core.may_vote_for",
        lambda call: call.result is False,
        needs=_VOTERS,
    ),
    RareEvent(
        "a restricted voter may vote again",
        "raft.core:Core.lift_restriction",
        lambda call: call.before is VotingRestriction.BEHIND,
        lambda call: call.subject.quorum.restriction,
        needs=_VOTERS,
    ),
    RareEvent(
        "a leader with a full disk resigns",
        "raft.leading:Leading._maybe_hand_over",
        _resigns,
        _role_of_core,
        needs=_VOTERS,
    ),
    RareEvent(
        "a leader without a majority resigns",
        "raft.leading:Leading._on_no_quorum",
        _resigns,
        _role_of_core,
        needs=_VOTERS,
    ),
    RareEvent("a promise cannot be saved", "raft.core:Core.report_unsaved_promise", needs=_VOTERS),
)


def _voter_ids(call: Call) -> frozenset[int]:
    return frozenset(call.subject.voters.ids)


METADATA_LOG: Final = (
    RareEvent(
        "a metadata log is cut",
        f"{_FOLLOWING}_truncate",
        needs=_VOTERS,
    ),
    RareEvent("a metadata snapshot is fetched", f"{_FOLLOWING}_begin_download", needs=_VOTERS),
    RareEvent("a metadata snapshot is installed", f"{_FOLLOWING}_install", needs=_VOTERS),
    RareEvent("metadata is followed in memory", f"{_FOLLOWING}_follow_in_memory", needs=_VOTERS),
    RareEvent(
        "a leader sends a follower to a snapshot",
        "raft.fetch_answers:FetchAnswers._redirect_for",
        lambda call: call.result is not None and call.result.snapshot_id is not None,
        needs=_VOTERS,
    ),
    RareEvent(
        "a metadata snapshot is written",
        "raft.publisher:MetadataPublisher._maybe_snapshot",
        lambda call: bool(call.subject._writing) and not call.before,
        lambda call: call.subject._writing,
        needs=_QUORUM,
    ),
    RareEvent(
        "old metadata is deleted",
        "raft.metadata_log:MetadataLog.clean",
        lambda call: call.subject.start_offset > call.before,
        lambda call: call.subject.start_offset,
        needs=_QUORUM,
    ),
    RareEvent("a node begins with a metadata snapshot", "raft.publisher:MetadataPublisher.on_snapshot", needs=_QUORUM),
    RareEvent(
        "decisions of a deposed leader stay open",
        "raft.delivery:Delivery.fail_waiting",
        lambda call: bool(call.before),
        lambda call: bool(call.subject._waiting),
        needs=_VOTERS,
    ),
    RareEvent(
        "undelivered metadata is cut",
        "raft.delivery:Delivery.truncated",
        lambda call: len(call.subject._appended) < call.before,
        lambda call: len(call.subject._appended),
        needs=_VOTERS,
    ),
    RareEvent(
        "the voters change",
        "raft.voter_history:VoterHistory.note",
        lambda call: _voter_ids(call) != call.before,
        _voter_ids,
        needs=_SMALL_WORLDS,
    ),
    RareEvent(
        "the voters change under a snapshot",
        "raft.voter_history:VoterHistory.start_at_snapshot",
        lambda call: _voter_ids(call) != call.before,
        _voter_ids,
        needs=_SMALL_WORLDS,
    ),
    RareEvent(
        "a change of the voters is cut off",
        "raft.voter_history:VoterHistory.truncate",
        lambda call: _voter_ids(call) != call.before,
        _voter_ids,
        needs=_SMALL_WORLDS,
    ),
    RareEvent(
        "a leader is removed from the voters",
        "raft.voter_changes:VoterChanges.on_committed",
        _resigns,
        _role_of_core,
        needs=_SMALL_WORLDS,
    ),
    RareEvent(
        "a change of the voters times out",
        "raft.voter_changes:VoterChanges._expire",
        lambda call: bool(call.before),
        lambda call: call.subject._pending is not None,
        needs=_SMALL_WORLDS,
    ),
)


def _is_moving(call: Call) -> bool:
    return bool(call.subject.target_adding or call.subject.target_removing)


def _leader_is_in(call: Call, replicas: str) -> bool:
    record = call.result
    return record is not None and record.leader >= 0 and record.leader in getattr(call.subject.partition, replicas)


def _has_elr(call: Call) -> bool:
    topic = call.subject.image.topics_by_name.get(call.arguments[1])
    return topic is not None and any(partition.elr for partition in topic.partitions)


DECISIONS: Final = (
    RareEvent(
        "a partition loses its leader",
        f"{_CHANGE}build",
        lambda call: call.result is not None and call.result.leader == NO_LEADER,
        needs=_BROKERS,
    ),
    RareEvent(
        "an unclean leader is elected",
        f"{_CHANGE}build",
        lambda call: call.result is not None and call.result.leader_recovery_state == RECOVERING,
        needs=_BROKERS,
    ),
    RareEvent(
        "a leader is elected from the ELR", f"{_CHANGE}build", lambda call: _leader_is_in(call, "elr"), needs=_FENCED
    ),
    RareEvent(
        "the last known leader is elected",
        f"{_CHANGE}build",
        lambda call: _leader_is_in(call, "last_known_elr") and call.result.leader_recovery_state == RECOVERING,
        needs=_FENCED,
    ),
    RareEvent(
        "an ISR becomes empty",
        f"{_CHANGE}build",
        lambda call: call.result is not None and call.result.isr == [],
        needs=_FENCED,
    ),
    RareEvent(
        "an ELR gains a member",
        f"{_CHANGE}build",
        lambda call: len(call.subject.target_elr) > len(call.subject.partition.elr),
        needs=_FENCED,
    ),
    RareEvent(
        "a move of replicas ends",
        f"{_CHANGE}_complete_reassignment",
        lambda call: bool(call.before) and not _is_moving(call),
        _is_moving,
        needs=_BROKERS,
    ),
    RareEvent("a move of replicas begins", "controller.requests.reassignments:_begin", needs=_BROKERS),
    RareEvent("a move of replicas is cancelled", "controller.requests.reassignments:_cancel", needs=_BROKERS),
    RareEvent(
        "an ISR change has an old partition epoch",
        "controller.requests.partitions:_alter_one",
        lambda call: call.result[1].error_code == ErrorCode.INVALID_UPDATE_VERSION,
        needs=_BROKERS,
    ),
    RareEvent(
        "an ISR change has an old leader epoch",
        "controller.requests.partitions:_alter_one",
        lambda call: call.result[1].error_code == ErrorCode.FENCED_LEADER_EPOCH,
        needs=_BROKERS,
    ),
    RareEvent(
        "an ISR change names a broker that cannot join",
        "controller.requests.partitions:_alter_one",
        lambda call: call.result[1].error_code == ErrorCode.INELIGIBLE_REPLICA,
        needs=_BROKERS,
    ),
    RareEvent(
        "an ISR change is of a broker's earlier incarnation",
        "controller.requests.partitions:alter_partition",
        lambda call: call.result.response.error_code == ErrorCode.STALE_BROKER_EPOCH,
        needs=_BROKERS,
    ),
    RareEvent(
        "a replica that takes no writes is left out of an ISR",
        "decisions.broker_events:without_unwritable",
        lambda call: call.result != call.arguments[1],
        needs=_FENCED,
    ),
    RareEvent(
        "a change of min ISR clears ELRs",
        "controller.requests.configs:_min_isr_records",
        lambda call: bool(call.result) and _has_elr(call),
        needs=_FENCED,
    ),
    RareEvent(
        "unclean leaders are elected because they are allowed now",
        "controller.requests.elections:unclean_elections_due",
        lambda call: bool(call.result.records),
        needs=_BROKERS,
    ),
    RareEvent(
        "leadership returns to preferred replicas",
        "controller.requests.elections:rebalance",
        lambda call: bool(call.result.records),
        needs=_BROKERS,
    ),
)


def _knows_brokers(call: Call) -> bool:
    return call.before and call.subject.is_active and bool(call.subject.image.brokers)


def _fences(call: Call, why: ControllerEvent) -> bool:
    return call.arguments[1] is why and call.before is not None and not call.before.fenced


def _broker_to_fence(call: Call) -> Any:
    return call.subject.image.brokers.get(call.arguments[0])


CONTROLLERS: Final = (
    RareEvent(
        "another controller becomes active",
        f"{_CONTROLLER}activate",
        _knows_brokers,
        lambda call: not call.subject.is_active,
        needs=_QUORUM,
    ),
    RareEvent(
        "an active controller resigns",
        f"{_CONTROLLER}resign",
        lambda call: bool(call.before),
        lambda call: call.subject.is_active,
        needs=_VOTERS,
    ),
    RareEvent(
        "a broker's session ends",
        f"{_CONTROLLER}_fence",
        lambda call: _fences(call, ControllerEvent.SESSION_EXPIRED),
        _broker_to_fence,
        needs=_FENCED,
    ),
    RareEvent(
        "a broker's process is found to be gone",
        f"{_CONTROLLER}_fence",
        lambda call: _fences(call, ControllerEvent.PROCESS_GONE),
        _broker_to_fence,
        needs=_FENCED,
    ),
    RareEvent(
        "a controller has no space for its decision",
        "controller.kraft.proposals:Proposals.propose",
        lambda call: call.result is False,
        needs=_QUORUM,
    ),
    RareEvent(
        "a controller that was paused extends the sessions",
        "controller.kraft.broker_sessions:BrokerSessions.extend_all",
        needs=_QUORUM,
    ),
    RareEvent(
        "a broker registers while its last incarnation may live",
        "controller.kraft.broker_registrations:register",
        lambda call: call.result.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION,
        is_error=True,
        needs=_FENCED,
    ),
    RareEvent(
        "a heartbeat is of a broker's earlier incarnation",
        "controller.kraft.broker_registrations:heartbeat",
        lambda call: getattr(call.result, "code", None) is ErrorCode.STALE_BROKER_EPOCH,
        is_error=True,
        needs=_FENCED,
    ),
    RareEvent(
        "a broker comes back after an unclean stop and leaves ISRs",
        "controller.requests.brokers:end_incarnation",
        lambda call: not call.named["clean"] and bool(call.result.records),
        needs=_FENCED,
    ),
    RareEvent(
        "a broker in controlled shutdown gives up leaderships",
        "controller.requests.brokers:shut_down",
        lambda call: any(getattr(record, "leader", NO_LEADER) >= 0 for record, _ in call.result.records),
        needs=_FENCED,
    ),
    RareEvent("a broker registers again", "broker.lifecycle:BrokerLifecycle._register_again", needs=_FENCED),
    RareEvent(
        "a heartbeat gets no answer",
        "broker.lifecycle:BrokerLifecycle._on_heartbeat",
        lambda call: call.arguments[0] is None,
        needs=_FENCED,
    ),
    RareEvent(
        "a broker reports that it takes no writes",
        "broker.lifecycle:BrokerLifecycle.unwritable_changed",
        needs=_QUORUM,
    ),
    RareEvent(
        "a request to the controller is sent again",
        "broker.peers.controller_access:PendingRequest._retry_later",
        needs=_BROKERS,
    ),
    RareEvent(
        "a request reaches a controller that is not active any more",
        "broker.peers.controller_access:PendingRequest._on_answer",
        lambda call: getattr(call.arguments[0], "error_code", 0) == ErrorCode.NOT_CONTROLLER,
        needs=_BROKERS,
    ),
    RareEvent(
        "a probe finds a broker alive",
        "broker.peers.liveness_probe:BrokerLiveness.on_probed",
        lambda call: call.named["is_gone"] is False,
        needs=_FENCED,
    ),
    RareEvent(
        "a broker waits until the metadata shows its registration",
        "broker.own_registration:OwnRegistrationFilter.on_image",
        lambda call: not call.subject._is_open,
        needs=_QUORUM,
    ),
    RareEvent(
        "a broker gets no block of producer ids",
        "broker.peers.producer_id_blocks:ProducerIdPool._on_block",
        lambda call: getattr(call.arguments[0], "error_code", ErrorCode.REQUEST_TIMED_OUT) != ErrorCode.NONE,
    ),
    RareEvent("a forwarded request finds no controller", "broker.requests.forwarding:_ForwardedRequest._on_timeout"),
)

QUORUM_EVENTS: Final = (*ELECTIONS, *METADATA_LOG, *DECISIONS, *CONTROLLERS)
