"""Access to the offsets of a consumer group: its members at their current epoch can commit and fetch."""

from __future__ import annotations

from typing import Final

from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.coordinators.groups.consumer.group import ConsumerGroup
from barnabas.coordinators.groups.consumer.member import Member

#: The version since which clients know STALE_MEMBER_EPOCH.
_EPOCHS_SINCE: Final = 9


def check_commit(group: ConsumerGroup, member_id: str, epoch: int, api_version: int) -> None:
    """Raises RequestFailed unless the member can commit now. Others can commit while the group is empty."""
    if epoch < 0 and not group.members:
        return
    member = group.member(member_id)
    if not member.is_classic and api_version < _EPOCHS_SINCE:
        raise RequestFailed(ErrorCode.UNSUPPORTED_VERSION)
    _check_epoch(member, epoch)


def check_transactional_commit(group: ConsumerGroup, member_id: str, instance_id: str | None, epoch: int) -> None:
    """Raises RequestFailed unless the producer can commit now. It need not name a member; one that does is fenced
    like the member."""
    if epoch < 0 and not group.members:
        return
    if epoch < 0 and not member_id and instance_id is None:
        return
    _check_epoch(group.member(member_id), epoch)


def check_fetch(group: ConsumerGroup, member_id: str | None, epoch: int) -> None:
    """Raises RequestFailed if the request names a member that is unknown or at another epoch. Admin clients name
    none."""
    if member_id is None and epoch < 0:
        return
    _check_epoch(group.member(member_id or ""), epoch)


def _check_epoch(member: Member, epoch: int) -> None:
    if member.epoch != epoch:
        raise RequestFailed(ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH)
