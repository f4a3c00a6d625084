"""Reading and writing batches: headers, records, markers, incomplete and broken bytes."""

from __future__ import annotations

import struct

import pytest
from tests.support.batches import NOW_MS, simple_batch, with_right_crc

from barnabas.common.errors import ErrorCode, RecordsRejected
from barnabas.records.batch import (
    ControlType,
    EndTxnMarker,
    Record,
    control_key,
    control_type,
    decode_batch,
    encode_batch,
    encode_end_txn_marker,
    has_valid_crc,
    iter_headers,
    read_end_txn_marker,
    read_header,
    set_max_timestamp,
)
from barnabas.records.header import LOG_APPEND_TIME, advance_sequence


def test_the_header_describes_the_records_that_were_written() -> None:
    batch = simple_batch(
        3,
        base_offset=41,
        codec=1,
        leader_epoch=7,
        producer_id=9,
        producer_epoch=2,
        base_sequence=0x7FFFFFFF,
        transactional=True,
    )
    header = read_header(batch)
    assert (header.base_offset, header.last_offset, header.next_offset, header.record_count) == (41, 43, 44, 3)
    assert header.size_bytes == len(batch)
    assert (header.codec, header.timestamp_type, header.partition_leader_epoch) == (1, 0, 7)
    assert (header.is_transactional, header.is_control, header.has_delete_horizon) == (True, False, False)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 2, 0x7FFFFFFF)
    assert header.last_sequence == 1, "sequences continue at 0 after the largest"
    assert (header.base_timestamp, header.max_timestamp) == (NOW_MS, NOW_MS + 2)
    assert has_valid_crc(batch, 0, header)


def test_a_batch_without_sequence_has_none_at_its_end() -> None:
    assert read_header(simple_batch(3)).last_sequence == -1
    assert advance_sequence(0x7FFFFFFF, 1) == 0


def test_walking_stops_at_an_incomplete_batch() -> None:
    one, two = simple_batch(1), simple_batch(2, base_offset=1)
    data = bytes(one + two)
    assert [(p, h.base_offset) for p, h in iter_headers(data)] == [(0, 0), (len(one), 1)]
    for end in range(len(one), len(data)):
        assert [p for p, _ in iter_headers(memoryview(data)[:end])] == [0]
    for end in range(len(one)):
        assert not list(iter_headers(data[:end]))


def test_walking_refuses_what_cannot_be_a_batch() -> None:
    data = bytes(8) + struct.pack(">i", 13) + bytes(40)
    with pytest.raises(RecordsRejected) as caught:
        list(iter_headers(data))
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    batch = simple_batch(1)
    batch[16] = 3
    with pytest.raises(RecordsRejected):
        list(iter_headers(batch))


def test_log_append_time_is_under_the_checksum() -> None:
    batch = simple_batch(2)
    set_max_timestamp(memoryview(batch), 0, NOW_MS + 99, LOG_APPEND_TIME)
    header = read_header(batch)
    assert (header.timestamp_type, header.max_timestamp) == (1, NOW_MS + 99)
    assert has_valid_crc(batch, 0, header)
    assert {record.timestamp for record in decode_batch(batch)} == {NOW_MS + 99}


def test_timestamps_may_lie_farther_apart_than_a_long_holds() -> None:
    extreme = [Record(0, -(1 << 63), None, None), Record(1, (1 << 63) - 1, None, None)]
    assert decode_batch(encode_batch(extreme)) == extreme


def test_header_keys_that_are_not_text_survive() -> None:
    batch = simple_batch(1)
    place = batch.index(b"\x02h\x02x") + 1
    batch[place] = 0xFF
    records = decode_batch(batch)
    again = encode_batch(records)
    assert again[61:] == batch[61:]


@pytest.mark.parametrize("codec", range(5))
def test_a_batch_cut_off_or_prolonged_is_refused(codec: int) -> None:
    batch = simple_batch(4, codec=codec)
    for size in range(61, len(batch)):
        short = bytearray(batch[:size])
        struct.pack_into(">i", short, 8, size - 12)
        with pytest.raises(RecordsRejected) as caught:
            decode_batch(short)
        assert caught.value.code in (ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE)
    with pytest.raises(RecordsRejected):
        decode_batch(batch[:-1])


@pytest.mark.parametrize("count", [-1, 0, 3, 5, 1 << 30])
def test_a_count_that_is_not_the_records_is_refused(count: int) -> None:
    batch = simple_batch(4)
    struct.pack_into(">i", batch, 57, count)
    with pytest.raises(RecordsRejected) as caught:
        decode_batch(with_right_crc(batch))
    assert caught.value.code is ErrorCode.INVALID_RECORD


def test_an_unknown_codec_is_refused() -> None:
    batch = simple_batch(1)
    struct.pack_into(">h", batch, 21, 5)
    with pytest.raises(RecordsRejected) as caught:
        decode_batch(batch)
    assert caught.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@pytest.mark.parametrize("commit", [True, False])
def test_markers_read_as_written(commit: bool) -> None:
    batch = encode_end_txn_marker(
        commit=commit, coordinator_epoch=12, timestamp=NOW_MS, producer_id=5, producer_epoch=3
    )
    header = read_header(batch)
    assert (header.is_control, header.is_transactional, header.base_sequence) == (True, True, -1)
    assert (header.producer_id, header.producer_epoch) == (5, 3)
    (record,) = decode_batch(batch)
    assert read_end_txn_marker(record) == EndTxnMarker(commit, 12)


def test_other_control_records_are_no_markers() -> None:
    record = Record(0, 0, control_key(ControlType.LEADER_CHANGE), b"")
    assert control_type(record) == ControlType.LEADER_CHANGE
    assert read_end_txn_marker(record) is None
    assert control_type(Record(0, 0, b"\0", b"")) is None
    assert control_type(Record(0, 0, None, b"")) is None
