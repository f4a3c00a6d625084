"""A batch through compaction: unchanged, smaller, empty or removed.

A record is removed when a later one has its key, when it is a tombstone past its delete horizon, or when it has no key.
Retained records keep their bytes: only the key of each record is read, and retained ones are copied in runs. Whatever
is removed, the batch keeps its base offset, last offset and sequence, its producer and codec.

A batch with a tombstone, or a marker that is no longer needed, gets a delete horizon when compaction first processes it
(KIP-534): bit 6 of the attributes, and the time in the base timestamp, to which the records' time deltas then refer.
They are removed once the horizon has passed.

Magic 0 and 1 are converted to magic 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from barnabas.common.host import Buffer
from barnabas.records import compression
from barnabas.records.batch import BatchHeader, decode_batch
from barnabas.records.checksum import crc32c
from barnabas.records.header import (
    ATTRIBUTES_OFFSET,
    CODEC_MASK,
    CRC_OFFSET,
    DELETE_HORIZON_FLAG,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC_V2,
    NO_TIMESTAMP,
    corrupt,
    invalid,
)
from barnabas.records.record import read_varint, wrap_64, write_record, write_varint
from barnabas.storage.compaction.offset_map import PARTS, OffsetMap, map_key

#: The position of a record in the (decompressed) records of its batch, and the properties that compaction needs. A
#: plain tuple for speed, as one is made for every record.
Outline = tuple[int, int, int, int, int, bytes | None, bool]
_START: Final = 0
#: The end of the time delta: nothing after it ever changes.
_REST: Final = 1
_END: Final = 2
_TIME: Final = 3
_OFFSET: Final = 4
#: The key in the form of the offset map.
_KEY: Final = 5
_HAS_VALUE: Final = 6


def outline(data: bytes, position: int, end: int, count: int) -> list[Outline]:
    """Returns the outlines of the `count` records in data[position:end]. Raises RecordsRejected unless they fill it
    exactly."""
    found: list[Outline] = []
    try:
        for _ in range(count):
            start = position
            length = data[position]
            if length < 0x80:
                position += 1
                length >>= 1
            elif data[position + 1] < 0x80:
                length = ((length & 0x7F) | (data[position + 1] << 7)) >> 1
                position += 2
            else:
                length, position = read_varint(data, position)
            stop = position + length
            if not position < stop <= end:
                raise corrupt(f"a record of {length} bytes where {end - position} are left")
            position += 1
            time_delta = data[position]
            if time_delta < 0x80:
                position += 1
                time_delta = (time_delta >> 1) ^ -(time_delta & 1)
            else:
                time_delta, position = read_varint(data, position, 10)
            rest = position
            offset_delta = data[position]
            if offset_delta < 0x80:
                position += 1
                offset_delta = (offset_delta >> 1) ^ -(offset_delta & 1)
            elif data[position + 1] < 0x80:
                offset_delta = (offset_delta & 0x7F) | (data[position + 1] << 7)
                offset_delta = (offset_delta >> 1) ^ -(offset_delta & 1)
                position += 2
            else:
                offset_delta, position = read_varint(data, position)
            size = data[position]
            if size < 0x80:
                position += 1
                size = (size >> 1) ^ -(size & 1)
            else:
                size, position = read_varint(data, position)
            key = None
            if size >= 0:
                key = data[position : position + size]
                position += size
                if size > 64:
                    key = map_key(key)
            if position >= stop:
                raise corrupt(f"a key of {size} bytes reaches beyond its record")
            # In zigzag form a negative length, null, is odd.
            found.append((start, rest, stop, time_delta, offset_delta, key, not data[position] & 1))
            position = stop
    except IndexError:
        raise corrupt(f"the records end after {len(found)} of {count}") from None
    if position != end:
        raise corrupt(f"{end - position} bytes follow the last of {count} records")
    return found


def outline_batch(buffer: bytes, position: int, header: BatchHeader) -> tuple[bytes, list[Outline]]:
    """Returns the bytes that contain the records of the complete magic 2 batch at `position`, and their outlines."""
    start, end = position + HEADER_BYTES, position + header.size_bytes
    if not 0 <= header.record_count <= header.last_offset_delta + 1:
        raise invalid(f"a batch of {header.record_count} records over {header.last_offset_delta + 1} offsets")
    codec = header.attributes & CODEC_MASK
    if not codec or not header.record_count:
        return buffer, outline(buffer, start, end, header.record_count)
    data = compression.decompress(compression.codec_of(codec), memoryview(buffer)[start:end])
    return data, outline(data, 0, len(data), header.record_count)


def keys_of(buffer: bytes, position: int, header: BatchHeader, from_offset: int) -> tuple[list[bytes], list[int]]:
    """Returns keys and offsets of the records at or above `from_offset`, for the map."""
    if header.magic == MAGIC_V2:
        _, records = outline_batch(buffer, position, header)
        base = header.base_offset
        pairs = [(r[_KEY], base + r[_OFFSET]) for r in records if r[_KEY] is not None]
    else:
        view = memoryview(buffer)[position : position + header.size_bytes]
        pairs = [(map_key(r.key), r.offset) for r in decode_batch(view) if r.key is not None]
    if header.base_offset < from_offset or header.magic < MAGIC_V2:
        pairs = [pair for pair in pairs if pair[1] >= from_offset]
    return [key for key, _ in pairs], [offset for _, offset in pairs]


@dataclass(frozen=True, slots=True)
class Retention:
    """The rules by which one compaction pass keeps or removes records."""

    offsets: OffsetMap
    #: Records above this offset are not in the map, and stay.
    latest_offset: int
    wall_ms: int
    delete_retention_ms: int
    #: Magic 0 and 1 cannot have a delete horizon: their tombstones are removed by the age of their segment.
    keep_legacy_tombstones: bool = True


class BatchDecision(NamedTuple):
    """The decision about a batch before its records are read."""

    #: Whether the batch can be dropped, because none of its records is needed.
    discard: bool
    #: The batch stays, if only as a header.
    keep_empty: bool
    #: A marker that is all that is left of its transaction: it can be removed after its delete horizon.
    is_idle_marker: bool


class KeptBatch(NamedTuple):
    """A batch in the form in which it is written to the compacted segment."""

    data: Buffer
    last_offset: int
    max_timestamp: int


def filter_batch(
    buffer: bytes, position: int, header: BatchHeader, rule: Retention, decision: BatchDecision
) -> KeptBatch | None:
    """Returns the part of the batch at `position` that compaction keeps; None if it keeps nothing."""
    if header.magic < MAGIC_V2:
        return _convert(buffer, position, header, rule)
    if decision.discard:
        return empty_batch(header) if decision.keep_empty else None
    data, records = outline_batch(buffer, position, header)
    kept = records if header.is_control else _select(records, header, rule)
    if not kept:
        return empty_batch(header) if decision.keep_empty else None
    needs_horizon = (decision.is_idle_marker or not all(r[_HAS_VALUE] for r in kept)) and not header.has_delete_horizon
    if len(kept) == len(records) and not needs_horizon:
        view = memoryview(buffer)[position : position + header.size_bytes]
        return KeptBatch(view, header.last_offset, header.max_timestamp)
    horizon_ms = rule.wall_ms + rule.delete_retention_ms if needs_horizon else header.delete_horizon_ms
    return _rebuild(header, data, kept, horizon_ms)


def _select(records: list[Outline], header: BatchHeader, rule: Retention) -> list[Outline]:
    parts, base, latest = rule.offsets.parts, header.base_offset, rule.latest_offset
    horizon_ms = header.delete_horizon_ms
    if header.last_offset <= latest and (horizon_ms is None or rule.wall_ms < horizon_ms):
        return [
            r
            for r in records
            if (key := r[_KEY]) is not None and parts[hash(key) % PARTS].get(key, -1) <= base + r[_OFFSET]
        ]
    return [
        r
        for r in records
        if base + r[_OFFSET] > latest
        or (
            (key := r[_KEY]) is not None
            and parts[hash(key) % PARTS].get(key, -1) <= base + r[_OFFSET]
            and (r[_HAS_VALUE] or horizon_ms is None or rule.wall_ms < horizon_ms)
        )
    ]


def _rebuild(header: BatchHeader, data: bytes, kept: list[Outline], horizon_ms: int | None) -> KeptBatch:
    """Returns the batch with only these records, for the compacted segment."""
    old_base = header.base_timestamp
    fixed = header.max_timestamp if header.timestamp_type == LOG_APPEND_TIME else None
    times = [wrap_64(old_base + r[_TIME]) if fixed is None else fixed for r in kept]
    new_base = times[0] if horizon_ms is None else horizon_ms
    if fixed is None and new_base == old_base:
        body = _copy_runs(data, kept)
    else:
        body = _copy_with_times(data, kept, [wrap_64(time - new_base) for time in times])
    attributes = header.attributes & ~DELETE_HORIZON_FLAG
    changed = header._replace(
        base_timestamp=new_base,
        max_timestamp=max(NO_TIMESTAMP, max(times)) if fixed is None else fixed,
        attributes=attributes if horizon_ms is None else attributes | DELETE_HORIZON_FLAG,
        record_count=len(kept),
    )
    return _pack(changed, body)


def _copy_runs(data: bytes, kept: list[Outline]) -> Buffer:
    """Copies retained records; consecutive ones are copied together."""
    view = memoryview(data)
    runs = []
    start = end = kept[0][_START]
    for record in kept:
        if record[_START] != end:
            runs.append(view[start:end])
            start = record[_START]
        end = record[_END]
    runs.append(view[start:end])
    return b"".join(runs)


def _copy_with_times(data: bytes, kept: list[Outline], time_deltas: list[int]) -> Buffer:
    body = bytearray()
    for record, time_delta in zip(kept, time_deltas, strict=True):
        head = bytearray(1)
        write_varint(head, time_delta)
        write_varint(body, len(head) + record[_END] - record[_REST])
        body += head
        body += data[record[_REST] : record[_END]]
    return body


def empty_batch(header: BatchHeader) -> KeptBatch:
    """Returns a batch without records, only its header: it keeps a producer's last sequence, or the end offset of the
    log.
    """
    attributes = header.attributes & ~(DELETE_HORIZON_FLAG | CODEC_MASK)
    return _pack(header._replace(attributes=attributes, base_timestamp=NO_TIMESTAMP, record_count=0), b"")


def _pack(header: BatchHeader, body: Buffer) -> KeptBatch:
    codec = header.attributes & CODEC_MASK
    packed = compression.compress(codec, body) if codec else body
    out = bytearray(HEADER_BYTES)
    HEADER.pack_into(out, 0, *header._replace(batch_length=HEADER_BYTES - LOG_OVERHEAD + len(packed), crc=0))
    out += packed
    crc = crc32c(memoryview(out)[ATTRIBUTES_OFFSET:])
    out[CRC_OFFSET : CRC_OFFSET + 4] = crc.to_bytes(4, "big")
    return KeptBatch(out, header.last_offset, header.max_timestamp)


def _convert(buffer: bytes, position: int, header: BatchHeader, rule: Retention) -> KeptBatch | None:
    """Returns the part that compaction keeps of a magic 0 or 1 entry and, if it is compressed, of the entries in it."""
    newest = rule.offsets.get
    kept = [
        record
        for record in decode_batch(memoryview(buffer)[position : position + header.size_bytes])
        if record.offset > rule.latest_offset
        or (
            record.key is not None
            and newest(map_key(record.key)) <= record.offset
            and (record.value is not None or rule.keep_legacy_tombstones)
        )
    ]
    if not kept:
        return None
    has_tombstone = any(record.value is None for record in kept)
    base_offset = kept[0].offset
    base_timestamp = rule.wall_ms + rule.delete_retention_ms if has_tombstone else kept[0].timestamp
    body = bytearray()
    for record in kept:
        write_record(body, record, record.offset - base_offset, wrap_64(record.timestamp - base_timestamp))
    is_fixed = header.timestamp_type == LOG_APPEND_TIME
    changed = header._replace(
        base_offset=base_offset,
        magic=MAGIC_V2,
        attributes=header.attributes | (DELETE_HORIZON_FLAG if has_tombstone else 0),
        last_offset_delta=kept[-1].offset - base_offset,
        base_timestamp=base_timestamp,
        max_timestamp=header.max_timestamp if is_fixed else max(NO_TIMESTAMP, max(r.timestamp for r in kept)),
        record_count=len(kept),
    )
    return _pack(changed, body)
