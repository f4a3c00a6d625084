"""The walk over a batch's records, by each of its twins: the same findings as decoding them, for any bytes."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import golden
from tests.support.batches import records, simple_batch
from tests.support.packed_walks import index_batch, survey_batch
from tests.support.twins import can_compile, walkers

from barnabas.common.errors import ErrorCode, RecordsRejected
from barnabas.records.batch import HEADER_BYTES, Record, decode_batch, encode_batch, iter_headers, read_header
from barnabas.records.header import MAGIC_V2
from barnabas.records.record import read_records, write_varint
from barnabas.records.walk import Index, Survey

any_timestamps = st.integers(-(1 << 63), (1 << 63) - 1)
WALKERS = list(walkers().values())


def surveyed(data: bytes, count: int, base_timestamp: int = 0, start: int = 0) -> Survey:
    found = [Survey._make(walker.survey(data, start, count, base_timestamp)) for walker in WALKERS]
    assert all(each == found[0] for each in found)
    return found[0]


def indexed(data: bytes, count: int, start: int = 0) -> Index:
    found = [Index._make(walker.index(data, start, count)) for walker in WALKERS]
    assert all(each == found[0] for each in found)
    return found[0]


def test_the_compiled_walk_runs_where_it_can_be_built() -> None:
    assert ("compiled" in walkers()) >= can_compile()


@given(records(timestamps=any_timestamps))
def test_a_survey_reports_the_kinds_of_records(made: list[Record]) -> None:
    batch = encode_batch(made)
    base = made[0].timestamp
    found = surveyed(bytes(batch), len(made), base, HEADER_BYTES)
    keyless = [place for place, record in enumerate(made) if record.key is None]
    timed = [record.timestamp for record in made if record.timestamp != -1]
    assert (found.records, found.size_bytes, found.fault) == (len(made), len(batch) - HEADER_BYTES, 0)
    assert found.is_numbered
    assert (found.first_without_key, found.without_key) == (keyless[0] if keyless else -1, len(keyless))
    assert found.min_timestamp == min(timed, default=(1 << 63) - 1)
    assert found.max_timestamp == max([-1, *timed])


@given(records(timestamps=any_timestamps), st.integers(0, 4))
def test_an_index_leads_to_keys_and_values(made: list[Record], codec: int) -> None:
    batch = encode_batch(made, codec=codec)
    found, data = index_batch(read_header(batch), batch)

    def field(start: int, size: int) -> bytes | None:
        return None if size < 0 else bytes(data[start : start + size])

    assert [field(*each) for each in zip(found.key_starts, found.key_sizes, strict=True)] == [r.key for r in made]
    assert [field(*each) for each in zip(found.value_starts, found.value_sizes, strict=True)] == [r.value for r in made]
    assert list(found.offset_deltas) == list(range(len(made)))
    assert list(found.starts) == [0, *found.ends[:-1]]
    assert found.ends[-1] == found.size_bytes == len(data)
    assert (found.records, found.fault, found.reason) == (len(made), 0, "")


@given(records(), st.data())
def test_what_is_wrong_is_found_where_reading_finds_it(made: list[Record], data: st.DataObject) -> None:
    """A whole walk means records that read back; a walk that ends early has read what is before the fault."""
    body = bytearray(encode_batch(made)[HEADER_BYTES:])
    count = len(made) + data.draw(st.sampled_from([0, 0, 0, -1, 1, 1 << 31]))
    for _ in range(data.draw(st.integers(0, 3))):
        place = data.draw(st.integers(0, len(body) - 1))
        body[place] = data.draw(st.integers(0, 255))
    cut = bytes(body[: data.draw(st.integers(0, len(body)) | st.just(len(body)))])
    found = surveyed(cut, count)
    rows = indexed(cut, count)
    assert (rows.records, rows.size_bytes, rows.fault) == (found.records, found.size_bytes, found.fault)
    assert len(rows.ends) == found.records
    read = read_records(cut[: found.size_bytes], max(found.records, 0), 0, 0, None)
    assert [record.offset for record in read] == list(rows.offset_deltas)
    assert found.is_numbered == (list(rows.offset_deltas) == list(range(len(read))))
    if not found.fault:
        assert found.records == max(count, 0)
        assert found.size_bytes == len(cut)


@given(st.binary(max_size=80), st.integers(-1, 12))
def test_any_bytes_have_the_same_walk_by_each_twin(data: bytes, count: int) -> None:
    found = surveyed(data, count)
    assert indexed(data, count)[:3] == (found.records, found.size_bytes, found.fault)
    assert (found.fault == 0) == (found.reason == "")


@pytest.mark.parametrize(
    ("value", "size_max"),
    [(struct.unpack(">i", struct.pack(">I", 0x80000000))[0], 5), ((1 << 31) - 1, 5), (-1, 1), (0, 1)],
)
def test_a_length_of_any_32_bits_is_no_way_out(value: int, size_max: int) -> None:
    out = bytearray()
    write_varint(out, value)
    assert len(out) == size_max
    found = surveyed(bytes(out) + bytes(40), 1)
    assert found.records == 0
    assert found.fault


@pytest.mark.parametrize("varint", [b"\x80" * 5 + b"\x01", b"\xff\xff\xff\xff\x1f", b"\x80\x80\x80\x80\x80"])
def test_a_varint_that_does_not_fit_is_a_fault(varint: bytes) -> None:
    assert "not a varint" in surveyed(varint + bytes(40), 1).reason
    body = b"\0\0\0" + varint + b"\1\0"  # the length of a key
    assert "key of a record" in surveyed(bytes([2 * len(body)]) + body, 1).reason


def test_a_timestamp_of_70_bits_is_a_fault() -> None:
    for last in (b"\x02", b"\x7f"):
        body = b"\0" + b"\xff" * 9 + last + b"\0\1\1\0"
        assert "timestamp" in surveyed(bytes([2 * len(body)]) + body, 1).reason


def test_a_walk_of_a_packed_batch_has_a_limit() -> None:
    batch = simple_batch(100, codec=1)
    assert survey_batch(read_header(batch), batch).records == 100
    with pytest.raises(RecordsRejected) as refused:
        survey_batch(read_header(batch), batch, 1_000)
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_logs_of_apache_kafka_are_whole() -> None:
    batches = 0
    for folder, text in golden.dumps():
        for log in golden.dumped_logs(text):
            data = golden.files()[f"{folder}/{log.path.partition('/')[2]}"]
            for position, header in iter_headers(data):
                if header.magic == MAGIC_V2:
                    batch = data[position : position + header.size_bytes]
                    found = survey_batch(header, batch)
                    assert found.fault == 0
                    rows, _ = index_batch(header, batch)
                    assert [header.base_offset + delta for delta in rows.offset_deltas] == [
                        record.offset for record in decode_batch(batch)
                    ]
                    batches += 1
    assert batches > 100
