"""The changes of one version of the table, for people: a `Change` for each topic, partition or broker that changed.

A state between two polls is not seen by a poll; a cluster with a journal records it there (`barnabas explain`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from barnabas.monitor.change_set import BrokerChange, ChangeSet
from barnabas.monitor.columns import UNKNOWN, BoolArray, differing
from barnabas.monitor.delta import TopicName
from barnabas.monitor.ladder import min_isr_in_force
from barnabas.monitor.partition_state import PartitionState
from barnabas.monitor.severity import Severity
from barnabas.monitor.table import ClusterTable, values_of
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
    #: None for a partition's change, whose text follows from its states.
    words: str | None
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
    def text(self) -> str:
        """Returns the change as text."""
        if self.words is None and self.before is not None and self.after is not None:
            return _moves(self.before, self.after)
        return self.words or ""

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
            shown["partitions"] = [
                {"partition": state.partition, **(state_json(state) or {})} for state in self.created
            ]
        state = self.after or self.before
        if state is not None:
            shown |= {"partition": state.partition, "state": state.state if self.after else None}
            shown |= {"before": state_json(self.before), "after": state_json(self.after)}
        return shown


def state_json(state: PartitionState | None) -> dict[str, Any] | None:
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


def changes_of(change_set: ChangeSet, table: ClusterTable, *, with_changed: bool = True) -> list[Change]:
    """Returns the changes of brokers and the controller first, because they often cause the others; then topics, then
    partitions. `table` has this version, or a later one. Without `with_changed`, those of partitions whose state
    changed are left out.
    """
    return [
        *_controller(change_set),
        *_brokers(change_set, table),
        *_topics(change_set),
        *_gone(change_set),
        *(_changed(change_set) if with_changed else ()),
    ]


def _controller(change_set: ChangeSet) -> Iterator[Change]:
    if change_set.controller is not None:
        yield controller_change(*change_set.controller, change_set.time_ms)


def controller_change(before: int, after: int, time_ms: int, events: tuple[Event, ...] = ()) -> Change:
    text = f"active controller {leader_name(before)} -> {leader_name(after)}"
    severity = Severity.CRITICAL if after == NO_NODE else Severity.OK
    return Change("controller-change", "cluster", time_ms, text, severity, broker=after, events=events)


def _brokers(change_set: ChangeSet, table: ClusterTable) -> Iterator[Change]:
    for change in change_set.brokers:
        led = int(np.count_nonzero(table.states.leader[table.rows] == change.broker_id))
        found = broker_change(change, change_set.time_ms, led)
        if found is not None:
            yield found


def broker_change(change: BrokerChange, time_ms: int, led: int, events: tuple[Event, ...] = ()) -> Change | None:
    """Returns the change of a broker that leads `led` partitions; None if it is not worth a line."""
    described = _broker(change, led)
    if described is None:
        return None
    kind, text, severity = described
    subject = f"broker {change.broker_id}"
    return Change(kind, subject, time_ms, text, severity, broker=change.broker_id, events=events)


def _broker(change: BrokerChange, led: int) -> tuple[str, str, Severity] | None:
    was, now = change.before, change.after
    if now is None:
        return "broker-gone", "is gone", Severity.ERROR
    if was is None:
        return "broker-there", f"is up ({now.host}:{now.port})", Severity.OK
    if was.address != now.address:
        return "broker-moved", f"moved from {was.host}:{was.port} to {now.host}:{now.port}", Severity.OK
    if was.problem is None and now.problem is not None:
        leads = f"; it leads {led} partition{'' if led == 1 else 's'}" if led else ""
        severity = Severity.CRITICAL if led else Severity.WARNING
        return "broker-silent", f"does not answer: {now.problem}{leads}", severity
    if was.problem is not None and now.problem is None:
        return "broker-answers", "answers again", Severity.OK
    return None


def _topics(change_set: ChangeSet) -> Iterator[Change]:
    """Yields deleted, created and extended topics."""
    at_ms = change_set.time_ms
    for identity, _ in sorted(each for each in change_set.topic_changes if not each.is_created):
        yield deleted_change(identity, at_ms)
    new = {each.topic.name for each in change_set.topic_changes if each.is_created}
    created: dict[str, list[PartitionState]] = {}
    states = values_of(change_set.created, change_set.topics, change_set.silent_after)
    for state in sorted(states, key=lambda state: state.key):
        created.setdefault(state.topic, []).append(state)
    for topic, partitions in created.items():
        yield created_change(partitions, at_ms, is_new=topic in new)


def created_change(
    partitions: Sequence[PartitionState], time_ms: int, *, is_new: bool, events: tuple[Event, ...] = ()
) -> Change:
    """Returns the change of a topic that was created (`is_new`) or extended with these partitions."""
    count, topic = f"{len(partitions)} partition{'' if len(partitions) == 1 else 's'}", partitions[0].topic
    return Change(
        "topic-created" if is_new else "partitions-added",
        topic,
        time_ms,
        f"was created with {count}" if is_new else f"has {count} more",
        max(state.severity for state in partitions),
        created=tuple(partitions),
        topic=topic,
        topic_id=partitions[0].topic_id,
        events=events,
    )


def deleted_change(topic: TopicName, time_ms: int, events: tuple[Event, ...] = ()) -> Change:
    return Change(
        "topic-deleted", topic.name, time_ms, "was deleted", topic=topic.name, topic_id=topic.topic_id, events=events
    )


def _gone(change_set: ChangeSet) -> Iterator[Change]:
    at_ms, topics = change_set.time_ms, change_set.topics
    deleted = {each.topic for each in change_set.topic_changes if not each.is_created}
    is_left = np.array([topics[topic] not in deleted for topic in change_set.removed.topic.tolist()], np.bool_)
    if is_left.any():
        for was in values_of(change_set.removed.take(is_left), topics, change_set.silent_before):
            yield gone_change(was, at_ms)


def _changed(change_set: ChangeSet) -> Iterator[Change]:
    at_ms, topics, visible = change_set.time_ms, change_set.topics, is_visible(change_set)
    before = values_of(change_set.before.take(visible), topics, change_set.silent_before)
    after = values_of(change_set.after.take(visible), topics, change_set.silent_after)
    for was, state in sorted(zip(before, after, strict=True), key=lambda pair: pair[0].key):
        yield partition_change(was, state, at_ms)


def gone_change(was: PartitionState, time_ms: int, events: tuple[Event, ...] = ()) -> Change:
    return Change("partition-gone", str(was.key), time_ms, "is gone", before=was, topic=was.topic, events=events)


def partition_change(
    was: PartitionState, state: PartitionState, time_ms: int, events: tuple[Event, ...] = ()
) -> Change:
    """Returns the change of a partition from one state to another."""
    return Change(
        _kind(was, state),
        str(state.key),
        time_ms,
        None,
        state.severity,
        before=was,
        after=state,
        topic=state.topic,
        topic_id=state.topic_id,
        events=events,
    )


def is_visible(change_set: ChangeSet) -> BoolArray:
    """Returns which changed rows differ in anything that views show: lists of offline or eligible replicas do not
    count, nor a min ISR that was unknown before.
    """
    before, after = change_set.before, change_set.after
    found: BoolArray = differing(before, after, frozenset())
    found |= (before.min_isr != UNKNOWN) & (min_isr_in_force(before) != min_isr_in_force(after))
    return found


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
