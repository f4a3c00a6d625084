"""The view of a partition: why it has this leader and this ISR, who had them when, and where its replicas lie."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

from barnabas.console.cluster_view import ClusterView
from barnabas.console.packed_lanes import NO_CAUSE_YET, NO_EVENT, Lane
from barnabas.console.problems import Problem
from barnabas.console.views.partitions import known, partitions_json
from barnabas.monitor.broker_connection import NoAnswer
from barnabas.monitor.look_requests import log_dirs_request
from barnabas.monitor.partition_state import PartitionState
from barnabas.monitor.severity import Severity
from barnabas.monitor.texts import NO_NODE, at, ids, leader_name
from barnabas.protocol.messages.describe_log_dirs import DescribeLogDirsResponse
from barnabas.protocol.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse

_LANES_SHOWN: Final = 2_000


def partition_state(cluster: ClusterView, topic: str, partition: int) -> dict[str, Any]:
    """Returns the partition without the parts for which brokers must be queried. Raises Problem if there is no such
    partition.
    """
    row = cluster.table.row_of(topic, partition)
    if row is None:
        raise Problem("not-found", f"there is no partition {topic}-{partition}")
    (shown,) = partitions_json(cluster, [row])
    state = cluster.table.state(row)
    lanes = cluster.lanes(state)[-_LANES_SHOWN:]
    return shown | {
        "explanation": explanation(state, lanes),
        "lanes": [lane_json(lane) for lane in lanes],
        "lanes_from_ms": lanes[0].time_ms if lanes else cluster.begun_ms,
        "lanes_gap": shown["missed_elections"] > 0,
    }


def lanes_view(
    cluster: ClusterView, topic: str, *, from_ms: int | None, to_ms: int | None, limit: int
) -> dict[str, Any]:
    """Returns the lanes of a topic's partitions, the most disturbed first. Raises Problem if there is no such topic."""
    found = cluster.table.topics.by_name.get(topic)
    if found is None:
        raise Problem("not-found", f"there is no topic {topic}")
    lanes: list[dict[str, Any]] = []
    for state in cluster.table.values(found.rows):
        own = _between(cluster.lanes(state), from_ms, to_ms)
        lanes.append(
            {
                "partition": state.partition,
                "severity": state.severity.name.lower(),
                "changes": sum(lane.id != NO_EVENT and lane.time_ms >= (from_ms or 0) for lane in own),
                "leader": state.leader,
                "isr": list(state.isr),
                "replicas": list(state.replicas),
                "lanes": [lane_json(lane) for lane in own],
            }
        )
    lanes.sort(key=lambda each: (-each["changes"], each["partition"]))
    return {
        "topic": topic,
        "lanes": lanes[:limit],
        "from_ms": from_ms or cluster.begun_ms,
        "to_ms": to_ms or cluster.clock_ms(),
        "gap": bool(cluster.table.missed_elections[found.rows].any()),
    }


def _between(lanes: Sequence[Lane], from_ms: int | None, to_ms: int | None) -> Sequence[Lane]:
    """Returns the states of a period, the one at its begin included."""
    until = [lane for lane in lanes if to_ms is None or lane.time_ms <= to_ms]
    before = 0 if from_ms is None else sum(lane.time_ms <= from_ms for lane in until)
    return until[max(0, before - 1) :]


async def partition_view(cluster: ClusterView, topic: str, partition: int) -> dict[str, Any]:
    shown = partition_state(cluster, topic, partition)
    directories, producers = await asyncio.gather(
        _directories(cluster, topic, partition, shown["replicas"]),
        _producers(cluster, topic, partition, shown["leader"]),
    )
    return shown | {"directories": directories, **producers}


def lane_json(lane: Lane) -> dict[str, Any]:
    return {
        "time_ms": lane.time_ms,
        "leader": lane.leader,
        "leader_epoch": lane.leader_epoch,
        "isr": list(lane.isr),
        "replicas": None if lane.replicas is None else list(lane.replicas),
        "cause": lane.cause,
        "codes": list(lane.codes),
        "is_change": lane.id != NO_EVENT,
    }


def explanation(state: PartitionState, lanes: Sequence[Lane]) -> list[str]:
    """Returns the reasons for the present leader and ISR, as far as events are known."""
    out = f", out of sync {ids(state.out_of_sync)}" if state.out_of_sync else ""
    lines = [
        f"{state.key}: leader {leader_name(state.leader)} (epoch {state.leader_epoch}), "
        f"replicas {ids(state.replicas)}, in sync {ids(sorted(state.isr))}{out}: {state.state}"
    ]
    elected = _last(lanes, lambda before, after: before is not None and before.leader != after.leader)
    if elected is not None and elected.leader == state.leader:
        lines.append(f"Leader {leader_name(state.leader)} since {at(elected.time_ms)}: {_because(elected)}")
    elif all(lane.id == NO_EVENT for lane in lanes):
        lines.append("No change of this partition is known since the console began to watch")
    for replica in state.out_of_sync:
        left = _last(lanes, _leaves(replica))
        if left is not None:
            lines.append(f"Replica {replica} is out of sync since {at(left.time_ms)}: {_because(left)}")
    for replica in state.silent:
        lines.append(f"Broker {replica} does not answer; the metadata does not show that yet")
    if state.leader == NO_NODE:
        lines.append("It can be neither written nor read until a replica that can lead without loss returns")
    elif state.severity is Severity.ERROR:
        lines.append(f"Writes with acks=all are refused: min.insync.replicas is {state.min_isr_in_force}")
    return lines


def _last(lanes: Sequence[Lane], matches: Callable[[Lane | None, Lane], bool]) -> Lane | None:
    for index in range(len(lanes) - 1, -1, -1):
        if lanes[index].id != NO_EVENT and matches(lanes[index - 1] if index else None, lanes[index]):
            return lanes[index]
    return None


def _leaves(replica: int) -> Callable[[Lane | None, Lane], bool]:
    return lambda before, after: replica not in after.isr and (before is None or replica in before.isr)


def _because(lane: Lane) -> str:
    if lane.id == NO_CAUSE_YET:
        return "the cause is not known yet"
    return lane.cause or "the cause is not known"


async def _directories(cluster: ClusterView, topic: str, partition: int, replicas: list[int]) -> list[dict[str, Any]]:
    async def one(broker: int) -> list[dict[str, Any]]:
        try:
            answer = await cluster.questions.of(broker, log_dirs_request([(topic, partition)]), DescribeLogDirsResponse)
        except NoAnswer as error:
            return [_directory(broker, error=str(error))]
        return [
            _directory(broker, each.log_dir, row.partition_size, is_future=row.is_future_key, lag=row.offset_lag)
            for each in answer.results
            for found in each.topics
            for row in found.partitions
        ] or [_directory(broker, error="it has no replica")]

    return [each for found in await asyncio.gather(*map(one, replicas)) for each in found]


def _directory(
    broker: int,
    path: str | None = None,
    size: int | None = None,
    *,
    is_future: bool = False,
    lag: int | None = None,
    error: str | None = None,
) -> dict[str, Any]:
    return {
        "broker": broker,
        "directory": path,
        "size_bytes": size,
        "lag": lag,
        "is_future": is_future,
        "error": error,
    }


async def _producers(cluster: ClusterView, topic: str, partition: int, leader: int) -> dict[str, Any]:
    wanted = DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=[partition])
    request = DescribeProducersRequest(topics=[wanted])
    try:
        answer = await cluster.questions.of(leader, request, DescribeProducersResponse)
    except NoAnswer as error:
        return {"producers": None, "producers_problem": str(error)}
    row = next((row for each in answer.topics for row in each.partitions), None)
    if row is None or row.error_code:
        return {"producers": None, "producers_problem": (row.error_message if row else None) or "it was refused"}
    producers = [
        {
            "producer_id": each.producer_id,
            "epoch": each.producer_epoch,
            "last_sequence": known(each.last_sequence),
            "last_ms": known(each.last_timestamp),
            "open_txn_from": known(each.current_txn_start_offset),
        }
        for each in row.active_producers
    ]
    return {"producers": producers, "producers_problem": None}
