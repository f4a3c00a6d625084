"""Online migration: from a classic group to a consumer group and back, while its members keep working (KIP-848).

`group.consumer.migration.policy` allows or forbids each direction.

    classic -> consumer    when a member of the consumer protocol joins: all members keep their partitions; classic
                           members join again and are served from the consumer group
    consumer -> classic    when the last member of the consumer protocol has left: a rebalance of the classic protocol

Both are one batch: the tombstones of one group and the records of the other. A group without members is deleted instead
of converted. Committed offsets are not touched: they belong to the group id.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from barnabas.common.errors import DecodeError, ErrorCode, RequestFailed
from barnabas.coordinators.groups.classic.group import ClassicGroup, GroupState
from barnabas.coordinators.groups.classic.group import Member as ClassicMember
from barnabas.coordinators.groups.classic.images import generation_record
from barnabas.coordinators.groups.classic.rebalance import Rebalancer
from barnabas.coordinators.groups.consumer.consumer_config import ConsumerConfig
from barnabas.coordinators.groups.consumer.draft import Change, Draft
from barnabas.coordinators.groups.consumer.embedded import (
    embedded_version,
    encode_assignment,
    parse_assignment,
    parse_subscription,
    with_ids,
)
from barnabas.coordinators.groups.consumer.group import ConsumerGroup
from barnabas.coordinators.groups.consumer.member import (
    JOIN_EPOCH,
    Assignment,
    ClassicInfo,
    Member,
    assignment_in_steps,
    partitions_of,
)
from barnabas.coordinators.groups.consumer.member_deadlines import Sessions
from barnabas.coordinators.groups.consumer.planning import Planner
from barnabas.coordinators.groups.consumer.topic_summaries import Topics
from barnabas.coordinators.groups.group_records import group_tombstone
from barnabas.coordinators.groups.offsets import is_removable
from barnabas.coordinators.groups.shard_context import GroupContext
from barnabas.coordinators.groups.subscription import CONSUMER

#: The number of members that are converted in a quarter of a millisecond.
_MEMBERS_PER_UNIT: Final = 10


class Migration:
    """The conversions of one shard's groups. `planner` is set after construction, because both refer to each other."""

    __slots__ = ("_config", "_context", "_rebalancer", "_sessions", "_topics", "planner")

    def __init__(
        self,
        context: GroupContext,
        rebalancer: Rebalancer,
        config: ConsumerConfig,
        topics: Topics,
        sessions: Sessions,
    ) -> None:
        self._context = context
        self._rebalancer = rebalancer
        self._config = config
        self._topics = topics
        self._sessions = sessions
        self.planner: Planner | None = None

    # -- classic to consumer

    def ensure_group(self, draft: Draft, epoch: int) -> Change:
        """Creates a consumer group in the draft if there is none, for a member that joins: a new one, or the converted
        classic group. Raises RequestFailed with GROUP_ID_NOT_FOUND."""
        if draft.now is not None:
            return
        group_id = draft.group_id
        classic = self._context.groups.get(group_id)
        if classic is None:
            if epoch != JOIN_EPOCH:
                raise RequestFailed(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")
            draft.create()
        elif epoch != JOIN_EPOCH:
            raise RequestFailed(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
        elif is_removable(classic):
            draft.records.append(group_tombstone(group_id))
            draft.create()
        else:
            yield from self._upgrade(draft, classic)

    def _upgrade(self, draft: Draft, classic: ClassicGroup) -> Change:
        start = f"Cannot upgrade classic group {classic.group_id} to consumer group because "
        if not self._config.may_upgrade:
            raise RequestFailed(ErrorCode.GROUP_ID_NOT_FOUND, start + "online upgrade is disabled.")
        if not classic.is_consumers or classic.protocol_name is None:
            text = start + "the group does not use the consumer embedded protocol."
            raise RequestFailed(ErrorCode.GROUP_ID_NOT_FOUND, text)
        if len(classic.members) > self._config.group_size_max:
            text = start + "the group size exceeds the consumer group maximum size."
            raise RequestFailed(ErrorCode.GROUP_ID_NOT_FOUND, text)
        try:
            group = yield from self._as_consumer_group(classic, start)
        except DecodeError as error:
            text = start + "the embedded consumer protocol is malformed."
            raise RequestFailed(ErrorCode.GROUP_ID_NOT_FOUND, text) from error
        draft.records.append(group_tombstone(classic.group_id))
        yield from draft.install(group)
        assert self.planner is not None, "the planner is set when the shard is built"
        planner = self.planner
        draft.effects.append(lambda: planner.restart_sessions(group))

    def _as_consumer_group(self, classic: ClassicGroup, start: str) -> Generator[int, None, ConsumerGroup]:
        """Returns the consumer group that corresponds to a classic one. Raises DecodeError, RequestFailed."""
        group = ConsumerGroup(classic.group_id, epoch=classic.generation, assignment_epoch=classic.generation)
        targets: dict[str, Assignment] = {}
        # A rebalance whose time is over can change the classic group between two steps.
        found = [(old, old.assignment) for old in classic.members.values()]
        for count, (old, assignment) in enumerate(found, 1):
            if not count % _MEMBERS_PER_UNIT:
                yield 1
            assigned, has_own_data = yield from parse_assignment(assignment)
            if has_own_data:
                raise RequestFailed(
                    ErrorCode.GROUP_ID_NOT_FOUND,
                    start + "an unsupported custom assignor is in use. Please refer to the documentation or switch to "
                    "a default assignor before re-attempting the upgrade.",
                )
            # A client's assignor can assign a partition to two members: here only the first one gets it.
            placed = yield from with_ids(assigned, self._topics)
            free = [place for place in partitions_of(placed) if place not in group.owners]
            kept = yield from assignment_in_steps(free)
            member = yield from _as_consumer_member(old, classic.protocol_name, group.epoch, kept)
            group = yield from group.with_member(member)
            targets[member.member_id] = member.assigned
        return group.with_targets(group.epoch, targets)

    # -- consumer to classic

    def downgrade(self, draft: Draft, leaving: frozenset[str]) -> Generator[int, None, bool]:
        """Converts the group into a classic one if only classic members remain after those in `leaving` have left.
        Returns whether it was converted."""
        group = draft.group
        left = len(group.members) - len(leaving)
        if not self._config.may_downgrade or not left or not group.all_classic_without(leaving):
            return False
        if left > self._context.config.group_size_max:
            return False
        classic = ClassicGroup(group.group_id, self._context.deadlines, self._context.wall_ms(), GroupState.STABLE)
        classic.generation = group.epoch
        assignments: dict[str, bytes] = {}
        for count, member in enumerate(group.in_order(), 1):
            if not count % _MEMBERS_PER_UNIT:
                yield 1
            if member.member_id not in leaving:
                yield from self._add_classic(classic, member)
                assignments[member.member_id] = classic.members[member.member_id].assignment
        classic.protocol_name = classic.select_protocol()
        classic.update_subscription()
        yield from draft.delete()
        draft.records.append(generation_record(classic, assignments))
        draft.is_last = True
        draft.effects.append(lambda: self._begin_classic(group, classic))
        return True

    def _add_classic(self, classic: ClassicGroup, member: Member) -> Change:
        assert member.classic is not None, "only members of the classic protocol are left"
        protocols = dict(member.classic.protocols)
        try:
            version = embedded_version(next(iter(protocols.values())))
        except DecodeError:
            version = 0
        new = ClassicMember(
            member.member_id,
            self._context.deadlines.new(),
            client_id=member.client_id,
            client_host=member.client_host,
            instance_id=member.instance_id,
            assignment=(yield from encode_assignment(member.assigned, self._topics, version)),
        )
        session_ms = member.classic.session_timeout_ms
        classic.update(new, protocols, rebalance_ms=member.rebalance_timeout_ms, session_ms=session_ms)
        classic.add(new, CONSUMER, None)

    def _begin_classic(self, group: ConsumerGroup, classic: ClassicGroup) -> None:
        for member_id in group.members:
            self._sessions.forget(group.group_id, member_id)
        self._context.groups[classic.group_id] = classic
        classic.hold_in(self._context.held)
        self._rebalancer.restart_sessions(classic)
        if classic.may_rebalance:
            self._rebalancer.prepare(classic, "the last member of the consumer protocol has left")


def _as_consumer_member(
    old: ClassicMember, protocol: str | None, generation: int, assigned: Assignment
) -> Generator[int, None, Member]:
    metadata = old.protocols.get(protocol or "") or next(iter(old.protocols.values()), b"")
    subscription = yield from parse_subscription(metadata)
    return Member(
        member_id=old.member_id,
        instance_id=old.instance_id,
        rack_id=subscription.rack_id,
        client_id=old.client_id,
        client_host=old.client_host,
        topic_names=subscription.topics,
        rebalance_timeout_ms=old.rebalance_timeout_ms,
        classic=ClassicInfo(old.session_timeout_ms, tuple(old.protocols.items())),
        epoch=generation,
        previous_epoch=generation,
        assigned=assigned,
    )
