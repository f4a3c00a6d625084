"""The sparse indexes of one segment, in Kafka's format, big-endian.

    .index      8 bytes an entry: offset - base offset (int32), position in the .log (int32)
    .timeindex  12 bytes an entry: timestamp (int64), offset - base offset (int32)

Entries ascend strictly by offset. An offset entry names the last offset of the batch at that position; a time entry
states that no record up to its offset has a larger timestamp.

An index is read into memory when needed, and freed by `release`. New entries are written in blocks, at the latest by
`write_out`: after a crash missing ones are rebuilt from the log, so nothing depends on them. `Segment.note` determines
which batches get an entry. No index keeps a descriptor open. A file that a Java broker left at its full preallocated
size ends in zeros; these are not entries.
"""

from __future__ import annotations

import struct

from barnabas.common.errors import is_exhausted, is_full
from barnabas.common.host import Disk

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
OFFSET_ENTRY_BYTES = _OFFSET_ENTRY.size
TIME_ENTRY_BYTES = _TIME_ENTRY.size
_BLOCK_BYTES = 4096
#: A larger index is read in the background even if it is in the page cache.
_LOADED_AT_ONCE_BYTES = 1 << 20


class _Index:
    """The base of both indexes: a file of entries of equal size."""

    __slots__ = (
        "_base_offset",
        "_data",
        "_disk",
        "_entry_bytes",
        "_unsynced",
        "_written_bytes",
        "is_rewritten",
        "path",
    )

    def __init__(self, disk: Disk, path: str, base_offset: int, entry_bytes: int) -> None:
        self._disk = disk
        self._base_offset = base_offset
        self._entry_bytes = entry_bytes
        self._unsynced = False
        #: Entries were removed, and this is not synced: the disk can still have a different index.
        self.is_rewritten = False
        self.path = path
        #: The bytes of all entries; None until they are needed.
        self._data: bytearray | None = None
        #: The number of bytes that are in the file.
        self._written_bytes = 0

    def __len__(self) -> int:
        return len(self._load()) // self._entry_bytes

    def _load(self) -> bytearray:
        data = self._data
        if data is None:
            data = bytearray(self._disk.read(self.path)) if self._disk.exists(self.path) else bytearray()
            self.adopt(data)
        return data

    @property
    def is_loaded(self) -> bool:
        return self._data is not None

    @property
    def loaded(self) -> bytearray | None:
        """The bytes of all entries if they are in memory, for another index to `adopt`."""
        return self._data

    def load_cached(self) -> bool:
        """Loads the index if this does not wait for the disk. Returns whether it is in memory."""
        if self._data is not None:
            return True
        if not self._disk.exists(self.path):
            self._load()
            return True
        file = self._disk.open(self.path, read_only=True)
        try:
            size = file.size()
            found = file.read_at_nowait(0, size) if size <= _LOADED_AT_ONCE_BYTES else None
        finally:
            file.close()
        if found is None:
            return False
        self.adopt(bytearray(found))
        return True

    def adopt(self, data: bytearray) -> None:
        """Adopts the bytes of the index file, which another reader has read."""
        del data[self._sound_count(data) * self._entry_bytes :]
        self._data = data
        self._written_bytes = len(data)

    def _sound_count(self, data: bytearray) -> int:
        """Returns the number of entries before the zeros that a Java broker preallocated. Only the first entry can be
        all zeros.
        """
        low, high = 0, len(data) // self._entry_bytes
        if high == 0 or not self._is_blank(data, high - 1):
            return high
        while low < high:
            middle = (low + high) // 2
            if self._is_blank(data, middle):
                high = middle
            else:
                low = middle + 1
        return low

    def _is_blank(self, data: bytearray, place: int) -> bool:
        start = place * self._entry_bytes
        return not any(data[start : start + self._entry_bytes])

    def _append(self, entry: bytes) -> None:
        data = self._load()
        data += entry
        if len(data) - self._written_bytes >= _BLOCK_BYTES:
            self.try_to_write_out()

    def try_to_write_out(self) -> None:
        """Writes as `write_out` does; if the disk is full the entries stay in memory, so that an append does not fail
        because of them."""
        try:
            self.write_out()
        except OSError as error:
            if not is_exhausted(error):
                raise

    def _keep(self, count: int) -> None:
        data = self._load()
        if count * self._entry_bytes == len(data):
            return
        self.is_rewritten = True
        del data[count * self._entry_bytes :]
        self._written_bytes = min(self._written_bytes, len(data))
        self._write(data)

    def write_out(self) -> None:
        """Writes the index entries that are only in memory."""
        data = self._data
        if data is not None and self._written_bytes != len(data):
            self._write(data)

    def _write(self, data: bytearray) -> None:
        file = self._disk.open(self.path, create=True)
        try:
            if file.size() != self._written_bytes:
                file.truncate(self._written_bytes)
            if self._written_bytes != len(data):
                file.append(bytes(memoryview(data)[self._written_bytes :]))
        finally:
            file.close()
        self._written_bytes = len(data)
        self._unsynced = True

    def load(self) -> None:
        """Loads the index entries into memory. Raises OSError."""
        self._load()

    def try_to_trim(self) -> None:
        """Trims the index file as `trim` does; leaves it longer if the disk is full."""
        try:
            self.trim()
        except OSError as error:
            if not is_exhausted(error):
                raise

    def trim(self) -> None:
        """Makes the file exactly as long as its entries, without zeros after them."""
        data = self._load()
        if not self._disk.exists(self.path) or self._disk.size(self.path) != len(data):
            self._write(data)

    def sync(self) -> None:
        self.write_out()
        if self._unsynced:
            file = self._disk.open(self.path, read_only=True)
            try:
                file.sync()
            finally:
                file.close()
            self._unsynced = False
        self.is_rewritten = False

    def clear(self) -> None:
        self.is_rewritten = True
        self._data = bytearray()
        self._written_bytes = 0
        try:
            self._write(self._data)
        except OSError as error:
            # The file does not exist and there is no space for it; the first entries create it.
            if not is_full(error):
                raise

    def release(self) -> None:
        """Frees the memory; the index is read again when needed. Entries that are not in the file stay."""
        if self._data is not None and self._written_bytes == len(self._data):
            self._data = None


class OffsetIndex(_Index):
    """The offset index: approximate positions of offsets in the segment."""

    __slots__ = ()

    def __init__(self, disk: Disk, path: str, base_offset: int) -> None:
        super().__init__(disk, path, base_offset, OFFSET_ENTRY_BYTES)

    def entry(self, place: int) -> tuple[int, int]:
        """Returns (offset, position) of an entry."""
        relative, position = _OFFSET_ENTRY.unpack_from(self._load(), place * OFFSET_ENTRY_BYTES)
        return self._base_offset + relative, position

    def columns(self) -> tuple[list[int], list[int]]:
        """Returns the offsets, relative to the base offset, and the positions of all entries."""
        numbers = struct.unpack(f">{2 * len(self)}i", self._load())
        return list(numbers[0::2]), list(numbers[1::2])

    def append(self, offset: int, position: int) -> None:
        self._append(_OFFSET_ENTRY.pack(offset - self._base_offset, position))

    def lookup(self, offset: int) -> tuple[int, int]:
        """Returns the last entry at or below `offset`; the segment's beginning if there is none."""
        place = self._count_below(offset + 1) - 1
        return self.entry(place) if place >= 0 else (self._base_offset, 0)

    def last(self) -> tuple[int, int]:
        """Returns the last entry; the segment's beginning if there is none."""
        count = len(self)
        return self.entry(count - 1) if count else (self._base_offset, 0)

    def truncate_to(self, offset: int) -> None:
        """Removes the entries of records at or above `offset`."""
        self._keep(self._count_below(offset))

    def _count_below(self, offset: int) -> int:
        data = self._load()
        unpack_from = _OFFSET_ENTRY.unpack_from
        relative = offset - self._base_offset
        low, high = 0, len(data) // OFFSET_ENTRY_BYTES
        while low < high:
            middle = (low + high) // 2
            if unpack_from(data, middle * OFFSET_ENTRY_BYTES)[0] < relative:
                low = middle + 1
            else:
                high = middle
        return low


class TimeIndex(_Index):
    """The time index: offsets up to which no timestamp is larger."""

    __slots__ = ()

    def __init__(self, disk: Disk, path: str, base_offset: int) -> None:
        super().__init__(disk, path, base_offset, TIME_ENTRY_BYTES)

    def entry(self, place: int) -> tuple[int, int]:
        """Returns (timestamp, offset) of an entry."""
        timestamp, relative = _TIME_ENTRY.unpack_from(self._load(), place * TIME_ENTRY_BYTES)
        return timestamp, self._base_offset + relative

    def last(self) -> tuple[int, int]:
        """Returns the last entry; (-1, base offset) if there is none."""
        count = len(self)
        return self.entry(count - 1) if count else (-1, self._base_offset)

    def columns(self) -> tuple[list[int], list[int]]:
        """Returns the timestamps, and the offsets relative to the base offset, of all entries."""
        entries = list(_TIME_ENTRY.iter_unpack(self._load()))
        return [timestamp for timestamp, _ in entries], [relative for _, relative in entries]

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Adds an entry if its timestamp is larger than that of the last one."""
        if timestamp > self.last()[0]:
            self._append(_TIME_ENTRY.pack(timestamp, offset - self._base_offset))

    def lookup(self, timestamp: int) -> tuple[int, int]:
        """Returns the last entry at or below `timestamp`; (-1, base offset) if there is none."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self.entry(middle)[0] <= timestamp:
                low = middle + 1
            else:
                high = middle
        return self.entry(low - 1) if low else (-1, self._base_offset)

    def truncate_to(self, offset: int) -> None:
        """Removes the entries of records at or above `offset`."""
        count = len(self)
        while count and self.entry(count - 1)[1] >= offset:
            count -= 1
        self._keep(count)
