"""A file of consecutive batches: opened when needed, scanned by header, searched by offset."""

from __future__ import annotations

import struct
from collections import OrderedDict

from barnabas.common.errors import lacks_descriptors
from barnabas.common.host import Buffer, Disk, File
from barnabas.records.batch import BatchHeader, read_header
from barnabas.records.header import HEADER_BYTES, LOG_OVERHEAD, MAGIC_OFFSET, MAGIC_V2, PREFIX_BYTES, corrupt

#: The limit is never lowered below this when the system has no free descriptors.
_DESCRIPTORS_MIN = 16
_SCAN_BYTES = 64 * 1024
#: Headers of batches of at least this size are read one by one, without the data between them.
_LARGE_BYTES = 8 * 1024
_LOCATE_BYTES = 8 * 1024
#: base offset, batch length, and from byte 16: magic, crc, attributes, last offset delta
_PLACE = struct.Struct(">qi4xBIhi")


class NotCachedError(Exception):
    """The error for data that is not in memory; the caller then reads it in the background."""


class Descriptors:
    """Limits the number of open `.log` files of a broker. At the limit, it closes the file that was unused for longest
    when use was last checked.
    """

    __slots__ = ("_limit", "_open")

    def __init__(self, limit: int = 500) -> None:
        self._limit = limit
        self._open: OrderedDict[BatchFile, None] = OrderedDict()

    def opened(self, segment: BatchFile) -> None:
        waiting = self._open
        while len(waiting) >= self._limit:
            oldest = next(iter(waiting))
            if oldest.recently_used:
                oldest.recently_used = False
                waiting.move_to_end(oldest)
            else:
                oldest.release()
        waiting[segment] = None

    def closed(self, segment: BatchFile) -> None:
        self._open.pop(segment, None)

    def close_least_used(self, error: OSError) -> bool:
        """Closes files if the error was a lack of descriptors. Returns whether some were closed, so that a retry makes
        sense.
        """
        return lacks_descriptors(error) and self.close_half()

    def close_half(self) -> bool:
        """Closes half of the open files after the system ran out of descriptors, and lowers the limit to the rest.
        Returns False if none was open."""
        victims = list(self._open)[: (len(self._open) + 1) // 2]
        for segment in victims:
            segment.release()
        self._limit = max(_DESCRIPTORS_MIN, min(self._limit, len(self._open)))
        return bool(victims)

    def __len__(self) -> int:
        return len(self._open)


class BatchFile:
    """A file of record batches. Positions are bytes into it. Nothing is read beyond `size_bytes`, the end of the last
    complete batch.
    """

    __slots__ = ("_descriptors", "_disk", "_file", "log_path", "read_end", "recently_used", "size_bytes", "version")

    def __init__(self, disk: Disk, log_path: str, descriptors: Descriptors) -> None:
        self._disk = disk
        self._descriptors = descriptors
        self._file: File | None = None
        self.log_path = log_path
        self.recently_used = False
        self.size_bytes = 0
        #: A number that changes whenever bytes below `size_bytes` change.
        self.version = 0
        #: The end of the last read of records, which distinguishes sequential reads from random ones.
        self.read_end = 0

    @property
    def file(self) -> File:
        if self._file is None:
            self._file = self._open()
            self._descriptors.opened(self)
        return self._file

    def _open(self) -> File:
        """Opens the file. A missing file is an error; it is never created here."""
        while True:
            try:
                return self._disk.open(self.log_path)
            except OSError as error:
                if not lacks_descriptors(error) or not self._descriptors.close_half():
                    raise

    def read(self, position: int, size: int) -> bytes:
        self.recently_used = True
        left = self.size_bytes - position
        return (self._file or self.file).read_at(position, size if size < left else left)

    def read_cached(self, position: int, size: int) -> Buffer:
        """Reads as `read` does, without waiting for the disk. Raises NotCachedError."""
        self.recently_used = True
        left = self.size_bytes - position
        data = (self._file or self.file).read_at_nowait(position, size if size < left else left)
        if data is None:
            raise NotCachedError
        return data

    def header_at(self, position: int, *, cached: bool = False) -> BatchHeader:
        """Returns the header of the batch at this position. Raises RecordsRejected if there is none."""
        read = self.read_cached if cached else self.read
        data = read(position, HEADER_BYTES)
        if len(data) >= PREFIX_BYTES and data[MAGIC_OFFSET] < MAGIC_V2:
            # The header of an old format needs the whole entry.
            data = read(position, LOG_OVERHEAD + int.from_bytes(data[8:LOG_OVERHEAD], "big"))
        return read_header(data)

    def headers(self, position: int) -> HeaderScan:
        """Returns an iterator of (position, header) from the position of a batch on."""
        return HeaderScan(self, position)

    def search(self, offset: int, position: int, *, cached: bool = False) -> int | None:
        """Returns the position of the first batch from `position` on whose last offset is at or above `offset`, or
        None."""
        read = self.read_cached if cached else self.read
        end = self.size_bytes
        buffer: Buffer = b""
        start = position
        while end - position >= LOG_OVERHEAD:
            inside = position - start
            if len(buffer) - inside < HEADER_BYTES:
                start, inside = position, 0
                buffer = read(position, _LOCATE_BYTES)
            if len(buffer) - inside >= HEADER_BYTES and buffer[inside + MAGIC_OFFSET] == MAGIC_V2:
                base_offset, length, _, _, _, delta = _PLACE.unpack_from(buffer, inside)
                last_offset = base_offset + delta
                if length < HEADER_BYTES - LOG_OVERHEAD:
                    raise corrupt(f"a batch of {length} bytes at byte {position} of {self.log_path}")
            else:
                header = self.header_at(position, cached=cached)
                length, last_offset = header.batch_length, header.last_offset
            if last_offset >= offset:
                return position
            position += length + LOG_OVERHEAD
        return None

    def release(self) -> None:
        """Closes the file and frees its memory; it is opened again when needed."""
        if self._file is not None:
            self._file.close()
            self._file = None
            self._descriptors.closed(self)


class HeaderScan:
    """An iterator over the batch headers of a file: reads it in slices, or only the headers if batches are large."""

    __slots__ = ("_are_large", "_buffer", "_file", "_position", "_start")

    def __init__(self, file: BatchFile, position: int) -> None:
        self._file = file
        self._position = position
        self._start = position
        self._buffer = b""
        self._are_large = False

    def __iter__(self) -> HeaderScan:
        return self

    def __next__(self) -> tuple[int, BatchHeader]:
        position = self._position
        left = self._file.size_bytes - position
        if left < LOG_OVERHEAD:
            raise StopIteration
        inside = position - self._start
        if len(self._buffer) - inside < min(HEADER_BYTES, left):
            self._start, inside = position, 0
            self._buffer = self._file.read(position, HEADER_BYTES if self._are_large else _SCAN_BYTES)
        if len(self._buffer) - inside >= HEADER_BYTES and self._buffer[inside + MAGIC_OFFSET] == MAGIC_V2:
            header = read_header(self._buffer, inside)
        else:
            header = self._file.header_at(position)
        size = header.size_bytes
        self._are_large = size >= _LARGE_BYTES
        self._position = position + size
        return position, header
