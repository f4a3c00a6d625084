"""OffsetCommit, OffsetFetch and OffsetDelete in all their versions, on top of the shards' offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.coordinators.gather import Gather
from barnabas.coordinators.groups.consumer.fencing import check_fetch
from barnabas.coordinators.groups.consumer.group import ConsumerGroup
from barnabas.coordinators.groups.group import ClassicGroup, GroupState
from barnabas.coordinators.groups.offsets import Partition
from barnabas.coordinators.groups.records import NO_LEADER_EPOCH, CommittedOffset
from barnabas.coordinators.groups.shard import GroupShard
from barnabas.coordinators.runtime import storing_failed
from barnabas.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from barnabas.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from barnabas.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse

_BATCHED_SINCE = 8
_GROUP_ERROR_SINCE = 2
_NO_OFFSET = -1


class FindShard(Protocol):
    def __call__(self, group_id: str, *, may_be_empty: bool = False) -> GroupShard: ...


class _Fetch(NamedTuple):
    """What is asked of one group; no topics at all means all there are."""

    group_id: str
    topics: Sequence[tuple[str, Sequence[int]]] | None
    #: Of the member that asks, if one does: None and -1 otherwise.
    member_id: str | None = None
    member_epoch: int = -1


class _Fetched(NamedTuple):
    group_id: str
    error: ErrorCode
    topics: Sequence[tuple[str, Sequence[tuple[int, CommittedOffset, ErrorCode]]]]


_ABSENT = CommittedOffset(_NO_OFFSET, NO_LEADER_EPOCH, "", 0)


class OffsetRequests:
    """Serves them for all shards of a broker."""

    __slots__ = ("_exists", "_shard")

    def __init__(self, shard: FindShard, exists: Callable[[str, int], bool]) -> None:
        self._shard = shard
        self._exists = exists

    # -- OffsetCommit

    def commit(
        self, api_version: int, request: OffsetCommitRequest, reply: Callable[[OffsetCommitResponse], None]
    ) -> None:
        """Partitions that are not there, and metadata that is too large, fail alone; other errors are for all."""
        response = _commit_response(request)
        answers: list[OffsetCommitResponse.OffsetCommitResponsePartition] = []
        accepted: list[tuple[str, int, CommittedOffset]] = []

        def answered(code: ErrorCode) -> None:
            for answer in answers:
                answer.error_code = code
            reply(response)

        existing = self._refuse_missing(request, response)
        if not existing:
            reply(response)
            return
        answers = [answer for _, _, answer in existing]
        try:
            shard = self._shard(request.group_id, may_be_empty=True)
            shard.committers.validate(request, api_version)
        except RequestFailed as failure:
            answered(failure.code)
            return
        answers = []
        for topic, asked, answer in existing:
            committed = shard.committers.accept(
                asked.committed_metadata,
                asked.committed_offset,
                asked.committed_leader_epoch,
                request.retention_time_ms,
            )
            if committed is None:
                answer.error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                answers.append(answer)
                accepted.append((topic, asked.partition_index, committed))
        if accepted:
            shard.offsets.commit(request.group_id, accepted, answered)
        else:
            reply(response)

    def _refuse_missing(
        self, request: OffsetCommitRequest, response: OffsetCommitResponse
    ) -> list[
        tuple[
            str,
            OffsetCommitRequest.OffsetCommitRequestPartition,
            OffsetCommitResponse.OffsetCommitResponsePartition,
        ]
    ]:
        existing = []
        for topic, topic_answer in zip(request.topics, response.topics, strict=True):
            for asked, answer in zip(topic.partitions, topic_answer.partitions, strict=True):
                if self._exists(topic.name, asked.partition_index):
                    existing.append((topic.name, asked, answer))
                else:
                    answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return existing

    # -- TxnOffsetCommit

    def commit_in_transaction(
        self, request: TxnOffsetCommitRequest, reply: Callable[[TxnOffsetCommitResponse], None]
    ) -> None:
        """As `commit`."""
        answers: list[TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition] = []
        accepted: list[tuple[str, int, CommittedOffset]] = []
        response = txn_response(request, ErrorCode.NONE)

        def answered(code: ErrorCode) -> None:
            for answer in answers:
                answer.error_code = code
            reply(response)

        try:
            shard = self._shard(request.group_id)
            shard.committers.validate_transactional(request)
        except RequestFailed as failure:
            reply(txn_response(request, failure.code))
            return
        for topic, topic_answer in zip(request.topics, response.topics, strict=True):
            for asked, answer in zip(topic.partitions, topic_answer.partitions, strict=True):
                committed = shard.committers.accept(
                    asked.committed_metadata, asked.committed_offset, asked.committed_leader_epoch, -1
                )
                if not self._exists(topic.name, asked.partition_index):
                    answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                elif committed is None:
                    answer.error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE
                else:
                    answers.append(answer)
                    accepted.append((topic.name, asked.partition_index, committed))
        if accepted:
            shard.offsets.commit_in_transaction(
                request.group_id, request.producer_id, request.producer_epoch, accepted, answered
            )
        else:
            reply(response)

    # -- OffsetFetch

    def fetch(
        self, api_version: int, request: OffsetFetchRequest, reply: Callable[[OffsetFetchResponse], None]
    ) -> None:
        if api_version >= _BATCHED_SINCE:
            fetches = [
                _Fetch(
                    group.group_id,
                    None
                    if group.topics is None
                    else _asked((topic.name, topic.partition_indexes) for topic in group.topics),
                    group.member_id,
                    group.member_epoch,
                )
                for group in request.groups
            ]
        elif request.topics is None:
            fetches = [_Fetch(request.group_id, None)]
        else:
            topics = _asked((topic.name, topic.partition_indexes) for topic in request.topics)
            fetches = [_Fetch(request.group_id, topics)]

        def finish(fetched: Sequence[_Fetched]) -> None:
            if api_version >= _BATCHED_SINCE:
                reply(OffsetFetchResponse(groups=[_fetched_group(one) for one in fetched]))
            else:
                reply(_fetched_alone(fetched[0], fetches[0], api_version))

        gather: Gather[_Fetched] = Gather(len(fetches), finish)
        for index, fetch in enumerate(fetches):
            self._fetch(fetch, request.require_stable, gather.slot(index))

    def _fetch(self, fetch: _Fetch, require_stable: bool, give: Callable[[_Fetched], None]) -> None:
        """A reader that requires stable offsets also waits for commits on their way: it may be their successor."""
        try:
            shard = self._shard(fetch.group_id, may_be_empty=True)
            consumer_group = shard.consumers.find(fetch.group_id)
            if consumer_group is not None:
                check_fetch(consumer_group, fetch.member_id, fetch.member_epoch)
        except RequestFailed as failure:
            give(_Fetched(fetch.group_id, failure.code, ()))
            return
        if require_stable:

            def settled(code: ErrorCode) -> None:
                """A commit that failed here may have been another coordinator's, or may be committed by one yet."""
                if code is ErrorCode.NONE:
                    give(_read(shard, fetch, require_stable=True))
                else:
                    give(_Fetched(fetch.group_id, storing_failed(code), ()))

            shard.log.when_settled(settled)
        else:
            give(_read(shard, fetch, require_stable=False))

    # -- OffsetDelete

    def delete(self, request: OffsetDeleteRequest, reply: Callable[[OffsetDeleteResponse], None]) -> None:
        """A topic that the group consumes keeps its offsets (KIP-496)."""
        try:
            shard = self._shard(request.group_id)
            group: ClassicGroup | ConsumerGroup | None = shard.consumers.find(request.group_id)
            if group is None:
                group = shard.find(request.group_id)
                if group is None:
                    raise RequestFailed(ErrorCode.GROUP_ID_NOT_FOUND)
                if not group.is_in(GroupState.EMPTY) and not group.is_consumers:
                    raise RequestFailed(ErrorCode.NON_EMPTY_GROUP)
        except RequestFailed as failure:
            reply(OffsetDeleteResponse(error_code=failure.code))
            return
        response = OffsetDeleteResponse()
        chosen: list[Partition] = []
        for topic in request.topics:
            subscribed = group.is_subscribed_to(topic.name)
            answers = []
            for asked in topic.partitions:
                code = ErrorCode.NONE
                if not self._exists(topic.name, asked.partition_index):
                    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                elif subscribed:
                    code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
                else:
                    chosen.append((topic.name, asked.partition_index))
                answers.append(
                    OffsetDeleteResponse.OffsetDeleteResponsePartition(
                        partition_index=asked.partition_index, error_code=code
                    )
                )
            response.topics.append(OffsetDeleteResponse.OffsetDeleteResponseTopic(name=topic.name, partitions=answers))
        shard.offsets.delete(request.group_id, chosen, lambda code: reply(_deleted(response, code)))


def _asked(topics: Iterable[tuple[str, Sequence[int]]]) -> Sequence[tuple[str, Sequence[int]]]:
    return list(topics)


def _deleted(response: OffsetDeleteResponse, code: ErrorCode) -> OffsetDeleteResponse:
    return response if code is ErrorCode.NONE else OffsetDeleteResponse(error_code=code)


def txn_response(request: TxnOffsetCommitRequest, code: ErrorCode) -> TxnOffsetCommitResponse:
    """The same code for each partition."""
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=code
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _commit_response(request: OffsetCommitRequest) -> OffsetCommitResponse:
    """An answer for each partition, without errors so far."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponse.OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponse.OffsetCommitResponsePartition(partition_index=partition.partition_index)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _read(shard: GroupShard, fetch: _Fetch, *, require_stable: bool) -> _Fetched:
    try:
        shard.check_serving()
    except RequestFailed as failure:
        return _Fetched(fetch.group_id, failure.code, ())
    offsets = shard.offsets.of(fetch.group_id)
    asked = fetch.topics
    if asked is None:
        by_topic: dict[str, list[int]] = {}
        for topic, partition in offsets:
            by_topic.setdefault(topic, []).append(partition)
        asked = list(by_topic.items())
    topics = []
    for topic, partitions in asked:
        found = []
        for partition in partitions:
            if require_stable and shard.offsets.is_unstable(fetch.group_id, topic, partition):
                found.append((partition, _ABSENT, ErrorCode.UNSTABLE_OFFSET_COMMIT))
            else:
                found.append((partition, offsets.get((topic, partition), _ABSENT), ErrorCode.NONE))
        topics.append((topic, found))
    return _Fetched(fetch.group_id, ErrorCode.NONE, topics)


def _fetched_group(fetched: _Fetched) -> OffsetFetchResponse.OffsetFetchResponseGroup:
    return OffsetFetchResponse.OffsetFetchResponseGroup(
        group_id=fetched.group_id,
        error_code=fetched.error,
        topics=[
            OffsetFetchResponse.OffsetFetchResponseTopics(
                name=name,
                partitions=[
                    OffsetFetchResponse.OffsetFetchResponsePartitions(
                        partition_index=index,
                        committed_offset=committed.offset,
                        committed_leader_epoch=committed.leader_epoch,
                        metadata=committed.metadata,
                        error_code=code,
                    )
                    for index, committed, code in partitions
                ],
            )
            for name, partitions in fetched.topics
        ],
    )


def _fetched_alone(fetched: _Fetched, fetch: _Fetch, api_version: int) -> OffsetFetchResponse:
    """Versions 1-7: one group. Version 1 has no error for the whole, so each partition has it."""
    topics = fetched.topics
    if fetched.error is not ErrorCode.NONE:
        if api_version >= _GROUP_ERROR_SINCE:
            return OffsetFetchResponse(error_code=fetched.error)
        topics = [(name, [(i, _ABSENT, fetched.error) for i in indexes]) for name, indexes in fetch.topics or ()]
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponse.OffsetFetchResponseTopic(
                name=name,
                partitions=[
                    OffsetFetchResponse.OffsetFetchResponsePartition(
                        partition_index=index,
                        committed_offset=committed.offset,
                        committed_leader_epoch=committed.leader_epoch,
                        metadata=committed.metadata,
                        error_code=code,
                    )
                    for index, committed, code in partitions
                ],
            )
            for name, partitions in topics
        ]
    )
