"""What administrators ask of groups of both protocols: to list, describe and delete them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.common.types import TopicPartition
from barnabas.coordinators.gather import Gather
from barnabas.coordinators.groups import replies
from barnabas.coordinators.groups.consumer import answers
from barnabas.coordinators.groups.group import GroupState
from barnabas.coordinators.groups.offset_requests import FindShard
from barnabas.coordinators.groups.shard import GroupShard
from barnabas.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from barnabas.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse


class Administration:
    """For all shards of a broker."""

    __slots__ = ("_shard",)

    def __init__(self, shard: FindShard) -> None:
        self._shard = shard

    def list_groups(self, request: ListGroupsRequest, shards: Iterable[GroupShard]) -> ListGroupsResponse:
        """Filters are taken without regard to case. A shard that is not loaded yet makes the whole answer fail."""
        states = {state.strip().lower() for state in request.states_filter}
        types = {kind.strip().lower() for kind in request.types_filter}
        response = ListGroupsResponse()
        try:
            for shard in shards:
                self._list_shard(shard, states, types, response.groups)
        except RequestFailed as failure:
            return ListGroupsResponse(error_code=failure.code)
        return response

    @staticmethod
    def _list_shard(
        shard: GroupShard, states: set[str], types: set[str], out: list[ListGroupsResponse.ListedGroup]
    ) -> None:
        try:
            shard.check_serving()
        except RequestFailed as failure:
            if failure.code is ErrorCode.NOT_COORDINATOR:
                return
            raise
        found = [replies.listed(group) for group in shard.groups()]
        found += [answers.listed(group) for group in shard.consumers.groups()]
        for listed in found:
            if (not states or listed.group_state.lower() in states) and (not types or listed.group_type in types):
                out.append(listed)

    def describe_groups(self, api_version: int, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
        return DescribeGroupsResponse(groups=[self._describe(one, api_version) for one in request.groups])

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

    def describe_consumers(self, request: ConsumerGroupDescribeRequest) -> ConsumerGroupDescribeResponse:
        return ConsumerGroupDescribeResponse(groups=[self._describe_consumers(one) for one in request.group_ids])

    def _describe_consumers(self, group_id: str) -> ConsumerGroupDescribeResponse.DescribedGroup:
        try:
            shard = self._shard(group_id)
        except RequestFailed as failure:
            return answers.describe_failed(group_id, failure.code)
        group = shard.consumers.find(group_id)
        if group is not None:
            return shard.consumers.describe(group)
        what = "not found" if shard.find(group_id) is None else "is not a consumer group"
        return answers.describe_failed(group_id, ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {what}.")

    def delete_groups(self, request: DeleteGroupsRequest, reply: Callable[[DeleteGroupsResponse], None]) -> None:
        group_ids = list(dict.fromkeys(request.groups_names))
        codes: dict[str, ErrorCode] = {}
        by_shard: dict[TopicPartition, tuple[GroupShard, list[str]]] = {}
        for group_id in group_ids:
            try:
                shard = self._deletable(group_id)
            except RequestFailed as failure:
                codes[group_id] = failure.code
            else:
                by_shard.setdefault(shard.partition, (shard, []))[1].append(group_id)

        def finish(_: Sequence[ErrorCode]) -> None:
            results = [
                DeleteGroupsResponse.DeletableGroupResult(group_id=group_id, error_code=codes[group_id])
                for group_id in group_ids
            ]
            reply(DeleteGroupsResponse(results=results))

        gather: Gather[ErrorCode] = Gather(len(by_shard), finish)
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
