"""The rates of this broker's clients, and how long a client above its quota has to pause (KIP-13, 55, 124, 219, 599).

A quota applies to all connections of its user or client id together. A client above its quota gets its response
immediately, with the throttle time, and its connection is not read for that time, whether the client pauses or not.
There is no timer per client: a rate is computed when it is recorded, and those of clients without recent traffic are
dropped.

`muting.py` pauses the connection and resumes it; `Connection._resume` then reads again.

`ClientThrottles` exists only while the cluster has quotas of clients (`Services.throttles`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

from barnabas.common.config import BrokerConfig
from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.common.host import Clock
from barnabas.common.sampled_rates import SampledRate, SampledTimes, TokenBucket
from barnabas.metadata.quota_entities import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    AppliedQuota,
    QuotaChanges,
    QuotaTable,
)

#: The number of rates above which those of clients without recent traffic are dropped.
_KEPT_MIN: Final = 1_000
_NS_PER_PERCENT: Final = 10_000_000
_THROTTLED: Final = "The throttling quota has been exceeded."


class Windows(NamedTuple):
    """The number of windows and their length."""

    samples: int
    window_ms: int

    @classmethod
    def of_clients(cls, config: BrokerConfig) -> Windows:
        return cls(config.int_of("quota.window.num"), config.int_of("quota.window.size.seconds") * 1000)

    @classmethod
    def of_mutations(cls, config: BrokerConfig) -> Windows:
        window_ms = config.int_of("controller.quota.window.size.seconds") * 1000
        return cls(config.int_of("controller.quota.window.num"), window_ms)


class Client(NamedTuple):
    """The identity of a client for quotas: its user and client id."""

    user: str
    client_id: str

    @classmethod
    def of(cls, principal: str, client_id: str | None) -> Client:
        return cls(principal.partition(":")[2], client_id or "")


class _Measured:
    """The rate of the clients that share a quota, and their throttle times."""

    __slots__ = ("_throttle_times", "rate")

    def __init__(self, windows: Windows) -> None:
        self.rate = SampledRate(*windows)
        self._throttle_times = SampledTimes(*windows)

    def throttled(self, time_ms: int, now_ms: int) -> None:
        self._throttle_times.record(time_ms, now_ms)

    def throttle_time_ms(self, now_ms: int) -> float:
        """Returns the average throttle time of the recent requests."""
        return self._throttle_times.average(now_ms) or 0.0


class ClientRate(_Measured):
    """The rate of the clients that share a quota of bytes or CPU time."""

    __slots__ = ("limit",)

    def __init__(self, limit: float, windows: Windows) -> None:
        super().__init__(windows)
        self.limit = limit

    def is_idle(self, now_ms: int) -> bool:
        return self.rate.is_empty(now_ms)


class ClientTokens(_Measured):
    """The tokens of the clients that share a quota of controller mutations."""

    __slots__ = ("bucket",)

    def __init__(self, limit: float, windows: Windows, now_ms: int) -> None:
        super().__init__(windows)
        self.bucket = TokenBucket(limit, windows.samples * windows.window_ms / 1000, now_ms)

    @property
    def limit(self) -> float:
        return self.bucket.rate

    @limit.setter
    def limit(self, value: float) -> None:
        self.bucket.rate = value

    def is_idle(self, now_ms: int) -> bool:
        return self.rate.is_empty(now_ms) and self.bucket.tokens(now_ms) >= self.bucket.rate * self.bucket.burst_s


_R = TypeVar("_R", ClientRate, ClientTokens)


class Quota(Generic[_R]):
    """The quotas of one key, and the rates of the clients that they apply to."""

    __slots__ = ("_by_client", "_kept_max", "_make", "shared", "table")

    def __init__(self, key: str, make: Callable[[float], _R]) -> None:
        self.table = QuotaTable(key)
        self._make: Callable[[float], _R] = make
        #: The rates by user and client id; "" stands for all of them together.
        self.shared: dict[Client, _R] = {}
        #: The rate of each client that was looked up since the last change of quotas; None if no quota applies to it.
        self._by_client: dict[Client, _R | None] = {}
        self._kept_max = _KEPT_MIN

    def __bool__(self) -> bool:
        return bool(self.table)

    def follow(self, changes: QuotaChanges) -> None:
        if not self.table.follow(changes):
            return
        self._by_client.clear()
        if not self.table:
            self.shared.clear()

    def of(self, client: Client, now_ms: int) -> _R | None:
        """Returns the rate of a client; None if no quota applies to it."""
        try:
            return self._by_client[client]
        except KeyError:
            pass
        applied = self.table.find(*client)
        if len(self._by_client) >= self._kept_max:
            self._forget_idle(now_ms)
        # Znodes can hold a limit that is zero, negative or NaN. Kafka throttles no client by such a limit either.
        found = None if applied is None or not applied.limit > 0 else self._shared(applied)
        self._by_client[client] = found
        return found

    def _shared(self, applied: AppliedQuota) -> _R:
        shared = Client(applied.user, applied.client_id)
        found = self.shared.get(shared)
        if found is None:
            found = self.shared[shared] = self._make(applied.limit)
        found.limit = applied.limit
        return found

    def _forget_idle(self, now_ms: int) -> None:
        """Drops the rates of clients without recent traffic, so that memory does not grow with the number of client
        ids.
        """
        self._by_client.clear()
        self.shared = {client: rate for client, rate in self.shared.items() if not rate.is_idle(now_ms)}
        self._kept_max = max(_KEPT_MIN, 2 * len(self.shared))


class ClientThrottles:
    """The quotas of all kinds, and the rates of this broker's clients."""

    def __init__(self, config: BrokerConfig, clock: Clock) -> None:
        self._now_ms = clock.now_ms
        windows = self._windows = Windows.of_clients(config)
        controller = Windows.of_mutations(config)
        self.produce: Quota[ClientRate] = Quota(PRODUCER_BYTE_RATE, lambda limit: ClientRate(limit, windows))
        self.fetch: Quota[ClientRate] = Quota(CONSUMER_BYTE_RATE, lambda limit: ClientRate(limit, windows))
        self.request: Quota[ClientRate] = Quota(REQUEST_PERCENTAGE, lambda limit: ClientRate(limit, windows))
        self.mutation: Quota[ClientTokens] = Quota(
            CONTROLLER_MUTATION_RATE, lambda limit: ClientTokens(limit, controller, self._now_ms())
        )
        #: Whether there is a quota of CPU time, which must be measured for each request.
        self.measures_cpu = False

    def __bool__(self) -> bool:
        return bool(self.produce or self.fetch or self.request or self.mutation)

    def follow(self, changes: QuotaChanges) -> None:
        for quota in (self.produce, self.fetch, self.request, self.mutation):
            quota.follow(changes)
        self.measures_cpu = bool(self.request)

    def rates(self) -> Iterator[tuple[str, Mapping[Client, ClientRate]]]:
        """Yields Kafka's name of each quota with its rates."""
        yield "Produce", self.produce.shared
        yield "Fetch", self.fetch.shared
        yield "Request", self.request.shared

    def produced(self, client: Client, size_bytes: int) -> int:
        """Records a Produce request. Returns the time to pause."""
        return self._record(self.produce, client, size_bytes)

    def used_cpu(self, client: Client, cpu_ns: int) -> int:
        """Records the CPU time of a request. Returns the time to pause, at most one window."""
        time_ms = self._record(self.request, client, cpu_ns / _NS_PER_PERCENT)
        return min(time_ms, self._windows.window_ms)

    def fetched(self, client: Client, size_bytes: int) -> int:
        """Records the data of a Fetch response. If the client must pause instead, records nothing and returns the
        throttle time.
        """
        time_ms = self._record(self.fetch, client, size_bytes)
        if time_ms:
            self.forget_fetched(client, size_bytes)
        return time_ms

    def forget_fetched(self, client: Client, size_bytes: int) -> None:
        """Subtracts what `fetched` recorded for data that is not sent."""
        now_ms = self._now_ms()
        rate = self.fetch.of(client, now_ms)
        if rate is not None:
            rate.rate.record(-size_bytes, now_ms)

    def fetch_bytes_max(self, client: Client) -> int:
        """Returns the maximum size of a Fetch response that an idle client gets without being throttled."""
        rate = self.fetch.of(client, self._now_ms())
        if rate is None:
            return 1 << 31
        return int(rate.limit * (self._windows.samples - 1) * self._windows.window_ms / 1000)

    def mutations(self, principal: str, client_id: str | None, *, strict: bool) -> Mutations | None:
        """Returns the quota check of one request that changes partitions; None if no quota applies to the client."""
        if not self.mutation:
            return None
        tokens = self.mutation.of(Client.of(principal, client_id), self._now_ms())
        return None if tokens is None else Mutations(tokens, self._now_ms, strict=strict)

    def _record(self, quota: Quota[ClientRate], client: Client, value: float) -> int:
        now_ms = self._now_ms()
        rate = quota.of(client, now_ms)
        if rate is None:
            return 0
        time_ms = rate.rate.add(value, rate.limit, now_ms)
        rate.throttled(time_ms, now_ms)
        return time_ms


class Mutations:
    """The quota check of one request that creates or deletes partitions (KIP-599)."""

    __slots__ = ("_is_strict", "_now_ms", "_taken", "_throttled_ms", "_time_ms", "_tokens")

    def __init__(self, tokens: ClientTokens, now_ms: Callable[[], int], *, strict: bool) -> None:
        self._tokens = tokens
        self._now_ms = now_ms
        self._is_strict = strict
        self._time_ms = 0
        self._throttled_ms = 0
        #: The topics whose tokens were already taken: the controller can decide the same request twice.
        self._taken: set[str] = set()

    def take(self, topic: str, partitions: int) -> None:
        """Takes the tokens for partitions of a topic. Raises RequestFailed(THROTTLING_QUOTA_EXCEEDED), with nothing
        taken, if the request is strict and the client owes tokens."""
        if topic in self._taken:
            return
        now_ms, tokens = self._now_ms(), self._tokens
        bucket = tokens.bucket
        owed_ms = bucket.missing_ms(now_ms)
        if self._is_strict and owed_ms:
            self._throttle(owed_ms, now_ms)
            raise RequestFailed(ErrorCode.THROTTLING_QUOTA_EXCEEDED, _THROTTLED)
        self._taken.add(topic)
        bucket.take(partitions, now_ms)
        tokens.rate.record(partitions, now_ms)
        if not self._is_strict:
            self._throttle(bucket.missing_ms(now_ms), now_ms)

    def _throttle(self, time_ms: int, now_ms: int) -> None:
        self._time_ms, self._throttled_ms = time_ms, now_ms

    def time_ms(self) -> int:
        """Returns the throttle time of the client from now on."""
        left_ms = max(self._time_ms - (self._now_ms() - self._throttled_ms), 0) if self._time_ms else 0
        self._tokens.throttled(left_ms, self._now_ms())
        return left_ms
