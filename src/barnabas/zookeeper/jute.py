"""Jute, ZooKeeper's encoding: big-endian numbers, and strings, buffers and lists after their length.

A length of -1 means null. Strings are UTF-8; invalid bytes are replaced, as by Apache's server.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final, TypeVar

from barnabas.common.errors import DecodeError

T = TypeVar("T")

INT: Final = struct.Struct(">i")
LONG: Final = struct.Struct(">q")
_NULL: Final = INT.pack(-1)
_unpack_int: Final = INT.unpack_from
_INT_BYTES: Final = INT.size


def put_int(out: bytearray, value: int) -> None:
    out += INT.pack(value)


def put_long(out: bytearray, value: int) -> None:
    out += LONG.pack(value)


def put_bool(out: bytearray, value: bool) -> None:
    out.append(1 if value else 0)


def put_string(out: bytearray, text: str | None) -> None:
    if text is None:
        out += _NULL
    else:
        data = text.encode()
        out += INT.pack(len(data))
        out += data


def put_buffer(out: bytearray, data: bytes | None) -> None:
    if data is None:
        out += _NULL
    else:
        out += INT.pack(len(data))
        out += data


def put_list(out: bytearray, items: tuple[T, ...] | None, put: Callable[[bytearray, T], None]) -> None:
    if items is None:
        out += _NULL
        return
    out += INT.pack(len(items))
    for item in items:
        put(out, item)


class FieldReader:
    """Reads fields one after another. All methods raise DecodeError at the end of the data and for impossible sizes."""

    __slots__ = ("data", "offset")

    def __init__(self, data: bytes, offset: int = 0) -> None:
        self.data = data
        self.offset = offset

    @property
    def is_at_end(self) -> bool:
        return self.offset == len(self.data)

    def fields(self, layout: struct.Struct) -> tuple[Any, ...]:
        """Returns the values of fields with a fixed layout."""
        try:
            values = layout.unpack_from(self.data, self.offset)
        except struct.error:
            raise DecodeError("the data end inside a field", self.offset) from None
        self.offset += layout.size
        return values

    def read_int(self) -> int:
        offset = self.offset
        try:
            value: int = _unpack_int(self.data, offset)[0]
        except struct.error:
            raise DecodeError("the data end inside a field", offset) from None
        self.offset = offset + _INT_BYTES
        return value

    def read_long(self) -> int:
        value: int = self.fields(LONG)[0]
        return value

    def read_bool(self) -> bool:
        if self.offset >= len(self.data):
            raise DecodeError("the data end inside a field", self.offset)
        self.offset += 1
        return self.data[self.offset - 1] != 0

    def read_buffer(self) -> bytes | None:
        length = self.read_int()
        if length == -1:
            return None
        end = self.offset + length
        if length < 0 or end > len(self.data):
            raise DecodeError(
                f"{length} bytes announced, but only {len(self.data) - self.offset} are left", self.offset
            )
        value = self.data[self.offset : end]
        self.offset = end
        return value

    def read_nullable_string(self) -> str | None:
        data = self.read_buffer()
        return None if data is None else data.decode(errors="replace")

    def read_string(self) -> str:
        """Returns a string. Null is returned as ""."""
        data = self.read_buffer()
        return data.decode(errors="replace") if data else ""

    def read_list(self, item_bytes_min: int, read: Callable[[], T]) -> tuple[T, ...] | None:
        """Returns the items of a list, each of which takes at least the given number of bytes; None for null."""
        count = self.read_int()
        if count == -1:
            return None
        if not 0 <= count <= (len(self.data) - self.offset) // item_bytes_min:
            raise DecodeError(
                f"{count} items announced, but only {len(self.data) - self.offset} bytes are left", self.offset
            )
        return tuple(read() for _ in range(count))
