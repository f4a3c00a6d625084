"""The differences between two snapshots of a cluster: a `Change` for each topic, partition or broker that changed.

Replaying the changes of partitions on the first snapshot gives the second one (`replayed`, which the tests check). A
state between two snapshots is not seen here; a cluster with a journal records it there (`barnabas explain`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from barnabas.monitor.partition_state import BrokerState, Key, PartitionState
from barnabas.monitor.severity import Severity
from barnabas.monitor.snapshot import Snapshot
from barnabas.monitor.texts import NO_NODE, at, ids, leader_name

#: A cause can be an event of the journal; docs/explain.md describes its fields.
Event = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Change:
    """One change. `subject` is a partition ("orders-3"), a topic, "broker 2", or "cluster". `severity` is that of the
    new state.
    """

    kind: str
    subject: str
    time_ms: int
    text: str
    severity: Severity = Severity.OK
    #: Partitions only; None before its creation and after its deletion.
    before: PartitionState | None = None
    after: PartitionState | None = None
    #: The new partitions, for a topic that was created or extended.
    created: tuple[PartitionState, ...] = ()
    topic: str | None = None
    topic_id: bytes = b""
    broker: int | None = None
    #: The events of the journal that explain the change, oldest first; empty if there are none.
    events: tuple[Event, ...] = ()

    @property
    def cause(self) -> str | None:
        """Returns the cause of the change as text."""
        texts = dict.fromkeys(str(event["text"]) for event in self.events)
        return "; then ".join(texts) if texts else None

    def to_json(self) -> dict[str, Any]:
        shown: dict[str, Any] = {
            "type": "change",
            "time": at(self.time_ms),
            "kind": self.kind,
            "subject": self.subject,
            "severity": self.severity.name.lower(),
            "text": self.text,
            "cause": self.cause,
            "causes": [event.get("cause") for event in self.events],
        }
        if self.topic is not None:
            shown["topic"] = self.topic
        if self.broker is not None:
            shown["broker"] = self.broker
        if self.created:
            shown["partitions"] = [{"partition": state.partition, **(_shown(state) or {})} for state in self.created]
        state = self.after or self.before
        if state is not None:
            shown |= {"partition": state.partition, "state": state.state if self.after else None}
            shown |= {"before": _shown(self.before), "after": _shown(self.after)}
        return shown


def _shown(state: PartitionState | None) -> dict[str, Any] | None:
    if state is None:
        return None
    return {
        "leader": state.leader,
        "leader_epoch": state.leader_epoch,
        "replicas": list(state.replicas),
        "isr": list(state.isr),
        "osr": list(state.out_of_sync),
        "min_isr": state.min_isr,
    }


def diff(before: Snapshot, after: Snapshot) -> list[Change]:
    """Returns the changes of brokers and the controller first, because they often cause the others; then topics, then
    partitions.
    """
    return [
        *_controller(before, after),
        *_brokers(before, after),
        *_topics(before, after),
        *_partitions(before, after),
    ]


def replayed(partitions: Mapping[Key, PartitionState], changes: list[Change]) -> dict[Key, PartitionState]:
    """Returns the states of the partitions after these changes."""
    found = dict(partitions)
    for change in changes:
        if change.kind == "topic-deleted":
            found = {key: state for key, state in found.items() if key.topic != change.topic}
        elif change.after is not None:
            found[change.after.key] = change.after
        elif change.created:
            found |= {state.key: state for state in change.created}
        elif change.before is not None:
            found.pop(change.before.key, None)
    return found


def _controller(before: Snapshot, after: Snapshot) -> Iterator[Change]:
    if before.controller != after.controller:
        text = f"active controller {leader_name(before.controller)} -> {leader_name(after.controller)}"
        severity = Severity.CRITICAL if after.controller == NO_NODE else Severity.OK
        yield Change("controller-change", "cluster", after.time_ms, text, severity, broker=after.controller)


def _brokers(before: Snapshot, after: Snapshot) -> Iterator[Change]:
    for broker_id in sorted(before.brokers.keys() | after.brokers.keys()):
        was, is_now = before.brokers.get(broker_id), after.brokers.get(broker_id)
        severity = Severity.OK
        if is_now is None:
            kind, text, severity = "broker-gone", "is gone", Severity.ERROR
        elif was is None:
            kind, text = "broker-there", f"is up ({is_now.host}:{is_now.port})"
        elif _address(was) != _address(is_now):
            kind, text = "broker-moved", f"moved from {was.host}:{was.port} to {is_now.host}:{is_now.port}"
        elif was.problem is None and is_now.problem is not None:
            kind, text, severity = _silent(after, is_now)
        elif was.problem is not None and is_now.problem is None:
            kind, text = "broker-answers", "answers again"
        else:
            continue
        yield Change(kind, f"broker {broker_id}", after.time_ms, text, severity, broker=broker_id)


def _silent(snapshot: Snapshot, broker: BrokerState) -> tuple[str, str, Severity]:
    led = sum(state.leader == broker.broker_id for state in snapshot.partitions.values())
    leads = f"; it leads {led} partition{'' if led == 1 else 's'}" if led else ""
    severity = Severity.CRITICAL if led else Severity.WARNING
    return "broker-silent", f"does not answer: {broker.problem}{leads}", severity


def _address(broker: BrokerState) -> tuple[str, int]:
    return broker.host, broker.port


def _topics(before: Snapshot, after: Snapshot) -> Iterator[Change]:
    """Returns deleted, created and extended topics. A topic with the same name and a new id was deleted and created."""
    old, new = before.topic_ids, after.topic_ids
    for topic, topic_id in sorted(old.items()):
        if new.get(topic) != topic_id:
            yield Change("topic-deleted", topic, after.time_ms, "was deleted", topic=topic, topic_id=topic_id)
    created: dict[str, list[PartitionState]] = {}
    for key, state in sorted(after.partitions.items()):
        if key not in before.partitions or old[key.topic] != new[key.topic]:
            created.setdefault(key.topic, []).append(state)
    for topic, states in created.items():
        is_new = old.get(topic) != new[topic]
        count = f"{len(states)} partition{'' if len(states) == 1 else 's'}"
        yield Change(
            "topic-created" if is_new else "partitions-added",
            topic,
            after.time_ms,
            f"was created with {count}" if is_new else f"has {count} more",
            max(state.severity for state in states),
            created=tuple(states),
            topic=topic,
            topic_id=new[topic],
        )


def _partitions(before: Snapshot, after: Snapshot) -> Iterator[Change]:
    old, new = before.topic_ids, after.topic_ids
    for key, was in sorted(before.partitions.items()):
        if old[key.topic] != new.get(key.topic):
            continue
        state = after.partitions.get(key)
        if state is None:
            yield Change("partition-gone", str(key), after.time_ms, "is gone", before=was, topic=key.topic)
        elif _compared(was) != _compared(state):
            yield Change(
                _kind(was, state),
                str(key),
                after.time_ms,
                _moves(was, state),
                state.severity,
                before=was,
                after=state,
                topic=key.topic,
                topic_id=state.topic_id,
            )


def _compared(state: PartitionState) -> tuple[object, ...]:
    """Returns the part of a partition's state in which two snapshots are compared; the order of the ISR and the lag of
    replicas are excluded.
    """
    return state.leader, state.leader_epoch, state.replicas, frozenset(state.isr), state.min_isr_in_force


def _kind(was: PartitionState, state: PartitionState) -> str:
    """Returns the kind of the most important difference between two states of a partition."""
    if was.leader != state.leader:
        if state.leader == NO_NODE:
            return "offline"
        return "online" if was.leader == NO_NODE else "leader-change"
    left, joined = set(was.isr) - set(state.isr), set(state.isr) - set(was.isr)
    if left or joined:
        return "isr-change" if left and joined else "isr-shrink" if left else "isr-expand"
    if was.replicas != state.replicas:
        return "replicas-changed"
    return "leader-epoch" if was.leader_epoch != state.leader_epoch else "min-isr-changed"


def _moves(was: PartitionState, state: PartitionState) -> str:
    parts = []
    epochs = f"epoch {was.leader_epoch} -> {state.leader_epoch}"
    if was.leader != state.leader:
        parts.append(f"leader {leader_name(was.leader)} -> {leader_name(state.leader)} ({epochs})")
    elif was.leader_epoch != state.leader_epoch:
        parts.append(f"leader {leader_name(state.leader)} again ({epochs})")
    if was.replicas != state.replicas:
        parts.append(f"replicas {ids(was.replicas)} -> {ids(state.replicas)}")
    if set(was.isr) != set(state.isr):
        parts.append(f"ISR {ids(was.isr)} -> {ids(state.isr)}")
    if was.min_isr_in_force != state.min_isr_in_force:
        parts.append(f"min ISR {was.min_isr_in_force} -> {state.min_isr_in_force}")
    if was.severity != state.severity or state.severity is not Severity.OK:
        parts.append(f"now {state.state}")
    return ", ".join(parts)
