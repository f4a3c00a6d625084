"""Requests for the sizes and offsets of the replicas on screen, every second, because the sweep over all replicas takes
longer in a large cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from barnabas.console.watched import WatchedCluster
from barnabas.monitor.broker_connection import NoAnswer
from barnabas.monitor.columns import UNKNOWN
from barnabas.monitor.delta import VolumesSeen
from barnabas.monitor.look_requests import (
    CONSUMER,
    EARLIEST,
    LATEST,
    PAGE_MAX,
    Key,
    log_dirs_request,
    offsets_of,
    offsets_request,
    sizes_of,
)
from barnabas.protocol.messages.describe_log_dirs import DescribeLogDirsResponse
from barnabas.protocol.messages.list_offsets import ListOffsetsResponse

_INTERVAL_S: Final = 1.0
#: Partitions of a cluster up to which the feeds' own sweep is as fast.
_SMALL: Final = PAGE_MAX


async def sweep_focus(cluster: WatchedCluster) -> None:
    """Asks each broker about its replicas on screen, until it is cancelled."""
    while True:
        await asyncio.sleep(_INTERVAL_S)
        rows = cluster.focused()
        if rows and cluster.is_filled and len(cluster.table) > _SMALL:
            replicas, led = _by_broker(cluster, rows)
            await asyncio.gather(
                *(_ask(cluster, broker, keys, led.get(broker, [])) for broker, keys in replicas.items())
            )


def _by_broker(cluster: WatchedCluster, rows: set[int]) -> tuple[dict[int, list[Key]], dict[int, list[Key]]]:
    """Returns the partitions on screen by the brokers that have a replica, and by their leaders."""
    table = cluster.table
    replicas: dict[int, list[Key]] = {}
    led: dict[int, list[Key]] = {}
    for row in rows:
        if table.states.topic[row] == UNKNOWN:
            continue
        key = (table.topic_of(row).name, int(table.states.partition[row]))
        led.setdefault(int(table.states.leader[row]), []).append(key)
        for broker in table.states.replicas[row].tolist():
            if broker != UNKNOWN:
                replicas.setdefault(broker, []).append(key)
    return replicas, led


async def _ask(cluster: WatchedCluster, broker: int, keys: list[Key], led: list[Key]) -> None:
    keys = sorted(keys)[:PAGE_MAX]
    seen = VolumesSeen(cluster.clock_ms(), broker)
    try:
        sizes = await cluster.questions.of(broker, log_dirs_request(keys), DescribeLogDirsResponse)
        seen.sizes, seen.reported_lags = sizes_of(sizes)
        seen.end_offsets = offsets_of(await cluster.questions.of(broker, offsets_request(keys), ListOffsetsResponse))
        seen.high_watermarks = await _of_leader(cluster, broker, led, LATEST)
        seen.start_offsets = await _of_leader(cluster, broker, led, EARLIEST)
    except NoAnswer:
        return
    cluster.table.apply_volumes(seen)


async def _of_leader(cluster: WatchedCluster, broker: int, led: list[Key], timestamp: int) -> Mapping[Key, int]:
    if not led:
        return {}
    request = offsets_request(sorted(led)[:PAGE_MAX], timestamp=timestamp, replica_id=CONSUMER)
    return offsets_of(await cluster.questions.of(broker, request, ListOffsetsResponse))
