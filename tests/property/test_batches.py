"""Batches with random content: what is written reads back, and arbitrary bytes lead to records or to a refusal."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.batches import NOW_MS, records, simple_batch, with_right_crc

from barnabas.common.errors import ErrorCode, RecordsRejected
from barnabas.common.log_config import LogConfig
from barnabas.common.types import TopicPartition
from barnabas.records.batch import (
    HEADER_BYTES,
    Record,
    decode_batch,
    encode_batch,
    has_valid_crc,
    iter_headers,
    read_header,
)
from barnabas.records.entries import read_batch_entries
from barnabas.records.validate import AppendRules, stamp, validate_for_append

PARTITION = TopicPartition("t", 0)
USUAL = AppendRules(LogConfig(), PARTITION)
#: Settings with which every batch is opened, every record checked, and the batch written again.
STRICT = AppendRules(
    LogConfig(cleanup_policy=("compact",), compression_type="gzip", message_timestamp_before_max_ms=1 << 40), PARTITION
)
REFUSALS = {
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.INVALID_RECORD,
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.UNKNOWN_SERVER_ERROR,
}
codecs = st.integers(0, 4)
any_timestamps = st.integers(-(1 << 63), (1 << 63) - 1)


@given(records(), codecs, st.integers(0, 1 << 50), st.booleans())
def test_a_batch_reads_as_it_was_written(made: list[Record], codec: int, base_offset: int, transactional: bool) -> None:
    batch = encode_batch(made, codec=codec, base_offset=base_offset, transactional=transactional)
    header = read_header(batch)
    assert has_valid_crc(batch, 0, header)
    assert header.max_timestamp == max(record.timestamp for record in made)
    assert header.last_offset == base_offset + len(made) - 1
    for record in made:
        record.offset += base_offset
    assert decode_batch(memoryview(batch)) == made


@given(records(timestamps=any_timestamps), codecs, st.integers(0, 1 << 50))
def test_entries_are_those_of_the_records(made: list[Record], codec: int, base_offset: int) -> None:
    batch = encode_batch(made, codec=codec, base_offset=base_offset)
    expected = [(record.offset, record.key, record.value) for record in decode_batch(batch)]
    assert read_batch_entries(read_header(batch), batch) == expected


@given(records(), st.data())
def test_entries_of_flipped_records_are_those_of_the_records_or_refused(
    made: list[Record], data: st.DataObject
) -> None:
    batch = encode_batch(made)
    batch[data.draw(st.integers(HEADER_BYTES, len(batch) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        entries = read_batch_entries(read_header(batch), batch)
    except RecordsRejected:
        # Bytes that can be read as records are not refused.
        with pytest.raises(RecordsRejected):
            decode_batch(batch)
        return
    try:
        expected = [(record.offset, record.key, record.value) for record in decode_batch(batch)]
    except RecordsRejected:
        return  # the walk skips records without reading them: they can be broken
    assert entries == expected


@given(records(timestamps=any_timestamps))
def test_any_timestamps_survive(made: list[Record]) -> None:
    assert decode_batch(encode_batch(made)) == made


@given(st.lists(records(count_max=4), max_size=5), st.data())
def test_batches_behind_one_another_are_found_again(runs: list[list[Record]], data: st.DataObject) -> None:
    offset, log, expected = 0, bytearray(), []
    for run in runs:
        expected.append((len(log), offset))
        log += encode_batch(run, base_offset=offset)
        offset += len(run)
    cut = data.draw(st.integers(0, len(log)))
    found = [(position, header.base_offset) for position, header in iter_headers(memoryview(log)[:cut])]
    ends = [position for position, _ in expected[1:]] + [len(log)]
    assert found == [place for place, end in zip(expected, ends, strict=False) if end <= cut]


def _try(batch: bytearray, rules: AppendRules) -> bool:
    """Validates a batch and, if that succeeds, stores it. A refused one stays as it was; a stored one is whole."""
    before = bytes(batch)
    try:
        valid = validate_for_append(memoryview(batch), rules, wall_ms=NOW_MS)
    except RecordsRejected as rejected:
        if rejected.code not in REFUSALS:
            raise
        assert bytes(batch) == before
        return False
    assert bytes(batch) == before
    header, stored = stamp(valid, 1 << 33, 3)
    again = read_header(stored)
    assert again._replace(crc=0) == header._replace(crc=0)
    assert has_valid_crc(stored, 0, again)
    assert again.size_bytes == len(stored)
    assert again.record_count == again.last_offset_delta + 1 > 0
    if rules is STRICT:
        read = decode_batch(stored)
        assert [record.offset for record in read] == list(range(1 << 33, (1 << 33) + again.record_count))
    return True


@given(records(), codecs)
def test_what_a_producer_sends_is_taken(made: list[Record], codec: int) -> None:
    for record in made:
        record.key = record.key or b"k"
    batch = encode_batch(made, codec=codec)
    assert _try(bytearray(batch), USUAL)
    assert _try(bytearray(batch), STRICT)


@given(codecs, st.integers(1, 6), st.data())
def test_a_flipped_bit_is_found_out(codec: int, count: int, data: st.DataObject) -> None:
    """No flipped bit passes, except in the fields that the leader writes: the checksum does not cover them."""
    batch = simple_batch(count, codec=codec)
    place = data.draw(st.integers(0, len(batch) - 1))
    batch[place] ^= 1 << data.draw(st.integers(0, 7))
    assert _try(batch, USUAL) == (12 <= place < 16)


@given(st.binary(max_size=300))
def test_noise_is_refused(noise: bytes) -> None:
    assert not _try(bytearray(noise), USUAL)


@given(codecs, st.data())
def test_liars_with_a_right_checksum_do_no_harm(codec: int, data: st.DataObject) -> None:
    batch = simple_batch(data.draw(st.integers(1, 5)), codec=codec)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(12, len(batch) - 1))
        batch[place] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        cut = data.draw(st.integers(61, len(batch)))
        del batch[cut:]
        struct.pack_into(">i", batch, 8, cut - 12)
    _try(with_right_crc(batch), STRICT)
    _try(with_right_crc(batch), USUAL)


@given(st.sampled_from([(8, ">i"), (23, ">i"), (57, ">i"), (53, ">i"), (43, ">q"), (35, ">q")]), st.data())
def test_wrong_sizes_counts_and_sequences(field: tuple[int, str], data: st.DataObject) -> None:
    offset, form = field
    limit = 1 << (31 if form == ">i" else 63)
    value = data.draw(st.integers(-limit, limit - 1) | st.integers(-3, 90))
    batch = simple_batch(3, codec=data.draw(codecs), producer_id=1, producer_epoch=0, base_sequence=0)
    struct.pack_into(form, batch, offset, value)
    _try(with_right_crc(batch), STRICT)
    _try(with_right_crc(batch), USUAL)
