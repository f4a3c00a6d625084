"""A segment: a `.log` file of complete batches and its sparse indexes.

Invariants
- `size_bytes` is the end of the last complete batch that was written; nothing is read beyond it.
- A batch gets an index entry when more than `index.interval.bytes` were written since the last batch with one; the time
  index gets its last entry when the segment is rolled or closed.
- Index entries are hints: if one does not lead to a batch at or before the requested offset, or to one with its
  timestamp, the segment is read from its beginning. Descriptors are opened when needed and can be closed at any time
  (`release`); timestamps are read from the files when needed.
"""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.common.errors import RecordsRejected
from barnabas.common.host import Buffer, Disk, File
from barnabas.common.log_config import LogConfig
from barnabas.records.header import NO_TIMESTAMP, BatchHeader
from barnabas.storage.batch_file import Descriptors
from barnabas.storage.checkpoints import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    file_name,
    remove_quietly,
)
from barnabas.storage.index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, OffsetIndex, TimeIndex
from barnabas.storage.indexed_file import IndexedFile
from barnabas.storage.transaction_index import TransactionIndex

_MAX_INT = 0x7FFFFFFF
#: A timestamp that was not read yet.
_UNREAD = -2


class RollLimits:
    """The limits at which a segment is full or gets index entries, from a log's settings."""

    __slots__ = ("index_entries", "index_interval_bytes", "segment_bytes", "segment_ms", "time_entries")

    def __init__(self, config: LogConfig, jitter_ms: int) -> None:
        self.segment_bytes = config.segment_bytes
        self.segment_ms = config.longest_segment_ms - jitter_ms
        self.index_interval_bytes = config.index_interval_bytes
        self.index_entries = config.segment_index_bytes // OFFSET_ENTRY_BYTES
        #: The limit of the time index; one more entry is reserved for the roll.
        self.time_entries = config.segment_index_bytes // TIME_ENTRY_BYTES - 1


class Segment(IndexedFile):
    """A segment. Positions are bytes into the `.log` file."""

    __slots__ = (
        "_first_timestamp",
        "_largest_offset",
        "_largest_timestamp",
        "_unindexed_bytes",
        "created_ms",
        "directory",
        "has_files",
        "is_index_full",
        "time_index",
        "txn_index",
    )

    def __init__(self, disk: Disk, directory: str, base_offset: int, created_ms: int, descriptors: Descriptors) -> None:
        super().__init__(disk, f"{directory}/{file_name(base_offset, LOG_SUFFIX)}", descriptors)
        self.directory = directory
        self.base_offset = base_offset
        self.created_ms = created_ms
        #: Whether its files exist. A log without records has none: see `Log.append_batch`.
        self.has_files = True
        self.index = OffsetIndex(disk, self.path(INDEX_SUFFIX), base_offset)
        self.time_index = TimeIndex(disk, self.path(TIME_INDEX_SUFFIX), base_offset)
        self.txn_index = TransactionIndex(disk, self.path(TXN_INDEX_SUFFIX))
        #: Whether an index is full; None until determined, and again after a change of the settings.
        self.is_index_full: bool | None = None
        self._unindexed_bytes = 0
        self._forget()

    def path(self, suffix: str) -> str:
        return f"{self.directory}/{file_name(self.base_offset, suffix)}"

    # -- opening

    def create(self) -> None:
        """Creates the three files of an empty segment. After an OSError none is left: indexes without a `.log` are
        ignored."""
        made: list[str] = []
        try:
            for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, LOG_SUFFIX):
                made.append(self.path(suffix))
                self._disk.write(made[-1], b"")
        except OSError:
            for path in reversed(made):
                remove_quietly(self._disk, path)
            raise
        self.has_files = True

    def open_clean(self) -> None:
        """Uses the files as a clean shutdown left them."""
        self.size_bytes = self._disk.size(self.path(LOG_SUFFIX))
        self._forget()

    def begin_rebuild(self, position: int = 0, offset: int = 0) -> None:
        """Discards everything but the `.log` from this position and offset on; the caller then passes the intact
        batches there to `note`, one by one."""
        self.version += 1
        if position:
            self.index.truncate_to(offset)
            self.time_index.truncate_to(offset)
        else:
            self.index.clear()
            self.time_index.clear()
        self.size_bytes = position
        self._unindexed_bytes = 0
        self._forget()

    def end_rebuild(self) -> None:
        """Ends a rebuild of the segment: cuts off the batches that were not passed to `note`."""
        if self.file.size() != self.size_bytes:
            self.file.truncate(self.size_bytes)
        if self._largest_timestamp == _UNREAD:
            # No entry was noted, so the time index is unchanged.
            self.index.trim()
            self.time_index.trim()
        else:
            self.become_inactive()

    def _forget(self) -> None:
        self.is_index_full = None
        known = self.size_bytes == 0
        self._largest_timestamp = NO_TIMESTAMP if known else _UNREAD
        self._largest_offset = self.base_offset
        self._first_timestamp = NO_TIMESTAMP if known else _UNREAD

    def largest_timestamp(self) -> tuple[int, int]:
        """Returns (largest timestamp, an offset up to which none is larger); (-1, base offset) if there is none."""
        if self._largest_timestamp == _UNREAD:
            timestamp, offset = self.confirmed_time(self.time_index.last())
            for _, header in self.headers(self._indexed_position(offset)):
                if header.max_timestamp > timestamp:
                    timestamp, offset = header.max_timestamp, header.last_offset
            self._largest_timestamp, self._largest_offset = timestamp, offset
        return self._largest_timestamp, self._largest_offset

    @property
    def known_timestamp(self) -> tuple[int, int] | None:
        """The result of `largest_timestamp` if it is known without reading files."""
        return None if self._largest_timestamp == _UNREAD else (self._largest_timestamp, self._largest_offset)

    def set_largest_timestamp(self, timestamp: int, offset: int) -> None:
        """Sets the segment's largest timestamp and its offset, which another reader has determined."""
        self._largest_timestamp, self._largest_offset = timestamp, offset

    def first_timestamp(self) -> int:
        """Returns the largest timestamp of the first batch, from which `segment.ms` counts; -1 if it has none."""
        if self._first_timestamp == _UNREAD:
            self._first_timestamp = next((header.max_timestamp for _, header in self.headers(0)), NO_TIMESTAMP)
        return self._first_timestamp

    # -- writing

    def should_roll(
        self, limits: RollLimits, size_bytes: int, last_offset: int, max_timestamp: int, wall_ms: int
    ) -> bool:
        """Returns whether a batch of this size must go to a new segment, because of size, age of the records, or index
        space."""
        if self.size_bytes + size_bytes > limits.segment_bytes or last_offset - self.base_offset > _MAX_INT:
            return True
        if self.size_bytes:
            first = self._first_timestamp
            if first < 0:
                first = self.first_timestamp()
            waited_ms = max_timestamp - first if first >= 0 else wall_ms - self.created_ms
            if waited_ms > limits.segment_ms:
                return True
        return self.is_index_full if self.is_index_full is not None else self._check_indexes(limits)

    def _check_indexes(self, limits: RollLimits) -> bool:
        full = len(self.index) >= limits.index_entries or len(self.time_index) >= limits.time_entries
        self.is_index_full = full
        return full

    def append(self, batch: Buffer, last_offset: int, max_timestamp: int, limits: RollLimits) -> None:
        """Writes a batch that ends at `last_offset`. If space or descriptors run out, OSError leaves the segment
        unchanged: everything that `note` needs is read before."""
        file = self._file
        if file is None or self._largest_timestamp == _UNREAD:
            file = self.prepare_append()
        file.append(batch)
        self.recently_used = True
        self.note(len(batch), last_offset, max_timestamp, limits)

    def prepare_append(self) -> File:
        """Returns the file, after reading everything that `note` needs. A caller that writes to it must call `note`
        itself."""
        self.index.load()
        self.time_index.load()
        self.largest_timestamp()
        return self.file

    def note(self, size_bytes: int, last_offset: int, max_timestamp: int, limits: RollLimits) -> None:
        """Updates the indexes for a batch of this size that was written at the end of the file."""
        position = self.size_bytes
        if position == 0:
            self._first_timestamp = max_timestamp
        if max_timestamp > self._largest_timestamp:
            if self._largest_timestamp == _UNREAD:
                self.largest_timestamp()
            if max_timestamp > self._largest_timestamp:
                self._largest_timestamp, self._largest_offset = max_timestamp, last_offset
        if self._unindexed_bytes > limits.index_interval_bytes:
            self.index.append(last_offset, position)
            self.time_index.maybe_append(self._largest_timestamp, self._largest_offset)
            self._check_indexes(limits)
            self._unindexed_bytes = 0
        self._unindexed_bytes += size_bytes
        self.size_bytes = position + size_bytes

    def become_inactive(self) -> None:
        """Adds the last entry of the time index and trims the index files, as far as there is space: the segment is
        full or closed."""
        timestamp, offset = self.largest_timestamp()
        if timestamp >= 0:
            self.time_index.maybe_append(timestamp, offset)
        self.index.try_to_trim()
        self.time_index.try_to_trim()

    def truncate_to(self, offset: int) -> int | None:
        """Removes the batch that contains `offset` and everything after it. Returns the base offset of that batch, or
        None."""
        self.version += 1
        position = self.locate(offset)
        first_cut: int | None = None
        if position is not None:
            first_cut = self.header_at(position).base_offset
            self.file.truncate(position)
            self.size_bytes = position
            # Durable before anything about the removed part is forgotten: if it came back, it would be treated as
            # synced.
            self.file.sync()
        self.index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.txn_index.truncate_to(offset)
        self._unindexed_bytes = 0
        self._forget()
        return first_cut

    # -- reading

    def headers_from_time(self, timestamp: int, from_offset: int) -> Iterator[tuple[int, BatchHeader]]:
        """Yields (position, header) of batches, from one at or before the first that can contain a record at or above
        `from_offset` with at least this timestamp."""
        _, offset = self.confirmed_time(self.time_index.lookup(timestamp))
        return self.headers(self._indexed_position(max(offset, from_offset)))

    def confirmed_time(self, entry: tuple[int, int]) -> tuple[int, int]:
        """Returns the time index entry if the batch that it names confirms it; otherwise (-1, base offset)."""
        timestamp, offset = entry
        try:
            for _, header in self.headers(self._indexed_position(offset)) if timestamp >= 0 else ():
                if header.last_offset >= offset:
                    if header.base_offset <= offset and header.max_timestamp == timestamp:
                        return entry
                    break
        except RecordsRejected:
            pass
        return NO_TIMESTAMP, self.base_offset

    # -- life

    def write_out(self, *, with_indexes: bool = True) -> list[str]:
        """Writes index entries that are only in memory. Returns the files to be synced. `flush` explains
        `with_indexes`.
        """
        self.txn_index.write_out()
        suffixes: tuple[str, ...] = (LOG_SUFFIX, TXN_INDEX_SUFFIX)
        if with_indexes or self.index.is_rewritten or self.time_index.is_rewritten:
            self.index.write_out()
            self.time_index.write_out()
            suffixes = (*suffixes, INDEX_SUFFIX, TIME_INDEX_SUFFIX, SNAPSHOT_SUFFIX)
        else:
            self.index.try_to_write_out()
            self.time_index.try_to_write_out()
        return [self.path(suffix) for suffix in suffixes]

    def flush(self, *, with_indexes: bool) -> None:
        """Syncs the segment. The indexes of the active segment need no sync as long as they only grow: after an unclean
        shutdown missing entries are detected, and the indexes rebuilt."""
        self.file.sync()
        self.txn_index.sync()
        if with_indexes or self.index.is_rewritten or self.time_index.is_rewritten:
            self.index.sync()
            self.time_index.sync()
        else:
            # The indexes are then complete after a kill, and the synced part is found without reading it.
            self.index.try_to_write_out()
            self.time_index.try_to_write_out()

    def release(self) -> None:
        super().release()
        self.release_index()

    def release_index(self) -> None:
        self.index.release()
        self.time_index.release()
        self.txn_index.release()

    def moved(self, directory: str) -> None:
        """Applies the new name of the log's directory."""
        self.directory = directory
        self.log_path = self.path(LOG_SUFFIX)
        self.index.path = self.path(INDEX_SUFFIX)
        self.time_index.path = self.path(TIME_INDEX_SUFFIX)
        self.txn_index.path = self.path(TXN_INDEX_SUFFIX)

    def mark_deleted(self) -> list[str]:
        """Renames all files to `.deleted`. Returns the files to be removed later."""
        self.version += 1
        self.release()
        marked = []
        for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX):
            path = self.path(suffix)
            if self._disk.exists(path):
                self._disk.rename(path, path + DELETED_SUFFIX)
                marked.append(path + DELETED_SUFFIX)
        return marked
