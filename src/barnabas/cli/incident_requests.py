"""Changes that a user requested, as causes: elections, moves of replicas, configurations, the removal of a broker, and
a restart of one broker after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from barnabas.cli.root_causes import CERTAIN, LIKELY, Event, RootCause

#: Code of a request that changes partitions.
_OF_TOPICS: Final = frozenset({"election-asked", "reassignment-asked"})
#: Brokers that must restart cleanly, one after the other, before that is a restart of the cluster.
_RESTARTS_MIN: Final = 2
#: How long after the start of a broker the stop of another one continues a restart of the cluster.
_RESTART_MS_MAX: Final = 10 * 60_000
#: The same for the end of a process that can have been stopped, or have crashed.
_END_MS_MAX: Final = 60_000
_ENDS: Final = frozenset({"broker-gone", "process-ended"})


def request_causes(events: Sequence[Event]) -> Iterator[RootCause]:
    for event in events:
        cause, text = event.get("cause"), str(event["text"])
        if cause in _OF_TOPICS and "topic" in event:
            if not str(event["topic"]).startswith("__"):
                yield RootCause(str(cause), f"topic {event['topic']}", CERTAIN, text, (event,))
        elif event["kind"] == "config-changed" and cause == "config-asked":
            yield RootCause("config-asked", f"{event['resource']} {event['name']}", CERTAIN, text, (event,))
    yield from _decommissions(events)
    yield from _rolling_restart(events)


def _decommissions(events: Sequence[Event]) -> Iterator[RootCause]:
    """Yields the brokers that a user removed: stopped and unregistered, or emptied before they were stopped."""
    for event in events:
        if event.get("cause") == "unregister-asked" and "broker" in event:
            text = f"broker {event['broker']} was removed from the cluster: it was emptied, stopped and unregistered"
            yield RootCause("decommissioned", f"broker {event['broker']}", CERTAIN, text, (event,))
    moved = [event for event in events if event.get("cause") == "reassignment-asked" and "before" in event]
    emptied = [set(event["before"]["replicas"]) - set(_target(event)) for event in moved]
    common = set.intersection(*emptied) if len(emptied) >= _MOVES_MIN else set()
    for broker in common:
        text = f"all requested moves take replicas away from broker {broker}"
        yield RootCause("decommissioned", f"broker {broker}", LIKELY, text, tuple(moved))


#: Moves away from one broker that look like its removal.
_MOVES_MIN: Final = 4


def _target(event: Event) -> list[int]:
    """Returns the replicas that a requested move leads to."""
    after = event["after"]
    return [replica for replica in after["replicas"] if replica not in after.get("removing", ())]


def _rolling_restart(events: Sequence[Event]) -> Iterator[RootCause]:
    """Yields a restart of the cluster: brokers that have started after a clean shutdown, or one that has, after which
    another one was stopped. The stop of the active controller has no event: its process has ended.
    """
    starts = [event for event in events if _is_clean_restart(event)]
    brokers = list(dict.fromkeys(int(event["broker"]) for event in starts))
    if len(brokers) >= _RESTARTS_MIN:
        text = f"brokers {', '.join(map(str, brokers))} were stopped and started, one after the other"
        yield RootCause("restarted", "cluster", CERTAIN, text, tuple(starts))
    elif starts:
        (broker,), start = brokers, starts[-1]
        since_ms = int(start["time_ms"])
        after = [
            event
            for event in events
            if 0 <= event["time_ms"] - since_ms <= (_RESTART_MS_MAX if _is_stop(event) else _END_MS_MAX)
            and (_is_stop(event) or (event["kind"].startswith("broker-") and event.get("cause") in _ENDS))
            and int(event["broker"]) != broker
        ]
        if after:
            text = f"broker {broker} was stopped and started, and then broker {after[0]['broker']} ended"
            yield RootCause("restarted", "cluster", LIKELY, text, (start, *after))


def _is_clean_restart(event: Event) -> bool:
    """Returns whether a broker has started after a clean shutdown. The first start of a new broker is none."""
    is_start = event["kind"] == "broker-registered" and event["cause"] == "broker-started"
    return is_start and event.get("before", event) is not None


def _is_stop(event: Event) -> bool:
    return event["kind"] == "controlled-shutdown" or (
        event["kind"] == "broker-fenced" and event.get("cause") == "controlled-shutdown"
    )
