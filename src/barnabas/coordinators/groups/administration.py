"""The admin requests of both group protocols: ListGroups, DescribeGroups, ConsumerGroupDescribe and DeleteGroups."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Final

from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.common.host import Timers
from barnabas.common.types import TopicPartition
from barnabas.coordinators.gather import Gather
from barnabas.coordinators.groups.classic import replies
from barnabas.coordinators.groups.classic.group import ClassicGroup, GroupState
from barnabas.coordinators.groups.consumer import answers
from barnabas.coordinators.groups.consumer.group import ConsumerGroup
from barnabas.coordinators.groups.offset_requests import FindShard
from barnabas.coordinators.groups.shard import GroupShard
from barnabas.coordinators.steps import ROWS, by_weight, in_steps, pauses
from barnabas.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from barnabas.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse

#: A group with more members than this takes a turn of the loop for its description.
_MEMBERS: Final = 200


class Administration:
    """The admin requests for all shards of a broker."""

    __slots__ = ("_shard", "_timers")

    def __init__(self, shard: FindShard, timers: Timers) -> None:
        self._shard = shard
        self._timers = timers

    def list_groups(
        self, request: ListGroupsRequest, shards: Iterable[GroupShard], reply: Callable[[ListGroupsResponse], None]
    ) -> None:
        """Lists groups; filters ignore case. The whole request fails if a shard is still loading."""
        in_steps(self._timers, self._list_groups(request, shards, reply))

    def _list_groups(
        self, request: ListGroupsRequest, shards: Iterable[GroupShard], reply: Callable[[ListGroupsResponse], None]
    ) -> Iterator[None]:
        states = {state.strip().lower() for state in request.states_filter}
        types = {kind.strip().lower() for kind in request.types_filter}
        response = ListGroupsResponse()
        count = 0
        try:
            for shard in shards:
                for group in self._groups_of(shard):
                    count += 1
                    if not count % ROWS:
                        yield
                    listed = replies.listed(group) if isinstance(group, ClassicGroup) else answers.listed(group)
                    is_wanted = not states or listed.group_state.lower() in states
                    if is_wanted and (not types or listed.group_type in types):
                        response.groups.append(listed)
        except RequestFailed as failure:
            reply(ListGroupsResponse(error_code=failure.code))
        else:
            reply(response)

    @staticmethod
    def _groups_of(shard: GroupShard) -> tuple[ClassicGroup | ConsumerGroup, ...]:
        try:
            shard.check_serving()
        except RequestFailed as failure:
            if failure.code is ErrorCode.NOT_COORDINATOR:
                return ()
            raise
        return (*shard.groups(), *shard.consumers.groups())

    def describe_groups(
        self, api_version: int, request: DescribeGroupsRequest, reply: Callable[[DescribeGroupsResponse], None]
    ) -> None:
        """Describes classic groups, each once even if the request repeats it."""

        def work() -> Iterator[None]:
            response = DescribeGroupsResponse()
            for index, group_ids in enumerate(by_weight(tuple(dict.fromkeys(request.groups)))):
                if index:
                    yield
                for group_id in group_ids:
                    described = self._describe(group_id, api_version)
                    response.groups.append(described)
                    if len(described.members) > _MEMBERS:
                        yield
            reply(response)

        in_steps(self._timers, work())

    def _describe(self, group_id: str, api_version: int) -> DescribeGroupsResponse.DescribedGroup:
        try:
            shard = self._shard(group_id, may_be_empty=True)
        except RequestFailed as failure:
            return replies.describe_failed(group_id, failure.code)
        if shard.consumers.find(group_id) is not None:
            return replies.describe_missing(group_id, api_version, f"Group {group_id} is not a classic group.")
        group = shard.find(group_id)
        if group is None:
            return replies.describe_missing(group_id, api_version, f"Group {group_id} not found.")
        return replies.described(group)

    def describe_consumers(
        self, request: ConsumerGroupDescribeRequest, reply: Callable[[ConsumerGroupDescribeResponse], None]
    ) -> None:
        """Describes consumer groups, each once even if the request repeats it."""

        def work() -> Iterator[None]:
            response = ConsumerGroupDescribeResponse()
            for index, group_ids in enumerate(by_weight(tuple(dict.fromkeys(request.group_ids)))):
                if index:
                    yield
                for group_id in group_ids:
                    described = yield from self._describe_consumers(group_id)
                    response.groups.append(described)
                    if len(described.members) > _MEMBERS:
                        yield
            reply(response)

        in_steps(self._timers, work())

    def _describe_consumers(self, group_id: str) -> Generator[None, None, ConsumerGroupDescribeResponse.DescribedGroup]:
        try:
            shard = self._shard(group_id)
        except RequestFailed as failure:
            return answers.describe_failed(group_id, failure.code)
        group = shard.consumers.find(group_id)
        if group is not None:
            return (yield from pauses(shard.consumers.describe(group)))
        what = "not found" if shard.find(group_id) is None else "is not a consumer group"
        return answers.describe_failed(group_id, ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {what}.")

    def delete_groups(self, request: DeleteGroupsRequest, reply: Callable[[DeleteGroupsResponse], None]) -> None:
        in_steps(self._timers, self._delete_groups(tuple(dict.fromkeys(request.groups_names)), reply))

    def _delete_groups(self, group_ids: Sequence[str], reply: Callable[[DeleteGroupsResponse], None]) -> Iterator[None]:
        codes: dict[str, ErrorCode] = {}
        batches: list[Sequence[str]] = list(by_weight(group_ids))

        def finish(_: Sequence[ErrorCode]) -> None:
            results = [
                DeleteGroupsResponse.DeletableGroupResult(group_id=group_id, error_code=codes[group_id])
                for group_id in group_ids
            ]
            reply(DeleteGroupsResponse(results=results))

        gather: Gather[ErrorCode] = Gather(len(batches), finish)
        for index, batch in enumerate(batches):
            if index:
                yield
            self._delete_some(batch, codes, gather.slot(index))

    def _delete_some(
        self, group_ids: Sequence[str], codes: dict[str, ErrorCode], slot: Callable[[ErrorCode], None]
    ) -> None:
        by_shard: dict[TopicPartition, tuple[GroupShard, list[str]]] = {}
        for group_id in group_ids:
            try:
                shard = self._deletable(group_id)
            except RequestFailed as failure:
                codes[group_id] = failure.code
            else:
                by_shard.setdefault(shard.partition, (shard, []))[1].append(group_id)
        gather: Gather[ErrorCode] = Gather(len(by_shard), lambda _: slot(ErrorCode.NONE))
        for index, (shard, chosen) in enumerate(by_shard.values()):
            self._delete_in(shard, chosen, codes, gather.slot(index))

    @staticmethod
    def _delete_in(
        shard: GroupShard, group_ids: list[str], codes: dict[str, ErrorCode], slot: Callable[[ErrorCode], None]
    ) -> None:
        def answered(found: Mapping[str, ErrorCode]) -> None:
            codes.update(found)
            slot(ErrorCode.NONE)

        shard.delete_groups(group_ids, answered)

    def _deletable(self, group_id: str) -> GroupShard:
        shard = self._shard(group_id, may_be_empty=True)
        consumer_group, group = shard.consumers.find(group_id), shard.find(group_id)
        if consumer_group is None and group is None:
            raise RequestFailed(ErrorCode.GROUP_ID_NOT_FOUND)
        if consumer_group is not None and consumer_group.members:
            raise RequestFailed(ErrorCode.NON_EMPTY_GROUP)
        if group is not None and not group.is_in(GroupState.EMPTY):
            raise RequestFailed(ErrorCode.NON_EMPTY_GROUP)
        return shard
