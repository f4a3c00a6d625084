"""The leader's checks: what is accepted, what is refused with which code, what is written into the batch."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from tests.support.batches import NOW_MS, simple_batch, with_right_crc

from barnabas.common.errors import ErrorCode, RecordsRejected
from barnabas.common.host import Buffer
from barnabas.common.log_config import LogConfig
from barnabas.common.types import TopicPartition
from barnabas.records.append_rules import DEFAULT_LIMITS, RecordLimits
from barnabas.records.batch import (
    Record,
    decode_batch,
    encode_batch,
    encode_end_txn_marker,
    has_valid_crc,
    read_header,
)
from barnabas.records.compression import Codec, compress
from barnabas.records.validate import AppendRules, ValidBatch, stamp, validate_for_append

PARTITION = TopicPartition("orders", 3)
HOUR_MS = 3_600_000


def rules(config: LogConfig | None = None, limits: RecordLimits = DEFAULT_LIMITS) -> AppendRules:
    return AppendRules(config or LogConfig(), PARTITION, limits)


def check(batch: Buffer, config: LogConfig | None = None, *, from_client: bool = True) -> ValidBatch:
    return validate_for_append(batch, rules(config), wall_ms=NOW_MS, from_client=from_client)


def refused(batch: Buffer, config: LogConfig | None = None) -> RecordsRejected:
    before = bytes(batch)
    with pytest.raises(RecordsRejected) as caught:
        check(batch, config)
    assert bytes(batch) == before
    return caught.value


def patched(offset: int, form: str, value: int, batch: bytearray | None = None) -> bytearray:
    changed = bytearray(simple_batch(3) if batch is None else batch)
    struct.pack_into(form, changed, offset, value)
    return with_right_crc(changed)


def test_a_batch_gets_its_offsets_in_place() -> None:
    batch = simple_batch(3)
    view = memoryview(batch)
    valid = check(view)
    header, stamped = stamp(valid, 1000, 7)
    assert stamped is view
    assert header == read_header(batch)
    assert (header.base_offset, header.last_offset, header.partition_leader_epoch) == (1000, 1002, 7)
    assert has_valid_crc(batch, 0, header)
    assert valid.log_append_time_ms == -1


def test_memory_that_cannot_be_written_is_copied() -> None:
    for batch in (bytes(simple_batch(1)), memoryview(bytes(simple_batch(1)))):
        before = bytes(batch)
        header, stamped = stamp(check(batch), 5, 1)
        assert bytes(batch) == before
        assert read_header(stamped) == header
        assert header.base_offset == 5


def test_log_append_time_is_written_with_a_new_checksum() -> None:
    valid = check(simple_batch(3), LogConfig(message_timestamp_type="LogAppendTime"))
    assert valid.log_append_time_ms == NOW_MS
    header, stamped = stamp(valid, 10, 0)
    assert header == read_header(stamped)._replace(crc=header.crc)
    assert (header.timestamp_type, header.max_timestamp) == (1, NOW_MS)
    assert has_valid_crc(stamped, 0, read_header(stamped))
    assert [record.timestamp for record in decode_batch(stamped)] == [NOW_MS] * 3


@pytest.mark.parametrize(
    "batch",
    [
        b"",
        bytes(5),
        bytes(simple_batch(1))[:-1],
        bytes(simple_batch(1))[:40],
        bytes(simple_batch(1) + simple_batch(1)),
        bytes.fromhex("0000000000000000 00000011 00000000 00 00 ffffffff 00000003 616263"),
    ],
    ids=["nothing", "a few bytes", "cut off", "half a header", "two batches", "magic 0"],
)
def test_not_one_batch_of_magic_2_is_an_invalid_record(batch: bytes) -> None:
    assert refused(batch).code is ErrorCode.INVALID_RECORD


def test_an_incomplete_batch_behind_is_dropped() -> None:
    batch = simple_batch(2)
    for tail in (b"x", simple_batch(1)[:-1]):
        valid = check(bytes(batch + tail))
        assert bytes(valid.batch) == bytes(batch)


@pytest.mark.parametrize(
    "batch",
    [
        simple_batch(1)[:60] + b"\xff",
        patched(16, ">b", 3),
        patched(16, ">b", -1),
        patched(8, ">i", 48),
        patched(8, ">i", 1),
        patched(8, ">i", -100),
        simple_batch(1) + bytes(30),
    ],
    ids=["checksum", "magic 3", "magic -1", "shorter than a header", "tiny", "negative size", "junk behind"],
)
def test_bytes_that_are_no_batch_are_corrupt(batch: bytearray) -> None:
    if len(batch) == 61:
        struct.pack_into(">i", batch, 8, 49)
    assert refused(batch).code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize(
    "batch, says",
    [
        (patched(0, ">q", 1), "base offset"),
        (patched(23, ">i", -1), "invalid offset range"),
        (patched(23, ">i", 5), "Inconsistent batch offset range"),
        (patched(57, ">i", 2), "Inconsistent batch offset range"),
        (patched(57, ">i", 0), "Invalid reported count"),
        (patched(57, ">i", -3), "Invalid reported count"),
        (patched(43, ">q", 7), "Invalid sequence number"),
        (patched(21, ">h", 0x20), "control records"),
    ],
)
def test_a_header_that_contradicts_itself_is_an_invalid_record(batch: bytearray, says: str) -> None:
    rejected = refused(batch)
    assert rejected.code is ErrorCode.INVALID_RECORD
    assert says in rejected.message
    assert "orders-3" in rejected.message


def test_brokers_themselves_may_write_control_batches_at_any_offset() -> None:
    marker = encode_end_txn_marker(commit=True, coordinator_epoch=1, timestamp=NOW_MS, producer_id=3, producer_epoch=0)
    assert refused(marker).code is ErrorCode.INVALID_RECORD
    assert check(marker, from_client=False).header.is_control
    assert check(simple_batch(1, base_offset=44), from_client=False).header.base_offset == 44


def test_sizes_are_bounded_by_topic_and_segment() -> None:
    batch = simple_batch(3)
    assert check(batch, LogConfig(max_message_bytes=len(batch))).header.record_count == 3
    assert refused(batch, LogConfig(max_message_bytes=len(batch) - 1)).code is ErrorCode.MESSAGE_TOO_LARGE
    assert refused(batch, LogConfig(segment_bytes=len(batch) - 1)).code is ErrorCode.RECORD_LIST_TOO_LARGE


def test_a_compacted_topic_names_every_record_without_a_key() -> None:
    keys = [b"a", None, b"", None]
    batch = encode_batch([Record(i, NOW_MS, key, b"v") for i, key in enumerate(keys)])
    rejected = refused(batch, LogConfig(cleanup_policy=("compact",)))
    assert rejected.code is ErrorCode.INVALID_RECORD
    text = "Compacted topic cannot accept message without key in topic partition orders-3"
    assert rejected.record_errors == ((1, text), (3, text))
    assert check(batch).header.record_count == 4
    assert check(simple_batch(2), LogConfig(cleanup_policy=("compact", "delete"))).header.record_count == 2


@pytest.mark.parametrize(
    "shift_ms, taken",
    [(0, True), (HOUR_MS, True), (HOUR_MS + 1, False), (-(10**12), True)],
)
def test_timestamps_of_the_future_are_refused(shift_ms: int, taken: bool) -> None:
    batch = encode_batch([Record(0, NOW_MS, None, b"v"), Record(1, NOW_MS + shift_ms, None, b"v")])
    if taken:
        assert check(batch).header.max_timestamp == NOW_MS + max(shift_ms, 0)
        return
    rejected = refused(batch)
    assert rejected.code is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in rejected.record_errors] == [1]
    late = LogConfig(message_timestamp_type="LogAppendTime")
    assert check(batch, late).log_append_time_ms == NOW_MS


def test_timestamps_of_the_past_are_refused_where_the_topic_says_so() -> None:
    config = LogConfig(message_timestamp_before_max_ms=1000)
    old = encode_batch([Record(0, NOW_MS, None, b"v"), Record(1, NOW_MS - 1001, None, b"v")])
    assert refused(old, config).record_errors[0][0] == 1
    bounds = [Record(0, -1, None, b"v"), Record(1, NOW_MS - 1000, None, b"v"), Record(2, NOW_MS + HOUR_MS, None, b"v")]
    assert check(encode_batch(bounds), config).header.record_count == 3


def test_a_producer_may_not_set_log_append_time() -> None:
    batch = encode_batch([Record(0, NOW_MS, None, b"v")], timestamp_type=1)
    rejected = refused(batch, LogConfig(message_timestamp_type="LogAppendTime"))
    assert rejected.code is ErrorCode.INVALID_TIMESTAMP
    header, stamped = stamp(check(batch), 3, 0)
    assert header.timestamp_type == 0, "a topic with CreateTime takes it as that"
    assert has_valid_crc(stamped, 0, read_header(stamped))


@pytest.mark.parametrize("source", [Codec.NONE, Codec.GZIP, Codec.SNAPPY])
@pytest.mark.parametrize("target", ["uncompressed", "gzip", "snappy", "lz4", "zstd", "producer"])
@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_the_topic_decides_the_codec(source: Codec, target: str, kind: str) -> None:
    batch = simple_batch(20, codec=source, producer_id=4, producer_epoch=1, base_sequence=8, transactional=True)
    header, stamped = stamp(check(batch, LogConfig(compression_type=target, message_timestamp_type=kind)), 100, 2)
    chosen = {"uncompressed": Codec.NONE, "producer": source}
    expected = chosen[target] if target in chosen else Codec[target.upper()]
    stored = read_header(stamped)
    assert stored.codec == expected
    assert has_valid_crc(stamped, 0, stored)
    assert (stored.base_offset, stored.last_offset, stored.partition_leader_epoch) == (100, 119, 2)
    assert (stored.producer_id, stored.producer_epoch, stored.base_sequence) == (4, 1, 8)
    assert stored.is_transactional
    assert stored._replace(crc=0) == header._replace(crc=0)
    sent = decode_batch(simple_batch(20))
    for before, after in zip(sent, decode_batch(stamped), strict=True):
        assert (before.key, before.value, before.headers) == (after.key, after.value, after.headers)
        assert after.offset == 100 + before.offset
        assert after.timestamp == (before.timestamp if kind == "CreateTime" else NOW_MS)


def test_a_batch_that_grows_too_large_when_unpacked_is_refused() -> None:
    batch = encode_batch([Record(0, NOW_MS, None, bytes(10_000))], codec=Codec.GZIP)
    config = LogConfig(compression_type="uncompressed", max_message_bytes=5000)
    assert refused(batch, config).code is ErrorCode.MESSAGE_TOO_LARGE


def _broken_stream(batch: bytearray) -> bytearray:
    batch[80] ^= 0xFF
    return batch


def _wrong_inner_length(batch: bytearray) -> bytearray:
    batch[61] += 2
    return batch


@pytest.mark.parametrize(
    "batch, code",
    [
        (_wrong_inner_length(simple_batch(2)), ErrorCode.INVALID_RECORD),
        (_broken_stream(simple_batch(2, codec=Codec.GZIP)), ErrorCode.UNKNOWN_SERVER_ERROR),
        (patched(21, ">h", 5), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_opened_records_are_checked_completely(batch: bytearray, code: ErrorCode) -> None:
    assert refused(with_right_crc(batch), LogConfig(cleanup_policy=("compact",))).code is code


@pytest.mark.parametrize(
    "verifies_plain, verifies_compressed",
    [(True, True), (True, False), (False, False)],
    ids=["true", "uncompressed", "false"],
)
def test_the_operator_says_whose_records_are_walked_over(verifies_plain: bool, verifies_compressed: bool) -> None:
    limits = RecordLimits(verifies_plain=verifies_plain, verifies_compressed=verifies_compressed)
    for codec, verifies in ((Codec.NONE, verifies_plain), (Codec.LZ4, verifies_compressed)):
        batch = (
            simple_batch(2)
            if codec is Codec.NONE
            else encode_of(
                _wrong_inner_length(simple_batch(2))[61:], lambda data: compress(Codec.LZ4, data), simple_batch(2)
            )
        )
        wrong = with_right_crc(_wrong_inner_length(batch) if codec is Codec.NONE else batch)
        if verifies:
            with pytest.raises(RecordsRejected):
                validate_for_append(wrong, rules(limits=limits), wall_ms=NOW_MS)
        else:
            valid = validate_for_append(wrong, rules(limits=limits), wall_ms=NOW_MS)
            assert bytes(valid.batch) == bytes(wrong)


def test_records_that_do_not_count_their_offsets_are_numbered_where_they_are_packed_anew() -> None:
    packed = bytearray(simple_batch(3))
    second = packed.index(b"key-1") - 2
    assert packed[second] == 2, "the offset delta of the second record"
    packed[second] = 8
    wrong = encode_of(packed[61:], lambda data: compress(Codec.LZ4, data), packed)
    for plain_or_packed in (with_right_crc(packed), wrong):
        assert refused(plain_or_packed, LogConfig(cleanup_policy=("compact",))).code is ErrorCode.INVALID_RECORD
        header, stamped = stamp(check(plain_or_packed, LogConfig(compression_type="zstd")), 50, 0)
        assert [record.offset for record in decode_batch(stamped)] == [50, 51, 52]
        assert header.codec == Codec.ZSTD


def encode_of(body: bytearray, pack: Callable[[bytes], bytes], template: bytearray) -> bytearray:
    """Returns the batch `template` with `body` compressed by LZ4 instead of its own records."""
    packed = pack(bytes(body))
    batch = bytearray(template[:61]) + packed
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">h", batch, 21, Codec.LZ4)
    return with_right_crc(batch)
