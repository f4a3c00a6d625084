"""Message formats 0 and 1, built here by hand: wrappers, old LZ4 frames, broken bytes."""

from __future__ import annotations

import struct
import zlib

import lz4.frame
import pytest

from barnabas.common.errors import ErrorCode, RecordsRejected
from barnabas.records.batch import Record, decode_batch, has_valid_crc, iter_headers, read_header
from barnabas.records.compression import Codec, compress
from barnabas.records.legacy import xxh32

TIME_MS = 1_600_000_000_000


def field(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def message(
    offset: int, magic: int, key: bytes | None, value: bytes | None, attributes: int = 0, timestamp: int = TIME_MS
) -> bytes:
    rest = struct.pack(">bb", magic, attributes) + (struct.pack(">q", timestamp) if magic else b"")
    rest += field(key) + field(value)
    return struct.pack(">qiI", offset, len(rest) + 4, zlib.crc32(rest)) + rest


def wrapper(offset: int, magic: int, codec: Codec, messages: list[bytes], attributes: int = 0) -> bytes:
    return message(offset, magic, None, compress(codec, b"".join(messages)), codec | attributes, TIME_MS + 9)


@pytest.mark.parametrize("magic", [0, 1])
def test_single_messages(magic: int) -> None:
    data = message(7, magic, b"k", None) + message(8, magic, None, b"v") + message(9, magic, b"", b"")[:-1]
    headers = [header for _, header in iter_headers(data)]
    assert [(h.base_offset, h.last_offset, h.record_count, h.magic) for h in headers] == [
        (7, 7, 1, magic),
        (8, 8, 1, magic),
    ]
    timestamp = TIME_MS if magic else -1
    assert decode_batch(data) == [Record(7, timestamp, b"k", None)]
    assert decode_batch(data, headers[0].size_bytes) == [Record(8, timestamp, None, b"v")]
    assert has_valid_crc(data, 0, headers[0])
    broken = bytearray(data)
    broken[-1 - headers[1].size_bytes] ^= 1
    assert not has_valid_crc(broken, 0, headers[0]) or not has_valid_crc(broken, headers[0].size_bytes, headers[1])


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_offsets_inside_a_wrapper(codec: Codec) -> None:
    absolute = wrapper(12, 0, codec, [message(o, 0, b"k", b"%d" % o) for o in (10, 11, 12)])
    assert [r.offset for r in decode_batch(absolute)] == [10, 11, 12]
    relative = wrapper(12, 1, codec, [message(o, 1, b"k", b"%d" % o, timestamp=TIME_MS + o) for o in (0, 1, 2)])
    assert [(r.offset, r.timestamp) for r in decode_batch(relative)] == [(10 + i, TIME_MS + i) for i in range(3)]
    with_gap = wrapper(12, 1, codec, [message(o, 1, b"k", b"v") for o in (0, 5)])
    header = read_header(with_gap)
    assert (header.base_offset, header.last_offset, header.record_count) == (7, 12, 2)
    appended = wrapper(12, 1, codec, [message(0, 1, b"k", b"v")], attributes=8)
    assert decode_batch(appended)[0].timestamp == TIME_MS + 9
    assert read_header(appended).timestamp_type == 1


def test_the_wrong_checksum_of_early_java_lz4_frames_is_put_right() -> None:
    frame = bytearray(lz4.frame.compress(message(0, 0, b"k", b"v" * 100), block_linked=False, store_size=False))
    assert (xxh32(bytes(frame[4:6])) >> 8) & 0xFF == frame[6], "the right one hashes what follows the magic"
    frame[6] = (xxh32(bytes(frame[0:6])) >> 8) & 0xFF
    data = message(0, 0, None, bytes(frame), Codec.LZ4)
    assert decode_batch(data) == [Record(0, -1, b"k", b"v" * 100)]
    with pytest.raises(RecordsRejected):
        decode_batch(message(0, 1, None, bytes(frame), Codec.LZ4))


@pytest.mark.parametrize("data, expected", [(b"", 0x02CC5D05), (b"a", 0x550D7456), (b"abc", 0x32D153FF)])
def test_xxh32(data: bytes, expected: int) -> None:
    assert xxh32(data) == expected


@pytest.mark.parametrize(
    "data, code",
    [
        (wrapper(0, 1, Codec.ZSTD, [message(0, 1, b"k", b"v")]), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (wrapper(0, 1, Codec.GZIP, []), ErrorCode.INVALID_RECORD),
        (wrapper(0, 1, Codec.GZIP, [message(0, 0, b"k", b"v")]), ErrorCode.INVALID_RECORD),
        (wrapper(0, 1, Codec.GZIP, [wrapper(0, 1, Codec.GZIP, [])]), ErrorCode.INVALID_RECORD),
        (wrapper(0, 1, Codec.GZIP, [message(0, 1, b"k", b"v")[:-1]]), ErrorCode.CORRUPT_MESSAGE),
        (message(0, 1, None, None, Codec.GZIP), ErrorCode.INVALID_RECORD),
        (message(0, 1, b"k", b"v")[:-1] + b"", ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_broken_old_messages_are_refused(data: bytes, code: ErrorCode) -> None:
    with pytest.raises(RecordsRejected) as caught:
        decode_batch(data)
    assert caught.value.code is code


def test_no_flipped_bit_or_cut_brings_another_exception() -> None:
    data = wrapper(3, 1, Codec.GZIP, [message(o, 1, b"key", b"value") for o in range(4)]) + message(4, 0, b"k", b"v")
    refused = 0
    for place in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[place] ^= 1 << bit
            try:
                for position, _ in iter_headers(flipped):
                    decode_batch(flipped, position)
            except RecordsRejected:
                refused += 1
    assert refused > len(data)
