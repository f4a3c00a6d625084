"""Which leader epoch begins at which offset of one log (KIP-101, KIP-279), kept in `leader-epoch-checkpoint`.

Invariant: epochs and start offsets both rise from entry to entry. An assignment that does not fit takes away what it
contradicts: those entries spoke of records that a later leader has replaced, or of an epoch in which nothing was
written. A new leader assigns its epoch at its log end offset before the first record comes (guard G3).

Every change is on disk when the method returns, so that the file never misses an epoch that the log has records of.
While a log is being recovered, `assign(..., persist=False)` leaves that to one `persist()` at its end.
"""

from __future__ import annotations

from bisect import bisect_right

from barnabas.common.errors import is_exhausted
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


class LeaderEpochCache:
    """The epochs of one log. `directory` is changed when the log's directory is renamed."""

    __slots__ = ("_disk", "_entries", "directory", "latest_epoch")

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self.directory = directory
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
        self._on_change()

    def persist(self) -> None:
        write_atomically(self._disk, self.path, encode_epochs(self._entries))

    def assign(self, epoch: int, start_offset: int, *, persist: bool = True) -> bool:
        """`epoch` begins at `start_offset`. True if that was news; the current epoch is not moved up."""
        assert epoch >= 0, f"leader epoch {epoch}"
        assert start_offset >= 0, f"leader epoch {epoch} at offset {start_offset}"
        latest = self._entries[-1] if self._entries else None
        if latest is not None and epoch == latest.epoch and start_offset >= latest.start_offset:
            return False
        before = list(self._entries)
        self._put(EpochEntry(epoch, start_offset))
        try:
            self._on_change(persist=persist)
        except OSError:
            # Records of an epoch that the file does not know must not follow.
            self._entries = before
            self._on_change()
            raise
        return True

    def _put(self, entry: EpochEntry) -> None:
        entries = self._entries
        while entries and (entries[-1].epoch >= entry.epoch or entries[-1].start_offset >= entry.start_offset):
            entries.pop()
        entries.append(entry)

    def _on_change(self, *, persist: bool = False) -> None:
        self.latest_epoch = self._entries[-1].epoch if self._entries else UNDEFINED_EPOCH
        if persist:
            self.persist()

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
        self._on_change(persist=True)

    def truncate_from_start(self, start_offset: int) -> None:
        """The log starts at `start_offset` now: epochs that end before are gone, the one that holds it begins there."""
        place = bisect_right(self._entries, start_offset, key=_start_of)
        if place == 0 or (place == 1 and self._entries[0].start_offset == start_offset):
            return
        self._entries[:place] = [EpochEntry(self._entries[place - 1].epoch, start_offset)]
        try:
            self._on_change(persist=True)
        except OSError as error:
            # The file says the same with more words, and opening the log shortens it by the log start offset.
            if not is_exhausted(error):
                raise

    def take_over(self, other: LeaderEpochCache) -> None:
        """What another copy of the log knows: also of epochs in which nothing was written (G3)."""
        if self._entries != other._entries:
            self._entries = list(other._entries)
            self._on_change(persist=True)

    def clear(self) -> None:
        """The log is empty and begins anew."""
        if self._entries:
            self._entries = []
            self._on_change(persist=True)
