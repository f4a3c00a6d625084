"""Rates and throttle times of clients with quotas, by user and client id, under Kafka's names.

With a default quota a client has a rate for each client id that it uses, so only the largest rates are shown.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, TypeVar

from barnabas.common.metrics import UNTYPED, Family, Sample
from barnabas.znodes.paths import sanitize

if TYPE_CHECKING:
    from barnabas.broker.assembly import Broker
    from barnabas.broker.throttling.client_throttles import Client, ClientRate, ClientTokens

_R = TypeVar("_R", "ClientRate", "ClientTokens")

#: The number of clients that are shown for each kind of quota.
_SHOWN_MAX: Final = 1_000
_BYTE_RATE = ("byte_rate", "Bytes per second")
_OF_RATES = {
    "Produce": _BYTE_RATE,
    "Fetch": _BYTE_RATE,
    "Request": ("request_time", "CPU time of the event loop, in percent"),
}


def collect(broker: Broker) -> Iterator[Family]:
    throttles = broker.services.throttles
    if throttles is None:
        return
    now_ms = broker.host.clock.now_ms()
    for kind, rates in throttles.rates():
        if not rates:
            continue
        name, text = _OF_RATES[kind]
        prefix = f"kafka_server_{kind.lower()}"
        shown = _largest(rates, now_ms)
        values = [Sample(_labels(client), each.rate.per_second(now_ms)) for client, each in shown]
        yield Family(f"{prefix}_{name}", UNTYPED, f"{text} of clients that share a quota", values)
        times = [Sample(_labels(client), each.throttle_time_ms(now_ms)) for client, each in shown]
        yield _throttle_times(prefix, times)
    tokens = _largest(throttles.mutation.shared, now_ms)
    if tokens:
        prefix = "kafka_server_controllermutation"
        rates_of = [Sample(_labels(client), each.rate.per_second(now_ms)) for client, each in tokens]
        yield Family(f"{prefix}_mutation_rate", UNTYPED, "Partitions created and deleted per second", rates_of)
        left = [Sample(_labels(client), each.bucket.tokens(now_ms)) for client, each in tokens]
        yield Family(f"{prefix}_tokens", UNTYPED, "Partitions that can be created or deleted without a pause", left)
        times = [Sample(_labels(client), each.throttle_time_ms(now_ms)) for client, each in tokens]
        yield _throttle_times(prefix, times)


def _largest(rates: Mapping[Client, _R], now_ms: int) -> list[tuple[Client, _R]]:
    """Returns the clients with the largest rates, sorted."""
    if len(rates) <= _SHOWN_MAX:
        return sorted(rates.items())
    return sorted(heapq.nlargest(_SHOWN_MAX, rates.items(), key=lambda each: each[1].rate.per_second(now_ms)))


def _throttle_times(prefix: str, samples: list[Sample]) -> Family:
    text = "Average time, in milliseconds, for which requests of these clients were throttled"
    return Family(f"{prefix}_throttle_time", UNTYPED, text, samples)


def _labels(client: Client) -> tuple[tuple[str, str], ...]:
    return (("user", sanitize(client.user)), ("client_id", client.client_id))
