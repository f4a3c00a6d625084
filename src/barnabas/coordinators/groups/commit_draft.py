"""A commit of offsets that is put together row by row, in as many turns of the loop as it takes.

What could never be written is refused before the work: a batch above `max.message.bytes` of `__consumer_offsets`, as by
the log itself (UNKNOWN_SERVER_ERROR, as Kafka answers).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from barnabas.common import effort
from barnabas.common.effort import COUNTED_ROWS, Work
from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.coordinators.groups.records import CommittedOffset, offset_key, offset_key_head, offset_value
from barnabas.coordinators.groups.shard import GroupShard
from barnabas.coordinators.runtime import storing_failed
from barnabas.coordinators.steps import ROWS
from barnabas.records.draft import BatchDraft

#: The least that one row takes of a batch beside the names of its group and topic.
_ROW_BYTES_MIN: Final = 40


class CommitDraft:
    """`take` the rows, then `settle`."""

    __slots__ = (
        "_check",
        "_code",
        "_count",
        "_exists",
        "_group_id",
        "_head",
        "_missing_first",
        "_retention_ms",
        "_shard",
        "accepted",
        "answers",
        "batch",
        "topics",
    )

    def __init__(
        self,
        group_id: str,
        check: Callable[[], GroupShard],
        exists: Callable[[str, int], bool],
        retention_ms: int,
        *,
        missing_first: bool = True,
    ) -> None:
        """`check()` finds the shard and raises RequestFailed if the committer may not commit; with `missing_first` a
        partition that is not there is answered with its own code all the same."""
        self._group_id = group_id
        self._check = check
        self._exists = exists
        self._retention_ms = retention_ms
        self._missing_first = missing_first
        self._shard: GroupShard | None = None
        self._code = ErrorCode.NONE
        self._count = 0
        #: The keys of the topic at hand begin with it; empty before the first.
        self._head = b""
        #: The topics of the answer.
        self.topics: list[Any] = []
        #: Its rows whose code is that of the commit.
        self.answers: list[Any] = []
        self.accepted: list[tuple[str, int, CommittedOffset]] = []
        self.batch = BatchDraft()

    def take(
        self, topics: Sequence[Any], topic_type: Callable[..., Any], row_type: Callable[..., Any]
    ) -> Iterator[None]:
        """The rows of a request, and their answers."""
        row_count = sum(len(topic.partitions) for topic in topics)
        for topic in topics:
            answers: list[Any] = []
            self.topics.append(topic_type(name=topic.name, partitions=answers))
            self._head = b""
            for asked in topic.partitions:
                self._count += 1
                if not self._count % COUNTED_ROWS:
                    effort.add(Work.ROW, COUNTED_ROWS)
                if not self._count % ROWS:
                    yield
                answer = row_type(partition_index=asked.partition_index)
                answers.append(answer)
                self._take_row(topic.name, asked, answer, row_count)

    def _take_row(self, topic: str, asked: Any, answer: Any, row_count: int) -> None:
        exists = self._exists(topic, asked.partition_index)
        if not exists and self._missing_first:
            answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return
        shard = self._shard
        if shard is None and self._code is ErrorCode.NONE:
            shard = self._begin(row_count)
        if shard is None or self._code is not ErrorCode.NONE:
            answer.error_code = self._code
            return
        if not exists:
            answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return
        committed = shard.committers.accept(
            asked.committed_metadata, asked.committed_offset, asked.committed_leader_epoch, self._retention_ms
        )
        if committed is None:
            answer.error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            return
        # Only now: the name of a topic that is not there may be longer than a key can hold.
        self._head = self._head or offset_key_head(self._group_id, topic)
        self.answers.append(answer)
        self.accepted.append((topic, asked.partition_index, committed))
        self.batch.add(offset_key(self._head, asked.partition_index), offset_value(committed))
        if self.batch.size_bytes > shard.log.batch_bytes_max:
            self._code = storing_failed(ErrorCode.MESSAGE_TOO_LARGE)

    def _begin(self, row_count: int) -> GroupShard | None:
        try:
            shard = self._shard = self._check()
        except RequestFailed as failure:
            self._code = failure.code
            return None
        if row_count > ROWS and row_count * _ROW_BYTES_MIN > shard.log.batch_bytes_max:
            self._code = storing_failed(ErrorCode.MESSAGE_TOO_LARGE)
        return shard

    def settle(self) -> GroupShard:
        """Where the batch goes; RequestFailed for all rows that have no other code."""
        assert self._shard is not None, "there are rows to be written"
        if self._code is not ErrorCode.NONE:
            raise RequestFailed(self._code)
        return self._check() if self._count >= ROWS else self._shard
