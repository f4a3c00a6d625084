"""Primitives of the wire format at their edges."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


@pytest.mark.parametrize(("value", "written"), [(0, "00"), (-1, "01"), (1, "02"), (-64, "7f"), (64, "8001")])
def test_varint_is_zigzag(value: int, written: str) -> None:
    for write, read in ((wire.write_varint, wire.read_varint), (wire.write_varlong, wire.read_varlong)):
        out = bytearray()
        write(out, value)
        assert out.hex() == written
        assert read(out, 0) == (value, len(out))


@given(st.integers(-(2**31), 2**31 - 1))
def test_varint_round_trip(value: int) -> None:
    out = bytearray(b"x")
    wire.write_varint(out, value)
    assert wire.read_varint(memoryview(out), 1) == (value, len(out))


@given(st.integers(-(2**63), 2**63 - 1))
def test_varlong_round_trip(value: int) -> None:
    out = bytearray(b"x")
    wire.write_varlong(out, value)
    assert wire.read_varlong(memoryview(out), 1) == (value, len(out))


@pytest.mark.parametrize("text", ["", "80", "ffffffff", "ffffffff10", "ffffffffff01", "ffffffffffffffffffffff01"])
def test_bad_varints_are_refused(text: str) -> None:
    with pytest.raises(DecodeError):
        wire.read_unsigned_varint(bytes.fromhex(text), 0)


@pytest.mark.parametrize("text", ["", "80", "ffffffffffffffffff02", "ffffffffffffffffffff01"])
def test_bad_varlongs_are_refused(text: str) -> None:
    with pytest.raises(DecodeError):
        wire.read_varlong(bytes.fromhex(text), 0)


def test_numbers_that_do_not_fit_are_refused() -> None:
    for write, value in (
        (wire.write_unsigned_varint, -1),
        (wire.write_unsigned_varint, 2**32),
        (wire.write_varint, 2**31),
        (wire.write_varint, -(2**31) - 1),
        (wire.write_varlong, 2**63),
    ):
        with pytest.raises(EncodeError):
            write(bytearray(), value)


@given(st.one_of(st.none(), st.text(max_size=200)))
def test_strings_round_trip(value: str | None) -> None:
    for write, read in (
        (wire.write_string, wire.read_string),
        (wire.write_compact_string, wire.read_compact_string),
    ):
        out = bytearray(b"xy")
        write(out, value)
        assert read(out, 2) == (value, len(out))
        for end in range(2, len(out)):
            with pytest.raises(DecodeError):
                read(bytes(out[:end]), 2)


@given(st.one_of(st.none(), st.binary(max_size=200)))
def test_bytes_round_trip_as_views(value: bytes | None) -> None:
    for write, read in ((wire.write_bytes, wire.read_bytes), (wire.write_compact_bytes, wire.read_compact_bytes)):
        out = bytearray(b"xy")
        write(out, value)
        found, end = read(bytes(out), 2)
        assert end == len(out)
        assert found == value
        for cut in range(2, len(out)):
            with pytest.raises(DecodeError):
                read(bytes(out[:cut]), 2)


def test_strings_longer_than_32767_bytes_are_refused_both_ways() -> None:
    for write in (wire.write_string, wire.write_compact_string):
        with pytest.raises(EncodeError):
            write(bytearray(), "é" * 16384)
    out = bytearray()
    wire.write_unsigned_varint(out, 32769)
    with pytest.raises(DecodeError):
        wire.read_compact_string(out + bytes(32768), 0)


def test_strings_must_be_utf_8() -> None:
    with pytest.raises(DecodeError, match="UTF-8"):
        wire.read_string(b"\x00\x01\xff", 0)


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
