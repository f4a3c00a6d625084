"""The rows of replicas that fall behind: a leader that is paused, and a follower with much to fetch.

A paused process keeps its connections, so both kinds notice the pause by its session alone.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import wire
from client_process import Client
from clusters import Cluster, has_leaders, is_in_sync

_SETTLE_S = 0.3
_CALM_S = 5.0
_POLL_S = 0.005
_TIMEOUT_S = 900.0
_RECORD_BYTES = 10_000
_LOOK_S = 5.0
#: Client settings that abandon a request to the paused broker after a second; otherwise the client would need a minute
#: to end.
_IMPATIENT = {"socket.timeout.ms": 1_000}


def writer(cluster: Cluster, topic: str, interval_s: float, settings: Mapping[str, Any] | None = None) -> Client:
    """Returns a producer of one record after the other, to the first partition."""
    options = {"topic": topic, "partition": 0, "interval_s": interval_s, "settings": dict(settings or {})}
    return Client("writer", cluster.bootstrap, options, script="failover.py")


class Replaced(NamedTuple):
    """Seconds since the leader was stopped, until the election and until the next acknowledgement."""

    elect_s: float
    first_ack_s: float


def replace_leader(
    cluster: Cluster, client: Client, topic: str, leader: int, survivor: int, stop: Callable[[], None]
) -> Replaced:
    """Stops the leader with `stop`, and measures until a survivor reports another one, and until the next record is
    acknowledged.

    `client` writes to the topic, which has one partition.
    """
    client.await_ready()
    time.sleep(_SETTLE_S)
    stopped_at = time.monotonic()
    stop()
    client.tell(f"crashed {stopped_at!r}")
    elected_at = cluster.await_metadata(
        survivor, [topic], lambda found: has_leaders(found, 1, {leader}), "a new leader"
    )
    return Replaced(elected_at - stopped_at, client.finish()["acked_at"] - stopped_at)


def paused(cluster: Cluster, options: Mapping[str, Any]) -> dict[str, list[float]]:
    """Stops the leader of a partition with SIGSTOP while records are written to it. It is not the active controller."""
    measured: dict[str, list[float]] = {"first_ack_s": [], "elect_s": []}
    for index in range(options["times"]):
        topic, active = f"paused-{index}", cluster.controller()
        victim, survivor = (node_id for node_id in cluster.nodes if node_id != active)
        cluster.create_topic(topic, 1, [victim, survivor, active])
        client = writer(cluster, topic, options["interval_s"], _IMPATIENT)
        process = cluster.nodes[victim].process
        try:
            replaced = replace_leader(
                cluster, client, topic, victim, survivor, partial(process.send_signal, signal.SIGSTOP)
            )
        except RuntimeError as error:
            raise RuntimeError(f"{error}; {_survivor_states(cluster, topic, victim)}") from error
        finally:
            process.send_signal(signal.SIGCONT)
            client.kill()
        measured["first_ack_s"].append(replaced.first_ack_s)
        measured["elect_s"].append(replaced.elect_s)
        cluster.await_metadata(survivor, [topic], is_in_sync, "the paused broker is in sync again")
    return measured


def _survivor_states(cluster: Cluster, topic: str, victim: int) -> str:
    """Returns the states that show why no other broker became leader: that of the paused process, and the metadata of
    each survivor.
    """
    found = [f"{victim}: {_state(cluster.nodes[victim].pid)}"]
    for node_id, node in cluster.nodes.items():
        if node_id == victim:
            continue
        try:
            link = wire.Link(node.port, _LOOK_S)
            try:
                metadata, _ = link.metadata([topic])
                active = link.active_controller()
            finally:
                link.close()
        except (OSError, EOFError) as error:
            found.append(f"{node_id}: {error}")
            continue
        alive = [broker.node_id for broker in metadata.brokers]
        led = [(row.leader_id, row.isr_nodes) for each in metadata.topics for row in each.partitions]
        found.append(f"{node_id} reports: controller {active}, brokers {alive}, (leader, ISR) {led}")
    return "; ".join(found)


def _state(pid: int) -> str:
    """Returns the state of a process as Linux reports it, for example "T (stopped)"."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError as error:
        return str(error)
    return next((line for line in lines if line.startswith("State:")), "of no known state")


def catch_up(cluster: Cluster, options: Mapping[str, Any]) -> dict[str, list[float]]:
    """Measures how fast a follower catches up after it was down while its leader got many bytes. Another topic is
    written to all the time.
    """
    active = cluster.controller()
    victim, other = (node_id for node_id in cluster.nodes if node_id != active)
    cluster.create_topic("behind", 1, [other, active, victim])
    cluster.create_topic("bystander", 1, [active, other, victim])
    cluster.nodes[victim].end()
    records = options["megabytes"] * 1_000_000 // _RECORD_BYTES
    filling = {"topic": "behind", "size_bytes": _RECORD_BYTES, "records": records, "is_created": True, "acks": "all"}
    Client("produce", cluster.bootstrap, filling).finish()
    # The data is synced first, because writing it back would disturb the calm before the start.
    os.sync()
    client = writer(cluster, "bystander", options["interval_s"])
    try:
        client.await_ready()
        client.tell(f"calm {time.monotonic()!r}")
        time.sleep(_CALM_S)
        folder = cluster.nodes[victim].data_dir / "behind-0"
        cluster.nodes[victim].launch()
        begun_at = _first_growth(folder)
        client.tell(f"busy {begun_at!r}")
        ended_at = _in_sync(cluster, active)
        latencies = client.finish(f"over {ended_at!r}")
    finally:
        client.kill()
    return {
        "mb_per_s": [records * _RECORD_BYTES / 1e6 / (ended_at - begun_at)],
        "p99_ms": [latencies["busy_ms"]],
        "p99_ratio": [latencies["busy_ms"] / latencies["calm_ms"]],
    }


def _first_growth(folder: Path) -> float:
    """Waits until the log in this folder grows, and returns that time."""
    size, deadline = _log_bytes(folder), time.monotonic() + _TIMEOUT_S
    while _log_bytes(folder) <= size:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{folder.name} does not grow")
        time.sleep(_POLL_S)
    return time.monotonic()


def _log_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.log"))


def _in_sync(cluster: Cluster, node_id: int) -> float:
    deadline = time.monotonic() + _TIMEOUT_S
    while True:
        try:
            return cluster.await_metadata(node_id, ["behind"], is_in_sync, "the follower is in sync")
        except RuntimeError:
            if time.monotonic() > deadline:
                raise
