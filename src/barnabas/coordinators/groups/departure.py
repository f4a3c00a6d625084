"""LeaveGroup of many members: they are removed in parts, one in each turn of the loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from barnabas.common.errors import ErrorCode, RequestFailed
from barnabas.common.host import Timers
from barnabas.coordinators.groups.classic.membership import Leaving
from barnabas.coordinators.groups.shard import GroupShard

#: The number of members removed in one turn of the loop.
_PART: Final = 500


class Departure:
    """The members of one group that leave with one request. Each part is processed like a request of its own, because
    the group can change or move to another coordinator between two parts.

    Exactly one of `answer` (with a code for each member, in order) and `fail` is called.
    """

    def __init__(
        self,
        timers: Timers,
        find_shard: Callable[[str], GroupShard],
        group_id: str,
        leaving: Sequence[Leaving],
        answer: Callable[[Sequence[ErrorCode]], None],
        fail: Callable[[ErrorCode], None],
    ) -> None:
        """Creates the departure of members. `find_shard` raises RequestFailed if no shard serves the group."""
        self._timers = timers
        self._find_shard = find_shard
        self._group_id = group_id
        self._leaving = leaving
        self._answer = answer
        self._fail = fail
        self._codes: list[ErrorCode] = []

    def remove_part(self) -> None:
        """Removes the next members; the parts after it follow in later turns."""
        part = self._next()
        try:
            shard = self._find_shard(self._group_id)
            if shard.consumers.has(self._group_id):
                shard.consumers.leave(
                    self._group_id,
                    part,
                    self._removed,
                    self._failed,
                    lambda: shard.membership.leave(self._group_id, part),
                )
                return
            codes = shard.membership.leave(self._group_id, part)
        except RequestFailed as failure:
            self._failed(failure.code)
        else:
            self._removed(codes)

    def _next(self) -> Sequence[Leaving]:
        return self._leaving[len(self._codes) : len(self._codes) + _PART]

    def _removed(self, codes: Sequence[ErrorCode]) -> None:
        self._codes.extend(codes)
        if len(self._codes) == len(self._leaving):
            self._answer(self._codes)
        else:
            self._timers.call_soon(self.remove_part)

    def _failed(self, code: ErrorCode) -> None:
        if self._codes and code is ErrorCode.UNKNOWN_MEMBER_ID:
            self._removed([code] * len(self._next()))  # the group ended with the previous part
        else:
            self._fail(code)
