"""Lost ranges: records that the query did not read before they were gone, or that it has read and the log no longer
has.

    aged        the log begins later now: retention or DeleteRecords removed the records
    truncated   a replica without the records became leader; the log has other records at these offsets, or none
    recreated   the topic was deleted and created again: everything after the last offset read is gone
    deleted     the topic or the partition does not exist any more

`advance` detects them; `stream_reader` fails the query, or reports them and continues (`failOnDataLoss`).
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class LossCause(StrEnum):
    AGED = "aged"
    TRUNCATED = "truncated"
    RECREATED = "recreated"
    DELETED = "deleted"


class LostRange(NamedTuple):
    """A lost range [first_offset, end_offset) of one partition; the end is None if it is no longer known. `was_read`
    says that the query has already processed these records, and the log now has others in their place, or none.
    """

    topic: str
    partition: int
    first_offset: int
    end_offset: int | None
    cause: LossCause
    was_read: bool = False
    topic_id: str = ""

    def __str__(self) -> str:
        end = "?" if self.end_offset is None else str(self.end_offset)
        read = ", read before" if self.was_read else ""
        return f"{self.topic}-{self.partition} [{self.first_offset}, {end}) {self.cause.value}{read}"
