"""Clean shutdown of many logs.

A log that was opened after a clean shutdown and has not changed since is left unchanged. The others are closed in
several threads, because each needs several syncs, and concurrent syncs cost little more than one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from barnabas.common.errors import StorageFault
from barnabas.common.host import Blocking
from barnabas.common.types import TopicPartition
from barnabas.storage.directories import root_of
from barnabas.storage.log import Log
from barnabas.storage.log_reads import fault
from barnabas.storage.recovery.inventory import Sizes
from barnabas.storage.segment import Segment

_THREADS = 4
#: The number of logs that a thread closes at a time.
_AT_ONCE = 16

#: The LEO of a log, its active segment and that segment's version: while they are unchanged, a shutdown has nothing to
#: write.
Shape = tuple[int, Segment, int]


def shape_of(log: Log) -> Shape:
    active = log.segments.active
    return log.log_end_offset, active, active.version


def close_all(blocking: Blocking, logs: Sequence[Log], opened_as: Mapping[Log, Shape]) -> list[StorageFault]:
    """Closes the logs. Returns the errors. `opened_as` has the `Shape` of each log that was opened after a clean
    shutdown.
    """
    touched: list[Log] = []
    faults: list[StorageFault] = []
    for log in logs:
        # This is done for all logs first, so that no thread closes a file that another one uses.
        log.segments.release()
        is_changed = log.segments.active.has_files and opened_as.get(log) != shape_of(log)
        if is_changed or log.identity is not None:
            touched.append(log)
        else:
            faults += _close_unchanged(log)
    work = [partial(_close, touched[first : first + _AT_ONCE]) for first in range(0, len(touched), _AT_ONCE)]
    return [*faults, *(each for found in blocking.run_all(work, _THREADS) for each in found)]


def _close(logs: Sequence[Log]) -> list[StorageFault]:
    """Closes the logs cleanly, and returns the errors; an error in one does not prevent the close of the next."""
    faults = []
    for log in logs:
        try:
            log.close(clean=True)
        except StorageFault as failed:
            faults.append(failed)
    return faults


def _close_unchanged(log: Log) -> list[StorageFault]:
    """Closes an unchanged log, and returns the error, if any: at most its epochs have changed since it was opened."""
    epochs, end_offset = log.epochs, log.log_end_offset
    try:
        epochs.persist(None if epochs.has_saved_beyond(end_offset) else end_offset)
    except OSError as error:
        return [fault(log, "cannot close", error)]
    return []


def sizes_in(logs: Mapping[TopicPartition, Log], root: str) -> Iterator[tuple[TopicPartition, Sizes]]:
    """Yields the segment sizes of logs in one of `log.dirs`, for its inventory."""
    for topic_partition, log in logs.items():
        if root_of(log.directory) == root and log.segments.active.has_files:
            yield topic_partition, {segment.base_offset: segment.size_bytes for segment in log.segments}
