"""Log directories of brokers: where replicas are, which of them move to another one, and a plan that moves them.

A broker lists a replica that moves twice: its log, and the copy of it as a future log (KIP-113). No request lists only
future logs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from barnabas.common.errors import ErrorCode
from barnabas.console.cluster_view import ClusterView
from barnabas.console.problems import Problem
from barnabas.console.views.moves import ANY_DIRECTORY, Key, Progress, expected_end, sum_of
from barnabas.console.watched import Replica, WatchedCluster
from barnabas.monitor.broker_connection import NoAnswer
from barnabas.monitor.columns import IntArray
from barnabas.monitor.look_requests import log_dirs_request
from barnabas.protocol.messages.describe_log_dirs import DescribeLogDirsResponse

_SHOWN: Final = 500
#: Replicas in one question: the broker looks at the size of each.
_PAGE: Final = 1_000
#: A look that is not older than this is not repeated for the next viewer.
_FRESH_MS: Final = 1_000


class Space(NamedTuple):
    """Whether a log directory works, and the bytes that are free in it, if they are known."""

    is_online: bool
    usable_bytes: int | None


class Located(NamedTuple):
    """The log directory of a replica, and the one that it moves to."""

    path: str | None = None
    size_bytes: int = 0
    target: str | None = None
    copied_bytes: int = 0


class Held(NamedTuple):
    """The log directories of a broker, and the places of some of its replicas."""

    directories: dict[str, Space]
    replicas: dict[Key, Located]


async def held(cluster: ClusterView, broker_id: int, keys: Iterable[Key]) -> Held:
    """Asks a broker for its log directories and these replicas. Raises Problem."""
    wanted = sorted(keys)
    found = Held({}, {})
    for first in range(0, max(1, len(wanted)), _PAGE):
        request = log_dirs_request(wanted[first : first + _PAGE])
        try:
            answer = await cluster.questions.of(broker_id, request, DescribeLogDirsResponse)
        except NoAnswer as error:
            raise Problem("unreachable", f"broker {broker_id} does not list its log directories: {error}") from error
        if answer.error_code:
            name = ErrorCode(answer.error_code).name
            raise Problem("refused", f"broker {broker_id} does not list its log directories: {name}")
        _add(found, answer)
    return found


def _add(found: Held, answer: DescribeLogDirsResponse) -> None:
    for each in answer.results:
        usable = each.usable_bytes if each.usable_bytes >= 0 else None
        found.directories[each.log_dir] = Space(not each.error_code, usable)
        for topic in each.topics:
            for row in topic.partitions:
                key = (topic.name, row.partition_index)
                one = found.replicas.get(key, Located())
                if row.is_future_key:
                    one = one._replace(target=each.log_dir, copied_bytes=row.partition_size)
                else:
                    one = one._replace(path=each.log_dir, size_bytes=row.partition_size)
                found.replicas[key] = one


def _hosted(cluster: ClusterView, broker_id: int) -> IntArray:
    """Returns the rows of the partitions that have a replica at a broker."""
    table = cluster.table
    found: IntArray = table.rows[(table.states.replicas[table.rows] == broker_id).any(axis=1)]
    return found


def _keys(cluster: ClusterView, rows: IntArray) -> list[Key]:
    topics, states = cluster.table.topics.by_number, cluster.table.states
    pairs = zip(states.topic[rows].tolist(), states.partition[rows].tolist(), strict=True)
    return [(topics[topic].name, partition) for topic, partition in pairs]


def _is_at(cluster: ClusterView, key: Key, broker_id: int) -> bool:
    row = cluster.table.row_of(*key)
    return row is not None and broker_id in cluster.table.states.replicas[row].tolist()


async def moving(cluster: ClusterView, keys: Collection[Key] | None) -> tuple[dict[Replica, Located], dict[int, str]]:
    """Returns the replicas of these partitions, or all, that move to another directory, and the brokers that do not
    tell.
    """
    problems: dict[int, str] = {}

    async def one(broker_id: int) -> Mapping[Key, Located]:
        if keys is None:
            wanted = _keys(cluster, _hosted(cluster, broker_id))
        else:
            wanted = [key for key in keys if _is_at(cluster, key, broker_id)]
        try:
            return (await held(cluster, broker_id, wanted)).replicas if wanted else {}
        except Problem as problem:
            problems[broker_id] = problem.text
            return {}

    brokers = sorted(cluster.table.brokers)
    answers = zip(brokers, await asyncio.gather(*map(one, brokers)), strict=True)
    found = {(*key, broker): each for broker, answer in answers for key, each in answer.items() if each.target}
    return found, problems


class DirectoryLooks:
    """The moves between directories, for the viewers of one cluster.

    A look asks each broker for the replicas that are known to move, and for the next page of the others: an answer
    about all of many thousand replicas would take a broker seconds.
    """

    def __init__(self) -> None:
        self.progress = Progress()
        self.found: dict[Replica, Located] = {}
        self.problems: dict[int, str] = {}
        self._next: dict[int, int] = {}
        self._looked_ms: int | None = None
        self._turn = asyncio.Lock()

    async def look(self, cluster: WatchedCluster) -> None:
        async with self._turn:
            now_ms = cluster.clock_ms()
            if self._looked_ms is not None and 0 <= now_ms - self._looked_ms < _FRESH_MS:
                return
            self.problems = {}
            await asyncio.gather(*(self._look_at(cluster, broker) for broker in sorted(cluster.table.brokers)))
            # A broker that is not in the cluster any more is not asked; its moves are found again when it is back.
            gone_away = {each for each in cluster.directory_moves if each[2] not in cluster.table.brokers}
            cluster.directory_moves -= gone_away
            for gone in self.found.keys() - cluster.directory_moves:
                del self.found[gone]
            self._looked_ms = cluster.clock_ms()
            self.progress.note(self._looked_ms, {key: each.copied_bytes for key, each in self.found.items()})

    async def _look_at(self, cluster: WatchedCluster, broker_id: int) -> None:
        here = _hosted(cluster, broker_id)
        first = self._next.get(broker_id, 0) % max(1, len(here))
        known = {(topic, partition) for topic, partition, broker in cluster.directory_moves if broker == broker_id}
        asked = known | set(_keys(cluster, here[first : first + _PAGE]))
        if not asked:
            return
        try:
            replicas = (await held(cluster, broker_id, asked)).replicas
        except Problem as problem:
            self.problems[broker_id] = problem.text
            return
        self._next[broker_id] = first + _PAGE if first + _PAGE < len(here) else 0
        for key in asked:
            one = replicas.get(key)
            if one is not None and one.target is not None:
                cluster.directory_moves.add((*key, broker_id))
                self.found[(*key, broker_id)] = one
            else:
                cluster.directory_moves.discard((*key, broker_id))


async def directory_moves_view(cluster: WatchedCluster, looks: DirectoryLooks) -> dict[str, Any]:
    """Returns the moves between log directories as the last looks found them."""
    await looks.look(cluster)
    rows: list[dict[str, Any]] = []
    for (topic, partition, broker), each in sorted(looks.found.items()):
        left = max(0, each.size_bytes - each.copied_bytes) if each.path is not None else None
        rate = looks.progress.rate((topic, partition, broker))
        rows.append(
            {
                "topic": topic,
                "partition": partition,
                "broker": broker,
                "from": each.path,
                "to": each.target,
                "size_bytes": each.size_bytes,
                "copied_bytes": each.copied_bytes,
                "left_bytes": left,
                "rate": rate,
                "end_ms": expected_end(cluster, left, rate),
            }
        )
    problems = [{"broker": broker, "text": text} for broker, text in sorted(looks.problems.items())]
    return {
        "moves": rows[:_SHOWN],
        "total": len(rows),
        "left_bytes": sum_of(row["left_bytes"] for row in rows),
        "rate": sum_of(row["rate"] for row in rows),
        "problems": problems,
    }


async def directory_plan(
    cluster: ClusterView, broker_id: int, source: str, target: str, topics: Sequence[str]
) -> dict[str, Any]:
    """Proposes to move the replicas in one directory of a broker, or in all others, to another one. Raises Problem."""
    if broker_id not in cluster.table.brokers:
        raise Problem("bad-request", f"there is no broker {broker_id}")
    for name in topics:
        if name not in cluster.table.topics.by_name:
            raise Problem("not-found", f"there is no topic {name}")
    here = sorted(key for key in _keys(cluster, _hosted(cluster, broker_id)) if not topics or key[0] in topics)
    answer = await held(cluster, broker_id, here)
    for path in filter(None, (source, target)):
        check_directory(answer, broker_id, path)
    if source == target:
        raise Problem("bad-request", "from and to must be different directories")
    rows: list[dict[str, Any]] = []
    for topic, partition in here:
        row, one = cluster.table.row_of(topic, partition), answer.replicas.get((topic, partition), Located())
        if row is None or one.path is None or one.path == target or source not in ("", one.path):
            continue
        replicas = list(cluster.table.state(row).replicas)
        rows.append(
            {
                "topic": topic,
                "partition": partition,
                "before": replicas,
                "replicas": replicas,
                "log_dirs": [target if each == broker_id else ANY_DIRECTORY for each in replicas],
                "bytes": one.size_bytes,
            }
        )
    return {"rows": rows, "bytes": sum_of(row["bytes"] for row in rows)}


def check_directory(found: Held, broker_id: int, path: str) -> None:
    """Raises Problem unless a broker has this log directory, and it works."""
    space = found.directories.get(path)
    if space is None:
        named = ", ".join(sorted(found.directories)) or "none that it lists"
        raise Problem("bad-request", f"broker {broker_id} has no log directory {path[:500]}, it has {named}")
    if not space.is_online:
        raise Problem("bad-request", f"log directory {path} of broker {broker_id} does not work")
