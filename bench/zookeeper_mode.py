"""The rows of ZooKeeper mode: three brokers and one ZooKeeper server of one kind, from their start to their failures.

    faults      ours on our server, and Apache Kafka 3.9.1 on Apache ZooKeeper 3.8.4
    partitions  the same, with 10,000 partitions
    requests    ours in ZooKeeper mode, and ours with a metadata quorum

A broker's longest turn, during which it serves nobody, is read from /metrics of each survivor before and after each
failure.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import cluster_steps
import lagging
import report
import wire
from barnabas.protocol.messages.metadata import MetadataResponse
from barnabas.zookeeper.jute import FieldReader
from barnabas.zookeeper.wire import records as r
from barnabas.zookeeper.wire.codes import NOTIFICATION_XID, OpCode
from client_process import Client
from clusters import BROKERS, PROPERTIES, Cluster, has_leaders
from targets import Barnabas, Kafka39, Target, kafka_jars
from workloads import Goal, Metric, Step
from zookeeper import APACHE, Line, ZooKeeperServer

Options = Mapping[str, Any]
Measured = dict[str, list[float]]

#: The side of the requests' rows that ours in ZooKeeper mode is compared with.
QUORUM = "quorum"
_SETTLE_S = 0.3
_RETRY_S = 0.005
_TIMEOUT_S = 60.0
_TOPIC_ALREADY_EXISTS = 36
_CREATE_TIMEOUT_MS = 1_000

_ORDERS: dict[str, Any] = {"size_bytes": 100, "replicas": 3, "acks": "all"}
_WITHIN = Goal(at_least=0.95)

REQUESTS: tuple[Step, ...] = (
    Step(
        "zk_mode_acks_all",
        "one_in_flight",
        {
            "p50_ms": Metric("zk_mode_acks_all_p50", "one in flight, acks=all, p50", "ms", Goal(at_most=1.05)),
            "p99_ms": Metric("zk_mode_acks_all_p99", "one in flight, acks=all, p99", "ms", Goal(at_most=1.05)),
        },
        {**_ORDERS, "records": 5_000, "warm_up": 3_000},
        {"records": 1_000, "warm_up": 500},
    ),
    Step(
        "zk_mode_unbatched",
        "produce",
        {"records_per_s": Metric("zk_mode_unbatched", "produce, acks=all, one record per batch", "records/s", _WITHIN)},
        {**_ORDERS, "records": 15_000, "warm_up": 5_000, "settings": {"batch.num.messages": 1, "linger.ms": 0}},
        {"records": 4_000, "warm_up": 1_000},
    ),
    Step(
        "zk_mode_batched_1kb",
        "produce",
        {"mb_per_s": Metric("zk_mode_batched_1kb", "produce, acks=all, 1 kB records in batches", "MB/s", _WITHIN)},
        {**_ORDERS, "size_bytes": 1_000, "records": 250_000, "warm_up": 25_000},
        {"records": 50_000, "warm_up": 10_000},
    ),
    Step(
        "zk_mode_consume_1kb",
        "consume",
        {"mb_per_s": Metric("zk_mode_consume_1kb", "consume from the page cache, 1 kB records", "MB/s", _WITHIN)},
        {"size_bytes": 1_000, "records": 250_000},
        {"records": 50_000},
        after="zk_mode_batched_1kb",
    ),
)


def _stall(name: str, title: str) -> Metric:
    return Metric(f"{name}_stall", f"{title}, longest turn of a survivor", "ms", Goal(at_most=50.0, absolute=True))


FAULTS: tuple[Step, ...] = (
    Step(
        "zk_mode_start",
        None,
        {
            "s": Metric(
                "zk_mode_start",
                "from nothing to ZooKeeper and three brokers that clients can use",
                "s",
                Goal(at_most=1.5, absolute=True),
            )
        },
    ),
    Step(
        "zk_mode_crash",
        None,
        {
            "first_ack_s": Metric(
                "zk_mode_crash",
                "leader killed with -9: until the next record is acknowledged (acks=all)",
                "s",
                Goal(at_most=0.5, absolute=True),
            ),
            "elect_s": Metric("zk_mode_crash_elect", "of that: until a survivor's metadata shows a new leader", "s"),
            "stall_ms": _stall("zk_mode_crash", "leader killed"),
        },
        {"times": 3, "interval_s": 0.004},
        {"times": 1},
    ),
    Step(
        "zk_mode_controller",
        None,
        {
            "s": Metric(
                "zk_mode_controller",
                "controller killed with -9: until another one has created a topic",
                "s",
                Goal(at_most=1.0, absolute=True),
            ),
            "stall_ms": _stall("zk_mode_controller", "controller killed"),
        },
        {"times": 3},
        {"times": 1},
    ),
    Step(
        "zk_mode_controller_paused",
        None,
        {
            "s": Metric(
                "zk_mode_controller_paused",
                "controller paused (SIGSTOP): from the end of its session until another one has created a topic",
                "s",
                Goal(at_most=0.5, absolute=True),
            ),
            "stall_ms": _stall("zk_mode_controller_paused", "controller paused"),
        },
        {"times": 2},
        {"times": 1},
    ),
)
_MANY = {"topics": 10, "partitions_per_topic": 1_000}
_FEWER = {"partitions_per_topic": 100}
PARTITIONS: tuple[Step, ...] = (
    Step(
        "zk_mode_create",
        None,
        {
            "s": Metric(
                "zk_mode_create",
                "10,000 partitions (quick: 1,000) created, until all brokers report their leaders",
                "s",
                Goal(at_most=15.0, absolute=True),
            ),
            "stall_ms": _stall("zk_mode_create", "10,000 partitions created"),
        },
        _MANY,
        _FEWER,
    ),
    Step(
        "zk_mode_leaderships",
        None,
        {
            "s": Metric(
                "zk_mode_leaderships",
                "5,000 leaders (quick: 500) moved: from SIGTERM to their broker until both survivors report others",
                "s",
                Goal(at_most=2.0, absolute=True),
            ),
            "stall_ms": _stall("zk_mode_leaderships", "5,000 leaders moved"),
        },
        _MANY,
        _FEWER,
        after="zk_mode_create",
    ),
    Step(
        "zk_mode_failover",
        None,
        {
            "s": Metric(
                "zk_mode_failover",
                "controller killed with -9: from the end of /controller until both survivors report a leader of all",
                "s",
                Goal(at_most=3.0, absolute=True),
            ),
            "stall_ms": _stall("zk_mode_failover", "controller killed with 10,000 partitions"),
        },
        _MANY,
        _FEWER,
        after="zk_mode_create",
    ),
)
ZK_MODE_STEPS: tuple[Step, ...] = (*FAULTS, *PARTITIONS, *REQUESTS)


class Turns(NamedTuple):
    """The turns of a broker's event loop: the longest one in seconds, and for each limit how many took at most that
    long."""

    longest_s: float
    at_most: dict[float, int]

    @classmethod
    def of(cls, metrics: str) -> Turns:
        rows = dict(line.rsplit(" ", 1) for line in metrics.splitlines() if line.startswith("barnabas_loop_turn_sec"))
        buckets = {
            float(name.partition('le="')[2].rstrip('"}')): int(float(value))
            for name, value in rows.items()
            if "_bucket" in name
        }
        return cls(float(rows["barnabas_loop_turn_seconds_max"]), buckets)

    def longest_since(self, before: Turns) -> float:
        """Returns the longest turn since `before`: exact if it is the longest of all, else the bound of its bucket."""
        if self.longest_s > before.longest_s:
            return self.longest_s
        more = {bound: count - before.at_most[bound] for bound, count in self.at_most.items()}
        return min(self.longest_s, min(bound for bound, count in more.items() if count == max(more.values())))


class ZookeeperCluster(Cluster):
    """Brokers 1 to 3 in ZooKeeper mode, and the server of their kind."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self._directory = directory
        self.server = ZooKeeperServer(APACHE if name == "kafka" else name, directory / "zookeeper")
        kind = Kafka39 if name == "kafka" else Barnabas
        ports = kafka_jars.free_ports(2 * BROKERS)
        #: The ports of /metrics, which Apache Kafka does not have.
        self.metrics = {} if name == "kafka" else dict(enumerate(ports[BROKERS:], 1))
        self.nodes: dict[int, Target] = {}
        for node_id, port in enumerate(ports[:BROKERS], 1):
            properties = {
                "broker.id": str(node_id),
                "zookeeper.connect": f"127.0.0.1:{self.server.port}",
                "listeners": f"PLAINTEXT://127.0.0.1:{port}",
                "log.dirs": str(directory / str(node_id) / "data"),
                **{key: value for key, value in PROPERTIES.items() if not key.startswith("share.")},
            }
            if node_id in self.metrics:
                properties["barnabas.metrics.listener"] = f"127.0.0.1:{self.metrics[node_id]}"
            self.nodes[node_id] = kind(directory / str(node_id), properties)

    def prepare(self) -> None:
        for node in self.nodes.values():
            node.prepare()

    def launch(self) -> None:
        """Starts all four processes at the same time: the brokers wait for the server."""
        self.server.launch()
        super().launch()

    def controller(self) -> int:
        """Returns the controller's id, as a broker reports it to clients."""

        def requested(link: wire.Link) -> int | None:
            found = link.metadata()[0].controller_id
            return found if found in self.nodes else None

        return self.poll(1, requested, "there is a controller")

    def admin_id(self) -> int:
        return self.controller()

    def survivors(self, victim: int) -> dict[int, wire.Link]:
        return {node_id: wire.Link(node.port) for node_id, node in self.nodes.items() if node_id != victim}

    def turns(self, victim: int) -> dict[int, Turns]:
        """Returns the turns of all brokers except the victim, counted since their start; none for Apache Kafka."""
        found = {}
        for node_id, port in self.metrics.items():
            if node_id != victim:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=_TIMEOUT_S) as answer:
                    found[node_id] = Turns.of(answer.read().decode())
        return found

    def stalls_ms(self, before: Mapping[int, Turns], victim: int) -> list[float]:
        """Returns the longest turn of all brokers in `before` since then."""
        found = [turns.longest_since(before[node_id]) for node_id, turns in self.turns(victim).items()]
        return [1_000 * max(found)] if found else []

    def destroy(self) -> None:
        self.server.kill()
        super().destroy()


# -- courses


def crash(cluster: ZookeeperCluster, options: Options) -> Measured:
    """Kills the leader of a partition while records are written to it. The leader is not the controller."""
    measured: Measured = {"first_ack_s": [], "elect_s": [], "stall_ms": []}
    for index in range(options["times"]):
        topic, active = f"crash-{index}", cluster.controller()
        victim, survivor = (node_id for node_id in cluster.nodes if node_id != active)
        cluster.create_topic(topic, 1, [victim, survivor, active])
        writer = lagging.writer(cluster, topic, options["interval_s"])
        before = cluster.turns(victim)
        try:
            replaced = lagging.replace_leader(cluster, writer, topic, victim, survivor, cluster.nodes[victim].kill)
        finally:
            writer.kill()
        measured["first_ack_s"].append(replaced.first_ack_s)
        measured["elect_s"].append(replaced.elect_s)
        measured["stall_ms"] += cluster.stalls_ms(before, victim)
        cluster.restart(victim, [topic])
    return measured


def controller(cluster: ZookeeperCluster, options: Options) -> Measured:
    """Kills the controller, and creates a topic at whichever survivor is its successor."""
    measured: Measured = {"s": [], "stall_ms": []}
    for index in range(options["times"]):
        victim = cluster.controller()
        links, before = cluster.survivors(victim), cluster.turns(victim)
        time.sleep(_SETTLE_S)
        killed_at = time.monotonic()
        cluster.nodes[victim].kill()
        measured["s"].append(_create_now(links, f"after-{index}") - killed_at)
        measured["stall_ms"] += cluster.stalls_ms(before, victim)
        cluster.restart(victim, [])
    return measured


def controller_paused(cluster: ZookeeperCluster, options: Options) -> Measured:
    """Pauses the controller, and creates a topic at its successor once ZooKeeper has ended its session."""
    measured: Measured = {"s": [], "stall_ms": []}
    for index in range(options["times"]):
        victim = cluster.controller()
        links, before = cluster.survivors(victim), cluster.turns(victim)
        line = Line(cluster.server.port)
        line.call(OpCode.EXISTS, r.WatchedRequest("/controller", True))
        process = cluster.nodes[victim].process
        process.send_signal(signal.SIGSTOP)
        try:
            _await_event(line)
            ended_at = time.monotonic()
            measured["s"].append(_create_now(links, f"paused-{index}") - ended_at)
            measured["stall_ms"] += cluster.stalls_ms(before, victim)
        finally:
            process.send_signal(signal.SIGCONT)
            line.socket.close()
        cluster.await_usable()
    return measured


def create(cluster: ZookeeperCluster, options: Options) -> Measured:
    before = cluster.turns(victim=0)
    measured = cluster_steps.create(cluster, options)
    return {**measured, "stall_ms": cluster.stalls_ms(before, 0)}


def leaderships(cluster: ZookeeperCluster, options: Options) -> Measured:
    """Stops a broker that leads half of all partitions."""
    half = cluster_steps.lead_half(cluster, options)
    victim = cluster.nodes[half.victim]
    before = cluster.turns(half.victim)
    stopped_at = time.monotonic()
    victim.process.terminate()
    ended = _await_leaders(cluster, half.names, half.in_all, half.victim)
    measured = {"s": [ended - stopped_at], "stall_ms": cluster.stalls_ms(before, half.victim)}
    victim.process.wait(_TIMEOUT_S)
    cluster.restart(half.victim, half.names)
    return measured


def failover(cluster: ZookeeperCluster, options: Options) -> Measured:
    """Kills the controller, which leads some of the partitions, and waits from the end of its znode."""
    victim, names = cluster.controller(), cluster_steps.many(options)
    cluster_steps.await_in_sync(cluster, names)
    before = cluster.turns(victim)
    line = Line(cluster.server.port)
    line.call(OpCode.EXISTS, r.WatchedRequest("/controller", True))
    cluster.nodes[victim].kill()
    _await_event(line)
    gone_at = time.monotonic()
    line.socket.close()
    ended = _await_leaders(cluster, names, options["topics"] * options["partitions_per_topic"], victim)
    return {"s": [ended - gone_at], "stall_ms": cluster.stalls_ms(before, victim)}


def _await_leaders(cluster: ZookeeperCluster, names: Sequence[str], count: int, victim: int) -> float:
    """Waits until all survivors report other leaders of all partitions than the victim, and returns that time.

    Each look at 10,000 partitions costs client and broker a part of the CPU that the cluster needs, so the client looks
    at one topic after the other. The victim does not lead again, so a topic that has moved needs no second look.
    """
    ended = 0.0
    for node_id in cluster.nodes:
        if node_id == victim:
            continue
        shown: dict[str, int] = {}

        def led(found: MetadataResponse, shown: dict[str, int] = shown) -> bool:
            (topic,) = found.topics
            shown[str(topic.name)] = len(topic.partitions)
            return has_leaders(found, len(topic.partitions), {victim})

        for name in names:
            ended = max(ended, cluster.await_metadata(node_id, [name], led, f"{name} has leaders"))
        assert sum(shown.values()) == count, f"{sum(shown.values())} of {count} partitions exist"
    return ended


def _await_event(line: Line) -> None:
    """Waits for the event of a watch."""
    while r.read(r.ReplyHeader, FieldReader(line.next())).xid != NOTIFICATION_XID:
        pass


def _create_now(links: Mapping[int, wire.Link], topic: str) -> float:
    """Repeats CreateTopics at each of these brokers until one has created the topic on itself, and returns that time.
    Closes the connections.
    """
    deadline = time.monotonic() + _TIMEOUT_S
    codes: dict[int, int] = {}
    while time.monotonic() < deadline:
        for node_id, link in links.items():
            codes[node_id] = link.create_topic(topic, 1, 1, [node_id], _CREATE_TIMEOUT_MS)
            if codes[node_id] in (0, _TOPIC_ALREADY_EXISTS):
                created_at = time.monotonic()
                for each in links.values():
                    each.close()
                return created_at
        time.sleep(_RETRY_S)
    raise RuntimeError(f"CreateTopics is answered with the errors {codes} for {_TIMEOUT_S:.0f} s")


COURSES: dict[str, Callable[[ZookeeperCluster, Options], Measured]] = {
    "zk_mode_crash": crash,
    "zk_mode_controller": controller,
    "zk_mode_controller_paused": controller_paused,
    "zk_mode_create": create,
    "zk_mode_leaderships": leaderships,
    "zk_mode_failover": failover,
}


# -- runs


def tables() -> list[report.Table]:
    return [
        report.Table(
            "Failures in ZooKeeper mode",
            "Three brokers and one ZooKeeper server, default session timeout (18 s), compared with Apache Kafka 3.9.1 "
            "on Apache ZooKeeper 3.8.4.",
            [metric for step in FAULTS for metric in step.metrics.values()],
        ),
        report.Table(
            "Many partitions in ZooKeeper mode",
            "Ten topics of 1,000 partitions with three replicas, on the same clusters.",
            [metric for step in PARTITIONS for metric in step.metrics.values()],
        ),
        report.Table(
            "Requests in ZooKeeper mode",
            "The same brokers in ZooKeeper mode, compared with three of Barnabas that are controllers too.",
            [metric for step in REQUESTS for metric in step.metrics.values()],
        ),
    ]


def select(wanted: set[str]) -> list[str]:
    """Returns those of the steps that belong to these tables, in order, with the steps that they need."""
    needed = {step.after for step in ZK_MODE_STEPS if step.name in wanted and step.after is not None}
    return [step.name for step in ZK_MODE_STEPS if step.name in wanted | needed]


def run(
    names: Sequence[str], data: Path, targets: Sequence[str], rounds: int, values: report.Values, *, quick: bool
) -> None:
    """Runs these steps in turns; the order of the sides alternates from round to round."""
    lives = {
        "faults": (FAULTS, list(targets)),
        "partitions": (PARTITIONS, list(targets)),
        "requests": (REQUESTS, [QUORUM, "barnabas"]),
    }
    for index in range(rounds):
        for life, (all_steps, sides) in lives.items():
            steps = [step for step in all_steps if step.name in names]
            for side in sides if index % 2 == 0 else sides[::-1]:
                if steps and "barnabas" in targets:
                    print(f"ZooKeeper mode, round {index + 1} of {rounds}, {life}: {side}", flush=True)
                    folder = data / f"zk-mode-{side}-{index}"
                    cluster = Cluster("barnabas", folder) if side == QUORUM else ZookeeperCluster(side, folder)
                    run_life(cluster, side, steps, values, quick=quick)


def run_life(cluster: Cluster, side: str, steps: Sequence[Step], values: report.Values, *, quick: bool) -> None:
    """Runs these steps in their order, from the start of the processes to their end."""
    try:
        cluster.prepare()
        os.sync()
        launched_at = time.monotonic()
        cluster.launch()
        started_s = cluster.await_usable() - launched_at
        for step in steps:
            measured = {"s": [started_s]} if step.name == "zk_mode_start" else _run_step(step, cluster, quick)
            for name, metric in step.metrics.items():
                for value in measured[name]:
                    report.record(values, metric, side, value)
    except Exception:
        print(cluster.log_tails(), file=sys.stderr)
        raise
    finally:
        cluster.destroy()


def _run_step(step: Step, cluster: Cluster, quick: bool) -> Measured:
    os.sync()
    options = step.sized(quick=quick)
    if step.client is None:
        assert isinstance(cluster, ZookeeperCluster)
        return COURSES[step.name](cluster, options)
    client = Client(step.client, cluster.bootstrap, {"topic": step.after or step.name, **options})
    try:
        return {name: [value] for name, value in client.finish().items()}
    finally:
        client.kill()
