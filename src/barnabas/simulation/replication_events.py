"""Rare events of replicas: ISR changes, leaders and followers, fetches, and requests that wait for followers."""

from __future__ import annotations

from typing import Any, Final

from barnabas.common.errors import ErrorCode
from barnabas.metadata.topics import RECOVERING
from barnabas.protocol.messages.fetch import FetchResponse
from barnabas.replication.partition import Role
from barnabas.simulation.rare_events import Call, Need, RareEvent

_BROKERS: Final = frozenset({Need.BROKERS})
_LEADERSHIP: Final = "replication.leadership:Leadership."
_CHANGES: Final = "replication.isr_changes:IsrChanges."
_PARTITION: Final = "replication.partition:Partition."
_FETCHER: Final = "replication.fetcher:Fetcher."
_SESSIONS: Final = "broker.fetching.fetch_sessions:SessionCache."


def _has_returned(call: Call) -> bool:
    """Returns whether a leadership ended, and another one of the same partition began, while its request was under
    way.
    """
    in_flight = call.subject._in_flight.values()
    return any(partition.leadership not in (None, leadership) for partition, leadership, _ in in_flight)


def _has_gone(call: Call) -> bool:
    return any(partition.leadership is None for partition, _, _ in call.subject._in_flight.values())


ISR_CHANGES: Final = (
    RareEvent(
        "a leader shrinks its ISR",
        f"{_LEADERSHIP}propose",
        lambda call: len(call.arguments[0]) < len(call.subject.isr),
        needs=_BROKERS,
    ),
    RareEvent(
        "a leader enlarges its ISR",
        f"{_LEADERSHIP}propose",
        lambda call: len(call.arguments[0]) > len(call.subject.isr),
        needs=_BROKERS,
    ),
    RareEvent(
        "a leader shrinks its ISR to itself",
        f"{_LEADERSHIP}propose",
        lambda call: len(call.arguments[0]) == 1 and len(call.subject.isr) > 1,
        needs=_BROKERS,
    ),
    RareEvent("a leader withdraws its ISR change", f"{_LEADERSHIP}withdraw", needs=_BROKERS),
    RareEvent(
        "the answer to an ISR change is overtaken by newer metadata",
        f"{_LEADERSHIP}commit_answer",
        lambda call: call.result is False,
        needs=_BROKERS,
    ),
    RareEvent(
        "an ISR change gets no answer",
        f"{_CHANGES}_on_answer",
        lambda call: call.arguments[0] is None,
        needs=_BROKERS,
    ),
    RareEvent(
        "leadership goes while an ISR change is under way",
        f"{_CHANGES}_on_answer",
        lambda call: bool(call.before),
        _has_gone,
        needs=_BROKERS,
    ),
    RareEvent(
        "leadership goes and comes back while an ISR change is under way",
        f"{_CHANGES}_on_answer",
        lambda call: bool(call.before),
        _has_returned,
        needs=_BROKERS,
    ),
    RareEvent("an ISR change is sent again", f"{_CHANGES}_settle", lambda call: bool(call.result), needs=_BROKERS),
    RareEvent(
        "an ISR change waits for the one before it",
        f"{_CHANGES}submit",
        lambda call: bool(call.subject._in_flight),
        needs=_BROKERS,
    ),
)


def _term(call: Call) -> tuple[Any, int]:
    return call.subject.role, call.subject.leader_epoch


def _has_new_term(call: Call) -> bool:
    return bool((call.subject.role, call.subject.leader_epoch) != call.before)


def _loses_requests(call: Call) -> bool:
    return bool(call.subject._commit_waiters)


def _is_proposing(call: Call) -> bool:
    leadership = call.subject.leadership
    return leadership is not None and leadership.proposed is not None


def _end_and_epochs(call: Call) -> tuple[int, int, int]:
    partition = call.subject
    return partition.log.log_end_offset, len(partition.log.epochs.entries), partition.high_watermark


ROLES: Final = (
    RareEvent(
        "a leader follows another broker",
        f"{_PARTITION}become_follower",
        lambda call: call.before[0] is Role.LEADER and call.subject.image.leader >= 0,
        _term,
        needs=_BROKERS,
    ),
    RareEvent(
        "a partition has no leader",
        f"{_PARTITION}become_follower",
        lambda call: call.subject.image.leader < 0 and _has_new_term(call),
        _term,
        needs=_BROKERS,
    ),
    RareEvent(
        "a leader continues in a new epoch",
        f"{_PARTITION}become_leader",
        lambda call: call.before[0] is Role.LEADER and _has_new_term(call),
        _term,
        needs=_BROKERS,
    ),
    RareEvent(
        "a replica leads after an unclean election",
        f"{_PARTITION}become_leader",
        lambda call: call.subject.image.leader_recovery_state == RECOVERING and _has_new_term(call),
        _term,
        needs=_BROKERS,
    ),
    RareEvent(
        "a replica begins to lead alone in its ISR",
        f"{_PARTITION}become_leader",
        lambda call: len(call.subject.image.isr) == 1 and len(call.subject.image.replicas) > 1 and _has_new_term(call),
        _term,
        needs=_BROKERS,
    ),
    RareEvent(
        "leadership ends while requests wait for followers",
        f"{_PARTITION}_leave_leadership",
        lambda call: bool(call.before),
        _loses_requests,
        needs=_BROKERS,
    ),
    RareEvent(
        "leadership ends while an ISR change is proposed",
        f"{_PARTITION}_leave_leadership",
        lambda call: bool(call.before),
        _is_proposing,
        needs=_BROKERS,
    ),
    RareEvent(
        "a follower loses an epoch without records",
        f"{_PARTITION}truncate_to",
        lambda call: (
            call.subject.log.log_end_offset == call.before[0] and len(call.subject.log.epochs.entries) < call.before[1]
        ),
        _end_and_epochs,
        needs=_BROKERS,
    ),
    RareEvent(
        "a follower's high watermark goes back",
        f"{_PARTITION}truncate_to",
        lambda call: call.subject.high_watermark < call.before[2],
        _end_and_epochs,
        needs=_BROKERS,
    ),
    RareEvent(
        "a follower empties its log and begins at its leader's log start", f"{_PARTITION}start_anew_at", needs=_BROKERS
    ),
    RareEvent("a follower cannot append", f"{_PARTITION}append_as_follower", is_error=True, needs=_BROKERS),
    RareEvent(
        "a leader's replica is removed",
        "replication.replica_manager:ReplicaManager.remove",
        lambda call: call.before is Role.LEADER,
        lambda call: call.arguments[0].role,
    ),
)


def _is_late(call: Call) -> bool:
    """Returns whether the answer is for a position that the follower has left."""
    followed = call.subject._followed.get(call.arguments[0])
    if followed is None or followed.session_position is None or not followed.is_current:
        return False
    return bool(followed.session_position[0] != followed.partition.log.log_end_offset)


def _is_of_earlier_epoch(call: Call) -> bool:
    """Returns whether a new epoch has begun since the fetch, so that the next one names the partition again."""
    followed = call.subject._followed.get(call.arguments[0])
    return followed is not None and followed.session_position == (-1, -1, -1)


def _code_of_row(call: Call) -> int:
    return int(call.arguments[2].error_code)


FOLLOWERS: Final = (
    RareEvent(
        "a fetched row is for a position that the follower has left",
        f"{_FETCHER}_take_row",
        lambda call: bool(call.before),
        _is_late,
        needs=_BROKERS,
    ),
    RareEvent(
        "a fetched row is of an earlier leader epoch",
        f"{_FETCHER}_take_row",
        lambda call: bool(call.before),
        _is_of_earlier_epoch,
        needs=_BROKERS,
    ),
    RareEvent(
        "a follower is out of its leader's range",
        f"{_FETCHER}_take_one",
        lambda call: _code_of_row(call) == ErrorCode.OFFSET_OUT_OF_RANGE,
        needs=_BROKERS,
    ),
    RareEvent(
        "a follower's epoch is fenced by its leader",
        f"{_FETCHER}_take_one",
        lambda call: _code_of_row(call) == ErrorCode.FENCED_LEADER_EPOCH,
        needs=_BROKERS,
    ),
    RareEvent(
        "a leader does not know its follower's epoch yet",
        f"{_FETCHER}_take_one",
        lambda call: _code_of_row(call) == ErrorCode.UNKNOWN_LEADER_EPOCH,
        needs=_BROKERS,
    ),
    RareEvent(
        "a follower fetches from a broker that does not lead",
        f"{_FETCHER}_take_one",
        lambda call: _code_of_row(call) == ErrorCode.NOT_LEADER_OR_FOLLOWER,
        needs=_BROKERS,
    ),
    RareEvent(
        "a leader reports to its follower where their logs diverge",
        f"{_FETCHER}_take_one",
        lambda call: call.arguments[2].diverging_epoch is not None,
        needs=_BROKERS,
    ),
    RareEvent(
        "a follower's fetch gets no answer",
        f"{_FETCHER}_on_answer",
        lambda call: call.arguments[0] is None,
        needs=_BROKERS,
    ),
    RareEvent(
        "a follower's fetch session is lost",
        f"{_FETCHER}_on_answer",
        lambda call: isinstance(call.arguments[0], FetchResponse) and call.arguments[0].error_code != ErrorCode.NONE,
        needs=_BROKERS,
    ),
    RareEvent("a reader asks beyond the end of a log", "replication.fetching:_check_range"),
    RareEvent(
        "a fetch is of a follower's earlier incarnation",
        "replication.fetching:_note_follower",
        is_error=True,
        needs=_BROKERS,
    ),
    RareEvent(
        "a follower's waiting fetch ends early to take more partitions",
        "replication.follower_waits:FollowerWaits._wake",
        lambda call: bool(call.before),
        lambda call: any(call.subject._waiting.get(follower) for follower in call.subject._to_wake),
        needs=_BROKERS,
    ),
)

REQUESTS: Final = (
    RareEvent(
        "acks=all is refused because the ISR is too small",
        "replication.replica_manager:ReplicaManager.append_to",
        lambda call: call.result.error is ErrorCode.NOT_ENOUGH_REPLICAS,
        needs=_BROKERS,
    ),
    RareEvent(
        "the ISR is too small once an append is replicated",
        f"{_PARTITION}_verdict",
        lambda call: call.result is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        needs=_BROKERS,
    ),
    RareEvent(
        "acks=all times out",
        "broker.handlers.produce:DelayedProduce.on_complete",
        lambda call: bool(call.arguments[0]),
        needs=_BROKERS,
    ),
    RareEvent("a client deletes records", f"{_PARTITION}delete_records_before"),
    RareEvent("a fetch session is evicted", f"{_SESSIONS}_evict", lambda call: bool(call.result)),
    RareEvent("there is no room for a fetch session", f"{_SESSIONS}_evict", lambda call: not call.result),
    RareEvent(
        "a fetch names a session that is gone",
        f"{_SESSIONS}find",
        lambda call: call.result is ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ),
    RareEvent(
        "a fetch repeats an epoch of its session",
        f"{_SESSIONS}find",
        lambda call: call.result is ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ),
    RareEvent(
        "a fetch session ends with a waiting fetch",
        "broker.fetching.fetch_sessions:Session.close",
        lambda call: bool(call.before),
        lambda call: call.subject.waiting is not None,
    ),
)

REPLICATION_EVENTS: Final = (*ISR_CHANGES, *ROLES, *FOLLOWERS, *REQUESTS)
