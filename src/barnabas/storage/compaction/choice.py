"""The choice of the next log to clean: of all logs that need a pass, the one with the largest share of dirty bytes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from barnabas.common.errors import RecordsRejected
from barnabas.common.host import Host
from barnabas.common.types import TopicPartition
from barnabas.storage.compaction.cleanable import Cleanable, cleanable
from barnabas.storage.log import Log

#: Returns the HW of a partition's replica, or None if there is none.
HighWatermark = Callable[[TopicPartition], int | None]


class CleanerChoice:
    """Looks for the log that most needs a pass. `clean_until` returns the offset up to which a log in a directory is
    clean, `failed` is called with a directory that cannot be read.
    """

    def __init__(
        self,
        host: Host,
        logs: Mapping[TopicPartition, Log],
        offline: Collection[str],
        clean_until: Callable[[str, TopicPartition], int | None],
        failed: Callable[[str, BaseException], None],
    ) -> None:
        self._host = host
        self._logs = logs
        self._offline = offline
        self._clean_until = clean_until
        self._failed = failed
        self._found: tuple[float, TopicPartition] | None = None
        #: The HWs of replicas; None before the start, when there are no replicas.
        self.high_watermark_of: HighWatermark | None = None
        #: Directories without space for a pass.
        self.full: set[str] = set()
        #: Logs that are being copied.
        self.paused: set[TopicPartition] = set()
        #: Logs that could not be cleaned; they are not tried again before a restart.
        self.uncleanable: set[TopicPartition] = set()

    def exclude(self, topic_partition: TopicPartition, error: BaseException) -> None:
        """Excludes a log that cannot be cleaned, and reports it."""
        self.uncleanable.add(topic_partition)
        self._host.faults.report(f"{topic_partition} cannot be compacted and stays unchanged", error)

    def search(self) -> Iterator[None]:
        """Looks at one log after the other, for `taken`."""
        self._found = None
        for topic_partition in tuple(self._logs):
            cleaned = self._cleanable(topic_partition)
            if cleaned is not None and (self._found is None or cleaned[1].ratio > self._found[0]):
                self._found = (cleaned[1].ratio, topic_partition)
            yield

    def taken(self) -> tuple[Log, Cleanable] | None:
        """Returns the log that the last search found, and what a pass would clean. The log can have been truncated or
        deleted since the search looked at it.
        """
        return None if self._found is None else self._cleanable(self._found[1])

    def _cleanable(self, topic_partition: TopicPartition) -> tuple[Log, Cleanable] | None:
        """Returns a partition's log and what a pass would clean, or None if it needs none or cannot have one."""
        log = self._logs.get(topic_partition)
        if log is None or not log.config.is_compacted or len(log.segments) == 1:
            return None
        root = log.directory.rpartition("/")[0]
        if topic_partition in self.uncleanable or topic_partition in self.paused:
            return None
        if root in self._offline or root in self.full:
            return None
        high_watermark = None if self.high_watermark_of is None else self.high_watermark_of(topic_partition)
        if high_watermark is None:
            high_watermark = log.log_start_offset
        try:
            plan = cleanable(log, self._clean_until(root, topic_partition), high_watermark, self._host.clock.wall_ms())
        except RecordsRejected as error:
            self.exclude(topic_partition, error)
            return None
        except OSError as error:
            self._failed(root, error)
            return None
        return (log, plan) if plan.is_worth_it(log.config.min_cleanable_dirty_ratio) else None
