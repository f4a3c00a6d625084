"""Partitions as the page gets them: one object for each, with its replicas and the cause of its last change."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from barnabas.console.cluster_view import ClusterView
from barnabas.console.packed_lanes import Lane
from barnabas.monitor.columns import UNKNOWN, IntArray, LongArray, unpacked
from barnabas.monitor.partition_state import PartitionState
from barnabas.monitor.table import ClusterTable


def partitions_json(cluster: ClusterView, rows: Iterable[int]) -> list[dict[str, Any]]:
    """Returns these rows of the table, in this order."""
    table = cluster.table
    chosen = np.array(list(rows), np.int32)
    found = []
    for row, state in zip(chosen.tolist(), table.values(chosen), strict=True):
        last = cluster.occurrences.last_cause(state.topic, state.partition)
        found.append(_partition(table, row, state, last))
    return found


def known(value: int) -> int | None:
    return None if value == UNKNOWN else int(value)


def leader_sizes(table: ClusterTable, rows: IntArray) -> LongArray:
    """Returns the size of each partition: that of its leader's log, else the largest that a replica reports; -1 if none
    is known.
    """
    sizes = table.volumes.size[rows]
    states = table.states
    is_leader = (states.replicas[rows] == states.leader[rows][:, None]) & (states.replicas[rows] != UNKNOWN)
    own: LongArray = np.where(is_leader, sizes, UNKNOWN).max(axis=1, initial=UNKNOWN)
    largest: LongArray = sizes.max(axis=1, initial=UNKNOWN)
    found: LongArray = np.where(own >= 0, own, largest)
    return found


def messages_in(table: ClusterTable, rows: IntArray) -> LongArray:
    """Returns the number of offsets in each partition's log; -1 if it is unknown."""
    volumes = table.volumes
    start, end = volumes.start_offset[rows], volumes.high_watermark[rows]
    found: LongArray = np.where((start >= 0) & (end >= 0), end - start, UNKNOWN)
    return found


def cause_json(lane: Lane | None) -> dict[str, Any] | None:
    if lane is None or lane.cause is None:
        return None
    return {"time_ms": lane.time_ms, "text": lane.cause, "codes": list(lane.codes)}


def _partition(table: ClusterTable, row: int, state: PartitionState, last: Lane | None) -> dict[str, Any]:
    states, volumes = table.states, table.volumes
    start, end = int(volumes.start_offset[row]), int(volumes.high_watermark[row])
    leader_end = state.details.get(state.leader)
    return {
        "topic": state.topic,
        "partition": state.partition,
        "state": state.state,
        "severity": state.severity.name.lower(),
        "leader": state.leader,
        "preferred": state.replicas[0] if state.replicas else UNKNOWN,
        "leader_epoch": state.leader_epoch,
        "replicas": list(state.replicas),
        "isr": list(state.isr),
        "osr": list(state.out_of_sync),
        "elr": list(unpacked(states.elr[row])),
        "offline": list(state.offline_replicas),
        "adding": list(unpacked(states.adding[row])),
        "removing": list(unpacked(states.removing[row])),
        "min_isr": state.min_isr,
        "size_bytes": state.size_bytes,
        "start_offset": known(start),
        "high_watermark": known(end),
        "end_offset": None if leader_end is None else leader_end.log_end_offset,
        "messages": end - start if start >= 0 and end >= 0 else None,
        "exact_ms": known(int(table.exact_ms[row])),
        "missed_elections": int(table.missed_elections[row]),
        "details": [
            {
                "broker": replica,
                "in_sync": replica in state.isr,
                "is_leader": replica == state.leader,
                "is_silent": replica in state.silent,
                "end_offset": detail.log_end_offset if detail else None,
                "size_bytes": detail.size_bytes if detail else None,
                "lag": state.lag_of(replica),
            }
            for replica in state.replicas
            for detail in (state.details.get(replica),)
        ],
        "cause": cause_json(last),
    }
