"""Record batches: finds them in a buffer, decodes, encodes and modifies them.

A batch normally stays as its producer encoded it, from the socket to the disk and back; the leader only fills in fields
of the header (`validate.stamp`). Only code that needs the records themselves (coordinators, the metadata log, tools,
compaction) calls `decode_batch` and `encode_batch`.

`iter_headers` finds the complete batches of any magic and stops at an incomplete one at the end, as every reader of a
log must: a fetch response or a torn file can end anywhere. Bytes that cannot be a batch raise RecordsRejected.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Final, NamedTuple, Protocol

from barnabas.common.host import Buffer
from barnabas.records import compression, walk
from barnabas.records.checksum import crc32c
from barnabas.records.header import (
    ATTRIBUTES_OFFSET,
    CONTROL_FLAG,
    CRC_OFFSET,
    CREATE_TIME,
    HEADER,
    HEADER_BYTES,
    LEGACY_MIN_BYTES,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC_OFFSET,
    MAGIC_V2,
    MAX_TIMESTAMP_OFFSET,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    PREFIX,
    PREFIX_BYTES,
    TIMESTAMP_TYPE_FLAG,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    corrupt,
)
from barnabas.records.legacy import decode_legacy, legacy_crc_matches, read_legacy_header
from barnabas.records.record import Header, Record, read_records, write_record

__all__ = [
    "HEADER_BYTES",
    "LOG_OVERHEAD",
    "BatchHeader",
    "ControlType",
    "EndTxnMarker",
    "Header",
    "Record",
    "RecordLike",
    "assemble",
    "control_key",
    "control_type",
    "decode_batch",
    "encode_batch",
    "encode_body",
    "encode_end_txn_marker",
    "has_valid_crc",
    "iter_headers",
    "read_end_txn_marker",
    "read_header",
    "set_max_timestamp",
]

_LONG = struct.Struct(">q")
_INT = struct.Struct(">i")
_UINT = struct.Struct(">I")
_SHORT = struct.Struct(">h")
_CONTROL_KEY = struct.Struct(">hh")
_END_TXN_VALUE = struct.Struct(">hi")

_MIN_BATCH_LENGTH = HEADER_BYTES - LOG_OVERHEAD


class RecordLike(Protocol):
    """The part of a record that `encode_batch` needs. The record gets a new offset."""

    @property
    def timestamp(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Sequence[Header]: ...


def read_header(view: Buffer, position: int = 0) -> BatchHeader:
    """Returns the header of the batch that begins at `position`. Raises RecordsRejected(CORRUPT_MESSAGE)."""
    if len(view) - position >= HEADER_BYTES:
        fields = HEADER.unpack_from(view, position)
        if fields[3] == MAGIC_V2:
            if fields[1] < _MIN_BATCH_LENGTH:
                raise corrupt(f"a batch of {fields[1] + LOG_OVERHEAD} bytes is shorter than its header")
            return BatchHeader._make(fields)
    elif len(view) - position < PREFIX_BYTES:
        raise corrupt(f"{len(view) - position} bytes are not a batch")
    magic = view[position + MAGIC_OFFSET]
    if magic > MAGIC_V2:
        raise corrupt(f"a batch of magic {magic}")
    if magic == MAGIC_V2:
        raise corrupt(f"a batch of {len(view) - position} bytes is shorter than its header")
    return read_legacy_header(view, position)


def iter_headers(view: Buffer, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Yields (position, header) of every complete batch. Raises RecordsRejected(CORRUPT_MESSAGE)."""
    end = len(view)
    while end - position >= PREFIX_BYTES:
        _, length = PREFIX.unpack_from(view, position)
        if length + LOG_OVERHEAD < LEGACY_MIN_BYTES:
            raise corrupt(f"a batch of {length} bytes at byte {position}")
        if length + LOG_OVERHEAD > end - position:
            return
        yield position, read_header(view, position)
        position += length + LOG_OVERHEAD


def has_valid_crc(view: Buffer, position: int, header: BatchHeader) -> bool:
    """Returns whether the checksum of the batch at `position`, which must be complete, is right."""
    end = position + header.size_bytes
    if header.magic != MAGIC_V2:
        return legacy_crc_matches(view, position, header.size_bytes)
    return crc32c(memoryview(view)[position + ATTRIBUTES_OFFSET : end]) == header.crc


#: The number of records from which an index of them takes less time than an object for each.
_INDEXED_MIN: Final = 8


def decode_batch(view: Buffer, position: int = 0) -> list[Record]:
    """Returns all records of the batch at `position`, of any magic and codec. Does not check the checksum. Raises
    RecordsRejected if the batch is malformed."""
    header = read_header(view, position)
    if header.magic != MAGIC_V2:
        return decode_legacy(view, position)
    end = position + header.size_bytes
    if end > len(view):
        raise corrupt(f"a batch of {header.size_bytes} bytes where {len(view) - position} are left")
    return decode_body(header, view[position + HEADER_BYTES : end])


def decode_values(view: Buffer, position: int = 0) -> list[bytes | None]:
    """Returns the values of the records that `decode_batch` returns, if possible without another object for each."""
    header = read_header(view, position)
    end = position + header.size_bytes
    count = header.record_count
    if header.magic == MAGIC_V2 and end <= len(view) and count >= _INDEXED_MIN and walk.WALKER.NAME == "compiled":
        body = view[position + HEADER_BYTES : end]
        data = compression.decompress(compression.codec_of(header.attributes), body)
        found = walk.index(data, 0, count)
        if not found.fault:
            places = zip(found.value_starts, found.value_sizes, strict=True)
            return [data[start : start + size] if size >= 0 else None for start, size in places]
    return [record.value for record in decode_batch(view, position)]


def decode_body(header: BatchHeader, body: Buffer) -> list[Record]:
    """Returns the records of a magic 2 batch, from the bytes after its header."""
    data = compression.decompress(compression.codec_of(header.attributes), body)
    fixed = header.max_timestamp if header.timestamp_type == LOG_APPEND_TIME else None
    return read_records(data, header.record_count, header.base_offset, header.base_timestamp, fixed)


def encode_batch(
    records: Sequence[RecordLike],
    *,
    base_offset: int = 0,
    codec: int = 0,
    level: int | None = None,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    timestamp_type: int = CREATE_TIME,
    max_timestamp: int | None = None,
) -> bytearray:
    """Encodes a magic 2 batch. Offsets increase from `base_offset`; `max_timestamp` is given if it is not the largest
    timestamp of the records (LogAppendTime)."""
    assert records, "a batch has at least one record"
    base_timestamp = records[0].timestamp
    largest = base_timestamp
    body = bytearray()
    for delta, record in enumerate(records):
        timestamp = record.timestamp
        if timestamp > largest:
            largest = timestamp
        write_record(body, record, delta, timestamp - base_timestamp)
    return encode_body(
        body,
        len(records),
        base_timestamp,
        largest if max_timestamp is None else max_timestamp,
        base_offset=base_offset,
        codec=codec,
        level=level,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        transactional=transactional,
        control=control,
        timestamp_type=timestamp_type,
    )


def encode_body(
    body: Buffer,
    count: int,
    base_timestamp: int,
    max_timestamp: int,
    *,
    base_offset: int = 0,
    codec: int = 0,
    level: int | None = None,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    timestamp_type: int = CREATE_TIME,
) -> bytearray:
    """Encodes a magic 2 batch of the `count` encoded records in `body`."""
    packed: Buffer = compression.compress(codec, body, level) if codec else body
    attributes = (
        codec
        | (TIMESTAMP_TYPE_FLAG if timestamp_type == LOG_APPEND_TIME else 0)
        | (TRANSACTIONAL_FLAG if transactional else 0)
        | (CONTROL_FLAG if control else 0)
    )
    out = bytearray(HEADER_BYTES)
    HEADER.pack_into(
        out,
        0,
        base_offset,
        len(packed) + _MIN_BATCH_LENGTH,
        leader_epoch,
        MAGIC_V2,
        0,
        attributes,
        count - 1,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    out += packed
    _renew_crc(out, 0, len(out))
    return out


def assemble(header: BatchHeader, body: Buffer) -> tuple[BatchHeader, bytearray]:
    """Builds a magic 2 batch from a header and its records, which are compressed as the header says. Sets length and
    checksum.
    """
    out = bytearray(HEADER_BYTES)
    HEADER.pack_into(out, 0, header.base_offset, len(body) + _MIN_BATCH_LENGTH, *header[2:4], 0, *header[5:])
    out += body
    _renew_crc(out, 0, len(out))
    return BatchHeader._make(HEADER.unpack_from(out)), out


def set_max_timestamp(batch: bytearray | memoryview, position: int, max_timestamp: int, timestamp_type: int) -> None:
    """Changes timestamp type and largest timestamp of the complete batch at `position`, and its checksum."""
    (length,) = _INT.unpack_from(batch, position + 8)
    (attributes,) = _SHORT.unpack_from(batch, position + ATTRIBUTES_OFFSET)
    attributes = (attributes & ~TIMESTAMP_TYPE_FLAG) | (TIMESTAMP_TYPE_FLAG if timestamp_type else 0)
    _SHORT.pack_into(batch, position + ATTRIBUTES_OFFSET, attributes)
    _LONG.pack_into(batch, position + MAX_TIMESTAMP_OFFSET, max_timestamp)
    _renew_crc(batch, position, position + length + LOG_OVERHEAD)


def _renew_crc(batch: bytearray | memoryview, position: int, end: int) -> None:
    _UINT.pack_into(batch, position + CRC_OFFSET, crc32c(memoryview(batch)[position + ATTRIBUTES_OFFSET : end]))


class ControlType(IntEnum):
    """The type of a control record, the second half of its key."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


def control_key(kind: int) -> bytes:
    """Returns the key of a control record: version 0 and the type."""
    return _CONTROL_KEY.pack(0, kind)


def control_type(record: Record) -> int | None:
    """Returns the type of a control record, possibly an unknown one; None if its key is malformed."""
    if record.key is None or len(record.key) < _CONTROL_KEY.size:
        return None
    version, kind = _CONTROL_KEY.unpack_from(record.key)
    return int(kind) if version >= 0 else None


class EndTxnMarker(NamedTuple):
    """The end of a transaction in one partition (KIP-98)."""

    commit: bool
    coordinator_epoch: int


def read_end_txn_marker(record: Record) -> EndTxnMarker | None:
    """Returns the transaction marker in a control record; None if it is another kind or malformed."""
    kind = control_type(record)
    if kind not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    if record.value is None or len(record.value) < _END_TXN_VALUE.size:
        return None
    _, epoch = _END_TXN_VALUE.unpack_from(record.value)
    return EndTxnMarker(kind == ControlType.COMMIT, epoch)


def encode_end_txn_marker(
    *, commit: bool, coordinator_epoch: int, timestamp: int, producer_id: int, producer_epoch: int
) -> bytearray:
    """Returns the control batch that ends a producer's transaction."""
    record = Record(
        0,
        timestamp,
        control_key(ControlType.COMMIT if commit else ControlType.ABORT),
        _END_TXN_VALUE.pack(0, coordinator_epoch),
    )
    return encode_batch(
        [record], producer_id=producer_id, producer_epoch=producer_epoch, transactional=True, control=True
    )
