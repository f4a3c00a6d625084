"""The replica of the journal that is read: its leader, or an in-sync follower while the leader does not answer.

A leader that is paused, cut off or waits for its disk leads until its session has expired, which takes 9 s or more.
Followers serve consumers, too (KIP-392), up to their HW: what they serve is committed, and has the leader's offsets. A
follower can be behind the leader, so a position beyond its end says nothing about the journal; only the leader's answer
does.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

#: How long a replica can take for an answer before another one is asked. After each round without any answer it is
#: twice as long, so that slow networks are read, too.
PATIENCE_S: Final = 1.0
_PATIENCE_S_MAX: Final = 16.0
#: A replica that gave no answer is asked after the others for this time.
_AVOIDED_S: Final = 5.0
_NEVER: Final = float("-inf")


class JournalReplicas:
    """The order in which the replicas are asked."""

    def __init__(self) -> None:
        self._failed_s: dict[int, float] = {}
        #: The failures since the last answer.
        self._failures = 0

    def order(self, leader: int, in_sync: Collection[int], now_s: float) -> list[int]:
        """Returns the leader, if there is one, then the followers; replicas that failed lately come last, the one that
        failed first before the others.
        """
        known = sorted({*in_sync, leader} - {-1}, key=lambda broker: (broker != leader, broker))
        return sorted(known, key=lambda broker: self._avoided_since(broker, now_s))

    def _avoided_since(self, broker: int, now_s: float) -> float:
        failed_s = self._failed_s.get(broker, _NEVER)
        return failed_s if now_s - failed_s < _AVOIDED_S else _NEVER

    def patience_s(self, replicas: int) -> float:
        """Returns the time that the next of so many replicas can take for its answer."""
        rounds = self._failures // max(1, replicas)
        return min(_PATIENCE_S_MAX, PATIENCE_S * 2.0 ** min(rounds, 8))

    def answered(self, broker: int) -> None:
        self._failed_s.pop(broker, None)
        self._failures = 0

    def failed(self, broker: int, now_s: float) -> None:
        self._failed_s[broker] = now_s
        self._failures += 1
