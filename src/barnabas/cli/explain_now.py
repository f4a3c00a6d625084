"""The list of all that is not well now, one cause each: partitions without a leader or with replicas out of sync,
brokers that are fenced, and states that brokers report and that have not ended. Pure functions of metadata and events.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from barnabas.cli.explain_story import Event, Explanation, Present, explain, on_leaderless
from barnabas.cli.root_causes import REPORTS, RootCause, root_cause
from barnabas.monitor.merged_texts import merged, skeleton
from barnabas.monitor.texts import NO_NODE, at

_GONE: Final = frozenset({"broker-fenced", "broker-unregistered"})
_THERE: Final = frozenset({"broker-unfenced", "broker-registered"})
_REMEDIES: Final = {
    "controlled-shutdown": "start broker {broker} again",
    "broker-full": "free space in the log directory of broker {broker}, or lower the retention",
    "directory-lost": "replace the disk of broker {broker}, and start it again",
    "disk-full": "free space in the log directory of broker {broker}, or lower the retention",
    "disk-slow": "check the disk of broker {broker}",
    "disk-failed": "replace the disk of broker {broker}, and start it again",
    "throttled": "raise the replication throttle, or remove it if no reassignment runs",
    "link-lost": "check the network between brokers {broker} and {peer}",
    "overloaded": "give broker {broker} more CPU, or move leaderships away from it",
}
_UNKNOWN_REMEDY: Final = "see whether broker {broker} runs and can be reached"


@dataclass(slots=True)
class Trouble:
    """A problem of one or more partitions, with its cause. `event` is None if the journal has no
    event about it.
    """

    what: str
    remedy: str
    event: Event | None
    cause: RootCause | None = None
    partitions: list[tuple[str, int]] = field(default_factory=list)
    since_ms: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    @property
    def subject(self) -> str:
        if not self.partitions:
            return ""
        topics = dict.fromkeys(topic for topic, _ in self.partitions)
        if len(self.partitions) == 1:
            return f"{self.partitions[0][0]}-{self.partitions[0][1]}: "
        where = next(iter(topics)) if len(topics) == 1 else f"{len(topics)} topics"
        return f"{len(self.partitions)} partitions of {where}: "

    def lines(self) -> list[str]:
        since = f" since {at(min(self.since_ms))}" if self.since_ms else ""
        why = f", because {merged(self.texts)}" if self.texts else "; no recorded event says why"
        found = [f"{self.subject}{self.what}{since}{why}."]
        if self.cause is not None:
            found.append(f"  Root cause: {self.cause}.")
        return [*found, f"  To end it, {self.remedy}."]

    def to_json(self) -> dict[str, Any]:
        return {
            "what": self.what,
            "partitions": [f"{topic}-{partition}" for topic, partition in self.partitions],
            "since_ms": min(self.since_ms, default=None),
            "because": None if self.event is None else self.event,
            "root_cause": None if self.cause is None else self.cause.to_json(),
            "remedy": self.remedy,
        }


def is_well(present: Present) -> bool:
    return present.leader != NO_NODE and not present.out_of_sync


class Now:
    """The troubles of a cluster: `partitions` are those with a problem, `events` distinct and sorted."""

    def __init__(self, partitions: Iterable[Present], events: Sequence[Event]) -> None:
        self._of_brokers = [event for event in events if "broker" in event]
        self._explanations = _explanations(partitions, events, self._of_brokers)
        self._lost = self._lost_brokers()

    @property
    def is_complete(self) -> bool:
        """Whether the journal has an event that explains each trouble of a partition."""
        return all(event is not None for each in self._explanations for _, event in self._reasons(each))

    def troubles(self) -> list[Trouble]:
        """Returns the partitions' troubles, those without a leader first, then those of brokers."""
        groups: dict[tuple[object, ...], Trouble] = {}
        for each in self._explanations:
            for replica, event in self._reasons(each):
                self._add(groups, each, replica, event)
        leaderless_first = sorted(groups.items(), key=lambda item: item[0][0] != NO_NODE)
        lost = [
            self._of_broker(f"Broker {broker} is not in the cluster", event)
            for broker, event in sorted(self._lost.items())
        ]
        return [*(trouble for _, trouble in leaderless_first), *lost, *self._reported()]

    def _reasons(self, each: Explanation) -> list[tuple[int, Event | None]]:
        """Returns the problems of a partition, each with the event that explains it: -1 for no leader, or the id of a
        replica. A replica that was never in sync is explained by the loss of its broker.
        """
        if each.present.leader == NO_NODE:
            return [(NO_NODE, each.leader_event)]
        found = []
        for replica in each.present.out_of_sync:
            event = each.members[replica]
            was_never_there = event is not None and "first_partition" in event
            found.append((replica, self._lost.get(replica, event) if was_never_there else event))
        return found

    def _add(
        self, groups: dict[tuple[object, ...], Trouble], each: Explanation, replica: int, event: Event | None
    ) -> None:
        text = "" if event is None else str(event["text"])
        cause = None if event is None else each.root_causes.get(event["id"]) or root_cause(event, self._of_brokers)
        key = (replica, skeleton(text), None if cause is None else (cause.code, cause.component, cause.certainty))
        trouble = groups.get(key)
        if trouble is None:
            trouble = groups[key] = _trouble(each, replica, event, cause)
        trouble.partitions.append((each.present.topic, each.present.partition))
        if event is not None:
            trouble.since_ms.append(int(event["time_ms"]))
            trouble.texts.append(text)

    def _lost_brokers(self) -> dict[int, Event]:
        """Returns the brokers that are not in the cluster, each with the event that says so."""
        last: dict[int, Event] = {}
        for event in self._of_brokers:
            if event["kind"] in _GONE or event["kind"] in _THERE:
                last[int(event["broker"])] = event
        return {
            broker: event
            for broker, event in last.items()
            if event["kind"] in _GONE and event.get("cause") != "unregister-asked"
        }

    def _of_broker(self, what: str, event: Event) -> Trouble:
        cause = root_cause(event, self._of_brokers)
        remedy = _remedy(event, int(event["broker"])) if cause is None else cause.remedy
        return Trouble(what, remedy, event, cause, [], [int(event["time_ms"])], [str(event["text"])])

    def _reported(self) -> list[Trouble]:
        """Returns the states that brokers report and that have not ended: a broker that starts again ends its own."""
        lasting: dict[tuple[object, ...], Event] = {}
        for event in self._of_brokers:
            broker = event["broker"]
            if event["kind"] == "broker-registered":
                lasting = {key: each for key, each in lasting.items() if key[0] != broker}
            if event["kind"] in REPORTS:
                key = broker, event["kind"], event.get("peer"), event.get("directory"), event.get("side")
                if "end_ms" in event:
                    lasting.pop(key, None)
                else:
                    lasting[key] = event
        return [
            Trouble(
                f"Broker {event['broker']} reports {event['kind']}",
                _remedy(event, int(event["broker"])),
                event,
                None,
                [],
                [int(event["begin_ms"])],
                [str(event["text"])],
            )
            for event in lasting.values()
        ]


def _trouble(each: Explanation, replica: int, event: Event | None, cause: RootCause | None) -> Trouble:
    if replica == NO_NODE:
        (hint,) = on_leaderless(each)
        remedy = hint.removeprefix("To have a leader again, ").removesuffix(".")
        return Trouble("No broker leads", remedy, event, cause)
    remedy = _remedy(event, replica) if cause is None else cause.remedy
    return Trouble(f"Replica {replica} is out of sync", remedy, event, cause)


def _remedy(event: Event | None, broker: int) -> str:
    code = None if event is None else str(event.get("cause"))
    text = _REMEDIES.get(code or "", _UNKNOWN_REMEDY)
    return text.format(broker=broker, peer="" if event is None else event.get("peer", ""))


def _explanations(
    partitions: Iterable[Present], events: Sequence[Event], of_brokers: Sequence[Event]
) -> list[Explanation]:
    """Explains partitions, each from the events about itself, its topic and brokers."""
    #: Topic and partition, None for events about the whole topic -> events with their places.
    own: dict[tuple[str, int | None], list[tuple[int, Event]]] = {}
    for place, event in enumerate(events):
        if "topic" in event:
            own.setdefault((event["topic"], event.get("partition")), []).append((place, event))
    found = []
    for present in partitions:
        placed = [*own.get((present.topic, None), ()), *own.get((present.topic, present.partition), ())]
        placed.sort(key=_place)
        found.append(explain(present, [*of_brokers, *(event for _, event in placed)]))
    return found


def _place(placed: tuple[int, Event]) -> int:
    return placed[0]
