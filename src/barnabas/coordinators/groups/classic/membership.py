"""SyncGroup, Heartbeat and LeaveGroup: the requests of a generation's members.

`rebalance.py` removes a member whose session has expired.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from barnabas.common.continuations import later
from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.coordinators.groups.classic import replies
from barnabas.coordinators.groups.classic.group import UNKNOWN_MEMBER, ClassicGroup, GroupState, SyncReply
from barnabas.coordinators.groups.classic.rebalance import Rebalancer
from barnabas.coordinators.groups.shard_context import GroupContext
from barnabas.protocol.messages.sync_group import SyncGroupRequest


class Leaving(NamedTuple):
    """A member to be removed: by its member id, or by its instance id alone, as an administrator does."""

    member_id: str
    instance_id: str | None
    reason: str | None


class Membership:
    """The requests of members for the groups of one shard. Raises RequestFailed with the error code of the response."""

    __slots__ = ("_context", "_rebalancer")

    def __init__(self, context: GroupContext, rebalancer: Rebalancer) -> None:
        self._context = context
        self._rebalancer = rebalancer

    def _group(self, group_id: str) -> ClassicGroup:
        group = self._context.groups.get(group_id)
        if group is None:
            raise RequestFailed(ErrorCode.UNKNOWN_MEMBER_ID)
        return group

    def sync(self, request: SyncGroupRequest, reply: SyncReply) -> None:
        """Serves SyncGroup. The leader's request contains the assignment; the requests of the other members wait for
        it.
        """
        group = self._group(request.group_id)
        member = group.validate(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation:
            raise RequestFailed(ErrorCode.ILLEGAL_GENERATION)
        if request.protocol_type not in (None, group.protocol_type):
            raise RequestFailed(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if request.protocol_name not in (None, group.protocol_name):
            raise RequestFailed(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        match group.state:
            case GroupState.PREPARING_REBALANCE:
                raise RequestFailed(ErrorCode.REBALANCE_IN_PROGRESS)
            case GroupState.COMPLETING_REBALANCE:
                # An earlier SyncGroup of the same member is still parked if its connection broke; no client reads that
                # response.
                member.complete_sync(replies.sync_failed(ErrorCode.REBALANCE_IN_PROGRESS))
                member.sync_reply = later(reply)
                self._rebalancer.synced(group, member)
                if group.is_leader(member.member_id):
                    given = {one.member_id: one.assignment for one in request.assignments}
                    self._rebalancer.store_assignment(
                        group, {member_id: given.get(member_id, b"") for member_id in group.members}
                    )
            case _:
                assert group.is_in(GroupState.STABLE), "a group with members is in one of three states"
                self._rebalancer.synced(group, member)
                reply(replies.synced(group, member))

    def heartbeat(self, group_id: str, generation: int, member_id: str, instance_id: str | None) -> ErrorCode:
        """Extends the member's session. Returns REBALANCE_IN_PROGRESS if the member must join again."""
        group = self._group(group_id)
        member = group.validate(member_id, instance_id)
        if generation != group.generation:
            raise RequestFailed(ErrorCode.ILLEGAL_GENERATION)
        self._rebalancer.extend_session(group, member)
        if group.is_in(GroupState.PREPARING_REBALANCE):
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def leave(self, group_id: str, leaving: Sequence[Leaving]) -> list[ErrorCode]:
        """Removes members. Returns an error code for each."""
        group = self._group(group_id)
        codes = [self._leave(group, one) for one in leaving]
        removed = [one.instance_id or one.member_id for one, code in zip(leaving, codes, strict=True) if not code]
        if removed:
            reasons = "; ".join(sorted({one.reason for one in leaving if one.reason}))
            self._rebalancer.after_removal(group, f"left: {', '.join(removed)}" + (f" ({reasons})" if reasons else ""))
        return codes

    def _leave(self, group: ClassicGroup, one: Leaving) -> ErrorCode:
        member_id = one.member_id
        if member_id == UNKNOWN_MEMBER:
            member_id = group.static_members.get(one.instance_id, "") if one.instance_id is not None else ""
            if not member_id:
                return ErrorCode.UNKNOWN_MEMBER_ID
            self._rebalancer.remove(group, group.members[member_id])
            return ErrorCode.NONE
        if member_id in group.pending_joins:
            group.forget_pending(member_id)
            return ErrorCode.NONE
        try:
            member = group.validate(member_id, one.instance_id)
        except RequestFailed as failure:
            return failure.code
        self._rebalancer.remove(group, member)
        return ErrorCode.NONE
