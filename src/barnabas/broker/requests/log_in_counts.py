"""The numbers of authentications on each listener, as Kafka counts them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from barnabas.common.host import Clock
from barnabas.common.sampled_rates import SampledRate, SampledTimes

#: Kafka's `metrics.num.samples` and `metrics.sample.window.ms`.
_SAMPLES: Final = 2
_WINDOW_MS: Final = 30_000


class Meter:
    """A number of events, and their rate (Kafka's `Meter`)."""

    __slots__ = ("_clock", "_rate", "total")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rate = SampledRate(_SAMPLES, _WINDOW_MS)
        self.total = 0

    def count(self) -> None:
        self.total += 1
        self._rate.record(1, self._clock.now_ms())

    def per_second(self) -> float:
        return self._rate.per_second(self._clock.now_ms())


class ListenerCounts:
    """The counts of one listener."""

    __slots__ = (
        "_clock",
        "_latencies",
        "expired",
        "failures",
        "renewal_failures",
        "renewals",
        "successes",
        "unrenewed",
    )

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._latencies = SampledTimes(_SAMPLES, _WINDOW_MS)
        self.successes = Meter(clock)
        self.failures = Meter(clock)
        self.renewals = Meter(clock)
        self.renewal_failures = Meter(clock)
        #: Successful authentications of clients that cannot authenticate again on the same connection.
        self.unrenewed = 0
        #: Connections closed because their session had ended.
        self.expired = 0

    def count_success(self, *, renews: bool) -> None:
        self.successes.count()
        if not renews:
            self.unrenewed += 1

    def count_renewal(self, began_ms: int) -> None:
        """Counts a renewed session. `began_ms` is the time of its handshake."""
        now_ms = self._clock.now_ms()
        self.renewals.count()
        self._latencies.record(now_ms - began_ms, now_ms)

    def count_failure(self, *, is_renewal: bool) -> None:
        (self.renewal_failures if is_renewal else self.failures).count()

    def latencies_ms(self) -> tuple[float, float] | None:
        """Returns the average and the maximum of the times that renewals took lately; None if there was none."""
        now_ms = self._clock.now_ms()
        average, maximum = self._latencies.average(now_ms), self._latencies.maximum(now_ms)
        return None if average is None or maximum is None else (average, maximum)


class LogInCounts:
    """The counts of all listeners whose peers are authenticated."""

    def __init__(self) -> None:
        self._listeners: dict[str, ListenerCounts] = {}

    def of(self, listener: str, clock: Clock) -> ListenerCounts:
        return self._listeners.setdefault(listener, ListenerCounts(clock))

    def __iter__(self) -> Iterator[tuple[str, ListenerCounts]]:
        yield from sorted(self._listeners.items())
