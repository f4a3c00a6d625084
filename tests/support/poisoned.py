"""Batches with a right checksum and wrong contents, and the answers to produce requests with them.

Each form has the error code of Apache Kafka 4.1.0, which was recorded (`tests/system/test_poisoned_batches.py` with
BARNABAS_TARGET=kafka records it again), and Barnabas's where it is stricter: every client must be able to read what is
stored.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from tests.support.batches import with_right_crc

from barnabas.common.errors import ErrorCode
from barnabas.records.compression import Codec, compress
from barnabas.records.header import HEADER
from barnabas.records.record import write_varint

NOW_MS = time.time_ns() // 1_000_000
NONE, INVALID, UNKNOWN = ErrorCode.NONE, ErrorCode.INVALID_RECORD, ErrorCode.UNKNOWN_SERVER_ERROR
TIMESTAMP, TOO_LARGE = ErrorCode.INVALID_TIMESTAMP, ErrorCode.MESSAGE_TOO_LARGE

PACKED = (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)


class Form(NamedTuple):
    batch: bytes
    #: The answer of Apache Kafka 4.1.0.
    kafka: ErrorCode
    #: The answer of Barnabas.
    ours: ErrorCode


def varint(value: int) -> bytes:
    out = bytearray()
    write_varint(out, value)
    return bytes(out)


def record(
    offset: int = 0,
    *,
    timestamp: int = 0,
    key: bytes | None = b"key",
    value: bytes | None = b"value",
    headers: bytes = b"\0",
    length: int | None = None,
    key_size: int | None = None,
    value_size: int | None = None,
    tail: bytes = b"",
) -> bytes:
    """Returns one record. The sizes in it are those given, whatever follows them."""

    def field(data: bytes | None, size: int | None) -> bytes:
        told = size if size is not None else -1 if data is None else len(data)
        return varint(told) + (data or b"")

    body = b"\0" + varint(timestamp) + varint(offset) + field(key, key_size) + field(value, value_size) + headers + tail
    return varint(len(body) if length is None else length) + body


def batch(
    body: bytes,
    count: int,
    *,
    codec: Codec = Codec.NONE,
    last_delta: int | None = None,
    base_timestamp: int = NOW_MS,
    max_timestamp: int = NOW_MS,
    attributes: int = 0,
    packed: bytes | None = None,
) -> bytes:
    """Returns a batch of these bytes as its records. `packed` replaces the output of the codec."""
    content = packed if packed is not None else compress(codec, body) if codec else body
    header = HEADER.pack(
        0,
        49 + len(content),
        -1,
        2,
        0,
        attributes | codec,
        count - 1 if last_delta is None else last_delta,
        base_timestamp,
        max_timestamp,
        -1,
        -1,
        -1,
        count,
    )
    return bytes(with_right_crc(bytearray(header + content)))


def _three(**of_second: int) -> bytes:
    return record(0) + record(1, **of_second) + record(2)  # type: ignore[arg-type]


def _headers(*parts: bytes, count: int = 1) -> bytes:
    return varint(count) + b"".join(parts)


#: Forms that Apache Kafka accepts when compressed, because it does not check that a record ends where its length says.
_LET_IN_PACKED = {
    "a record length of 2^30",
    "a record length of -1",
    "a record length one too short",
    "a record length one too long",
}


def _insides() -> dict[str, tuple[bytes, int]]:
    """Returns incomplete records, with the record count that the header states."""
    text = varint(1) + b"h"
    return {
        "a record length of 2^30": (record(length=1 << 30), 1),
        "a record length of -1": (record(length=-1), 1),
        "a record length of 0": (b"\0" + record(), 1),
        "a record length one too short": (record(length=len(record()) - 2), 1),
        "a record length one too long": (_three(length=len(record()) + 0), 3),
        "a record that ends inside its key": (record()[:6], 1),
        "a key length of 2^31-1": (record(key_size=(1 << 31) - 1), 1),
        "a key length beyond the record": (record(key_size=40) + record(1) * 3, 1),
        "a value length of 2^31-1": (record(value_size=(1 << 31) - 1), 1),
        "a value length one too long": (record(value_size=6) + record(1), 2),
        "a value length one too short": (record(value_size=4), 1),
        "2^31-1 headers": (record(headers=varint((1 << 31) - 1)), 1),
        "-1 headers": (record(headers=varint(-1)), 1),
        "one header more than there are": (record(headers=_headers(text, text, count=2)), 1),
        "a header without a key": (record(headers=_headers(varint(-1), text)), 1),
        "a header key beyond the record": (record(headers=_headers(varint(90), text)), 1),
        "a header value beyond the record": (record(headers=_headers(text, varint(90))), 1),
        "bytes after the headers": (record(tail=b"\1\2\3"), 1),
        "a timestamp of eleven bytes": (varint(14) + b"\0" + b"\x80" * 11 + b"\0\1\1\0", 1),
        "an offset of six bytes": (varint(11) + b"\0\0" + b"\x80" * 5 + b"\0\1\1\0", 1),
        "5 records of which one is there": (record(), 5),
        "1 record of three": (_three(), 1),
        "2^31-1 records": (record(), (1 << 31) - 1),
        "bytes after the last record": (_three() + b"\0\0\0", 3),
        "no records at all": (b"", 1),
    }


def _twice() -> dict[str, Form]:
    """Returns each form uncompressed and compressed."""
    forms = {}
    for place, (name, (body, count)) in enumerate(_insides().items()):
        ours = TOO_LARGE if count > 1_000_000 else INVALID
        forms[name] = Form(batch(body, count), INVALID, ours)
        codec = PACKED[place % len(PACKED)]
        kafka = NONE if name in _LET_IN_PACKED else INVALID
        forms[f"{name}, in {codec.name.lower()}"] = Form(batch(body, count, codec=codec), kafka, ours)
    return forms


def _streams() -> dict[str, Form]:
    """Returns bytes that are not a stream of their codec."""
    forms = {}
    for codec in PACKED:
        name = codec.name.lower()
        whole = compress(codec, _three())
        forms[f"junk as {name}"] = Form(batch(b"", 3, codec=codec, packed=b"\x93junk" * 20), UNKNOWN, UNKNOWN)
        # For gzip, this is one of the reserved flags, which Java ignores and zlib rejects.
        forms[f"{name} with a flipped byte"] = Form(
            batch(b"", 3, codec=codec, packed=whole[:3] + bytes([whole[3] ^ 0x41]) + whole[4:]),
            NONE if codec is Codec.GZIP else UNKNOWN,
            UNKNOWN,
        )
        forms[f"nothing as {name}"] = Form(
            batch(b"", 1, codec=codec, packed=b""), INVALID if codec is Codec.ZSTD else UNKNOWN, UNKNOWN
        )
    return forms


def _others() -> dict[str, Form]:
    """Returns forms with meaningless offsets, timestamps and lengths."""
    jumbled = record(7) + record(7) + record(2)
    far = 1 << 62
    return {
        "offsets 7, 7, 2": Form(batch(jumbled, 3), NONE, INVALID),
        "offsets 7, 7, 2, in lz4": Form(batch(jumbled, 3, codec=Codec.LZ4), UNKNOWN, INVALID),
        "a record at 2^62 below a header of now": Form(batch(record(timestamp=far), 1), TIMESTAMP, TIMESTAMP),
        "a record at 2^62, in zstd": Form(batch(record(timestamp=far), 1, codec=Codec.ZSTD), TIMESTAMP, TIMESTAMP),
        "a header at 2^62 above a record of now": Form(batch(record(), 1, max_timestamp=far), NONE, NONE),
        "a header of 0 above a record of now": Form(batch(record(), 1, max_timestamp=0), NONE, NONE),
        "timestamps that wrap": Form(
            batch(record(timestamp=(1 << 63) - 1), 1, base_timestamp=(1 << 63) - 1), NONE, NONE
        ),
        "a key length of -2": Form(batch(record(key=None, key_size=-2), 1), NONE, INVALID),
        "a value length of -2": Form(batch(record(value=None, value_size=-2), 1), NONE, INVALID),
        "a length of more than 32 bits": Form(
            batch(b"\x98\x80\x80\x80\x10" + record(value=b"va")[1:], 1), INVALID, INVALID
        ),
        "last offset delta 2 of one record": Form(batch(record(), 1, last_delta=2), INVALID, INVALID),
        "an unknown codec": Form(batch(b"", 1, attributes=5, packed=record()), UNKNOWN, UNKNOWN),
    }


def forms() -> dict[str, Form]:
    return {**_twice(), **_streams(), **_others()}
