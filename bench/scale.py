"""The rows of a large cluster: the cost of its metadata, by the controller's pure code in a separate process.

There is no other side: Kafka's controller cannot be measured in this way. Times are CPU times, of one core.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import report
from workloads import Experiment, Goal, Metric

_HERE = Path(__file__).resolve().parent
_TIMEOUT_S = 600
_SIZE = "{brokers} brokers, {partitions:,} partitions"

SCALE = Experiment(
    "scale",
    (
        Metric("scale_image_mb", f"metadata image of {_SIZE}: memory", "MB"),
        Metric("scale_snapshot_mb", "its snapshot", "MB"),
        Metric("scale_snapshot_write_s", "time to build the snapshot's bytes, outside the loop", "s"),
        Metric("scale_snapshot_load_s", "time from the snapshot's bytes to an image", "s"),
        Metric("scale_load_us", "that per record", "µs"),
        Metric("scale_create_us", "a partition created: decided, replayed, encoded", "µs"),
        Metric("scale_leaderships", "leaderships of the broker that fails", "1"),
        Metric("scale_failover_records", "partitions changed by its failure", "1"),
        Metric(
            "scale_failover_s", "failover: decided, replayed, encoded by the controller", "s", Goal(1.0, absolute=True)
        ),
        Metric("scale_follow_s", "failover: decoded and replayed by a broker", "s"),
        Metric("scale_decide_us", "failover per partition: controller", "µs"),
        Metric("scale_follow_us", "failover per partition: broker", "µs"),
    ),
    {"rounds": 3, "brokers": 100, "partitions": 100_000, "partitions_per_topic": 1_000},
    {"rounds": 1, "partitions": 10_000, "partitions_per_topic": 100},
)

#: The metric of each value of scale_model.py.
_NAMES = {
    "image_mb": "scale_image_mb",
    "snapshot_mb": "scale_snapshot_mb",
    "snapshot_write_s": "scale_snapshot_write_s",
    "snapshot_load_s": "scale_snapshot_load_s",
    "load_us_per_record": "scale_load_us",
    "create_us_per_partition": "scale_create_us",
    "leaderships": "scale_leaderships",
    "failover_records": "scale_failover_records",
    "failover_decide_s": "scale_failover_s",
    "failover_follow_s": "scale_follow_s",
    "decide_us_per_record": "scale_decide_us",
    "follow_us_per_record": "scale_follow_us",
}


def measure(brokers: int, partitions: int, partitions_per_topic: int, seed: int) -> dict[str, float]:
    """Returns the measured values by metric."""
    options = {
        "brokers": brokers,
        "topics": partitions // partitions_per_topic,
        "partitions_per_topic": partitions_per_topic,
        "seed": seed,
    }
    command = [sys.executable, str(_HERE / "scale_model.py"), json.dumps(options)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=_TIMEOUT_S, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    return {metric: found[name] for name, metric in _NAMES.items()}


def run(experiment: Experiment, values: report.Values) -> None:
    print(f"scale: {experiment.name}", flush=True)
    begun = time.monotonic()
    options = dict(experiment.options)
    rounds = options.pop("rounds")
    for seed in range(rounds):
        measured = measure(**options, seed=seed)
        for metric in experiment.metrics:
            report.record(values, metric, "barnabas", measured[metric.name])
    print(f"  took {time.monotonic() - begun:.0f} s", flush=True)
