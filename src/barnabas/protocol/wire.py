"""Primitives of Kafka's wire format over any bytes-like object, for hand-written code and for the codec.

Readers take `(data, offset)` and return `(value, next offset)`; they raise DecodeError at the end of the data and for
values that no writer creates. Writers append to a bytearray. Numbers are big-endian.

    unsigned varint   7 bits per byte, lowest first; the top bit means that more follow; at most 5 bytes (32 bits)
    varint, varlong   zigzag, then as above; at most 5 and 10 bytes
    compact           the length plus one as unsigned varint, 0 for null (KIP-482)
    tagged fields     count, then tag, size and bytes of each, all numbers unsigned varints (KIP-482)
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from barnabas.common.errors import DecodeError, EncodeError

Buffer = bytes | bytearray | memoryview
#: Record batches, which this layer never decodes.
Records = bytes | bytearray | memoryview

#: The longest string of the protocol (Kafka refuses longer ones in compact form too).
STRING_BYTES_MAX = 0x7FFF

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


def read_unsigned_varint(data: Buffer, offset: int) -> tuple[int, int]:
    try:
        byte = data[offset]
    except IndexError:
        raise DecodeError("data end inside a varint", offset) from None
    if byte < 0x80:
        return byte, offset + 1
    return continue_unsigned_varint(data, offset + 1, byte)


def continue_unsigned_varint(data: Buffer, offset: int, first: int) -> tuple[int, int]:
    """Reads the rest of an unsigned varint whose first byte, already read, had its top bit set."""
    value = first & 0x7F
    try:
        for shift in (7, 14, 21, 28):
            byte = data[offset]
            offset += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value > 0xFFFFFFFF:
                    break
                return value, offset
    except IndexError:
        raise DecodeError("data end inside a varint", offset) from None
    raise DecodeError("unsigned varint of more than 32 bits", offset)


def write_unsigned_varint(out: bytearray, value: int) -> None:
    if value < 0 or value > 0xFFFFFFFF:
        raise EncodeError(f"{value} does not fit an unsigned varint")
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def unsigned_varint_size(value: int) -> int:
    """Returns the number of bytes that `write_unsigned_varint` writes for the value."""
    return max(1, (value.bit_length() + 6) // 7)


def read_varint(data: Buffer, offset: int) -> tuple[int, int]:
    """Reads a signed 32-bit number, as in record fields."""
    value, offset = read_unsigned_varint(data, offset)
    return (value >> 1) ^ -(value & 1), offset


def write_varint(out: bytearray, value: int) -> None:
    if not -0x80000000 <= value <= 0x7FFFFFFF:
        raise EncodeError(f"{value} does not fit a varint")
    write_unsigned_varint(out, (value << 1) ^ (value >> 31))


def read_varlong(data: Buffer, offset: int) -> tuple[int, int]:
    """Reads a signed 64-bit number."""
    value = 0
    try:
        for shift in range(0, 70, 7):
            byte = data[offset]
            offset += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value > 0xFFFFFFFFFFFFFFFF:
                    break
                return (value >> 1) ^ -(value & 1), offset
    except IndexError:
        raise DecodeError("data end inside a varlong", offset) from None
    raise DecodeError("varlong of more than 64 bits", offset)


def write_varlong(out: bytearray, value: int) -> None:
    if not -0x8000000000000000 <= value <= 0x7FFFFFFFFFFFFFFF:
        raise EncodeError(f"{value} does not fit a varlong")
    rest = (value << 1) ^ (value >> 63)
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)


def read_string(data: Buffer, offset: int) -> tuple[str | None, int]:
    """Reads a string with an int16 length, -1 for null."""
    try:
        (length,) = _INT16.unpack_from(data, offset)
    except struct.error:
        raise DecodeError("data end inside a string length", offset) from None
    if length < 0:
        return None, offset + 2
    return _text(data, offset + 2, length)


def read_compact_string(data: Buffer, offset: int) -> tuple[str | None, int]:
    length, offset = read_unsigned_varint(data, offset)
    if length == 0:
        return None, offset
    if length > STRING_BYTES_MAX + 1:
        raise DecodeError(f"string of {length - 1} bytes", offset)
    return _text(data, offset, length - 1)


def _text(data: Buffer, offset: int, length: int) -> tuple[str, int]:
    end = offset + length
    if end > len(data):
        raise DecodeError(f"string of {length} bytes, {len(data) - offset} are left", offset)
    try:
        return str(data[offset:end], "utf-8"), end
    except UnicodeDecodeError as error:
        raise DecodeError("string is not UTF-8", offset) from error


def write_string(out: bytearray, value: str | None) -> None:
    if value is None:
        out += b"\xff\xff"
        return
    data = _string_bytes(value)
    out += _INT16.pack(len(data))
    out += data


def write_compact_string(out: bytearray, value: str | None) -> None:
    if value is None:
        out.append(0)
        return
    data = _string_bytes(value)
    write_unsigned_varint(out, len(data) + 1)
    out += data


def _string_bytes(value: str) -> bytes:
    data = value.encode("utf-8")
    if len(data) > STRING_BYTES_MAX:
        raise EncodeError(f"string of {len(data)} bytes, at most {STRING_BYTES_MAX} can be sent")
    return data


def read_bytes(data: Buffer, offset: int) -> tuple[memoryview | None, int]:
    """Reads bytes with an int32 length, -1 for null; returns a view, not a copy."""
    try:
        (length,) = _INT32.unpack_from(data, offset)
    except struct.error:
        raise DecodeError("data end inside a length", offset) from None
    if length < 0:
        return None, offset + 4
    return _slice(data, offset + 4, length)


def read_compact_bytes(data: Buffer, offset: int) -> tuple[memoryview | None, int]:
    length, offset = read_unsigned_varint(data, offset)
    if length == 0:
        return None, offset
    return _slice(data, offset, length - 1)


def _slice(data: Buffer, offset: int, length: int) -> tuple[memoryview, int]:
    end = offset + length
    if end > len(data):
        raise DecodeError(f"{length} bytes announced, {len(data) - offset} are left", offset)
    return memoryview(data)[offset:end], end


def write_bytes(out: bytearray, value: Buffer | None) -> None:
    if value is None:
        out += b"\xff\xff\xff\xff"
        return
    out += _INT32.pack(len(value))
    out += value


def write_compact_bytes(out: bytearray, value: Buffer | None) -> None:
    if value is None:
        out.append(0)
        return
    write_unsigned_varint(out, len(value) + 1)
    out += value


#: More tagged fields in one place are refused: the protocol has a handful, and each takes time to process.
TAGS_MAX = 64


def read_tagged_fields(data: Buffer, offset: int) -> tuple[tuple[tuple[int, bytes], ...], int]:
    """Reads all tagged fields as (tag, bytes)."""
    count, offset = read_unsigned_varint(data, offset)
    if count == 0:
        return (), offset
    if count > (len(data) - offset) // 2:
        raise DecodeError(f"{count} tagged fields announced, {len(data) - offset} bytes are left", offset)
    if count > TAGS_MAX:
        raise DecodeError(f"{count} tagged fields in one place, {TAGS_MAX} at most are read", offset)
    fields: dict[int, bytes] = {}
    for _ in range(count):
        tag, offset = read_unsigned_varint(data, offset)
        size, offset = read_unsigned_varint(data, offset)
        value, offset = _slice(data, offset, size)
        if tag in fields:
            raise DecodeError(f"tag {tag} is repeated", offset)
        fields[tag] = bytes(value)
    return tuple(fields.items()), offset


def skip_tagged_fields(data: Buffer, offset: int) -> int:
    """Returns the offset after the tagged fields."""
    if offset < len(data) and data[offset] == 0:
        return offset + 1
    return read_tagged_fields(data, offset)[1]


def write_tagged_fields(out: bytearray, fields: Sequence[tuple[int, Buffer]]) -> None:
    """Writes tagged fields in the order of their tags; each tag must be unique."""
    ordered = sorted(fields, key=lambda field: field[0])
    write_unsigned_varint(out, len(ordered))
    previous = -1
    for tag, value in ordered:
        if tag == previous:
            raise EncodeError(f"tag {tag} is repeated")
        previous = tag
        write_unsigned_varint(out, tag)
        write_unsigned_varint(out, len(value))
        out += value
