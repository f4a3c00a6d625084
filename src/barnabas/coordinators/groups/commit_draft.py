"""An offset commit that is built row by row, in as many turns of the loop as it needs.

A commit that could never be written is refused before the work: if its batch is above `max.message.bytes` of
`__consumer_offsets`, with the code that the log's refusal leads to (UNKNOWN_SERVER_ERROR, as in Kafka).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from barnabas.common import effort
from barnabas.common.effort import COUNTED_ROWS, Work
from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.coordinators.groups.group_records import CommittedOffset, offset_key, offset_key_head, offset_value
from barnabas.coordinators.groups.shard import GroupShard
from barnabas.coordinators.runtime import client_error
from barnabas.coordinators.steps import ROWS
from barnabas.records.draft import BatchDraft

#: The smallest size of a row in a batch, without the names of its group and topic.
_ROW_BYTES_MIN: Final = 40
#: The number of topics whose rows are counted in one step.
_COUNTED_TOPICS: Final = 10_000


class CommitDraft:
    """A commit being built: `take` processes the rows, then `settle` checks the committer again."""

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
        """Creates an empty commit. `check()` finds the shard and raises RequestFailed if the committer must not commit;
        with `missing_first`, partitions that do not exist get their own error code even then."""
        self._group_id = group_id
        self._check = check
        self._exists = exists
        self._retention_ms = retention_ms
        self._missing_first = missing_first
        self._shard: GroupShard | None = None
        self._code = ErrorCode.NONE
        self._count = 0
        #: The bytes with which all keys of the current topic begin; empty before its first accepted row.
        self._head = b""
        #: The topics of the response.
        self.topics: list[Any] = []
        #: The rows of the response that get the result of the write.
        self.answers: list[Any] = []
        self.accepted: list[tuple[str, int, CommittedOffset]] = []
        self.batch = BatchDraft()

    def take(
        self, topics: Sequence[Any], topic_type: Callable[..., Any], row_type: Callable[..., Any]
    ) -> Iterator[None]:
        """Processes the rows of a request and builds their responses."""
        row_count = 0
        for place, topic in enumerate(topics, 1):
            row_count += len(topic.partitions)
            if not place % _COUNTED_TOPICS:
                yield
        for topic in topics:
            answers: list[Any] = []
            self.topics.append(topic_type(name=topic.name, partitions=answers))
            self._head = b""
            for row in topic.partitions:
                self._count += 1
                if not self._count % COUNTED_ROWS:
                    effort.add(Work.ROW, COUNTED_ROWS)
                if not self._count % ROWS:
                    yield
                answer = row_type(partition_index=row.partition_index)
                answers.append(answer)
                self._take_row(topic.name, row, answer, row_count)

    def _take_row(self, topic: str, row: Any, answer: Any, row_count: int) -> None:
        exists = self._exists(topic, row.partition_index)
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
            row.committed_metadata, row.committed_offset, row.committed_leader_epoch, self._retention_ms
        )
        if committed is None:
            answer.error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            return
        # The head is built only for a topic that exists: the name of another one can be longer than a key can hold.
        self._head = self._head or offset_key_head(self._group_id, topic)
        self.answers.append(answer)
        self.accepted.append((topic, row.partition_index, committed))
        self.batch.add(offset_key(self._head, row.partition_index), offset_value(committed))
        if self.batch.size_bytes > shard.log.batch_bytes_max:
            self._code = client_error(ErrorCode.MESSAGE_TOO_LARGE)

    def _begin(self, row_count: int) -> GroupShard | None:
        try:
            shard = self._shard = self._check()
        except RequestFailed as failure:
            self._code = failure.code
            return None
        if row_count > ROWS and row_count * _ROW_BYTES_MIN > shard.log.batch_bytes_max:
            self._code = client_error(ErrorCode.MESSAGE_TOO_LARGE)
        return shard

    def settle(self) -> GroupShard:
        """Returns the shard that the batch is written to. Raises RequestFailed with the code for all accepted rows."""
        assert self._shard is not None, "the commit has accepted rows"
        if self._code is not ErrorCode.NONE:
            raise RequestFailed(self._code)
        return self._check() if self._count >= ROWS else self._shard
