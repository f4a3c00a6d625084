"""Batches of Barnabas read by kafka-python and aiokafka, and theirs read by Barnabas, with every codec that they
support.
"""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder
from aiokafka.record.memory_records import MemoryRecords as AioRecords
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder
from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords

from barnabas.records.batch import Record, decode_batch, encode_batch, has_valid_crc, read_header
from barnabas.records.compression import Codec

NOW_MS = 1_800_000_000_000
MADE = [
    Record(0, NOW_MS, b"key", b"value", [("h", b"1"), ("h", None), ("é", b"")]),
    Record(1, NOW_MS - 5000, None, b"x" * 70_000),
    Record(2, NOW_MS + 7, b"", None),
    Record(3, NOW_MS, b"k" * 300, b"barnabas " * 9000, [("", b"\0\xff")]),
]


def _read(reader: str, batch: bytes) -> Any:
    if reader == "aiokafka":
        return AioRecords(batch).next_batch()
    return KafkaPythonRecords(batch).next_batch()


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("reader", ["aiokafka", "kafka-python"])
def test_others_read_what_we_write(reader: str, codec: Codec) -> None:
    batch = _read(reader, bytes(encode_batch(MADE, codec=codec, base_offset=1000, producer_id=4, base_sequence=9)))
    assert batch.validate_crc()
    read = list(batch)
    assert [
        (r.offset - 1000, r.timestamp, r.key, r.value, [(key, value) for key, value in r.headers]) for r in read
    ] == [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in MADE]


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("writer", ["aiokafka", "kafka-python"])
def test_we_read_what_others_write(writer: str, codec: Codec) -> None:
    options: dict[str, Any] = {"producer_id": 4, "producer_epoch": 2, "base_sequence": 9, "batch_size": 1 << 20}
    options |= {"magic": 2, "compression_type": codec.value, "is_transactional": True}
    builder = AioBuilder(**options) if writer == "aiokafka" else KafkaPythonBuilder(**options)
    for record in MADE:
        assert builder.append(record.offset, record.timestamp, record.key, record.value, list(record.headers))
    batch = bytes(builder.build())
    header = read_header(batch)
    assert has_valid_crc(batch, 0, header)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4, 2, 9)
    assert header.is_transactional
    assert header.codec == codec
    assert decode_batch(batch) == MADE
