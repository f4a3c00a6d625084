"""Who may commit and read offsets in a consumer group: its members, at their present epoch."""

from __future__ import annotations

from typing import Final

from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.coordinators.groups.consumer.group import ConsumerGroup
from barnabas.coordinators.groups.consumer.member import Member

#: From this version on clients can be told STALE_MEMBER_EPOCH.
_EPOCHS_SINCE: Final = 9


def check_commit(group: ConsumerGroup, member_id: str, epoch: int, api_version: int) -> None:
    """RequestFailed. Whoever is no member may commit while the group is empty."""
    if epoch < 0 and not group.members:
        return
    member = group.member(member_id)
    if not member.is_classic and api_version < _EPOCHS_SINCE:
        raise RequestFailed(ErrorCode.UNSUPPORTED_VERSION)
    _check_epoch(member, epoch)


def check_transactional_commit(group: ConsumerGroup, member_id: str, instance_id: str | None, epoch: int) -> None:
    """RequestFailed. A producer need not say for which member it commits; one that does is fenced like it."""
    if epoch < 0 and not group.members:
        return
    if epoch < 0 and not member_id and instance_id is None:
        return
    _check_epoch(group.member(member_id), epoch)


def check_fetch(group: ConsumerGroup, member_id: str | None, epoch: int) -> None:
    """RequestFailed. Administrators do not say who they are."""
    if member_id is None and epoch < 0:
        return
    _check_epoch(group.member(member_id or ""), epoch)


def _check_epoch(member: Member, epoch: int) -> None:
    if member.epoch != epoch:
        raise RequestFailed(ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH)
