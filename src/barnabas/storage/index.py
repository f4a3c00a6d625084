"""The sparse indexes of one segment, in Kafka's bytes, big-endian.

    .index      8 bytes an entry: offset - base offset (int32), position in the .log (int32)
    .timeindex  12 bytes an entry: timestamp (int64), offset - base offset (int32)

Entries rise strictly in offset; a time index entry says that no record up to its offset has a larger timestamp. Entries
are kept in memory as the bytes of the file, once somebody asks; what is appended goes to the file at once. A file that
Kafka left preallocated ends in zeros: reading stops at the first entry that does not rise.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from barnabas.common.host import Disk, File

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
OFFSET_ENTRY_BYTES = _OFFSET_ENTRY.size
TIME_ENTRY_BYTES = _TIME_ENTRY.size


class _Entries:
    """A file of entries of one size, with all of it in memory while it is in use."""

    __slots__ = ("_disk", "_entry_bytes", "_file", "_sound_bytes", "data", "path")

    def __init__(self, disk: Disk, path: str, entry_bytes: int, sound_bytes: Callable[[bytes], int]) -> None:
        self._disk = disk
        self._entry_bytes = entry_bytes
        self._sound_bytes = sound_bytes
        self._file: File | None = None
        self.path = path
        #: The sound entries' bytes; None until they are needed.
        self.data: bytearray | None = None

    def load(self) -> bytearray:
        data = self.data
        if data is None:
            raw = self._disk.read(self.path) if self._disk.exists(self.path) else b""
            data = self.data = bytearray(raw[: self._sound_bytes(raw)])
        return data

    def append(self, entry: bytes) -> None:
        data = self.load()
        if self._file is None:
            self._file = self._disk.open(self.path, create=True)
            if self._file.size() != len(data):
                self._file.truncate(len(data))
        self._file.append(entry)
        data += entry

    def truncate(self, count: int) -> None:
        """Keep the first `count` entries, in the file too."""
        data = self.load()
        size = count * self._entry_bytes
        del data[size:]
        if self._file is None:
            self._file = self._disk.open(self.path, create=True)
        if self._file.size() != size:
            self._file.truncate(size)

    def sync(self) -> None:
        if self._file is not None:
            self._file.sync()

    def release(self) -> None:
        """Give back descriptor and memory; both come again when needed."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self.data = None


def _sound_offset_bytes(raw: bytes) -> int:
    previous = -1
    end = len(raw) - len(raw) % OFFSET_ENTRY_BYTES
    for start in range(0, end, OFFSET_ENTRY_BYTES):
        relative, position = _OFFSET_ENTRY.unpack_from(raw, start)
        if relative <= previous or (start and position == 0):
            return start
        previous = relative
    return end


def _sound_time_bytes(raw: bytes) -> int:
    previous_time, previous_offset = -1, -1
    end = len(raw) - len(raw) % TIME_ENTRY_BYTES
    for start in range(0, end, TIME_ENTRY_BYTES):
        timestamp, relative = _TIME_ENTRY.unpack_from(raw, start)
        if timestamp < previous_time or relative <= previous_offset:
            return start
        previous_time, previous_offset = timestamp, relative
    return end


class OffsetIndex:
    """Where in the segment an offset is, roughly."""

    __slots__ = ("_base_offset", "_entries")

    def __init__(self, disk: Disk, path: str, base_offset: int) -> None:
        self._base_offset = base_offset
        self._entries = _Entries(disk, path, OFFSET_ENTRY_BYTES, _sound_offset_bytes)

    @property
    def path(self) -> str:
        return self._entries.path

    @path.setter
    def path(self, path: str) -> None:
        self._entries.path = path

    def __len__(self) -> int:
        return len(self._entries.load()) // OFFSET_ENTRY_BYTES

    @property
    def size_bytes(self) -> int:
        return len(self._entries.load())

    def entry(self, place: int) -> tuple[int, int]:
        """(offset, position)"""
        relative, position = _OFFSET_ENTRY.unpack_from(self._entries.load(), place * OFFSET_ENTRY_BYTES)
        return self._base_offset + relative, position

    def append(self, offset: int, position: int) -> None:
        """No-op for an offset that is not above the last entry's."""
        count = len(self)
        if count and offset <= self.entry(count - 1)[0]:
            return
        self._entries.append(_OFFSET_ENTRY.pack(offset - self._base_offset, position))

    def lookup(self, offset: int) -> tuple[int, int]:
        """The last entry at or below `offset`; the segment's beginning if there is none."""
        place = self._last_at_or_below(offset)
        return self.entry(place) if place >= 0 else (self._base_offset, 0)

    def first_position_above(self, position: int) -> int | None:
        """The position of the first entry above this one, or None."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self.entry(middle)[1] > position:
                high = middle
            else:
                low = middle + 1
        return self.entry(low)[1] if low < len(self) else None

    def truncate_to(self, offset: int) -> None:
        """Drop entries for records at or above `offset`."""
        self._entries.truncate(self._last_at_or_below(offset - 1) + 1)

    def clear(self) -> None:
        self._entries.truncate(0)

    def sync(self) -> None:
        self._entries.sync()

    def release(self) -> None:
        self._entries.release()

    def _last_at_or_below(self, offset: int) -> int:
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self.entry(middle)[0] <= offset:
                low = middle + 1
            else:
                high = middle
        return low - 1


class TimeIndex:
    """Up to which offset all timestamps are at most so large."""

    __slots__ = ("_base_offset", "_entries")

    def __init__(self, disk: Disk, path: str, base_offset: int) -> None:
        self._base_offset = base_offset
        self._entries = _Entries(disk, path, TIME_ENTRY_BYTES, _sound_time_bytes)

    @property
    def path(self) -> str:
        return self._entries.path

    @path.setter
    def path(self, path: str) -> None:
        self._entries.path = path

    def __len__(self) -> int:
        return len(self._entries.load()) // TIME_ENTRY_BYTES

    @property
    def size_bytes(self) -> int:
        return len(self._entries.load())

    def entry(self, place: int) -> tuple[int, int]:
        """(timestamp, offset)"""
        timestamp, relative = _TIME_ENTRY.unpack_from(self._entries.load(), place * TIME_ENTRY_BYTES)
        return timestamp, self._base_offset + relative

    def last(self) -> tuple[int, int]:
        """The last entry, (-1, base offset) if there is none."""
        count = len(self)
        return self.entry(count - 1) if count else (-1, self._base_offset)

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Only for a larger timestamp than the last entry's."""
        last_timestamp, last_offset = self.last()
        if timestamp > last_timestamp and (offset > last_offset or not len(self)):
            self._entries.append(_TIME_ENTRY.pack(timestamp, offset - self._base_offset))

    def lookup(self, timestamp: int) -> tuple[int, int]:
        """The last entry at or below `timestamp`; (-1, base offset) if there is none."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self.entry(middle)[0] <= timestamp:
                low = middle + 1
            else:
                high = middle
        return self.entry(low - 1) if low else (-1, self._base_offset)

    def truncate_to(self, offset: int) -> None:
        """Drop entries for records at or above `offset`."""
        count = len(self)
        while count and self.entry(count - 1)[1] >= offset:
            count -= 1
        self._entries.truncate(count)

    def clear(self) -> None:
        self._entries.truncate(0)

    def sync(self) -> None:
        self._entries.sync()

    def release(self) -> None:
        self._entries.release()
