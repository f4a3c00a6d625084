"""The check for followers that fall behind, over all partitions led here: periodically (`replica.lag.time.max.ms`), and
when brokers change.

`Leadership.reduced` decides which followers these are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from barnabas.common.host import Timer, Timers
from barnabas.replication.partition import Environment, Partition

#: The partitions that are checked in one turn of the loop, in about 2 ms, and the pause between two turns.
_CHECKED_AT_ONCE: Final = 5_000
_PAUSE_MS: Final = 1


class IsrExpiration:
    """Checks twice per `replica.lag.time.max.ms`, so that a follower leaves the ISR at most half that time too late, as
    in Kafka.
    """

    def __init__(self, timers: Timers, environment: Environment, partitions: Callable[[], Iterator[Partition]]) -> None:
        self._timers = timers
        self._environment = environment
        self._partitions = partitions
        self._timer: Timer | None = None

    def start(self) -> None:
        self._timer = self._timers.call_later(max(self._environment.lag_ms_max // 2, 1), self._check)

    def check(self) -> None:
        """Checks now, because brokers have changed; the next check is a whole period later."""
        if self._timer is not None:
            self._timer.cancel()
            self._check()

    def _check(self) -> None:
        self._check_from(tuple(self._partitions()), 0)

    def _check_from(self, partitions: Sequence[Partition], begin: int) -> None:
        end = begin + _CHECKED_AT_ONCE
        for partition in partitions[begin:end]:
            partition.shrink_isr()
        if end < len(partitions):
            self._timer = self._timers.call_later(_PAUSE_MS, lambda: self._check_from(partitions, end))
        else:
            self.start()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
