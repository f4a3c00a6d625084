"""Offsets, keys and values of the records of a batch, for readers that need nothing else.

A coordinator that takes over a partition reads whole logs while clients wait: this takes a third of the time of
`read_records`. Timestamps and headers are skipped. Any bytes lead to entries or to `RecordsRejected(INVALID_RECORD)`.
"""

from __future__ import annotations

from barnabas.common.host import Buffer
from barnabas.records import compression
from barnabas.records.batch import decode_batch
from barnabas.records.header import HEADER_BYTES, MAGIC_V2, BatchHeader, invalid
from barnabas.records.record import read_varint

#: Offset, key and value of a record.
Entry = tuple[int, bytes | None, bytes | None]


def read_batch_entries(header: BatchHeader, batch: Buffer) -> list[Entry]:
    """Returns the entries of a batch of any magic and codec, given with its header. Ignores the checksum."""
    if header.magic != MAGIC_V2:
        return [(record.offset, record.key, record.value) for record in decode_batch(batch)]
    body = memoryview(batch)[HEADER_BYTES : header.size_bytes]
    data = compression.decompress(compression.codec_of(header.attributes), body)
    return read_entries(data, header.record_count, header.base_offset)


def read_entries(data: bytes, count: int, base_offset: int) -> list[Entry]:
    """Returns exactly `count` entries in `data`. Most varints here have one byte, and a call would cost more than the
    decoding, so that case is written inline each time."""
    size = len(data)
    if not 0 <= count <= size:
        raise invalid(f"a record count of {count} in {size} bytes of records")
    entries: list[Entry] = []
    position = 0
    try:
        for _ in range(count):
            length = data[position]
            if length < 0x80:
                position += 1
                length = (length >> 1) ^ -(length & 1)
            else:
                length, position = read_varint(data, position)
            end = position + length
            if length < 0 or end > size:
                raise invalid(f"a record of {length} bytes at byte {position} of {size}")
            position += 1
            while data[position] >= 0x80:  # The timestamp delta is skipped.
                position += 1
            delta = data[position + 1]
            if delta < 0x80:
                position += 2
                delta = (delta >> 1) ^ -(delta & 1)
            else:
                delta, position = read_varint(data, position + 1)
            length = data[position]
            if length < 0x80:
                position += 1
                length = (length >> 1) ^ -(length & 1)
            else:
                length, position = read_varint(data, position)
            if length < 0:
                key = None
            else:
                key = data[position : position + length]
                position += length
            length = data[position]
            if length < 0x80:
                position += 1
                length = (length >> 1) ^ -(length & 1)
            else:
                length, position = read_varint(data, position)
            if length < 0:
                value = None
            else:
                value = data[position : position + length]
                position += length
            if position >= end:
                raise invalid(f"the value of a record reaches to byte {position}, the record ends at {end}")
            entries.append((base_offset + delta, key, value))
            position = end
    except IndexError:
        raise invalid(f"the records end after {len(entries)} of {count}") from None
    if position != size:
        raise invalid(f"{size - position} bytes follow the last of {count} records")
    return entries
