"""The index of aborted transactions of one segment, in Kafka's format (`.txnindex`).

    version 2 (0) | producerId 8 | firstOffset 8 | lastOffset 8 | lastStableOffset 8, 34 bytes an entry

Readers with read_committed need it to skip aborted records (KIP-98). The entries ascend by last offset, the offset of
the marker. The file exists only if a transaction was aborted.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import NamedTuple

from barnabas.common.errors import is_exhausted
from barnabas.common.host import Buffer, Disk

_ENTRY = struct.Struct(">hqqqq")
_VERSION = 0


class AbortedTxn(NamedTuple):
    """An aborted transaction. `last_offset` is that of its marker, `last_stable_offset` the LSO once that was
    written."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def read_entries(disk: Disk, path: str) -> list[AbortedTxn]:
    """Reads the entries of a `.txnindex` file; empty if it does not exist."""
    return _unpack(disk.read(path)) if disk.exists(path) else []


def _unpack(raw: Buffer) -> list[AbortedTxn]:
    whole = memoryview(raw)[: len(raw) - len(raw) % _ENTRY.size]
    return [AbortedTxn(*fields[1:]) for fields in _ENTRY.iter_unpack(whole)]


def _possible(entries: Iterable[AbortedTxn]) -> Iterator[AbortedTxn]:
    """Yields the entries of a transaction index up to the first impossible one. In possible entries, the offsets of the
    markers ascend, and each is above the first offset of its transaction.
    """
    marker = -1
    for entry in entries:
        if not max(marker, entry.first_offset) < entry.last_offset or entry.first_offset < 0 or entry.producer_id < 0:
            return
        marker = entry.last_offset
        yield entry


class TransactionIndex:
    """The transaction index of one segment, loaded into memory when needed and freed by `release`."""

    __slots__ = ("_disk", "_entries", "_unsynced", "_written", "path", "version")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._entries: list[AbortedTxn] | None = None
        self._unsynced = False
        #: The number of entries in the file; the others wait for space on disk.
        self._written = 0
        self.path = path
        #: A number that changes whenever the entries change.
        self.version = 0

    def entries(self) -> list[AbortedTxn]:
        entries = self._entries
        if entries is None:
            entries = read_entries(self._disk, self.path)
            self.adopt(entries, self.version)
        return entries

    @property
    def is_loaded(self) -> bool:
        return self._entries is not None

    def cached_entries(self) -> list[AbortedTxn] | None:
        """Returns the entries without waiting for the disk; None if they are not in memory."""
        if self._entries is None:
            if not self._disk.exists(self.path):
                return self.entries()
            file = self._disk.open(self.path, read_only=True)
            try:
                raw = file.read_at_nowait(0, file.size())
            finally:
                file.close()
            if raw is not None:
                self.adopt(_unpack(raw), self.version)
        return self._entries

    def adopt(self, entries: list[AbortedTxn], version: int) -> None:
        """Adopts entries that another thread has read, unless the index has changed since `version`."""
        if self._entries is None and version == self.version:
            self._entries = entries
            self._written = len(entries)

    def append(self, aborted: AbortedTxn) -> None:
        """Adds an entry whose marker is already in the log. If the disk is full, the entry stays in memory until
        `write_out`."""
        self.entries().append(aborted)
        self.version += 1
        try:
            self.write_out()
        except OSError as error:
            if not is_exhausted(error):
                raise

    def write_out(self) -> None:
        """Writes the index entries that are only in memory. Raises OSError."""
        entries = self._entries
        if entries is None or self._written == len(entries):
            return
        file = self._disk.open(self.path, create=True)
        try:
            file.truncate(self._written * _ENTRY.size)
            file.append(b"".join(_ENTRY.pack(_VERSION, *entry) for entry in entries[self._written :]))
        finally:
            file.close()
        self._written = len(entries)
        self._unsynced = True

    def truncate_to(self, offset: int) -> None:
        """Removes the transactions whose marker is at or above `offset`, and everything from an impossible entry on,
        because a power failure can leave anything in an unsynced file."""
        known = self.entries()
        kept = list(takewhile(lambda entry: entry.last_offset < offset, _possible(known)))
        if not kept:
            if self._disk.exists(self.path):
                self._disk.remove(self.path)
        elif len(kept) < self._written:
            file = self._disk.open(self.path, create=True)
            try:
                file.truncate(len(kept) * _ENTRY.size)  # the entries that are kept stay in the file throughout
            finally:
                file.close()
            self._unsynced = True
        self._entries = kept
        self._written = min(self._written, len(kept))
        self.version += 1

    def clear(self) -> None:
        self.truncate_to(-1)

    def sync(self) -> None:
        self.write_out()
        if self._unsynced and self._disk.exists(self.path):
            file = self._disk.open(self.path, read_only=True)
            try:
                file.sync()
            finally:
                file.close()
        self._unsynced = False

    def release(self) -> None:
        if self._entries is not None and self._written == len(self._entries):
            self._entries = None
