"""Primitives of the wire format at their edges."""

from __future__ import annotations

import pytest

from barnabas.common.errors import DecodeError, EncodeError
from barnabas.protocol import wire


@pytest.mark.parametrize(
    ("value", "written"),
    [(0, "00"), (1, "01"), (127, "7f"), (128, "8001"), (300, "ac02"), (16384, "808001"), (2**32 - 1, "ffffffff0f")],
)
def test_unsigned_varint_bytes(value: int, written: str) -> None:
    out = bytearray()
    wire.write_unsigned_varint(out, value)
    assert out.hex() == written
    assert wire.unsigned_varint_size(value) == len(out)
    assert wire.read_unsigned_varint(out, 0) == (value, len(out))


@pytest.mark.parametrize("text", ["", "80", "ffffffff", "ffffffff10", "ffffffffff01", "ffffffffffffffffffffff01"])
def test_bad_varints_are_refused(text: str) -> None:
    with pytest.raises(DecodeError):
        wire.read_unsigned_varint(bytes.fromhex(text), 0)


def test_numbers_that_do_not_fit_are_refused() -> None:
    for value in (-1, 2**32):
        with pytest.raises(EncodeError):
            wire.write_unsigned_varint(bytearray(), value)


@pytest.mark.parametrize(("value", "written"), [(None, "00"), ("", "01"), ("a", "0261"), ("é", "03c3a9")])
def test_compact_string_bytes(value: str | None, written: str) -> None:
    out = bytearray()
    wire.write_compact_string(out, value)
    assert out.hex() == written


def test_strings_longer_than_32767_bytes_are_refused() -> None:
    with pytest.raises(EncodeError):
        wire.write_compact_string(bytearray(), "é" * 16384)


def test_tagged_fields_are_written_in_the_order_of_their_tags() -> None:
    out = bytearray()
    wire.write_tagged_fields(out, [(300, b"b"), (2, b"")])
    assert out.hex() == "020200ac020162"
    assert wire.read_tagged_fields(out, 0) == (((2, b""), (300, b"b")), len(out))
    assert wire.skip_tagged_fields(out, 0) == len(out)
    assert wire.skip_tagged_fields(b"\x00", 0) == 1


@pytest.mark.parametrize("text", ["", "01", "0102", "010205", "ffffffff0f", "0202000200"])
def test_bad_tagged_fields_are_refused(text: str) -> None:
    data = bytes.fromhex(text)
    with pytest.raises(DecodeError):
        wire.read_tagged_fields(data, 0)
    with pytest.raises(DecodeError):
        wire.skip_tagged_fields(data, 0)


def test_a_tag_is_written_once() -> None:
    with pytest.raises(EncodeError, match="repeated"):
        wire.write_tagged_fields(bytearray(), [(1, b""), (1, b"")])
