"""The rows of the main job: orders replayed into three brokers, and from their log into tables."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import report
from barnabas.testing import Cluster
from targets import cpu_s
from workloads import Experiment, Goal, Metric

_HERE = Path(__file__).resolve().parent
_BARNABAS = Path(sys.executable).with_name("barnabas")
_TIMEOUT_S = 900

ORDERS = Experiment(
    "orders",
    (
        Metric(
            "orders_replay",
            "`orders replay --speed max`, {orders:,} orders, three brokers, RF 3",
            "orders/s",
            Goal(at_least=10_000, absolute=True),
        ),
        Metric("orders_replay_cpu_us", "CPU of the replaying process per order, including its start", "µs"),
        Metric("orders_brokers_cpu_us", "CPU of the three brokers per replayed order", "µs"),
        Metric("orders_pipeline", "`pipeline orders`, log to tables, micro-batches after the first", "orders/s"),
        Metric("orders_pipeline_first_s", "the first micro-batch of a new session, {batch:,} orders", "s"),
    ),
    {"rounds": 3, "orders": 120_000, "batch": 30_000},
    {"rounds": 1, "orders": 12_000, "batch": 4_000},
)


def table(experiment: Experiment) -> report.Table:
    return report.Table(
        "Orders",
        f"Rounds: {experiment.options['rounds']}. Three brokers, the producer and Spark local[2] on the same machine.",
        experiment.metrics,
    )


def run(experiment: Experiment, data: Path, values: report.Values) -> None:
    """Runs one cluster, with a topic, a replay and a session of Spark for each round."""
    print(f"spark: {experiment.name}", flush=True)
    begun = time.monotonic()
    with Cluster(data / "orders-brokers", brokers=3) as cluster:
        for number in range(experiment.options["rounds"]):
            topic = f"orders-{number}"
            measured = _replay(cluster, topic, data / f"{topic}.ledger", experiment.options["orders"])
            measured |= _pipeline(cluster, topic, data / f"{topic}-tables", experiment.options)
            for metric in experiment.metrics:
                report.record(values, metric, "barnabas", measured[metric.name])
    print(f"  took {time.monotonic() - begun:.0f} s", flush=True)


def _replay(cluster: Cluster, topic: str, ledger: Path, orders: int) -> dict[str, float]:
    """Measures a replay. The rate is the command's own: from its first order to the last acknowledgement, without the
    load of the data set.
    """
    command = [str(_BARNABAS), "orders", "replay", "-b", cluster.bootstrap, "--topic", topic, "--create-topic"]
    command += ["--ledger", str(ledger), "--orders", str(orders), "--speed", "max", "--json"]
    before_s = _cpu_s(cluster)
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        said = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"orders: the replay ended with code {process.returncode}")
    summary: dict[str, Any] = json.loads(said)
    if summary["orders"] != orders:
        raise SystemExit(f"orders: {summary['orders']} of {orders} are acknowledged")
    return {
        "orders_replay": orders / summary["elapsed_s"],
        "orders_replay_cpu_us": (usage.ru_utime + usage.ru_stime) * 1e6 / orders,
        "orders_brokers_cpu_us": (_cpu_s(cluster) - before_s) * 1e6 / orders,
    }


def _pipeline(cluster: Cluster, topic: str, tables: Path, options: dict[str, Any]) -> dict[str, float]:
    given = {**options, "bootstrap": cluster.bootstrap, "topic": topic, "tables": str(tables)}
    command = [sys.executable, str(_HERE / "order_jobs.py"), json.dumps(given)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=_TIMEOUT_S, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _cpu_s(cluster: Cluster) -> float:
    """Returns the CPU time that the brokers have used until now."""
    return sum(cpu_s(pid) for pid in cluster.pids.values())
