"""A stop in order of many logs.

A log that was opened after such a stop and has not changed since is left as it is. Those that were written to are
closed in threads, for each takes several syncs, and syncs that are asked for at once cost little more than one.
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
#: How many logs a thread takes at a time.
_AT_ONCE = 16

#: LEO, the active segment and its version: with these, nothing that a stop writes is another.
Shape = tuple[int, Segment, int]


def shape_of(log: Log) -> Shape:
    active = log.segments.active
    return log.log_end_offset, active, active.version


def close_all(blocking: Blocking, logs: Sequence[Log], opened_as: Mapping[Log, Shape]) -> list[StorageFault]:
    """What went wrong. `opened_as` is what logs were whose files are as a stop in order left them."""
    touched: list[Log] = []
    faults: list[StorageFault] = []
    for log in logs:
        # All of them, so that no thread closes a file that another one uses.
        log.segments.release()
        is_changed = log.segments.active.is_made and opened_as.get(log) != shape_of(log)
        if is_changed or log.identity is not None:
            touched.append(log)
        else:
            faults += _leave(log)
    work = [partial(_close, touched[first : first + _AT_ONCE]) for first in range(0, len(touched), _AT_ONCE)]
    return [*faults, *(each for found in blocking.run_all(work, _THREADS) for each in found)]


def _close(logs: Sequence[Log]) -> list[StorageFault]:
    """A log that cannot be closed is no reason to leave the next one open."""
    faults = []
    for log in logs:
        try:
            log.close(clean=True)
        except StorageFault as failed:
            faults.append(failed)
    return faults


def _leave(log: Log) -> list[StorageFault]:
    """Only the epochs may be others."""
    epochs, end_offset = log.epochs, log.log_end_offset
    try:
        epochs.persist(None if epochs.tells_beyond(end_offset) else end_offset)
    except OSError as error:
        return [fault(log, "cannot close", error)]
    return []


def sizes_in(logs: Mapping[TopicPartition, Log], root: str) -> Iterator[tuple[TopicPartition, Sizes]]:
    """For the inventory of one of `log.dirs`."""
    for topic_partition, log in logs.items():
        if root_of(log.directory) == root and log.segments.active.is_made:
            yield topic_partition, {segment.base_offset: segment.size_bytes for segment in log.segments}
