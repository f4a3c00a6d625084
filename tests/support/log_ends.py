"""HWs of logs without replicas: each is the end of its log."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.common.types import TopicPartition
from barnabas.storage.log_manager import LogManager


def end_of(logs: LogManager) -> Callable[[TopicPartition], int | None]:
    """Returns the function that returns the end of a log, or None if there is no such log."""

    def end(topic_partition: TopicPartition) -> int | None:
        log = logs.get(topic_partition)
        return None if log is None else log.log_end_offset

    return end
