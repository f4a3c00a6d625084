"""The consumer groups of a cluster: what they committed, and how many members they have.

Each broker lists only the groups that it coordinates, so the brokers are asked one after the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from barnabas.monitor.broker_connection import BrokerConnection, NoAnswer
from barnabas.monitor.look_requests import Key
from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from barnabas.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

_GROUPS_PER_REQUEST: Final = 100
#: The first version with many groups in one request, and the last that names topics by name.
_MANY_FROM: Final = 8
_BY_NAME: Final = 9


@dataclass(slots=True)
class GroupState:
    """One group. `members` is None if it is unknown, as with groups of the newer protocols."""

    offsets: dict[Key, int] = field(default_factory=dict)
    members: int | None = None
    #: The value that the coordinator lists; None if its version has none.
    state: str | None = None
    kind: str | None = None
    protocol: str | None = None
    #: The broker that coordinates the group.
    coordinator: int | None = None


async def groups_of(connection: BrokerConnection) -> dict[str, GroupState]:
    """Returns the groups that this broker coordinates. Raises NoAnswer."""
    listed = await connection.call(ListGroupsRequest(), ListGroupsResponse)
    names = sorted(group.group_id for group in listed.groups)
    found = {
        group.group_id: GroupState(
            state=group.group_state or None, kind=group.group_type or None, protocol=group.protocol_type or None
        )
        for group in listed.groups
    }
    for start in range(0, len(names), _GROUPS_PER_REQUEST):
        some = names[start : start + _GROUPS_PER_REQUEST]
        for name, offsets in (await _offsets(connection, some)).items():
            found[name].offsets = dict(offsets)
        for name, members in (await _members(connection, some)).items():
            found[name].members = members
    return found


async def _offsets(connection: BrokerConnection, names: Sequence[str]) -> Mapping[str, dict[Key, int]]:
    if connection.version_of(OffsetFetchRequest) < _MANY_FROM:
        return {name: await _offsets_of_one(connection, name) for name in names}
    group = OffsetFetchRequest.OffsetFetchRequestGroup
    request = OffsetFetchRequest(groups=[group(group_id=name, topics=None) for name in names])
    answer = await connection.call(request, OffsetFetchResponse, version_max=_BY_NAME)
    return {
        found.group_id: {
            (topic.name, row.partition_index): row.committed_offset
            for topic in found.topics
            for row in topic.partitions
            if not row.error_code and row.committed_offset >= 0
        }
        for found in answer.groups
        if not found.error_code
    }


async def _offsets_of_one(connection: BrokerConnection, name: str) -> dict[Key, int]:
    answer = await connection.call(
        OffsetFetchRequest(group_id=name, topics=None), OffsetFetchResponse, version_max=_MANY_FROM - 1
    )
    return {
        (topic.name, row.partition_index): row.committed_offset
        for topic in answer.topics
        for row in topic.partitions
        if not row.error_code and row.committed_offset >= 0
    }


async def _members(connection: BrokerConnection, names: Sequence[str]) -> dict[str, int]:
    try:
        answer = await connection.call(DescribeGroupsRequest(groups=list(names)), DescribeGroupsResponse)
    except NoAnswer:
        return {}
    return {group.group_id: len(group.members) for group in answer.groups if not group.error_code}
