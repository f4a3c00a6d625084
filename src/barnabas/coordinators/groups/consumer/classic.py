"""Members of the classic protocol in a consumer group: their JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

    JoinGroup   corresponds to a full heartbeat: contains subscription and owned partitions; the response has the next
                epoch as its generation
    SyncGroup   returns the partitions of that epoch, encoded as a classic assignor would
    Heartbeat   REBALANCE_IN_PROGRESS while the member has a next step: it takes the step when it joins again

No member assigns partitions: every response names another leader.
"""

from __future__ import annotations

import uuid
from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from barnabas.common.errors import DecodeError, ErrorCode, RequestFailed
from barnabas.coordinators.groups.classic.joining import MEMBER_ID_REQUIRED_SINCE, Join
from barnabas.coordinators.groups.classic.membership import Leaving
from barnabas.coordinators.groups.consumer.consumer_context import ConsumerContext
from barnabas.coordinators.groups.consumer.draft import Draft
from barnabas.coordinators.groups.consumer.embedded import (
    Subscription,
    embedded_version,
    encode_assignment,
    first_metadata,
    parse_subscription,
    with_ids,
)
from barnabas.coordinators.groups.consumer.group import ConsumerGroup
from barnabas.coordinators.groups.consumer.heartbeat import check_instance, replace_static
from barnabas.coordinators.groups.consumer.member import NO_REGEX, PER_UNIT, ClassicInfo, Member, MemberState
from barnabas.coordinators.groups.consumer.member_deadlines import DeadlineKind
from barnabas.coordinators.groups.consumer.planning import Planner
from barnabas.coordinators.groups.consumer.writes import Answer, GroupOperation, Steps
from barnabas.coordinators.groups.subscription import CONSUMER
from barnabas.protocol.messages.join_group import JoinGroupResponse
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

_UNKNOWN: Final = ""


class Joined(NamedTuple):
    """A classic member's JoinGroup with its member id and parsed subscription."""

    join: Join
    member_id: str
    subscription: Subscription


class ClassicMembers:
    """The requests of classic members for the consumer groups of one shard."""

    __slots__ = ("_context", "_planner")

    def __init__(self, context: ConsumerContext, planner: Planner) -> None:
        self._context = context
        self._planner = planner

    # -- JoinGroup

    def join(self, draft: Draft, join: Join) -> Steps:
        """Serves a classic member's JoinGroup. Raises RequestFailed."""
        group = draft.group
        member_id = join.member_id or str(uuid.UUID(bytes=self._context.host.random.uuid()))
        size_max = self._context.config.group_size_max
        if len(group.members) >= size_max and member_id not in group.members:
            raise RequestFailed(ErrorCode.GROUP_MAX_SIZE_REACHED)
        if not _supports(group, join):
            raise RequestFailed(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        try:
            subscription = yield from parse_subscription(first_metadata(join.protocols))
        except DecodeError as error:
            raise RequestFailed(ErrorCode.INCONSISTENT_GROUP_PROTOCOL) from error
        is_unknown = join.member_id == _UNKNOWN
        if is_unknown and join.instance_id is None and join.api_version >= MEMBER_ID_REQUIRED_SINCE:
            return lambda: join.fail(ErrorCode.MEMBER_ID_REQUIRED, member_id)
        return (yield from self._take(draft, Joined(join, member_id, subscription)))

    def _take(self, draft: Draft, joined: Joined) -> Generator[int, None, Answer]:
        join, member_id = joined.join, joined.member_id
        known = yield from self._find(draft, joined)
        before = known or Member(member_id)
        updated = _updated(before, joined)
        changed = False
        if known is None or not before.same_subscription_record(updated) or self._planner.needs_refresh(draft.group):
            changed = yield from self._planner.subscribe(draft, known, updated)
        if draft.group.needs_target:
            yield from self._planner.make_target(draft)
        owned = yield from with_ids(joined.subscription.owned, self._context.topics)
        member = yield from self._planner.advance(draft, updated, owned, subscription_changed=changed)
        draft.effects.append(lambda: self._joined(draft.group_id, member))
        response = JoinGroupResponse(
            generation_id=member.epoch,
            protocol_type=CONSUMER,
            protocol_name=next(iter(join.protocols)),
            leader="",
            member_id=member_id,
            members=[],
        )
        return lambda: join.reply(response)

    def _find(self, draft: Draft, joined: Joined) -> Generator[int, None, Member | None]:
        join, group = joined.join, draft.group
        if join.instance_id is None:
            return group.members.get(joined.member_id)
        existing = group.static_member(join.instance_id)
        if join.member_id != _UNKNOWN:
            return check_instance(existing, join.member_id, join.instance_id)
        if existing is None:
            return None
        return (yield from replace_static(self._context, draft, existing, joined.member_id))

    def _joined(self, group_id: str, member: Member) -> None:
        self._context.sessions.cancel(group_id, member.member_id, DeadlineKind.JOIN)
        self._planner.extend_session(group_id, member)
        self._planner.remove_after(
            group_id, member.member_id, DeadlineKind.SYNC, member.rebalance_timeout_ms, _is_classic
        )
        group = self._context.writes.group(group_id)
        if group is not None and group.all_classic_without(()):
            # The member replaced the last one that used the consumer protocol.
            self._context.writes.submit(group_id, GroupOperation(self._downgrade, None))

    def _downgrade(self, draft: Draft) -> Generator[int, None, None]:
        if draft.now is not None and draft.now.all_classic_without(()):
            yield from self._context.downgrade(draft, frozenset())

    # -- SyncGroup and Heartbeat: read the committed group and change nothing

    def sync(self, group: ConsumerGroup, request: SyncGroupRequest) -> Generator[int, None, SyncGroupResponse]:
        """Serves a classic member's SyncGroup, in steps. Raises RequestFailed in the first one."""
        member = self._validate(group, request.member_id, request.group_instance_id, request.generation_id)
        assert member.classic is not None, "the request was validated before"
        name, metadata = member.classic.protocols[0]
        if request.protocol_type not in (None, CONSUMER) or request.protocol_name not in (None, name):
            raise RequestFailed(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._expect_join(group, member)
            raise RequestFailed(ErrorCode.REBALANCE_IN_PROGRESS)
        self._context.sessions.cancel(group.group_id, member.member_id, DeadlineKind.SYNC)
        self._planner.extend_session(group.group_id, member)
        version = embedded_version(metadata)
        return SyncGroupResponse(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=(yield from encode_assignment(member.assigned, self._context.topics, version)),
        )

    def heartbeat(self, group: ConsumerGroup, generation: int, member_id: str, instance_id: str | None) -> ErrorCode:
        """Serves a classic member's Heartbeat. Raises RequestFailed."""
        member = self._validate(group, member_id, instance_id, generation)
        self._planner.extend_session(group.group_id, member)
        if not self._has_next_step(group, member):
            return ErrorCode.NONE
        self._expect_join(group, member)
        return ErrorCode.REBALANCE_IN_PROGRESS

    @staticmethod
    def _has_next_step(group: ConsumerGroup, member: Member) -> bool:
        if member.epoch < group.epoch or member.state is MemberState.UNREVOKED_PARTITIONS:
            return True
        if member.state is not MemberState.UNRELEASED_PARTITIONS:
            return False
        missing = (
            (topic_id, partition)
            for topic_id, partitions in group.target(member.member_id).items()
            for partition in partitions - member.assigned.get(topic_id, frozenset())
        )
        return not any(place in group.owners for place in missing)

    def _expect_join(self, group: ConsumerGroup, member: Member) -> None:
        if not self._context.sessions.is_scheduled(group.group_id, member.member_id, DeadlineKind.JOIN):
            timeout_ms = member.rebalance_timeout_ms
            self._planner.remove_after(group.group_id, member.member_id, DeadlineKind.JOIN, timeout_ms, _is_classic)

    @staticmethod
    def _validate(group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int) -> Member:
        if instance_id is None:
            member = group.member(member_id)
        else:
            member = check_instance(group.static_member(instance_id), member_id, instance_id)
        if not member.is_classic:
            raise RequestFailed(ErrorCode.UNKNOWN_MEMBER_ID)
        if member.epoch != generation:
            raise RequestFailed(ErrorCode.ILLEGAL_GENERATION)
        return member

    # -- LeaveGroup

    def leave(self, draft: Draft, leaving: Sequence[Leaving]) -> Generator[int, None, list[ErrorCode]]:
        """Serves LeaveGroup: removes members; returns an error code for each."""
        removed: dict[str, None] = {}
        codes = []
        for count, one in enumerate(leaving, 1):
            if not count % PER_UNIT:
                yield 1
            try:
                member = self._leaving_member(draft.group, one)
            except RequestFailed as failure:
                codes.append(failure.code)
            else:
                removed[member.member_id] = None
                codes.append(ErrorCode.NONE)
        if removed:
            yield from self._planner.remove(draft, frozenset(removed))
        return codes

    @staticmethod
    def _leaving_member(group: ConsumerGroup, one: Leaving) -> Member:
        if one.instance_id is None:
            member = group.member(one.member_id)
        else:
            found = group.static_member(one.instance_id)
            # An administrator removes an instance without knowing its member id.
            known_as = found.member_id if found is not None and one.member_id == _UNKNOWN else one.member_id
            member = check_instance(found, known_as, one.instance_id)
        if not member.is_classic:
            raise RequestFailed(ErrorCode.UNKNOWN_MEMBER_ID)
        return member


def _supports(group: ConsumerGroup, join: Join) -> bool:
    """Returns whether one protocol of the joining member is supported by all classic members of the group."""
    if join.protocol_type != CONSUMER or not join.protocols:
        return False
    common = set(join.protocols)
    for member in group.members.values():
        if member.classic is not None:
            common.intersection_update(dict(member.classic.protocols))
            if not common:
                return False
    return True


def _updated(member: Member, joined: Joined) -> Member:
    join, subscription = joined.join, joined.subscription
    return replace(
        member,
        instance_id=member.instance_id if join.instance_id is None else join.instance_id,
        rack_id=member.rack_id if subscription.rack_id is None else subscription.rack_id,
        rebalance_timeout_ms=join.rebalance_timeout_ms,
        topic_names=subscription.topics,
        regex=NO_REGEX,
        client_id=join.client_id,
        client_host=join.client_host,
        classic=ClassicInfo(join.session_timeout_ms, tuple(join.protocols.items())),
    )


def _is_classic(member: Member) -> bool:
    return member.is_classic
