"""ConsumerGroupHeartbeat: a member joins, stays, releases partitions and leaves with the same request.

    epoch 0     join, or join again after being fenced  -> a member at the newest epoch that it can have
    epoch > 0   a sign of life, with changed fields     -> its next step, if there is one
    epoch -1    leave
    epoch -2    leave temporarily: the instance keeps its partitions until its session expires (KIP-345)

A heartbeat that changes nothing is answered from the committed group, without waiting for writes in flight.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable, Generator
from dataclasses import replace
from typing import NamedTuple

from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.coordinators.groups.consumer.consumer_context import ConsumerContext
from barnabas.coordinators.groups.consumer.consumer_records import FEW_TOPICS, topic_rows, topic_rows_in_steps
from barnabas.coordinators.groups.consumer.draft import Change, Draft
from barnabas.coordinators.groups.consumer.group import ConsumerGroup
from barnabas.coordinators.groups.consumer.member import (
    JOIN_EPOCH,
    NOTHING,
    STATIC_LEAVE_EPOCH,
    Assignment,
    Member,
    is_within,
)
from barnabas.coordinators.groups.consumer.planning import Planner
from barnabas.coordinators.groups.consumer.regex import Describable
from barnabas.coordinators.groups.consumer.requests import check_heartbeat, is_full, is_leaving, is_plain, owned_of
from barnabas.coordinators.groups.consumer.writes import GroupOperation, Steps
from barnabas.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

Reply = Callable[[ConsumerGroupHeartbeatResponse], None]


class ConsumerHeartbeat(NamedTuple):
    """A ConsumerGroupHeartbeat request and the properties of its client."""

    request: ConsumerGroupHeartbeatRequest
    client_id: str
    client_host: str
    reply: Reply
    #: The filter of what a regular expression matches; None lets all topics through.
    describable: Describable | None = None

    def fail(self, failure: RequestFailed) -> None:
        self.reply(ConsumerGroupHeartbeatResponse(error_code=failure.code, error_message=failure.message))


class Heartbeats:
    """The heartbeats of one shard. `ensure_group(draft, epoch)` creates a consumer group in the draft if there is
    none.
    """

    __slots__ = ("_context", "_ensure_group", "_planner")

    def __init__(
        self, context: ConsumerContext, planner: Planner, ensure_group: Callable[[Draft, int], Change]
    ) -> None:
        self._context = context
        self._planner = planner
        self._ensure_group = ensure_group

    def handle(self, api_version: int, heartbeat: ConsumerHeartbeat, *, after_settled: bool) -> None:
        """Answers a heartbeat, immediately or when its changes are committed. Raises RequestFailed, for example with
        INVALID_REQUEST."""
        request = heartbeat.request
        check_heartbeat(request, api_version, self._context.config.assignors)
        if self._answer_immediately(heartbeat):
            return
        run = self._leave if is_leaving(request) else self._join_or_renew
        operation = GroupOperation(lambda draft: run(draft, heartbeat), heartbeat.fail)
        self._context.writes.submit(request.group_id, operation, after_settled=after_settled)

    def _answer_immediately(self, heartbeat: ConsumerHeartbeat) -> bool:
        """Answers a heartbeat without changes from a member that has its target assignment; returns False for any other
        heartbeat."""
        request = heartbeat.request
        group = self._context.writes.group(request.group_id)
        if group is None or not is_plain(request):
            return False
        member = group.members.get(request.member_id)
        if (
            member is None
            or member.epoch != request.member_epoch
            or not member.is_reconciled_to(group.epoch)
            or group.epoch != group.assignment_epoch
            or member.instance_id != request.instance_id
            or request.rack_id not in (None, member.rack_id)
            or member.client_id != heartbeat.client_id
            or member.client_host != heartbeat.client_host
            or member.is_classic
            or self._planner.needs_refresh(group)
        ):
            return False
        self._planner.extend_session(group.group_id, member)
        heartbeat.reply(self._response(group, member))
        return True

    # -- joining and renewing

    def _join_or_renew(self, draft: Draft, heartbeat: ConsumerHeartbeat) -> Steps:
        request = heartbeat.request
        if draft.now is None:
            yield from self._ensure_group(draft, request.member_epoch)
        self._check_capacity(draft.group, request.member_id)
        member_id = request.member_id or _new_id(self._context.host.random.uuid())
        rows = request.topic_partitions
        owned: Assignment | None = None
        if rows is not None:
            owned = (yield from owned_of(rows)) if rows else NOTHING
        if request.instance_id is not None:
            known = yield from self._find_static(draft, request, member_id, owned)
        else:
            known = _find(draft.group, request, member_id, owned)
        before = known or Member(member_id)
        updated = _updated(before, heartbeat)
        changed = False
        if known is None or not before.same_subscription_record(updated) or self._planner.needs_refresh(draft.group):
            changed = yield from self._planner.subscribe(draft, known, updated, heartbeat.describable)
        if draft.group.needs_target:
            yield from self._planner.make_target(draft)
        if known is None or _is_new(request):
            owned = NOTHING if owned is None else owned
        member = yield from self._planner.advance(draft, updated, owned, subscription_changed=changed)
        with_assignment = _is_new(request) or is_full(request) or member.assigned != before.assigned
        group = draft.group

        def committed() -> None:
            self._planner.extend_session(group.group_id, member)

        draft.effects.append(committed)
        response = self._response(group, member)
        if with_assignment:
            assigned = member.assigned
            is_long = len(assigned) > FEW_TOPICS
            topics = (yield from topic_rows_in_steps(_row, assigned)) if is_long else topic_rows(_row, assigned)
            response.assignment = ConsumerGroupHeartbeatResponse.Assignment(topic_partitions=topics)
        return lambda: heartbeat.reply(response)

    def _check_capacity(self, group: ConsumerGroup, member_id: str) -> None:
        size_max = self._context.config.group_size_max
        if len(group.members) >= size_max and member_id not in group.members:
            raise RequestFailed(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {size_max} members.",
            )

    def _find_static(
        self, draft: Draft, request: ConsumerGroupHeartbeatRequest, member_id: str, owned: Assignment | None
    ) -> Generator[int, None, Member | None]:
        instance_id = request.instance_id
        existing = draft.group.static_member(instance_id)
        if not _is_new(request):
            existing = check_instance(existing, member_id, instance_id)
            _check_epoch(existing, request.member_epoch, owned)
            return existing
        if existing is None:
            return draft.group.members.get(member_id)
        if existing.member_id == member_id and existing.epoch != STATIC_LEAVE_EPOCH:
            return existing
        if existing.epoch != STATIC_LEAVE_EPOCH and not existing.is_classic:
            raise RequestFailed(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance "
                f"id is owned by {existing.member_id} member.",
            )
        return (yield from replace_static(self._context, draft, existing, member_id))

    # -- leaving

    def _leave(self, draft: Draft, heartbeat: ConsumerHeartbeat) -> Steps:
        request = heartbeat.request
        yield from self._ensure_group(draft, request.member_epoch)
        group = draft.group
        if request.instance_id is None:
            member = group.member(request.member_id)
        else:
            found = group.static_member(request.instance_id)
            member = check_instance(found, request.member_id, request.instance_id)
        if request.member_epoch == STATIC_LEAVE_EPOCH:
            yield from draft.put_member(replace(member, epoch=STATIC_LEAVE_EPOCH, revoking=NOTHING))
        else:
            yield from self._planner.remove(draft, frozenset({member.member_id}))
        response = ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
        return lambda: heartbeat.reply(response)

    def _response(self, group: ConsumerGroup, member: Member) -> ConsumerGroupHeartbeatResponse:
        return ConsumerGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self._context.heartbeat_interval_ms(group.group_id),
        )


def _find(
    group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, member_id: str, owned: Assignment | None
) -> Member | None:
    """Returns the dynamic member that sent the request; None if it is new."""
    if _is_new(request):
        return group.members.get(member_id)
    member = group.member(member_id)
    _check_epoch(member, request.member_epoch, owned)
    return member


def replace_static(context: ConsumerContext, draft: Draft, old: Member, member_id: str) -> Generator[int, None, Member]:
    """Replaces a static member that joins with another member id; the new one gets its subscription and partitions."""
    new = replace(old, member_id=member_id, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)
    target = draft.group.target(old.member_id)
    yield from draft.remove_member(old.member_id)
    yield from draft.put_member(new)
    yield from draft.put_target(member_id, target)
    if member_id != old.member_id:
        draft.effects.append(lambda: context.sessions.forget(draft.group_id, old.member_id))
    return new


def check_instance(existing: Member | None, member_id: str, instance_id: str | None) -> Member:
    """Returns the static member. Raises RequestFailed unless the instance is known with this member id."""
    if existing is None:
        raise RequestFailed(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if existing.member_id != member_id:
        raise RequestFailed(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {existing.member_id}.",
        )
    return existing


def _check_epoch(member: Member, epoch: int, owned: Assignment | None) -> None:
    """Raises RequestFailed for a wrong epoch. A member at its previous epoch is accepted if it reports no partition
    beyond its assignment: the response may have been lost."""
    if epoch > member.epoch:
        relation = "greater"
    elif epoch < member.epoch and (
        epoch != member.previous_epoch or owned is None or not is_within(owned, member.assigned)
    ):
        relation = "smaller"
    else:
        return
    raise RequestFailed(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {relation} member epoch ({epoch}) than the one known by the group "
        f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
    )


def _updated(member: Member, heartbeat: ConsumerHeartbeat) -> Member:
    """Returns the member with the fields of the request; missing ones are unchanged. The member uses the consumer
    protocol from now on."""
    request = heartbeat.request
    names = request.subscribed_topic_names
    regex = request.subscribed_topic_regex
    return replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=(
            member.rebalance_timeout_ms if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms
        ),
        server_assignor=member.server_assignor if request.server_assignor is None else request.server_assignor,
        topic_names=member.topic_names if names is None else frozenset(names),
        regex=member.regex if regex is None else regex,
        client_id=heartbeat.client_id,
        client_host=heartbeat.client_host,
        classic=None,
    )


def _is_new(request: ConsumerGroupHeartbeatRequest) -> bool:
    return request.member_epoch == JOIN_EPOCH


def _new_id(random: bytes) -> str:
    """Returns a member id in the form of Kafka's ids."""
    return urlsafe_b64encode(random).decode().rstrip("=")


def _row(topic_id: bytes, partitions: list[int]) -> ConsumerGroupHeartbeatResponse.TopicPartitions:
    return ConsumerGroupHeartbeatResponse.TopicPartitions(topic_id=topic_id, partitions=partitions)
