"""Rates for quotas and metrics, computed as Kafka's metrics compute them: a rate over sliding windows, the average and
maximum of durations over such windows, and a token bucket.

None of them has a timer: time passes when a value is recorded or read. Times are milliseconds that only grow.
"""

from __future__ import annotations

from math import floor, inf
from typing import Final

_MINUTE_MS: Final = 60_000
#: The share of a limit below which rounding cannot matter.
_SURELY_BELOW: Final = 0.999_999


class _Windows:
    """`samples` windows of `window_ms` each (Kafka's `SampledStat`).

    A window begins with the first value after the end of the last one, and counts until its latest value is
    `samples * window_ms` old.
    """

    __slots__ = ("_current", "_samples", "_samples_max", "_settled_until_ms", "_span_ms", "_window_ms")

    def __init__(self, samples: int, window_ms: int) -> None:
        self._window_ms = window_ms
        self._span_ms = samples * window_ms
        #: One more window is kept, because the oldest can overlap the time that counts.
        self._samples_max = samples + 1
        #: [begin, time of the latest value, sum, count, maximum] of each window, in a ring.
        self._samples: list[list[float]] = []
        self._current = 0
        #: The time until which the windows before the current one keep their values.
        self._settled_until_ms: float = 0

    def record(self, value: float, now_ms: int) -> None:
        samples = self._samples
        if not samples:
            samples.append(_empty(now_ms))
        sample = samples[self._current]
        if now_ms - sample[0] >= self._window_ms:
            self._settled_until_ms = 0
            self._current = (self._current + 1) % self._samples_max
            if self._current == len(samples):
                samples.append(_empty(now_ms))
            else:
                samples[self._current] = _empty(now_ms)
            sample = samples[self._current]
        sample[1] = now_ms
        sample[2] += value
        sample[3] += 1
        if value > sample[4]:
            sample[4] = value

    def total(self, now_ms: int) -> float:
        """Returns the sum of the values that count."""
        self._forget(now_ms)
        return sum(sample[2] for sample in self._samples)

    def is_empty(self, now_ms: int) -> bool:
        """Returns whether all values are too old to count."""
        return all(now_ms - sample[1] >= self._span_ms for sample in self._samples)

    def _forget(self, now_ms: int) -> None:
        for sample in self._samples:
            if now_ms - sample[1] >= self._span_ms:
                sample[:] = _empty(now_ms)


class SampledRate(_Windows):
    """A rate per second (Kafka's `Rate`). It refers to the time since the oldest window began, but at least to all
    windows but one, so that the first values after a pause do not look like a high rate."""

    __slots__ = ("_earlier", "_earliest_ms")

    def __init__(self, samples: int, window_ms: int) -> None:
        super().__init__(samples, window_ms)
        #: The sum of the windows before the current one, and the begin of the oldest of them.
        self._earlier = 0.0
        self._earliest_ms = inf

    def add(self, value: float, limit: float, now_ms: int) -> int:
        """Records a value. Returns the time without new values after which the rate has fallen to `limit`.

        The common case, a rate below the limit, does not look at all windows: each request of a client with a quota
        comes here.
        """
        self.record(value, now_ms)
        if now_ms < self._settled_until_ms and self._is_surely_below(limit, now_ms):
            return 0
        excess_ms = self.excess_ms(limit, now_ms)
        self._settle()
        return excess_ms

    def _is_surely_below(self, limit: float, now_ms: int) -> bool:
        """Returns whether the rate is below a limit by more than rounding, from what `_settle` has computed."""
        current = self._samples[self._current]
        elapsed_ms = self._at_least(int(now_ms - min(current[0], self._earliest_ms)))
        return (self._earlier + current[2]) * 1000.0 < limit * elapsed_ms * _SURELY_BELOW

    def _settle(self) -> None:
        """Computes what `add` knows of the windows before the current one."""
        current = self._samples[self._current]
        earlier = [sample for sample in self._samples if sample is not current]
        self._earlier = sum(sample[2] for sample in earlier)
        self._earliest_ms = min((sample[0] for sample in earlier), default=inf)
        self._settled_until_ms = min((sample[1] for sample in earlier), default=inf) + self._span_ms

    def per_second(self, now_ms: int) -> float:
        return self.total(now_ms) * 1000.0 / self.elapsed_ms(now_ms)

    def elapsed_ms(self, now_ms: int) -> int:
        """Returns the time that the rate refers to."""
        self._forget(now_ms)
        oldest_ms = min((sample[0] for sample in self._samples), default=now_ms)
        return self._at_least(int(now_ms - oldest_ms))

    def _at_least(self, elapsed_ms: int) -> int:
        """Returns the time that the rate refers to if the oldest window began this time ago."""
        missing = self._samples_max - 2 - elapsed_ms // self._window_ms
        return max(elapsed_ms + max(missing, 0) * self._window_ms, 1)

    def excess_ms(self, limit: float, now_ms: int) -> int:
        """Returns the time without new values after which the rate has fallen to `limit`; 0 if it is not above that."""
        rate = self.per_second(now_ms)
        if rate <= limit:
            return 0
        return floor((rate - limit) / limit * self.elapsed_ms(now_ms) + 0.5)


class SampledTimes(_Windows):
    """The average and the maximum of durations (Kafka's `Avg` and `Max`)."""

    __slots__ = ()

    def average(self, now_ms: int) -> float | None:
        """Returns the average; None if no value counts."""
        total = self.total(now_ms)
        count = sum(sample[3] for sample in self._samples)
        return total / count if count else None

    def maximum(self, now_ms: int) -> float | None:
        """Returns the maximum; None if no value counts."""
        self._forget(now_ms)
        return max((sample[4] for sample in self._samples if sample[3]), default=None)


class TokenBucket:
    """A bucket that fills with `rate` tokens per second, up to `burst_s` seconds of them (Kafka's `TokenBucket`). The
    tokens can become negative: a value is subtracted even if it exceeds the tokens in the bucket."""

    __slots__ = ("_tokens", "_updated_ms", "burst_s", "rate")

    def __init__(self, rate: float, burst_s: float, now_ms: int) -> None:
        self.rate = rate
        self.burst_s = burst_s
        self._tokens = rate * burst_s
        self._updated_ms = now_ms

    def tokens(self, now_ms: int) -> float:
        gained = self.rate * (now_ms - self._updated_ms) / 1000.0
        self._tokens = min(self.rate * self.burst_s, self._tokens + gained)
        self._updated_ms = now_ms
        return self._tokens

    def take(self, count: float, now_ms: int) -> None:
        self._tokens = min(self.rate * self.burst_s, self.tokens(now_ms) - count)

    def missing_ms(self, now_ms: int) -> int:
        """Returns the time until the number of tokens is no longer negative; 0 if it is not negative now."""
        tokens = self.tokens(now_ms)
        return floor(-tokens / self.rate * 1000 + 0.5) if tokens < 0 else 0


class CountedRates:
    """Rates of two counts without samples, from their values at earlier readings of the rates."""

    __slots__ = ("_readings",)

    def __init__(self, now_ms: int) -> None:
        #: (time, allowed, denied), oldest first.
        self._readings: list[tuple[int, int, int]] = [(now_ms, 0, 0)]

    def per_minute(self, now_ms: int, counts: list[int]) -> tuple[float, float]:
        """Returns the rates since the latest reading that is a minute old, or since the oldest one."""
        readings = self._readings
        while len(readings) > 1 and readings[1][0] <= now_ms - _MINUTE_MS:
            readings.pop(0)
        then_ms, allowed, denied = readings[0]
        # Kafka's rates refer to at least one of their two windows.
        minutes = max(now_ms - then_ms, _MINUTE_MS // 2) / _MINUTE_MS
        readings.append((now_ms, counts[0], counts[1]))
        return (counts[0] - allowed) / minutes, (counts[1] - denied) / minutes


def _empty(now_ms: int) -> list[float]:
    """Returns a window that begins now."""
    return [now_ms, now_ms, 0.0, 0, -inf]
