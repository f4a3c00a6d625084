"""Two moments of a cluster, and what differs between them."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from barnabas.console.cluster_view import ClusterView
from barnabas.monitor.columns import UNKNOWN
from barnabas.monitor.partition_state import BrokerState, PartitionState
from barnabas.monitor.severity import STATES, Severity
from barnabas.monitor.table import ClusterTable
from barnabas.monitor.topics import Topic

_SHOWN: Final = 500


def compare(first: ClusterView, second: ClusterView) -> dict[str, Any]:
    before, after = first.table, second.table
    rows_before, rows_after = _pairs(before, after)
    differs = _differ(before, after, rows_before, rows_after)
    chosen = np.flatnonzero(differs)
    severities = _severities(after)[rows_after[chosen]]
    order = chosen[np.argsort(-severities, kind="stable")]
    shown = order[:_SHOWN]
    pairs = zip(before.values(rows_before[shown]), after.values(rows_after[shown]), strict=True)
    old, new = ({topic.identity.name: topic for topic in table.topics} for table in (before, after))
    return {
        "first": _moment(first),
        "second": _moment(second),
        "counts": [
            {
                "severity": severity.name.lower(),
                "state": STATES[severity],
                "first": one[severity],
                "second": two[severity],
            }
            for one, two in ((before.counts(), after.counts()),)
            for severity in sorted(Severity, reverse=True)
        ],
        "controller": [before.controller, after.controller],
        "brokers": _brokers(before, after),
        "created": sorted(new.keys() - old.keys()),
        "deleted": sorted(old.keys() - new.keys()),
        "recreated": sorted(name for name in old.keys() & new.keys() if not _is_same(old[name], new[name])),
        "partitions": [_partition(one, two) for one, two in pairs],
        "changed": len(chosen),
        "same": len(rows_before) - len(chosen),
    }


def _moment(cluster: ClusterView) -> dict[str, Any]:
    return {"time_ms": cluster.clock_ms(), "is_now": cluster.at_ms is None, "problem": cluster.problem}


def _is_same(one: Topic, other: Topic) -> bool:
    """Whether two topics with one name are the same topic. Without ids that is unknown, and they count as the same."""
    ids = one.identity.topic_id, other.identity.topic_id
    return not all(any(each) for each in ids) or ids[0] == ids[1]


def _pairs(before: ClusterTable, after: ClusterTable) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns the rows of the partitions that both have."""
    old: list[int] = []
    new: list[int] = []
    for topic in after.topics:
        found = before.topics.by_name.get(topic.identity.name)
        if found is None:
            continue
        for one, two in zip(found.rows_by_partition, topic.rows_by_partition, strict=False):
            if UNKNOWN not in (one, two):
                old.append(one)
                new.append(two)
    return np.array(old, np.int64), np.array(new, np.int64)


def _differ(
    before: ClusterTable, after: ClusterTable, rows_before: NDArray[np.int64], rows_after: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Returns which of these partitions have another leader, ISR, list of replicas or severity."""
    one, two = before.states, after.states
    found: NDArray[np.bool_] = one.leader[rows_before] != two.leader[rows_after]
    found |= _severities(before)[rows_before] != _severities(after)[rows_after]
    width = max(one.width, two.width)
    for name in ("isr", "replicas"):
        old, new = (
            _widened(getattr(states, name)[rows], width) for states, rows in ((one, rows_before), (two, rows_after))
        )
        if name == "isr":
            old, new = np.sort(old, axis=1), np.sort(new, axis=1)
        found |= (old != new).any(axis=1)
    return found


def _widened(lists: NDArray[Any], width: int) -> NDArray[Any]:
    return np.pad(lists, ((0, 0), (0, width - lists.shape[1])), constant_values=UNKNOWN)


def _severities(table: ClusterTable) -> NDArray[np.int64]:
    by_row = np.zeros(len(table.states), np.int64)
    by_row[table.rows] = table.severities()
    return by_row


def _brokers(before: ClusterTable, after: ClusterTable) -> list[dict[str, Any]]:
    """Returns the brokers that came, went, or began or ceased to answer."""
    found = []
    for broker in sorted(before.brokers.keys() | after.brokers.keys()):
        one, two = (_state(table.brokers.get(broker)) for table in (before, after))
        if one != two:
            found.append({"broker": broker, "first": one, "second": two})
    return found


def _state(broker: BrokerState | None) -> str:
    if broker is None:
        return "not in the cluster"
    return "answers" if broker.problem is None else f"silent: {broker.problem}"


def _partition(one: PartitionState, two: PartitionState) -> dict[str, Any]:
    return {
        "topic": two.topic,
        "partition": two.partition,
        "leader": [one.leader, two.leader],
        "replicas": [list(one.replicas), list(two.replicas)],
        "isr": [list(one.isr), list(two.isr)],
        "severity": [one.severity.name.lower(), two.severity.name.lower()],
        "leader_epoch": [one.leader_epoch, two.leader_epoch],
        "size_bytes": [one.size_bytes, two.size_bytes],
    }
