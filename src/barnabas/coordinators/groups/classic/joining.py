"""JoinGroup: which members can join a group, and under which member id.

no member id, dynamic    version 4+: gets a member id and must join again with it (KIP-394); before: joins immediately
no member id, static     joins in place of the previous member with the same instance id (KIP-345)
with a member id         joins again; a rebalance begins only if its metadata changed, or if it is the leader

A parked JoinGroup is answered by `Rebalancer._complete_join` (`rebalance.py`), when the join phase ends.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import NamedTuple

from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.coordinators.groups.classic import replies
from barnabas.coordinators.groups.classic.group import (
    UNKNOWN_MEMBER,
    ClassicGroup,
    GroupState,
    JoinReply,
    Member,
    memory_of,
)
from barnabas.coordinators.groups.classic.images import generation_record, new_group_record
from barnabas.coordinators.groups.classic.rebalance import Rebalancer
from barnabas.coordinators.groups.shard_context import GroupContext
from barnabas.coordinators.runtime import client_error
from barnabas.protocol.messages.join_group import JoinGroupResponse

MEMBER_ID_REQUIRED_SINCE = 4
_SKIP_ASSIGNMENT_SINCE = 9
#: The largest client id or instance id: a member id appends a dash and a UUID, and records hold strings of 32,767
#: bytes.
_PREFIX_BYTES_MAX = 32_767 - 37
#: An upper bound for the protocols in a request, ten times what any client supports.
_PROTOCOLS_MAX = 1_000
#: Errors after which the record can be in the log nonetheless, and can be committed.
_POSSIBLY_COMMITTED = frozenset({ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND})


class Join(NamedTuple):
    """A JoinGroup request of any version."""

    group_id: str
    member_id: str
    instance_id: str | None
    protocol_type: str
    protocols: Mapping[str, bytes]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    client_id: str
    client_host: str
    api_version: int
    reply: JoinReply

    def fail(self, code: ErrorCode, member_id: str | None = None) -> None:
        self.reply(replies.join_failed(code, self.member_id if member_id is None else member_id))


class Joining:
    """The JoinGroup requests of one shard."""

    __slots__ = ("_context", "_rebalancer")

    def __init__(self, context: GroupContext, rebalancer: Rebalancer) -> None:
        self._context = context
        self._rebalancer = rebalancer

    def join(self, join: Join) -> None:
        """Answers the request, immediately or when the rebalance is complete. Raises RequestFailed."""
        if len(join.protocols) > _PROTOCOLS_MAX:
            raise RequestFailed(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        group = self._context.groups.get(join.group_id)
        self._check_memory(group, join)
        created = group is None
        if group is None:
            if join.member_id != UNKNOWN_MEMBER:
                raise RequestFailed(ErrorCode.UNKNOWN_MEMBER_ID)
            group = self._context.create(join.group_id)
        if not self._has_capacity(group, join.member_id):
            self._refuse_member(group, join.member_id)
            join.fail(ErrorCode.GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER)
        elif not group.supports(join.protocol_type, join.protocols):
            join.fail(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        elif join.member_id == UNKNOWN_MEMBER:
            self._join_new(group, join)
        else:
            self._join_again(group, join)
        if created:
            self._store_new(group)

    def _check_memory(self, group: ClassicGroup | None, join: Join) -> None:
        """Raises RequestFailed: UNKNOWN_SERVER_ERROR for a member that fits into no record of its group, as the
        write of the generation would fail later; COORDINATOR_NOT_AVAILABLE while the members of all groups use up
        their memory, after which clients retry."""
        if any(len(metadata) > self._context.log.batch_bytes_max for metadata in join.protocols.values()):
            raise RequestFailed(client_error(ErrorCode.MESSAGE_TOO_LARGE))
        member = None if group is None else group.members.get(join.member_id)
        more = memory_of(join.protocols) - (0 if member is None else memory_of(member.protocols))
        held = self._context.held
        if more > 0 and held.bytes + more > held.bytes_max:
            raise RequestFailed(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _has_capacity(self, group: ClassicGroup, member_id: str) -> bool:
        """Returns whether the group has room for the member (`group.max.size`). During PreparingRebalance, members that
        have not joined again do not count."""
        size_max = self._context.config.group_size_max
        member = group.members.get(member_id)
        match group.state:
            case GroupState.PREPARING_REBALANCE:
                awaited = member is not None and member.join_reply is not None
                return awaited or group.awaiting_joins < size_max
            case GroupState.COMPLETING_REBALANCE | GroupState.STABLE:
                return member is not None or len(group.members) < size_max
            case _:
                return True

    def _refuse_member(self, group: ClassicGroup, member_id: str) -> None:
        member = group.members.get(member_id)
        if member is not None:
            self._rebalancer.remove(group, member)
        self._rebalancer.drop_pending(group, member_id)

    def _store_new(self, group: ClassicGroup) -> None:
        self._context.log.append([new_group_record(group)], lambda code: self._on_new_stored(group, code))

    def _on_new_stored(self, group: ClassicGroup, code: ErrorCode) -> None:
        """Removes the group if its first record could not be written, unless it has completed a rebalance since
        then.
        """
        if code is ErrorCode.NONE or group.generation > 0 or self._context.groups.get(group.group_id) is not group:
            return
        del self._context.groups[group.group_id]
        self._rebalancer.end_group(group, client_error(code))

    # -- new members

    def _join_new(self, group: ClassicGroup, join: Join) -> None:
        prefix = join.client_id if join.instance_id is None else join.instance_id
        if len(prefix.encode()) > _PREFIX_BYTES_MAX:
            raise RequestFailed(ErrorCode.INVALID_REQUEST)
        member_id = f"{prefix}-{uuid.UUID(bytes=self._context.host.random.uuid())}"
        if join.instance_id is not None:
            old_id = group.static_members.get(join.instance_id)
            if old_id is None:
                self._add(group, join, member_id)
            else:
                self._replace(group, group.members[old_id], join, member_id)
        elif join.api_version >= MEMBER_ID_REQUIRED_SINCE:
            self._rebalancer.schedule_pending(group, member_id, join.session_timeout_ms)
            join.fail(ErrorCode.MEMBER_ID_REQUIRED, member_id)
        else:
            self._add(group, join, member_id)

    def _add(self, group: ClassicGroup, join: Join, member_id: str) -> None:
        member = Member(
            member_id,
            self._context.deadlines.new(),
            client_id=join.client_id,
            client_host=join.client_host,
            instance_id=join.instance_id,
        )
        member.is_new = True
        group.update(member, join.protocols, rebalance_ms=join.rebalance_timeout_ms, session_ms=join.session_timeout_ms)
        if group.is_in(GroupState.PREPARING_REBALANCE) and group.previous_state is GroupState.EMPTY:
            group.new_member_added = True
        group.add(member, join.protocol_type, join.reply)
        # The member cannot send heartbeats while its join is parked, and may be dead; if it is not, it joins again.
        self._rebalancer.schedule_session(group, member, self._context.config.new_member_join_timeout_ms)
        self._rebalancer.prepare_or_complete(group, f"member {member_id} joined")

    def _replace(self, group: ClassicGroup, old: Member, join: Join, member_id: str) -> None:
        """Replaces a static member that was restarted with the same instance id, if possible without a rebalance."""
        leader_before = group.leader_id or ""
        self._rebalancer.dismiss(group, old, ErrorCode.FENCED_INSTANCE_ID, old.member_id)
        member = group.replace_static(old, member_id, self._context.deadlines.new())
        group.update(member, join.protocols, rebalance_ms=join.rebalance_timeout_ms, session_ms=join.session_timeout_ms)
        group.park_join(member, join.reply)
        self._rebalancer.extend_session(group, member)
        match group.state:
            case GroupState.STABLE if group.select_protocol() == group.protocol_name:
                self._store_replacement(group, old, member, join.api_version, leader_before)
            case GroupState.STABLE | GroupState.COMPLETING_REBALANCE:
                # The leader's assignment is for the old member id.
                self._rebalancer.prepare(group, f"static member {join.instance_id} joined again")
            case _:
                self._rebalancer.maybe_complete_join(group)

    def _store_replacement(
        self, group: ClassicGroup, old: Member, member: Member, api_version: int, leader_before: str
    ) -> None:
        group.update_subscription()
        assignment = {known.member_id: known.assignment for known in group.members.values()}

        def on_stored(code: ErrorCode) -> None:
            if group.members.get(member.member_id) is not member or not group.is_in(GroupState.STABLE):
                return  # a rebalance or another replacement has begun, which answers the join
            if code is not ErrorCode.NONE:
                self._fail_replacement(group, old, member, code)
                return
            group.complete_join(member, self._replaced(group, member, api_version, leader_before))

        self._context.log.append([generation_record(group, assignment)], on_stored)

    @staticmethod
    def _replaced(group: ClassicGroup, member: Member, api_version: int, leader_before: str) -> JoinGroupResponse:
        """Returns the response to a static member that was replaced without a rebalance. A leader must not assign
        again: since version 9 the response says so; before, it contains the old member id as the leader
        (KAFKA-12984, KIP-814)."""
        if api_version >= _SKIP_ASSIGNMENT_SINCE:
            return replies.joined(group, member, skip_assignment=group.is_leader(member.member_id))
        response = replies.joined(group, member, with_members=False)
        response.leader = leader_before
        return response

    def _fail_replacement(self, group: ClassicGroup, old: Member, member: Member, code: ErrorCode) -> None:
        """Restores the old member, unless the new member's record can still be committed. In that case the state
        here stays as the next coordinator will read it, and the instance has to join again."""
        response = replies.joined(group, member, with_members=False)
        response.error_code, response.member_id = client_error(code), UNKNOWN_MEMBER
        group.complete_join(member, response)
        if code in _POSSIBLY_COMMITTED:
            return
        restored = group.replace_static(member, old.member_id, self._context.deadlines.new())
        group.update(restored, old.protocols, rebalance_ms=old.rebalance_timeout_ms, session_ms=old.session_timeout_ms)
        group.update_subscription()
        self._rebalancer.extend_session(group, restored)

    # -- members that join again

    def _join_again(self, group: ClassicGroup, join: Join) -> None:
        if join.member_id in group.pending_joins:
            if join.instance_id is not None:
                raise RequestFailed(ErrorCode.UNKNOWN_MEMBER_ID)
            self._add(group, join, join.member_id)
            return
        member = group.validate(join.member_id, join.instance_id)
        same = member.has_protocols(join.protocols)
        match group.state:
            case GroupState.PREPARING_REBALANCE:
                self._update(group, member, join, f"member {member.member_id} joined again")
            case GroupState.COMPLETING_REBALANCE if same:
                # The member may have missed the response to its join: it gets it again.
                join.reply(replies.joined(group, member))
            case GroupState.STABLE if same and not group.is_leader(member.member_id):
                join.reply(replies.joined(group, member))
            case GroupState.STABLE if same:
                # The leader joins again to start a rebalance, for example when the number of partitions has changed.
                self._update(group, member, join, f"leader {member.member_id} joined again")
            case GroupState.COMPLETING_REBALANCE | GroupState.STABLE:
                self._update(group, member, join, f"member {member.member_id} joined with other metadata")
            case _:
                raise RequestFailed(ErrorCode.UNKNOWN_MEMBER_ID)

    def _update(self, group: ClassicGroup, member: Member, join: Join, reason: str) -> None:
        # An earlier join of the same member is still parked if its connection broke; no client reads that response.
        group.complete_join(member, replies.join_failed(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
        group.update(member, join.protocols, rebalance_ms=join.rebalance_timeout_ms, session_ms=join.session_timeout_ms)
        group.park_join(member, join.reply)
        self._rebalancer.prepare_or_complete(group, reason)
