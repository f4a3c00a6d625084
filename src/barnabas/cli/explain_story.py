"""The explanation of a partition's state from the events of the journal (docs/explain.md): pure functions, for text and
JSON.

The last event that changed the leader explains the leader; the last event in which a replica left or joined the ISR
explains its membership. State that no event has changed dates from the creation of the topic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from barnabas.cli.leaderless import way_out
from barnabas.cli.root_causes import REPORTS, RootCause, root_cause
from barnabas.monitor.texts import NO_NODE, at, ids, leader_name

Event = dict[str, Any]

_BROKER_KINDS = frozenset(
    {"broker-registered", "broker-fenced", "broker-unfenced", "broker-unregistered", "controlled-shutdown", *REPORTS}
)


@dataclass(frozen=True, slots=True)
class Present:
    """The current state of a partition, from the metadata."""

    topic: str
    partition: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]

    @property
    def out_of_sync(self) -> tuple[int, ...]:
        return tuple(replica for replica in self.replicas if replica not in self.isr)


@dataclass(frozen=True, slots=True)
class Explanation:
    """The explanation of one partition's leader and ISR. `leader_event` and the events in `members` are None if the
    journal has none.
    """

    present: Present
    leader_event: Event | None
    #: Replica -> the event that brought it into or out of the ISR.
    members: dict[int, Event | None]
    #: All events about the partition, oldest first.
    history: list[Event] = field(default_factory=list)
    #: Whether the last event and the metadata agree.
    is_current: bool = True
    #: Event id -> the cause behind that event, for the events that explain the leader and the members.
    root_causes: dict[str, RootCause] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """Whether the leader and each member of the ISR are explained."""
        return self.leader_event is not None and all(event is not None for event in self.members.values())

    def to_json(self) -> dict[str, Any]:
        present = self.present
        return {
            "topic": present.topic,
            "partition": present.partition,
            "leader": present.leader,
            "replicas": list(present.replicas),
            "isr": list(present.isr),
            "out_of_sync": list(present.out_of_sync),
            "leader_because": self.leader_event,
            "isr_because": {
                str(replica): {"in_sync": replica in present.isr, "event": event}
                for replica, event in self.members.items()
            },
            "is_current": self.is_current,
            "root_causes": {name: cause.to_json() for name, cause in self.root_causes.items()},
            "history": self.history,
        }


def explain(present: Present, events: Sequence[Event]) -> Explanation:
    """Explains a partition's leader and ISR. `events` are distinct and sorted."""
    own = [event for event in events if is_about(event, present.topic, present.partition)]
    own = _of_last_topic(own)
    changes = [event for event in own if "before" in event and "after" in event and "partition" in event]
    created = next((event for event in own if _creates(event, present.partition)), None)
    leader_event = next((event for event in reversed(changes) if _elects(event)), None)
    if leader_event is None and created is not None:
        leader_event = created
    if leader_event is not None and _leader_after(leader_event, present.partition) != present.leader:
        leader_event = None
    members = {replica: _member_event(changes, created, present, replica) for replica in present.replicas}
    last = changes[-1]["after"] if changes else None
    is_current = last is None or (last["leader"] == present.leader and set(last["isr"]) == set(present.isr))
    shown = {event["id"] for event in own}
    begin = next((index for index, event in enumerate(events) if event["id"] in shown), 0)
    history = [
        event
        for event in events[begin:]
        if event["id"] in shown or event["kind"] == "journal-gap" or _is_of_broker(event, present.replicas)
    ]
    explaining = {event["id"]: event for event in (leader_event, *members.values()) if event is not None}
    of_brokers = [event for event in events if "broker" in event]
    causes = {name: found for name, event in explaining.items() if (found := root_cause(event, of_brokers)) is not None}
    return Explanation(present, leader_event, members, history, is_current, causes)


def is_about(event: Event, topic: str, partition: int) -> bool:
    if event["kind"] == "config-changed":
        return bool(event["resource"] == "topic" and event["name"] == topic)
    if event.get("topic") != topic:
        return False
    if "first_partition" in event:
        return _creates(event, partition) or (event["kind"] == "topic-created" and event["first_partition"] == 0)
    return bool(event.get("partition", partition) == partition)


def _of_last_topic(events: list[Event]) -> list[Event]:
    """Returns the events without those of an earlier topic with the same name."""
    ids = [event["topic_id"] for event in events if "topic_id" in event]
    if not ids:
        return events
    begin = next(index for index, event in enumerate(events) if event.get("topic_id") == ids[-1])
    return [event for event in events[begin:] if event.get("topic_id", ids[-1]) == ids[-1]]


def _creates(event: Event, partition: int) -> bool:
    first = event.get("first_partition")
    return first is not None and first <= partition < first + event["partitions"]


def _elects(event: Event) -> bool:
    return bool(event["before"]["leader"] != event["after"]["leader"])


def _leader_after(event: Event, partition: int) -> int:
    if "first_partition" in event:
        return int(event["leaders"][partition - event["first_partition"]])
    return int(event["after"]["leader"])


def _member_event(changes: list[Event], created: Event | None, present: Present, replica: int) -> Event | None:
    is_in = replica in present.isr
    for event in reversed(changes):
        was, became = replica in event["before"]["isr"], replica in event["after"]["isr"]
        if was != became:
            return event if became == is_in else None
    if created is None:
        return None
    was_in = replica in created["isrs"][present.partition - created["first_partition"]]
    return created if was_in == is_in else None


def _is_of_broker(event: Event, brokers: Sequence[int]) -> bool:
    return event["kind"] in _BROKER_KINDS and event["broker"] in brokers


# Text output.

_INFERRED: Final = " (derived from the metadata by a later controller)"
_INFERRED_BY_BROKER: Final = " (inferred by a broker: this controller keeps no journal)"


class Statement(NamedTuple):
    """A sentence about a partition: a state, the time since when it holds, and its cause."""

    what: str
    #: The time since when this holds; None if the journal does not say.
    time_ms: int | None
    why: str

    def __str__(self) -> str:
        since = "" if self.time_ms is None else f" since {at(self.time_ms)}"
        return f"{self.what}{since}{self.why}"


def lines_of(explanation: Explanation, since_ms: int = 0) -> list[str]:
    present = explanation.present
    lines = [
        f"{present.topic}-{present.partition}: {leader_text(present.leader)}, replicas {ids(present.replicas)}, "
        f"in sync {ids(present.isr)}" + (f", out of sync {ids(present.out_of_sync)}" if present.out_of_sync else ""),
        "",
        str(why_leader(explanation)),
        *on_preferred(explanation),
        *on_leaderless(explanation),
        *(str(why_member(explanation, replica)) for replica in present.replicas),
    ]
    lines += [f"Root cause: {cause}." for cause in dict.fromkeys(map(str, explanation.root_causes.values()))]
    if not explanation.is_current:
        lines += ["", "The last event about this partition differs from the metadata; the journal may be behind."]
    shown = [event for event in explanation.history if event["time_ms"] >= since_ms]
    if shown:
        lines += ["", "What happened:"]
        lines += [f"  {at(event['time_ms'])}  {event_text(event)}" for event in shown]
    return lines


def why_leader(explanation: Explanation) -> Statement:
    event, leader = explanation.leader_event, explanation.present.leader
    who = "No broker leads" if leader == NO_NODE else f"Broker {leader} leads"
    if event is None:
        return Statement(who, None, "; no recorded event says why.")
    if "first_partition" in event:
        return Statement(who, event["time_ms"], ", when the partition was created: it was its first eligible replica.")
    before = event["before"]["leader"]
    after_whom = f" (before: {leader_text(before)})" if before != leader else ""
    return Statement(who, event["time_ms"], f"{after_whom}, {_because(event)}")


def on_preferred(explanation: Explanation) -> list[str]:
    present = explanation.present
    preferred = present.replicas[0] if present.replicas else NO_NODE
    if present.leader in (preferred, NO_NODE):
        return []
    if preferred in present.isr:
        return [f"Broker {preferred} is preferred and in sync: the next preferred election moves leadership there."]
    return [f"Broker {preferred} is preferred, but not in sync."]


def on_leaderless(explanation: Explanation) -> list[str]:
    """Returns the action that gives a partition without a leader one again."""
    present = explanation.present
    if present.leader != NO_NODE:
        return []
    after: dict[str, Any] = next((event["after"] for event in reversed(explanation.history) if "after" in event), {})
    remedy = way_out(present.isr, after.get("elr", ()), after.get("last_known_elr", ()))
    return [f"To have a leader again, {remedy}."]


def why_member(explanation: Explanation, replica: int) -> Statement:
    event, is_in = explanation.members[replica], replica in explanation.present.isr
    what = f"Replica {replica} is {'in sync' if is_in else 'out of sync'}"
    if event is None:
        return Statement(what, None, "; no recorded event says since when.")
    if "first_partition" in event:
        return Statement(what, event["time_ms"], ", when the partition was created.")
    return Statement(what, event["time_ms"], f", {_because(event)}")


def _because(event: Event) -> str:
    """Formats the cause; a cause that a broker inferred from the requests of a controller of Apache Kafka is only
    probable.
    """
    is_probable = event.get("inferred") and "metadata_offset" not in event
    return f"probably because {event['text']} (inferred)." if is_probable else f"because {event['text']}."


def event_text(event: Event) -> str:
    """Formats one event of the journal as one line."""
    text = str(event["text"])
    if event.get("inferred"):
        text += _INFERRED if "metadata_offset" in event else _INFERRED_BY_BROKER
    if "first_partition" in event:
        return f"{event['kind']}: {text}"
    if "partition" in event and "before" in event:
        return f"{_moves(event)}: {text}"
    if event["kind"] == "config-changed":
        changed = ", ".join(f"{key} {event['before'][key]} -> {value}" for key, value in event["after"].items())
        return f"config-changed: {changed}"
    return f"{event['kind']}: {text}"


def _moves(event: Event) -> str:
    before, after = event["before"], event["after"]
    parts = []
    if before["leader_epoch"] != after["leader_epoch"]:
        epochs = f"epoch {before['leader_epoch']} -> {after['leader_epoch']}"
        same = before["leader"] == after["leader"]
        move = "again" if same else f"-> {leader_name(after['leader'])}"
        parts.append(f"leader {leader_name(before['leader'])} {move} ({epochs})")
    for what in ("isr", "replicas", "elr", "adding", "removing"):
        if before.get(what, []) != after.get(what, []):
            name = "ISR" if what == "isr" else "ELR" if what == "elr" else what
            parts.append(f"{name} {ids(before.get(what, []))} -> {ids(after.get(what, []))}")
    return f"{event['kind']}, {', '.join(parts)}" if parts else str(event["kind"])


def leader_text(leader: int) -> str:
    return "no leader" if leader == NO_NODE else f"leader {leader}"


# Text about a broker.


def broker_lines(broker: int, events: Sequence[Event], since_ms: int = 0) -> list[str]:
    """Returns the events about a broker, and how many partitions each one changed."""
    lines = []
    own = [number for number, event in enumerate(events) if event.get("broker") == broker]
    for number, following in zip(own, [*own[1:], len(events)], strict=True):
        event = events[number]
        if event["time_ms"] < since_ms:
            continue
        changed = [each for each in events[number + 1 : following] if _is_changed_by(each, event)]
        moved = sum(_elects(each) for each in changed)
        noun = "partition" if len(changed) == 1 else "partitions"
        counts = f" ({len(changed)} {noun} changed, {moved} of them the leader)" if changed else ""
        lines.append(f"{at(event['time_ms'])}  {event['kind']}: {event['text']}{counts}")
        cause = root_cause(event, events)
        if cause is not None:
            lines.append(f"{' ' * len(at(event['time_ms']))}  root cause: {cause}")
    return lines


def _is_changed_by(event: Event, of_broker: Event) -> bool:
    """Returns whether a partition's event is due to an event of a broker: one decision made both, or in ZooKeeper mode
    a later one with the same cause.
    """
    if "partition" not in event or "metadata_offset" not in event:
        return False
    same_decision = event["metadata_offset"] == of_broker.get("metadata_offset")
    return same_decision or str(event["text"]).startswith(str(of_broker["text"]))
