"""Rare events of coordinators: transactions and their markers, groups of both protocols, offsets, loads."""

from __future__ import annotations

from typing import Any, Final

from barnabas.common.errors import ErrorCode
from barnabas.coordinators.groups.classic.group import GroupState
from barnabas.coordinators.groups.consumer.member import MemberState
from barnabas.coordinators.runtime import ShardState
from barnabas.coordinators.transactions.state import TxnState
from barnabas.simulation.rare_events import Call, Need, RareEvent

_TRANSACTIONS: Final = frozenset({Need.TRANSACTIONS})
_GROUPS: Final = frozenset({Need.GROUPS})
_BROKERS: Final = frozenset({Need.BROKERS})
_COORDINATOR: Final = "coordinators.transactions.coordinator:TransactionCoordinator."
_TRANSACTION_SHARD: Final = "coordinators.transactions.shard:TransactionShard."
_TRANSITIONS: Final = "coordinators.transactions.transitions:"
_MARKERS: Final = "coordinators.transactions.markers:"
_LOADER: Final = "coordinators.loading:LogLoader."
_REBALANCER: Final = "coordinators.groups.classic.rebalance:Rebalancer."
_CONSUMER: Final = "coordinators.groups.consumer."


def _code_is(code: ErrorCode) -> Any:
    return lambda call: getattr(call.result, "code", None) is code


def _loads(call: Call, *states: TxnState) -> bool:
    return any(transaction.image.state in states for transaction in call.subject._transactions.values())


def _is_fenced_in_answer(call: Call) -> bool:
    return not call.before and ErrorCode.TRANSACTION_COORDINATOR_FENCED in call.arguments[2].values()


def _is_cancelled(call: Call) -> bool:
    return bool(call.arguments[0].cancelled)


TRANSACTIONS: Final = (
    RareEvent(
        "a transaction coordinator loads again in a new epoch",
        f"{_COORDINATOR}on_partition_leader",
        lambda call: bool(call.before),
        lambda call: call.arguments[0] in call.subject._shards,
        needs=_TRANSACTIONS,
    ),
    RareEvent(
        "a transaction coordinator resigns",
        f"{_TRANSACTION_SHARD}close",
        lambda call: call.before is ShardState.ACTIVE,
        lambda call: call.subject.state,
        needs=_TRANSACTIONS,
    ),
    RareEvent(
        "a transaction coordinator resigns while it loads",
        f"{_TRANSACTION_SHARD}close",
        lambda call: call.before is ShardState.LOADING,
        lambda call: call.subject.state,
        needs=_TRANSACTIONS,
    ),
    RareEvent(
        "a transaction coordinator resigns while markers are under way",
        f"{_TRANSACTION_SHARD}close",
        lambda call: call.before > 0,
        lambda call: len(call.subject._deliveries),
        needs=_TRANSACTIONS,
    ),
    RareEvent(
        "a coordinator loads an open transaction",
        f"{_TRANSACTION_SHARD}on_loaded",
        lambda call: bool(call.before),
        lambda call: _loads(call, TxnState.ONGOING),
        needs=_TRANSACTIONS,
    ),
    RareEvent(
        "a coordinator loads a decided transaction",
        f"{_TRANSACTION_SHARD}on_loaded",
        lambda call: bool(call.before),
        lambda call: _loads(call, TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT),
        needs=_TRANSACTIONS,
    ),
    RareEvent(
        "a transaction times out",
        f"{_TRANSACTION_SHARD}fence",
        lambda call: call.argument(1, "done") is None,
        needs=_TRANSACTIONS,
    ),
    RareEvent(
        "a producer takes over an open transaction",
        f"{_TRANSACTION_SHARD}fence",
        lambda call: call.argument(1, "done") is not None,
        needs=_TRANSACTIONS,
    ),
    RareEvent(
        "a record of a transaction is not committed",
        f"{_TRANSACTION_SHARD}_settled",
        lambda call: call.arguments[2] is not ErrorCode.NONE,
        needs=_TRANSACTIONS,
    ),
    RareEvent("transactional ids expire", f"{_TRANSACTION_SHARD}_forget", needs=_TRANSACTIONS),
    RareEvent("a request waits for the markers before it", f"{_TRANSACTION_SHARD}when_free", needs=_TRANSACTIONS),
    RareEvent("markers are sent again", f"{_MARKERS}MarkerSender._resend_missing", needs=_TRANSACTIONS),
    RareEvent(
        "markers of a former coordinator are refused",
        f"{_MARKERS}MarkerSender._on_codes",
        _is_fenced_in_answer,
        _is_cancelled,
        needs=_TRANSACTIONS,
    ),
    RareEvent(
        "an answer to markers comes after their coordinator has resigned",
        f"{_MARKERS}MarkerSender._on_codes",
        lambda call: bool(call.before),
        _is_cancelled,
        needs=_TRANSACTIONS,
    ),
    RareEvent(
        "the end of a transaction is repeated",
        f"{_TRANSITIONS}ended",
        lambda call: call.result is None,
        needs=_TRANSACTIONS,
    ),
    RareEvent(
        "a zombie is fenced by the coordinator",
        f"{_TRANSITIONS}check_producer",
        _code_is(ErrorCode.PRODUCER_FENCED),
        is_error=True,
        needs=_TRANSACTIONS,
    ),
    RareEvent(
        "a request meets a transaction that is not complete",
        f"{_TRANSITIONS}check_settled",
        is_error=True,
        needs=_TRANSACTIONS,
    ),
    RareEvent(
        "a partition is not in its transaction",
        f"{_COORDINATOR}verify_partitions",
        lambda call: ErrorCode.TRANSACTION_ABORTABLE in call.result.values(),
        needs=_TRANSACTIONS,
    ),
    RareEvent(
        "records of a transaction are refused after their verification",
        "broker.peers.partition_verification:_codes",
        lambda call: any(code is not ErrorCode.NONE for code in call.result.values()),
        needs=_TRANSACTIONS,
    ),
)


def _has_unfinished_writes(call: Call) -> bool:
    return any(not write.finished for write in call.subject._queue)


SHARDS: Final = (
    RareEvent(
        "a coordinator loads records of a transaction that is open",
        f"{_LOADER}_finish",
        lambda call: bool(call.subject._transactions),
        needs=_TRANSACTIONS,
    ),
    RareEvent(
        "a load ends because leadership was lost",
        f"{_LOADER}stop",
        lambda call: not call.before,
        lambda call: call.subject._stopped,
        needs=_BROKERS,
    ),
    RareEvent("a load fails", f"{_LOADER}_fail", needs=_BROKERS),
    RareEvent(
        "a load waits for the high watermark",
        f"{_LOADER}_await_high_watermark",
        lambda call: not call.subject._stopped,
        needs=_BROKERS,
    ),
    RareEvent(
        "a write of a coordinator times out",
        "coordinators.runtime:ShardLog._answer",
        lambda call: bool(call.before) and call.arguments[0] is ErrorCode.REQUEST_TIMED_OUT,
        lambda call: call.subject.answered is not None,
        needs=_BROKERS,
    ),
    RareEvent(
        "a coordinator resigns while writes are under way",
        "coordinators.runtime:ShardLog.close",
        lambda call: bool(call.before),
        _has_unfinished_writes,
        needs=_BROKERS,
    ),
    RareEvent(
        "a group coordinator resigns",
        "coordinators.groups.shard:GroupShard.close",
        lambda call: call.before is ShardState.ACTIVE,
        lambda call: call.subject.state,
        needs=_BROKERS,
    ),
    RareEvent(
        "a group coordinator resigns while it loads",
        "coordinators.groups.shard:GroupShard.close",
        lambda call: call.before is ShardState.LOADING,
        lambda call: call.subject.state,
        needs=_BROKERS,
    ),
)

OFFSETS: Final = (
    RareEvent(
        "offsets of a deleted topic are removed", "coordinators.groups.offset_removal:OffsetRemoval.delete_partitions"
    ),
    RareEvent(
        "an offset expires",
        "coordinators.groups.offset_removal:OffsetRemoval._past_retention",
        lambda call: bool(call.result),
    ),
    RareEvent(
        "committed offsets are dropped",
        "coordinators.groups.offsets:Offsets.drop",
        lambda call: bool(call.arguments[1]),
    ),
    RareEvent(
        "a group without offsets is removed",
        "coordinators.groups.offsets:Offsets.drop_group",
        lambda call: bool(call.before) and call.arguments[0] not in call.subject._context.groups,
        lambda call: call.arguments[0] in call.subject._context.groups,
    ),
    RareEvent(
        "offsets of a transaction take effect",
        "coordinators.groups.pending_offsets:PendingOffsets.end",
        lambda call: bool(call.result) and call.named["commit"],
        needs=_TRANSACTIONS,
    ),
    RareEvent(
        "offsets of a transaction are dropped",
        "coordinators.groups.pending_offsets:PendingOffsets.end",
        lambda call: bool(call.result) and not call.named["commit"],
        needs=_TRANSACTIONS,
    ),
    RareEvent(
        "a commit of an earlier generation or epoch is refused",
        "coordinators.groups.committers:Committers.validate",
        is_error=True,
    ),
)


def _not_rejoined(call: Call) -> bool:
    group = call.subject if call.arguments == () else call.arguments[0]
    return bool(group.is_in(GroupState.PREPARING_REBALANCE)) and any(
        not member.is_static for member in group.not_rejoined()
    )


def _is_member(call: Call) -> bool:
    group, member = call.arguments
    return group.members.get(member.member_id) is member


CLASSIC_GROUPS: Final = (
    RareEvent(
        "a member's session expires",
        f"{_REBALANCER}_on_session_expired",
        lambda call: bool(call.before) and not _is_member(call),
        _is_member,
    ),
    RareEvent(
        "a rebalance ends without a member",
        f"{_REBALANCER}_complete_join",
        lambda call: bool(call.before),
        _not_rejoined,
    ),
    RareEvent(
        "a member never asks for its assignment",
        f"{_REBALANCER}_on_sync_expired",
        lambda call: len(call.arguments[0].members) < call.before,
        lambda call: len(call.arguments[0].members),
        needs=_GROUPS,
    ),
    RareEvent("a rebalance begins before an assignment is stored", f"{_REBALANCER}_drop_assignment"),
    RareEvent(
        "a client never joins with its member id",
        f"{_REBALANCER}drop_pending",
        lambda call: bool(call.before),
        lambda call: call.arguments[1] in call.arguments[0].pending_joins,
    ),
    RareEvent(
        "a group becomes empty",
        "coordinators.groups.classic.group:ClassicGroup.begin_generation",
        lambda call: not call.subject.members,
    ),
    RareEvent(
        "the leader of a group does not rejoin",
        "coordinators.groups.classic.group:ClassicGroup.elect_joined_leader",
        lambda call: call.before is not None and call.subject.leader_id != call.before,
        lambda call: call.subject.leader_id,
    ),
    RareEvent("a static member is replaced", "coordinators.groups.classic.group:ClassicGroup.replace_static"),
    RareEvent(
        "a heartbeat of an earlier generation is refused",
        "coordinators.groups.classic.membership:Membership.heartbeat",
        _code_is(ErrorCode.ILLEGAL_GENERATION),
        is_error=True,
    ),
    RareEvent(
        "a heartbeat of a removed member is refused",
        "coordinators.groups.classic.membership:Membership.heartbeat",
        _code_is(ErrorCode.UNKNOWN_MEMBER_ID),
        is_error=True,
    ),
    RareEvent(
        "the sessions of a loaded group begin",
        f"{_REBALANCER}restart_sessions",
        lambda call: bool(call.arguments[0].members),
    ),
)

CONSUMER_GROUPS: Final = (
    RareEvent(
        "a member with a wrong epoch is fenced",
        f"{_CONSUMER}heartbeat:_check_epoch",
        is_error=True,
        needs=_GROUPS,
    ),
    RareEvent(
        "a member of a consumer group must give up partitions",
        f"{_CONSUMER}reconcile:_step",
        lambda call: call.result is not call.subject and call.result.state is MemberState.UNREVOKED_PARTITIONS,
        needs=_GROUPS,
    ),
    RareEvent(
        "a member of a consumer group waits for partitions of another",
        f"{_CONSUMER}reconcile:_step",
        lambda call: call.result is not call.subject and call.result.state is MemberState.UNRELEASED_PARTITIONS,
        needs=_GROUPS,
    ),
    RareEvent("a member of a consumer group is removed", f"{_CONSUMER}planning:Planner.remove", needs=_GROUPS),
    RareEvent("a classic group becomes a consumer group", f"{_CONSUMER}migration:Migration._upgrade", needs=_GROUPS),
    RareEvent(
        "a consumer group becomes a classic group",
        f"{_CONSUMER}migration:Migration._begin_classic",
        needs=_GROUPS,
    ),
    RareEvent("a consumer group is loaded", f"{_CONSUMER}consumer_loading:_build", needs=_GROUPS),
    RareEvent(
        "a consumer group ends its writes because leadership was lost",
        f"{_CONSUMER}writes:Writes.close",
        lambda call: bool(call.before),
        lambda call: bool(call.subject.slots),
        needs=_GROUPS,
    ),
)

COORDINATOR_EVENTS: Final = (*TRANSACTIONS, *SHARDS, *OFFSETS, *CLASSIC_GROUPS, *CONSUMER_GROUPS)
