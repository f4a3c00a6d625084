"""One replica on its way to another log directory: where its copy is, and how it grows.

Nothing here waits or decides when: `moves` does. Only `read` runs beside the loop.
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

#: A slice is at most so long, and has about so many batches: a millisecond or two on the loop.
_SLICE_BYTES_MAX = 512 * 1024
_SLICE_BYTES_MIN = 16 * 1024
_SLICE_BATCHES = 64
#: What the last slice may have at most.
LAST_SLICE_BYTES = 128 * 1024
#: So much of the copy is unsynced at most.
UNSYNCED_BYTES_MAX = 32 * 1024 * 1024


class Stage(Enum):
    COPYING = "copying"
    TELLING = "telling"
    EXCHANGING = "exchanging"
    ENDED = "ended"


class Place(NamedTuple):
    """Where the next slice begins in the current log."""

    segment: Segment
    position: int
    size_bytes: int


class Move:
    """One partition on its way."""

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
        self.stage = Stage.COPYING
        #: Changes when the current log is cut: what was read before is not to be appended.
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
        """Whether records that the current log would not lose with the power are not yet as safe in the copy."""
        return self.future.recovery_point < self.partition.log.recovery_point

    def read(self, disk: Disk, place: Place, path: str, end: int) -> bytes:
        """Beside the loop, one at a time. At least one whole batch, if there is one before `end`."""
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
        """Records that the current log no longer has are not to be copied, and go from the copy too. StorageFault."""
        current, future = self.partition.log, self.future
        if future.log_end_offset > current.log_end_offset:
            future.truncate_to(current.log_end_offset)
            self.place = None
        start = current.log_start_offset
        if future.log_start_offset > start or future.log_end_offset <= start:
            place = self._locate(current, start)
            # The batch that holds the log start may begin before it.
            base = start if place is None else min(start, place[0].header_at(place[1]).base_offset)
            if future.log_start_offset > start or base != future.log_end_offset:
                future.truncate_fully_and_start_at(base)
                self.place = place
        if future.log_start_offset < start <= future.log_end_offset:
            future.delete_records_before(start)

    def next_place(self) -> Place | None:
        """Where to read on; None when there is nothing more."""
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
            # Compaction took the last records away: the end is reached without a batch that says so.
            return None
        segment, position = self.place
        size = min(max(self.batch_bytes * _SLICE_BATCHES, _SLICE_BYTES_MIN), _SLICE_BYTES_MAX)
        return Place(segment, position, min(size, segment.size_bytes - position))

    def _locate(self, current: Log, offset: int) -> tuple[Segment, int] | None:
        for segment in current.segments.from_offset(offset):
            position = segment.locate(offset)
            if position is not None:
                return segment, position
        return None

    def append(self, place: Place, data: bytes) -> int:
        """The whole batches of a slice, at least one; how many bytes. Raises RecordsRejected, StorageFault."""
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

    def fits_at_once(self, place: Place) -> bool:
        """Whether what is left can be copied without leaving the loop."""
        segments = self.partition.log.segments
        if place.segment is not segments.active:
            return False
        return place.segment.size_bytes - place.position <= LAST_SLICE_BYTES


def is_in(log: Log, segment: Segment) -> bool:
    """Whether it still is one of the log's."""
    segments = log.segments
    return bool(len(segments)) and segments[segments.place_of(segment.base_offset)] is segment
