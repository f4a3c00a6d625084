"""The framing of a transaction log: its header, and its entries with their checksums.

    header   magic "ZKLG" (4) | version 2 (4) | database id 0 (8)
    entry    Adler-32 of the bytes (8) | their length (4) | header, transaction and digest | "B"
    end      zeros, because the file is longer than what is written, or the end of the file

An entry is the frame of one transaction (`zookeeper.txns`). All numbers are big-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple
from zlib import adler32

from barnabas.common.host import File

LOG_MAGIC: Final = b"ZKLG"
_FORMAT_VERSION: Final = 2
_LOG_HEADER: Final = struct.Struct(">4siq")
LOG_HEADER_BYTES: Final = _LOG_HEADER.size
#: The header of a log, as Apache's server writes it.
LOG_HEADER: Final = _LOG_HEADER.pack(LOG_MAGIC, _FORMAT_VERSION, 0)
_ENTRY_HEAD: Final = struct.Struct(">qi")
_END_OF_ENTRY: Final = b"B"
_READ_BYTES: Final = 1 << 20


def framed(entry: bytes) -> bytes:
    """Returns an entry with its checksum, length and end mark."""
    return _ENTRY_HEAD.pack(adler32(entry), len(entry)) + entry + _END_OF_ENTRY


def log_header_problem(file: File) -> str | None:
    """Returns why the file does not begin with the header of a log; None if it does."""
    data = file.read_at(0, LOG_HEADER_BYTES)
    if len(data) < LOG_HEADER_BYTES:
        return f"only {len(data)} of the {LOG_HEADER_BYTES} bytes of its header are present"
    magic, version, _ = _LOG_HEADER.unpack(data)
    if magic != LOG_MAGIC:
        return f"it begins with {magic!r} instead of {LOG_MAGIC!r}"
    if version != _FORMAT_VERSION:
        return f"its format has version {version}; only version {_FORMAT_VERSION} is supported"
    return None


class Frame(NamedTuple):
    """The bytes of an entry, and its offset in the file."""

    offset: int
    entry: bytes


class LogFrames:
    """Reads the entries of one log in order. When iteration ends, `end` is the offset after the last good entry, and
    `damage` describes the bytes after it: None for the regular end of a log.
    """

    __slots__ = ("_file", "_read", "_start", "damage", "end")

    def __init__(self, file: File) -> None:
        self._file = file
        #: The bytes read ahead, and the offset of the first of them.
        self._read = b""
        self._start = 0
        self.end = LOG_HEADER_BYTES
        self.damage: str | None = None

    def __iter__(self) -> Iterator[Frame]:
        while True:
            head = self._bytes(self.end, _ENTRY_HEAD.size)
            if len(head) < _ENTRY_HEAD.size:
                if any(head):
                    self.damage = "the file ends inside the head of an entry"
                return
            checksum, length = _ENTRY_HEAD.unpack(head)
            if checksum == 0 and length == 0:
                return
            problem, entry = self._entry(checksum, length)
            if problem is not None:
                self.damage = problem
                return
            offset = self.end
            self.end += _ENTRY_HEAD.size + length + 1
            yield Frame(offset, entry)

    def _entry(self, checksum: int, length: int) -> tuple[str | None, bytes]:
        """Returns the bytes of the entry at `end`, or the reason why it is not an entry."""
        if length <= 0 or length > self._file.size() - self.end - _ENTRY_HEAD.size - 1:
            return f"an entry of {length} bytes, but only {self._file.size() - self.end} are left", b""
        data = self._bytes(self.end + _ENTRY_HEAD.size, length + 1)
        if data[length:] != _END_OF_ENTRY:
            return "an entry without its end mark", b""
        entry = data[:length]
        if adler32(entry) != checksum:
            return "an entry whose checksum does not match", b""
        return None, entry

    def _bytes(self, offset: int, count: int) -> bytes:
        """Returns the bytes at the current position; fewer than requested only at the end of the file."""
        begin = offset - self._start
        if begin + count > len(self._read):
            self._read = self._file.read_at(offset, max(count, _READ_BYTES))
            self._start, begin = offset, 0
        return self._read[begin : begin + count]
