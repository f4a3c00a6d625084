"""One segment: a `.log` file of whole batches and its sparse indexes.

Invariants
- `size_bytes` is the end of the last whole batch that was written; nothing is read beyond it.
- An index entry is written before the first append that begins more than `index.interval.bytes` after the last one; the
  time index gets its last entry when the segment is rolled or closed.
Descriptors are opened when needed and may be taken away again (`release`); what is known of timestamps is read from
the files when somebody asks.
"""

from __future__ import annotations

import struct

from barnabas.common.host import Buffer, Disk, File
from barnabas.common.log_config import LogConfig
from barnabas.records.batch import BatchHeader, decode_batch, read_header
from barnabas.records.header import HEADER_BYTES, LOG_OVERHEAD, MAGIC_OFFSET, MAGIC_V2
from barnabas.storage.checkpoints import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    file_name,
)
from barnabas.storage.index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, OffsetIndex, TimeIndex
from barnabas.storage.transactions import TransactionIndex

_SCAN_BYTES = 64 * 1024
_LOCATE_BYTES = 8 * 1024
_MAX_INT = 0x7FFFFFFF
#: base offset, batch length, and from byte 16: magic, crc, attributes, last offset delta
_PLACE = struct.Struct(">qi4xBIhi")


class Descriptors:
    """Bounds the open `.log` files of a broker: the one that was opened first is closed for the next."""

    __slots__ = ("_limit", "_open")

    def __init__(self, limit: int = 1000) -> None:
        self._limit = limit
        self._open: dict[Segment, None] = {}

    def opened(self, segment: Segment) -> None:
        while len(self._open) >= self._limit:
            next(iter(self._open)).release()
        self._open[segment] = None

    def closed(self, segment: Segment) -> None:
        self._open.pop(segment, None)

    def __len__(self) -> int:
        return len(self._open)


class Segment:
    """Positions are bytes into the `.log` file."""

    __slots__ = (
        "_descriptors",
        "_disk",
        "_file",
        "_first_timestamp",
        "_largest",
        "_unindexed_bytes",
        "base_offset",
        "created_ms",
        "directory",
        "index",
        "size_bytes",
        "time_index",
        "txn_index",
    )

    def __init__(self, disk: Disk, directory: str, base_offset: int, created_ms: int, descriptors: Descriptors) -> None:
        self._disk = disk
        self._descriptors = descriptors
        self.directory = directory
        self.base_offset = base_offset
        self.created_ms = created_ms
        self.index = OffsetIndex(disk, self.path(INDEX_SUFFIX), base_offset)
        self.time_index = TimeIndex(disk, self.path(TIME_INDEX_SUFFIX), base_offset)
        self.txn_index = TransactionIndex(disk, self.path(TXN_INDEX_SUFFIX))
        self._file: File | None = None
        self._unindexed_bytes = 0
        self.size_bytes = 0
        #: (largest timestamp, offset) so far; None until it was read.
        self._largest: tuple[int, int] | None = (-1, base_offset)
        self._first_timestamp: int | None = None

    def path(self, suffix: str) -> str:
        return f"{self.directory}/{file_name(self.base_offset, suffix)}"

    @property
    def file(self) -> File:
        if self._file is None:
            self._file = self._disk.open(self.path(LOG_SUFFIX), create=True)
            self._descriptors.opened(self)
        return self._file

    # -- opening

    def create(self) -> None:
        """An empty segment, its three files there."""
        for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            self._disk.write(self.path(suffix), b"")

    def restart(self, created_ms: int) -> None:
        """An empty segment whose indexes or age are used up begins anew."""
        assert self.size_bytes == 0, "only an empty segment begins anew"
        self.index.clear()
        self.time_index.clear()
        self.created_ms = created_ms
        self._largest, self._first_timestamp = (-1, self.base_offset), None

    def open_clean(self) -> None:
        """Take the files as a clean stop left them."""
        self.size_bytes = self._disk.size(self.path(LOG_SUFFIX))
        self._largest = None if self.size_bytes else (-1, self.base_offset)

    def recover(self, interval_bytes: int, keep_bytes: int) -> None:
        """The first `keep_bytes` are whole, checked batches: cut the rest and build the indexes anew."""
        if self.file.size() != keep_bytes:
            self.file.truncate(keep_bytes)
        self.size_bytes = keep_bytes
        self.index.clear()
        self.time_index.clear()
        self._unindexed_bytes = 0
        self._first_timestamp = None
        largest = (-1, self.base_offset)
        for position, header in self.headers(0):
            if header.max_timestamp > largest[0]:
                largest = (header.max_timestamp, header.last_offset)
            if self._unindexed_bytes > interval_bytes:
                self.index.append(header.last_offset, position)
                self.time_index.maybe_append(*largest)
                self._unindexed_bytes = 0
            self._unindexed_bytes += header.size_bytes
        self._largest = largest

    def largest_timestamp(self) -> tuple[int, int]:
        """(largest timestamp, an offset up to which none is larger); (-1, base offset) if there is none."""
        if self._largest is None:
            timestamp, offset = self.time_index.last()
            for _, header in self.headers(self.index.lookup(offset)[1]):
                if header.max_timestamp > timestamp:
                    timestamp, offset = header.max_timestamp, header.last_offset
            self._largest = (timestamp, offset)
        return self._largest

    def first_timestamp(self) -> int | None:
        """Largest timestamp of the first batch, from which `segment.ms` counts; None for an empty segment."""
        if self._first_timestamp is None and self.size_bytes:
            for _, header in self.headers(0):
                self._first_timestamp = header.max_timestamp
                break
        return self._first_timestamp

    # -- writing

    def should_roll(
        self, config: LogConfig, size_bytes: int, last_offset: int, max_timestamp: int, wall_ms: int, jitter_ms: int
    ) -> bool:
        """Whether a batch of that size must go to a new segment: by size, age of its records, or index space."""
        if self.size_bytes > config.segment_bytes - size_bytes or last_offset - self.base_offset > _MAX_INT:
            return True
        if self.size_bytes and self._is_old(config.segment_ms - jitter_ms, max_timestamp, wall_ms):
            return True
        room = config.segment_index_bytes
        return (
            self.index.size_bytes + OFFSET_ENTRY_BYTES > room
            or self.time_index.size_bytes + 2 * TIME_ENTRY_BYTES > room
        )

    def _is_old(self, limit_ms: int, max_timestamp: int, wall_ms: int) -> bool:
        first = self._first_timestamp
        if first is None:
            first = self.first_timestamp()
        if first is not None and first >= 0 and max_timestamp >= 0:
            return max_timestamp - first > limit_ms
        return wall_ms - self.created_ms > limit_ms

    def append(self, batch: Buffer, last_offset: int, max_timestamp: int, interval_bytes: int) -> None:
        """Write a batch that ends at `last_offset`. OSError leaves the segment as it was."""
        position = self.size_bytes
        length = len(batch)
        (self._file or self.file).append(batch)
        self.size_bytes = position + length
        if position == 0:
            self._first_timestamp = max_timestamp
        largest = self._largest or self.largest_timestamp()
        if max_timestamp > largest[0]:
            largest = self._largest = (max_timestamp, last_offset)
        if self._unindexed_bytes > interval_bytes:
            self.index.append(last_offset, position)
            self.time_index.maybe_append(*largest)
            self._unindexed_bytes = 0
        self._unindexed_bytes += length

    def become_inactive(self) -> None:
        """The segment is full: its time index gets the last entry."""
        timestamp, offset = self.largest_timestamp()
        if timestamp >= 0:
            self.time_index.maybe_append(timestamp, offset)

    def truncate_to(self, offset: int) -> None:
        """Cut off the batch that holds `offset` and all behind it."""
        position = self.locate(offset)
        if position is not None:
            self.file.truncate(position)
            self.size_bytes = position
        self.index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.txn_index.truncate_to(offset)
        self._unindexed_bytes = 0
        self._first_timestamp = None
        self._largest = None if self.size_bytes else (-1, self.base_offset)

    # -- reading

    def read(self, position: int, size: int) -> bytes:
        return self.file.read_at(position, min(size, self.size_bytes - position))

    def headers(self, position: int) -> HeaderScan:
        """(position, header) of the batches from a batch's position on."""
        return HeaderScan(self, position)

    def locate(self, offset: int) -> int | None:
        """The position of the first batch whose last offset is at or above `offset`, None if there is none."""
        _, position = self.index.lookup(offset)
        end = self.size_bytes
        buffer, start = b"", position
        while end - position >= LOG_OVERHEAD:
            inside = position - start
            if len(buffer) - inside < min(_PLACE.size, end - position):
                start, inside = position, 0
                buffer = self.read(position, _LOCATE_BYTES)
            if len(buffer) - inside >= _PLACE.size and buffer[inside + MAGIC_OFFSET] == MAGIC_V2:
                base_offset, length, _, _, _, delta = _PLACE.unpack_from(buffer, inside)
                last_offset = base_offset + delta
            else:
                header = read_header(self.read(position, _LOCATE_BYTES))
                length, last_offset = header.batch_length, header.last_offset
            if last_offset >= offset:
                return position
            position += length + LOG_OVERHEAD
        return None

    def last_indexed_position(self) -> int:
        """Of the batch that the last index entry names."""
        count = len(self.index)
        return self.index.entry(count - 1)[1] if count else 0

    def find_timestamp(self, timestamp: int, from_offset: int) -> tuple[int, int, int] | None:
        """(timestamp, offset, leader epoch) of the first record at or above `from_offset` with at least this time."""
        _, offset = self.time_index.lookup(timestamp)
        _, position = self.index.lookup(offset)
        for at, header in self.headers(position):
            if header.max_timestamp < timestamp or header.last_offset < from_offset:
                continue
            for record in decode_batch(self.read(at, header.size_bytes)):
                if record.timestamp >= timestamp and record.offset >= from_offset:
                    return record.timestamp, record.offset, header.partition_leader_epoch
        return None

    # -- life

    def flush(self) -> None:
        self.file.sync()
        self.index.sync()
        self.time_index.sync()
        self.txn_index.sync()

    def release_index(self) -> None:
        """Give back the memory of the indexes; they are read again when needed."""
        self.index.release()
        self.time_index.release()
        self.txn_index.release()

    def release(self) -> None:
        """Close what is open; it opens again by itself."""
        if self._file is not None:
            self._file.close()
            self._file = None
            self._descriptors.closed(self)
        self.release_index()

    def moved(self, directory: str) -> None:
        """Its directory has another name now."""
        self.directory = directory
        self.index.path = self.path(INDEX_SUFFIX)
        self.time_index.path = self.path(TIME_INDEX_SUFFIX)
        self.txn_index.path = self.path(TXN_INDEX_SUFFIX)

    def mark_deleted(self) -> list[str]:
        """Rename all files to `.deleted`; returns what is to be removed later."""
        self.release()
        marked = []
        for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX):
            path = self.path(suffix)
            if self._disk.exists(path):
                self._disk.rename(path, path + DELETED_SUFFIX)
                marked.append(path + DELETED_SUFFIX)
        return marked


class HeaderScan:
    """Iterates over the headers of a segment, reading it in slices."""

    __slots__ = ("_buffer", "_position", "_segment", "_start")

    def __init__(self, segment: Segment, position: int) -> None:
        self._segment = segment
        self._position = position
        self._start = position
        self._buffer = b""

    def __iter__(self) -> HeaderScan:
        return self

    def __next__(self) -> tuple[int, BatchHeader]:
        position = self._position
        left = self._segment.size_bytes - position
        if left < LOG_OVERHEAD:
            raise StopIteration
        inside = position - self._start
        if len(self._buffer) - inside < min(2 * HEADER_BYTES, left):
            self._start, inside = position, 0
            self._buffer = self._segment.read(position, _SCAN_BYTES)
        header = read_header(self._buffer, inside)
        self._position = position + header.size_bytes
        return position, header
