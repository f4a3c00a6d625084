"""The fast paths of metadata records, against the general ones: values of batches, and ACLs."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.common.errors import DecodeError, FatalFault, RecordsRejected
from barnabas.metadata.frame import decode_into, decode_record, encode_record
from barnabas.metadata.image import METADATA_VERSION
from barnabas.protocol import codec
from barnabas.protocol.message import Message
from barnabas.protocol.messages.records_metadata import AccessControlEntryRecord, FeatureLevelRecord, NoOpRecord
from barnabas.raft.commits import CommittedBatch
from barnabas.raft.metadata_batches import read_batch
from barnabas.raft.voter_history import VoterHistory
from barnabas.raft.voters import VoterSet
from barnabas.records import python_walk, walk
from barnabas.records.batch import decode_batch, decode_values, encode_batch, iter_headers
from barnabas.records.record import Record

_TEXTS = st.text(max_size=12) | st.sampled_from(["a" * 126, "b" * 127, "c" * 300, "ü" * 63])
_CODES = st.integers(-128, 127)
_ACLS = st.builds(
    AccessControlEntryRecord,
    id=st.binary(min_size=16, max_size=16),
    resource_type=_CODES,
    resource_name=_TEXTS,
    pattern_type=_CODES,
    principal=_TEXTS,
    host=_TEXTS,
    operation=_CODES,
    permission_type=_CODES,
    unknown_tags=st.sampled_from([(), ((3, b"x"),)]),
)
_RECORDS = st.lists(
    st.builds(
        Record,
        offset=st.just(0),
        timestamp=st.integers(0, 1 << 40) | st.just(5),
        key=st.none() | st.binary(max_size=3),
        value=st.none() | st.binary(max_size=200),
        headers=st.sampled_from([(), (("name", b"of a header"),)]),
    ),
    min_size=1,
    max_size=40,
)


def _outcome(data: bytes) -> tuple[Message, int] | str:
    try:
        return codec.decode(AccessControlEntryRecord, 0, data, 3)
    except DecodeError as error:
        return str(error)


@settings(max_examples=400)
@given(_ACLS, st.integers(0, 400), st.integers(0, 400), st.integers(0, 255))
def test_an_acl_is_decoded_as_by_the_generated_decoder(
    record: AccessControlEntryRecord, cut: int, place: int, byte: int
) -> None:
    whole = encode_record(record, 0)
    assert decode_record(whole) == (record, 0)
    changed = bytearray(whole)
    changed[3 + place % (len(whole) - 3)] = byte
    for data in (whole[: 4 + cut], bytes(changed), memoryview(changed)):
        expected = _outcome(bytes(data))
        if isinstance(expected, str) or expected[1] != len(data):
            with pytest.raises(DecodeError):
                decode_record(data)
        else:
            assert decode_record(data) == (expected[0], 0)


def _values(batch: bytes | bytearray) -> list[bytes | None] | str:
    try:
        return [record.value for record in decode_batch(batch)]
    except RecordsRejected as error:
        return error.message


def _decoded_values(batch: bytes | bytearray) -> list[bytes | None] | str:
    try:
        return decode_values(batch)
    except RecordsRejected as error:
        return error.message


@settings(max_examples=200)
@given(_RECORDS, st.sampled_from([0, 1]))
def test_the_values_of_a_batch_are_those_of_its_records(records: list[Record], codec_number: int) -> None:
    batch = encode_batch(records, codec=codec_number)
    assert decode_values(batch) == [record.value for record in records]
    assert decode_values(b"before" + batch, 6) == [record.value for record in records]


@settings(max_examples=300)
@given(_RECORDS, st.integers(0, 1 << 20), st.integers(0, 255), st.booleans())
def test_a_malformed_batch_is_refused_as_by_the_general_reader(
    records: list[Record], place: int, byte: int, is_cut: bool
) -> None:
    batch = encode_batch(records)
    if is_cut:
        del batch[61 + place % (len(batch) - 61) :]
    else:
        batch[61 + place % (len(batch) - 61)] = byte
    assert _decoded_values(batch) == _values(batch)


def test_without_the_compiled_module_the_general_reader_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "WALKER", python_walk)
    monkeypatch.setattr(python_walk, "index", None)
    batch = encode_batch([Record(0, 0, None, b"value")] * 20)
    assert decode_values(batch) == [b"value"] * 20


def test_the_records_before_a_damaged_one_are_known() -> None:
    good = encode_record(NoOpRecord(), 0)
    records: list[Message] = []
    for bad in (b"\x01\x7f\x00\x00", b"", None):
        records.clear()
        with pytest.raises(DecodeError):
            decode_into(records, [good, good, bad, good])
        assert records == [NoOpRecord(), NoOpRecord()]


def _read(*values: bytes) -> CommittedBatch:
    batch = encode_batch([Record(0, 0, None, value) for value in values], base_offset=7)
    ((_, header),) = iter_headers(batch)
    return read_batch(header, memoryview(batch), VoterHistory(VoterSet(), 1))


def test_a_newer_metadata_version_explains_a_record_that_is_not_known() -> None:
    newer = encode_record(FeatureLevelRecord(name=METADATA_VERSION, feature_level=10_000), 0)
    with pytest.raises(FatalFault, match=r"metadata.version 10000"):
        _read(newer, b"\x01\x7f\x00\x00")
    with pytest.raises(DecodeError, match="the record at offset 8: metadata record in frame version 9"):
        _read(encode_record(NoOpRecord(), 0), b"\x09")
