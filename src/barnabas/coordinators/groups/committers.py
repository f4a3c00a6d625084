"""The checks of offset commits, for groups of both protocols, and the offset that is stored."""

from __future__ import annotations

from typing import Final

from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.coordinators.groups.classic.group import GroupState
from barnabas.coordinators.groups.classic.rebalance import Rebalancer
from barnabas.coordinators.groups.consumer.fencing import check_commit, check_transactional_commit
from barnabas.coordinators.groups.group_records import NO_EXPIRY, CommittedOffset
from barnabas.coordinators.groups.shard_context import GroupContext
from barnabas.protocol.messages.offset_commit import OffsetCommitRequest
from barnabas.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

_GROUP_ID_NOT_FOUND_SINCE = 9
INT64_MAX: Final = (1 << 63) - 1


class Committers:
    """Checks offset commits for the groups of one shard."""

    __slots__ = ("_context", "_rebalancer")

    def __init__(self, context: GroupContext, rebalancer: Rebalancer) -> None:
        self._context = context
        self._rebalancer = rebalancer

    def validate(self, request: OffsetCommitRequest, api_version: int) -> None:
        """Raises RequestFailed if this member, or an anonymous committer, must not commit now. A member's commit
        extends its session."""
        generation = request.generation_id_or_member_epoch
        consumer_group = self._context.consumer_group(request.group_id)
        if consumer_group is not None:
            check_commit(consumer_group, request.member_id, generation, api_version)
            return
        group = self._context.groups.get(request.group_id)
        if group is None:
            if generation >= 0:
                known = api_version >= _GROUP_ID_NOT_FOUND_SINCE
                raise RequestFailed(ErrorCode.GROUP_ID_NOT_FOUND if known else ErrorCode.ILLEGAL_GENERATION)
            return
        if generation < 0 and group.is_in(GroupState.EMPTY):
            return
        if generation < 0 and not request.member_id and request.group_instance_id is None:
            raise RequestFailed(ErrorCode.UNKNOWN_MEMBER_ID)
        member = group.validate(request.member_id, request.group_instance_id)
        if generation != group.generation:
            raise RequestFailed(ErrorCode.ILLEGAL_GENERATION)
        if group.is_in(GroupState.COMPLETING_REBALANCE):
            raise RequestFailed(ErrorCode.REBALANCE_IN_PROGRESS)
        self._rebalancer.extend_session(group, member)

    def validate_transactional(self, request: TxnOffsetCommitRequest) -> None:
        """Raises RequestFailed if this producer must not commit now. A producer need not name a member; one that
        does is fenced like the member. A rebalance in progress does not block its commits: its generation is fenced
        when the rebalance ends (KIP-447)."""
        generation = request.generation_id
        consumer_group = self._context.consumer_group(request.group_id)
        if consumer_group is not None:
            check_transactional_commit(consumer_group, request.member_id, request.group_instance_id, generation)
            return
        group = self._context.groups.get(request.group_id)
        if group is None:
            if generation >= 0:
                raise RequestFailed(ErrorCode.ILLEGAL_GENERATION)
            return
        if generation < 0 and not request.member_id and request.group_instance_id is None:
            return
        if generation < 0 and group.is_in(GroupState.EMPTY):
            return
        group.validate(request.member_id, request.group_instance_id)
        if generation != group.generation:
            raise RequestFailed(ErrorCode.ILLEGAL_GENERATION)

    def accept(self, metadata: str | None, offset: int, leader_epoch: int, retention_ms: int) -> CommittedOffset | None:
        """Returns the offset to be stored; None if the metadata is too large."""
        if metadata is not None and len(metadata) > self._context.config.offset_metadata_size_max:
            return None
        now_ms = self._context.wall_ms()
        expiry_ms = NO_EXPIRY if retention_ms < 0 else min(now_ms + retention_ms, INT64_MAX)
        return CommittedOffset(offset, leader_epoch, metadata or "", now_ms, expiry_ms)
