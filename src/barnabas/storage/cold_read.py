"""Reads that the page cache cannot serve: prepared on the loop, executed in a thread, taken over on the loop.

    Log.read_cached -> ColdRead      what is to be read, copied from the current state of the log
    ColdRead.load                    in a thread, with descriptors and indexes of its own; touches nothing shared
    Log.take(cold) -> LogRead        if the log is still the one that was read; None if not, then the read is repeated

The log can change in any way between the first and the last step. Bytes below `size_bytes` only change with the
segment's `version` (truncation, deletion) or with the segment itself (compaction): a result of another version, or of a
segment that is no longer in the log, is discarded, whatever the thread read from files that were renamed meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from barnabas.common.errors import RecordsRejected, without_frames
from barnabas.common.host import Buffer, Disk, File
from barnabas.records.header import HEADER_BYTES, LEGACY_MIN_BYTES, LOG_OVERHEAD, corrupt
from barnabas.storage.batch_file import Descriptors
from barnabas.storage.segment import Segment
from barnabas.storage.transaction_index import AbortedTxn, read_entries

#: The number of bytes to prefetch into the page cache after those that a sequential reader requested.
READ_AHEAD_BYTES = 4 * 1024 * 1024


class FrozenSegment(Segment):
    """The files of a segment as they are now, read with a separate descriptor. Unwritten index entries are not seen,
    which is harmless as they are hints."""

    __slots__ = ()

    def __init__(self, disk: Disk, live: Segment, size_bytes: int) -> None:
        super().__init__(disk, live.directory, live.base_offset, live.created_ms, Descriptors())
        self.size_bytes = size_bytes
        self._forget()

    def _open(self) -> File:
        return self._disk.open(self.log_path, read_only=True)


class ReadRange(NamedTuple):
    """The part of one segment that a read requests."""

    offset: int
    max_bytes: int
    #: Records at or above this offset are left out; `ends_here` if it is in this segment.
    up_to: int
    ends_here: bool
    min_one_batch: bool


class ColdRead:
    """A read in the background. After loading, `data` begins at `position` in the file; it is None if the segment has
    nothing at or above the requested offset.
    """

    __slots__ = (
        "_disk",
        "_end_entry",
        "_entry",
        "_frozen",
        "_index_data",
        "_position",
        "_read_end",
        "_txn_entries",
        "_txn_indexes",
        "data",
        "error",
        "log_path",
        "position",
        "segment",
        "version",
        "wanted",
        "with_aborted",
    )

    def __init__(
        self,
        disk: Disk,
        segment: Segment,
        wanted: ReadRange,
        position: int | None,
        later: Sequence[Segment] | None,
    ) -> None:
        """Prepares the read. `position` is the position, if it is known. `later` are the segments from this one on, if
        aborted transactions are requested."""
        self.segment = segment
        self.version = segment.version
        self.log_path = segment.log_path
        self.wanted = wanted
        self._disk = disk
        self._frozen = FrozenSegment(disk, segment, segment.size_bytes)
        self._position = position
        loaded = segment.index.is_loaded
        self._entry = segment.index.lookup(wanted.offset) if loaded else None
        self._end_entry = segment.index.lookup(wanted.up_to) if loaded and wanted.ends_here else None
        self._read_end = segment.read_end
        self._index_data: bytearray | None = None
        self.with_aborted = later is not None
        unread = [segment.txn_index for segment in later or () if not segment.txn_index.is_loaded]
        self._txn_indexes = [(index, index.path, index.version) for index in unread]
        self._txn_entries: list[list[AbortedTxn]] = []
        self.position: int | None = None
        self.data: Buffer = b""
        self.error: OSError | RecordsRejected | None = None

    @property
    def size_bytes_max(self) -> int:
        """The largest possible result, whatever size was requested."""
        start = self._position if self._position is not None else self._entry[1] if self._entry is not None else 0
        return self._frozen.size_bytes - start

    def load(self) -> None:
        """Executes the read, waiting for the disk."""
        try:
            self._load()
            self._txn_entries = [read_entries(self._disk, path) for _, path, _ in self._txn_indexes]
        except (OSError, RecordsRejected) as error:
            self.error = without_frames(error)
        finally:
            if self._entry is None:
                self._index_data = self._frozen.index.loaded
            self._frozen.release()

    def _load(self) -> None:
        frozen, wanted = self._frozen, self.wanted
        file = frozen.file
        position = self._position
        if position is None:
            entry = self._entry or frozen.index.lookup(wanted.offset)
            position = frozen.locate_from(entry, wanted.offset)
            if position is None:
                return
        self.position = position
        end = frozen.size_bytes
        if wanted.ends_here:
            bound = frozen.locate_from(self._end_entry or frozen.index.lookup(wanted.up_to), wanted.up_to)
            end = end if bound is None else bound
        if position >= end:
            return
        size = min(wanted.max_bytes, end - position)
        reads_on = position == 0 or self._read_end - size < position <= self._read_end
        file.will_need(position, size + READ_AHEAD_BYTES if reads_on else size)
        self.data = read_batches(frozen, position, end, wanted.max_bytes, wanted.min_one_batch)

    def share_indexes(self) -> None:
        """Passes the loaded indexes to the log, on the loop, if the log has not changed, because the next read needs
        them too."""
        segment, frozen = self.segment, self._frozen
        segment.read_end = frozen.read_end
        if self._index_data is not None and frozen.size_bytes == segment.size_bytes and not segment.index.is_loaded:
            segment.index.adopt(self._index_data)
        for (index, _, version), entries in zip(self._txn_indexes, self._txn_entries, strict=True):
            index.adopt(entries, version)


def read_batches(
    segment: Segment, position: int, end: int, max_bytes: int, min_one_batch: bool, *, cached: bool = False
) -> Buffer:
    """Reads at most `max_bytes`, but one complete batch if `min_one_batch`. Raises RecordsRejected if there is no
    complete batch."""
    read = segment.read_cached if cached else segment.read
    left = end - position
    size = min(max_bytes, left)
    data = read(position, max(size, min(left, HEADER_BYTES)))
    whole = LOG_OVERHEAD + int.from_bytes(data[8:LOG_OVERHEAD], "big", signed=True)
    if not LEGACY_MIN_BYTES <= whole <= left:
        raise corrupt(f"a batch of {whole} bytes where {left} are left, at byte {position} of {segment.log_path}")
    if whole > size:
        data = read(position, min(whole, left)) if min_one_batch else b""
    segment.read_end = position + len(data)
    return data
