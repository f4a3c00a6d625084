"""Codecs: both ways, foreign framings, broken streams, bounds."""

from __future__ import annotations

import gzip
import struct
import subprocess
import sys

import cramjam
import lz4.frame
import pytest

from barnabas.common.errors import ErrorCode, RecordsRejected
from barnabas.records.compression import Codec, compress, decompress

SAMPLES = [b"", b"x", bytes(1000), b"barnabas " * 20_000, bytes(range(256)) * 700]
REAL = [codec for codec in Codec if codec is not Codec.NONE]


@pytest.mark.parametrize("codec", list(Codec))
def test_what_is_packed_unpacks(codec: Codec) -> None:
    for data in SAMPLES:
        assert decompress(codec, compress(codec, data)) == data
        assert decompress(codec, memoryview(compress(codec, memoryview(data)))) == data


@pytest.mark.parametrize(
    "codec, levels", [(Codec.GZIP, (-1, 1, 9)), (Codec.LZ4, (1, 9, 17)), (Codec.ZSTD, (-131072, 1, 3, 22))]
)
def test_every_level_that_kafka_allows_works(codec: Codec, levels: tuple[int, ...]) -> None:
    for level in levels:
        assert decompress(codec, compress(codec, SAMPLES[3], level)) == SAMPLES[3]


def test_lz4_blocks_are_independent_and_small_as_kafka_demands() -> None:
    info = lz4.frame.get_frame_info(compress(Codec.LZ4, SAMPLES[3]))
    assert info["block_linked"] is False
    assert info["block_size"] <= 65536
    assert info["content_size"] == 0


def test_snappy_is_framed_as_java_does_it() -> None:
    packed = compress(Codec.SNAPPY, SAMPLES[3])
    assert packed[:16] == b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    (size,) = struct.unpack_from(">i", packed, 16)
    assert bytes(cramjam.snappy.decompress_raw(packed[20 : 20 + size])) == SAMPLES[3][:32768]


def test_other_forms_of_a_stream_are_read_too() -> None:
    data = SAMPLES[3]
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(data))) == data
    assert decompress(Codec.SNAPPY, compress(Codec.SNAPPY, data) * 2) == data * 2
    assert decompress(Codec.GZIP, gzip.compress(data) + gzip.compress(b"more")) == data + b"more"
    assert decompress(Codec.LZ4, lz4.frame.compress(data, block_linked=True, content_checksum=True)) == data


def outcome(codec: Codec, packed: bytes | bytearray) -> bytes | ErrorCode:
    try:
        return decompress(codec, packed, limit=1 << 20)
    except RecordsRejected as rejected:
        return rejected.code


@pytest.mark.parametrize("codec", REAL)
def test_a_stream_cut_off_is_corrupt(codec: Codec) -> None:
    packed = compress(codec, SAMPLES[3])
    for end in range(1, len(packed) - 1, max(1, len(packed) // 60)):
        result = outcome(codec, packed[:end])
        # Snappy's framing can end between two blocks: nothing in it shows that more should come.
        assert result is ErrorCode.CORRUPT_MESSAGE or (codec is Codec.SNAPPY and SAMPLES[3].startswith(bytes(result)))


@pytest.mark.parametrize("codec", REAL)
def test_a_flipped_bit_is_survived(codec: Codec) -> None:
    packed = compress(codec, SAMPLES[3])
    found_out = 0
    for place in range(0, len(packed), max(1, len(packed) // 200)):
        for bit in (0, 7):
            flipped = bytearray(packed)
            flipped[place] ^= 1 << bit
            result = outcome(codec, flipped)
            assert isinstance(result, bytes) or result in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.MESSAGE_TOO_LARGE)
            found_out += not isinstance(result, bytes)
    assert found_out > 0


@pytest.mark.parametrize("codec", REAL)
def test_a_bomb_is_refused_at_the_limit(codec: Codec) -> None:
    data = bytes(4_000_000)
    packed = compress(codec, data)
    assert len(packed) < 250_000
    assert decompress(codec, packed, limit=len(data)) == data
    with pytest.raises(RecordsRejected) as caught:
        decompress(codec, packed, limit=len(data) - 1)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_a_snappy_block_cannot_claim_more_than_it_can_hold() -> None:
    with pytest.raises(RecordsRejected) as caught:
        decompress(Codec.SNAPPY, b"\xff\xff\xff\x07" + b"abc")
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_the_packages_are_loaded_only_when_a_batch_is_opened() -> None:
    code = (
        "import sys; from barnabas.records import batch, validate; "
        "b = batch.encode_batch([batch.Record(0, 0, None, b'x')]); batch.decode_batch(b); "
        "sys.exit('cramjam' in sys.modules or 'lz4.frame' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
