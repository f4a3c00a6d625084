"""Every recorded log and snapshot has the content of Apache Kafka's own dump of it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from tests.support import golden

from barnabas.records.batch import BatchHeader, Record, decode_batch, has_valid_crc, iter_headers, read_end_txn_marker
from barnabas.records.compression import Codec

_LOGS = [(folder, log) for folder, text in golden.dumps() for log in golden.dumped_logs(text)]
_DECODED_BY_KAFKA = ("__consumer_offsets", "__transaction_state", "__cluster_metadata", "__share_group_state")


def _bytes_of(folder: str, path: str) -> bytes:
    return golden.files()[f"{folder}/{path.partition('/')[2]}"]


def _batches(data: bytes) -> Iterator[tuple[int, BatchHeader, list[Record]]]:
    view = memoryview(data)
    for position, header in iter_headers(view):
        assert has_valid_crc(view, position, header)
        yield position, header, decode_batch(view, position)


def test_the_recording_is_there() -> None:
    assert len(_LOGS) > 100
    assert sum(len(log.batches) for _, log in _LOGS) > 1000


@pytest.mark.parametrize("folder, log", _LOGS, ids=[f"{folder}:{log.path}" for folder, log in _LOGS])
def test_a_log_reads_as_its_dump(folder: str, log: golden.DumpedLog) -> None:
    found = list(_batches(_bytes_of(folder, log.path)))
    assert len(found) == len(log.batches)
    for (position, header, records), dumped in zip(found, log.batches, strict=True):
        _compare_header(position, header, dumped.fields)
        _compare_records(records, dumped.records, header, folder)


def _compare_header(position: int, header: BatchHeader, fields: dict[str, str]) -> None:
    assert int(fields["position"]) == position
    assert int(fields["size"]) == header.size_bytes
    assert int(fields["magic"]) == header.magic
    assert int(fields["crc"]) == header.crc
    assert fields["compresscodec"] == Codec(header.codec).name.lower()
    assert fields["isvalid"] == "true"
    kind = "LogAppendTime" if header.timestamp_type else "CreateTime" if header.magic else "NoTimestampType"
    assert int(fields[kind]) == header.max_timestamp
    if header.magic < 2:
        assert int(fields["offset"]) == header.last_offset
        return
    horizon = header.delete_horizon_ms
    ours = {
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "count": header.record_count,
        "baseSequence": header.base_sequence,
        "lastSequence": header.last_sequence,
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "partitionLeaderEpoch": header.partition_leader_epoch,
        "isTransactional": str(header.is_transactional).lower(),
        "isControl": str(header.is_control).lower(),
        "deleteHorizonMs": "OptionalLong.empty" if horizon is None else f"OptionalLong[{horizon}]",
    }
    assert ours == {name: _value(fields[name]) for name in ours}


def _value(text: str) -> int | str:
    return int(text) if re.fullmatch(r"-?\d+", text) else text


def _compare_records(
    records: list[Record], dumped: list[golden.DumpedRecord], header: BatchHeader, folder: str
) -> None:
    assert len(records) == len(dumped)
    decoded_by_kafka = folder.rpartition("/")[2].startswith(_DECODED_BY_KAFKA)
    for record, line in zip(records, dumped, strict=True):
        assert (record.offset, record.timestamp) == (line.offset, line.timestamp)
        assert (-1 if record.key is None else len(record.key)) == line.key_size
        assert (-1 if record.value is None else len(record.value)) == line.value_size
        if line.header_keys is not None:
            assert ",".join(key for key, _ in record.headers) == line.header_keys
        if header.is_control:
            marker = read_end_txn_marker(record)
            if marker is not None:
                kind = "COMMIT" if marker.commit else "ABORT"
                assert line.text == f" endTxnMarker: {kind} coordinatorEpoch: {marker.coordinator_epoch}"
        elif not decoded_by_kafka:
            key = "" if record.key is None else f" key: {record.key.decode('utf-8', 'replace')}"
            value = "" if record.value is None else f" payload: {record.value.decode('utf-8', 'replace')}"
            assert line.text == key + value


def test_all_formats_and_codecs_are_in_the_recording() -> None:
    seen = {
        (header.magic, Codec(header.codec).name)
        for folder, log in _LOGS
        for _, header in iter_headers(memoryview(_bytes_of(folder, log.path)))
    }
    assert seen == {(2, codec.name) for codec in Codec} | {
        (magic, codec) for magic in (0, 1) for codec in ("NONE", "GZIP", "SNAPPY", "LZ4")
    }


def test_a_torn_tail_is_left_out() -> None:
    data = golden.files()["stage3-killed/crash-0/00000000000000000028.log"]
    *_, (position, header, _) = _batches(data)
    assert position + header.size_bytes == len(data) - 100
