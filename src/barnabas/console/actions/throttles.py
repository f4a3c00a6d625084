"""Throttles of replication, as Kafka's tools set them: a rate at each broker, and the replicas of each topic that it
applies to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from barnabas.console.actions.inputs import Key
from barnabas.console.actions.outcome import Result, reason
from barnabas.console.actions.requests import ask_broker, ask_controller
from barnabas.console.problems import Problem
from barnabas.console.views.configs import BROKER, TOPIC
from barnabas.console.views.moves import DIRECTORY_RATE, RATES
from barnabas.console.watched import WatchedCluster
from barnabas.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

LEADERS: Final = "leader.replication.throttled.replicas"
FOLLOWERS: Final = "follower.replication.throttled.replicas"
_SET: Final = 0
_DELETE: Final = 1
#: Topics in one request.
_TOPICS: Final = 500


class Copying(NamedTuple):
    """A partition that moves: the replicas that have it, and those that copy it."""

    have: Sequence[int]
    copy: Sequence[int]


async def throttle(cluster: WatchedCluster, moves: Mapping[Key, Copying], rate: int) -> list[Result]:
    """Limits the copying of these partitions to a rate at each broker, in bytes a second. Returns what failed."""
    topics: dict[str, dict[str, str | None]] = {}
    for (topic, partition), move in sorted(moves.items()):
        values = topics.setdefault(topic, {})
        for key, brokers in ((LEADERS, move.have), (FOLLOWERS, move.copy)):
            known = values.get(key)
            new = ",".join(f"{partition}:{broker}" for broker in brokers)
            values[key] = f"{known},{new}" if known and new else known or new
    limited = {broker for move in moves.values() for broker in (*move.have, *move.copy)}
    failed = await _change_brokers(cluster, limited, dict.fromkeys(RATES, str(rate)))
    cluster.throttles |= dict.fromkeys(limited, rate)
    return failed + await _change_topics(cluster, {topic: _filled(values) for topic, values in topics.items()})


async def throttle_directories(cluster: WatchedCluster, brokers: Iterable[int], rate: int) -> list[Result]:
    """Limits the copying between log directories of these brokers, in bytes a second. Returns what failed."""
    limited = set(brokers)
    failed = await _change_brokers(cluster, limited, {DIRECTORY_RATE: str(rate)})
    cluster.directory_throttles |= dict.fromkeys(limited, rate)
    return failed


async def remove_throttles(cluster: WatchedCluster, topics: Iterable[str]) -> list[Result]:
    """Removes the rates of all brokers, and the throttled replicas of these topics. Returns what failed."""
    failed = await _change_brokers(cluster, cluster.table.brokers, dict.fromkeys((*RATES, DIRECTORY_RATE)))
    cluster.throttles.clear()
    cluster.directory_throttles.clear()
    return failed + await _change_topics(cluster, {topic: dict.fromkeys((LEADERS, FOLLOWERS)) for topic in topics})


def _filled(values: dict[str, str | None]) -> dict[str, str | None]:
    return {key: value for key, value in values.items() if value}


async def _change_brokers(
    cluster: WatchedCluster, brokers: Iterable[int], values: Mapping[str, str | None]
) -> list[Result]:
    async def one(broker: int) -> list[Result]:
        request = IncrementalAlterConfigsRequest(resources=[_resource(BROKER, str(broker), values)])
        try:
            return _failures(
                f"broker {broker}", await ask_broker(cluster, broker, request, IncrementalAlterConfigsResponse)
            )
        except Problem as problem:
            return [(f"throttle of broker {broker}", -1, problem.text)]

    return [each for found in await asyncio.gather(*map(one, sorted(brokers))) for each in found]


async def _change_topics(cluster: WatchedCluster, values: Mapping[str, Mapping[str, str | None]]) -> list[Result]:
    resources = [_resource(TOPIC, topic, each) for topic, each in sorted(values.items()) if each]
    failed: list[Result] = []
    for first in range(0, len(resources), _TOPICS):
        request = IncrementalAlterConfigsRequest(resources=resources[first : first + _TOPICS])
        answer = await ask_controller(
            cluster,
            request,
            IncrementalAlterConfigsResponse,
            lambda found: found.responses,
        )
        failed += _failures("topic", answer)
    return failed


def _failures(what: str, answer: IncrementalAlterConfigsResponse) -> list[Result]:
    return [
        (f"throttle of {what} {row.resource_name}", row.error_code, reason(row.error_code, row.error_message))
        for row in answer.responses
        if row.error_code
    ]


def _resource(
    kind: int, name: str, values: Mapping[str, str | None]
) -> IncrementalAlterConfigsRequest.AlterConfigsResource:
    return IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            IncrementalAlterConfigsRequest.AlterableConfig(
                name=key, config_operation=_DELETE if value is None else _SET, value=value
            )
            for key, value in values.items()
        ],
    )
