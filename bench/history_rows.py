"""The rows of the table "History": a week of a large cluster in one file, in a separate process.

There is no other side: Kafka has no history. Times are CPU times, of one core.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import report
from workloads import Experiment, Goal, Metric

_HERE = Path(__file__).resolve().parent
_TIMEOUT_S = 3_600

HISTORY = Experiment(
    "history",
    (
        Metric("history_record_us", "{partitions:,} partitions, {events:,} changes in {days} days: one recorded", "µs"),
        Metric("history_file_mb", "the file", "MB"),
        Metric("history_state_p50_ms", "state at a random moment, p50", "ms"),
        Metric("history_state_p99_ms", "the same, p99", "ms", Goal(100, absolute=True)),
        Metric("history_partition_p50_ms", "history of a random partition, p50", "ms"),
        Metric("history_partition_p99_ms", "the same, p99", "ms", Goal(20, absolute=True)),
    ),
    {"rounds": 1, "partitions": 100_000, "partitions_per_topic": 10, "events": 2_000_000, "days": 7},
    {"partitions": 10_000, "events": 100_000},
)


def table(experiment: Experiment) -> report.Table:
    return report.Table(
        "History",
        f"Rounds: {experiment.options['rounds']}. Change sets of restarts of brokers and of replicas that fall behind, "
        "recorded in one process without a cluster; CPU time of one core.",
        experiment.metrics,
    )


def measure(folder: Path, **options: int) -> dict[str, float]:
    """Returns the measured values by metric."""
    command = [sys.executable, str(_HERE / "history_model.py"), json.dumps({**options, "folder": str(folder)})]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=_TIMEOUT_S, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    return {metric.name: found[metric.name.removeprefix("history_")] for metric in HISTORY.metrics}


def run(experiment: Experiment, data: Path, values: report.Values) -> None:
    print(f"history: {experiment.name}", flush=True)
    begun = time.monotonic()
    options = dict(experiment.options)
    for seed in range(options.pop("rounds")):
        with tempfile.TemporaryDirectory(dir=data) as folder:
            measured = measure(Path(folder), **options, seed=seed)
        for metric in experiment.metrics:
            report.record(values, metric, "barnabas", measured[metric.name])
    print(f"  took {time.monotonic() - begun:.0f} s", flush=True)
