"""The limits of connections and of their creation, as Kafka's `ConnectionQuotas` has them (KIP-402, KIP-612).

The listeners of a role share one `ConnectionLimits`. A connection passes three steps; the host waits between them:

    arrive    counts the attempt in the rates of the broker and of the listener; returns how long the listener rests
    has_slot  whether the counts of the listener and of the broker allow one more connection
    take      counts the connection, or says why its address is refused; the `Slot` is released when it has closed

If there is another listener, the inter-broker listener is exempt from the limits of the broker, though not from its
own: when there are too many connections, those of other listeners that were idle for longest are closed (`excess`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from barnabas.common.addresses import canonical, peer_address
from barnabas.common.config import BrokerConfig
from barnabas.common.sampled_rates import SampledRate, SampledTimes
from barnabas.metadata.quota_entities import AddressQuotas, QuotaChanges

PER_IP: Final = "max.connections.per.ip"
OVERRIDES: Final = "max.connections.per.ip.overrides"
CONNECTIONS: Final = "max.connections"
CREATION_RATE: Final = "max.connection.creation.rate"

#: The value of a limit that does not exist.
UNLIMITED: Final = 2**31 - 1
#: The number of rates of addresses above which those without recent connections are dropped.
_KEPT_MIN: Final = 1_000
#: The windows of the average throttle times: those of Kafka's metrics (`metrics.num.samples`).
_METRIC_WINDOWS: Final = (2, 30_000)


class Limits(NamedTuple):
    """The configured limits of one role's listeners."""

    connections: int
    creation_rate: int
    per_address: int
    #: Address or host name -> the limit that it has instead of `per_address`.
    overrides: Mapping[str, int]
    #: Listener -> its limits of connections and of their creation.
    by_listener: Mapping[str, tuple[int, int]]

    @classmethod
    def of(cls, config: BrokerConfig, listeners: Iterable[str]) -> Limits:
        by_listener = {}
        for name in listeners:
            connections, rate = config.value_on(name, CONNECTIONS), config.value_on(name, CREATION_RATE)
            assert isinstance(connections, int), name
            assert isinstance(rate, int), name
            by_listener[name] = (connections, rate)
        return cls(
            config.int_of(CONNECTIONS),
            config.int_of(CREATION_RATE),
            config.int_of(PER_IP),
            overrides(config),
            by_listener,
        )


class TooManyConnections(NamedTuple):
    """The refusal of an address that has as many connections as it can have."""

    count_max: int


class ConnectionThrottled(NamedTuple):
    """The refusal of an address that connects too often: its connection is held for this time, then closed."""

    time_ms: int


class _Listener:
    __slots__ = (
        "blocked_ms",
        "connections_max",
        "count",
        "ip_throttle_times",
        "name",
        "rate",
        "rate_max",
        "throttle_times",
    )

    def __init__(self, name: str, windows: tuple[int, int]) -> None:
        self.name = name
        self.count = 0
        self.connections_max = self.rate_max = UNLIMITED
        #: The time for which the listener accepted nothing because of limits.
        self.blocked_ms = 0
        self.rate = SampledRate(*windows)
        #: The times for which the listener rested because of a rate, and those for which addresses were held.
        self.throttle_times = SampledTimes(*_METRIC_WINDOWS)
        self.ip_throttle_times = SampledTimes(*_METRIC_WINDOWS)


class Slot:
    """The place of one connection in the counts."""

    __slots__ = ("_address", "_limits", "_listener")

    def __init__(self, limits: ConnectionLimits, listener: _Listener, address: str) -> None:
        self._limits: ConnectionLimits | None = limits
        self._listener = listener
        self._address = address

    def release(self) -> None:
        """Gives the place up; a second call has no effect."""
        limits, self._limits = self._limits, None
        if limits is not None:
            limits.forget(self._listener, self._address)


class ConnectionLimits:
    """The counts and rates of the connections of one role's listeners, and their limits."""

    def __init__(
        self, listeners: Iterable[str], inter_broker_listener: str | None, windows: tuple[int, int], limits: Limits
    ) -> None:
        """Creates the limits of `listeners`. `windows` are the number and the length in milliseconds of the samples of
        which rates consist.
        """
        self._windows = windows
        self._throttle_ms_max = windows[1]
        self._inter_broker_listener = inter_broker_listener
        self._listeners = {name: _Listener(name, windows) for name in listeners}
        self.total = 0
        self.rate = SampledRate(*windows)
        self._by_address: dict[str, int] = {}
        self._quotas = AddressQuotas()
        self._rates: dict[str, SampledRate] = {}
        self._kept_max = _KEPT_MIN
        #: Host name -> its addresses.
        self._names: dict[str, tuple[str, ...]] = {}
        self._overrides: dict[str, int] = {}
        self._waiters: list[Callable[[], None]] = []
        self._on_excess: Callable[[], None] | None = None
        self.limits = limits
        self.change(limits)

    # -- settings

    def change(self, limits: Limits) -> None:
        """Applies other limits from now on."""
        self.limits = limits
        for name, listener in self._listeners.items():
            listener.connections_max, listener.rate_max = limits.by_listener.get(name, (UNLIMITED, UNLIMITED))
        self._name_overrides()
        self._notify()

    def add(self, listener: str) -> None:
        """Adds a listener, which has no limits of its own until `change`."""
        self._listeners[listener] = _Listener(listener, self._windows)

    def remove(self, listener: str) -> None:
        """Removes a listener that accepts no more connections; those that are open still count until they close."""
        del self._listeners[listener]

    @property
    def _protected(self) -> str | None:
        return self._inter_broker_listener if len(self._listeners) > 1 else None

    def follow(self, changes: QuotaChanges) -> None:
        """Applies changes of the quotas of addresses."""
        if self._quotas.follow(changes) and not self._quotas:
            self._rates.clear()

    def unknown_names(self) -> list[str]:
        """Returns the host names of which `resolved` has not given the addresses yet."""
        return [name for name in self.limits.overrides if canonical(name) is None and name not in self._names]

    def resolved(self, name: str, addresses: Iterable[str]) -> None:
        """Sets the addresses of a host name."""
        self._names[name] = tuple(peer_address(each) for each in addresses)
        self._name_overrides()

    def _name_overrides(self) -> None:
        self._overrides = {}
        for name, count in self.limits.overrides.items():
            address = canonical(name)
            for each in self._names.get(name, ()) if address is None else (address,):
                self._overrides[each] = count

    def when_free(self, callback: Callable[[], None]) -> None:
        """Calls `callback` whenever a connection was closed or the limits have changed."""
        self._waiters.append(callback)

    def no_longer_when_free(self, callback: Callable[[], None]) -> None:
        self._waiters.remove(callback)

    def when_exceeded(self, callback: Callable[[], None]) -> None:
        """Calls `callback` whenever there are more connections than the broker can have (`excess`)."""
        self._on_excess = callback

    def _notify(self) -> None:
        self._wake()
        if self._on_excess is not None and self.excess:
            self._on_excess()

    def _wake(self) -> None:
        waiters = self._waiters
        for waiter in tuple(waiters):
            waiter()
        if len(waiters) > 1:
            # The next free slot goes to another listener first.
            waiters.append(waiters.pop(0))

    # -- connections

    def is_protected(self, listener: str) -> bool:
        """Returns whether the limits of the broker do not hold for this listener."""
        return listener == self._protected

    @property
    def excess(self) -> int:
        """Returns how many connections of listeners that are not protected have to be closed."""
        protected = self._listeners.get(self._protected or "")
        others = self.total if protected is None else self.total - protected.count
        return max(min(self.total - self.limits.connections, others), 0)

    def arrive(self, listener: str, now_ms: int) -> int:
        """Counts an attempt in the rates. Returns the time for which the listener has to rest before `take`."""
        here = self._listeners[listener]
        time_ms = 0
        if listener != self._protected:
            self.rate.record(1, now_ms)
            time_ms = self._excess_ms(self.rate, self.limits.creation_rate, now_ms)
        here.rate.record(1, now_ms)
        time_ms = max(time_ms, self._excess_ms(here.rate, here.rate_max, now_ms))
        if time_ms:
            here.throttle_times.record(time_ms, now_ms)
        return time_ms

    def has_slot(self, listener: str) -> bool:
        """Returns whether one more connection is possible on the listener."""
        here = self._listeners[listener]
        if here.count >= here.connections_max:
            return False
        return listener == self._protected or self.total < self.limits.connections

    def waited(self, listener: str, time_ms: int) -> None:
        """Notes that the listener accepted nothing for this time because of limits."""
        self._listeners[listener].blocked_ms += time_ms

    def take(self, listener: str, address: str, now_ms: int) -> Slot | TooManyConnections | ConnectionThrottled:
        """Counts a connection of this address, as `peer_address` writes it, or returns why it is refused."""
        here = self._listeners[listener]
        if self._quotas:
            time_ms = self._throttle_address(here, address, now_ms)
            if time_ms:
                return ConnectionThrottled(time_ms)
        count = self._by_address.get(address, 0)
        count_max = (
            self._overrides.get(address, self.limits.per_address) if self._overrides else self.limits.per_address
        )
        if count >= count_max:
            return TooManyConnections(count_max)
        self._by_address[address] = count + 1
        self.total += 1
        here.count += 1
        if self._on_excess is not None and self.total > self.limits.connections:
            self._on_excess()
        return Slot(self, here, address)

    def forget(self, listener: _Listener, address: str) -> None:
        """Removes a connection from the counts (`Slot.release`)."""
        count = self._by_address[address]
        if count == 1:
            del self._by_address[address]
        else:
            self._by_address[address] = count - 1
        self.total -= 1
        listener.count -= 1
        self._wake()

    def _throttle_address(self, listener: _Listener, address: str, now_ms: int) -> int:
        """Counts an attempt in the rate of its address, and returns 0. If the address is above its quota, counts
        nothing, and returns the time for which to hold the connection.
        """
        quota = self._quotas.find(address)
        if quota is None or quota < 0 or quota >= UNLIMITED:
            return 0
        rate = self._rates.get(address)
        if rate is None:
            if len(self._rates) >= self._kept_max:
                self._forget_idle(now_ms)
            rate = self._rates[address] = SampledRate(*self._windows)
        rate.record(1, now_ms)
        time_ms = self._excess_ms(rate, int(quota) if quota > 0 else 0, now_ms)
        if time_ms:
            rate.record(-1, now_ms)
            if listener.name != self._protected:
                self.rate.record(-1, now_ms)
            listener.rate.record(-1, now_ms)
            listener.ip_throttle_times.record(time_ms, now_ms)
        return time_ms

    def _forget_idle(self, now_ms: int) -> None:
        self._rates = {address: rate for address, rate in self._rates.items() if not rate.is_empty(now_ms)}
        self._kept_max = max(_KEPT_MIN, 2 * len(self._rates))

    def _excess_ms(self, rate: SampledRate, limit: int, now_ms: int) -> int:
        if limit >= UNLIMITED:
            return 0
        if not limit:
            return self._throttle_ms_max
        return min(rate.excess_ms(limit, now_ms), self._throttle_ms_max)

    # -- what metrics show

    def listeners(self) -> Iterator[_Listener]:
        """Yields the listeners with their counts and rates."""
        return iter(self._listeners.values())

    def counts(self) -> dict[str, int]:
        """Returns the number of connections by address."""
        return dict(self._by_address)

    def address_rates(self, now_ms: int) -> Iterator[tuple[str, float]]:
        """Yields the addresses with a quota that connected recently, and their rates."""
        for address, rate in self._rates.items():
            if not rate.is_empty(now_ms):
                yield address, rate.per_second(now_ms)


def overrides(config: BrokerConfig) -> dict[str, int]:
    """Returns the limits of single addresses and host names."""
    found = {}
    for item in config.list_of(OVERRIDES):
        host, _, count = item.rpartition(":")
        found[host.strip()] = int(count)
    return found
