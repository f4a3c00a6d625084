"""May this batch be appended? The leader's checks, in the order and with the codes of Apache Kafka.

The usual batch is judged by its header and checksum alone; its records stay closed. They are opened only where a header
cannot tell: a compacted topic (every record needs a key), timestamps that may be out of the topic's window, a codec
that the topic wants changed, or `verify_records`. Records that are opened are checked completely.

    INVALID_RECORD       no batch, or more than one; not magic 2; wrong counts, offsets, sequence; control batch of a
                         client; broken records; no key on a compacted topic (with the records' indexes)
    CORRUPT_MESSAGE      sizes or checksum wrong
    MESSAGE_TOO_LARGE    above `max.message.bytes`, as it came or as it was recompressed
    INVALID_TIMESTAMP    outside `message.timestamp.{before,after}.max.ms`, or LogAppendTime set by a producer
    UNKNOWN_SERVER_ERROR an unknown codec, or a stream that cannot be unpacked
    RECORD_LIST_TOO_LARGE  above `segment.bytes`

`validate_for_append` reads only: a rejected batch is left as it came. `stamp` then writes what the leader adds, in
place where it may.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from crc32c import crc32c

from barnabas.common.errors import ErrorCode, RecordsRejected
from barnabas.common.host import Buffer
from barnabas.common.log_config import LogConfig
from barnabas.common.types import TopicPartition
from barnabas.records.batch import decode_body, encode_batch, set_max_timestamp
from barnabas.records.compression import CODEC_NAMES, Codec, codec_of
from barnabas.records.header import (
    ATTRIBUTES_OFFSET,
    CODEC_MASK,
    CONTROL_FLAG,
    CREATE_TIME,
    HEADER,
    HEADER_BYTES,
    LEGACY_MIN_BYTES,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC_OFFSET,
    MAGIC_V2,
    NO_TIMESTAMP,
    PREFIX,
    PREFIX_BYTES,
    TIMESTAMP_TYPE_FLAG,
    BatchHeader,
    corrupt,
    invalid,
    misframed,
)
from barnabas.records.record import Record

_MAX_LONG = (1 << 63) - 1
#: Base offset and leader epoch, with the length between them: one call for both.
_LEADER_FIELDS = struct.Struct(">qii")
_ERRORS_SHOWN = 3


class AppendRules:
    """What a log's settings say about new batches. Made anew when they change."""

    __slots__ = (
        "after_max_ms",
        "batch_bytes_max",
        "before_max_ms",
        "codec",
        "is_compacted",
        "is_log_append_time",
        "level",
        "must_open",
        "segment_bytes",
        "topic_partition",
    )

    def __init__(self, config: LogConfig, topic_partition: TopicPartition, *, verify_records: bool = False) -> None:
        self.topic_partition = topic_partition
        self.batch_bytes_max = config.max_message_bytes
        self.segment_bytes = config.segment_bytes
        self.is_compacted = config.is_compacted
        self.is_log_append_time = config.is_log_append_time
        self.before_max_ms = config.message_timestamp_before_max_ms
        self.after_max_ms = config.message_timestamp_after_max_ms
        #: None: as the producer chose.
        self.codec = _target_codec(config.compression_type)
        self.level = _level_of(config, self.codec)
        has_lower_bound = self.before_max_ms < _MAX_LONG and not self.is_log_append_time
        self.must_open = verify_records or self.is_compacted or has_lower_bound


def _target_codec(compression_type: str) -> Codec | None:
    if compression_type == "producer":
        return None
    return Codec.NONE if compression_type == "uncompressed" else CODEC_NAMES[compression_type]


def _level_of(config: LogConfig, codec: Codec | None) -> int | None:
    match codec:
        case Codec.GZIP:
            return config.compression_gzip_level
        case Codec.LZ4:
            return config.compression_lz4_level
        case Codec.ZSTD:
            return config.compression_zstd_level
        case _:
            return None


class ValidBatch(NamedTuple):
    """A batch that may be appended, before it has its offsets. `header` is the one it will have, but for these."""

    header: BatchHeader
    batch: Buffer
    #: -1 with CreateTime.
    log_append_time_ms: int
    #: The largest timestamp where the header must be given another one, or None.
    new_max_timestamp: int | None


def validate_for_append(view: Buffer, rules: AppendRules, *, wall_ms: int, from_client: bool = True) -> ValidBatch:
    """The one batch in `view`, if a log with these rules takes it; RecordsRejected if not. Bytes of an incomplete batch
    behind it are dropped. Batches that are not from clients may be control batches and have any offset."""
    try:
        header = BatchHeader._make(HEADER.unpack_from(view))
    except struct.error:
        raise _no_batch(view) from None
    (base_offset, length, _, magic, crc, attributes, last_delta, _, max_timestamp, producer_id, _, sequence, count) = (
        header
    )
    size = length + LOG_OVERHEAD
    if size != len(view) or magic != MAGIC_V2 or length < HEADER_BYTES - LOG_OVERHEAD:
        view = _only_batch(view, size, magic)
    if base_offset != 0 and from_client:
        raise invalid(f"The base offset of a new batch is {base_offset}, not 0, in {rules.topic_partition}")
    if size > rules.batch_bytes_max:
        raise _too_large(rules, size)
    if crc32c(view[ATTRIBUTES_OFFSET:]) != crc:
        raise corrupt(f"Record is corrupt (its checksum is not {crc}) in {rules.topic_partition}")
    if from_client and (
        last_delta + 1 != count or count <= 0 or attributes & CONTROL_FLAG or (producer_id >= 0 and sequence < 0)
    ):
        raise _wrong_batch(header, rules)
    if size > rules.segment_bytes:
        raise _beyond_segment(rules, size)
    codec = attributes & CODEC_MASK
    if (
        codec > Codec.ZSTD
        or rules.must_open
        or (rules.codec is not None and rules.codec != codec)
        or attributes & TIMESTAMP_TYPE_FLAG
        or (max_timestamp > wall_ms + rules.after_max_ms and not rules.is_log_append_time)
    ):
        return _validate_records(header, view, rules, wall_ms)
    if rules.is_log_append_time:
        return ValidBatch(_with_timestamp(header, wall_ms, LOG_APPEND_TIME), view, wall_ms, wall_ms)
    return ValidBatch(header, view, -1, None)


def stamp(valid: ValidBatch, base_offset: int, leader_epoch: int) -> tuple[BatchHeader, bytearray | memoryview]:
    """Give the batch its offsets, leader epoch and LogAppendTime. In place if its memory may be written, else in a
    copy. The header that it has then, and the bytes for the log."""
    header, view, _, new_max_timestamp = valid
    batch: bytearray | memoryview
    if isinstance(view, memoryview):
        batch = bytearray(view) if view.readonly else view
    else:
        batch = bytearray(view) if isinstance(view, bytes) else view
    _LEADER_FIELDS.pack_into(batch, 0, base_offset, header[1], leader_epoch)
    if new_max_timestamp is not None:
        set_max_timestamp(batch, 0, new_max_timestamp, header.timestamp_type)
    return BatchHeader._make((base_offset, header[1], leader_epoch, *header[3:])), batch


def _with_timestamp(header: BatchHeader, max_timestamp: int, timestamp_type: int) -> BatchHeader:
    flag = TIMESTAMP_TYPE_FLAG if timestamp_type else 0
    return header._replace(attributes=(header.attributes & ~TIMESTAMP_TYPE_FLAG) | flag, max_timestamp=max_timestamp)


def _no_batch(view: Buffer) -> RecordsRejected:
    """Why these bytes, too few for a header, are refused."""
    if len(view) >= PREFIX_BYTES:
        _, length = PREFIX.unpack_from(view)
        magic = view[MAGIC_OFFSET]
        if length + LOG_OVERHEAD < LEGACY_MIN_BYTES or magic > MAGIC_V2:
            return corrupt(f"a batch of {length} bytes, magic {magic}")
        if length + LOG_OVERHEAD <= len(view):
            if magic == MAGIC_V2:
                return corrupt(f"a batch of {length + LOG_OVERHEAD} bytes is shorter than its header")
            return misframed(f"Produce takes only record batches of magic {MAGIC_V2}, not {magic}")
    return misframed("Produce needs one record batch for each partition")


def _only_batch(view: Buffer, size: int, magic: int) -> Buffer:
    """The first of these bytes' batches, if it is whole and nothing that could be another one follows."""
    if size < LEGACY_MIN_BYTES or not 0 <= magic <= MAGIC_V2:
        raise corrupt(f"a batch of {size} bytes, magic {magic}")
    if size > len(view):
        raise misframed(f"Produce needs one record batch for each partition: {len(view)} of {size} bytes are there")
    if magic != MAGIC_V2:
        raise misframed(f"Produce takes only record batches of magic {MAGIC_V2}, not {magic}")
    if size < HEADER_BYTES:
        raise corrupt(f"a batch of {size} bytes is shorter than its header")
    rest = len(view) - size
    if rest >= PREFIX_BYTES:
        _, length = PREFIX.unpack_from(view, size)
        next_magic = view[size + MAGIC_OFFSET]
        if length + LOG_OVERHEAD < LEGACY_MIN_BYTES or next_magic > MAGIC_V2:
            raise corrupt(f"{rest} bytes behind the batch are no batch")
        if length + LOG_OVERHEAD <= rest:
            raise misframed("Produce takes exactly one record batch for each partition")
    return view[:size]


def _too_large(rules: AppendRules, size: int) -> RecordsRejected:
    return RecordsRejected(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"The record batch size in the append to {rules.topic_partition} is {size} bytes "
        f"which exceeds the maximum configured value of {rules.batch_bytes_max}.",
        is_framing=True,
    )


def _beyond_segment(rules: AppendRules, size: int) -> RecordsRejected:
    return RecordsRejected(
        ErrorCode.RECORD_LIST_TOO_LARGE,
        f"Message batch size is {size} bytes in append to partition {rules.topic_partition}, "
        f"which exceeds the maximum configured segment size of {rules.segment_bytes}.",
        is_framing=True,
    )


def _wrong_batch(header: BatchHeader, rules: AppendRules) -> RecordsRejected:
    where = f"in topic partition {rules.topic_partition}"
    offsets = f"[{header.base_offset}, {header.last_offset}]"
    if header.last_offset_delta < 0:
        return invalid(f"Batch has an invalid offset range: {offsets} {where}")
    if header.record_count <= 0:
        return invalid(f"Invalid reported count for record batch: {header.record_count} {where}")
    if header.last_offset_delta + 1 != header.record_count:
        return invalid(f"Inconsistent batch offset range {offsets} and count of records {header.record_count} {where}")
    if header.is_control:
        return invalid(f"Clients are not allowed to write control records {where}")
    return invalid(
        f"Invalid sequence number {header.base_sequence} in record batch with producerId {header.producer_id} {where}"
    )


def _validate_records(header: BatchHeader, view: Buffer, rules: AppendRules, wall_ms: int) -> ValidBatch:
    """Open the batch, check each record, and write it anew if the topic wants another codec."""
    source, records = _open(header, view, rules)
    if not header.is_control:
        _reject_wrong_records(records, header, rules, wall_ms)
    log_append_time_ms = wall_ms if rules.is_log_append_time else -1
    timestamp_type = LOG_APPEND_TIME if rules.is_log_append_time else CREATE_TIME
    max_timestamp = wall_ms if rules.is_log_append_time else max((r.timestamp for r in records), default=NO_TIMESTAMP)
    target = source if rules.codec is None or (source is Codec.NONE and header.is_control) else rules.codec
    if target is not source or any(r.offset != header.base_offset + i for i, r in enumerate(records)):
        batch = _encode_anew(header, records, target, rules, timestamp_type, max_timestamp)
        if len(batch) > rules.batch_bytes_max:
            raise _too_large(rules, len(batch))
        if len(batch) > rules.segment_bytes:
            raise _beyond_segment(rules, len(batch))
        return ValidBatch(BatchHeader._make(HEADER.unpack_from(batch)), batch, log_append_time_ms, None)
    if max_timestamp == header.max_timestamp and timestamp_type == header.timestamp_type:
        return ValidBatch(header, view, log_append_time_ms, None)
    return ValidBatch(_with_timestamp(header, max_timestamp, timestamp_type), view, log_append_time_ms, max_timestamp)


def _open(header: BatchHeader, view: Buffer, rules: AppendRules) -> tuple[Codec, list[Record]]:
    """Apache Kafka trips over an unknown codec or a broken stream; its clients take the answer as final."""
    try:
        return codec_of(header.attributes), decode_body(header, view[HEADER_BYTES:])
    except RecordsRejected as rejected:
        if rejected.code not in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE):
            raise
        message = f"The records cannot be unpacked in {rules.topic_partition}: {rejected.message}"
        raise RecordsRejected(ErrorCode.UNKNOWN_SERVER_ERROR, message) from None


def _encode_anew(
    header: BatchHeader,
    records: Sequence[Record],
    codec: Codec,
    rules: AppendRules,
    timestamp_type: int,
    max_timestamp: int,
) -> bytearray:
    return encode_batch(
        records,
        base_offset=header.base_offset,
        codec=codec,
        level=rules.level if codec is rules.codec else None,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        transactional=header.is_transactional,
        control=header.is_control,
        timestamp_type=timestamp_type,
        max_timestamp=max_timestamp,
    )


def _reject_wrong_records(records: Sequence[Record], header: BatchHeader, rules: AppendRules, wall_ms: int) -> None:
    """RecordsRejected with every record that the topic does not take, if there is one."""
    errors: list[tuple[int, str]] = []
    code = ErrorCode.INVALID_RECORD
    for index, record in enumerate(records):
        if rules.is_compacted and record.key is None:
            errors.append(
                (
                    index,
                    f"Compacted topic cannot accept message without key in topic partition {rules.topic_partition}",
                )
            )
            continue
        text = _timestamp_error(record, header, rules, wall_ms)
        if text is not None:
            errors.append((index, text))
            code = ErrorCode.INVALID_TIMESTAMP
    if not errors:
        return
    if code is ErrorCode.INVALID_TIMESTAMP:
        message = "One or more records have been rejected due to invalid timestamp"
    else:
        shown = ", ".join(text for _, text in errors[:_ERRORS_SHOWN])
        message = (
            f"One or more records have been rejected due to {len(errors)} record errors in total, "
            f"and only showing the first three errors at most: {shown}"
        )
    raise RecordsRejected(code, message, errors)


def _timestamp_error(record: Record, header: BatchHeader, rules: AppendRules, wall_ms: int) -> str | None:
    timestamp = record.timestamp
    if not rules.is_log_append_time and timestamp != NO_TIMESTAMP:
        if not -rules.after_max_ms <= wall_ms - timestamp <= rules.before_max_ms:
            return (
                f"Timestamp {timestamp} of message with offset {record.offset} is out of range. The timestamp should "
                f"be within [{wall_ms - rules.before_max_ms}, {wall_ms + rules.after_max_ms}]"
            )
    elif header.timestamp_type == LOG_APPEND_TIME:
        return "Producer should not set timestamp type to LogAppendTime"
    return None
