"""The events of the product to which faults can be tied, as rows like those of the tables of rare events."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from barnabas.common.types import METADATA_TOPIC
from barnabas.simulation.coordinator_events import COORDINATOR_EVENTS
from barnabas.simulation.faults import FaultEvent
from barnabas.simulation.operator import AdminOperation
from barnabas.simulation.quorum_events import QUORUM_EVENTS
from barnabas.simulation.rare_event_table import given_needs
from barnabas.simulation.rare_events import Call, Need, RareEvent
from barnabas.simulation.replication_events import REPLICATION_EVENTS
from barnabas.simulation.settings_events import SETTINGS_EVENTS
from barnabas.simulation.simulated_cluster import Layout
from barnabas.simulation.storage_events import STORAGE_EVENTS
from barnabas.simulation.work import WorkKind
from barnabas.simulation.work_features import WorkFeature

_QUORUM: Final = frozenset({Need.QUORUM})
_BROKERS: Final = frozenset({Need.BROKERS})
_TRANSACTIONS: Final = frozenset({Need.TRANSACTIONS})
_PARTITION: Final = "replication.partition:Partition."
_RARE: Final = {
    event.name: event
    for event in (*STORAGE_EVENTS, *REPLICATION_EVENTS, *QUORUM_EVENTS, *COORDINATOR_EVENTS, *SETTINGS_EVENTS)
}

#: Features of work with topics in small segments.
_SMALL_SEGMENTS: Final = frozenset({WorkFeature.COMPACTED, WorkFeature.SHRINKING})
_REASSIGNS: Final = frozenset({AdminOperation.REASSIGN, AdminOperation.CANCEL_ADDITION})
_SMALL_LAG_MS: Final = 3_000

#: The text of the time line for an event.
_Text = Callable[[Call], str]


class Reach(NamedTuple):
    """The part of a run that is drawn in addition to its layout and work; it decides which events are likely."""

    properties: Mapping[str, str]
    features: frozenset[WorkFeature]
    operations: Collection[AdminOperation]


class Row(NamedTuple):
    """A row of the table: calls that are the event, and what happened then, as a sentence about the node."""

    event: FaultEvent
    calls: RareEvent
    text: _Text


def _is_new_append(call: Call) -> bool:
    return not call.result.duplicate and call.subject.topic_partition.topic != METADATA_TOPIC


def _begins_to_lead(call: Call) -> bool:
    return bool(call.before != call.subject.leader_epoch)


def _has_new_move(call: Call) -> bool:
    return bool(call.subject.image.adding_replicas) and call.before != call.subject.image.adding_replicas


def _appended(call: Call) -> str:
    return f"appended {call.subject.topic_partition}@{call.result.first_offset}"


def _partition(sentence: str) -> _Text:
    return lambda call: f"{sentence} {call.subject.topic_partition}"


def _says(sentence: str) -> _Text:
    return lambda _: sentence


def _cleaned(call: Call) -> str:
    return f"began to compact {call.arguments[0].topic_partition}"


def _isr_text(call: Call) -> str:
    return f"proposed the ISR {sorted(call.arguments[0])} instead of {sorted(call.subject.isr)}"


def _decided(call: Call) -> str:
    names = sorted({type(record).__name__ for record, _ in call.arguments[0]})
    return f"decided {', '.join(names)}"


ROWS: Final = (
    Row(
        FaultEvent.APPEND,
        RareEvent("a leader appends", "storage.log:Log.append_as_leader", _is_new_append),
        _appended,
    ),
    Row(
        FaultEvent.DECISION,
        RareEvent("a controller decides", "controller.kraft.proposals:Proposals._replayed", needs=_QUORUM),
        _decided,
    ),
    Row(
        FaultEvent.LEADER,
        RareEvent(
            "a replica begins to lead",
            f"{_PARTITION}become_leader",
            _begins_to_lead,
            lambda call: call.subject.leader_epoch if call.subject.leadership is not None else None,
        ),
        _partition("leads"),
    ),
    Row(FaultEvent.ISR_SHRINK, _RARE["a leader shrinks its ISR"], _isr_text),
    Row(FaultEvent.ISR_GROWTH, _RARE["a leader enlarges its ISR"], _isr_text),
    Row(FaultEvent.LOG_CUT, replace(_RARE["a log is cut"], needs=_BROKERS), _partition("cut")),
    Row(FaultEvent.ROLL, _RARE["a segment rolls"], _partition("rolled a segment of")),
    Row(
        FaultEvent.COMPACTION,
        RareEvent("compaction begins", "storage.compaction.cleaner:LogCleaner._begin"),
        _cleaned,
    ),
    Row(FaultEvent.SNAPSHOT, _RARE["a metadata snapshot is written"], _says("began to write a metadata snapshot")),
    Row(FaultEvent.INSTALL, _RARE["a metadata snapshot is installed"], _says("installed a metadata snapshot")),
    Row(
        FaultEvent.MOVE,
        RareEvent(
            "a leader sees that its replicas are moved",
            f"{_PARTITION}become_leader",
            _has_new_move,
            lambda call: getattr(call.subject.image, "adding_replicas", ()),
            needs=_BROKERS,
        ),
        _partition("leads, while replicas are added, "),
    ),
    Row(
        FaultEvent.PREPARE,
        RareEvent(
            "a transaction is decided",
            "coordinators.transactions.shard:TransactionShard._deliver",
            needs=_TRANSACTIONS,
        ),
        lambda call: f"decided the transaction of {call.arguments[0].transactional_id}",
    ),
    Row(
        FaultEvent.REBALANCE,
        RareEvent(
            "a group begins to rebalance",
            "coordinators.groups.classic.rebalance:Rebalancer.prepare",
        ),
        lambda call: f"began to rebalance {call.arguments[0].group_id}",
    ),
    Row(
        FaultEvent.REBALANCE,
        _RARE["a member of a consumer group must give up partitions"],
        _says("asked a member to give up partitions"),
    ),
    Row(FaultEvent.CONTROLLER, _RARE["another controller becomes active"], _says("is the active controller")),
    Row(
        FaultEvent.LOAD,
        RareEvent("a coordinator begins to load", "coordinators.loading:LogLoader.start"),
        lambda call: f"began to load {call.subject._partition}",
    ),
    Row(
        FaultEvent.SHIFT,
        RareEvent("a move reports its new log directory", "replication.moves:ReplicaMoves._report_target"),
        lambda call: f"reports that {call.arguments[0].future.topic_partition} moves to {call.arguments[0].target}",
    ),
    Row(
        FaultEvent.SHIFT,
        _RARE["a move to another log directory ends"],
        lambda call: f"exchanged the logs of {call.arguments[0]}",
    ),
)

#: A node has applied another image of the metadata.
IMAGE: Final = RareEvent("a node applies an image", "metadata.store:MetadataStore.publish")


def rows_of(events: Collection[FaultEvent]) -> list[Row]:
    return [row for row in ROWS if row.event in events]


def possible(layout: Layout, work: WorkKind | None) -> list[FaultEvent]:
    """Returns the events to which faults can be tied with this layout and work; None: any work."""
    given = given_needs(layout, work)
    found: dict[FaultEvent, None] = {}
    for row in ROWS:
        if all(given[need] for need in row.calls.needs):
            found[row.event] = None
    return list(found)


def _rolls(run: Reach) -> bool:
    small = ("log.roll.ms", "log.index.size.max.bytes")
    return any(key in run.properties for key in small) or not run.features.isdisjoint(_SMALL_SEGMENTS)


def _writes_snapshots(run: Reach) -> bool:
    return any(key.startswith("metadata.log.max.") for key in run.properties)


#: The conditions under which an event happens now and then in a run; the other events happen in every run.
_LIKELY: Final[Mapping[FaultEvent, Callable[[Reach], bool]]] = {
    FaultEvent.ROLL: _rolls,
    FaultEvent.COMPACTION: lambda run: WorkFeature.COMPACTED in run.features,
    FaultEvent.SNAPSHOT: _writes_snapshots,
    FaultEvent.INSTALL: lambda run: _writes_snapshots(run) and "metadata.max.retention.bytes" in run.properties,
    FaultEvent.ISR_SHRINK: lambda run: int(run.properties.get("replica.lag.time.max.ms", "30000")) <= _SMALL_LAG_MS,
    FaultEvent.SHIFT: lambda run: AdminOperation.SHIFT in run.operations and "," in run.properties.get("log.dirs", ""),
    FaultEvent.MOVE: lambda run: not _REASSIGNS.isdisjoint(run.operations),
}


def likely(events: Iterable[FaultEvent], run: Reach) -> list[FaultEvent]:
    """Returns those of the events that happen now and then in such a run."""
    return [event for event in events if event not in _LIKELY or _LIKELY[event](run)]


def named(rows: Iterable[Row]) -> dict[str, Row]:
    """Returns the rows by the names of their calls."""
    return {row.calls.name: row for row in rows}
