"""Why it happened: the cause behind a decision, from what brokers report about themselves (docs/explain.md).

The journal says why the controller decided: no heartbeat arrived, a follower lagged. A pause, a lost link, a slow disk
and an overloaded broker all look like that from outside. Self-reports distinguish them, often only after the broker has
returned: the same question then has a better answer. Pure functions of the events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from barnabas.monitor.texts import at, ids

Event = dict[str, Any]

CERTAIN: Final = "certain"
LIKELY: Final = "likely"
UNKNOWN: Final = "unknown"

#: The causes of a broker's loss that say only that it was lost.
_LOSSES: Final = frozenset({"session-expired", "broker-gone", "session-ended", "process-ended"})
#: Losses after which no process listened at the address of the broker.
_REFUSED: Final = frozenset({"broker-gone", "process-ended"})
_DISKS: Final = frozenset({"disk-slow", "disk-full", "disk-failed"})
REPORTS: Final = frozenset(
    {
        *_DISKS,
        "stalled",
        "overloaded",
        "starved",
        "clock-jumped",
        "link-lost",
        "link-slow",
        "link-lossy",
        "burst",
        "throttled",
        "recovering",
    }
)
#: How long before a decision a state can have ended that is its cause.
_BEFORE_MS: Final = 10_000
#: The clocks of two brokers can differ by so much, and a stall is dated up to a second late.
_SKEW_MS: Final = 1_500
#: A state that is reported later than this after the decision was not known when it was made.
_HINDSIGHT_MS: Final = 2_000

_REMEDIES: Final = {
    "paused": "find what stops the process of {who}: a signal, a suspended machine, a debugger",
    "busy": "find what the process of {who} did then: its log names turns of more than 100 ms",
    "overloaded": "give {who} more CPU, or move leaderships away from it",
    "starved": "find the other processes that use the CPU of {who}",
    "link-lost": "check the network of {who}",
    "link-one-way": "check the routes and packet filters of {who}, in this direction",
    "link-slow": "check the network of {who}",
    "link-lossy": "check the network of {who}: cables, duplex modes, full queues",
    "power-lost": "check the power of the machine of {who}, and its system log",
    "disk-lost": "{who} copies its replicas again; keep the others running meanwhile",
    "clock-jumped": "check the time synchronization of {who}",
    "decommissioned": "nothing needs to be done",
    "restarted": "nothing needs to be done",
    "unclean-election": "find the lost records of {who}; keep min.insync.replicas above 1, or forbid unclean elections",
    "burst": "limit the producers of {who} by a quota, or add partitions",
    "election-asked": "nothing needs to be done",
    "reassignment-asked": "nothing needs to be done",
    "config-asked": "set the former value again if the change was a mistake",
    "crashed": "start {who} again, and read the end of its log",
    "stopped": "start {who} again",
    "disk-full": "free space in the log directory, or lower the retention",
    "disk-slow": "check the disk of {who}",
    "disk-failed": "replace the disk of {who}, and start it again",
    "throttled": "raise the replication throttle of {who}, or remove it if no reassignment runs",
    UNKNOWN: "see whether {who} runs and can be reached",
}


@dataclass(frozen=True, slots=True)
class RootCause:
    """The cause behind an event. `evidence` are the events that show it; `is_hindsight` says that one of them was
    written some time after the event.
    """

    code: str
    component: str
    certainty: str
    text: str
    evidence: tuple[Event, ...] = ()
    is_hindsight: bool = False

    @property
    def remedy(self) -> str:
        return _REMEDIES[self.code].format(who=self.component)

    def to_json(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "component": self.component,
            "certainty": self.certainty,
            "text": self.text,
            "in_hindsight": self.is_hindsight,
            "evidence": [event["id"] for event in self.evidence],
            "remedy": self.remedy,
        }

    def __str__(self) -> str:
        if self.certainty == UNKNOWN:
            return f"unknown: {self.text}"
        hint = ", known since its return" if self.is_hindsight else ""
        return f"{self.code} ({self.certainty}{hint}): {self.text}"


def root_cause(event: Event, events: Sequence[Event]) -> RootCause | None:
    """Returns the cause behind an event of a partition or a broker; None if the event itself says all."""
    if event.get("cause") in _LOSSES:
        lost = _lost_broker(event, events)
        return None if lost is None else _of_loss(lost, event, events)
    if event.get("cause") == "follower-lagged" and "before" in event:
        left = [replica for replica in event["before"]["isr"] if replica not in event["after"]["isr"]]
        return _of_lag(left, int(event["after"]["leader"]), event, events) if left else None
    return None


def _lost_broker(event: Event, events: Sequence[Event]) -> int | None:
    """Returns the broker whose loss caused the event."""
    if "broker" in event:
        return int(event["broker"])
    same = (each for each in events if each.get("metadata_offset") == event.get("metadata_offset"))
    found = next((each["broker"] for each in same if "broker" in each), None)
    if found is None and "before" in event:
        left = [replica for replica in event["before"]["isr"] if replica not in event["after"]["isr"]]
        found = left[0] if len(left) == 1 else None
    return None if found is None else int(found)


def _reports(
    events: Iterable[Event], broker: int, from_ms: int, to_ms: int, kinds: frozenset[str] = REPORTS
) -> list[Event]:
    """Returns the last self-report of each state of a broker that overlaps a time."""
    found: dict[tuple[object, ...], Event] = {}
    for event in events:
        if event["kind"] in kinds and event.get("broker") == broker and "begin_ms" in event:
            key = event["kind"], event.get("peer"), event.get("directory"), event.get("side"), event["begin_ms"]
            if event["begin_ms"] <= to_ms and event.get("end_ms", to_ms) >= from_ms:
                found[key] = event
    return list(found.values())


def _made(code: str, component: str, certainty: str, evidence: Sequence[Event], event: Event) -> RootCause:
    text = "; ".join(dict.fromkeys(str(each["text"]) for each in evidence))
    reported_ms = max((_reported_ms(each) for each in evidence), default=0)
    return RootCause(code, component, certainty, text, tuple(evidence), reported_ms > event["time_ms"] + _HINDSIGHT_MS)


def _reported_ms(event: Event) -> int:
    return int(event["reported_ms"] if "reported_ms" in event else event["time_ms"])


# The loss of a broker


def _of_loss(broker: int, event: Event, events: Sequence[Event]) -> RootCause:
    at_ms, who = int(event["time_ms"]), f"broker {broker}"
    own = _reports(events, broker, at_ms - _SKEW_MS, at_ms + _SKEW_MS)
    stalls = [each for each in own if each["kind"] == "stalled"]
    if stalls:
        return _of_stall(stalls, who, event)
    links = [each for each in own if each["kind"] == "link-lost"]
    if links:
        return _of_links(links, who, event)
    loads = [each for each in own if each["kind"] in ("starved", "overloaded")]
    if loads:
        return _made(str(loads[0]["kind"]), who, LIKELY, loads, event)
    return _of_restart(broker, event, events)


def _of_stall(stalls: list[Event], who: str, event: Event) -> RootCause:
    longest = max(stalls, key=lambda each: int(each["duration_ms"]))
    code = {"paused": "paused", "busy": "busy", "starved": "starved"}[longest["how"]]
    return _made(code, who, CERTAIN, [longest], event)


def _of_links(links: list[Event], who: str, event: Event) -> RootCause:
    peers = sorted({int(each["peer"]) for each in links})
    made = _made("link-lost", who, CERTAIN if len(peers) > 1 else LIKELY, links, event)
    lasted_s = max(int(each["duration_ms"]) for each in links) / 1000
    return replace(made, text=f"{who} ran and got no answer from {_brokers(peers)} for {lasted_s:.1f} s")


def _of_restart(broker: int, event: Event, events: Sequence[Event]) -> RootCause:
    """Returns what the next start of the broker shows: only a process that ended starts again."""
    at_ms, who = int(event["time_ms"]), f"broker {broker}"
    later = [each for each in events if each.get("broker") == broker and each["time_ms"] >= at_ms]
    start = next((each for each in later if each["kind"] == "broker-registered"), None)
    back = next((each for each in later if each["kind"] == "broker-unfenced"), None)
    is_refused = event["cause"] in _REFUSED
    if start is not None and (back is None or start["time_ms"] <= back["time_ms"]):
        found = at_restart(start, events, event)
        if found is not None:
            return found
        return _made("stopped", who, CERTAIN if is_refused else LIKELY, [start, *_recovery(start, events)], event)
    if is_refused and back is None:
        text = f"no process listened at the address of {who}, which has not started again"
        return RootCause("crashed", who, LIKELY, text, (event,))
    if back is not None:
        text = f"{who} is back since {at(back['time_ms'])} without a new start, and reported nothing about that time"
        return RootCause(UNKNOWN, who, UNKNOWN, text, (event, back))
    silent = [each for each in _reports_about(broker, events, at_ms) if each["kind"] == "link-lost"]
    text = f"{who} sent no heartbeat, and has not returned: it can be paused, cut off or without power"
    return RootCause(UNKNOWN, who, UNKNOWN, text, (event, *silent))


def at_restart(start: Event, events: Sequence[Event], loss: Event | None = None) -> RootCause | None:
    """Returns how the former process of a broker ended, as its next start shows it; None if it was stopped."""
    who = f"broker {start['broker']}"
    if start.get("new_directories"):
        text = f"{who} has started with other log directories than before: its disks are new, or were emptied"
        return RootCause("disk-lost", who, CERTAIN, text, (start,))
    if start["cause"] != "unclean-shutdown":
        return None
    recovery = _recovery(start, events)
    is_refused = loss is not None and loss["cause"] in _REFUSED
    made = _made("crashed", who, CERTAIN if is_refused or recovery else LIKELY, [start, *recovery], loss or start)
    up_ms = int(recovery[0].get("machine_up_ms", 0)) if recovery else 0
    began_ms = int(start["time_ms"]) if loss is None else int(loss["time_ms"])
    if up_ms and not is_refused and loss is not None and start["time_ms"] - up_ms > began_ms - _BEFORE_MS:
        text = f"{who} has started {up_ms / 1000:.1f} s after its machine, which was lost with it"
        return replace(made, code="power-lost", text=text)
    return made


def _recovery(start: Event, events: Sequence[Event]) -> list[Event]:
    """Returns the broker's report of this start, which it writes at about the time of its registration."""
    found = [
        each
        for each in events
        if each["kind"] == "recovering"
        and each.get("broker") == start["broker"]
        and abs(each["time_ms"] - start["time_ms"]) < _BEFORE_MS
    ]
    return found[:1]


def _reports_about(peer: int, events: Iterable[Event], at_ms: int) -> list[Event]:
    """Returns the reports of others about a peer at that time."""
    return [
        each
        for each in events
        if each.get("peer") == peer
        and each["begin_ms"] <= at_ms + _SKEW_MS
        and each.get("end_ms", at_ms) >= at_ms - _SKEW_MS
    ]


# A follower that lagged


def _of_lag(left: list[int], leader: int, event: Event, events: Sequence[Event]) -> RootCause:
    at_ms = int(event["time_ms"])
    members = event.get("seen", {}).get("members", [])
    lag_ms = max((int(member["lag_ms"]) for member in members), default=0)
    from_ms = at_ms - max(lag_ms, _BEFORE_MS)
    own = [each for broker in left for each in _reports(events, broker, from_ms, at_ms)]
    leaders = _reports(events, leader, from_ms, at_ms)
    followers = _brokers(left)
    found: list[RootCause] = []
    for rule in _LAG_RULES:
        evidence = [each for each in own if rule.of_follower(each, leader)]
        if evidence:
            found.append(_made(rule.code(evidence), followers, CERTAIN, evidence, event))
        evidence = [each for each in leaders if rule.of_leader(each, left)]
        if evidence:
            found.append(_made(rule.code(evidence), f"broker {leader}", CERTAIN, evidence, event))
    if not found:
        text = f"{followers} lagged behind broker {leader}, and neither reported anything about that time"
        return RootCause(UNKNOWN, followers, UNKNOWN, text, (event,))
    first = found[0]
    certainty = CERTAIN if all(cause.code == first.code for cause in found) else LIKELY
    return replace(first, certainty=certainty, evidence=tuple(each for cause in found for each in cause.evidence))


@dataclass(frozen=True, slots=True)
class _LagRule:
    """A cause of a lag: which reports of the follower, and which of the leader, show it."""

    code: Callable[[list[Event]], str]
    of_follower: Callable[[Event, int], bool]
    of_leader: Callable[[Event, list[int]], bool]


def _is_pause(event: Event) -> bool:
    return bool(event["kind"] == "stalled" and event["how"] == "paused")


def _is_load(event: Event) -> bool:
    return bool(event["kind"] == "overloaded" or (event["kind"] == "stalled" and event["how"] != "paused"))


#: The strongest evidence first.
_LAG_RULES: Final = (
    _LagRule(lambda _: "paused", lambda each, _: _is_pause(each), lambda each, _: _is_pause(each)),
    _LagRule(
        lambda evidence: str(evidence[-1]["kind"]),
        lambda each, _: each["kind"] in _DISKS,
        lambda each, _: each["kind"] in _DISKS,
    ),
    _LagRule(
        lambda _: "throttled",
        lambda each, _: each["kind"] == "throttled" and each["side"] == "follower",
        lambda each, _: each["kind"] == "throttled" and each["side"] == "leader",
    ),
    _LagRule(
        lambda _: "link-lost",
        lambda each, leader: each["kind"] == "link-lost" and each["peer"] == leader,
        lambda each, left: each["kind"] == "link-lost" and each["peer"] in left,
    ),
    _LagRule(lambda _: "overloaded", lambda each, _: _is_load(each), lambda each, _: _is_load(each)),
)


def _brokers(brokers: Sequence[int]) -> str:
    return f"broker {brokers[0]}" if len(brokers) == 1 else f"brokers {ids(brokers)}"
