"""The overview: whether the cluster is healthy, and its most urgent problems."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from barnabas.console.cluster_view import ClusterView
from barnabas.console.views.brokers import brokers_json
from barnabas.console.views.partitions import partitions_json
from barnabas.monitor.columns import UNKNOWN
from barnabas.monitor.severity import STATES, Severity

_SHOWN: Final = 20


def overview(cluster: ClusterView) -> dict[str, Any]:
    table = cluster.table
    states, rows = table.states, table.rows
    counts = table.counts()
    replicas = states.replicas[rows]
    has_two = (replicas != UNKNOWN).sum(axis=1) >= 2
    in_sync = (states.isr[rows] != UNKNOWN).sum(axis=1)
    worst, acknowledged = _worst(cluster)
    return {
        "cluster_id": table.cluster_id,
        "name": cluster.name,
        "controller": table.controller,
        "topics": len(table.topics),
        "partitions": len(rows),
        "severity": table.severity.name.lower(),
        "counts": [
            {"severity": severity.name.lower(), "state": STATES[severity], "partitions": counts[severity]}
            for severity in sorted(Severity, reverse=True)
        ],
        "isr_below_2": int(np.count_nonzero(has_two & (in_sync < 2))),
        "without_preferred": int(np.count_nonzero(states.leader[rows] != replicas[:, 0])) if len(rows) else 0,
        "brokers": brokers_json(cluster),
        "worst": worst,
        "acknowledged": acknowledged,
        "changes": [event.shown for event in reversed(cluster.occurrences.events[-_SHOWN:])],
    }


def _worst(cluster: ClusterView) -> tuple[list[dict[str, Any]], int]:
    """Returns the worst partitions, the acknowledged ones last, and how many of all are acknowledged."""
    table = cluster.table
    found = (table.row_of(*key) for key in cluster.acknowledged.keys)
    noted = {place for place in found if place is not None}
    severities = dict(zip(table.rows.tolist(), table.severities().tolist(), strict=True))
    shown: list[int] = []
    for row in table.by_severity().tolist():
        if severities[row] == Severity.OK or len(shown) == _SHOWN:
            break
        if row not in noted:
            shown.append(row)
    if noted:
        shown += [row for row in table.by_severity().tolist() if row in noted][:_SHOWN]
    rows = partitions_json(cluster, shown)
    for row in rows:
        row["acknowledged"] = cluster.acknowledged.shown((row["topic"], row["partition"]))
    return rows, len(noted)
