"""What is measured, in which order, and what it ought to be.

A `Step` is something done with a running broker; it yields one or more `Metric`s. A metric's goal is either a ratio
(Barnabas over Kafka, of medians) or a limit for Barnabas alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Goal:
    """`at_most` / `at_least` bound the ratio to Kafka, or the value itself if `absolute`."""

    at_most: float | None = None
    at_least: float | None = None
    absolute: bool = False

    def holds(self, value: float, ratio: float | None) -> bool | None:
        """None where there is no ratio to judge."""
        judged = value if self.absolute else ratio
        if judged is None:
            return None
        return (self.at_most is None or judged <= self.at_most) and (self.at_least is None or judged >= self.at_least)

    def show(self, unit: str) -> str:
        sign, bound = ("≤", self.at_most) if self.at_most is not None else ("≥", self.at_least)
        return f"{sign} {bound:g} {unit}" if self.absolute else f"{sign} {bound:g}×"


@dataclass(frozen=True)
class Metric:
    name: str
    title: str
    unit: str
    goal: Goal


@dataclass(frozen=True)
class Step:
    """`client` names the workload of client.py; `options` are full size, `quick` replaces some of them."""

    name: str
    client: str | None
    #: What the client calls a value -> the metric.
    metrics: dict[str, Metric]
    options: dict[str, Any] = field(default_factory=dict)
    quick: dict[str, Any] = field(default_factory=dict)
    #: The step whose records this one reads.
    after: str | None = None

    def sized(self, *, quick: bool) -> dict[str, Any]:
        return {**self.options, **(self.quick if quick else {})}


_BATCHED = (("100b", "100 B", 100, 3_000_000), ("1kb", "1 kB", 1_000, 600_000), ("10kb", "10 kB", 10_000, 80_000))


def _batched() -> list[Step]:
    steps = []
    for name, title, size_bytes, records in _BATCHED:
        rate, unit = ("records_per_s", "records/s") if size_bytes == 100 else ("mb_per_s", "MB/s")
        steps.append(
            Step(
                f"batched_{name}",
                "produce",
                {rate: Metric(f"batched_{name}", f"produce, {title} records in batches", unit, Goal(at_least=1.0))},
                {"size_bytes": size_bytes, "records": records, "warm_up": records // 10},
                {"records": records // 10, "warm_up": records // 50},
            )
        )
    for name, title, size_bytes, _ in _BATCHED:
        rate, unit = ("records_per_s", "records/s") if size_bytes == 100 else ("mb_per_s", "MB/s")
        metric = Metric(f"consume_{name}", f"consume from the page cache, {title} records", unit, Goal(at_least=1.0))
        options = {"size_bytes": size_bytes}
        steps.append(Step(f"consume_{name}", "consume", {rate: metric}, options, after=f"batched_{name}"))
    return steps


STEPS = (
    Step(
        "cold_start",
        "cold_start",
        {
            "s": Metric(
                "cold_start", "cold start to the first acknowledged record", "s", Goal(at_most=0.5, absolute=True)
            )
        },
    ),
    Step(
        "rss_idle",
        None,
        {"mb": Metric("rss_idle", "resident memory, idle", "MB", Goal(at_most=60.0, absolute=True))},
        {"settle_s": 5.0},
        {"settle_s": 2.0},
    ),
    Step(
        "one_in_flight",
        "one_in_flight",
        {
            "p50_ms": Metric("one_in_flight_p50", "one in flight, acks=1, p50", "ms", Goal(at_most=0.8)),
            "p99_ms": Metric("one_in_flight_p99", "one in flight, acks=1, p99", "ms", Goal(at_most=1.0)),
        },
        {"size_bytes": 100, "records": 20_000, "warm_up": 10_000},
        {"records": 2_000, "warm_up": 1_000},
    ),
    Step(
        "tail",
        "tail",
        {
            "p50_ms": Metric("tail_p50", "end to end to one waiting consumer, p50", "ms", Goal(at_most=1.0)),
            "p99_ms": Metric("tail_p99", "end to end to one waiting consumer, p99", "ms", Goal(at_most=1.0)),
        },
        {"records": 2_000, "warm_up": 500, "interval_s": 0.003},
        {"records": 400, "warm_up": 100},
    ),
    Step(
        "unbatched",
        "produce",
        {"records_per_s": Metric("unbatched", "produce, one record per batch", "records/s", Goal(at_least=3.0))},
        {
            "size_bytes": 100,
            "records": 200_000,
            "warm_up": 50_000,
            "settings": {"batch.num.messages": 1, "linger.ms": 0},
        },
        {"records": 20_000, "warm_up": 5_000},
    ),
    *_batched(),
    Step(
        "rss_loaded",
        None,
        {"mb": Metric("rss_loaded", "resident memory at the end", "MB", Goal(at_most=1.0))},
    ),
    Step(
        "idle_cpu",
        "idle",
        {
            "percent": Metric(
                "idle_cpu",
                "CPU with 200 idle connections and 1,000 idle partitions",
                "%",
                Goal(at_most=1.0, absolute=True),
            )
        },
        {"connections": 200, "partitions": 1_000, "partitions_per_topic": 100, "settle_s": 10.0, "measure_s": 30.0},
        {"settle_s": 3.0, "measure_s": 5.0},
    ),
)
