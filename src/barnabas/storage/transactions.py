"""The index of aborted transactions of one segment, in Kafka's bytes (`.txnindex`).

    version 2 (0) | producerId 8 | firstOffset 8 | lastOffset 8 | lastStableOffset 8, 34 bytes an entry

It is what a read_committed reader needs to leave out what was aborted (KIP-98).
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from barnabas.common.host import Disk, File

_ENTRY = struct.Struct(">hqqqq")
_VERSION = 0


class AbortedTxn(NamedTuple):
    """`last_offset` is that of the marker; `last_stable_offset` the LSO once it was written."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """A file that is there only when something was aborted."""

    __slots__ = ("_disk", "_file", "path")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._file: File | None = None
        self.path = path

    def append(self, aborted: AbortedTxn) -> None:
        if self._file is None:
            self._file = self._disk.open(self.path, create=True)
        self._file.append(_ENTRY.pack(_VERSION, *aborted))

    def entries(self) -> list[AbortedTxn]:
        if not self._disk.exists(self.path):
            return []
        raw = self._disk.read(self.path)
        whole = len(raw) - len(raw) % _ENTRY.size
        return [AbortedTxn(*fields[1:]) for fields in _ENTRY.iter_unpack(raw[:whole])]

    def truncate_to(self, offset: int) -> None:
        """Drop the transactions whose marker is at or above `offset`."""
        kept = [entry for entry in self.entries() if entry.last_offset < offset]
        if self._disk.exists(self.path):
            self.release()
            self._disk.write(self.path, b"".join(_ENTRY.pack(_VERSION, *entry) for entry in kept))

    def sync(self) -> None:
        if self._file is not None:
            self._file.sync()

    def release(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
