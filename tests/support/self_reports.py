"""Events of the journal about lost brokers, lagging followers, and what brokers report about themselves."""

from __future__ import annotations

from typing import Any

Event = dict[str, Any]
AT_MS = 100_000


def report(kind: str, broker: int, begin_ms: int, end_ms: int | None, **facts: Any) -> Event:
    event = {
        "id": f"n{broker}.{begin_ms}:{kind}{facts.get('peer', '')}",
        "kind": kind,
        "broker": broker,
        "time_ms": begin_ms if end_ms is None else end_ms,
        "begin_ms": begin_ms,
        "duration_ms": 5_000,
        "text": f"{kind} of broker {broker}",
        "cause": kind,
        **facts,
    }
    return event if end_ms is None else event | {"end_ms": end_ms}


def fenced(broker: int, cause: str = "session-expired") -> Event:
    return {
        "id": f"7:broker:{broker}",
        "kind": "broker-fenced",
        "broker": broker,
        "time_ms": AT_MS,
        "metadata_offset": 7,
        "cause": cause,
        "text": "fenced",
    }


def lagged(follower: int, lag_ms: int = 30_000) -> Event:
    def state(isr: list[int]) -> Event:
        return {"leader": 1, "leader_epoch": 0, "isr": isr, "replicas": [1, 2, 3]}

    return {
        "id": "8:t-0",
        "kind": "isr-shrink",
        "topic": "t",
        "partition": 0,
        "time_ms": AT_MS,
        "metadata_offset": 8,
        "cause": "follower-lagged",
        "text": "lagged",
        "before": state([1, 2, 3]),
        "after": state([broker for broker in (1, 2, 3) if broker != follower]),
        "seen": {"leader_leo": 9, "members": [{"broker_id": follower, "leo": 3, "lag_ms": lag_ms}]},
    }
