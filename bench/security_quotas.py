"""The rows of byte quotas: the rate that a producer and a consumer of librdkafka get, next to the quota and to Kafka.

Both run at the same time against one broker, each with a quota of its client id and the default windows. The consumer
reads a topic that was filled before by a client without a quota.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import report
from barnabas.metadata import quota_entities as quotas
from client_process import Client
from quota_clients import CONSUMER, PRODUCER
from secure_broker import set_quota
from targets import TARGETS, Target
from workloads import Experiment, Goal, Metric

_SIZE_BYTES = 10_000
#: A consumer can read the quota of ten windows at once; the topic has twice as much beyond what the quota lets pass.
_FILLED_MORE_S = 20
_SIDES = {"produce": (PRODUCER, quotas.PRODUCER_BYTE_RATE), "consume": (CONSUMER, quotas.CONSUMER_BYTE_RATE)}


def _metrics(name: str, title: str) -> tuple[Metric, Metric]:
    goal = Goal(at_least=0.9, at_most=1.1)
    return (
        Metric(f"quota_{name}_rate", f"{title}, quota {{megabytes:g}} MB/s", "MB/s", goal),
        Metric(
            f"quota_{name}_share",
            "that as a share of the quota",
            "%",
            Goal(at_least=90.0, at_most=110.0, absolute=True),
        ),
    )


SECURITY_QUOTAS = Experiment(
    "security_quotas",
    (*_metrics("produce", "a producer's rate"), *_metrics("consume", "a consumer's rate")),
    {"rounds": 2, "megabytes": 10.0, "warm_up_s": 5.0, "seconds": 99.0},
    {"rounds": 1, "seconds": 33.0},
)


def run(experiment: Experiment, data: Path, targets: Sequence[str], values: report.Values) -> None:
    """Runs all rounds; the order of the brokers alternates from round to round."""
    metrics = {metric.name: metric for metric in experiment.metrics}
    for index in range(experiment.options["rounds"]):
        for name in targets if index % 2 == 0 else targets[::-1]:
            target = TARGETS[name](data / f"quotas-{name}-{index}")
            target.prepare()
            try:
                target.launch()
                target.wait()
                for key, value in _measured(target, experiment.options).items():
                    report.record(values, metrics[key], name, value)
            except BaseException:
                print(f"{name}'s log ends:\n{target.log_tail()}", file=sys.stderr)
                raise
            finally:
                target.stop()


def _measured(target: Target, options: Mapping[str, Any]) -> dict[str, float]:
    quota = options["megabytes"] * 1e6
    filled = round(quota * (options["warm_up_s"] + options["seconds"] + _FILLED_MORE_S) / _SIZE_BYTES)
    for topic, records in (("consume", filled), ("produce", 1)):
        given = {"topic": topic, "size_bytes": _SIZE_BYTES, "records": records}
        Client("produce", target.bootstrap, given).finish()
    for client_id, key in _SIDES.values():
        set_quota(target.port, quotas.CLIENT_ID, client_id, {key: quota})
    times = {name: options[name] for name in ("warm_up_s", "seconds")}
    clients = {
        name: Client(
            name, target.bootstrap, {"topic": name, "size_bytes": _SIZE_BYTES, **times}, script="quota_clients.py"
        )
        for name in _SIDES
    }
    found: dict[str, float] = {}
    try:
        for name, client in clients.items():
            rate = client.finish()["bytes_per_s"]
            found |= {f"quota_{name}_rate": rate / 1e6, f"quota_{name}_share": 100 * rate / quota}
    finally:
        for client in clients.values():
            client.kill()
    return found
