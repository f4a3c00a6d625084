"""Random connections, limits and times: the limits against a list of open connections and a list of all attempts."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.broker.throttling.connection_limits import (
    UNLIMITED,
    ConnectionLimits,
    ConnectionThrottled,
    Limits,
    Slot,
    TooManyConnections,
)
from barnabas.common.sampled_rates import SampledRate

LISTENERS = ("INTERNAL", "EXTERNAL", "OTHER")
PROTECTED = "INTERNAL"
ADDRESSES = ("10.0.0.1", "10.0.0.2", "::1")
WINDOWS = (3, 1_000)

COUNTS = st.integers(1, 6) | st.just(UNLIMITED)
RATES = st.integers(1, 4) | st.just(UNLIMITED)
LIMITS = st.builds(
    Limits,
    connections=COUNTS,
    creation_rate=RATES,
    per_address=COUNTS,
    overrides=st.dictionaries(st.sampled_from(ADDRESSES), st.integers(0, 4)),
    by_listener=st.fixed_dictionaries({name: st.tuples(COUNTS, RATES) for name in LISTENERS}),
)
QUOTAS = st.dictionaries(st.sampled_from((*ADDRESSES, None)), st.integers(1, 3) | st.none(), min_size=1)


class Connect(NamedTuple):
    listener: str
    address: str


class Close(NamedTuple):
    place: int


class Change(NamedTuple):
    limits: Limits


class SetQuotas(NamedTuple):
    values: dict[str | None, int | None]


class Pass(NamedTuple):
    time_ms: int


STEPS = st.lists(
    st.builds(Connect, st.sampled_from(LISTENERS), st.sampled_from(ADDRESSES))
    | st.builds(Connect, st.sampled_from(LISTENERS), st.sampled_from(ADDRESSES))
    | st.builds(Close, st.integers(0, 9))
    | st.builds(Change, LIMITS)
    | st.builds(SetQuotas, QUOTAS)
    | st.builds(Pass, st.integers(0, 1_500)),
    max_size=60,
)


class PlainLimits:
    """The same decisions from nothing but lists, each made anew."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.open: list[Connect] = []
        #: (name of a rate, time, value)
        self.log: list[tuple[str, int, int]] = []
        self.quotas: dict[str | None, int] = {}

    def _time_ms(self, name: str, limit: int, now_ms: int) -> int:
        rate = SampledRate(*WINDOWS)
        for each, at_ms, value in self.log:
            if each == name:
                rate.record(value, at_ms)
        return min(rate.excess_ms(limit, now_ms), WINDOWS[1])

    def arrive(self, listener: str, now_ms: int) -> int:
        times = []
        rates = {listener: self.limits.by_listener[listener][1]}
        if listener != PROTECTED:
            rates["broker"] = self.limits.creation_rate
        for name, limit in rates.items():
            self.log.append((name, now_ms, 1))
            times.append(self._time_ms(name, limit, now_ms))
        return max(times)

    def has_slot(self, listener: str) -> bool:
        on_listener = sum(each.listener == listener for each in self.open)
        is_below = listener == PROTECTED or len(self.open) < self.limits.connections
        return is_below and on_listener < self.limits.by_listener[listener][0]

    def take(self, listener: str, address: str, now_ms: int) -> TooManyConnections | ConnectionThrottled | None:
        quota = self.quotas.get(address, self.quotas.get(None))
        if quota is not None:
            self.log.append((address, now_ms, 1))
            time_ms = self._time_ms(address, quota, now_ms)
            if time_ms:
                refused = [address, listener] + ([] if listener == PROTECTED else ["broker"])
                self.log += [(name, now_ms, -1) for name in refused]
                return ConnectionThrottled(time_ms)
        most = self.limits.overrides.get(address, self.limits.per_address)
        if sum(each.address == address for each in self.open) >= most:
            return TooManyConnections(most)
        self.open.append(Connect(listener, address))
        return None

    def excess(self) -> int:
        others = [each for each in self.open if each.listener != PROTECTED]
        return min(max(len(self.open) - self.limits.connections, 0), len(others))


@given(LIMITS, STEPS)
@settings(max_examples=200, deadline=None)
def test_limits_decide_as_plain_lists_do(first: Limits, steps: list[object]) -> None:
    limits, plain = ConnectionLimits(LISTENERS, PROTECTED, WINDOWS, first), PlainLimits(first)
    slots: list[Slot] = []
    now_ms = 0
    for step in steps:
        match step:
            case Pass(time_ms):
                now_ms += time_ms
            case Change(changed):
                limits.change(changed)
                plain.limits = changed
            case SetQuotas(values):
                limits.follow(
                    {
                        (("ip", name),): {"connection_creation_rate": value and float(value)}
                        for name, value in values.items()
                    }
                )
                for name, value in values.items():
                    plain.quotas.pop(name, None)
                    if value is not None:
                        plain.quotas[name] = value
                if not plain.quotas:
                    plain.log = [row for row in plain.log if row[0] not in ADDRESSES]
            case Close(place) if slots:
                slots.pop(place % len(slots)).release()
                plain.open.pop(place % len(plain.open))
            case Connect(listener, address):
                assert limits.arrive(listener, now_ms) == plain.arrive(listener, now_ms)
                assert limits.has_slot(listener) == plain.has_slot(listener)
                if limits.has_slot(listener):
                    verdict, refusal = limits.take(listener, address, now_ms), plain.take(listener, address, now_ms)
                    if isinstance(verdict, Slot):
                        assert refusal is None
                        slots.append(verdict)
                    else:
                        assert verdict == refusal
        assert limits.total == len(plain.open)
        assert limits.excess == plain.excess()
        assert limits.counts() == {
            name: count for name in ADDRESSES if (count := sum(each.address == name for each in plain.open))
        }
    for slot in slots:
        slot.release()
    assert limits.total == 0
    assert [each.count for each in limits.listeners()] == [0, 0, 0]


@given(LIMITS, STEPS)
@settings(max_examples=100, deadline=None)
def test_a_host_that_obeys_stays_within_all_limits(limit: Limits, steps: list[object]) -> None:
    limits = ConnectionLimits(LISTENERS, PROTECTED, WINDOWS, limit)
    opened: list[tuple[str, int]] = []
    now_ms = 0
    for step in steps:
        if isinstance(step, Pass):
            now_ms += step.time_ms
        elif isinstance(step, Connect) and limits.has_slot(step.listener):
            now_ms += limits.arrive(step.listener, now_ms)
            if isinstance(limits.take(step.listener, step.address, now_ms), Slot):
                opened.append((step.listener, now_ms))
        protected = sum(name == PROTECTED for name, _ in opened)
        assert len(opened) - protected <= limit.connections
        for name, (connections, rate) in limit.by_listener.items():
            on_listener = [at_ms for each, at_ms in opened if each == name]
            assert len(on_listener) <= connections
            # The windows hold their whole quota at first, and each rest is at most one window.
            if rate < UNLIMITED and len(on_listener) > rate * WINDOWS[0]:
                assert on_listener[-1] > on_listener[0]
