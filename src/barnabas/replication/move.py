"""The move of one replica to another log directory: its copy (the future log), and how the copy grows.

`moves` schedules each step. Only `read` runs in a thread; nothing else here waits.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from barnabas.common.host import Disk, File
from barnabas.records.batch import iter_headers
from barnabas.records.header import LOG_OVERHEAD, corrupt
from barnabas.replication.partition import Partition
from barnabas.storage.directories import root_of
from barnabas.storage.log import Log
from barnabas.storage.segment import Segment

#: The size of a slice in bytes, and its approximate number of batches: one or two milliseconds on the event loop.
_SLICE_BYTES_MAX = 512 * 1024
_SLICE_BYTES_MIN = 16 * 1024
_SLICE_BATCHES = 64
#: The maximum number of bytes in the last slice.
LAST_SLICE_BYTES = 128 * 1024
#: The maximum number of unsynced bytes in the copy.
UNSYNCED_BYTES_MAX = 32 * 1024 * 1024


class MoveStage(Enum):
    COPYING = "copying"
    REPORTING = "reporting"
    EXCHANGING = "exchanging"
    ENDED = "ended"


class MovePosition(NamedTuple):
    """The position of the next slice in the current log."""

    segment: Segment
    position: int
    size_bytes: int


class Move:
    """The move of one partition."""

    __slots__ = (
        "batch_bytes",
        "file",
        "file_of",
        "future",
        "generation",
        "missing",
        "partition",
        "place",
        "source",
        "stage",
        "target",
        "unsynced_bytes",
    )

    def __init__(self, partition: Partition, future: Log) -> None:
        self.partition = partition
        self.future = future
        self.source = root_of(partition.log.directory)
        self.target = root_of(future.directory)
        self.stage = MoveStage.COPYING
        #: A number that changes when the current log is truncated: data read before that must not be appended.
        self.generation = 0
        self.place: tuple[Segment, int] | None = None
        self.batch_bytes = 1024
        is_synced = future.recovery_point >= future.log_end_offset
        self.unsynced_bytes = 0 if is_synced else UNSYNCED_BYTES_MAX
        self.missing = 0
        self.file: File | None = None
        self.file_of: Segment | None = None

    @property
    def is_synced_less(self) -> bool:
        """Whether the copy has synced less than the current log, so that a power failure could lose more."""
        return self.future.recovery_point < self.partition.log.recovery_point

    def read(self, disk: Disk, place: MovePosition, path: str, end: int) -> bytes:
        """Reads a slice in a thread, one at a time. It contains at least one whole batch if there is one before
        `end`.
        """
        position = place.position
        if self.file is None or self.file_of is not place.segment:
            self.close_file()
            self.file, self.file_of = disk.open(path, read_only=True), place.segment
        data = self.file.read_at(position, min(place.size_bytes, end - position))
        if len(data) >= LOG_OVERHEAD:
            whole = LOG_OVERHEAD + int.from_bytes(data[8:LOG_OVERHEAD], "big", signed=True)
            if whole > len(data):
                data = self.file.read_at(position, min(whole, end - position))
        return data

    def close_file(self) -> None:
        file, self.file = self.file, None
        if file is not None:
            file.close()

    def follow_log_start(self) -> None:
        """Removes records that the current log no longer has, from the copy and from the part that is still to be
        copied. Raises StorageFault.
        """
        current, future = self.partition.log, self.future
        if future.log_end_offset > current.log_end_offset:
            future.truncate_to(current.log_end_offset)
            self.place = None
        start = current.log_start_offset
        if future.log_start_offset > start or future.log_end_offset <= start:
            place = self._locate(current, start)
            # The batch that contains the log start offset can begin before it.
            base = start if place is None else min(start, place[0].header_at(place[1]).base_offset)
            if future.log_start_offset > start or base != future.log_end_offset:
                future.truncate_fully_and_start_at(base)
                self.place = place
        if future.log_start_offset < start <= future.log_end_offset:
            future.delete_records_before(start)

    def next_place(self) -> MovePosition | None:
        """Returns the position where reading continues; None if everything is copied."""
        current, future = self.partition.log, self.future
        if future.log_end_offset >= current.log_end_offset:
            return None
        if self.place is None or not is_in(current, self.place[0]):
            self.place = self._locate(current, future.log_end_offset)
        while self.place is not None and self.place[1] >= self.place[0].size_bytes:
            segments = current.segments
            following = segments.place_of(self.place[0].base_offset) + 1
            self.place = (segments[following], 0) if following < len(segments) else None
        if self.place is None:
            # Compaction removed the last records, so no batch remains before the end.
            return None
        segment, position = self.place
        size = min(max(self.batch_bytes * _SLICE_BATCHES, _SLICE_BYTES_MIN), _SLICE_BYTES_MAX)
        return MovePosition(segment, position, min(size, segment.size_bytes - position))

    def _locate(self, current: Log, offset: int) -> tuple[Segment, int] | None:
        for segment in current.segments.from_offset(offset):
            position = segment.locate(offset)
            if position is not None:
                return segment, position
        return None

    def append(self, place: MovePosition, data: bytes) -> int:
        """Appends the whole batches of a slice; returns their size. Raises RecordsRejected, StorageFault."""
        future = self.future
        size = count = skipped = 0
        for position, header in iter_headers(data):
            size = position + header.size_bytes
            if header.next_offset <= future.log_end_offset and not count:
                skipped = size
                continue
            count += 1
        if count:
            future.append_as_follower(memoryview(data)[skipped:size])
            self.batch_bytes = max(1, (size - skipped) // count)
        elif not size:
            raise corrupt(f"no whole batch at byte {place.position} of {place.segment.log_path}")
        self.place = (place.segment, place.position + size)
        self.unsynced_bytes += size
        return size

    def fits_at_once(self, place: MovePosition) -> bool:
        """Returns whether the remaining part is small enough to be copied in one event."""
        segments = self.partition.log.segments
        if place.segment is not segments.active:
            return False
        return place.segment.size_bytes - place.position <= LAST_SLICE_BYTES


def is_in(log: Log, segment: Segment) -> bool:
    """Returns whether the segment is still part of the log."""
    segments = log.segments
    return bool(len(segments)) and segments[segments.place_of(segment.base_offset)] is segment
