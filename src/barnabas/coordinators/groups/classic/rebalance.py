"""The rebalances of classic groups: from one generation to the next, and the removal of members.

    any change of membership   -> PreparingRebalance: all members must join again
    all members have joined, or the rebalance timeout is over (dynamic members that have not joined are removed)
                               -> CompletingRebalance, generation + 1; all joins are answered, the leader's with the
                                  list of members
    the leader's assignment is committed to the log
                               -> Stable; each member gets its part
    no members are left        -> Empty

The first rebalance of an empty group waits `group.initial.rebalance.delay.ms`, and again while new members keep
joining, up to the rebalance timeout. A member is removed when its session expires. Members that join but never request
their assignment are removed after the rebalance timeout (KAFKA-9752).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from barnabas.common.errors import ErrorCode
from barnabas.common.host import Timers
from barnabas.coordinators.groups.classic import replies
from barnabas.coordinators.groups.classic.group import (
    UNKNOWN_MEMBER,
    ClassicGroup,
    GroupState,
    JoinReply,
    Member,
    SyncReply,
)
from barnabas.coordinators.groups.classic.images import generation_record
from barnabas.coordinators.groups.shard_context import GroupContext
from barnabas.coordinators.runtime import client_error
from barnabas.coordinators.steps import in_steps, parts
from barnabas.protocol.messages.sync_group import SyncGroupResponse

_EMPTY = GroupState.EMPTY
_PREPARING = GroupState.PREPARING_REBALANCE
_COMPLETING = GroupState.COMPLETING_REBALANCE
_STABLE = GroupState.STABLE
_DEAD = GroupState.DEAD
#: The number of members whose requests are answered in one turn of the loop.
_ANSWERS: Final = 200


class Rebalancer:
    """The rebalances and sessions of one shard's classic groups."""

    __slots__ = ("_context",)

    def __init__(self, context: GroupContext) -> None:
        self._context = context

    # -- sessions

    def extend_session(self, group: ClassicGroup, member: Member) -> None:
        """Extends the member's session after a sign of life."""
        self.schedule_session(group, member, member.session_timeout_ms)

    def schedule_session(self, group: ClassicGroup, member: Member, timeout_ms: int) -> None:
        member.session.schedule(timeout_ms, lambda: self._on_session_expired(group, member))

    def schedule_pending(self, group: ClassicGroup, member_id: str, timeout_ms: int) -> None:
        """Starts the time limit within which a client must join with the member id that it was given."""
        deadline = group.pending_joins[member_id] = self._context.deadlines.new()
        deadline.schedule(timeout_ms, lambda: self.drop_pending(group, member_id))

    def drop_pending(self, group: ClassicGroup, member_id: str) -> None:
        """Removes a member id that no client has joined with, and completes the join phase if only that was missing."""
        group.forget_pending(member_id)
        self.maybe_complete_join(group)

    def _on_session_expired(self, group: ClassicGroup, member: Member) -> None:
        if group.is_in(_DEAD) or group.members.get(member.member_id) is not member or member.keeps_alive:
            return
        self.remove(group, member)
        self.after_removal(
            group, f"the session of member {member.member_id} expired after {member.session_timeout_ms} ms"
        )

    # -- leaving

    def remove(self, group: ClassicGroup, member: Member) -> None:
        """Removes a member. Its parked requests are answered with UNKNOWN_MEMBER_ID, after which a live client joins
        as a new member."""
        self.dismiss(group, member, ErrorCode.UNKNOWN_MEMBER_ID, UNKNOWN_MEMBER)
        group.remove(member.member_id)

    def dismiss(self, group: ClassicGroup, member: Member, code: ErrorCode, member_id: str) -> None:
        """Answers the member's parked requests with an error."""
        group.complete_join(member, replies.join_failed(code, member_id))
        member.complete_sync(replies.sync_failed(code))

    def after_removal(self, group: ClassicGroup, reason: str) -> None:
        """Starts a rebalance after a removal, or completes the current one if it waited only for the removed
        members."""
        if group.is_in(_STABLE, _COMPLETING):
            self.prepare(group, reason)
        else:
            self.maybe_complete_join(group)

    # -- joining

    def prepare_or_complete(self, group: ClassicGroup, reason: str) -> None:
        """Starts a rebalance after a join, or continues the current one."""
        if group.may_rebalance:
            self.prepare(group, reason)
        else:
            self.maybe_complete_join(group)

    def prepare(self, group: ClassicGroup, reason: str) -> None:
        """Starts a rebalance: all members must join again."""
        if group.is_in(_COMPLETING):
            self._drop_assignment(group, ErrorCode.REBALANCE_IN_PROGRESS)
        group.sync_deadline.cancel()
        group.rebalance_reason = reason
        initial = group.is_in(_EMPTY)
        group.become(_PREPARING, self._context.wall_ms())
        if initial:
            delay_ms = self._context.config.initial_rebalance_delay_ms
            left_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            group.join_deadline.schedule(delay_ms, lambda: self._on_initial_delay(group, delay_ms, left_ms))
        elif group.all_joined:
            self._complete_join(group)
        else:
            self._await_joins(group)

    def maybe_complete_join(self, group: ClassicGroup) -> None:
        """Completes the join phase if all members have joined. The initial delay is never shortened, since more
        members can arrive."""
        if group.is_in(_PREPARING) and group.all_joined and group.previous_state is not _EMPTY:
            self._complete_join(group)

    def _await_joins(self, group: ClassicGroup) -> None:
        group.join_deadline.schedule(group.rebalance_timeout_ms, lambda: self._complete_join(group))

    def _on_initial_delay(self, group: ClassicGroup, delay_ms: int, left_ms: int) -> None:
        if not (group.new_member_added and left_ms):
            self._complete_join(group)
            return
        group.new_member_added = False
        next_ms = min(self._context.config.initial_rebalance_delay_ms, left_ms)
        next_left_ms = max(left_ms - delay_ms, 0)
        group.join_deadline.schedule(next_ms, lambda: self._on_initial_delay(group, next_ms, next_left_ms))

    def _complete_join(self, group: ClassicGroup) -> None:
        """Ends the join phase: dynamic members that have not joined are removed, static ones are kept."""
        if not group.is_in(_PREPARING):
            return
        group.join_deadline.cancel()
        for member in group.not_rejoined():
            if not member.is_static:
                self.remove(group, member)
        if not group.elect_joined_leader() and group.members:
            # Only static members are left, and none has joined; they stay until their sessions expire.
            self._await_joins(group)
            return
        group.new_member_added = False
        group.begin_generation(self._context.wall_ms())
        if group.is_in(_EMPTY):
            # If this record is lost, the members of the last generation are restored by a load and time out again.
            self._context.log.append([generation_record(group, {})], lambda _: None)
            return
        self._answer_joins(group)
        generation = group.generation
        group.sync_deadline.schedule(group.rebalance_timeout_ms, lambda: self._on_sync_expired(group, generation))

    def _answer_joins(self, group: ClassicGroup) -> None:
        """Answers the parked joins with the new generation: the first ones immediately, those of a large group in
        parts, one in each turn of the loop. The responses reflect the state now."""
        joined = replies.Joined(group)
        waiting: list[tuple[Member, JoinReply | None]] = []
        for member in group.members.values():
            group.pending_syncs[member.member_id] = None
            waiting.append((member, group.take_join(member)))
            member.is_new = False

        def answer() -> Iterator[None]:
            for part in parts(waiting, _ANSWERS):
                for member, reply in part:
                    if reply is not None:
                        reply(joined.response(member))
                    self._extend_if_member(group, member)
                if part[-1] is not waiting[-1]:
                    yield

        in_steps(self._context.host.timers, answer())

    def _extend_if_member(self, group: ClassicGroup, member: Member) -> None:
        if not group.is_in(_DEAD) and group.members.get(member.member_id) is member:
            self.extend_session(group, member)

    def _answer_syncs(self, group: ClassicGroup, response: Callable[[Member], SyncGroupResponse]) -> None:
        """Answers the parked SyncGroup requests, in parts like `_answer_joins`."""
        waiting = [(member, reply) for member in group.members.values() if (reply := member.take_sync()) is not None]

        def answer() -> Iterator[None]:
            for part in parts([(reply, member, response(member)) for member, reply in waiting], _ANSWERS):
                for reply, member, made in part:
                    reply(made)
                    self._extend_if_member(group, member)
                if part and part[-1][1] is not waiting[-1][0]:
                    yield

        in_steps(self._context.host.timers, answer())

    # -- assignments

    def synced(self, group: ClassicGroup, member: Member) -> None:
        """Records that a member has requested its assignment by SyncGroup."""
        group.pending_syncs.pop(member.member_id, None)
        if not group.pending_syncs:
            group.sync_deadline.cancel()

    def _on_sync_expired(self, group: ClassicGroup, generation: int) -> None:
        if generation != group.generation or not group.is_in(_COMPLETING, _STABLE) or not group.pending_syncs:
            return
        missing = tuple(group.pending_syncs)
        for member_id in missing:
            self.remove(group, group.members[member_id])
        self.prepare(group, f"{len(missing)} members never requested their assignment")

    def store_assignment(self, group: ClassicGroup, assignment: Mapping[str, bytes]) -> None:
        """Writes the leader's assignment; it takes effect when it is committed."""
        generation = group.generation
        record = generation_record(group, assignment)
        self._context.log.append([record], lambda code: self._on_stored(group, generation, assignment, code))

    def _on_stored(
        self, group: ClassicGroup, generation: int, assignment: Mapping[str, bytes], code: ErrorCode
    ) -> None:
        if not group.is_in(_COMPLETING) or group.generation != generation:
            return  # the next rebalance has begun
        if code is not ErrorCode.NONE:
            self._drop_assignment(group, client_error(code))
            self.prepare(group, f"the assignment could not be stored: {code.name}")
            return
        for member in group.members.values():
            member.assignment = assignment.get(member.member_id, b"")
        group.become(_STABLE, self._context.wall_ms())
        self._answer_syncs(group, lambda member: replies.synced(group, member))

    def _drop_assignment(self, group: ClassicGroup, code: ErrorCode) -> None:
        for member in group.members.values():
            member.assignment = b""
        self._answer_syncs(group, lambda _: replies.sync_failed(code))

    # -- the end

    def end_group(self, group: ClassicGroup, code: ErrorCode) -> None:
        """Ends a group that was deleted, or is coordinated elsewhere from now on."""
        if group.is_in(_DEAD):
            return
        _dismiss_all(self._context.host.timers, group, code)
        for deadline in group.pending_joins.values():
            deadline.cancel()
        group.join_deadline.cancel()
        group.sync_deadline.cancel()
        group.release()
        group.become(_DEAD, self._context.wall_ms())

    def restart_sessions(self, group: ClassicGroup) -> None:
        """Starts the sessions of all members after a load."""
        if group.is_in(_DEAD):
            return
        for member in tuple(group.members.values()):
            self.extend_session(group, member)
        if len(group.members) > self._context.config.group_size_max:
            self.prepare(group, f"{len(group.members)} members are more than group.max.size")


def _dismiss_all(timers: Timers, group: ClassicGroup, code: ErrorCode) -> None:
    """Answers all parked requests with an error, in parts, one in each turn of the loop."""
    waiting: list[tuple[Member, JoinReply | None, SyncReply | None]] = []
    for member in group.members.values():
        member.session.cancel()
        if member.is_waiting:
            waiting.append((member, group.take_join(member), member.take_sync()))

    def answer() -> Iterator[None]:
        for part in parts(waiting, _ANSWERS):
            for member, join_reply, sync_reply in part:
                if join_reply is not None:
                    join_reply(replies.join_failed(code, member.member_id))
                if sync_reply is not None:
                    sync_reply(replies.sync_failed(code))
            if part and part[-1] is not waiting[-1]:
                yield

    in_steps(timers, answer())
