"""Barnabas compared with Apache Kafka 4.1.0 on this machine: the same client, the same settings, one kind at a time.

make bench                              everything (about 45 minutes, 16 GB of disk)
make bench ARGS=--quick                 everything, small, one round (about 8 minutes)
make bench ARGS="--only unbatched,tail --rounds 5"
make bench ARGS="--only storage --gigabytes 2"
make bench ARGS="--only cluster"
make bench ARGS="--only scale"
make bench ARGS="--only history"
make bench ARGS="--only explain --rounds 20 --minutes 60"
make bench ARGS="--only groups"
make bench ARGS="--only bystanders"
make bench ARGS="--only security"
make bench ARGS="--only security_rules,security_memory"
make bench ARGS="--only spark"
make bench ARGS="--only zookeeper"
make bench ARGS="--only zookeeper_mode"
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import bystanders
import cluster_steps
import explain_rows
import history_rows
import order_rows
import report
import scale
import security
import spark_rows
import storage
import zookeeper
import zookeeper_mode
from bystanders import BYSTANDERS
from client_process import Client
from cluster_rows import CLUSTER_STEPS
from explain_rows import EXPLAIN
from group_rows import GROUP_STEPS
from history_rows import HISTORY
from order_rows import ORDERS
from scale import SCALE
from security import SECURITY
from spark_rows import SPARK
from targets import ROOT, TARGETS, Target, cpu_percent, kafka_jars, resident_mb
from workloads import EXPERIMENTS, STEPS, Experiment, Step
from zookeeper import ZOOKEEPER
from zookeeper_mode import ZK_MODE_STEPS

#: Experiments with a table of their own.
ALONE = (BYSTANDERS, *SECURITY, SCALE, HISTORY, EXPLAIN, SPARK, ORDERS, ZOOKEEPER)
#: The ones that measure another program too.
COMPARED = frozenset({BYSTANDERS.name, ZOOKEEPER.name, *security.COMPARED})


def run_step(step: Step, target: Target, options: dict[str, Any]) -> dict[str, float]:
    """Runs one step against a running broker; the cold start launches the broker itself."""
    if step.client is None:
        time.sleep(options.get("settle_s", 0.0))
        return {"mb": resident_mb(target.pid)}
    # Data of earlier steps is written to disk now and not during this step.
    os.sync()
    client = Client(step.client, target.bootstrap, options)
    try:
        if step.name == "cold_start":
            client.await_ready()
            launched_at = time.monotonic()
            target.launch()
            return client.finish(repr(launched_at))
        if step.name == "idle_cpu":
            client.await_ready()
            time.sleep(options["settle_s"])
            percent = cpu_percent(target.pid, options["measure_s"])
            client.finish()
            return {"percent": percent}
        return client.finish()
    finally:
        client.kill()


def run_life(target: Target, steps: Sequence[Step], values: report.Values, *, quick: bool) -> None:
    """Runs all steps in their order on one broker, from its start to its end."""
    target.prepare()
    sizes = {step.name: step.sized(quick=quick) for step in STEPS}
    try:
        if steps[0].name != "cold_start":
            target.launch()
        for step in steps:
            options = {"topic": step.after or step.name, **sizes[step.name]}
            if step.after is not None:
                options["records"] = sizes[step.after]["records"]
            if step.name != "cold_start":
                target.wait()
            measured = run_step(step, target, options)
            for name, metric in step.metrics.items():
                values.setdefault(metric.name, {}).setdefault(target.name, []).append(measured[name])
                print(
                    f"  {target.name:9} {metric.title:58} {report.number(measured[name]):>10} {metric.unit}", flush=True
                )
    except BaseException:
        print(f"{target.name}'s log ends:\n{target.log_tail()}", file=sys.stderr)
        raise
    finally:
        target.stop()


def select(only: str | None) -> tuple[list[Step], list[str], list[str]]:
    """Returns the steps to run, including those that others need, the names of the experiments and those of the steps
    of clusters, each in its order.
    """
    steps, experiments = [step.name for step in STEPS], [experiment.name for experiment in EXPERIMENTS]
    clusters = [step.name for step in (*CLUSTER_STEPS, *ZK_MODE_STEPS)]
    of_groups = [step.name for step in GROUP_STEPS]
    in_mode = [step.name for step in ZK_MODE_STEPS]
    others = [name for name in clusters if name not in (*of_groups, *in_mode)]
    groups = {"speed": steps, "storage": list(experiments), "cluster": others, "groups": of_groups}
    groups |= {"spark": [SPARK.name, ORDERS.name], "zookeeper_mode": in_mode}
    groups |= {"security": [each.name for each in SECURITY]}
    experiments += [each.name for each in ALONE]
    if only is None:
        return list(STEPS), experiments, clusters
    wanted = {name for word in only.split(",") for name in groups.get(word.strip(), [word.strip()])}
    if unknown := wanted - {*steps, *experiments, *clusters}:
        there = ", ".join([*groups, *steps, *experiments, *clusters])
        raise SystemExit(f"bench: no such step: {', '.join(sorted(unknown))}; there are {there}")
    wanted |= {step.after for step in STEPS if step.name in wanted and step.after is not None}
    return (
        [step for step in STEPS if step.name in wanted],
        [name for name in experiments if name in wanted],
        [*cluster_steps.select(wanted), *zookeeper_mode.select(wanted)],
    )


def warm_up(targets: Sequence[str], data: Path) -> None:
    """Starts each broker once without a measurement, so that jars and bytecode are in the page cache."""
    for name in targets:
        target = TARGETS[name](data / f"warm-up-{name}")
        target.prepare()
        try:
            target.launch()
            target.wait()
        finally:
            target.stop()


def run_rounds(
    steps: Sequence[Step], targets: Sequence[str], rounds: int, data: Path, values: report.Values, *, quick: bool
) -> None:
    for index in range(rounds):
        for name in targets if index % 2 == 0 else targets[::-1]:
            print(f"round {index + 1} of {rounds}: {name}", flush=True)
            run_life(TARGETS[name](data / f"{name}-{index}"), steps, values, quick=quick)


def tables(
    rounds: int,
    experiments: Sequence[Experiment],
    alone: Mapping[str, Experiment],
) -> list[report.Table]:
    """Returns the tables of the report. `alone`: the experiments with a table of their own, by name."""
    large, spark = alone[SCALE.name], alone[SPARK.name]
    counts = ", ".join(f"{each.name} {each.options['rounds']}" for each in experiments)
    return [
        report.Table(
            "Requests",
            f"Rounds: {rounds}; in each both brokers were started once, with fresh data.",
            [metric for step in STEPS for metric in step.metrics.values()],
        ),
        report.Table(
            "Storage",
            f"Rounds: {counts}. Starts are counted from the launch of the process until every partition has a leader "
            "and an end offset; both brokers started on the same files. The append is compared with a bare loop.",
            [metric for each in experiments for metric in each.metrics],
        ),
        report.Table(
            "Cluster",
            f"Rounds: {rounds}. Three brokers that are controllers too, on this machine, with fresh data each time; "
            "replication factor 3, at least 2 in sync. A start is complete when clients see all three on each broker.",
            [metric for step in CLUSTER_STEPS if step not in GROUP_STEPS for metric in step.metrics.values()],
        ),
        report.Table(
            "Groups",
            f"Rounds: {rounds}. Three brokers as above. Except in the first rows, a group's first generation does "
            "not wait for more members, and a coordinator's write does not wait for others. One process drives all "
            "members over bare sockets.",
            [metric for step in GROUP_STEPS for metric in step.metrics.values()],
        ),
        bystanders.table(alone[BYSTANDERS.name]),
        security.table(alone),
        report.Table(
            "Scale",
            f"Rounds: {large.options['rounds']}. The controller's pure code in one process, without quorum and "
            "network; CPU time of one core. The broker that fails has its share of the partitions.",
            large.metrics,
        ),
        history_rows.table(alone[HISTORY.name]),
        explain_rows.table(alone[EXPLAIN.name]),
        report.Table(
            "Spark",
            f"Rounds: {spark.options['rounds']}. One broker, 4 partitions, Spark local[2] on the same machine, "
            "compared with a source on confluent-kafka's consume() in the same session.",
            spark.metrics,
        ),
        order_rows.table(alone[ORDERS.name]),
        zookeeper.table(alone[ZOOKEEPER.name]),
        *zookeeper_mode.tables(),
    ]


def prepare_process() -> None:
    """Raises the limit of descriptors as far as possible, for the brokers inherit it; lets them keep their bytecode,
    which an installed package has (an image can forbid it); and lets a signal clean up before the end.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end)


def _end(number: int, frame: object) -> None:
    """Ends the process, and ignores further signals, which must not interrupt the clean-up."""
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    sys.exit(f"bench: ended by signal {number}")


def arguments_of(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small loads, one round")
    parser.add_argument("--rounds", type=int, help="number of rounds (default 3, quick 1; storage has its own numbers)")
    parser.add_argument(
        "--only",
        help="steps, separated by commas; speed, storage, cluster, groups, security, spark, zookeeper_mode: "
        "all of a table",
    )
    parser.add_argument("--minutes", type=float, help="the time after which explain begins no further run")
    parser.add_argument("--gigabytes", type=float, help="the size of the large logs (default 10, quick 0.5)")
    parser.add_argument("--targets", default="kafka,barnabas", help="brokers, separated by commas (default both)")
    parser.add_argument("--data", type=Path, help="the folder for data (default the cache folder)")
    parser.add_argument("--results", type=Path, default=ROOT / "bench" / "results", help="the folder for the report")
    return parser.parse_args(argv)


def main() -> int:
    arguments = arguments_of(sys.argv[1:])
    rounds = arguments.rounds or (1 if arguments.quick else 3)
    targets = [name.strip() for name in arguments.targets.split(",")]
    if unknown := set(targets) - set(TARGETS):
        raise SystemExit(f"bench: no such broker: {', '.join(sorted(unknown))}")
    steps, names, cluster_names = select(arguments.only)
    sized = {"quick": arguments.quick, "gigabytes": arguments.gigabytes, "rounds": arguments.rounds}
    sized["minutes"] = arguments.minutes
    experiments = [each.sized(**sized) for each in EXPERIMENTS if each.name in names]
    alone = {each.name: each.sized(**sized) for each in ALONE}
    if "kafka" in targets:
        kafka_jars.jars(say=True)
    base = arguments.data or kafka_jars.cache_dir()
    base.mkdir(parents=True, exist_ok=True)
    prepare_process()
    data = Path(tempfile.mkdtemp(prefix="bench-", dir=base))
    values: report.Values = {}
    begun = time.monotonic()
    try:
        warm_up(targets, data)
        if steps:
            run_rounds(steps, targets, rounds, data, values, quick=arguments.quick)
        storage.run(experiments, data, targets, values)
        cluster_steps.run(cluster_names, data, targets, rounds, values, quick=arguments.quick)
        zookeeper_mode.run(cluster_names, data, targets, rounds, values, quick=arguments.quick)
        runs: dict[str, Callable[[Experiment], None]] = {
            BYSTANDERS.name: lambda each: bystanders.run(each, data, targets, values),
            **security.runs(data, targets, values),
            SCALE.name: lambda each: scale.run(each, values),
            HISTORY.name: lambda each: history_rows.run(each, data, values),
            EXPLAIN.name: lambda each: explain_rows.run(each, values, data if arguments.quick else arguments.results),
            SPARK.name: lambda each: spark_rows.run(each, data, values),
            ORDERS.name: lambda each: order_rows.run(each, data, values),
            ZOOKEEPER.name: lambda each: zookeeper.run(each, data, targets, values),
        }
        for name, run_alone in runs.items():
            if name in names and (name in COMPARED or "barnabas" in targets):
                run_alone(alone[name])
    finally:
        shutil.rmtree(data, ignore_errors=True)
    given = (arguments.only, arguments.gigabytes, arguments.rounds)
    partial = arguments.quick or len(targets) < len(TARGETS) or any(each is not None for each in given)
    name = "partial" if partial else "speed"
    text = report.write(
        arguments.results,
        name,
        values,
        tables(rounds, experiments, alone),
        quick=arguments.quick,
    )
    print(f"\n{text}\ntook {time.monotonic() - begun:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
