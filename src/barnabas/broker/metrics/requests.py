"""RequestMetrics: how many requests of each API were answered, and how long that took."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from barnabas.common.metrics import COUNTER, HISTOGRAM, UNTYPED, Family, Sample, TimeBuckets, histogram, labelled
from barnabas.protocol.messages.index import request_class

if TYPE_CHECKING:
    from barnabas.broker.assembly import Broker


def collect(broker: Broker) -> Iterator[Family]:
    by_version = [(name_of(key), version, times) for key, version, times in broker.services.request_counts]
    yield Family(
        "kafka_network_requestmetrics_requests_total",
        COUNTER,
        "Requests answered.",
        [Sample((("request", name), ("version", str(version))), times.count) for name, version, times in by_version],
    )
    by_name: dict[str, list[TimeBuckets]] = {}
    for name, _, times in by_version:
        by_name.setdefault(name, []).append(times)
    counts = [(name, sum(each.count for each in times)) for name, times in sorted(by_name.items())]
    yield labelled(
        "kafka_network_requestmetrics_totaltimems_count",
        UNTYPED,
        "Requests answered whose time is known.",
        "request",
        counts,
    )
    yield Family(
        "barnabas_request_seconds",
        HISTOGRAM,
        "From the read of a request to its answer, in milliseconds' steps; those that wait for others wait here too.",
        (sample for name, times in sorted(by_name.items()) for sample in histogram((("request", name),), times)),
    )


def name_of(api_key: int) -> str:
    """As Kafka's metrics call it: "Produce"."""
    return request_class(api_key).__name__.removesuffix("Request")
