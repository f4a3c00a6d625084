"""The consumer groups of one shard: the requests for them, and the choice between consumer group and classic group.

A group id has a classic group, a consumer group, or neither. During a conversion from one to the other, requests wait
and are then served by the resulting kind.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence

from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.coordinators.groups.classic.joining import Join
from barnabas.coordinators.groups.classic.membership import Leaving
from barnabas.coordinators.groups.classic.rebalance import Rebalancer
from barnabas.coordinators.groups.consumer import answers
from barnabas.coordinators.groups.consumer.classic import ClassicMembers
from barnabas.coordinators.groups.consumer.consumer_config import ConsumerConfig, GroupOverride
from barnabas.coordinators.groups.consumer.consumer_context import ConsumerContext
from barnabas.coordinators.groups.consumer.consumer_loading import GroupLoading
from barnabas.coordinators.groups.consumer.consumer_records import parse_consumer_key
from barnabas.coordinators.groups.consumer.draft import Draft
from barnabas.coordinators.groups.consumer.group import ConsumerGroup
from barnabas.coordinators.groups.consumer.heartbeat import ConsumerHeartbeat, Heartbeats
from barnabas.coordinators.groups.consumer.member_deadlines import Sessions
from barnabas.coordinators.groups.consumer.migration import Migration
from barnabas.coordinators.groups.consumer.planning import Planner
from barnabas.coordinators.groups.consumer.topic_summaries import Topics
from barnabas.coordinators.groups.consumer.writes import Answer, GroupOperation, Steps
from barnabas.coordinators.groups.shard_context import GroupContext
from barnabas.protocol.messages.consumer_group_describe import ConsumerGroupDescribeResponse
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

#: A callback that gets the committed consumer group, or None if the classic protocol serves the request.
Served = Callable[[ConsumerGroup | None], None]


class ConsumerGroups:
    """The consumer groups of one shard; the module docstring describes the choice between consumer group and classic
    group.
    """

    __slots__ = ("_classic", "_context", "_groups", "_heartbeats", "_loading", "_planner")

    def __init__(
        self,
        groups: GroupContext,
        rebalancer: Rebalancer,
        config: ConsumerConfig,
        topics: Topics,
        override_of: GroupOverride,
    ) -> None:
        self._groups = groups
        sessions = Sessions(groups.deadlines)
        migration = Migration(groups, rebalancer, config, topics, sessions)
        self._context = ConsumerContext(
            groups.host, config, topics, override_of, sessions, groups.consumer_writes, migration.downgrade
        )
        self._planner = migration.planner = Planner(self._context)
        self._heartbeats = Heartbeats(self._context, self._planner, migration.ensure_group)
        self._classic = ClassicMembers(self._context, self._planner)
        self._loading = GroupLoading()

    # -- reading

    def groups(self) -> tuple[ConsumerGroup, ...]:
        """Returns the committed groups, ordered by their ids."""
        slots = self._context.writes.slots
        return tuple(group for _, slot in sorted(slots.items()) if (group := slot.group) is not None)

    def find(self, group_id: str) -> ConsumerGroup | None:
        return self._context.writes.group(group_id)

    def has(self, group_id: str) -> bool:
        """Returns whether the id has a consumer group, or one that is being created or deleted."""
        return group_id in self._context.writes.slots

    def describe(self, group: ConsumerGroup) -> Generator[int, None, ConsumerGroupDescribeResponse.DescribedGroup]:
        """Returns the description of a group, in steps."""
        return answers.described(group, self._planner.assignor_of(group), self._context.topics)

    # -- loading and leaving

    def replay(self, key: bytes, value: bytes) -> bool:
        """Applies a record to the consumer groups. Returns False if it is a record of another kind."""
        parsed = parse_consumer_key(key)
        if parsed is None:
            return False
        self._loading.take(parsed, value)
        return True

    def finish_loading(self) -> Iterator[None]:
        """Builds the groups from the replayed records, in steps."""
        return self._loading.finish(self._context.writes.install)

    def restart_sessions(self, group: ConsumerGroup) -> None:
        self._planner.restart_sessions(group)

    def close(self) -> None:
        self._context.writes.close()
        self._context.sessions.close()

    # -- members of the consumer protocol

    def heartbeat(self, api_version: int, heartbeat: ConsumerHeartbeat) -> None:
        """Serves ConsumerGroupHeartbeat. Raises RequestFailed."""
        group_id = heartbeat.request.group_id
        takes_over = not self.has(group_id) and group_id in self._groups.groups
        self._heartbeats.handle(api_version, heartbeat, after_settled=takes_over)

    # -- members of the classic protocol

    def join(self, join: Join, serve_classic: Callable[[Join], None]) -> None:
        """Serves JoinGroup; calls `serve_classic(join)` if there is no consumer group."""

        def hand_over() -> None:
            try:
                serve_classic(join)
            except RequestFailed as failure:
                join.fail(failure.code)

        def run(draft: Draft) -> Steps:
            if draft.now is None:
                return hand_over
            if not draft.now.members:
                yield from draft.delete()
                draft.is_last = True
                return hand_over
            return (yield from self._classic.join(draft, join))

        self._context.writes.submit(join.group_id, GroupOperation(run, lambda failure: join.fail(failure.code)))

    def sync(
        self, request: SyncGroupRequest, reply: Callable[[SyncGroupResponse], None], serve_classic: Answer
    ) -> None:
        """Serves a classic member's SyncGroup. Raises RequestFailed, itself or from `serve_classic`, if no response was
        sent.
        """

        def serve(group: ConsumerGroup | None) -> None:
            if group is None:
                serve_classic()
            else:
                self._context.writes.answer_in_steps(self._classic.sync(group, request), reply)

        self._read(request.group_id, serve, lambda code: reply(_sync_failed(code)))

    def classic_heartbeat(
        self,
        group_id: str,
        generation: int,
        member_id: str,
        instance_id: str | None,
        reply: Callable[[ErrorCode], None],
        serve_classic: Callable[[], ErrorCode],
    ) -> None:
        """Serves a classic member's Heartbeat. Raises RequestFailed."""

        def serve(group: ConsumerGroup | None) -> None:
            if group is None:
                reply(serve_classic())
            else:
                reply(self._classic.heartbeat(group, generation, member_id, instance_id))

        self._read(group_id, serve, reply)

    def _read(self, group_id: str, serve: Served, fail: Callable[[ErrorCode], None]) -> None:
        """Serves a request from the committed group or, if there is none yet, after the write in flight."""
        group = self.find(group_id)
        if group is not None:
            serve(group)
            return

        def answer() -> None:
            try:
                serve(self.find(group_id))
            except RequestFailed as failure:
                fail(failure.code)

        self._context.writes.submit(group_id, GroupOperation(lambda _: answer, lambda failure: fail(failure.code)))

    def leave(
        self,
        group_id: str,
        leaving: Sequence[Leaving],
        reply: Callable[[Sequence[ErrorCode]], None],
        fail: Callable[[ErrorCode], None],
        serve_classic: Callable[[], Sequence[ErrorCode]],
    ) -> None:
        """Serves LeaveGroup; calls `serve_classic` if there is no consumer group."""

        def hand_over() -> None:
            try:
                codes = serve_classic()
            except RequestFailed as failure:
                fail(failure.code)
            else:
                reply(codes)

        def run(draft: Draft) -> Steps:
            if draft.now is None:
                return hand_over
            codes = yield from self._classic.leave(draft, leaving)
            return lambda: reply(codes)

        self._context.writes.submit(group_id, GroupOperation(run, lambda failure: fail(failure.code)))

    # -- deleting

    def delete(self, group_id: str, take_offsets: Callable[[Draft], None], done: Callable[[ErrorCode], None]) -> None:
        """Deletes a group without members; `take_offsets` adds the tombstones of its offsets to the same batch."""

        def run(draft: Draft) -> Steps:
            if draft.now is None:
                raise RequestFailed(ErrorCode.GROUP_ID_NOT_FOUND)
            if draft.now.members:
                raise RequestFailed(ErrorCode.NON_EMPTY_GROUP)
            take_offsets(draft)
            yield from draft.delete()
            draft.is_last = True
            return lambda: done(ErrorCode.NONE)

        self._context.writes.submit(group_id, GroupOperation(run, lambda failure: done(failure.code)))


def _sync_failed(code: ErrorCode) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=code, protocol_type=None, protocol_name=None, assignment=b"")
