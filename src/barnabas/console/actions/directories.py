"""Moves of replicas between the log directories of a broker: what a plan asks for, its begin, and its cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from barnabas.common.errors import ErrorCode
from barnabas.console.actions.inputs import Inputs, Key, key_of
from barnabas.console.actions.outcome import Result
from barnabas.console.actions.requests import ask_broker
from barnabas.console.problems import Problem
from barnabas.console.views.directories import Held, Located, check_directory, held
from barnabas.console.views.moves import ANY_DIRECTORY
from barnabas.console.watched import Replica, WatchedCluster
from barnabas.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse

#: The directory of each replica, by broker and partition.
Places = dict[int, dict[Key, str]]
COMPLETE: Final = "complete"
RUNNING: Final = "running"
NOT_COMPLETE: Final = "not complete"
NOT_KNOWN: Final = "not known"
_PATH_MAX: Final = 4_096
#: The time for a broker to create the replicas that move to it, and between two attempts.
_CREATED_S: Final = 10.0
_PAUSE_S: Final = 0.25
#: Responses of a broker that does not have the replica yet: it keeps the directory for it.
_NOT_YET: Final = frozenset({ErrorCode.REPLICA_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})


class Verified(NamedTuple):
    """The state of a replica's move, and what is wrong with it; empty if nothing is."""

    state: str
    text: str


def places_of(inputs: Inputs) -> Places:
    """Returns the directories that a plan names. Raises Problem."""
    places: Places = {}
    for row in inputs.rows("partitions") or []:
        paths, replicas = row.get("log_dirs"), row.get("replicas")
        if paths is None:
            continue
        topic, partition = key_of(row)
        count = len(replicas) if isinstance(replicas, list) else 0
        if not isinstance(paths, list) or len(paths) != count or not all(map(_is_path, paths)):
            raise Problem("bad-request", f"{topic}-{partition}: log_dirs must name a path, or any, for each replica")
        for broker, path in zip(replicas or (), paths, strict=True):
            if path != ANY_DIRECTORY and isinstance(broker, int):
                places.setdefault(broker, {})[topic, partition] = path
    return places


def _is_path(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _PATH_MAX


async def locate(cluster: WatchedCluster, places: Places) -> dict[int, Held]:
    """Asks the brokers of a plan where its replicas are. Raises Problem if one is silent, or lacks a directory."""
    found = dict(zip(places, await asyncio.gather(*(held(cluster, *each) for each in places.items())), strict=True))
    for broker, wanted in places.items():
        for path in sorted(set(wanted.values())):
            check_directory(found[broker], broker, path)
    return found


def place_lines(places: Places, found: Mapping[int, Held]) -> tuple[list[str], list[str]]:
    """Returns what the directories of a plan mean, and warnings about their space."""
    lines, warnings, total = [], [], 0
    for broker, wanted in sorted(places.items()):
        needed: dict[str, int] = {}
        for (topic, partition), path in sorted(wanted.items()):
            one = found[broker].replicas.get((topic, partition), Located())
            name = f"{topic}-{partition} on broker {broker}"
            if one.path is None:
                lines.append(f"{name}: begins in {path}")
            elif one.path == path:
                lines.append(f"{name}: stays in {path}")
            else:
                size = one.size_bytes - (one.copied_bytes if one.target == path else 0)
                needed[path] = needed.get(path, 0) + size
                lines.append(f"{name}: {one.path} -> {path}, {size:,} bytes to copy")
        total += sum(needed.values())
        for path, size in sorted(needed.items()):
            usable = found[broker].directories[path].usable_bytes
            if usable is not None and usable < size:
                warnings.append(f"{path} of broker {broker} has {usable:,} bytes free, {size:,} are copied to it")
    return [*lines, f"{total:,} bytes are copied between log directories"], warnings


async def begin(cluster: WatchedCluster, places: Places, *, waits: bool) -> dict[Replica, Result]:
    """Asks the brokers to put replicas into directories. Returns those that they did not take. A broker remembers the
    directory of a replica that it does not have yet; `waits` repeats the request until the replica is there.
    """
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + _CREATED_S
    left, failed = places, dict[Replica, Result]()
    while True:
        failed |= await _send(cluster, left)
        again = [each for each, (_, code, _) in failed.items() if code in _NOT_YET]
        if not again or not waits or loop.time() >= deadline_s:
            return failed
        await asyncio.sleep(_PAUSE_S)
        left = {}
        for replica in again:
            topic, partition, broker = replica
            left.setdefault(broker, {})[topic, partition] = places[broker][topic, partition]
            del failed[replica]


async def verify(cluster: WatchedCluster, places: Places) -> dict[Key, list[Verified]]:
    """Says of each replica of a plan with a directory whether it is there."""

    async def one(broker: int) -> Held | Problem:
        try:
            return await held(cluster, broker, places[broker])
        except Problem as problem:
            return problem

    states: dict[Key, list[Verified]] = {}
    answers = zip(places.items(), await asyncio.gather(*map(one, places)), strict=True)
    for (broker, wanted), found in answers:
        for (topic, partition), path in sorted(wanted.items()):
            name = name_of((topic, partition, broker))
            if isinstance(found, Problem):
                state = Verified(NOT_KNOWN, f"{name}: {found.text}")
            else:
                state = _verified(name, found.replicas.get((topic, partition), Located()), path)
            states.setdefault((topic, partition), []).append(state)
    return states


def _verified(name: str, one: Located, path: str) -> Verified:
    if one.target == path:
        return Verified(RUNNING, "")
    if one.path == path:
        return Verified(COMPLETE, "")
    where = "not on this broker" if one.path is None else f"in {one.path} rather than {path}"
    return Verified(NOT_COMPLETE, f"{name}: {where}, and no move to it is in progress")


async def cancel(cluster: WatchedCluster, moves: Mapping[Replica, Located]) -> list[Result]:
    """Cancels moves: a replica that is to be where it is has no copy elsewhere."""
    places: Places = {}
    lost: dict[Replica, Result] = {}
    for replica, one in moves.items():
        topic, partition, broker = replica
        if one.path is None:
            lost[replica] = (name_of(replica), -1, "the broker lists only the copy of this replica")
        else:
            places.setdefault(broker, {})[topic, partition] = one.path
    failed = lost | await _send(cluster, places)
    cluster.directory_moves.difference_update(moves.keys() - failed.keys())
    return [failed.get(each, (name_of(each), 0, None)) for each in sorted(moves)]


def name_of(replica: Replica) -> str:
    topic, partition, broker = replica
    return f"{topic}-{partition} on broker {broker}"


async def _send(cluster: WatchedCluster, places: Places) -> dict[Replica, Result]:
    async def one(broker: int) -> dict[Replica, Result]:
        try:
            answer = await ask_broker(cluster, broker, _request(places[broker]), AlterReplicaLogDirsResponse)
        except Problem as problem:
            replicas = [(*key, broker) for key in places[broker]]
            return {each: (name_of(each), -1, problem.text) for each in replicas}
        codes = {
            (topic.topic_name, row.partition_index): row.error_code
            for topic in answer.results
            for row in topic.partitions
        }
        for key in places[broker]:
            if not codes.get(key):
                cluster.directory_moves.add((*key, broker))
        return {(*key, broker): (name_of((*key, broker)), codes[key], None) for key in places[broker] if codes.get(key)}

    return {each: result for found in await asyncio.gather(*map(one, sorted(places))) for each, result in found.items()}


def _request(wanted: Mapping[Key, str]) -> AlterReplicaLogDirsRequest:
    by_path: dict[str, dict[str, list[int]]] = {}
    for (topic, partition), path in sorted(wanted.items()):
        by_path.setdefault(path, {}).setdefault(topic, []).append(partition)
    directory, row = AlterReplicaLogDirsRequest.AlterReplicaLogDir, AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic
    return AlterReplicaLogDirsRequest(
        dirs=[
            directory(path=path, topics=[row(name=name, partitions=indexes) for name, indexes in topics.items()])
            for path, topics in by_path.items()
        ]
    )
