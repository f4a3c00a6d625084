"""Appends of a follower: consecutive batches of one segment are written in one call, because these writes limit how
fast a follower catches up.

Invariant: the log does not know of a batch before its bytes are written. A write that fails is repeated batch by batch,
so that it fails and is reported like any other append.
"""

from __future__ import annotations

from typing import Protocol

from barnabas.common.host import Buffer
from barnabas.common.log_config import LogConfig
from barnabas.records.header import CONTROL_FLAG, BatchHeader
from barnabas.storage.producer_replay import note_producer
from barnabas.storage.producers import ProducerStateManager
from barnabas.storage.segment import RollLimits, Segment
from barnabas.storage.segments import LogServices, Segments


class GrowingLog(Protocol):
    """The log that a run is appended to."""

    segments: Segments
    producers: ProducerStateManager
    log_end_offset: int

    @property
    def directory(self) -> str: ...
    @property
    def config(self) -> LogConfig: ...
    @property
    def limits(self) -> RollLimits: ...
    @property
    def recovery_point(self) -> int: ...

    def append_batch(self, header: BatchHeader, batch: Buffer, wall_ms: int) -> None:
        """Appends one batch that is validated and has its offsets. Raises StorageFault."""

    def appended(self, base_offset: int, position: int, end_offset: int) -> None:
        """Records the batch that was just appended: its position in the active segment and the new LEO."""

    def flush(self) -> None:
        """Syncs the log."""


class FollowerRun:
    """A run of complete, checked, consecutive batches in `view`. The caller calls `write` after the last one."""

    __slots__ = ("_batches", "_log", "_services", "_size_bytes", "_view", "_wall_ms", "end_offset")

    def __init__(self, log: GrowingLog, view: memoryview, services: LogServices) -> None:
        self._log = log
        self._view = view
        self._wall_ms = services.wall_ms()
        self._services = services
        self._batches: list[tuple[int, BatchHeader]] = []
        self._size_bytes = 0
        #: The log's end offset once everything is written.
        self.end_offset = log.log_end_offset

    def add(self, position: int, header: BatchHeader) -> None:
        """Adds a batch to the run. Raises StorageFault if earlier batches must be written first and cannot be."""
        if self._is_taken(header):
            self._batches.append((position, header))
            self._size_bytes += header.size_bytes
        else:
            self.write()
            self._log.append_batch(header, self._slice(position, header), self._wall_ms)
        self.end_offset = header.base_offset + header.last_offset_delta + 1

    def _is_taken(self, header: BatchHeader) -> bool:
        try:
            return self._takes(header)
        except OSError:
            return False  # an index cannot be read; `append_batch` finds that too, and reports it

    def _takes(self, header: BatchHeader) -> bool:
        """Returns whether the batch can follow the others in the active segment and cannot fail once its bytes are
        written."""
        segment, limits = self._log.segments.active, self._log.limits
        if not segment.size_bytes or header.attributes & CONTROL_FLAG:
            return False  # the first batch sets the segment's timestamps; a marker can need space in another file
        last_offset = header.base_offset + header.last_offset_delta
        size_bytes = self._size_bytes + header.size_bytes
        entries = len(self._batches) + 1
        return (
            not segment.should_roll(limits, size_bytes, last_offset, header.max_timestamp, self._wall_ms)
            and len(segment.index) + entries < limits.index_entries
            and len(segment.time_index) + entries < limits.time_entries
        )

    def _slice(self, position: int, header: BatchHeader) -> memoryview:
        return self._view[position : position + header.size_bytes]

    def write(self) -> None:
        """Writes the batches of the run. Raises StorageFault; the batches written before are kept."""
        batches, self._batches = self._batches, []
        size_bytes, self._size_bytes = self._size_bytes, 0
        if not batches:
            return
        log, segment = self._log, self._log.segments.active
        start = batches[0][0]
        began_s = self._services.now_s()
        if len(batches) > 1 and _written(segment, self._view[start : start + size_bytes]):
            self._services.append_took(log.directory, self._services.now_s() - began_s)
            for position, header in batches:
                self._note(segment, position, header)
            if log.log_end_offset - log.recovery_point >= log.config.flush_messages:
                log.flush()
        else:
            for position, header in batches:
                log.append_batch(header, self._slice(position, header), self._wall_ms)

    def _note(self, segment: Segment, position: int, header: BatchHeader) -> None:
        log = self._log
        base_offset, last_offset = header.base_offset, header.base_offset + header.last_offset_delta
        at = segment.size_bytes
        segment.note(header.size_bytes, last_offset, header.max_timestamp, log.limits)
        if header.producer_id >= 0:
            note_producer(log.producers, header, self._slice(position, header), segment)
        log.appended(base_offset, at, last_offset + 1)


def _written(segment: Segment, batches: memoryview) -> bool:
    """Writes the batches of a run to the segment. Returns False if nothing was written."""
    try:
        segment.prepare_append().append(batches)
    except OSError:
        return False
    segment.recently_used = True
    return True
