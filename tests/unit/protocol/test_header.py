"""Request and response headers: which version belongs to which request, and what is refused in one."""

from __future__ import annotations

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.common.errors import DecodeError
from barnabas.protocol.header import decode_request_header, request_header_version, response_header_version


@pytest.mark.parametrize(
    ("api_key", "version", "request_version", "response_version"),
    [
        (0, 8, 1, 0),
        (0, 9, 2, 1),
        (17, 1, 1, 0),
        (18, 2, 1, 0),
        (18, 3, 2, 0),
        (18, 99, 2, 0),
        (7, 0, 0, 0),
        (7, 1, 1, 0),
        (7, 3, 2, 1),
        (60, 0, 2, 1),
    ],
)
def test_header_versions(api_key: int, version: int, request_version: int, response_version: int) -> None:
    assert request_header_version(api_key, version) == request_version
    assert response_header_version(api_key, version) == response_version


def test_each_header_version_is_read() -> None:
    assert decode_request_header(struct.pack(">hhi", 7, 0, 5)) == (7, 0, 5, None, 8)
    assert decode_request_header(struct.pack(">hhi", 7, 0, 5) + b"body") == (7, 0, 5, None, 8)
    assert decode_request_header(b"??" + struct.pack(">hhih2s", 3, 1, 5, 2, b"me"), 2) == (3, 1, 5, "me", 14)
    assert decode_request_header(struct.pack(">hhih", 3, 1, 5, -1)) == (3, 1, 5, None, 10)
    assert decode_request_header(struct.pack(">hhihsB", 3, 9, 5, 1, b"x", 0)) == (3, 9, 5, "x", 12)
    tagged = struct.pack(">hhihs", 3, 9, 5, 1, b"x") + bytes.fromhex("01 05 02 ffff")
    assert decode_request_header(memoryview(tagged)) == (3, 9, 5, "x", 16)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        struct.pack(">hhi", 3, 1, 5),
        struct.pack(">hhih", 200, 0, 5, -1),
        struct.pack(">hhih", -1, 0, 5, -1),
        struct.pack(">hhih", 3, 1, 5, 3) + b"me",
        struct.pack(">hhih", 3, 1, 5, 1) + b"\xff",
        struct.pack(">hhih", 3, 9, 5, -1),
        struct.pack(">hhih", 3, 9, 5, -1) + b"\x01\x05\x09",
        struct.pack(">hhih", 3, 9, 5, -1) + b"\xff\xff\xff\xff\x0f",
    ],
)
def test_bad_headers_are_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_request_header(data)


@given(st.binary(max_size=60))
def test_any_bytes_give_a_header_or_a_decode_error(data: bytes) -> None:
    with suppress(DecodeError):
        decode_request_header(data)
