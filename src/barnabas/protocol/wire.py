"""Primitives of Kafka's wire format over any bytes-like object, for hand-written code and for the codec.

Readers take `(data, offset)` and return `(value, next offset)`; they raise DecodeError at the end of the data and for
values that no writer creates. Writers append to a bytearray. Numbers are big-endian.

    unsigned varint   7 bits per byte, lowest first; the top bit means that more follow; at most 5 bytes (32 bits)
    compact           the length plus one as unsigned varint, 0 for null (KIP-482)
    tagged fields     count, then tag, size and bytes of each, all numbers unsigned varints (KIP-482)
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.common.errors import DecodeError, EncodeError

Buffer = bytes | bytearray | memoryview
#: Record batches, which this layer never decodes.
Records = bytes | bytearray | memoryview

#: The longest string of the protocol (Kafka refuses longer ones in compact form too).
STRING_BYTES_MAX = 0x7FFF


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
        raise EncodeError(f"string of {len(data)} bytes; at most {STRING_BYTES_MAX} can be sent")
    return data


def _slice(data: Buffer, offset: int, length: int) -> tuple[memoryview, int]:
    end = offset + length
    if end > len(data):
        raise DecodeError(f"{length} bytes announced, but only {len(data) - offset} are left", offset)
    return memoryview(data)[offset:end], end


#: More tagged fields in one place are refused: the protocol has a handful, and each takes time to process.
TAGS_MAX = 64


def read_tagged_fields(data: Buffer, offset: int) -> tuple[tuple[tuple[int, bytes], ...], int]:
    """Reads all tagged fields as (tag, bytes)."""
    count, offset = read_unsigned_varint(data, offset)
    if count == 0:
        return (), offset
    if count > (len(data) - offset) // 2:
        raise DecodeError(f"{count} tagged fields announced, but only {len(data) - offset} bytes are left", offset)
    if count > TAGS_MAX:
        raise DecodeError(f"{count} tagged fields in one place; at most {TAGS_MAX} are read", offset)
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
