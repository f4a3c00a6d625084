"""The check of a new batch's records: decompressed, walked over, and recompressed if the topic wants another codec.

No record becomes an object. What exceeds the event loop's budget is refused with `ValidationDeferred` before it begins,
and repeated without a budget in a thread, which uses only the batch and the rules.
"""

from __future__ import annotations

from typing import Final

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
    open_ns,
    too_large,
    walk_ns,
)
from barnabas.records.batch import assemble
from barnabas.records.compression import Codec, codec_of, compress, unpack
from barnabas.records.header import (
    CODEC_MASK,
    CONTROL_FLAG,
    CREATE_TIME,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_FLAG,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    corrupt,
    invalid,
)
from barnabas.records.record import wrap_64
from barnabas.records.walk import RECORD_BYTES_MIN, Survey

_ERRORS_SHOWN = 3
#: The maximum number of record errors in a response: for a batch without any valid record it would otherwise be larger
#: than the batch.
_ERRORS_MAX: Final = 1_000
#: The smallest rest of the budget, in bytes, with which decompression is tried.
_REST_BYTES_MIN: Final = 16 * 1024
#: A walk over this many records is too short to be counted.
FEW_RECORDS: Final = 100
#: The number of records above which the reasons of their rejection are determined in a thread.
_LOOP_ERRORS_MAX: Final = 5_000


def open_batch(
    header: BatchHeader,
    view: Buffer,
    rules: AppendRules,
    wall_ms: int,
    *,
    budget: LoopBudget | None,
    from_client: bool,
) -> ValidBatch:
    """Checks the records of this batch, and converts it if needed. Raises RecordsRejected, ValidationDeferred."""
    source = _codec(header, rules)
    target = source if rules.codec is None or (source is Codec.NONE and header.is_control) else rules.codec
    data, start = _unpacked(header, view, rules, source, target, wall_ms, budget)
    if header.record_count > FEW_RECORDS:
        effort.add(Work.RECORD, header.record_count)
    found = Survey._make(walk.WALKER.survey(data, start, header.record_count, header.base_timestamp))
    if found.fault:
        raise _faulty(found, rules)
    if source is not Codec.NONE and found.largest_bytes > rules.limits.record_bytes_max:
        raise invalid(
            f"A record of {found.largest_bytes} bytes exceeds max.decompressed.message.bytes "
            f"({rules.limits.record_bytes_max}) in topic partition {rules.topic_partition}"
        )
    if from_client:
        _reject_wrong_records(found, data, start, header, rules, wall_ms, budget)
        if target is source and not found.is_numbered:
            raise invalid(f"The offsets of the records do not count from 0 in topic partition {rules.topic_partition}")
    timestamp_type = LOG_APPEND_TIME if rules.is_log_append_time else CREATE_TIME
    max_timestamp = wall_ms if rules.is_log_append_time else found.max_timestamp
    log_append_time_ms = wall_ms if rules.is_log_append_time else NO_TIMESTAMP
    if target is not source:
        made = _converted(
            header, data, start, found.is_numbered, target, rules, with_timestamp(header, max_timestamp, timestamp_type)
        )
        return ValidBatch(made[0], made[1], log_append_time_ms, None)
    if max_timestamp == header.max_timestamp and timestamp_type == header.timestamp_type:
        return ValidBatch(header, view, log_append_time_ms, None)
    return ValidBatch(with_timestamp(header, max_timestamp, timestamp_type), view, log_append_time_ms, max_timestamp)


def with_timestamp(header: BatchHeader, max_timestamp: int, timestamp_type: int) -> BatchHeader:
    """Returns the header with another largest timestamp and type; the checksum is not updated."""
    flag = TIMESTAMP_TYPE_FLAG if timestamp_type else 0
    return header._replace(attributes=(header.attributes & ~TIMESTAMP_TYPE_FLAG) | flag, max_timestamp=max_timestamp)


def _codec(header: BatchHeader, rules: AppendRules) -> Codec:
    """Returns the codec of a batch. For an unknown one Kafka fails with UNKNOWN_SERVER_ERROR, which clients take as
    final.
    """
    try:
        return codec_of(header.attributes)
    except RecordsRejected as rejected:
        message = f"{rejected.message} in {rules.topic_partition}"
        raise RecordsRejected(ErrorCode.UNKNOWN_SERVER_ERROR, message) from None


def _unpacked(
    header: BatchHeader,
    view: Buffer,
    rules: AppendRules,
    source: Codec,
    target: Codec,
    wall_ms: int,
    budget: LoopBudget | None,
) -> tuple[Buffer, int]:
    """Returns bytes that contain the records, and their start. Raises ValidationDeferred if the budget is too small."""
    byte_ns, walked_ns = open_ns(source, target), walk_ns(header.record_count)
    packed_bytes = len(view) - HEADER_BYTES
    limit = rules.limits.decompressed_bytes_max
    if budget is not None:
        left_ns = budget.left_ns(wall_ms) - walked_ns
        rest_bytes = left_ns // byte_ns if byte_ns else limit
        if left_ns < 0 or rest_bytes < min(_REST_BYTES_MIN, limit) or packed_bytes * rules.expansion > rest_bytes:
            raise ValidationDeferred(rules)
        limit = min(limit, rest_bytes)
    if source is Codec.NONE:
        data, start, size = view, HEADER_BYTES, packed_bytes
    else:
        data, start = _unpack(view, source, limit, rules, budget, byte_ns), 0
        size = len(data)
        rules.expansion = size / max(packed_bytes, 1)
    if header.record_count * RECORD_BYTES_MIN > size:
        raise invalid(
            f"{header.record_count} records cannot be in {size} bytes in topic partition {rules.topic_partition}"
        )
    if budget is not None:
        budget.spend(walked_ns + size * byte_ns)
    return data, start


def _unpack(
    view: Buffer, source: Codec, limit: int, rules: AppendRules, budget: LoopBudget | None, byte_ns: int
) -> Buffer:
    packed = memoryview(view)[HEADER_BYTES:]
    try:
        if not packed:
            raise corrupt("there is nothing to unpack")
        return unpack(source, packed, limit)
    except RecordsRejected as rejected:
        if rejected.code is ErrorCode.MESSAGE_TOO_LARGE:
            if budget is not None and limit < rules.limits.decompressed_bytes_max:
                budget.spend(limit * byte_ns)
                rules.expansion = limit / max(len(packed), 1) + 1
                raise ValidationDeferred(rules) from None
            raise RecordsRejected(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"The record batch unpacks to more than {limit} bytes in the append to {rules.topic_partition} "
                "(barnabas.max.decompressed.batch.bytes).",
            ) from None
        message = f"The records cannot be unpacked in {rules.topic_partition}: {rejected.message}"
        raise RecordsRejected(ErrorCode.UNKNOWN_SERVER_ERROR, message) from None


def _faulty(found: Survey, rules: AppendRules) -> RecordsRejected:
    return invalid(
        f"Record {found.records} at byte {found.size_bytes} of the records is incomplete: {found.reason} "
        f"in topic partition {rules.topic_partition}"
    )


def _converted(
    header: BatchHeader,
    data: Buffer,
    start: int,
    is_numbered: bool,
    target: Codec,
    rules: AppendRules,
    stamped: BatchHeader,
) -> tuple[BatchHeader, bytearray]:
    """Returns the batch in another codec, its records renumbered. One that is too large is refused before packing."""
    body = memoryview(data)[start:] if is_numbered else walk.renumbered(data, start, header.record_count)
    if target is Codec.NONE and HEADER_BYTES + len(body) > rules.batch_bytes_max:
        raise too_large(rules, HEADER_BYTES + len(body))
    packed = body if target is Codec.NONE else compress(target, body, rules.level if target is rules.codec else None)
    kept = TIMESTAMP_TYPE_FLAG | TRANSACTIONAL_FLAG | CONTROL_FLAG
    made = assemble(stamped._replace(attributes=(stamped.attributes & kept) | (target & CODEC_MASK)), packed)
    if made[0].size_bytes > rules.batch_bytes_max:
        raise too_large(rules, made[0].size_bytes)
    if made[0].size_bytes > rules.segment_bytes:
        raise beyond_segment(rules, made[0].size_bytes)
    return made


# -- records that the topic does not accept


def _reject_wrong_records(
    found: Survey,
    data: Buffer,
    start: int,
    header: BatchHeader,
    rules: AppendRules,
    wall_ms: int,
    budget: LoopBudget | None,
) -> None:
    """Raises RecordsRejected with an error for each wrong record, if there are any."""
    by_key = rules.is_compacted and found.without_key
    by_time = rules.is_log_append_time and header.timestamp_type == LOG_APPEND_TIME
    if not rules.is_log_append_time:
        by_time = (
            found.max_timestamp > wall_ms + rules.after_max_ms or found.min_timestamp < wall_ms - rules.before_max_ms
        )
    if not by_key and not by_time:
        return
    if budget is not None and header.record_count > _LOOP_ERRORS_MAX:
        raise ValidationDeferred(rules)
    code, total, errors = _errors(data, start, header, rules, wall_ms)
    if code is ErrorCode.INVALID_TIMESTAMP:
        message = "One or more records have been rejected due to invalid timestamp"
    else:
        shown = ", ".join(text for _, text in errors[:_ERRORS_SHOWN])
        message = (
            f"One or more records have been rejected due to {total} record errors in total, "
            f"and only showing the first three errors at most: {shown}"
        )
    raise RecordsRejected(code, message, errors)


def _errors(
    data: Buffer, start: int, header: BatchHeader, rules: AppendRules, wall_ms: int
) -> tuple[ErrorCode, int, list[tuple[int, str]]]:
    """Returns the error code for the batch, the number of wrong records, and the errors of the first ones."""
    rows = walk.index(data, start, header.record_count)
    keyless = f"Compacted topic cannot accept message without key in topic partition {rules.topic_partition}"
    least, most = wall_ms - rules.before_max_ms, wall_ms + rules.after_max_ms
    code, total = ErrorCode.INVALID_RECORD, 0
    errors: list[tuple[int, str]] = []
    for place, (delta, key_size) in enumerate(zip(rows.timestamp_deltas, rows.key_sizes, strict=True)):
        if key_size < 0 and rules.is_compacted:
            text = keyless
        elif rules.is_log_append_time:
            if header.timestamp_type != LOG_APPEND_TIME:
                continue
            code, text = ErrorCode.INVALID_TIMESTAMP, "Producer should not set timestamp type to LogAppendTime"
        else:
            timestamp = wrap_64(header.base_timestamp + delta)
            if timestamp == NO_TIMESTAMP or least <= timestamp <= most:
                continue
            code = ErrorCode.INVALID_TIMESTAMP
            text = (
                f"Timestamp {timestamp} of message with offset {place} is out of range. The timestamp should "
                f"be within [{least}, {most}]"
            )
        total += 1
        if len(errors) < _ERRORS_MAX:
            errors.append((place, text))
    return code, total, errors
