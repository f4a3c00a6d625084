"""Conversion of classic groups to records and back: `GroupMetadataValue` <-> `ClassicGroup`."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.common.errors import DecodeError
from barnabas.coordinators.deadlines import Deadlines
from barnabas.coordinators.groups.classic.group import NO_TIMESTAMP, ClassicGroup, GroupState, Member
from barnabas.coordinators.groups.group_records import group_record
from barnabas.coordinators.runtime import KeyValue
from barnabas.protocol.messages.records_group import GroupMetadataValue


def new_group_record(group: ClassicGroup) -> KeyValue:
    """Returns a group's first record, which only states that the group exists: members are stored with their first
    generation."""
    value = GroupMetadataValue(
        protocol_type="",
        generation=0,
        protocol=None,
        leader=None,
        current_state_timestamp=group.state_timestamp_ms,
        members=[],
    )
    return group_record(group.group_id, value)


def generation_record(group: ClassicGroup, assignment: Mapping[str, bytes]) -> KeyValue:
    """Returns the record of the current generation with this assignment by member id."""
    name = group.protocol_name
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=name,
        leader=group.leader_id,
        current_state_timestamp=group.state_timestamp_ms,
        members=[
            GroupMetadataValue.MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.protocols[name] if name is not None else b"",
                assignment=assignment.get(member.member_id, b""),
            )
            for member in group.members.values()
        ],
    )
    return group_record(group.group_id, value)


def restore_group(group_id: str, value: GroupMetadataValue, deadlines: Deadlines) -> ClassicGroup:
    """Returns the group of a record: stable with its members, or empty. Raises DecodeError if the record contains a
    member or an instance id twice."""
    instances = [one.group_instance_id for one in value.members if one.group_instance_id is not None]
    if len({one.member_id for one in value.members}) < len(value.members) or len(set(instances)) < len(instances):
        raise DecodeError("a group record contains a member twice")
    timestamp_ms = value.current_state_timestamp
    state = GroupState.STABLE if value.members else GroupState.EMPTY
    group = ClassicGroup(group_id, deadlines, timestamp_ms if timestamp_ms >= 0 else NO_TIMESTAMP, state)
    group.generation = value.generation
    protocol_type = value.protocol_type or None
    for written in value.members:
        member = Member(
            written.member_id,
            deadlines.new(),
            client_id=written.client_id,
            client_host=written.client_host,
            instance_id=written.group_instance_id,
            assignment=written.assignment,
        )
        rebalance_ms = written.rebalance_timeout if written.rebalance_timeout >= 0 else written.session_timeout
        protocols = {} if value.protocol is None else {value.protocol: written.subscription}
        group.update(member, protocols, rebalance_ms=rebalance_ms, session_ms=written.session_timeout)
        group.add(member, protocol_type, None)
    group.protocol_type = protocol_type
    group.protocol_name = value.protocol
    group.leader_id = value.leader if value.leader in group.members else next(iter(group.members), None)
    group.update_subscription()
    return group
