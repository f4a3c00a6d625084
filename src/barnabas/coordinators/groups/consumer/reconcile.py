"""Reconciliation: a member's next step from its current to its target assignment, given the partitions that it reports.

    it reports partitions that it must not have     UNREVOKED, at its old epoch, with the partitions to release; it gets
                                                    no others before it has released them
    otherwise, some target partitions are free      it gets these, at the epoch of the target
    other target partitions belong to others        UNRELEASED, else STABLE, at the epoch of the target

A partition is therefore assigned only after its last owner has reported its release, or was removed from the group.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator
from dataclasses import dataclass, replace
from typing import Final

from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.common.gradual import sorted_gradually
from barnabas.coordinators.groups.consumer.member import (
    NOTHING,
    PER_UNIT,
    Assignment,
    Member,
    MemberState,
    has_any,
)

_NONE: frozenset[int] = frozenset()
#: The fixed cost of a topic, compared with one of its partitions.
_TOPIC_WORK: Final = 2


@dataclass(frozen=True, slots=True)
class Goal:
    """A member's target assignment, and the values that its next step depends on."""

    epoch: int
    target: Assignment
    #: The ids of existing topics that it subscribes to.
    subscribed: Collection[bytes]
    #: Returns the member id of a partition's owner; None if it is free.
    owner_of: Callable[[bytes, int], str | None]


def reconcile(
    member: Member, goal: Goal, owned: Assignment | None, *, subscription_changed: bool
) -> Generator[int, None, Member]:
    """Returns the member after its next step, or the same member. `owned` contains the partitions that it reports,
    None if it reports none. Works in steps. Raises RequestFailed with FENCED_MEMBER_EPOCH."""
    match member.state:
        case MemberState.STABLE:
            if member.epoch != goal.epoch:
                return (yield from _advance(member, goal, owned))
        case MemberState.UNREVOKED_PARTITIONS:
            if owned is not None and not has_any(owned, member.revoking):
                return (yield from _advance(member, goal, owned))
        case MemberState.UNRELEASED_PARTITIONS:
            return (yield from _advance(member, goal, owned))
        case MemberState.UNKNOWN:
            if owned is None or owned:
                raise RequestFailed(
                    ErrorCode.FENCED_MEMBER_EPOCH,
                    "The consumer group member is in a unknown state. "
                    "The member must abandon all its partitions and rejoin.",
                )
            return (yield from _advance(replace(member, epoch=goal.epoch), goal, owned))
    return (yield from _drop_unsubscribed(member, goal, owned)) if subscription_changed else member


def _drop_unsubscribed(member: Member, goal: Goal, owned: Assignment | None) -> Generator[int, None, Member]:
    """Revokes, immediately and at any epoch, the partitions of topics that the member no longer subscribes to."""
    assigned: dict[bytes, frozenset[int]] = {}
    revoking = dict(member.revoking)
    for count, (topic_id, partitions) in enumerate(member.assigned.items(), 1):
        if topic_id in goal.subscribed:
            assigned[topic_id] = partitions
        else:
            revoking[topic_id] = partitions | revoking.get(topic_id, _NONE)
        if not count % PER_UNIT:
            yield 1
    if len(assigned) == len(member.assigned):
        return member
    if owned is None or has_any(owned, revoking):
        return _step(member, member.epoch, MemberState.UNREVOKED_PARTITIONS, assigned, revoking)
    return _step(member, member.epoch, member.state, assigned, member.revoking)


def _advance(member: Member, goal: Goal, owned: Assignment | None) -> Generator[int, None, Member]:
    kept: dict[bytes, frozenset[int]] = {}
    revoking: dict[bytes, frozenset[int]] = {}
    added: dict[bytes, frozenset[int]] = {}
    unreleased = False
    topic_ids = {*goal.target, *member.assigned}
    work = 0
    for topic_id in sorted(topic_ids) if len(topic_ids) <= PER_UNIT else (yield from sorted_gradually(topic_ids)):
        target = goal.target.get(topic_id, _NONE) if topic_id in goal.subscribed else _NONE
        current = member.assigned.get(topic_id, _NONE)
        missing = target - current
        free = frozenset(
            partition for partition in missing if goal.owner_of(topic_id, partition) in (None, member.member_id)
        )
        unreleased = unreleased or len(free) < len(missing)
        if current & target:
            kept[topic_id] = current & target
        if current - target:
            revoking[topic_id] = current - target
        if free:
            added[topic_id] = free
        work += _TOPIC_WORK + len(missing)
        if work > PER_UNIT:
            yield 1
            work = 0
    if revoking and (owned is None or has_any(owned, revoking)):
        return _step(member, member.epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoking)
    for count, (topic_id, partitions) in enumerate(added.items(), 1):
        kept[topic_id] = kept.get(topic_id, _NONE) | partitions
        if not count % PER_UNIT:
            yield 1
    state = MemberState.UNRELEASED_PARTITIONS if unreleased else MemberState.STABLE
    return _step(member, goal.epoch, state, kept, NOTHING)


def _step(member: Member, epoch: int, state: MemberState, assigned: Assignment, revoking: Assignment) -> Member:
    """Returns the member after a step; the same member if only its previous epoch would change, which needs no
    record."""
    if epoch == member.epoch and state is member.state and assigned == member.assigned and revoking == member.revoking:
        return member
    return replace(member.at_epoch(epoch), state=state, assigned=assigned, revoking=revoking)
