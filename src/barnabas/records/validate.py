"""The leader's checks of a new batch, in the order and with the error codes of Apache Kafka.

A batch is checked by its header, its checksum, and a walk over the lengths of its records (`records.walk`), for which a
compressed batch is decompressed (`records.record_check`). An operator who trusts all producers can disable the walk
(`barnabas.verify.records`); then records are opened only if the header is not sufficient: in a compacted topic (every
record needs a key), for timestamps possibly outside the topic's window, or to change the codec.

    INVALID_RECORD       no batch, or more than one; not magic 2; wrong counts, offsets, sequence; control batch of a
                         client; incomplete or unnumbered records; no key in a compacted topic (with the records'
                         indexes); a record above `max.decompressed.message.bytes` in a compressed batch
    CORRUPT_MESSAGE      wrong sizes or checksum
    MESSAGE_TOO_LARGE    above `max.message.bytes`, as received or recompressed; too many records, or too many bytes
                         after decompression
    INVALID_TIMESTAMP    outside `message.timestamp.{before,after}.max.ms`, or LogAppendTime set by a producer
    UNKNOWN_SERVER_ERROR an unknown codec, or data that cannot be decompressed
    RECORD_LIST_TOO_LARGE  above `segment.bytes`

Wrong timestamps in the header are corrected, as Apache Kafka does; a recompressed batch gets new offset deltas.
`validate_for_append` only reads, so a rejected batch is unchanged; `stamp` then writes the leader's fields, in place if
the memory is writable. Batches of the broker's own coordinators are trusted.
"""

from __future__ import annotations

import struct

from barnabas.common import effort
from barnabas.common.effort import Work
from barnabas.common.errors import ErrorCode, RecordsRejected
from barnabas.common.host import Buffer
from barnabas.records import walk
from barnabas.records.append_rules import (
    AppendRules,
    LoopBudget,
    ValidationDeferred,
    ValidBatch,
    beyond_segment,
    too_large,
    walk_ns,
)
from barnabas.records.batch import set_max_timestamp
from barnabas.records.checksum import crc32c
from barnabas.records.compression import Codec
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
    PREFIX,
    PREFIX_BYTES,
    TIMESTAMP_TYPE_FLAG,
    BatchHeader,
    corrupt,
    invalid,
    misframed,
)
from barnabas.records.record_check import FEW_RECORDS, open_batch, with_timestamp

__all__ = ["AppendRules", "LoopBudget", "ValidBatch", "ValidationDeferred", "stamp", "validate_for_append"]

#: Base offset, length and leader epoch, written in one call.
_LEADER_FIELDS = struct.Struct(">qii")
#: Creates a named tuple in less time than its class or `_make` do, which are Python functions.
_new_tuple = tuple.__new__


def validate_for_append(
    view: Buffer,
    rules: AppendRules,
    *,
    wall_ms: int,
    from_client: bool = True,
    budget: LoopBudget | None = None,
) -> ValidBatch:
    """Returns the one batch in `view` if these rules accept it; raises RecordsRejected if not. An incomplete batch
    after it is dropped. Batches that are not from clients can be control batches and can have any offset. Raises
    ValidationDeferred if opening the batch would exceed `budget`."""
    try:
        header = _new_tuple(BatchHeader, HEADER.unpack_from(view))
    except struct.error:
        raise _no_batch(view) from None
    (base_offset, length, _, magic, crc, attributes, last_delta, base_timestamp, max_timestamp) = header[:9]
    count = header[12]
    size = length + LOG_OVERHEAD
    if size != len(view) or magic != MAGIC_V2 or length < HEADER_BYTES - LOG_OVERHEAD:
        view = _only_batch(view, size, magic)
    if base_offset != 0 and from_client:
        raise invalid(f"The base offset of a new batch is {base_offset}, not 0, in {rules.topic_partition}")
    if size > rules.batch_bytes_max:
        raise too_large(rules, size)
    if crc32c(view[ATTRIBUTES_OFFSET:]) != crc:
        raise corrupt(f"Record is corrupt (its checksum is not {crc}) in {rules.topic_partition}")
    if from_client and (
        last_delta + 1 != count or count <= 0 or attributes & CONTROL_FLAG or (header[9] >= 0 and header[11] < 0)
    ):
        raise _wrong_batch(header, rules)
    if size > rules.segment_bytes:
        raise beyond_segment(rules, size)
    if (
        from_client
        and rules.walk_suffices
        and not attributes & (CODEC_MASK | TIMESTAMP_TYPE_FLAG)
        and count <= rules.batch_records_max
        and (count <= FEW_RECORDS or _has_time(budget, count, wall_ms))
    ):
        if count > FEW_RECORDS:
            effort.add(Work.RECORD, count)
        found = walk.WALKER.survey(view, HEADER_BYTES, count, base_timestamp)
        # found: [2] fault, [3] whether the records are numbered, [7] largest timestamp.
        if not found[2] and found[3] and found[7] <= wall_ms + rules.after_max_ms:
            if found[7] == max_timestamp:
                return _new_tuple(ValidBatch, (header, view, -1, None))
            return ValidBatch(with_timestamp(header, found[7], CREATE_TIME), view, -1, found[7])
    if from_client and count > rules.batch_records_max:
        raise _too_many(header, rules)
    if _is_to_be_opened(header, rules, wall_ms, from_client):
        return open_batch(header, view, rules, wall_ms, budget=budget, from_client=from_client)
    if rules.is_log_append_time:
        return ValidBatch(with_timestamp(header, wall_ms, LOG_APPEND_TIME), view, wall_ms, wall_ms)
    return ValidBatch(header, view, -1, None)


def _has_time(budget: LoopBudget | None, count: int, wall_ms: int) -> bool:
    return budget is None or budget.take(walk_ns(count), wall_ms)


def _is_to_be_opened(header: BatchHeader, rules: AppendRules, wall_ms: int, from_client: bool) -> bool:
    codec = header.attributes & CODEC_MASK
    if rules.codec is not None and rules.codec != codec:
        return True
    if not from_client:
        return False
    if rules.must_check_records or codec > Codec.ZSTD or header.attributes & TIMESTAMP_TYPE_FLAG:
        return True
    if rules.limits.verifies_compressed if codec else rules.limits.verifies_plain:
        return True
    return header.max_timestamp > wall_ms + rules.after_max_ms and not rules.is_log_append_time


def stamp(valid: ValidBatch, base_offset: int, leader_epoch: int) -> tuple[BatchHeader, bytearray | memoryview]:
    """Writes offsets, leader epoch and LogAppendTime into the batch, or into a copy if its memory is read-only. Returns
    the final header, and the bytes for the log."""
    header, view, _, new_max_timestamp = valid
    batch: bytearray | memoryview
    if isinstance(view, memoryview):
        batch = bytearray(view) if view.readonly else view
    else:
        batch = bytearray(view) if isinstance(view, bytes) else view
    _LEADER_FIELDS.pack_into(batch, 0, base_offset, header[1], leader_epoch)
    if new_max_timestamp is not None:
        set_max_timestamp(batch, 0, new_max_timestamp, header.timestamp_type)
    return _new_tuple(BatchHeader, (base_offset, header[1], leader_epoch, *header[3:])), batch


def _no_batch(view: Buffer) -> RecordsRejected:
    """Returns the error for a message that is too short for a batch header."""
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
    """Returns the first batch in these bytes, if it is complete and nothing after it can be another batch."""
    if size < LEGACY_MIN_BYTES or not 0 <= magic <= MAGIC_V2:
        raise corrupt(f"a batch of {size} bytes, magic {magic}")
    if size > len(view):
        raise misframed(f"Produce needs one record batch for each partition: found {len(view)} of {size} bytes")
    if magic != MAGIC_V2:
        raise misframed(f"Produce takes only record batches of magic {MAGIC_V2}, not {magic}")
    if size < HEADER_BYTES:
        raise corrupt(f"a batch of {size} bytes is shorter than its header")
    rest = len(view) - size
    if rest >= PREFIX_BYTES:
        _, length = PREFIX.unpack_from(view, size)
        next_magic = view[size + MAGIC_OFFSET]
        if length + LOG_OVERHEAD < LEGACY_MIN_BYTES or next_magic > MAGIC_V2:
            raise corrupt(f"{rest} bytes after the batch are not a batch")
        if length + LOG_OVERHEAD <= rest:
            raise misframed("Produce takes exactly one record batch for each partition")
    return view[:size]


def _too_many(header: BatchHeader, rules: AppendRules) -> RecordsRejected:
    """Returns an error that makes clients split the batch."""
    return RecordsRejected(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"The record batch in the append to {rules.topic_partition} has {header.record_count} records, "
        f"more than the {rules.batch_records_max} of barnabas.max.batch.records.",
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
