"""Ranges of offsets whose records the query did not see, or saw and which are no longer what the log holds.

aged        the log begins later now: retention or DeleteRecords took them
truncated   an election put a replica in front that never had them; read or not, the log has others there, or none
recreated   the topic was deleted and made again: what followed the last offset read is gone
deleted     the topic, or the partition, is gone
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Cause(StrEnum):
    AGED = "aged"
    TRUNCATED = "truncated"
    RECREATED = "recreated"
    DELETED = "deleted"


class LostRange(NamedTuple):
    """[first_offset, end_offset) of one partition; the end is None where nobody knows any more how far it went.

    `was_read`: the query has processed these records already, and the log has others in their place now, or none.
    """

    topic: str
    partition: int
    first_offset: int
    end_offset: int | None
    cause: Cause
    was_read: bool = False
    topic_id: str = ""

    def __str__(self) -> str:
        end = "?" if self.end_offset is None else str(self.end_offset)
        read = ", read before" if self.was_read else ""
        return f"{self.topic}-{self.partition} [{self.first_offset}, {end}) {self.cause.value}{read}"
