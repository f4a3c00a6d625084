"""Second decisions of reads and their limits: the nearest replica, and throttled replicas."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from types import SimpleNamespace
from typing import Any, Final

from barnabas.simulation.second_decisions import Arguments, SecondDecision

_NONE: Final = -1
_UNLIMITED: Final = (1 << 63) - 1


# -- the nearest replica


def _nearest(_: Any, partition: Any, offset: int, rack: str, listener: str, image: Any) -> int:
    """Returns the replica in the consumer's rack that has the most, of those the one that was caught up last."""
    leadership = partition.leadership
    if leadership is None or not rack:
        return _NONE
    here = {broker.broker_id: broker for broker in image.brokers.values() if broker.rack == rack}
    if partition.node_id in here:
        return _NONE
    found = []
    for replica in set(leadership.isr) & set(leadership.followers) & set(here):
        follower, broker = leadership.followers[replica], here[replica]
        starts, session = follower.log_start_offset, follower.session_fetch
        has_records = starts >= 0 and offset in range(starts, follower.leo + 1)
        if has_records and not broker.fenced and broker.endpoint(listener) is not None:
            found.append((follower.leo, follower.caught_up_ms if session is None else session.ms, replica))
    return sorted(found)[-1][2] if found else _NONE


def _near_nearest(
    selector: Any, partition: Any, offset: int, rack: str, listener: str, image: Any
) -> Iterator[Arguments]:
    """Three followers in one rack: outside the ISR, fenced, without the listener, behind, with and without records."""

    def endpoint(name: str) -> object:
        return name if name == "here" else None

    def broker(broker_id: int, fenced: bool = False, found: Any = endpoint) -> Any:
        return SimpleNamespace(broker_id=broker_id, rack="r" if broker_id > 1 else "q", fenced=fenced, endpoint=found)

    def follower(start: int, leo: int, caught_up_ms: int) -> Any:
        return SimpleNamespace(
            log_start_offset=start,
            leo=leo,
            caught_up_ms=caught_up_ms,
            session_fetch=None,
            caught_up_at=lambda: caught_up_ms,
        )

    brokers = {each: broker(each) for each in (1, 2, 3, 4)}
    followers = {2: follower(5, 10, 100), 3: follower(0, 10, 90), 4: follower(0, 9, 200)}
    plain = SimpleNamespace(isr=(1, 2, 3, 4), followers=followers)
    for asked in (0, 4, 5, 9, 10, 11):
        for isr in ((1, 2, 3, 4), (1, 3, 4), (1, 4), (1,)):
            led = SimpleNamespace(node_id=1, leadership=SimpleNamespace(isr=isr, followers=followers))
            yield selector, led, asked, "r", "here", SimpleNamespace(brokers=brokers)
    led = SimpleNamespace(node_id=1, leadership=plain)
    own = SimpleNamespace(broker_id=1, rack="r", fenced=False, endpoint=endpoint)
    for others in ({2: broker(2, True)}, {2: broker(2, False, lambda _: None)}, {1: own}):
        yield selector, led, 9, "r", "here", SimpleNamespace(brokers={**brokers, **others})
    unknown = SimpleNamespace(isr=(1, 2), followers={2: follower(-1, -1, 0)})
    yield selector, SimpleNamespace(node_id=1, leadership=unknown), -1, "r", "here", SimpleNamespace(brokers=brokers)
    for name, rack_asked in (("here", ""), ("there", "r"), ("here", "q"), ("here", "s")):
        yield selector, led, 9, rack_asked, name, SimpleNamespace(brokers=brokers)
    yield selector, SimpleNamespace(node_id=1, leadership=None), 9, "r", "here", SimpleNamespace(brokers=brokers)


# -- throttled replicas


def _wait(throttle: Any, now_ms: int) -> int:
    """Returns the time until the bytes of the windows are within the rate, a window at most."""
    first_ms = now_ms - throttle._window_ms * throttle._windows
    recent = [(at_ms, size) for at_ms, size in throttle._samples if at_ms >= first_ms]
    if throttle.rate_bytes >= _UNLIMITED or not recent:
        return 0
    elapsed_ms = max(throttle._window_ms, now_ms - recent[0][0])
    late_ms = 1000 * sum(size for _, size in recent) // max(1, throttle.rate_bytes) - elapsed_ms
    return int(sorted((0, late_ms, throttle._window_ms))[1])


def _near_wait(throttle: Any, now_ms: int) -> Iterator[Arguments]:
    """Yields one and two windows, a byte below and above what the rate allows, at the age at which they are dropped."""
    for windows, window_ms, rate in ((2, 1_000, 100), (1, 500, 0), (3, 1_000, _UNLIMITED), (11, 1_000, 1)):
        allowed = rate * window_ms // 1000 if rate < _UNLIMITED else 500
        for samples in ([], [[0, allowed]], [[0, allowed + 1]], [[0, 3 * allowed], [window_ms, allowed]], [[0, 60]]):
            for at_ms in (0, window_ms, window_ms + 1, windows * window_ms, windows * window_ms + 1):
                changed = copy(throttle)
                changed._windows, changed._window_ms, changed.rate_bytes = windows, window_ms, rate
                changed._samples = type(throttle._samples)(list(each) for each in samples)
                changed._total = sum(size for _, size in samples)
                yield changed, at_ms


def _listed(quota: Any, topic: str, config: Any) -> Any:
    """Returns the throttled partitions of a topic on this broker; None for all, no set if there are none."""
    text = config.get(f"{quota._prefix}.replicas", "").replace(" ", "")
    if text.strip(",") == "*":
        return True, None
    pairs = [item.split(":") for item in text.split(",") if item]
    own = {int(index) for index, broker in pairs if int(broker) == quota._node_id}
    return bool(own), own


def _near_listed(quota: Any, topic: str, config: Any) -> Iterator[Arguments]:
    own = quota._node_id
    for text in (
        "",
        "*",
        f"0:{own}",
        f"0:{own + 1}",
        f"3:{own}, 4:{own},5:{own + 1}",
        f"{own}:{own + 1}",
        f",7:{own},",
    ):
        for before in ({}, {topic: None}, {topic: frozenset({9}), "other": None}):
            changed = copy(quota)
            changed._listed = dict(before)
            yield changed, topic, {f"{quota._prefix}.replicas": text, "other.replicas": "*"}


def _listed_of(_: Any, quota: Any, topic: str, __: Any) -> Any:
    indexes = quota._listed.get(topic, ())
    return topic in quota._listed, None if indexes is None else set(indexes)


ANSWER_DECISIONS: Final = (
    SecondDecision("replication.replica_selector:RackAwareSelector.preferred", _nearest, _near_nearest),
    SecondDecision("replication.throttle:Throttle.wait_ms", _wait, _near_wait),
    SecondDecision("replication.quotas:ReplicationQuota.follow_topic", _listed, _near_listed, _listed_of),
)
