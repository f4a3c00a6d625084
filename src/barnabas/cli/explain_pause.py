"""The causes of a pause that a client had: when partitions of a topic could not be written or read in that time.

A pause of a client has three parts: the time until the controller noticed that the leader was gone, the time until
another one was elected, and the time until the client learned of it. The journal has the first two. Pure functions of
the events.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from barnabas.cli.explain_story import Event
from barnabas.cli.root_causes import RootCause, root_cause
from barnabas.monitor.texts import NO_NODE, at

#: How long before a pause its causes can have begun; the journal is read from there on.
BEFORE_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class Outage:
    """A time in which a partition could not be written. `begin_ms` is None if the journal does not say when it began,
    `end_ms` if it lasts.
    """

    partition: int
    #: "leader-silent", "no-leader" or "under-min-isr".
    kind: str
    begin_ms: int | None
    end_ms: int | None
    event: Event
    cause: RootCause | None

    def overlaps(self, from_ms: int, to_ms: int) -> bool:
        begin_ms = self.begin_ms if self.begin_ms is not None else (self.end_ms or 0) - BEFORE_MS
        return begin_ms <= to_ms and (self.end_ms is None or self.end_ms >= from_ms)

    def lines(self, topic: str) -> list[str]:
        before, after = self.event["before"], self.event["after"]
        what = {
            "leader-silent": f"its leader, broker {before['leader']}, did not serve",
            "no-leader": "it had no leader",
            "under-min-isr": f"it had {len(after['isr'])} in-sync replicas, and needs {self.event.get('min_isr', 1)}",
        }[self.kind]
        begin = "an unknown time" if self.begin_ms is None else at(self.begin_ms)
        end = "now" if self.end_ms is None else at(self.end_ms)
        lasted = ""
        if self.begin_ms is not None and self.end_ms is not None:
            lasted = f" ({(self.end_ms - self.begin_ms) / 1000:.1f} s)"
        found = [f"{topic}-{self.partition}: {what} from {begin} to {end}{lasted}, because {self.event['text']}."]
        if self.cause is not None:
            found.append(f"  Root cause: {self.cause}.")
        if self.kind == "leader-silent" and after["leader"] != NO_NODE:
            leads = f"  Broker {after['leader']} leads since then"
            found.append(f"{leads}; a client uses it after its next metadata request.")
        return found

    def to_json(self) -> dict[str, Any]:
        return {
            "partition": self.partition,
            "kind": self.kind,
            "begin_ms": self.begin_ms,
            "end_ms": self.end_ms,
            "because": self.event,
            "root_cause": None if self.cause is None else self.cause.to_json(),
        }


def outages(topic: str, events: Sequence[Event], from_ms: int, to_ms: int) -> list[Outage]:
    """Returns the outages of a topic's partitions that overlap a time, by partition and time."""
    of_brokers = [event for event in events if "broker" in event]
    changes: dict[int, list[Event]] = {}
    for event in events:
        if event.get("topic") == topic and "partition" in event and "before" in event and "after" in event:
            changes.setdefault(int(event["partition"]), []).append(event)
    found = [
        outage
        for partition, own in sorted(changes.items())
        for outage in _of_partition(partition, own, of_brokers)
        if outage.overlaps(from_ms, to_ms)
    ]
    return sorted(found, key=lambda outage: (outage.partition, outage.begin_ms or outage.end_ms or 0))


def _of_partition(partition: int, changes: Sequence[Event], of_brokers: Sequence[Event]) -> Iterator[Outage]:
    for number, event in enumerate(changes):
        before, after = event["before"], event["after"]
        cause = root_cause(event, of_brokers)
        time_ms = int(event["time_ms"])
        if cause is not None and before["leader"] not in (NO_NODE, after["leader"]):
            yield Outage(partition, "leader-silent", _begin_of(cause, time_ms), time_ms, event, cause)
        following = changes[number + 1 :]
        if after["leader"] == NO_NODE and before["leader"] != NO_NODE:
            end_ms = next((each["time_ms"] for each in following if each["after"]["leader"] != NO_NODE), None)
            yield Outage(partition, "no-leader", time_ms, end_ms, event, cause)
        elif len(after["isr"]) < event.get("min_isr", 1) <= len(before["isr"]):
            end_ms = next((each["time_ms"] for each in following if _has_min_isr(each)), None)
            yield Outage(partition, "under-min-isr", time_ms, end_ms, event, cause)


def _begin_of(cause: RootCause, time_ms: int) -> int | None:
    """Returns the time at which the leader stopped serving, according to its broker's reports."""
    begins = [int(event["begin_ms"]) for event in cause.evidence if "begin_ms" in event]
    return min((begin_ms for begin_ms in begins if begin_ms <= time_ms), default=None)


def _has_min_isr(event: Event) -> bool:
    return bool(len(event["after"]["isr"]) >= event.get("min_isr", 1))
