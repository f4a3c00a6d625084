"""Leader epochs of one log and the offsets where they begin (KIP-101, KIP-279), kept in `leader-epoch-checkpoint`.

Invariant: epochs and start offsets both ascend. An assignment that conflicts with entries removes these: they belong to
records that a later leader has replaced, or to an epoch without records. A new leader assigns its epoch at its log end
offset before the first record is appended (guard G3).

The file is written later. Invariant: it contains every epoch of the records below the recovery point, because the log
calls `persist` before the recovery point advances. Epochs of the records above are found again by the scan after an
unclean shutdown; epochs without records are lost at a restart anyway. So a broker that becomes leader of thousands of
partitions does not wait for one sync each: `EpochFiles` writes the files in the background. Only truncations are
written immediately.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Protocol

from barnabas.common.host import Disk
from barnabas.storage.checkpoints import (
    LEADER_EPOCH_CHECKPOINT,
    EpochEntry,
    decode_epochs,
    encode_epochs,
    write_atomically,
)

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


def _epoch_of(entry: EpochEntry) -> int:
    return entry.epoch


def _start_of(entry: EpochEntry) -> int:
    return entry.start_offset


def _unknown() -> int:
    return 1 << 63


def _below(entries: Sequence[EpochEntry], end_offset: int) -> list[EpochEntry]:
    return [entry for entry in entries if entry.start_offset < end_offset]


class EpochFiles(Protocol):
    """The writer of `leader-epoch-checkpoint` files in the background."""

    def changed(self, cache: LeaderEpochCache) -> None:
        """Records that the cache of epochs differs from its file."""


class LeaderEpochCache:
    """The epochs of one log. `directory` changes when the log's directory is renamed."""

    __slots__ = (
        "_disk",
        "_entries",
        "_files",
        "_first",
        "_log_end_offset",
        "_on_file",
        "directory",
        "is_name_synced",
        "is_saved",
        "latest_epoch",
        "version",
    )

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._files: EpochFiles | None = None
        self._log_end_offset: Callable[[], int] = _unknown
        self._on_file: tuple[EpochEntry, ...] = ()
        self.directory = directory
        #: Whether the file matches this cache, and whether its name survives a power failure.
        self.is_saved = True
        self.is_name_synced = True
        #: A number that increases with every change of the cache.
        self.version = 0
        self._entries: list[EpochEntry] = []
        #: The first epoch with the offset where it began, if its first records were deleted since the log was opened.
        self._first: EpochEntry | None = None
        #: The epoch of the newest entry, or -1; a plain attribute, because every append compares it.
        self.latest_epoch = UNDEFINED_EPOCH

    @property
    def path(self) -> str:
        return f"{self.directory}/{LEADER_EPOCH_CHECKPOINT}"

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        return tuple(self._entries)

    def load(self) -> None:
        """Loads the file. Raises CheckpointError if it is malformed, and then changes nothing."""
        path = self.path
        entries = decode_epochs(path, self._disk.read(path)) if self._disk.exists(path) else []
        self._entries = []
        self._first = None
        for entry in entries:
            self._put(entry)
        self.latest_epoch = self._entries[-1].epoch if self._entries else UNDEFINED_EPOCH
        self._on_file = tuple(entries)
        self.is_saved = self._entries == entries

    def write_in_background(self, files: EpochFiles, log_end_offset: Callable[[], int]) -> None:
        """Makes `files` write changes of the cache from now on; without `files`, only `persist` writes them."""
        self._files = files
        self._log_end_offset = log_end_offset
        if not self.is_saved:
            files.changed(self)

    def encode(self) -> bytes:
        """Encodes the content that `leader-epoch-checkpoint` should have."""
        return encode_epochs(self._entries)

    def is_saved_below(self, end_offset: int) -> bool:
        """Returns whether the file is correct for the records before this offset. Later entries are removed when a log
        that ends there is opened.
        """
        return self.is_saved or _below(self._entries, end_offset) == _below(self._on_file, end_offset)

    def has_saved_beyond(self, end_offset: int) -> bool:
        """Returns whether the file contains epochs of records above this offset, which were truncated."""
        return any(entry.start_offset > end_offset for entry in self._on_file)

    @property
    def needs_write(self) -> bool:
        """Whether the log has records whose epoch is not in the file."""
        return not self.is_saved_below(self._log_end_offset())

    def persist(self, end_offset: int | None = None) -> None:
        """Makes `leader-epoch-checkpoint` durable and correct, at least for the records before `end_offset`. Raises
        OSError.
        """
        if not self.is_saved and (end_offset is None or not self.is_saved_below(end_offset)):
            write_atomically(self._disk, self.path, self.encode())
            self._now_on_file()
            self.is_name_synced = True
        elif not self.is_name_synced:
            self._disk.sync_dir(self.directory)
            self.is_name_synced = True

    def take_draft(self, version: int, temporary: str) -> None:
        """Renames a synced draft into place if the cache has not changed since that `version`. The name is synced
        later. Raises OSError.
        """
        if version == self.version and not self.is_saved:
            self._disk.rename(temporary, self.path)
            self._now_on_file()
            self.is_name_synced = False

    def _now_on_file(self) -> None:
        self.is_saved = True
        self._on_file = tuple(self._entries)

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Records that `epoch` begins at `start_offset`. Returns whether the epoch is new. The start offset of the
        current epoch is never raised."""
        assert epoch >= 0, f"leader epoch {epoch}"
        assert start_offset >= 0, f"leader epoch {epoch} at offset {start_offset}"
        latest = self._entries[-1] if self._entries else None
        if latest is not None and epoch == latest.epoch and start_offset >= latest.start_offset:
            return False
        self._put(EpochEntry(epoch, start_offset))
        self._on_change()
        return True

    def _put(self, entry: EpochEntry) -> None:
        entries = self._entries
        while entries and (entries[-1].epoch >= entry.epoch or entries[-1].start_offset >= entry.start_offset):
            entries.pop()
        entries.append(entry)

    def _on_change(self) -> None:
        self.latest_epoch = self._entries[-1].epoch if self._entries else UNDEFINED_EPOCH
        self.version += 1
        self.is_saved = False
        if self._files is not None:
            self._files.changed(self)

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Returns (epoch, end offset) of the largest epoch at or below the requested one, as in OffsetForLeaderEpoch.

        The result is (-1, -1) if the requested epoch is undefined or newer than all known ones. An epoch older than all
        known ones is returned with the offset where the first known one began: its records were deleted, and a follower
        begins where this log begins. If it has records above that offset, they differ from the deleted ones, even if
        its log ends where this log begins.
        """
        if epoch == UNDEFINED_EPOCH or not self._entries:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == self.latest_epoch:
            return epoch, log_end_offset
        place = bisect_right(self._entries, epoch, key=_epoch_of)
        if place == len(self._entries):
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if place:
            return self._entries[place - 1].epoch, self._entries[place].start_offset
        first = self._entries[0]
        known = self._first
        if known is not None and known.epoch == first.epoch:
            return epoch, min(known.start_offset, first.start_offset)
        return epoch, first.start_offset

    def epoch_for_offset(self, offset: int) -> int | None:
        """Returns the epoch in which the record at `offset` was written, or None if it is older than all known ones."""
        place = bisect_right(self._entries, offset, key=_start_of)
        return self._entries[place - 1].epoch if place else None

    def previous_epoch(self, epoch: int) -> int | None:
        """Returns the largest known epoch below this one."""
        place = bisect_right(self._entries, epoch - 1, key=_epoch_of)
        return self._entries[place - 1].epoch if place else None

    def truncate_from_end(self, end_offset: int) -> None:
        """Removes the epochs that begin at or above the new log end offset."""
        if not self._entries or self._entries[-1].start_offset < end_offset:
            return
        while self._entries and self._entries[-1].start_offset >= end_offset:
            self._entries.pop()
        if not self._entries:
            self._first = None
        self._on_change()

    def truncate_from_start(self, start_offset: int) -> None:
        """Removes the epochs that end before the new log start offset; the one that contains it begins there."""
        place = bisect_right(self._entries, start_offset, key=_start_of)
        if place == 0 or (place == 1 and self._entries[0].start_offset == start_offset):
            return
        containing = self._entries[place - 1]
        if self._first is None or self._first.epoch != containing.epoch:
            self._first = containing
        self._entries[:place] = [EpochEntry(containing.epoch, start_offset)]
        # The file can contain more entries than this: opening the log cuts them at the log start offset.
        self._on_change()

    def take_over(self, other: LeaderEpochCache) -> None:
        """Copies the epochs of another copy of the log, including those without records (G3)."""
        if self._entries != other._entries:
            self._entries = list(other._entries)
            self._first = other._first
            self._on_change()
        self.persist()

    def prepend(self, older: Sequence[EpochEntry]) -> None:
        """Adds the epochs of records before the first known start offset; the last of these epochs can be the first
        known one, whose start offset is then lowered."""
        if older:
            self._entries = [*older, *(entry for entry in self._entries if entry.epoch > older[-1].epoch)]
            self._on_change()

    def clear(self) -> None:
        """Removes all epochs, for a log that is emptied and starts again at another offset."""
        if self._entries:
            self._entries = []
            self._first = None
            self._on_change()
