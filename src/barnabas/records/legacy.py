"""Message formats 0 and 1, read only: logs begun before Kafka 0.11 still contain them.

    offset 8 | size 4 | crc 4 | magic 1 | attributes 1 | [timestamp 8, magic 1 only] | key | value

The checksum is the CRC-32 of everything after it. Compressed messages are a set inside the value of a wrapper, whose
offset is that of its last message: with magic 0 the inner offsets are absolute, with magic 1 they count from 0. Early
Java clients wrote LZ4 frames with a wrong header checksum (they included the frame's magic); it is corrected before the
frame is decompressed.
"""

from __future__ import annotations

import struct
import zlib

from barnabas.common.errors import ErrorCode, RecordsRejected
from barnabas.common.host import Buffer
from barnabas.records import compression
from barnabas.records.header import (
    LEGACY_MIN_BYTES,
    LOG_OVERHEAD,
    MAGIC_OFFSET,
    MAGIC_V0,
    MAGIC_V1,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_FLAG,
    BatchHeader,
    corrupt,
    invalid,
)
from barnabas.records.record import Record

_ENTRY = struct.Struct(">qiIbb")
_LONG = struct.Struct(">q")
_INT = struct.Struct(">i")

_LZ4_FRAME_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_CONTENT_SIZE_FLAG = 0x08
_MASK_32 = 0xFFFFFFFF


class _Entry:
    """A message of a message set, in its encoded form."""

    __slots__ = ("attributes", "crc", "end", "key", "magic", "offset", "size", "start", "timestamp", "value")

    def __init__(self, data: Buffer, position: int) -> None:
        if len(data) - position < LEGACY_MIN_BYTES:
            raise corrupt(f"a message of {len(data) - position} bytes")
        self.offset, self.size, self.crc, self.magic, self.attributes = _ENTRY.unpack_from(data, position)
        self.start = position
        self.end = position + LOG_OVERHEAD + self.size
        if self.magic not in (MAGIC_V0, MAGIC_V1):
            raise corrupt(f"a message of magic {self.magic}")
        if self.size + LOG_OVERHEAD < LEGACY_MIN_BYTES or self.end > len(data):
            raise corrupt(f"a message of {self.size} bytes where {len(data) - position - LOG_OVERHEAD} are left")
        position += _ENTRY.size
        self.timestamp = NO_TIMESTAMP
        if self.magic == MAGIC_V1:
            if position + _LONG.size > self.end:
                raise corrupt("a message without its timestamp")
            (self.timestamp,) = _LONG.unpack_from(data, position)
            position += _LONG.size
        self.key, position = _field(data, position, self.end)
        self.value, position = _field(data, position, self.end)
        if position != self.end:
            raise corrupt(f"{self.end - position} bytes follow the value of a message")

    @property
    def codec(self) -> int:
        codec: int = self.attributes & 0x07
        return codec

    @property
    def is_log_append_time(self) -> bool:
        return self.magic == MAGIC_V1 and bool(self.attributes & TIMESTAMP_TYPE_FLAG)


def _field(data: Buffer, position: int, end: int) -> tuple[bytes | None, int]:
    if position + _INT.size > end:
        raise corrupt("a message ends inside a length")
    (size,) = _INT.unpack_from(data, position)
    position += _INT.size
    if size < 0:
        return None, position
    if position + size > end:
        raise corrupt(f"a field of {size} bytes reaches beyond its message")
    return bytes(data[position : position + size]), position + size


def read_legacy_header(data: Buffer, position: int) -> BatchHeader:
    """Returns the header of one entry. A compressed entry is decompressed, because only its content has the first
    offset.
    """
    entry = _Entry(data, position)
    base_offset, count = entry.offset, 1
    if entry.codec:
        records = _open_wrapper(entry)
        base_offset, count = records[0].offset, len(records)
    return BatchHeader(
        base_offset=base_offset,
        batch_length=entry.size,
        partition_leader_epoch=NO_LEADER_EPOCH,
        magic=entry.magic,
        crc=entry.crc,
        attributes=entry.attributes & (0x07 | (TIMESTAMP_TYPE_FLAG if entry.magic else 0)),
        last_offset_delta=entry.offset - base_offset,
        base_timestamp=entry.timestamp,
        max_timestamp=entry.timestamp,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_sequence=NO_SEQUENCE,
        record_count=count,
    )


def decode_legacy(data: Buffer, position: int) -> list[Record]:
    """Returns the messages of one entry, with absolute offsets."""
    entry = _Entry(data, position)
    if entry.codec:
        return _open_wrapper(entry)
    return [Record(entry.offset, entry.timestamp, entry.key, entry.value)]


def legacy_crc_matches(data: Buffer, position: int, size_bytes: int) -> bool:
    stored: int = struct.unpack_from(">I", data, position + LOG_OVERHEAD)[0]
    return zlib.crc32(memoryview(data)[position + MAGIC_OFFSET : position + size_bytes]) == stored


def legacy_checksums(data: Buffer, position: int = 0) -> list[tuple[int, bool]]:
    """Returns (checksum, whether it is right) for each message of one entry, in the order of `decode_legacy`."""
    entry = _Entry(data, position)
    if entry.codec:
        inner, entries = _inner_entries(entry)
        return [(each.crc, legacy_crc_matches(inner, each.start, each.end - each.start)) for each in entries]
    return [(entry.crc, legacy_crc_matches(data, position, entry.end - position))]


def _open_wrapper(wrapper: _Entry) -> list[Record]:
    _, entries = _inner_entries(wrapper)
    shift = wrapper.offset - entries[-1].offset if wrapper.magic == MAGIC_V1 else 0
    fixed = wrapper.timestamp if wrapper.is_log_append_time else None
    return [Record(e.offset + shift, e.timestamp if fixed is None else fixed, e.key, e.value) for e in entries]


def _inner_entries(wrapper: _Entry) -> tuple[bytes, list[_Entry]]:
    """Returns the decompressed message set inside a compressed message, and its messages, of which there is at least
    one.
    """
    codec = compression.codec_of(wrapper.attributes)
    if codec is compression.Codec.ZSTD:
        raise RecordsRejected(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd is for magic 2 only")
    if wrapper.value is None:
        raise invalid("a compressed message without a value")
    packed = wrapper.value
    if codec is compression.Codec.LZ4 and wrapper.magic == MAGIC_V0:
        packed = _with_right_checksum(packed)
    data = compression.decompress(codec, packed)
    entries = []
    position = 0
    while position < len(data):
        entry = _Entry(data, position)
        if entry.codec or entry.magic != wrapper.magic:
            raise invalid(f"a message of magic {entry.magic}, codec {entry.codec} inside one of magic {wrapper.magic}")
        entries.append(entry)
        position = entry.end
    if not entries:
        raise invalid("a compressed message with nothing in it")
    return data, entries


def _with_right_checksum(frame: bytes) -> bytes:
    if len(frame) < 7 or not frame.startswith(_LZ4_FRAME_MAGIC):
        return frame
    end = 14 if frame[4] & _LZ4_CONTENT_SIZE_FLAG else 6
    if len(frame) <= end:
        return frame
    return frame[:end] + bytes([(xxh32(frame[4:end]) >> 8) & 0xFF]) + frame[end + 1 :]


def xxh32(data: bytes) -> int:
    """Computes XXH32 with seed 0 of fewer than 16 bytes, which is enough for a frame header."""
    assert len(data) < 16, "only the short form is implemented"
    prime_1, prime_2, prime_3, prime_4, prime_5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
    value = (prime_5 + len(data)) & _MASK_32
    position = 0
    while position + 4 <= len(data):
        (lane,) = struct.unpack_from("<I", data, position)
        value = _rotate((value + lane * prime_3) & _MASK_32, 17) * prime_4 & _MASK_32
        position += 4
    for byte in data[position:]:
        value = _rotate((value + byte * prime_5) & _MASK_32, 11) * prime_1 & _MASK_32
    value = (value ^ (value >> 15)) * prime_2 & _MASK_32
    value = (value ^ (value >> 13)) * prime_3 & _MASK_32
    return value ^ (value >> 16)


def _rotate(value: int, by: int) -> int:
    return ((value << by) | (value >> (32 - by))) & _MASK_32
