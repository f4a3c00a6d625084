"""Which leader epoch begins at which offset of one log (KIP-101, KIP-279), kept in `leader-epoch-checkpoint`.

Invariant: epochs and start offsets both rise from entry to entry. An assignment that does not fit takes away what it
contradicts: those entries spoke of records that a later leader has replaced, or of an epoch in which nothing was
written. A new leader assigns its epoch at its log end offset before the first record comes (guard G3).

The file follows. Invariant: it knows every epoch of the records below the recovery point, for the log calls `persist`
before that moves. Epochs of the records above are found again when they are scanned after an unclean stop; epochs in
which nothing was written do not outlive a restart anyway. So a broker that begins to lead thousands of partitions need
not wait for a sync of each: `EpochFiles` writes them beside the loop. Only what is cut off is written at once.
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
    """Whoever writes the files beside the loop."""

    def changed(self, cache: LeaderEpochCache) -> None:
        """It is not saved."""


class LeaderEpochCache:
    """The epochs of one log. `directory` is changed when the log's directory is renamed."""

    __slots__ = (
        "_disk",
        "_entries",
        "_files",
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
        #: Whether the file says what is known here, and whether its name is sure to outlive a power failure.
        self.is_saved = True
        self.is_name_synced = True
        #: Rises with every change.
        self.version = 0
        self._entries: list[EpochEntry] = []
        #: The epoch of the newest entry, or -1; a plain attribute, for it is compared on every append.
        self.latest_epoch = UNDEFINED_EPOCH

    @property
    def path(self) -> str:
        return f"{self.directory}/{LEADER_EPOCH_CHECKPOINT}"

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        return tuple(self._entries)

    def load(self) -> None:
        """Take over what the file says. CheckpointError if it is malformed, then nothing is taken over."""
        path = self.path
        entries = decode_epochs(path, self._disk.read(path)) if self._disk.exists(path) else []
        self._entries = []
        for entry in entries:
            self._put(entry)
        self.latest_epoch = self._entries[-1].epoch if self._entries else UNDEFINED_EPOCH
        self._on_file = tuple(entries)
        self.is_saved = self._entries == entries

    def write_beside(self, files: EpochFiles, log_end_offset: Callable[[], int]) -> None:
        """From now on these write what changes; without any, it is written when `persist` is called."""
        self._files = files
        self._log_end_offset = log_end_offset
        if not self.is_saved:
            files.changed(self)

    def encode(self) -> bytes:
        """What the file should say."""
        return encode_epochs(self._entries)

    def is_saved_below(self, end_offset: int) -> bool:
        """Whether the file says the same of the records before this offset. What it says of later ones does not outlive
        the opening of a log that ends there."""
        return self.is_saved or _below(self._entries, end_offset) == _below(self._on_file, end_offset)

    def tells_beyond(self, end_offset: int) -> bool:
        """Whether the file speaks of records behind this offset, which were cut off."""
        return any(entry.start_offset > end_offset for entry in self._on_file)

    @property
    def is_owed(self) -> bool:
        """Whether there are records whose epoch the file does not know."""
        return not self.is_saved_below(self._log_end_offset())

    def persist(self, end_offset: int | None = None) -> None:
        """The file says what is known here, or at least of the records before `end_offset`, whatever happens from now
        on. Raises OSError."""
        if not self.is_saved and (end_offset is None or not self.is_saved_below(end_offset)):
            write_atomically(self._disk, self.path, self.encode())
            self._now_on_file()
            self.is_name_synced = True
        elif not self.is_name_synced:
            self._disk.sync_dir(self.directory)
            self.is_name_synced = True

    def written_beside(self, version: int, temporary: str) -> None:
        """What it was at that version stands in another file, synced: if it is still so, that is the file from now on.
        The name is synced later. Raises OSError."""
        if version == self.version and not self.is_saved:
            self._disk.rename(temporary, self.path)
            self._now_on_file()
            self.is_name_synced = False

    def _now_on_file(self) -> None:
        self.is_saved = True
        self._on_file = tuple(self._entries)

    def assign(self, epoch: int, start_offset: int) -> bool:
        """`epoch` begins at `start_offset`. True if that was news; the current epoch is not moved up."""
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
        """(epoch, end offset) of the largest epoch that is not above the asked one, as OffsetForLeaderEpoch answers.

        (-1, -1) if the asked one is undefined or newer than all that is known. An epoch older than all known ones is
        answered with itself and the first known start: its records are gone, a follower begins where ours begin.
        """
        if epoch == UNDEFINED_EPOCH or not self._entries:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == self.latest_epoch:
            return epoch, log_end_offset
        place = bisect_right(self._entries, epoch, key=_epoch_of)
        if place == len(self._entries):
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        end_offset = self._entries[place].start_offset
        return (self._entries[place - 1].epoch if place else epoch), end_offset

    def epoch_for_offset(self, offset: int) -> int | None:
        """The epoch in which the record at `offset` was written, or None if it is older than all known ones."""
        place = bisect_right(self._entries, offset, key=_start_of)
        return self._entries[place - 1].epoch if place else None

    def previous_epoch(self, epoch: int) -> int | None:
        """The largest known epoch below this one."""
        place = bisect_right(self._entries, epoch - 1, key=_epoch_of)
        return self._entries[place - 1].epoch if place else None

    def start_offset_of(self, epoch: int) -> int | None:
        """Where this very epoch begins, if it is known."""
        place = bisect_right(self._entries, epoch, key=_epoch_of)
        if place and self._entries[place - 1].epoch == epoch:
            return self._entries[place - 1].start_offset
        return None

    def truncate_from_end(self, end_offset: int) -> None:
        """The log ends at `end_offset` now: epochs that begin there or later are gone."""
        if not self._entries or self._entries[-1].start_offset < end_offset:
            return
        while self._entries and self._entries[-1].start_offset >= end_offset:
            self._entries.pop()
        self._on_change()

    def truncate_from_start(self, start_offset: int) -> None:
        """The log starts at `start_offset` now: epochs that end before are gone, the one that holds it begins there."""
        place = bisect_right(self._entries, start_offset, key=_start_of)
        if place == 0 or (place == 1 and self._entries[0].start_offset == start_offset):
            return
        self._entries[:place] = [EpochEntry(self._entries[place - 1].epoch, start_offset)]
        # The file may say the same with more words: opening the log shortens it by the log start offset.
        self._on_change()

    def take_over(self, other: LeaderEpochCache) -> None:
        """What another copy of the log knows: also of epochs in which nothing was written (G3)."""
        if self._entries != other._entries:
            self._entries = list(other._entries)
            self._on_change()
        self.persist()

    def prepend(self, older: Sequence[EpochEntry]) -> None:
        """Those of records before the first known start; the last of them may go on in the first known ones."""
        if older:
            self._entries = [*older, *(entry for entry in self._entries if entry.epoch > older[-1].epoch)]
            self._on_change()

    def clear(self) -> None:
        """The log is empty and begins anew."""
        if self._entries:
            self._entries = []
            self._on_change()
