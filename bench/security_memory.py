"""The rows of memory: an idle broker with a PEM key store, SCRAM, an authorizer and rules, and then with connections.

The connections are TLS; each has had one request, and is idle when the memory is read.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import report
from client_process import Client
from secure_broker import RULES, SecureBroker
from targets import resident_mb
from workloads import Experiment, Goal, Metric

SECURITY_MEMORY = Experiment(
    "security_memory",
    (
        Metric(
            "secure_rss_idle",
            "resident memory, idle: PEM, SCRAM, {rules:,} rules",
            "MB",
            Goal(at_most=55.0, absolute=True),
        ),
        Metric(
            "secure_rss_connections",
            "that with {clients:,} idle TLS connections: more",
            "MB",
            Goal(at_most=250.0, absolute=True),
        ),
        Metric("secure_rss_connection", "that for each connection", "kB"),
    ),
    {"rounds": 3, "rules": 1_000, "clients": 10_000, "processes": 2, "settle_s": 5.0},
    {"rounds": 1, "clients": 1_000, "settle_s": 2.0},
)


def run(experiment: Experiment, data: Path, targets: Sequence[str], values: report.Values) -> None:
    """Runs all rounds; the order of the brokers alternates from round to round."""
    metrics = {metric.name: metric for metric in experiment.metrics}
    for index in range(experiment.options["rounds"]):
        for name in targets if index % 2 == 0 else targets[::-1]:
            broker = SecureBroker(name, data / f"secure-memory-{name}-{index}", RULES)
            try:
                broker.start()
                broker.allow("measured", experiment.options["rules"])
                for key, value in _measured(broker, experiment.options).items():
                    report.record(values, metrics[key], name, value)
            except BaseException:
                print(f"{name}'s log ends:\n{broker.target.log_tail()}", file=sys.stderr)
                raise
            finally:
                broker.target.stop()


def _measured(broker: SecureBroker, options: Mapping[str, Any]) -> dict[str, float]:
    time.sleep(options["settle_s"])
    idle_mb = resident_mb(broker.target.pid)
    given = {"authority": str(broker.authority.certificate)}
    given |= {name: options[name] for name in ("clients", "processes")}
    client = Client("hold", str(broker.ports["ssl"]), given, script="security_clients.py")
    try:
        client.await_ready()
        time.sleep(options["settle_s"])
        more_mb = resident_mb(broker.target.pid) - idle_mb
        held = client.finish()["held"]
    finally:
        client.kill()
    return {
        "secure_rss_idle": idle_mb,
        "secure_rss_connections": more_mb,
        "secure_rss_connection": 1_000 * more_mb / held,
    }
