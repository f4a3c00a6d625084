"""Replicas of this broker without an open log: it could not be created, or is in a failed directory.

Requests for them are answered with KAFKA_STORAGE_ERROR. If space was lacking, opening is tried again every second; so
is the creation of a partition whose directory failed, since it can succeed in another directory. An existing log in a
missing directory is waited for: a new, empty log in its place would look as if there had never been any records.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.common.host import Timer, Timers
from barnabas.common.types import TopicPartition

_RETRY_MS = 1000


class UnopenedReplicas:
    def __init__(self, timers: Timers, open_again: Callable[[TopicPartition], None]) -> None:
        """Creates an empty set. `open_again` is called for each replica to be tried again, and calls `discard` if it
        succeeds.
        """
        self._timers = timers
        self._open_again = open_again
        self._waiting: dict[TopicPartition, bool] = {}
        self._timer: Timer | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, topic_partition: TopicPartition) -> bool:
        return topic_partition in self._waiting

    def add(self, topic_partition: TopicPartition, *, can_retry: bool) -> None:
        """Adds a replica; `can_retry` means that another try in this process can succeed."""
        self._waiting[topic_partition] = can_retry
        if can_retry and self._timer is None:
            self._timer = self._timers.call_later(_RETRY_MS, self._try_again)

    def discard(self, topic_partition: TopicPartition) -> None:
        self._waiting.pop(topic_partition, None)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._waiting.clear()

    def _try_again(self) -> None:
        self._timer = None
        for topic_partition in [waiting for waiting, can_retry in self._waiting.items() if can_retry]:
            self._open_again(topic_partition)
