"""RequestMetrics: the number and durations of requests by API, and the memory that requests use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from barnabas.common.metrics import (
    COUNTER,
    GAUGE,
    HISTOGRAM,
    UNTYPED,
    Family,
    Sample,
    TimeBuckets,
    histogram,
    labelled,
    single,
)
from barnabas.protocol.messages.index import API_NAMES

if TYPE_CHECKING:
    from barnabas.broker.assembly import Broker
    from barnabas.broker.requests.memory_budget import MemoryBudget


def collect(broker: Broker) -> Iterator[Family]:
    by_version = [(API_NAMES[key], version, times) for key, version, times in broker.services.request_counts]
    yield Family(
        "kafka_network_requestmetrics_requests_total",
        COUNTER,
        "Answered requests",
        [Sample((("request", name), ("version", str(version))), times.count) for name, version, times in by_version],
    )
    by_name: dict[str, list[TimeBuckets]] = {}
    for name, _, times in by_version:
        by_name.setdefault(name, []).append(times)
    counts = [(name, sum(each.count for each in times)) for name, times in sorted(by_name.items())]
    yield labelled(
        "kafka_network_requestmetrics_totaltimems_count",
        UNTYPED,
        "Answered requests with a known duration",
        "request",
        counts,
    )
    yield Family(
        "barnabas_request_seconds",
        HISTOGRAM,
        "Time from reading a request to its response, with a resolution of 1 ms; delays in purgatories are included",
        (sample for name, times in sorted(by_name.items()) for sample in histogram((("request", name),), times)),
    )
    yield from _memory(broker.memory)


def _memory(budget: MemoryBudget) -> Iterator[Family]:
    prefix = "barnabas_request_memory"
    limit, used = budget.limit_bytes, budget.used_bytes
    yield single(f"{prefix}_limit_bytes", GAUGE, "Memory limit for requests and responses", limit)
    yield single(f"{prefix}_used_bytes", GAUGE, "Upper bound of the memory in use by requests and responses", used)
    yield single(f"{prefix}_waiting_connections", GAUGE, "Connections that wait for memory", budget.waiting_count)
    yield single(
        f"{prefix}_closed_connections_total",
        COUNTER,
        "Connections closed because they held memory without making progress",
        budget.closed_count,
    )
