"""Faults of the network, from what both ends of each link report.

    every reported link has one broker in common   that broker's network; its process, if its system still accepts
                                                   connections; its machine, if the network says that there is none
    one link, both ends wait for an answer         nothing passes in either direction
    one link, one end's request is unacknowledged  nothing passes from that end to the other one

A request that was sent before the link broke was acknowledged, and its sender waits for the answer. So if nothing
passes from A to B only, B waits, and A, which got its answers, has sent a request that is not acknowledged.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from barnabas.cli.root_causes import CERTAIN, LIKELY, UNKNOWN, Event, RootCause

_LINKS: Final = frozenset({"link-lost", "link-slow", "link-lossy"})
#: The results of a dial over a link that is cut.
_CUT: Final = frozenset({"silent", "unreachable"})
_Pair = frozenset[int]


def link_causes(of_brokers: Sequence[Event]) -> Iterator[RootCause]:
    """Yields the causes. A peer that can be dialled over a lossy link is not cut off: its answers were late."""
    lossy = _pairs([event for event in of_brokers if event["kind"] == "link-lossy"])
    silent = _pairs([event for event in of_brokers if event["kind"] == "link-lost"])
    late = {
        pair
        for pair, events in silent.items()
        if pair in lossy and not any(event.get("dialled") in _CUT for event in events)
    }
    reports = [event for pair, events in silent.items() if pair not in late for event in events]
    yield from _lost(reports, _fenced(of_brokers), _away(of_brokers))
    for kind in ("link-lossy", "link-slow"):
        yield from _bad(kind, [event for event in of_brokers if event["kind"] == kind])


def _pairs(reports: Sequence[Event]) -> dict[_Pair, list[Event]]:
    found: dict[_Pair, list[Event]] = {}
    for event in reports:
        found.setdefault(frozenset({int(event["broker"]), int(event["peer"])}), []).append(event)
    return found


def _common(pairs: Mapping[_Pair, list[Event]]) -> int | None:
    """Returns the one broker that all of several links have in common."""
    common = frozenset.intersection(*pairs) if len(pairs) > 1 else frozenset()
    return next(iter(common)) if len(common) == 1 else None


def _name(pair: _Pair) -> str:
    return "link " + "-".join(map(str, sorted(pair)))


def _bad(kind: str, reports: Sequence[Event]) -> Iterator[RootCause]:
    pairs = _pairs(reports)
    common = _common(pairs)
    if common is not None:
        text = "; ".join(dict.fromkeys(str(event["text"]) for event in reports))
        yield RootCause(kind, f"broker {common}", LIKELY, text, tuple(reports))
        return
    for pair, events in pairs.items():
        text = "; ".join(dict.fromkeys(str(event["text"]) for event in events))
        yield RootCause(kind, _name(pair), CERTAIN, text, tuple(events))


def _fenced(of_brokers: Sequence[Event]) -> set[_Pair]:
    """Returns the links over which the controller received nothing."""
    return {
        frozenset({int(event["broker"]), int(event["node"])})
        for event in of_brokers
        if event["kind"] == "broker-fenced" and event.get("cause") == "session-expired"
    }


def _away(of_brokers: Sequence[Event]) -> set[int]:
    """Returns the brokers that are fenced now, or have started after an unclean shutdown and have not reported yet when
    their machine has started.
    """
    fenced: set[int] = set()
    unexplained: set[int] = set()
    for event in of_brokers:
        broker = int(event["broker"])
        if event["kind"] == "broker-fenced":
            fenced.add(broker)
        elif event["kind"] == "broker-unfenced":
            fenced.discard(broker)
        elif event["kind"] == "broker-registered" and event["cause"] == "unclean-shutdown":
            unexplained.add(broker)
        elif event["kind"] == "recovering":
            unexplained.discard(broker)
    return fenced | unexplained


def _lost(reports: Sequence[Event], fenced: set[_Pair], away: Collection[int]) -> Iterator[RootCause]:
    """Yields the lost links. If the controller received nothing from a broker either, the link between them counts as
    silent, too.
    """
    pairs = _pairs(reports)
    known = {broker for pair in pairs for broker in pair}
    silent = {**{pair: [] for pair in fenced if pair & known}, **pairs}
    common = _common(silent) if pairs else None
    if common is not None:
        yield _of_broker(common, reports, away)
        return
    for pair, events in pairs.items():
        yield _of_pair(pair, events, away)


def _of_broker(broker: int, reports: Sequence[Event], away: Collection[int]) -> RootCause:
    """Returns why several links of one broker are silent."""
    who = f"broker {broker}"
    others = [event for event in reports if event["broker"] != broker]
    dialled = {event.get("dialled") for event in others} - {None}
    if dialled == {"connects"} and len(others) == len(reports):
        return _hanging(broker, reports, away)
    peers = sorted({int(event["peer"]) for event in reports if event["broker"] == broker})
    if peers:
        text = f"{who} ran and got no answer from brokers {', '.join(map(str, peers))}"
        return RootCause("link-lost", who, CERTAIN if len(peers) > 1 else LIKELY, text, tuple(reports))
    if dialled == {"unreachable"} and not _is_back(broker, reports, away):
        text = f"{who} does not answer, and its network says that there is no such machine: it is without power"
        return RootCause("power-lost", who, LIKELY, text, tuple(reports))
    text = f"{who} does not answer, and neither does its machine: it is cut off, or without power"
    return RootCause("link-lost", who, LIKELY, text, tuple(reports))


def _is_back(broker: int, reports: Sequence[Event], away: Collection[int]) -> bool:
    begun = {(event["broker"], event["begin_ms"]) for event in reports}
    ended = {(event["broker"], event["begin_ms"]) for event in reports if "end_ms" in event}
    return begun == ended and broker not in away


def _hanging(broker: int, reports: Sequence[Event], away: Collection[int]) -> RootCause:
    """Returns why a broker whose system accepts connections does not answer. A process that was paused or busy reports
    that when it runs again: without such a report, and with answers, it was something else.
    """
    who = f"broker {broker}"
    if _is_back(broker, reports, away):
        text = f"{who} did not answer for a while although its machine accepted connections, and did not report why"
        return RootCause(UNKNOWN, who, UNKNOWN, text, tuple(reports))
    text = f"{who} does not answer, but its machine still accepts connections: its process is paused or hangs"
    return RootCause("paused", who, LIKELY, text, tuple(reports))


def _of_pair(pair: _Pair, events: Sequence[Event], away: Collection[int]) -> RootCause:
    text = "; ".join(dict.fromkeys(str(event["text"]) for event in events))
    #: The first request after the break says the direction; later ones meet a connection that is broken.
    waiting: dict[int, bool | None] = {}
    for event in sorted(events, key=lambda each: int(each["duration_ms"])):
        waiting.setdefault(int(event["broker"]), event.get("unacknowledged"))
    if len(waiting) == 1:
        if any(event.get("dialled") == "connects" for event in events):
            return _hanging(int(events[-1]["peer"]), events, away)
        return RootCause("link-lost", _name(pair), LIKELY, text, tuple(events))
    senders = [broker for broker, is_unacknowledged in waiting.items() if is_unacknowledged]
    if len(senders) == 1 and None not in waiting.values():
        (sender,) = senders
        (receiver,) = pair - {sender}
        return RootCause("link-one-way", f"link {sender}>{receiver}", CERTAIN, text, tuple(events))
    return RootCause("link-lost", _name(pair), CERTAIN if None not in waiting.values() else LIKELY, text, tuple(events))
