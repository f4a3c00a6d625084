"""The causes of all that happened in the time that was read, ranked (docs/explain.md): a pure function of the events.

`root_causes` answers for one event. Here all events count: losses, requests, self-reports. What follows from another
cause is left out: peers that get no answer from a broker that was paused have no network fault.

    events --candidates of each rule--> explained away by stronger ones on the same part --> ranked
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from barnabas.cli.incident_links import link_causes
from barnabas.cli.incident_requests import request_causes
from barnabas.cli.root_causes import CERTAIN, LIKELY, UNKNOWN, Event, RootCause, at_restart, root_cause

#: The order of the answers: what loses data or availability first, what a user requested last.
_ORDER: Final = (
    "unclean-election",
    "disk-lost",
    "decommissioned",
    "restarted",
    "power-lost",
    "crashed",
    "disk-failed",
    "disk-full",
    "paused",
    "busy",
    "starved",
    "link-lost",
    "link-one-way",
    "disk-slow",
    "link-lossy",
    "link-slow",
    "throttled",
    "clock-jumped",
    "stopped",
    "overloaded",
    "burst",
    UNKNOWN,
    "election-asked",
    "reassignment-asked",
    "unregister-asked",
    "config-asked",
)
_RANK: Final = {code: rank for rank, code in enumerate(_ORDER)}
#: Causes that explain why a broker did not answer, or was slow.
_OF_BROKERS: Final = frozenset(
    {
        "disk-lost",
        "power-lost",
        "crashed",
        "stopped",
        "disk-failed",
        "disk-full",
        "paused",
        "busy",
        "starved",
        "decommissioned",
    }
)
#: The causes that such a broker seems to have besides.
_FOLLOWS_FROM_BROKERS: Final = frozenset(
    {"link-lost", "link-one-way", "link-lossy", "link-slow", "overloaded", UNKNOWN}
)
#: Code -> the codes that it explains on the same part.
_EXPLAINS: Final = {
    "disk-lost": frozenset({"crashed", "power-lost", "disk-failed"}),
    "power-lost": frozenset({"crashed", "paused"}),
    "disk-failed": frozenset({"crashed", "disk-slow"}),
    "disk-full": frozenset({"disk-slow"}),
    "starved": frozenset({"paused", "busy", "overloaded"}),
    "busy": frozenset({"overloaded"}),
    "decommissioned": frozenset({"stopped", "crashed", "unregister-asked"}),
    "link-lost": frozenset({"link-lossy", "link-slow", "link-one-way", UNKNOWN}),
    "link-one-way": frozenset({"link-lossy", "link-slow", UNKNOWN}),
    "link-lossy": frozenset({"link-slow", UNKNOWN}),
    "link-slow": frozenset({UNKNOWN}),
    "disk-slow": frozenset({UNKNOWN}),
    "burst": frozenset({"overloaded", UNKNOWN}),
}
_ALTERNATIVES: Final = {"link-lost": "power-lost", "power-lost": "link-lost"}
_STATES: Final = {
    "disk-full": "disk-full",
    "disk-slow": "disk-slow",
    "disk-failed": "disk-failed",
    "clock-jumped": "clock-jumped",
    "throttled": "throttled",
    "overloaded": "overloaded",
    "starved": "starved",
}


def causes_of(events: Sequence[Event]) -> list[RootCause]:
    """Returns the causes of everything that the events report, the most serious one first. `events` are distinct and
    sorted.
    """
    of_brokers = [event for event in events if "broker" in event]
    found = _merged(
        [
            *_losses(events, of_brokers),
            *_starts(of_brokers),
            *_states(of_brokers),
            *link_causes(of_brokers),
            *request_causes(events),
            *_unclean(events),
        ]
    )
    left = [cause for cause in found if not any(_explains(other, cause) for other in found)]
    ranked = sorted(left, key=lambda cause: (_RANK[cause.code], cause.certainty != CERTAIN, cause.component))
    return [*ranked, *_alternatives(ranked)]


def _alternatives(causes: Iterable[RootCause]) -> Iterator[RootCause]:
    """Yields the causes that cannot be distinguished from a likely one: a broker that is cut off, and one without
    power.
    """
    for cause in causes:
        if cause.code in _ALTERNATIVES and cause.certainty == LIKELY and cause.component.startswith("broker"):
            yield replace(cause, code=_ALTERNATIVES[cause.code])


def _merged(causes: Iterable[RootCause]) -> list[RootCause]:
    """Returns one cause for each code and component, with all evidence, as sure as the surest."""
    found: dict[tuple[str, str], RootCause] = {}
    for cause in causes:
        key = cause.code, cause.component
        known = found.get(key)
        if known is None:
            found[key] = cause
            continue
        seen = {event["id"] for event in known.evidence}
        evidence = (*known.evidence, *(event for event in cause.evidence if event["id"] not in seen))
        surest = known if known.certainty == CERTAIN or cause.certainty != CERTAIN else cause
        found[key] = replace(surest, evidence=evidence, is_hindsight=known.is_hindsight and cause.is_hindsight)
    return list(found.values())


def _parts(component: str) -> tuple[str, ...]:
    """Returns the brokers that a component names."""
    kind, _, name = component.partition(" ")
    if kind == "link":
        return tuple(f"broker {each}" for each in name.replace(">", "-").split("-"))
    return (component,)


#: The time after the last start of a restart after which other faults have causes of their own.
_AFTER_RESTART_MS: Final = 30_000


def _began_ms(cause: RootCause) -> int:
    return min(int(event["begin_ms"] if "begin_ms" in event else event["time_ms"]) for event in cause.evidence)


def _explains(cause: RootCause, other: RootCause) -> bool:
    if cause is other:
        return False
    if cause.code == "restarted":
        return other.code == "stopped" or (
            other.code in ("crashed", "paused", "power-lost", "link-lost", UNKNOWN)
            and other.certainty != CERTAIN
            and _began_ms(other) <= max(event["time_ms"] for event in cause.evidence) + _AFTER_RESTART_MS
        )
    shared = set(_parts(cause.component)) & set(_parts(other.component))
    if other.code == "paused" and other.certainty != CERTAIN and cause.code in ("busy", "starved") and shared:
        return True
    if cause.code in _OF_BROKERS and shared and other.code in _FOLLOWS_FROM_BROKERS:
        return True
    if cause.code == "decommissioned" and other.code == "reassignment-asked":
        return True
    return bool(shared) and other.code in _EXPLAINS.get(cause.code, ())


# Brokers


def _losses(events: Sequence[Event], of_brokers: Sequence[Event]) -> Iterator[RootCause]:
    """Yields the causes behind the decisions about brokers and lags."""
    for event in events:
        if event["kind"] == "controlled-shutdown" or (
            event["kind"] == "broker-fenced" and event.get("cause") == "controlled-shutdown"
        ):
            text = str(event["text"])
            yield RootCause("stopped", f"broker {event['broker']}", CERTAIN, text, (event,))
        elif event.get("cause") == "directory-lost":
            yield RootCause("disk-failed", str(event["actor"]), CERTAIN, str(event["text"]), (event,))
        elif event["kind"] == "broker-fenced":
            cause = root_cause(event, of_brokers)
            if cause is not None and not cause.code.startswith("link-"):
                yield cause


def _starts(of_brokers: Sequence[Event]) -> Iterator[RootCause]:
    """Yields how the process before each start ended, if the start shows it."""
    for event in of_brokers:
        if event["kind"] == "broker-registered":
            cause = at_restart(event, of_brokers)
            if cause is not None:
                yield cause


def _states(of_brokers: Sequence[Event]) -> Iterator[RootCause]:
    for event in of_brokers:
        who = f"broker {event['broker']}"
        if event["kind"] in _STATES:
            yield RootCause(_STATES[event["kind"]], who, CERTAIN, str(event["text"]), (event,))
        elif event["kind"] == "stalled" and event["duration_ms"] >= _STALL_MS:
            code = {"paused": "paused", "busy": "busy", "starved": "starved"}[event["how"]]
            yield RootCause(code, who, CERTAIN, str(event["text"]), (event,))
        elif event["kind"] == "burst":
            yield RootCause("burst", f"topic {event['topic']}", CERTAIN, str(event["text"]), (event,))


#: A shorter stall is no cause of anything that a client sees.
_STALL_MS: Final = 1_000


def _unclean(events: Sequence[Event]) -> Iterator[RootCause]:
    for event in events:
        if event["kind"] == "unclean-leader" or "unclean-election" in event.get("changes", ()):
            yield RootCause("unclean-election", f"topic {event['topic']}", CERTAIN, str(event["text"]), (event,))


def answer_lines(causes: Sequence[RootCause]) -> list[str]:
    """Returns the answer as text."""
    if not causes:
        return ["Nothing happened that needs an explanation."]
    lines = []
    for number, cause in enumerate(causes, 1):
        lines += [f"{number}. {cause.component}: {cause}.", f"   Remedy: {cause.remedy}."]
    return lines
