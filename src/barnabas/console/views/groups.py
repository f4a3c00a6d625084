"""Consumer groups: the lag of each group in records and seconds, and which member reads which partition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from barnabas.common.errors import DecodeError
from barnabas.console.cluster_view import ClusterView
from barnabas.console.problems import Problem
from barnabas.console.rates import Rates
from barnabas.monitor.broker_connection import NoAnswer
from barnabas.monitor.columns import UNKNOWN
from barnabas.monitor.group_sweep import GroupState
from barnabas.protocol.codec import decode
from barnabas.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from barnabas.protocol.messages.consumer_protocol import ConsumerProtocolAssignment
from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse

LIMIT_MAX: Final = 1_000
SORTS: Final = ("name", "lag", "lag_s", "members", "state", "topics")
_NOT_READ: Final = "the groups have not been read yet"
_NOT_RECORDED: Final = "a history has no groups"
_VERSION_BYTES: Final = 2
_FROM_NAME: Final = {"name": "group"}


@dataclass(frozen=True, slots=True)
class GroupsQuestion:
    q: str = ""
    sort: str = "name"
    desc: bool = False
    offset: int = 0
    limit: int = 100


def groups_view(cluster: ClusterView, rates: Rates, question: GroupsQuestion) -> dict[str, Any]:
    rows = groups_json(cluster, rates, question)
    swept_ms = cluster.groups_ms
    return {
        "total": len(cluster.groups),
        "matched": len(rows),
        "offset": question.offset,
        "rows": rows[question.offset : question.offset + min(question.limit, LIMIT_MAX)],
        "age_ms": None if swept_ms is None else max(0, cluster.clock_ms() - swept_ms),
        "problem": None if swept_ms is not None else _NOT_RECORDED if cluster.at_ms is not None else _NOT_READ,
    }


def groups_json(cluster: ClusterView, rates: Rates, question: GroupsQuestion) -> list[dict[str, Any]]:
    """Returns all groups that match, in order."""
    wanted = question.q.lower()
    rows = [_group(cluster, rates, name, state) for name, state in cluster.groups.items() if wanted in name.lower()]
    rows.sort(key=lambda row: row["group"])
    key = _FROM_NAME.get(question.sort, question.sort)
    known = [row for row in rows if row[key] is not None]
    known.sort(key=lambda row: row[key], reverse=question.desc)
    return [*known, *(row for row in rows if row[key] is None)]


async def group_view(cluster: ClusterView, rates: Rates, name: str) -> dict[str, Any]:
    """Returns one group with its members, from its coordinator. Raises Problem if there is no such group."""
    state = cluster.groups.get(name)
    if state is None:
        raise Problem("not-found", f"there is no group {name}")
    members, problem = await _members(cluster, name, state)
    for member in members:
        member["assignments"] = [each for each in member["assignments"] if cluster.shows_topic(each["topic"])]
    readers = {
        (each["topic"], each["partition"]): member["member"] for member in members for each in member["assignments"]
    }
    partitions = [
        {**row, "member": readers.get((row["topic"], row["partition"]))} for row in _rows(cluster, rates, state)
    ]
    topics = _topics(cluster, {*(topic for topic, _ in readers), *(topic for topic, _ in state.offsets)})
    of_group = _group(cluster, rates, name, state) | {"assigned": topics}
    return of_group | {"members": members, "partitions": partitions, "problem": problem}


def _topics(cluster: ClusterView, names: Iterable[str]) -> list[dict[str, Any]]:
    """Returns how many partitions each topic has, so that those that nobody reads are known, too; 0 for a topic that
    does not exist any more.
    """
    known = cluster.table.topics.by_name
    return [
        {"topic": name, "partitions": len(known[name].rows_by_partition) if name in known else 0}
        for name in sorted(names)
    ]


def _group(cluster: ClusterView, rates: Rates, name: str, state: GroupState) -> dict[str, Any]:
    rows = list(_rows(cluster, rates, state))
    lags = [row["lag"] for row in rows if row["lag"] is not None]
    seconds = [row["lag_s"] for row in rows if row["lag_s"] is not None]
    topics = {topic for topic, _ in state.offsets}
    trend = rates.groups.of(name, topics)
    return {
        "group": name,
        "state": state.state,
        "kind": state.kind,
        "protocol": state.protocol,
        "members": state.members,
        "topics": len(topics),
        "lag": sum(lags) if lags else None,
        "lag_s": max(seconds, default=None),
        "since_ms": trend.since_ms,
        "level_ms": trend.level_ms,
        "coordinator": state.coordinator,
    }


def _rows(cluster: ClusterView, rates: Rates, state: GroupState) -> Iterator[dict[str, Any]]:
    table, now_ms = cluster.table, cluster.clock_ms()
    for (topic, partition), committed in sorted(state.offsets.items()):
        row = table.row_of(topic, partition)
        end = UNKNOWN if row is None else int(table.volumes.high_watermark[row])
        yield {
            "topic": topic,
            "partition": partition,
            "committed": committed,
            "end_offset": end if end >= 0 else None,
            "lag": max(0, end - committed) if end >= 0 else None,
            "lag_s": None if row is None or end < 0 else rates.seconds_behind(row, committed, end, now_ms),
        }


async def _members(cluster: ClusterView, name: str, state: GroupState) -> tuple[list[dict[str, Any]], str | None]:
    """Returns the members, and the reason if they are unknown."""
    if state.coordinator is None:
        return [], "its coordinator is not known"
    try:
        if (state.kind or "").lower() == "consumer":
            return await _consumer_members(cluster, name, state.coordinator), None
        return await _classic_members(cluster, name, state.coordinator), None
    except NoAnswer as error:
        return [], f"its coordinator, broker {state.coordinator}: {error}"


async def _classic_members(cluster: ClusterView, name: str, coordinator: int) -> list[dict[str, Any]]:
    request = DescribeGroupsRequest(groups=[name])
    answer = await cluster.questions.of(coordinator, request, DescribeGroupsResponse)
    return [
        _member(
            each.member_id, each.client_id, each.client_host, each.group_instance_id, _assigned(each.member_assignment)
        )
        for group in answer.groups
        for each in group.members
    ]


async def _consumer_members(cluster: ClusterView, name: str, coordinator: int) -> list[dict[str, Any]]:
    request = ConsumerGroupDescribeRequest(group_ids=[name])
    answer = await cluster.questions.of(coordinator, request, ConsumerGroupDescribeResponse)
    return [
        _member(
            each.member_id,
            each.client_id,
            each.client_host,
            each.instance_id,
            [(topic.topic_name, index) for topic in each.assignment.topic_partitions for index in topic.partitions],
        )
        for group in answer.groups
        for each in group.members
    ]


def _member(
    member_id: str, client: str, host: str, instance: str | None, assigned: list[tuple[str, int]]
) -> dict[str, Any]:
    return {
        "member": member_id,
        "client": client,
        "host": host,
        "instance": instance,
        "assignments": [{"topic": topic, "partition": partition} for topic, partition in sorted(assigned)],
    }


def _assigned(data: bytes) -> list[tuple[str, int]]:
    """Returns the partitions in the assignment of a classic member; none if it is of another kind."""
    if len(data) < _VERSION_BYTES:
        return []
    version = min(max(0, int.from_bytes(data[:_VERSION_BYTES])), ConsumerProtocolAssignment.VERSIONS[1])
    try:
        body, _ = decode(ConsumerProtocolAssignment, version, bytes(data), _VERSION_BYTES)
    except DecodeError:
        return []
    return [(each.topic, index) for each in body.assigned_partitions for index in each.partitions]
