"""Brokers: what each holds and leads, its directories, its configurations, and its place in the quorum."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import numpy as np

from barnabas.console.cluster_view import ClusterView
from barnabas.console.problems import Problem
from barnabas.console.views.configs import broker_configs
from barnabas.console.views.partitions import known
from barnabas.monitor.broker_connection import NoAnswer
from barnabas.monitor.columns import UNKNOWN, IntArray
from barnabas.monitor.ladder import SeverityArray
from barnabas.monitor.look_requests import quorum_request
from barnabas.monitor.partition_state import BrokerState
from barnabas.monitor.severity import Severity
from barnabas.monitor.table import ClusterTable
from barnabas.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from barnabas.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse

_REPLICAS_SHOWN: Final = 500
#: The number of replicas up to which DescribeLogDirs is requested for all of them.
_REPLICAS_NAMED: Final = 5_000


def all_brokers(cluster: ClusterView) -> list[BrokerState]:
    """Returns the brokers of the cluster, and those that only have replicas there."""
    return sorted([*cluster.table.brokers.values(), *cluster.absent()])


def brokers_json(cluster: ClusterView) -> list[dict[str, Any]]:
    counts = _Counts(cluster.table)
    return [_broker(cluster, broker, counts) for broker in all_brokers(cluster)]


def brokers_view(cluster: ClusterView) -> dict[str, Any]:
    return {"controller": cluster.table.controller, "brokers": brokers_json(cluster)}


async def broker_view(cluster: ClusterView, broker_id: int) -> dict[str, Any]:
    """Returns one broker with its replicas, directories and settings. Raises Problem if there is no such broker."""
    shown = broker_state(cluster, broker_id)
    # The answer about very many replicas would keep other pages waiting while it is decoded.
    names_replicas = shown["replicas_total"] <= _REPLICAS_NAMED
    directories, configs = await asyncio.gather(
        _directories(cluster, broker_id, names_replicas=names_replicas), broker_configs(cluster, broker_id)
    )
    return shown | directories | configs


def broker_state(cluster: ClusterView, broker_id: int) -> dict[str, Any]:
    """Returns the parts of the broker that need no request to it."""
    broker = next((each for each in all_brokers(cluster) if each.broker_id == broker_id), None)
    if broker is None:
        raise Problem("not-found", f"there is no broker {broker_id}")
    table, hosted = cluster.table, _hosted_rows(cluster.table, broker_id)
    by_row: SeverityArray = np.zeros(len(table.states), np.uint8)
    by_row[table.rows] = table.severities()
    found = np.bincount(by_row[hosted], minlength=len(Severity))
    return _broker(cluster, broker, _Counts(table)) | {
        "by_severity": {severity.name.lower(): int(found[severity]) for severity in Severity},
        "replicas_total": len(hosted),
        "hosted": _hosted(table, broker_id, hosted[:_REPLICAS_SHOWN].tolist()),
    }


async def quorum_view(cluster: ClusterView) -> dict[str, Any]:
    """Returns the voters and observers of the metadata quorum, from any broker that answers."""
    try:
        answer = await cluster.questions.of_any(quorum_request(), DescribeQuorumResponse)
    except NoAnswer as error:
        is_quorum = cluster.questions.knows(DescribeQuorumRequest)
        is_unknown = cluster.problem is not None or cluster.at_ms is not None
        kind = "kraft" if is_quorum else "unknown" if is_unknown else "zookeeper"
        return _quorum(kind, cluster.table.controller, str(error))
    row = next((row for topic in answer.topics for row in topic.partitions), None)
    if row is None or row.error_code:
        return _quorum("kraft", cluster.table.controller, f"the broker refused (error {row.error_code if row else 0})")
    shown = _quorum("kraft", row.leader_id, None)
    end = max((replica.log_end_offset for replica in row.current_voters), default=UNKNOWN)
    return shown | {
        "leader_epoch": row.leader_epoch,
        "high_watermark": row.high_watermark,
        "voters": [_replica(replica, end) for replica in row.current_voters],
        "observers": [_replica(replica, end) for replica in row.observers],
    }


def _quorum(kind: str, leader: int, problem: str | None) -> dict[str, Any]:
    return {
        "kind": kind,
        "leader": leader,
        "leader_epoch": None,
        "high_watermark": None,
        "voters": [],
        "observers": [],
        "problem": problem,
    }


def _replica(replica: DescribeQuorumResponse.ReplicaState, end: int) -> dict[str, Any]:
    return {
        "node": replica.replica_id,
        "directory_id": replica.replica_directory_id.hex() if any(replica.replica_directory_id) else None,
        "end_offset": known(replica.log_end_offset),
        "lag": max(0, end - replica.log_end_offset) if replica.log_end_offset >= 0 else None,
        "last_fetch_ms": known(replica.last_fetch_timestamp),
        "last_caught_up_ms": known(replica.last_caught_up_timestamp),
    }


class _Counts:
    """The replicas, leaders, replicas out of sync, and bytes by broker."""

    def __init__(self, table: ClusterTable) -> None:
        states, rows = table.states, table.rows
        replicas = states.replicas[rows]
        is_there = replicas != UNKNOWN
        in_sync = (replicas[:, :, None] == states.isr[rows][:, None, :]).any(axis=2)
        sizes = table.volumes.size[rows]
        self.replicas = _counted(replicas[is_there])
        self.leaders = _counted(states.leader[rows])
        self.out_of_sync = _counted(replicas[is_there & ~in_sync])
        self.sizes: dict[int, int] = {}
        for broker_id in self.replicas:
            own = sizes[replicas == broker_id]
            if (own >= 0).any():
                self.sizes[broker_id] = int(own[own >= 0].sum())


def _counted(values: Any) -> dict[int, int]:
    found, counts = np.unique(values, return_counts=True)
    return dict(zip(found.tolist(), counts.tolist(), strict=True))


def rows_shown(cluster: ClusterView, broker_id: int) -> list[int]:
    """Returns the rows of the replicas that the view of a broker shows."""
    rows: list[int] = _hosted_rows(cluster.table, broker_id)[:_REPLICAS_SHOWN].tolist()
    return rows


def _hosted_rows(table: ClusterTable, broker_id: int) -> IntArray:
    """Returns the rows of the partitions that have a replica on a broker, the worst first."""
    rows = table.by_severity()
    found: IntArray = rows[(table.states.replicas[rows] == broker_id).any(axis=1)]
    return found


def _broker(cluster: ClusterView, broker: BrokerState, counts: _Counts) -> dict[str, Any]:
    broker_id = broker.broker_id
    return {
        "broker": broker_id,
        "host": broker.host,
        "port": broker.port,
        "rack": broker.rack,
        "problem": broker.problem,
        "answered_ms": broker.answered_ms or None,
        "age_ms": max(0, cluster.clock_ms() - broker.answered_ms) if broker.answered_ms else None,
        "is_controller": broker_id == cluster.table.controller,
        "replicas": counts.replicas.get(broker_id, 0),
        "leaders": counts.leaders.get(broker_id, 0),
        "out_of_sync": counts.out_of_sync.get(broker_id, 0),
        "size_bytes": counts.sizes.get(broker_id),
    }


def _hosted(table: ClusterTable, broker_id: int, rows: list[int]) -> list[dict[str, Any]]:
    found = []
    for state in table.values(rows):
        detail = state.details.get(broker_id)
        found.append(
            {
                "topic": state.topic,
                "partition": state.partition,
                "is_leader": state.leader == broker_id,
                "in_sync": broker_id in state.isr,
                "size_bytes": detail.size_bytes if detail else None,
                "lag": state.lag_of(broker_id),
                "severity": state.severity.name.lower(),
            }
        )
    return found


async def _directories(cluster: ClusterView, broker_id: int, *, names_replicas: bool) -> dict[str, Any]:
    """Returns the log directories of a broker; their replicas, those that the view can name, are counted only if the
    answer is to name them.
    """
    request = DescribeLogDirsRequest(topics=None if names_replicas else [])
    try:
        answer = await cluster.questions.of(broker_id, request, DescribeLogDirsResponse)
    except NoAnswer as error:
        return {"directories": None, "directories_problem": str(error)}
    found: list[dict[str, Any]] = []
    for each in answer.results:
        sizes = [
            row.partition_size for topic in each.topics if cluster.shows_topic(topic.name) for row in topic.partitions
        ]
        found.append(
            {
                "path": each.log_dir,
                "size_bytes": sum(sizes) if names_replicas else None,
                "replicas": len(sizes) if names_replicas else None,
                "total_bytes": known(each.total_bytes),
                "usable_bytes": known(each.usable_bytes),
                "error": each.error_code or None,
            }
        )
    return {"directories": found, "directories_problem": None}
