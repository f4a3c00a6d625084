"""Records inside a magic 2 batch: decoded and encoded one by one, only where their contents are needed.

    length         varint (zigzag)   bytes after it
    attributes     1 byte            unused
    timestampDelta varlong           relative to the batch's base timestamp
    offsetDelta    varint            relative to its base offset
    key, value     varint length (-1 is null) and bytes
    headers        varint count, then key (varint length, UTF-8) and value each

Any bytes lead to records or to `RecordsRejected(INVALID_RECORD)`. Header keys that are not UTF-8 are kept by surrogate
escapes, so that encoding them again gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from barnabas.records.header import invalid

Header = tuple[str, bytes | None]

_SIGN_64 = 1 << 63
_MASK_64 = (1 << 64) - 1


class Record:
    """A decoded record; offset and timestamp are absolute."""

    __slots__ = ("headers", "key", "offset", "timestamp", "value")

    def __init__(
        self,
        offset: int,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Iterable[Header] = (),
    ) -> None:
        self.offset = offset
        self.timestamp = timestamp
        self.key = key
        self.value = value
        self.headers: list[Header] = list(headers)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Record):
            return NotImplemented
        return (self.offset, self.timestamp, self.key, self.value, self.headers) == (
            other.offset,
            other.timestamp,
            other.key,
            other.value,
            other.headers,
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return (
            f"Record(offset={self.offset}, timestamp={self.timestamp}, key={self.key!r}, value={self.value!r}, "
            f"headers={self.headers!r})"
        )


def wrap_64(value: int) -> int:
    """Wraps a number like a signed 64-bit integer: the deltas of distant timestamps overflow when written, and overflow
    back when read.
    """
    return ((value + _SIGN_64) & _MASK_64) - _SIGN_64


def read_varint(data: bytes, position: int, size_max: int = 5) -> tuple[int, int]:
    """Returns a zigzag varint of at most `size_max` bytes and the position after it. IndexError at the end of data."""
    result = shift = 0
    for place in range(position, position + size_max):
        byte = data[place]
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (result >> 1) ^ -(result & 1), place + 1
        shift += 7
    raise invalid(f"a varint of more than {size_max} bytes at byte {position} of the records")


def write_varint(out: bytearray, value: int) -> None:
    zigzag = (value << 1) ^ (value >> 63)
    while zigzag > 0x7F:
        out.append((zigzag & 0x7F) | 0x80)
        zigzag >>= 7
    out.append(zigzag)


def _read_bytes(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    size = data[position]
    if size < 0x80:
        position += 1
        size = (size >> 1) ^ -(size & 1)
    else:
        size, position = read_varint(data, position)
    if size < 0:
        return None, position
    after = position + size
    if after > end:
        raise invalid(f"a field of {size} bytes at byte {position} reaches beyond its record")
    return data[position:after], after


def _read_headers(data: bytes, position: int, end: int, count: int) -> tuple[list[Header], int]:
    if not 0 <= count <= end - position:
        raise invalid(f"a record with {count} headers in {end - position} bytes")
    headers: list[Header] = []
    for _ in range(count):
        key, position = _read_bytes(data, position, end)
        if key is None:
            raise invalid("a header without a key")
        value, position = _read_bytes(data, position, end)
        headers.append((key.decode("utf-8", "surrogateescape"), value))
    return headers, position


def _read_record(
    data: bytes, position: int, end: int, base_offset: int, base_timestamp: int, timestamp: int | None
) -> Record:
    """Decodes the record whose body is data[position:end]."""
    delta, position = read_varint(data, position + 1, 10)
    offset_delta, position = read_varint(data, position)
    key, position = _read_bytes(data, position, end)
    value, position = _read_bytes(data, position, end)
    headers: Sequence[Header] = ()
    count = data[position]
    position += 1
    if count:
        if count >= 0x80:
            count, position = read_varint(data, position - 1)
        else:
            count = (count >> 1) ^ -(count & 1)
        headers, position = _read_headers(data, position, end, count)
    if position != end:
        raise invalid(f"a record ends at byte {position}, its length says {end}")
    return Record(
        base_offset + offset_delta,
        wrap_64(base_timestamp + delta) if timestamp is None else timestamp,
        key,
        value,
        headers,
    )


def read_records(data: bytes, count: int, base_offset: int, base_timestamp: int, timestamp: int | None) -> list[Record]:
    """Decodes exactly `count` records in `data`. `timestamp` replaces the timestamp of each (LogAppendTime)."""
    size = len(data)
    # A record takes at least 7 bytes (its length and one byte for each of six fields): this check bounds the loop.
    if not 0 <= count <= size:
        raise invalid(f"a record count of {count} in {size} bytes of records")
    records = []
    position = 0
    try:
        for _ in range(count):
            length = data[position]
            if length < 0x80:
                position += 1
                length = (length >> 1) ^ -(length & 1)
            else:
                length, position = read_varint(data, position)
            end = position + length
            if length < 0 or end > size:
                raise invalid(f"a record of {length} bytes at byte {position} of {size}")
            records.append(_read_record(data, position, end, base_offset, base_timestamp, timestamp))
            position = end
    except IndexError:
        raise invalid(f"the records end after {len(records)} of {count}") from None
    if position != size:
        raise invalid(f"{size - position} bytes follow the last of {count} records")
    return records


def _write_bytes(out: bytearray, data: bytes | None) -> None:
    if data is None:
        out.append(1)
        return
    size = len(data)
    if size < 64:
        out.append(size << 1)
    else:
        write_varint(out, size)
    out += data


def write_record(out: bytearray, record: Any, offset_delta: int, timestamp_delta: int) -> None:
    """Encodes one record at the end of `out`; `record` has `key`, `value` and `headers`."""
    body = bytearray(1)
    write_varint(body, wrap_64(timestamp_delta))
    write_varint(body, offset_delta)
    _write_bytes(body, record.key)
    _write_bytes(body, record.value)
    headers = record.headers
    write_varint(body, len(headers))
    for key, value in headers:
        _write_bytes(body, key.encode("utf-8", "surrogateescape"))
        _write_bytes(body, value)
    write_varint(out, len(body))
    out += body
