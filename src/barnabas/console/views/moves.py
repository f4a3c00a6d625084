"""The view of moves: the reassignments that run, what each new replica has copied and lacks, and the throttles.

Brokers report the size of a log, not the progress of a move, so the rate is the growth of the new replicas between
polls, and the expected end is the rest divided by this rate.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from barnabas.common.errors import ErrorCode
from barnabas.console.cluster_view import ClusterView
from barnabas.console.problems import Problem
from barnabas.console.views.configs import BROKER
from barnabas.console.watched import WatchedCluster
from barnabas.decisions.proposals import propose
from barnabas.monitor.broker_connection import NoAnswer
from barnabas.monitor.look_requests import log_dirs_request, metadata_request, sizes_of
from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from barnabas.protocol.messages.describe_log_dirs import DescribeLogDirsResponse
from barnabas.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from barnabas.protocol.messages.metadata import MetadataResponse

Key = tuple[str, int]

#: The rates of replication at a broker: what its leaders send, and what its followers fetch.
RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
#: The rate of copying between log directories of a broker.
DIRECTORY_RATE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
#: The word of a plan for a log directory that the broker chooses.
ANY_DIRECTORY: Final = "any"
_SHOWN: Final = 500
#: The time over which a rate is measured, and the shortest one that gives a rate.
_RATE_MS: Final = 20_000
_RATE_LEAST_MS: Final = 900


class Move(NamedTuple):
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class Progress:
    """The bytes that the new replicas had copied at the last polls, for their rates."""

    def __init__(self) -> None:
        self._samples: dict[tuple[str, int, int], deque[tuple[int, int]]] = {}

    def note(self, now_ms: int, copied: Mapping[tuple[str, int, int], int]) -> None:
        for gone in self._samples.keys() - copied.keys():
            del self._samples[gone]
        for key, size in copied.items():
            samples = self._samples.setdefault(key, deque())
            samples.append((now_ms, size))
            while samples[0][0] < now_ms - _RATE_MS:
                samples.popleft()

    def rate(self, key: tuple[str, int, int]) -> float | None:
        """Returns bytes a second; None while that is not known."""
        samples = self._samples.get(key)
        if not samples or samples[-1][0] - samples[0][0] < _RATE_LEAST_MS:
            return None
        (begin_ms, first), (end_ms, last) = samples[0], samples[-1]
        return max(0.0, (last - first) * 1_000 / (end_ms - begin_ms))


async def running(cluster: ClusterView) -> dict[Key, Move]:
    """Returns the ongoing reassignments, as the controller lists them. Raises Problem."""
    request = ListPartitionReassignmentsRequest(topics=None)
    try:
        named = await cluster.questions.of_any(metadata_request([]), MetadataResponse)
        answer = await cluster.questions.of(named.controller_id, request, ListPartitionReassignmentsResponse)
    except NoAnswer as error:
        raise Problem("unreachable", f"the controller does not answer: {error}") from error
    if answer.error_code:
        name = ErrorCode(answer.error_code).name
        raise Problem("refused", f"the controller does not list reassignments: {answer.error_message or name}")
    return {
        (topic.name, row.partition_index): Move(
            tuple(row.replicas), tuple(row.adding_replicas), tuple(row.removing_replicas)
        )
        for topic in answer.topics
        for row in topic.partitions
    }


async def moves_view(cluster: WatchedCluster, progress: Progress) -> dict[str, Any]:
    moves, throttles = await asyncio.gather(running(cluster), _throttles(cluster))
    sizes, problems = await _sizes(cluster, moves)
    copied = {
        (topic, partition, broker): size
        for (topic, partition), move in moves.items()
        for broker in move.adding
        if (size := sizes.get(broker, {}).get((topic, partition))) is not None
    }
    progress.note(cluster.clock_ms(), copied)
    shown = [_move(cluster, key, move, sizes, problems, progress) for key, move in sorted(moves.items())]
    left, rate = sum_of(row["left_bytes"] for row in shown), sum_of(row["rate"] for row in shown)
    return {
        "moves": shown[:_SHOWN],
        "total": len(shown),
        "left_bytes": left,
        "rate": rate,
        "end_ms": expected_end(cluster, left, rate),
        "throttles": throttles,
    }


def _move(
    cluster: ClusterView,
    key: Key,
    move: Move,
    sizes: Mapping[int, Mapping[Key, int]],
    problems: Mapping[int, str],
    progress: Progress,
) -> dict[str, Any]:
    row = cluster.table.row_of(*key)
    state = None if row is None else cluster.table.state(row)
    leader = -1 if state is None else state.leader
    size = sizes.get(leader, {}).get(key, None if state is None else state.size_bytes)
    isr = () if state is None else state.isr
    targets: list[dict[str, Any]] = []
    for broker in move.adding:
        has = sizes.get(broker, {}).get(key)
        left = 0 if broker in isr else None if size is None or has is None else max(0, size - has)
        targets.append(
            {
                "broker": broker,
                "copied_bytes": has,
                "left_bytes": left,
                "rate": progress.rate((*key, broker)),
                "problem": problems.get(broker),
            }
        )
    left, rate = sum_of(each["left_bytes"] for each in targets), sum_of(each["rate"] for each in targets)
    return {
        "topic": key[0],
        "partition": key[1],
        "replicas": list(move.replicas),
        "adding": list(move.adding),
        "removing": list(move.removing),
        "leader": leader,
        "size_bytes": size,
        "targets": targets,
        "left_bytes": left,
        "rate": rate,
        "end_ms": expected_end(cluster, left, rate),
    }


def sum_of(values: Iterable[float | None]) -> Any:
    """Returns the sum of what is known; None if nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def expected_end(cluster: ClusterView, left: float | None, rate: float | None) -> int | None:
    if left is None or not rate:
        return None
    return cluster.clock_ms() + int(left * 1_000 / rate)


async def _sizes(
    cluster: ClusterView, moves: Mapping[Key, Move]
) -> tuple[dict[int, Mapping[Key, int]], dict[int, str]]:
    """Returns the sizes of moving replicas by broker, and the reasons why some brokers do not report them."""
    wanted: dict[int, list[Key]] = {}
    for key, move in moves.items():
        row = cluster.table.row_of(*key)
        leader = -1 if row is None else int(cluster.table.states.leader[row])
        for broker in {leader, *move.adding} - {-1}:
            wanted.setdefault(broker, []).append(key)
    problems: dict[int, str] = {}

    async def one(broker: int) -> Mapping[Key, int]:
        try:
            answer = await cluster.questions.of(broker, log_dirs_request(wanted[broker]), DescribeLogDirsResponse)
        except NoAnswer as error:
            problems[broker] = str(error)
            return {}
        return sizes_of(answer)[0]

    brokers = sorted(wanted)
    return dict(zip(brokers, await asyncio.gather(*map(one, brokers)), strict=True)), problems


async def _throttles(cluster: WatchedCluster) -> list[dict[str, Any]]:
    """Returns the rates of brokers. Most brokers do not report rates that are set at run time, so those that this
    console has set stand for them.
    """

    async def one(broker: int) -> dict[str, Any]:
        resource = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=BROKER, resource_name=str(broker), configuration_keys=[*RATES, DIRECTORY_RATE]
        )
        try:
            answer = await cluster.questions.of(
                broker, DescribeConfigsRequest(resources=[resource]), DescribeConfigsResponse
            )
        except NoAnswer as error:
            return rates(broker, {}, str(error))
        return rates(broker, {each.name: each.value for row in answer.results for each in row.configs}, None)

    def rates(broker: int, found: Mapping[str, str | None], problem: str | None) -> dict[str, Any]:
        own, between = cluster.throttles.get(broker), cluster.directory_throttles.get(broker)
        leader, follower = (_limit(found.get(name)) or own for name in RATES)
        return {
            "broker": broker,
            "leader_rate": leader,
            "follower_rate": follower,
            "directory_rate": _limit(found.get(DIRECTORY_RATE)) or between,
            "problem": problem,
        }

    return list(await asyncio.gather(*map(one, sorted(cluster.table.brokers))))


def _limit(text: str | None) -> int | None:
    """Returns a rate; None for no limit, which brokers report as the largest number."""
    if text is None or not text.isdigit() or int(text) >= (1 << 63) - 1:
        return None
    return int(text)


def move_plan(cluster: ClusterView, topics: Sequence[str], brokers: Sequence[int], seed: int) -> dict[str, Any]:
    """Proposes replicas of topics on some brokers, as Kafka's tools do. The same seed gives the same plan. Raises
    Problem.
    """
    table = cluster.table
    unknown = [broker for broker in brokers if broker not in table.brokers]
    if unknown or not brokers:
        raise Problem("bad-request", f"there is no broker {unknown[0]}" if unknown else "no broker is named")
    racks = {broker: table.brokers[broker].rack for broker in brokers}
    pick = random.Random(seed).randrange
    rows: list[dict[str, Any]] = []
    for name in topics:
        topic = table.topics.by_name.get(name)
        if topic is None:
            raise Problem("not-found", f"there is no topic {name}")
        states = sorted(table.values(topic.rows), key=lambda state: state.partition)
        factor = max((len(state.replicas) for state in states), default=0)
        try:
            placed = propose(racks if all(racks.values()) else dict.fromkeys(racks), len(states), factor, pick)
        except ValueError as error:
            raise Problem("bad-request", f"{name}: {error}") from error
        for state, replicas in zip(states, placed, strict=True):
            new = len(set(replicas) - set(state.replicas))
            size = None if state.size_bytes is None else new * state.size_bytes
            row = {"topic": name, "partition": state.partition, "before": list(state.replicas), "replicas": replicas}
            rows.append(row | {"bytes": size})
    return {"rows": rows, "bytes": sum_of(row["bytes"] for row in rows)}
