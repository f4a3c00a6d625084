"""The codecs of record batches, in both directions, with bounded output.

    0 none   1 gzip   2 snappy   3 lz4   4 zstd

Snappy is written in the xerial framing of the Java clients (16-byte header, blocks of 32 KiB, each with its length);
plain snappy is read too. LZ4 is written as frames of independent 64 KiB blocks: Kafka's own reader refuses linked ones.
The compression packages are imported when the first compressed batch is opened, which never happens on most brokers.

Malformed input raises `RecordsRejected(CORRUPT_MESSAGE)`; data that decompresses to more than the limit is refused
before that much memory is used.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from enum import IntEnum
from functools import cache
from typing import Any

from barnabas.common import effort, late_imports
from barnabas.common.effort import Work
from barnabas.common.errors import ErrorCode, RecordsRejected
from barnabas.common.host import Buffer
from barnabas.records.header import corrupt


class Codec(IntEnum):
    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


#: The names in `compression.type`.
CODEC_NAMES = {codec.name.lower(): codec for codec in Codec}

#: The default limit of a batch's decompressed size.
DECOMPRESSED_BYTES_MAX = 256 * 1024 * 1024
#: Output is produced in pieces of this size where the package would otherwise hold the interpreter's lock too long;
#: larger output buffers are mapped memory, which needs no clearing.
_PIECE_BYTES = 1024 * 1024

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 * 1024
_INT = struct.Struct(">i")
#: A snappy element produces at most 64 bytes of output from 2 of input.
_SNAPPY_RATIO_MAX = 64
#: Kafka's default level of LZ4 is the fast compressor; all other levels are slow ones.
_LZ4_FAST_LEVEL = 9
_LZ4_SLOW_LEVELS = (3, 12)


@cache
def _package(name: str) -> Any:
    return late_imports.load(name)


def codec_of(attributes: int) -> Codec:
    """Returns the codec in the low three bits of a batch's or message's attributes."""
    try:
        return Codec(attributes & 0x07)
    except ValueError:
        raise RecordsRejected(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"unknown compression codec {attributes & 0x07}"
        ) from None


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """Compresses `data`. `level` as in `compression.<codec>.level`; None is the default."""
    result: bytes
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            packer = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, 31)
            return packer.compress(data) + packer.flush()
        case Codec.SNAPPY:
            return _compress_snappy(data)
        case Codec.LZ4:
            result = _package("lz4.frame").compress(
                data, compression_level=_lz4_level(level), block_linked=False, store_size=False
            )
            return result
        case Codec.ZSTD:
            return bytes(_package("cramjam").zstd.compress(data, level=3 if level is None else level))
        case _:
            raise ValueError(f"no codec {codec}")


def _lz4_level(level: int | None) -> int:
    if level is None or level == _LZ4_FAST_LEVEL:
        return 0
    low, high = _LZ4_SLOW_LEVELS
    return min(max(level, low), high)


def _compress_snappy(data: Buffer) -> bytes:
    pack = _package("cramjam").snappy.compress_raw
    view = memoryview(data)
    out = bytearray(_XERIAL_HEADER)
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(pack(bytes(view[start : start + _XERIAL_BLOCK_BYTES])))
        out += _INT.pack(len(block))
        out += block
    return bytes(out)


def decompress(codec: int, data: Buffer, limit: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """Returns the decompressed bytes. Raises RecordsRejected if they are malformed or more than `limit`."""
    return bytes(unpack(codec, data, limit))


def unpack(codec: int, data: Buffer, limit: int = DECOMPRESSED_BYTES_MAX) -> Buffer:
    """Does what `decompress` does, without the copy into `bytes`: for large batches, and in threads."""
    if codec == Codec.NONE:
        return data
    try:
        unpacker = _DECOMPRESSORS[codec]
    except KeyError:
        raise RecordsRejected(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"unknown compression codec {codec}") from None
    found = unpacker(bytes(data), limit)
    effort.add(Work.UNPACKED_BYTE, len(found))
    return found


def _output_buffer(size: int) -> Buffer:
    """Returns a buffer for `size` bytes of output."""
    if size <= _PIECE_BYTES:
        return bytearray(size)
    mmap = _package("mmap")
    return memoryview(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))


def _too_large(limit: int) -> RecordsRejected:
    return RecordsRejected(ErrorCode.MESSAGE_TOO_LARGE, f"a batch unpacks to more than {limit} bytes")


def _decompress_gzip(data: bytes, limit: int) -> Buffer:
    out: bytearray | bytes = b""
    while data:
        unpacker = zlib.decompressobj(31)
        while True:
            try:
                piece = unpacker.decompress(data, min(_PIECE_BYTES, limit + 1 - len(out)))
            except zlib.error as error:
                raise corrupt(f"gzip: {error}") from None
            if not out:
                out = piece
            elif isinstance(out, bytes):
                out = bytearray(out)
                out += piece
            else:
                out += piece
            if len(out) > limit:
                raise _too_large(limit)
            data = unpacker.unconsumed_tail
            if unpacker.eof:
                break
            if not piece and not data:
                raise corrupt("gzip: the stream ends too early")
        # Members can follow one another; other trailing bytes are ignored as padding, as Java's reader does.
        data = unpacker.unused_data if unpacker.unused_data[:2] == b"\x1f\x8b" else b""
    return out


def _decompress_snappy(data: bytes, limit: int) -> Buffer:
    if not data.startswith(_XERIAL_MAGIC):
        return _snappy_block(data, limit)
    out = bytearray()
    position = len(_XERIAL_HEADER)
    while position < len(data):
        if data.startswith(_XERIAL_MAGIC, position):  # Streams can be concatenated.
            position += len(_XERIAL_HEADER)
            continue
        if position + 4 > len(data):
            raise corrupt("snappy: a block length is cut off")
        (size,) = _INT.unpack_from(data, position)
        position += 4
        if size < 0 or position + size > len(data):
            raise corrupt(f"snappy: a block of {size} bytes where {len(data) - position} are left")
        out += _snappy_block(data[position : position + size], limit - len(out))
        position += size
    return out


def _snappy_block(block: bytes, limit: int) -> Buffer:
    cramjam = _package("cramjam")
    try:
        size = cramjam.snappy.decompress_raw_len(block)
        if size > limit:
            raise _too_large(limit)
        if size > _SNAPPY_RATIO_MAX * len(block):
            raise corrupt(f"snappy: a block of {len(block)} bytes claims to hold {size}")
        if size == 0:
            return b""
        out = _output_buffer(size)
        used = cramjam.snappy.decompress_raw_into(block, out)
    except cramjam.DecompressionError as error:
        raise corrupt(f"snappy: {error}") from None
    return out if used == size else memoryview(out)[:used]


def _decompress_lz4(data: bytes, limit: int) -> Buffer:
    unpacker = _package("lz4.frame").LZ4FrameDecompressor()
    out: bytes | bytearray = b""
    try:
        out = unpacker.decompress(data, max_length=min(_PIECE_BYTES, limit + 1))
        while not unpacker.eof and not unpacker.needs_input and len(out) <= limit:
            more = unpacker.decompress(b"", max_length=min(_PIECE_BYTES, limit + 1 - len(out)))
            if not more:
                break
            if isinstance(out, bytes):
                out = bytearray(out)
            out += more
    except (RuntimeError, EOFError, ValueError) as error:
        raise corrupt(f"lz4: {error}") from None
    if len(out) > limit:
        raise _too_large(limit)
    if not unpacker.eof:
        raise corrupt("lz4: the frame ends too early")
    return out


def _decompress_zstd(data: bytes, limit: int) -> Buffer:
    """Decompresses into buffers of growing size, because a frame need not contain its decompressed size."""
    cramjam = _package("cramjam")
    size = min(limit, max(64 * 1024, 8 * len(data)))
    while True:
        out = _output_buffer(size)
        try:
            used = cramjam.zstd.decompress_into(data, out)
        except cramjam.DecompressionError as error:
            if "whole buffer" not in str(error):
                raise corrupt(f"zstd: {error}") from None
            if size >= limit:
                raise _too_large(limit) from None
            size = min(limit, size * 8)
            continue
        return memoryview(out)[:used]


_DECOMPRESSORS: dict[int, Callable[[bytes, int], Buffer]] = {
    Codec.GZIP: _decompress_gzip,
    Codec.SNAPPY: _decompress_snappy,
    Codec.LZ4: _decompress_lz4,
    Codec.ZSTD: _decompress_zstd,
}
