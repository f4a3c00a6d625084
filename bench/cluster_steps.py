"""The courses of the rows of clusters: three brokers of one kind at a time, from the start of a life to its end.

Steps with a client run it as the rows of one broker do. The others are functions here: the bench stops, kills and
starts brokers and sends requests to the remaining ones over bare sockets; failover.py writes records meanwhile where a
row needs it.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import groups
import lagging
import report
import wire
from client_process import Client
from cluster_rows import CLUSTER_STEPS, LIFE_PROPERTIES, LIVES
from clusters import BROKERS, Cluster, has_leaders, is_in_sync
from workloads import Step

Options = Mapping[str, Any]
#: The values of a step, by the name that the step gives them.
Measured = dict[str, list[float]]

_SETTLE_S = 0.3
_RETRY_S = 0.01
_TIMEOUT_S = 60.0
_TOPIC_ALREADY_EXISTS = 36


def rss(cluster: Cluster, options: Options) -> Measured:
    time.sleep(options.get("settle_s", 0.0))
    return {"mb": [cluster.resident_mb()]}


def _victim(cluster: Cluster) -> int:
    """Returns a broker that is not the active controller."""
    controller = cluster.controller()
    return next(node_id for node_id in cluster.nodes if node_id != controller)


def _lead(cluster: Cluster, topic: str, leader: int) -> None:
    """Creates a topic of one partition whose first replica is on this broker."""
    cluster.create_topic(topic, 1, [leader, *(node_id for node_id in cluster.nodes if node_id != leader)])


def crash(cluster: Cluster, options: Options) -> Measured:
    """Kills the leader of a partition while records are written to it. The leader is not the active controller."""
    measured: Measured = {"first_ack_s": [], "elect_s": [], "refresh_s": []}
    for index in range(options["times"]):
        topic, victim = f"crash-{index}", _victim(cluster)
        _lead(cluster, topic, victim)
        survivor = next(node_id for node_id in cluster.nodes if node_id not in (victim, cluster.controller()))
        writer = lagging.writer(cluster, topic, options["interval_s"])
        try:
            replaced = lagging.replace_leader(cluster, writer, topic, victim, survivor, cluster.nodes[victim].kill)
        finally:
            writer.kill()
        measured["first_ack_s"].append(replaced.first_ack_s)
        measured["elect_s"].append(replaced.elect_s)
        # The client can send its request to another broker, which knew the new leader earlier.
        measured["refresh_s"].append(max(0.0, replaced.first_ack_s - replaced.elect_s))
        cluster.restart(victim, [topic])
    return measured


def stop(cluster: Cluster, options: Options) -> Measured:
    """Stops the leader of a partition with SIGTERM while records are written to it."""
    pauses_s = []
    for index in range(options["times"]):
        topic, victim = f"stop-{index}", _victim(cluster)
        _lead(cluster, topic, victim)
        writer = lagging.writer(cluster, topic, options["interval_s"])
        try:
            writer.await_ready()
            time.sleep(_SETTLE_S)
            writer.tell(f"stopping {time.monotonic()!r}")
            cluster.nodes[victim].end()
            pauses_s.append(writer.finish(f"stopped {time.monotonic()!r}")["pause_s"])
        finally:
            writer.kill()
        cluster.restart(victim, [topic])
    return {"pause_s": pauses_s}


def controller(cluster: Cluster, options: Options) -> Measured:
    """Kills the active controller, and sends CreateTopics to a survivor that has served one before."""
    times_s = []
    for index in range(options["times"]):
        _lead(cluster, f"before-{index}", 1)
        victim = cluster.controller()
        link = wire.Link(next(node.port for node_id, node in cluster.nodes.items() if node_id != victim))
        try:
            _create_now(link, f"warm-up-{index}")
            time.sleep(_SETTLE_S)
            killed_at = time.monotonic()
            cluster.nodes[victim].kill()
            times_s.append(_create_now(link, f"after-{index}") - killed_at)
        finally:
            link.close()
        cluster.restart(victim, [f"before-{index}"])
    return {"s": times_s}


def _create_now(link: wire.Link, topic: str) -> float:
    """Repeats CreateTopics until the topic is created, and returns the time of that answer."""
    deadline = time.monotonic() + _TIMEOUT_S
    while (code := link.create_topic(topic, 1, 2)) not in (0, _TOPIC_ALREADY_EXISTS):
        if time.monotonic() > deadline:
            raise RuntimeError(f"CreateTopics is answered with error {code} for {_TIMEOUT_S:.0f} s")
        time.sleep(_RETRY_S)
    return time.monotonic()


def rolling(cluster: Cluster, options: Options) -> Measured:
    """Stops each broker with SIGTERM and starts it again; continues with the next one when all replicas are in sync."""
    cluster.create_topic("rolling", options["partitions"])
    for node_id in cluster.nodes:
        cluster.await_metadata(node_id, ["rolling"], is_in_sync, "all are in sync")
    begun = ended_at = time.monotonic()
    for node_id, node in cluster.nodes.items():
        node.end()
        ended_at = cluster.restart(node_id, ["rolling"])
    return {"s": [ended_at - begun]}


def create(cluster: Cluster, options: Options) -> Measured:
    """Creates topics of 1,000 partitions with consecutive requests, because Kafka accepts at most 10,000 records in
    one.
    """
    names = many(options)
    link = wire.Link(cluster.nodes[cluster.admin_id()].port)
    begun = time.monotonic()
    for name in names:
        if code := link.create_topic(name, options["partitions_per_topic"], BROKERS):
            raise RuntimeError(f"CreateTopics of {name} was answered with error {code}")
    link.close()
    return {"s": [_await_leaders(cluster, names, options["partitions_per_topic"]) - begun]}


def _await_leaders(cluster: Cluster, names: Sequence[str], partitions: int) -> float:
    """Waits until all brokers report leaders for all topics, and returns that time. It polls the last topic often, and
    then all topics.
    """

    def led(count: int) -> Callable[[Any], bool]:
        return lambda found: has_leaders(found, count)

    for node_id in cluster.nodes:
        cluster.await_metadata(node_id, names[-1:], led(partitions), "the last topic")
    count = partitions * len(names)
    return max(cluster.await_metadata(node_id, names, led(count), "all topics") for node_id in cluster.nodes)


def many(options: Options) -> list[str]:
    """Returns the topics of `create`."""
    return [f"many-{index}" for index in range(options["topics"])]


class Half(NamedTuple):
    """A broker that leads half of all partitions: a third of those of `create`, and those of one more topic."""

    victim: int
    survivor: int
    names: list[str]
    #: The partitions of the additional topic, and of all.
    more: int
    in_all: int


MORE = "more"


def lead_half(cluster: Cluster, options: Options) -> Half:
    """Gives a broker that is not the controller half of the leaderships, and waits until all replicas are in sync."""
    partitions = options["partitions_per_topic"] * options["topics"]
    names = many(options)
    active = cluster.controller()
    victim, survivor = (node_id for node_id in cluster.nodes if node_id != active)
    link = wire.Link(cluster.nodes[active].port)
    found, _ = link.metadata(names)
    link.close()
    led = sum(partition.leader_id == victim for topic in found.topics for partition in topic.partitions)
    more = partitions // 2 - led
    cluster.create_topic(MORE, more, [victim, survivor, active])
    names.append(MORE)
    await_in_sync(cluster, names)
    return Half(victim, survivor, names, more, partitions + more)


def await_in_sync(cluster: Cluster, names: Sequence[str]) -> None:
    for node_id in cluster.nodes:
        cluster.await_metadata(node_id, names, is_in_sync, "all are in sync")
    time.sleep(_SETTLE_S)


def leaderships(cluster: Cluster, options: Options) -> Measured:
    """Kills a broker that leads half of all partitions."""
    half = lead_half(cluster, options)
    without = {half.victim}
    killed_at = time.monotonic()
    cluster.nodes[half.victim].kill()
    cluster.await_metadata(
        half.survivor, [MORE], lambda found: has_leaders(found, half.more, without), "new leaders of one"
    )
    ended_at = cluster.await_metadata(
        half.survivor, half.names, lambda found: has_leaders(found, half.in_all, without), "new leaders"
    )
    return {"s": [ended_at - killed_at]}


#: The steps without a client of client.py. `run_life` measures the start.
COURSES: dict[str, Callable[[Cluster, Options], Measured]] = {
    "cluster_rss_idle": rss,
    "cluster_rss_loaded": rss,
    "cluster_crash": crash,
    "cluster_stop": stop,
    "cluster_controller": controller,
    "cluster_rolling": rolling,
    "cluster_paused": lagging.paused,
    "cluster_catch_up": lagging.catch_up,
    "cluster_create": create,
    "cluster_leaderships": leaderships,
    **groups.COURSES,
}


def run_step(step: Step, cluster: Cluster, options: Options) -> Measured:
    # Data of earlier steps is written to disk now and not during this step.
    os.sync()
    if step.client is None:
        return COURSES[step.name](cluster, options)
    client = Client(step.client, cluster.bootstrap, {"topic": step.name, **options})
    try:
        return {name: [value] for name, value in client.finish().items()}
    finally:
        client.kill()


def run_life(cluster: Cluster, steps: Sequence[Step], values: report.Values, *, quick: bool) -> None:
    """Runs these steps in their order on three brokers, from their start to their end."""

    def record(step: Step, measured: Measured) -> None:
        for name, metric in step.metrics.items():
            values.setdefault(metric.name, {}).setdefault(cluster.name, []).extend(measured[name])
            shown = ", ".join(report.number(value) for value in measured[name])
            print(f"  {cluster.name:9} {metric.title:80} {shown:>10} {metric.unit}", flush=True)

    try:
        cluster.prepare()
        os.sync()
        launched_at = time.monotonic()
        cluster.launch()
        started_s = cluster.await_usable() - launched_at
        for step in steps:
            if step.name == "cluster_start":
                record(step, {"s": [started_s]})
            else:
                record(step, run_step(step, cluster, step.sized(quick=quick)))
    except Exception:
        print(cluster.log_tails(), file=sys.stderr)
        raise
    finally:
        cluster.destroy()


def run(
    names: Sequence[str], data: Path, targets: Sequence[str], rounds: int, values: report.Values, *, quick: bool
) -> None:
    """Runs the lives that these steps need, in turns; the order of the kinds alternates from round to round."""
    for index in range(rounds):
        for life, all_steps in LIVES.items():
            steps = [step for step in all_steps if step.name in names]
            for name in targets if index % 2 == 0 else targets[::-1]:
                if steps:
                    print(f"cluster, round {index + 1} of {rounds}, {life}: three of {name}", flush=True)
                    brokers = Cluster(name, data / f"cluster-{name}", LIFE_PROPERTIES.get(life))
                    run_life(brokers, steps, values, quick=quick)


def select(wanted: set[str]) -> list[str]:
    """Returns those of the steps that belong to this table, in order, with the steps that they need."""
    needed = {step.after for step in CLUSTER_STEPS if step.name in wanted and step.after is not None}
    return [step.name for step in CLUSTER_STEPS if step.name in wanted | needed]
