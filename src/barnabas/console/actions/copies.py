"""Actions that clone a topic, recreate it without its records, or change its replication factor."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, Final

from barnabas.common.errors import ErrorCode
from barnabas.console.actions.inputs import Inputs
from barnabas.console.actions.moves import Targets, move
from barnabas.console.actions.outcome import outcome, plan
from barnabas.console.actions.requests import TIMEOUT_MS, ask_controller, await_topic
from barnabas.console.actions.topics import delete_topic, partition_rows
from barnabas.console.problems import Problem
from barnabas.console.security.rights import Role
from barnabas.console.views.configs import topic_configs
from barnabas.console.watched import WatchedCluster
from barnabas.monitor.broker_connection import NoAnswer
from barnabas.monitor.look_requests import metadata_request
from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.metadata import MetadataResponse

_REPLICATION_MAX: Final = 1_000
#: The time for brokers to know that a topic is gone.
_GONE_S: Final = 20.0
_PAUSE_S: Final = 0.2


async def clone_topic(cluster: WatchedCluster, inputs: Inputs, _role: Role) -> dict[str, Any]:
    """Creates a topic with the partitions, the replication factor and the configurations of another one, without its
    records.
    """
    source, name = inputs.text("source"), inputs.text("name")
    shape = await _shape(cluster, source)
    answer = await _create(cluster, name, shape, validate_only=inputs.is_dry_run)
    shown = outcome(f"topic {name} was created like {source}", answer)
    if inputs.is_dry_run:
        return plan(_lines(f"creates {name} like {source}, without its records", shape))
    await await_topic(cluster, name)
    return shown


async def recreate_topic(cluster: WatchedCluster, inputs: Inputs, role: Role) -> dict[str, Any]:
    """Deletes a topic, and creates it with the same partitions, replication factor and configurations."""
    name = inputs.text("name")
    inputs.confirm("confirm", name)
    shape = await _shape(cluster, name)
    if inputs.is_dry_run:
        deleted = await delete_topic(cluster, inputs, role)
        lost = ["offsets that groups have committed there are lost, and its topic id changes"]
        return plan([*deleted["plan"], *_lines(f"creates {name} again, empty", shape)], [*deleted["warnings"], *lost])
    await delete_topic(cluster, inputs, role)
    described = ", ".join(_lines(f"{name} was deleted and has not been created again; it had", shape))
    if not await _is_gone(cluster, name):
        raise Problem("refused", f"{described}: brokers still know the deleted topic after {_GONE_S:.0f} s")
    try:
        shown = outcome(f"topic {name} was deleted and created again", await _create_when_free(cluster, name, shape))
        await await_topic(cluster, name)
        return shown
    except Problem as problem:
        raise Problem(problem.code, f"{described}: {problem.text}") from problem


async def change_replication(cluster: WatchedCluster, inputs: Inputs, _role: Role) -> dict[str, Any]:
    """Adds or removes replicas of each partition of a topic, as moves."""
    name, factor = inputs.text("topic"), inputs.number("replication", least=1, most=_REPLICATION_MAX)
    targets = with_factor(cluster, name, factor)
    if not targets:
        raise Problem("refused", f"every partition of {name} has {factor} replicas")
    return await move(cluster, targets, is_dry_run=inputs.is_dry_run)


def with_factor(cluster: WatchedCluster, topic: str, factor: int) -> Targets:
    """Returns the partitions with another number of replicas, and their replicas with this number. New ones are on
    brokers of other racks that have the fewest replicas of the topic; those out of sync are removed first, and the
    preferred leader never. Raises Problem.
    """
    table = cluster.table
    live = {broker.broker_id: broker.rack for broker in table.brokers.values() if broker.problem is None}
    states = list(table.values(partition_rows(cluster, topic)))
    held = Counter(replica for state in states for replica in state.replicas)
    targets: Targets = {}
    for state in sorted(states, key=lambda each: each.partition):
        replicas = list(state.replicas)
        if len(replicas) == factor:
            continue
        while len(replicas) > factor:
            last = max(replicas[1:], key=lambda each: (each not in state.isr, replicas.index(each)))
            replicas.remove(last)
            held[last] -= 1
        while len(replicas) < factor:
            racks = Counter(live.get(replica) for replica in replicas)
            free = [broker for broker in live if broker not in replicas]
            if not free:
                raise Problem("refused", f"{factor} replicas need {factor} brokers that answer; there are {len(live)}")
            new = min(free, key=lambda broker: (racks[live[broker]], held[broker], broker))
            replicas.append(new)
            held[new] += 1
        targets[topic, state.partition] = replicas
    return targets


class _Shape:
    """The properties with which a topic is created."""

    def __init__(self, partitions: int, replication: int, configs: dict[str, str]) -> None:
        self.partitions = partitions
        self.replication = replication
        self.configs = configs


async def _shape(cluster: WatchedCluster, topic: str) -> _Shape:
    """Returns the shape of a topic. Raises Problem."""
    states = list(cluster.table.values(partition_rows(cluster, topic)))
    found = await topic_configs(cluster, topic)
    if found["configs"] is None:
        raise Problem("unreachable", f"the configurations of {topic} are not known: {found['configs_problem']}")
    own = [config for config in found["configs"] if config["origin"] == "topic"]
    hidden = [config["name"] for config in own if config["value"] is None]
    if hidden:
        raise Problem("refused", f"{topic} has sensitive values, which brokers do not return: {', '.join(hidden)}")
    configs = {config["name"]: config["value"] for config in own}
    return _Shape(len(states), max((len(state.replicas) for state in states), default=1), configs)


def _lines(what: str, shape: _Shape) -> list[str]:
    settings = [f"{key} = {value}" for key, value in shape.configs.items()]
    return [f"{what}: {shape.partitions} partitions, {shape.replication} replicas", *settings]


async def _create(
    cluster: WatchedCluster, name: str, shape: _Shape, *, validate_only: bool = False
) -> list[tuple[str, int, str | None]]:
    wanted = CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=shape.partitions,
        replication_factor=shape.replication,
        configs=[
            CreateTopicsRequest.CreatableTopicConfig(name=key, value=value) for key, value in shape.configs.items()
        ],
    )
    request = CreateTopicsRequest(topics=[wanted], timeout_ms=TIMEOUT_MS, validate_only=validate_only)
    answer = await ask_controller(cluster, request, CreateTopicsResponse, lambda found: found.topics)
    return [(row.name, row.error_code, row.error_message) for row in answer.topics]


async def _create_when_free(cluster: WatchedCluster, name: str, shape: _Shape) -> list[tuple[str, int, str | None]]:
    """Creates a topic whose name was in use. With ZooKeeper, it is in use for some time after brokers forgot it."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + _GONE_S
    while True:
        found = await _create(cluster, name, shape)
        is_taken = any(code == ErrorCode.TOPIC_ALREADY_EXISTS for _, code, _ in found)
        if not is_taken or loop.time() >= deadline_s:
            return found
        await asyncio.sleep(_PAUSE_S)


async def _is_gone(cluster: WatchedCluster, topic: str) -> bool:
    """Waits until the cluster does not know a topic any more. Returns False if that takes too long."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + _GONE_S
    while loop.time() < deadline_s:
        try:
            answer = await cluster.questions.of_any(metadata_request([topic]), MetadataResponse)
        except NoAnswer:
            answer = None
        if answer is not None and all(row.error_code for row in answer.topics):
            return True
        await asyncio.sleep(_PAUSE_S)
    return False
