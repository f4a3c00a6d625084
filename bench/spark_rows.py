"""The rows of the Spark source: compared with a source on confluent-kafka's consume(), in the same session, on one
broker.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import report
from barnabas.testing import Cluster
from workloads import Experiment, Goal, Metric

_HERE = Path(__file__).resolve().parent
_TIMEOUT_S = 1800
_THREE_TIMES = Goal(at_least=3.0, absolute=True)

SPARK = Experiment(
    "spark",
    (
        Metric(
            "spark_first_read",
            "the first read of a session, {small:,} records of 100 B, its workers' start and all",
            "s",
        ),
        Metric("spark_planning", "a read of an empty range: planning and tasks alone", "ms"),
        Metric(
            "spark_batch_100b",
            "batch read, {small:,} records of 100 B, all seven columns",
            "records/s",
            Goal(at_least=1_500_000, absolute=True),
        ),
        Metric("spark_batch_100b_ratio", "that, as a multiple of the other source", "×", _THREE_TIMES),
        Metric("spark_batch_1kb", "batch read, {large:,} records of 1 kB", "MB/s", Goal(at_least=450, absolute=True)),
        Metric("spark_batch_1kb_ratio", "that, as a multiple of the other source", "×", _THREE_TIMES),
        Metric(
            "spark_backlog",
            "backlog of {small:,} records of 100 B into Parquet (addBatch)",
            "records/s",
            Goal(at_least=500_000, absolute=True),
        ),
        Metric("spark_backlog_ratio", "that, as a multiple of the other source", "×", _THREE_TIMES),
        Metric("spark_backlog_limited", "backlog into Parquet, maxOffsetsPerTrigger={most:,}", "records/s"),
        Metric("spark_worker_mb", "largest Python worker while the backlog is drained in one batch", "MB"),
        Metric("spark_worker_limited_mb", "largest Python worker, maxOffsetsPerTrigger={most:,}", "MB"),
        Metric(
            "spark_latency_p50",
            "produce to commit of the micro-batch, into Parquet, p50",
            "ms",
            Goal(at_most=400, absolute=True),
        ),
        Metric("spark_latency_p90", "produce to commit of the micro-batch, into Parquet, p90", "ms"),
        Metric(
            "spark_latency_tuned_p50", "produce to commit with docs/spark.md's file manager for checkpoints, p50", "ms"
        ),
        Metric(
            "spark_latency_tuned_p90", "produce to commit with docs/spark.md's file manager for checkpoints, p90", "ms"
        ),
        Metric("spark_sink", "batch write of {small:,} records of 100 B", "records/s"),
    ),
    {"rounds": 3, "small": 2_000_000, "large": 300_000, "most": 200_000, "latencies": 40},
    {"rounds": 1, "small": 200_000, "large": 50_000, "most": 50_000, "latencies": 8},
)


def run(experiment: Experiment, data: Path, values: report.Values) -> None:
    """Starts a separate broker and fills it once, then runs one process with one Spark session."""
    print(f"spark: {experiment.name}", flush=True)
    begun = time.monotonic()
    with Cluster(data / "spark-broker") as cluster:
        options = {**experiment.options, "bootstrap": cluster.bootstrap, "directory": str(data / "spark")}
        (data / "spark").mkdir(parents=True, exist_ok=True)
        command = [sys.executable, str(_HERE / "spark_jobs.py"), json.dumps(options)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=_TIMEOUT_S, check=True)
    found: report.Values = json.loads(done.stdout.splitlines()[-1])
    for metric in experiment.metrics:
        for side, measured in found[metric.name].items():
            for value in measured:
                report.record(values, metric, side, value)
    print(f"  took {time.monotonic() - begun:.0f} s", flush=True)
