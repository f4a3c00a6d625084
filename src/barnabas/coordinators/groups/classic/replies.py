"""The responses of the classic group APIs, built from groups and members."""

from __future__ import annotations

from barnabas.common.errors import ErrorCode
from barnabas.coordinators.groups.classic.group import ClassicGroup, GroupState, Member
from barnabas.protocol.messages.describe_groups import DescribeGroupsResponse
from barnabas.protocol.messages.join_group import JoinGroupResponse
from barnabas.protocol.messages.list_groups import ListGroupsResponse
from barnabas.protocol.messages.sync_group import SyncGroupResponse


def join_failed(code: ErrorCode, member_id: str) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=code, generation_id=-1, protocol_type=None, protocol_name=None, leader="", member_id=member_id
    )


def joined(
    group: ClassicGroup, member: Member, *, with_members: bool | None = None, skip_assignment: bool = False
) -> JoinGroupResponse:
    """Returns the JoinGroup response for this member. With `with_members` None, only the leader gets the list of
    members, from which it assigns."""
    if with_members is None:
        with_members = group.is_leader(member.member_id)
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader_id or "",
        skip_assignment=skip_assignment,
        member_id=member.member_id,
        members=joined_members(group) if with_members else [],
    )


class Joined:
    """The JoinGroup responses of one new generation; unchanged if the group changes before the last one is sent."""

    __slots__ = ("_leader_id", "_members", "_name", "_number", "_type")

    def __init__(self, group: ClassicGroup) -> None:
        self._number = group.generation
        self._type = group.protocol_type
        self._name = group.protocol_name
        self._leader_id = group.leader_id or ""
        self._members = joined_members(group)

    def response(self, member: Member) -> JoinGroupResponse:
        return JoinGroupResponse(
            generation_id=self._number,
            protocol_type=self._type,
            protocol_name=self._name,
            leader=self._leader_id,
            member_id=member.member_id,
            members=self._members if member.member_id == self._leader_id else [],
        )


def joined_members(group: ClassicGroup) -> list[JoinGroupResponse.JoinGroupResponseMember]:
    name = group.protocol_name
    assert name is not None, "a generation has a protocol"
    return [
        JoinGroupResponse.JoinGroupResponseMember(
            member_id=member.member_id, group_instance_id=member.instance_id, metadata=member.protocols[name]
        )
        for member in group.members.values()
    ]


def sync_failed(code: ErrorCode) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=code, protocol_type=None, protocol_name=None, assignment=b"")


def synced(group: ClassicGroup, member: Member) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment
    )


def listed(group: ClassicGroup) -> ListGroupsResponse.ListedGroup:
    return ListGroupsResponse.ListedGroup(
        group_id=group.group_id,
        protocol_type=group.protocol_type or "",
        group_state=group.state.value,
        group_type="classic",
    )


def described(group: ClassicGroup) -> DescribeGroupsResponse.DescribedGroup:
    """Returns the description of a group. It contains members' metadata only for a stable group: before, the
    protocol is not chosen."""
    name = group.protocol_name if group.is_in(GroupState.STABLE) else None
    return DescribeGroupsResponse.DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=name or "",
        members=[
            DescribeGroupsResponse.DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=b"" if name is None else member.protocols[name],
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )


def describe_failed(group_id: str, code: ErrorCode) -> DescribeGroupsResponse.DescribedGroup:
    return DescribeGroupsResponse.DescribedGroup(error_code=code, group_id=group_id)


def describe_missing(group_id: str, api_version: int, message: str) -> DescribeGroupsResponse.DescribedGroup:
    """Returns the description of a group that does not exist: before version 6 (KIP-1043) as a dead group."""
    group = DescribeGroupsResponse.DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
    if api_version >= 6:
        group.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        group.error_message = message
    return group
