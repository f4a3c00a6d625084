"""The index of aborted transactions of one segment, in Kafka's bytes (`.txnindex`).

    version 2 (0) | producerId 8 | firstOffset 8 | lastOffset 8 | lastStableOffset 8, 34 bytes an entry

It is what a read_committed reader needs to leave out what was aborted (KIP-98). Entries rise in their last offsets, the
offsets of the markers. The file is there only when something was aborted.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from barnabas.common.host import Disk

_ENTRY = struct.Struct(">hqqqq")
_VERSION = 0


class AbortedTxn(NamedTuple):
    """`last_offset` is that of the marker; `last_stable_offset` the LSO once it was written."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """Read into memory when somebody asks, given back by `release`."""

    __slots__ = ("_disk", "_entries", "_unsynced", "path")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._entries: list[AbortedTxn] | None = None
        self._unsynced = False
        self.path = path

    def entries(self) -> list[AbortedTxn]:
        entries = self._entries
        if entries is None:
            raw = self._disk.read(self.path) if self._disk.exists(self.path) else b""
            whole = len(raw) - len(raw) % _ENTRY.size
            entries = self._entries = [AbortedTxn(*fields[1:]) for fields in _ENTRY.iter_unpack(raw[:whole])]
        return entries

    def append(self, aborted: AbortedTxn) -> None:
        entries = self.entries()
        file = self._disk.open(self.path, create=True)
        try:
            file.truncate(len(entries) * _ENTRY.size)
            file.append(_ENTRY.pack(_VERSION, *aborted))
        finally:
            file.close()
        entries.append(aborted)
        self._unsynced = True

    def truncate_to(self, offset: int) -> None:
        """Drop the transactions whose marker is at or above `offset`."""
        kept = [entry for entry in self.entries() if entry.last_offset < offset]
        if self._disk.exists(self.path):
            if kept:
                self._disk.write(self.path, b"".join(_ENTRY.pack(_VERSION, *entry) for entry in kept))
                self._unsynced = True
            else:
                self._disk.remove(self.path)
        self._entries = kept

    def clear(self) -> None:
        self.truncate_to(-1)

    def sync(self) -> None:
        if self._unsynced and self._disk.exists(self.path):
            file = self._disk.open(self.path, read_only=True)
            try:
                file.sync()
            finally:
                file.close()
        self._unsynced = False

    def release(self) -> None:
        self._entries = None
