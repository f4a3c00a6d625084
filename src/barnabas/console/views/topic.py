"""The view of a topic: each of its partitions, the groups that read it, and its configurations."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from barnabas.console.cluster_view import ClusterView
from barnabas.console.views.configs import topic_configs
from barnabas.console.views.partitions import partitions_json
from barnabas.console.views.topics import TopicsView
from barnabas.monitor.columns import UNKNOWN

PARTITIONS_MAX: Final = 2_000
#: The partitions of a file that are made in one turn of the loop.
_PART: Final = 500


async def topic_view(
    cluster: ClusterView,
    topics: TopicsView,
    name: str,
    *,
    offset: int = 0,
    limit: int = PARTITIONS_MAX,
    with_configs: bool = True,
) -> dict[str, Any]:
    """Returns one topic with its partitions and settings. Raises Problem if there is no such topic."""
    shown = topic_state(cluster, topics, name, offset=offset, limit=limit)
    if with_configs:
        shown |= await topic_configs(cluster, name)
    return shown


async def every_partition(cluster: ClusterView, topics: TopicsView, name: str) -> list[dict[str, Any]]:
    """Returns all partitions of a topic, for a file. Other requests are answered in between."""
    topics.one(name)
    found: list[dict[str, Any]] = []
    while (topic := cluster.table.topics.by_name.get(name)) and len(found) < len(topic.rows):
        found += partitions_json(cluster, topic.rows[len(found) : len(found) + _PART].tolist())
        await asyncio.sleep(0)
    return found


def topic_state(
    cluster: ClusterView, topics: TopicsView, name: str, *, offset: int = 0, limit: int = PARTITIONS_MAX
) -> dict[str, Any]:
    """Returns the parts of the topic that need no request to a broker."""
    summary = topics.one(name)
    rows = cluster.table.topics.by_name[name].rows.tolist()
    shown = rows[offset : offset + min(limit, PARTITIONS_MAX)]
    return {
        **{key: value for key, value in summary.items() if key not in ("partitions", "groups", "lag")},
        "total": len(rows),
        "offset": offset,
        "partitions": partitions_json(cluster, shown),
        "groups": _groups(cluster, name),
        "configs": None,
        "configs_problem": None,
    }


def _groups(cluster: ClusterView, name: str) -> list[dict[str, Any]]:
    """Returns the groups that committed offsets of the topic, the furthest behind first."""
    table, found = cluster.table, []
    for group, state in cluster.groups.items():
        lags = []
        for (topic, partition), offset in state.offsets.items():
            if topic == name:
                row = table.row_of(topic, partition)
                end = UNKNOWN if row is None else int(table.volumes.high_watermark[row])
                lags.append(max(0, end - offset) if end >= 0 else None)
        if lags:
            known = [lag for lag in lags if lag is not None]
            found.append({"group": group, "lag": sum(known) if known else None, "members": state.members})
    return sorted(found, key=lambda each: (-(each["lag"] or 0), each["group"]))
