"""OffsetCommit, OffsetFetch, OffsetDelete and TxnOffsetCommit in all their versions, on top of the shards' offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from barnabas.common import effort
from barnabas.common.effort import COUNTED_ROWS, Work
from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.common.host import Timers
from barnabas.coordinators.gather import Gather
from barnabas.coordinators.groups.classic.group import ClassicGroup, GroupState
from barnabas.coordinators.groups.commit_draft import CommitDraft
from barnabas.coordinators.groups.consumer.fencing import check_fetch
from barnabas.coordinators.groups.consumer.group import ConsumerGroup
from barnabas.coordinators.groups.group_records import NO_LEADER_EPOCH, CommittedOffset
from barnabas.coordinators.groups.offsets import Partition
from barnabas.coordinators.groups.shard import GroupShard
from barnabas.coordinators.runtime import client_error
from barnabas.coordinators.steps import ROWS, in_steps, parts
from barnabas.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from barnabas.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from barnabas.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse

_BATCHED_SINCE = 8
_GROUP_ERROR_SINCE = 2
_NO_OFFSET = -1
#: The number of groups processed in one step.
_GROUPS = 200


class FindShard(Protocol):
    """A function that finds the shard of a group and raises RequestFailed if there is none."""

    def __call__(self, group_id: str, *, may_be_empty: bool = False) -> GroupShard: ...


class _Fetch(NamedTuple):
    """The part of an OffsetFetch request for one group; `topics` is None for all topics."""

    group_id: str
    topics: Sequence[tuple[str, Sequence[int]]] | None
    #: The requesting member; None and -1 if the request names none.
    member_id: str | None = None
    member_epoch: int = -1


class _Fetched(NamedTuple):
    group_id: str
    error: ErrorCode
    topics: Sequence[tuple[str, Sequence[tuple[int, CommittedOffset, ErrorCode]]]]


_ABSENT = CommittedOffset(_NO_OFFSET, NO_LEADER_EPOCH, "", 0)


class OffsetRequests:
    """The offset requests for all shards of a broker."""

    __slots__ = ("_exists", "_shard", "_timers")

    def __init__(self, shard: FindShard, exists: Callable[[str, int], bool], timers: Timers) -> None:
        self._shard = shard
        self._exists = exists
        self._timers = timers

    # -- OffsetCommit

    def commit(
        self, api_version: int, request: OffsetCommitRequest, reply: Callable[[OffsetCommitResponse], None]
    ) -> None:
        """Serves OffsetCommit. A partition that does not exist, or metadata that is too large, fails only its own row;
        any other error fails all rows.
        """

        def check() -> GroupShard:
            shard = self._shard(request.group_id, may_be_empty=True)
            shard.committers.validate(request, api_version)
            return shard

        def write(shard: GroupShard, draft: CommitDraft, answered: Callable[[ErrorCode], None]) -> None:
            shard.offsets.commit(request.group_id, draft.accepted, shard.log.encode(draft.batch), answered)

        draft = CommitDraft(request.group_id, check, self._exists, request.retention_time_ms)
        in_steps(
            self._timers,
            self._commit(
                draft,
                draft.take(
                    request.topics,
                    OffsetCommitResponse.OffsetCommitResponseTopic,
                    OffsetCommitResponse.OffsetCommitResponsePartition,
                ),
                write,
                lambda: reply(OffsetCommitResponse(topics=draft.topics)),
            ),
        )

    # -- TxnOffsetCommit

    def commit_in_transaction(
        self, request: TxnOffsetCommitRequest, reply: Callable[[TxnOffsetCommitResponse], None]
    ) -> None:
        """Serves TxnOffsetCommit. An error for all rows also replaces the errors of partitions that do not exist,
        unlike in `commit`."""

        def check() -> GroupShard:
            shard = self._shard(request.group_id)
            shard.committers.validate_transactional(request)
            return shard

        def write(shard: GroupShard, draft: CommitDraft, answered: Callable[[ErrorCode], None]) -> None:
            shard.offsets.commit_in_transaction(
                request.group_id, request.producer_id, request.producer_epoch, draft.accepted, draft.batch, answered
            )

        draft = CommitDraft(request.group_id, check, self._exists, -1, missing_first=False)
        in_steps(
            self._timers,
            self._commit(
                draft,
                draft.take(
                    request.topics,
                    TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic,
                    TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition,
                ),
                write,
                lambda: reply(TxnOffsetCommitResponse(topics=draft.topics)),
            ),
        )

    @staticmethod
    def _commit(
        draft: CommitDraft,
        rows: Iterator[None],
        write: Callable[[GroupShard, CommitDraft, Callable[[ErrorCode], None]], None],
        finish: Callable[[], None],
    ) -> Iterator[None]:
        yield from rows

        def answered(code: ErrorCode) -> None:
            for answer in draft.answers:
                answer.error_code = code
            finish()

        if not draft.answers:
            finish()
            return
        try:
            shard = draft.settle()
        except RequestFailed as failure:
            answered(failure.code)
        else:
            write(shard, draft, answered)

    # -- OffsetFetch

    def fetch(
        self, api_version: int, request: OffsetFetchRequest, reply: Callable[[OffsetFetchResponse], None]
    ) -> None:
        """Serves OffsetFetch. Since version 8 a request can contain several groups."""
        if api_version >= _BATCHED_SINCE:
            fetches = [
                _Fetch(
                    group.group_id,
                    None
                    if group.topics is None
                    else _requested((topic.name, topic.partition_indexes) for topic in group.topics),
                    group.member_id,
                    group.member_epoch,
                )
                for group in _once(request.groups)
            ]
        elif request.topics is None:
            fetches = [_Fetch(request.group_id, None)]
        else:
            topics = _requested((topic.name, topic.partition_indexes) for topic in request.topics)
            fetches = [_Fetch(request.group_id, topics)]

        def finish(fetched: Sequence[_Fetched]) -> None:
            in_steps(self._timers, answer(fetched))

        def answer(fetched: Sequence[_Fetched]) -> Iterator[None]:
            if api_version >= _BATCHED_SINCE:
                groups: list[OffsetFetchResponse.OffsetFetchResponseGroup] = []
                for some in parts(fetched, _GROUPS):
                    for one in some:
                        group = OffsetFetchResponse.OffsetFetchResponseGroup(
                            group_id=one.group_id, error_code=one.error
                        )
                        groups.append(group)
                        yield from _fill(
                            one.topics,
                            group.topics,
                            OffsetFetchResponse.OffsetFetchResponseTopics,
                            OffsetFetchResponse.OffsetFetchResponsePartitions,
                        )
                    if len(groups) < len(fetched):
                        yield
                reply(OffsetFetchResponse(groups=groups))
            else:
                yield from _answer_alone(fetched[0], fetches[0], api_version, reply)

        gather: Gather[_Fetched] = Gather(len(fetches), finish)
        in_steps(self._timers, self._fetch_all(fetches, request.require_stable, gather))

    def _fetch_all(self, fetches: Sequence[_Fetch], require_stable: bool, gather: Gather[_Fetched]) -> Iterator[None]:
        for index, fetch in enumerate(fetches):
            if index and not index % _GROUPS:
                yield
            self._fetch(fetch, require_stable, gather.slot(index))

    def _fetch(self, fetch: _Fetch, require_stable: bool, give: Callable[[_Fetched], None]) -> None:
        """Reads the offsets of one group. With `require_stable` it waits for the commits in flight: the reader may
        be the successor of their committer. A coordinator that may have a successor refuses: it does not have what
        was committed there, and a client in a transaction would process records a second time.
        """
        try:
            shard = self._shard(fetch.group_id, may_be_empty=True)
            consumer_group = shard.consumers.find(fetch.group_id)
            if consumer_group is not None:
                check_fetch(consumer_group, fetch.member_id, fetch.member_epoch)
        except RequestFailed as failure:
            give(_Fetched(fetch.group_id, failure.code, ()))
            return

        def settled(code: ErrorCode) -> None:
            """Reads the offsets once all commits in flight have ended. Fails if one of them failed or does not end:
            another coordinator may have taken it over, or may still commit it. The client then searches for the new
            coordinator; Java's consumer treats COORDINATOR_NOT_AVAILABLE here as fatal.
            """
            if code is ErrorCode.NONE and not shard.log.is_followed:
                give(_Fetched(fetch.group_id, ErrorCode.NOT_COORDINATOR, ()))
            elif code is ErrorCode.NONE:
                in_steps(self._timers, _read(shard, fetch, give, require_stable=require_stable))
            else:
                answer = client_error(code)
                is_away = answer is ErrorCode.COORDINATOR_NOT_AVAILABLE
                give(_Fetched(fetch.group_id, ErrorCode.NOT_COORDINATOR if is_away else answer, ()))

        if require_stable:
            shard.log.when_settled(settled, has_timeout=True)
        else:
            settled(ErrorCode.NONE)

    # -- OffsetDelete

    def delete(self, request: OffsetDeleteRequest, reply: Callable[[OffsetDeleteResponse], None]) -> None:
        """Serves OffsetDelete; the offsets of topics that the group consumes are kept (KIP-496)."""
        in_steps(self._timers, self._delete(request, reply))

    def _delete(self, request: OffsetDeleteRequest, reply: Callable[[OffsetDeleteResponse], None]) -> Iterator[None]:
        response = OffsetDeleteResponse()
        chosen: dict[Partition, None] = {}
        count = 0
        try:
            self._deletable(request.group_id)
            for topic in request.topics:
                answers: list[OffsetDeleteResponse.OffsetDeleteResponsePartition] = []
                response.topics.append(
                    OffsetDeleteResponse.OffsetDeleteResponseTopic(name=topic.name, partitions=answers)
                )
                subscribed = self._deletable(request.group_id)[1].is_subscribed_to(topic.name)
                for row in topic.partitions:
                    count += 1
                    if not count % COUNTED_ROWS:
                        effort.add(Work.ROW, COUNTED_ROWS)
                    if not count % ROWS:
                        yield
                    code = ErrorCode.NONE
                    if not self._exists(topic.name, row.partition_index):
                        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    elif subscribed:
                        code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
                    else:
                        chosen[topic.name, row.partition_index] = None
                    answers.append(
                        OffsetDeleteResponse.OffsetDeleteResponsePartition(
                            partition_index=row.partition_index, error_code=code
                        )
                    )
            shard, group = self._deletable(request.group_id)
        except RequestFailed as failure:
            reply(OffsetDeleteResponse(error_code=failure.code))
            return
        still = (one for one in chosen if not group.is_subscribed_to(one[0])) if count >= ROWS else chosen
        shard.removal.delete(request.group_id, still, lambda code: reply(_deleted(response, code)))

    def _deletable(self, group_id: str) -> tuple[GroupShard, ClassicGroup | ConsumerGroup]:
        """Returns the group and its shard. Raises RequestFailed unless its offsets can be deleted."""
        shard = self._shard(group_id)
        group: ClassicGroup | ConsumerGroup | None = shard.consumers.find(group_id)
        if group is None:
            group = shard.find(group_id)
            if group is None:
                raise RequestFailed(ErrorCode.GROUP_ID_NOT_FOUND)
            if not group.is_in(GroupState.EMPTY) and not group.is_consumers:
                raise RequestFailed(ErrorCode.NON_EMPTY_GROUP)
        return shard, group


def _requested(topics: Iterable[tuple[str, Sequence[int]]]) -> Sequence[tuple[str, Sequence[int]]]:
    return list(topics)


def _once(
    groups: Sequence[OffsetFetchRequest.OffsetFetchRequestGroup],
) -> Iterator[OffsetFetchRequest.OffsetFetchRequestGroup]:
    """Yields the requested groups; one whose whole offsets are requested several times, once. Otherwise a request of
    1 MB, for 50,000 offsets each time, would have a response of many gigabytes.
    """
    whole: set[str] = set()
    for group in groups:
        if group.topics is None:
            if group.group_id in whole:
                continue
            whole.add(group.group_id)
        yield group


def _deleted(response: OffsetDeleteResponse, code: ErrorCode) -> OffsetDeleteResponse:
    return response if code is ErrorCode.NONE else OffsetDeleteResponse(error_code=code)


def _read(
    shard: GroupShard, fetch: _Fetch, give: Callable[[_Fetched], None], *, require_stable: bool
) -> Iterator[None]:
    """Reads the requested offsets in their current state, even if that takes several turns of the loop."""
    try:
        shard.check_serving()
    except RequestFailed as failure:
        give(_Fetched(fetch.group_id, failure.code, ()))
        return
    offsets = shard.offsets.of(fetch.group_id)
    unstable = shard.offsets.unstable_of(fetch.group_id) if require_stable else frozenset[Partition]()
    requested = fetch.topics
    if requested is None:
        by_topic: dict[str, list[int]] = {}
        for topic, partition in offsets:
            by_topic.setdefault(topic, []).append(partition)
        requested = list(by_topic.items())
    count = 0
    if len(requested) > ROWS or sum(len(partitions) for _, partitions in requested) > ROWS:
        offsets, unstable = dict(offsets), frozenset(unstable)
    topics: list[tuple[str, Sequence[tuple[int, CommittedOffset, ErrorCode]]]] = []
    for topic, partitions in requested:
        found: list[tuple[int, CommittedOffset, ErrorCode]] = []
        topics.append((topic, found))
        for partition in partitions:
            count += 1
            if not count % COUNTED_ROWS:
                effort.add(Work.ROW, COUNTED_ROWS)
            if not count % ROWS:
                yield
            if (topic, partition) in unstable:
                found.append((partition, _ABSENT, ErrorCode.UNSTABLE_OFFSET_COMMIT))
            else:
                found.append((partition, offsets.get((topic, partition), _ABSENT), ErrorCode.NONE))
    give(_Fetched(fetch.group_id, ErrorCode.NONE, topics))


def _fill(
    topics: Iterable[tuple[str, Sequence[tuple[int, CommittedOffset, ErrorCode]]]],
    out: list[Any],
    topic_type: Callable[..., Any],
    row_type: Callable[..., Any],
) -> Iterator[None]:
    """Adds the topics and rows of an OffsetFetch response to `out`, in the types of the response's version."""
    count = 0
    for name, partitions in topics:
        rows: list[Any] = []
        out.append(topic_type(name=name, partitions=rows))
        for index, committed, code in partitions:
            count += 1
            if not count % COUNTED_ROWS:
                effort.add(Work.ROW, COUNTED_ROWS)
            if not count % ROWS:
                yield
            rows.append(
                row_type(
                    partition_index=index,
                    committed_offset=committed.offset,
                    committed_leader_epoch=committed.leader_epoch,
                    metadata=committed.metadata,
                    error_code=code,
                )
            )


def _answer_alone(
    fetched: _Fetched, fetch: _Fetch, api_version: int, reply: Callable[[OffsetFetchResponse], None]
) -> Iterator[None]:
    """Answers versions 1-7, which have one group. Version 1 has no error for the whole request, so the error is set for
    each partition. Later versions have both: aiokafka and kafka-python ignore the error of the whole response, and a
    consumer without rows would begin at the start of its partitions."""
    topics = fetched.topics
    response = OffsetFetchResponse()
    if fetched.error is not ErrorCode.NONE:
        topics = [(name, [(i, _ABSENT, fetched.error) for i in indexes]) for name, indexes in fetch.topics or ()]
        if api_version >= _GROUP_ERROR_SINCE:
            response.error_code = fetched.error
    yield from _fill(
        topics,
        response.topics,
        OffsetFetchResponse.OffsetFetchResponseTopic,
        OffsetFetchResponse.OffsetFetchResponsePartition,
    )
    reply(response)
