"""Rare events of settings that change while brokers run: moves between log directories, quotas, limits, properties."""

from __future__ import annotations

from typing import Any, Final

from barnabas.replication.move import MoveStage, is_in
from barnabas.replication.quotas import FOLLOWER
from barnabas.simulation.rare_events import Call, Need, RareEvent

_SETTINGS: Final = frozenset({Need.SETTINGS})
_LIMITS: Final = frozenset({Need.SETTINGS, Need.QUORUM})
_DIRECTORIES: Final = frozenset({Need.DIRECTORIES})
_OF_REPLICAS: Final = frozenset({Need.DIRECTORIES, Need.BROKERS})
_FUTURES: Final = "storage.futures:FutureLogs."
_MOVES: Final = "replication.moves:ReplicaMoves."
_THROTTLES: Final = "broker.throttling.client_throttles:"
_CHANGES: Final = "broker.configs.config_changes:"


def _has_future(call: Call) -> bool:
    return call.arguments[0] in call.subject._futures


def _move(call: Call) -> Any:
    return call.subject._moves.get(call.arguments[0])


def _is_reported(call: Call) -> bool:
    move = _move(call)
    return move is not None and move.stage in (MoveStage.REPORTING, MoveStage.EXCHANGING)


def _is_overtaken(call: Call) -> bool:
    """Returns whether a slice was read from a log that has changed since."""
    move, source = call.arguments[:2]
    if move.stage is MoveStage.ENDED:
        return False
    return move.generation != source.generation or not is_in(move.partition.log, source.place.segment)


MOVES: Final = (
    RareEvent(
        "a move to another log directory begins",
        f"{_FUTURES}create",
        lambda call: not call.before,
        _has_future,
        needs=_DIRECTORIES,
    ),
    RareEvent("a move to another log directory ends", f"{_FUTURES}exchange", needs=_DIRECTORIES),
    RareEvent(
        "a move to another log directory is cancelled",
        f"{_FUTURES}cancel",
        lambda call: bool(call.before),
        _has_future,
        needs=_DIRECTORIES,
    ),
    RareEvent(
        "a move ends after its new log directory was reported, and before its exchange",
        f"{_MOVES}_end",
        lambda call: bool(call.before),
        _is_reported,
        needs=_DIRECTORIES,
    ),
    RareEvent(
        "a move to another log directory continues after a start",
        f"{_MOVES}resume",
        lambda call: call.subject._moves.get(call.arguments[0].topic_partition) is not None,
        needs=_DIRECTORIES,
    ),
    RareEvent(
        "the log of a move is cut",
        f"{_MOVES}_on_truncated",
        lambda call: bool(call.before),
        _move,
        needs=_OF_REPLICAS,
    ),
    RareEvent(
        "a part of a move was read from a log that changed meanwhile",
        f"{_MOVES}_on_read",
        lambda call: bool(call.before),
        _is_overtaken,
        needs=_DIRECTORIES,
    ),
    RareEvent(
        "a move waits for its rate",
        f"{_MOVES}_soon",
        lambda call: bool(call.argument(1, "delay_ms", 0)),
        needs=_DIRECTORIES,
    ),
    RareEvent("a move to another log directory fails", f"{_MOVES}_failed", needs=_DIRECTORIES),
    RareEvent(
        "a replica is deleted during its move",
        f"{_MOVES}forget",
        lambda call: call.before is not None,
        _move,
        needs=_OF_REPLICAS,
    ),
)

QUOTAS: Final = (
    RareEvent(
        "a client writes above its quota",
        f"{_THROTTLES}ClientThrottles.produced",
        lambda call: call.result > 0,
        needs=_LIMITS,
    ),
    RareEvent(
        "a client reads above its quota",
        f"{_THROTTLES}ClientThrottles.fetched",
        lambda call: call.result > 0,
        needs=_LIMITS,
    ),
    RareEvent(
        "a client takes more time than its quota",
        f"{_THROTTLES}ClientThrottles.used_cpu",
        lambda call: call.result > 0,
        needs=_LIMITS,
    ),
    RareEvent(
        "a client changes more metadata than its quota",
        f"{_THROTTLES}Mutations._throttle",
        lambda call: call.arguments[0] > 0,
        needs=_LIMITS,
    ),
    RareEvent(
        "a leader holds back a follower",
        "replication.quotas:ReplicationQuotas.holds_back",
        lambda call: bool(call.result),
        needs=_OF_REPLICAS,
    ),
    RareEvent(
        "a follower holds itself back",
        "replication.quotas:ReplicationQuota.holds_back",
        lambda call: bool(call.result) and call.subject._prefix == FOLLOWER,
        needs=_OF_REPLICAS,
    ),
)


def _layers(call: Call) -> tuple[dict[str, str], dict[str, str]]:
    return dict(call.subject.per_broker), dict(call.subject.cluster_default)


PROPERTIES: Final = (
    RareEvent(
        "a property of one broker changes while it runs",
        "common.settings:Settings.update_dynamic",
        lambda call: call.subject.per_broker != call.before[0],
        _layers,
        needs=_SETTINGS,
    ),
    RareEvent(
        "a property of all brokers changes while they run",
        "common.settings:Settings.update_dynamic",
        lambda call: call.subject.cluster_default != call.before[1],
        _layers,
        needs=_SETTINGS,
    ),
    RareEvent("a change of properties is refused", f"{_CHANGES}_check_broker", is_error=True, needs=_SETTINGS),
    RareEvent(
        "a change of a number of threads is refused", f"{_CHANGES}_check_thread_counts", is_error=True, needs=_SETTINGS
    ),
)

SETTINGS_EVENTS: Final = (*MOVES, *QUOTAS, *PROPERTIES)
