"""Actions on topics: create, delete, more partitions, configurations, and deletion of their oldest records."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from barnabas.common.errors import ErrorCode
from barnabas.console.actions.inputs import Inputs, Key
from barnabas.console.actions.outcome import Result, outcome, plan
from barnabas.console.actions.requests import TIMEOUT_MS, ask_broker, ask_controller, await_topic
from barnabas.console.problems import Problem
from barnabas.console.security.rights import Role
from barnabas.console.views.configs import BROKER, TOPIC
from barnabas.console.views.partitions import leader_sizes
from barnabas.console.watched import WatchedCluster
from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from barnabas.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

PARTITIONS_MAX: Final = 100_000
_REPLICATION_MAX: Final = 1_000
#: The last version of DeleteTopics that names topics as a plain list.
DELETE_BY_NAME: Final = 5
_SET: Final = 0
_DELETE: Final = 1


async def create_topic(cluster: WatchedCluster, inputs: Inputs, _role: Role) -> dict[str, Any]:
    name, configs = inputs.text("name"), inputs.texts("configs")
    partitions = inputs.number("partitions", least=-1, most=PARTITIONS_MAX, default=-1)
    replication = inputs.number("replication", least=-1, most=_REPLICATION_MAX, default=-1)
    wanted = CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication,
        configs=[CreateTopicsRequest.CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )
    request = CreateTopicsRequest(topics=[wanted], timeout_ms=TIMEOUT_MS, validate_only=inputs.is_dry_run)
    answer = await ask_controller(cluster, request, CreateTopicsResponse, lambda found: found.topics)
    rows: list[Result] = [(row.name, row.error_code, row.error_message) for row in answer.topics]
    shown = outcome(f"topic {name} was created", rows)
    if not inputs.is_dry_run:
        await await_topic(cluster, name)
        return shown
    settings = [f"{key} = {value}" for key, value in configs.items()]
    row = answer.topics[0]
    return plan([f"creates {name} with {row.num_partitions} partitions, {row.replication_factor} replicas", *settings])


async def delete_topic(cluster: WatchedCluster, inputs: Inputs, _role: Role) -> dict[str, Any]:
    name = inputs.text("name")
    inputs.confirm("confirm", name)
    rows = partition_rows(cluster, name)
    if inputs.is_dry_run:
        sizes = leader_sizes(cluster.table, rows)
        readers = sorted(
            group
            for group, state in cluster.groups.items()
            if inputs.scope.sees_group(group) and any(topic == name for topic, _ in state.offsets)
        )
        warnings = [f"{len(readers)} groups have offsets there: {', '.join(readers[:20])}"] if readers else []
        size = int(sizes[sizes >= 0].sum())
        return plan(
            [f"deletes {name} with {len(rows)} partitions and {size:,} bytes by replica, permanently"], warnings
        )
    request = DeleteTopicsRequest(topic_names=[name], timeout_ms=TIMEOUT_MS)
    answer = await ask_controller(
        cluster,
        request,
        DeleteTopicsResponse,
        lambda found: found.responses,
        version_max=DELETE_BY_NAME,
    )
    return outcome(
        f"topic {name} was deleted", [(row.name or name, row.error_code, row.error_message) for row in answer.responses]
    )


async def add_partitions(cluster: WatchedCluster, inputs: Inputs, _role: Role) -> dict[str, Any]:
    name, count = inputs.text("name"), inputs.number("partitions", least=1, most=PARTITIONS_MAX)
    before = len(partition_rows(cluster, name))
    topic = CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=count, assignments=None)
    request = CreatePartitionsRequest(topics=[topic], timeout_ms=TIMEOUT_MS, validate_only=inputs.is_dry_run)
    answer = await ask_controller(cluster, request, CreatePartitionsResponse, lambda found: found.results)
    shown = outcome(
        f"topic {name} has {count} partitions",
        [(row.name, row.error_code, row.error_message) for row in answer.results],
    )
    if inputs.is_dry_run:
        moved = "records with keys go to other partitions than before"
        return plan([f"adds {count - before} partitions to {name}, which has {before}"], [moved])
    return shown


async def alter_configs(cluster: WatchedCluster, inputs: Inputs, role: Role) -> dict[str, Any]:
    """Sets and removes keys of a topic; of a broker, or of all (`cluster`), only for an administrator."""
    kind = inputs.choice("kind", ("topic", "broker", "cluster"))
    name = "" if kind == "cluster" else inputs.text("name")
    if kind != "topic" and role < Role.ADMIN:
        raise Problem("role", "configurations of brokers need the role admin")
    changes = alterations(inputs)
    if kind == "broker" and not (name.isascii() and name.isdigit()):
        raise Problem("bad-request", f"{name} is not the number of a broker")
    resources = [alterations_of(kind, name, changes)]
    request = IncrementalAlterConfigsRequest(resources=resources, validate_only=inputs.is_dry_run)
    if kind == "broker":
        answer = await ask_broker(cluster, int(name), request, IncrementalAlterConfigsResponse)
    else:
        answer = await ask_controller(
            cluster,
            request,
            IncrementalAlterConfigsResponse,
            lambda found: found.responses,
        )
    rows: list[Result] = [
        (row.resource_name or "all brokers", row.error_code, row.error_message) for row in answer.responses
    ]
    shown = outcome(f"{len(changes)} configurations of {kind} {name}".rstrip() + " were changed", rows)
    if inputs.is_dry_run:
        return plan([f"removes {key}" if value is None else f"sets {key} = {value}" for key, value in changes.items()])
    return shown


def alterations(inputs: Inputs) -> dict[str, str | None]:
    """Returns the new value of each key; None removes it. Raises Problem."""
    changes: dict[str, str | None] = {**inputs.texts("set"), **dict.fromkeys(inputs.names("remove"))}
    if not changes:
        raise Problem("bad-request", "there is nothing to change: set and remove are empty")
    return changes


def alterations_of(
    kind: str, name: str, changes: Mapping[str, str | None]
) -> IncrementalAlterConfigsRequest.AlterConfigsResource:
    config = IncrementalAlterConfigsRequest.AlterableConfig
    return IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=TOPIC if kind == "topic" else BROKER,
        resource_name=name,
        configs=[
            config(name=key, config_operation=_DELETE if value is None else _SET, value=value)
            for key, value in changes.items()
        ],
    )


async def delete_records(cluster: WatchedCluster, inputs: Inputs, _role: Role) -> dict[str, Any]:
    """Deletes the records before an offset of each partition; -1 is the high watermark."""
    topic = inputs.text("topic")
    offsets = _offsets(inputs.body.get("partitions"))
    leaders: dict[int, list[Key]] = {}
    for partition in offsets:
        row = cluster.table.row_of(topic, partition)
        if row is None:
            raise Problem("not-found", f"there is no partition {topic}-{partition}")
        leaders.setdefault(int(cluster.table.states.leader[row]), []).append((topic, partition))
    if inputs.is_dry_run:
        ends = {partition: "the end" if offset < 0 else f"offset {offset}" for partition, offset in offsets.items()}
        return plan([f"deletes the records of {topic}-{partition} before {end}" for partition, end in ends.items()])

    answers = await asyncio.gather(
        *(delete_before(cluster, leader, {key: offsets[key[1]] for key in keys}) for leader, keys in leaders.items())
    )
    rows: list[Result] = [
        (f"{name}-{index}", code, message) for found in answers for (name, index), code, message in found
    ]
    return outcome(f"records of {topic} were deleted", rows)


async def delete_before(
    cluster: WatchedCluster, leader: int, offsets: Mapping[Key, int]
) -> list[tuple[Key, int, str | None]]:
    """Deletes the records before an offset of each partition, all of which one broker leads. Returns the error code of
    each, 0 for a deletion, and the message of a request without a response.
    """
    of_topic, row = DeleteRecordsRequest.DeleteRecordsTopic, DeleteRecordsRequest.DeleteRecordsPartition
    topics: dict[str, DeleteRecordsRequest.DeleteRecordsTopic] = {}
    for (name, index), offset in offsets.items():
        topics.setdefault(name, of_topic(name=name, partitions=[])).partitions.append(
            row(partition_index=index, offset=offset)
        )
    request = DeleteRecordsRequest(topics=list(topics.values()), timeout_ms=TIMEOUT_MS)
    try:
        answer = await ask_broker(cluster, leader, request, DeleteRecordsResponse)
    except Problem as problem:
        return [(key, ErrorCode.UNKNOWN_SERVER_ERROR, problem.text) for key in offsets]
    return [
        ((topic.name, each.partition_index), each.error_code, None)
        for topic in answer.topics
        for each in topic.partitions
    ]


def partition_rows(cluster: WatchedCluster, name: str) -> Any:
    topic = cluster.table.topics.by_name.get(name)
    if topic is None:
        raise Problem("not-found", f"there is no topic {name}")
    return topic.rows


def _offsets(value: Any) -> dict[int, int]:
    if not isinstance(value, dict) or not value:
        raise Problem("bad-request", "partitions is not an object of offsets")
    found = {}
    for place, offset in value.items():
        if not place.isdigit() or not isinstance(offset, int) or isinstance(offset, bool) or offset < -1:
            raise Problem("bad-request", "partitions is not an object of offsets")
        found[int(place)] = offset
    return found
