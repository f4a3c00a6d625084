"""The deadlines of members: for their heartbeats, and for the steps of a rebalance.

    session     every member: a request within its session timeout
    rebalance   consumer protocol: revoked partitions are released within the rebalance timeout
    join, sync  classic protocol: JoinGroup and SyncGroup within the rebalance timeout

`Planner.remove_after` (`planning.py`) schedules them, and removes a member that misses one. They are not in the log:
after a failover every session starts again.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from barnabas.coordinators.deadlines import Deadline, Deadlines


class DeadlineKind(Enum):
    SESSION = "session"
    REBALANCE = "rebalance"
    JOIN = "join"
    SYNC = "sync"


_MemberKey = tuple[str, str]


class Sessions:
    """The deadlines of all members of one shard's consumer groups."""

    __slots__ = ("_deadlines", "_members")

    def __init__(self, deadlines: Deadlines) -> None:
        self._deadlines = deadlines
        self._members: dict[_MemberKey, dict[DeadlineKind, Deadline]] = {}

    def schedule(
        self, group_id: str, member_id: str, kind: DeadlineKind, delay_ms: int, callback: Callable[[], None]
    ) -> None:
        """Starts or restarts a deadline of a member."""
        own = self._members.setdefault((group_id, member_id), {})
        deadline = own.get(kind)
        if deadline is None:
            deadline = own[kind] = self._deadlines.new()
        deadline.schedule(delay_ms, callback)

    def extend(self, group_id: str, member_id: str, kind: DeadlineKind, delay_ms: int) -> bool:
        """Restarts a deadline with the same callback; returns False if it is not scheduled. Most heartbeats do only
        this."""
        own = self._members.get((group_id, member_id))
        deadline = None if own is None else own.get(kind)
        if deadline is None or not deadline.is_scheduled:
            return False
        deadline.extend(delay_ms)
        return True

    def is_scheduled(self, group_id: str, member_id: str, kind: DeadlineKind) -> bool:
        own = self._members.get((group_id, member_id))
        return own is not None and kind in own and own[kind].is_scheduled

    def cancel(self, group_id: str, member_id: str, kind: DeadlineKind) -> None:
        own = self._members.get((group_id, member_id))
        if own is not None and kind in own:
            own[kind].cancel()

    def forget(self, group_id: str, member_id: str) -> None:
        """Cancels the deadlines of a member that has left."""
        for deadline in self._members.pop((group_id, member_id), {}).values():
            deadline.cancel()

    def close(self) -> None:
        for own in self._members.values():
            for deadline in own.values():
                deadline.cancel()
        self._members.clear()
