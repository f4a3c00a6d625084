"""The steps and experiments that are measured, in their order, and the goals of their metrics.

A `Step` is something done with a running broker; it yields one or more `Metric`s. An `Experiment` (storage.py) has a
course of its own: several starts, or no broker at all. A metric's goal is either a ratio (Barnabas over the other side,
of medians) or a limit for Barnabas alone; some have none.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class Goal:
    """A goal: `at_most` / `at_least` bound the ratio to Kafka, or the value itself if `absolute`."""

    at_most: float | None = None
    at_least: float | None = None
    absolute: bool = False

    def holds(self, value: float, ratio: float | None) -> bool | None:
        """Returns whether the value meets the goal; None if there is no ratio to compare."""
        judged = value if self.absolute else ratio
        if judged is None:
            return None
        return (self.at_most is None or judged <= self.at_most) and (self.at_least is None or judged >= self.at_least)

    def show(self, unit: str) -> str:
        if self.at_most is not None and self.at_least is not None:
            bounds = f"{self.at_least:g}–{self.at_most:g}"
        else:
            bounds = f"≤ {self.at_most:g}" if self.at_most is not None else f"≥ {self.at_least:g}"
        return f"{bounds} {unit}" if self.absolute else f"{bounds}×"


@dataclass(frozen=True)
class Metric:
    name: str
    title: str
    unit: str
    goal: Goal | None = None


@dataclass(frozen=True)
class Step:
    """A step. `client` names the workload of client.py; `options` are full size, `quick` replaces some of them."""

    name: str
    client: str | None
    #: Name of a value that the client measures -> its metric.
    metrics: dict[str, Metric]
    options: dict[str, Any] = field(default_factory=dict)
    quick: dict[str, Any] = field(default_factory=dict)
    #: The step whose records this one reads.
    after: str | None = None

    def sized(self, *, quick: bool) -> dict[str, Any]:
        return {**self.options, **(self.quick if quick else {})}


@dataclass(frozen=True)
class Experiment:
    """An experiment. `options` are full size, `quick` replaces some of them; the metrics' titles can name them."""

    name: str
    metrics: tuple[Metric, ...]
    options: dict[str, Any]
    quick: dict[str, Any]

    def sized(self, *, quick: bool, **given: float | None) -> Experiment:
        """Returns the experiment in one size, where `given` replaces those options that it has."""
        options = {**self.options, **(self.quick if quick else {})}
        options |= {key: value for key, value in given.items() if value is not None and key in options}
        metrics = tuple(replace(metric, title=metric.title.format(**options)) for metric in self.metrics)
        return Experiment(self.name, metrics, options, {})


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

_LARGE = "{gigabytes:g} GB in {partitions:,} partitions"

EXPERIMENTS = (
    Experiment(
        "unclean_start",
        (
            Metric("start_clean", f"start with {_LARGE}, after a clean stop", "s"),
            Metric(
                "start_current",
                f"start with {_LARGE}, killed, recovery point current",
                "s",
                Goal(at_most=2.0, absolute=True),
            ),
            Metric("start_scanned", f"start with {_LARGE}, killed, no recovery point: all is scanned", "s"),
            Metric(
                "scan_rate",
                "that scan as a rate, the whole start counted; 16 kB batches",
                "GB/s",
                Goal(at_least=1.0, absolute=True),
            ),
        ),
        {"gigabytes": 10.0, "partitions": 1_000, "batch_bytes": 16_384, "rounds": 2},
        {"gigabytes": 0.5, "partitions": 100, "rounds": 1},
    ),
    Experiment(
        "many_partitions",
        (
            Metric(
                "many_start",
                "clean start, {topics} topics of {partitions_per_topic:,} partitions, a segment each",
                "s",
                Goal(at_most=5.0, absolute=True),
            ),
            Metric("many_rss", "resident memory after it", "MB", Goal(at_most=400.0, absolute=True)),
        ),
        {"topics": 10, "partitions_per_topic": 1_000, "batch_bytes": 1_000, "settle_s": 3.0, "rounds": 2},
        {"partitions_per_topic": 100, "settle_s": 1.0, "rounds": 1},
    ),
    Experiment(
        "lookup",
        (
            Metric(
                "lookup_p99",
                "offset look-up in a log of {gigabytes:g} GB, in the process, p99",
                "µs",
                Goal(at_most=100.0, absolute=True),
            ),
            Metric(
                "random_fetch_p50",
                "fetch of one 16 kB batch at a random offset of the log, p50",
                "ms",
                Goal(at_most=1.0),
            ),
            Metric(
                "random_fetch_p99",
                "fetch of one 16 kB batch at a random offset of the log, p99",
                "ms",
                Goal(at_most=1.0),
            ),
        ),
        {
            "gigabytes": 10.0,
            "batch_bytes": 16_384,
            "lookups": 50_000,
            "fetches": 10_000,
            "warm_up": 3_000,
            "rounds": 3,
        },
        {"gigabytes": 0.5, "lookups": 5_000, "fetches": 1_000, "warm_up": 300, "rounds": 1},
    ),
    Experiment(
        "append",
        (
            Metric(
                "append",
                "append of 1 MB batches, {megabytes:g} MB, next to a loop of CRC and write",
                "MB/s",
                Goal(at_least=0.8),
            ),
        ),
        {"megabytes": 1_000, "batch_bytes": 1_000_000, "rounds": 7},
        {"megabytes": 200, "rounds": 3},
    ),
    Experiment(
        "compaction",
        (
            Metric("compaction", "compaction of {megabytes:g} MB, 1 kB records", "MB/s", Goal(at_least=0.5)),
            Metric("produce_without_compaction_p99", "one in flight, acks=1, no compaction, p99", "ms"),
            Metric("produce_with_compaction_p99", "one in flight, acks=1, while a log is compacted, p99", "ms"),
        ),
        {"megabytes": 400, "calm_s": 4.0, "rounds": 3},
        {"megabytes": 150, "calm_s": 1.0, "rounds": 1},
    ),
)
