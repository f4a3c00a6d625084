"""Every accepted batch can be read by every client: mutated batches of all codecs, and batches that Apache Kafka
stored.
"""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.errors import CorruptRecordError
from kafka.record.default_records import DefaultRecordBatch
from tests.support import golden
from tests.support.batches import NOW_MS, records, with_right_crc
from tests.support.packed_walks import index_batch
from tests.support.twins import walkers

from barnabas.common.errors import RecordsRejected
from barnabas.common.log_config import LogConfig
from barnabas.common.types import TopicPartition
from barnabas.records import walk
from barnabas.records.batch import HEADER_BYTES, Record, decode_batch, encode_batch, iter_headers, read_header
from barnabas.records.compression import Codec, compress
from barnabas.records.header import MAGIC_V2
from barnabas.records.record import read_varint
from barnabas.records.validate import AppendRules, stamp, validate_for_append

PARTITION = TopicPartition("t", 0)
CONFIGS: list[dict[str, Any]] = [
    {},
    {"cleanup_policy": ("compact",)},
    {"compression_type": "lz4"},
    {"compression_type": "uncompressed"},
    {"message_timestamp_type": "LogAppendTime"},
    {"message_timestamp_before_max_ms": 1 << 40},
]
BASE = 1_000


def read_by_another(batch: bytes) -> list[tuple[int, int, bytes | None, bytes | None]] | None:
    """Returns offset, timestamp, key and value, as kafka-python reads them. None for content that it does not read and
    Apache Kafka accepts: header keys that are not UTF-8, and attributes of a record (unused so far) above 127, which it
    decodes as a number of several bytes.
    """
    rows, data = index_batch(read_header(batch), batch)
    if any(data[read_varint(bytes(data[start : start + 5]), 0)[1] + start] > 127 for start in rows.starts):
        return None
    try:
        return [(each.offset, each.timestamp, each.key, each.value) for each in DefaultRecordBatch(batch)]
    except CorruptRecordError as error:
        if "UnicodeDecodeError" in str(error):
            return None
        raise


def appended(batch: bytes, config: dict[str, Any]) -> bytes | None:
    """Returns the batch as the log has it; None if it is refused."""
    rules = AppendRules(LogConfig(**config), PARTITION)
    try:
        valid = validate_for_append(memoryview(bytearray(batch)), rules, wall_ms=NOW_MS)
    except RecordsRejected:
        return None
    _, stamped = stamp(valid, BASE, 3)
    return bytes(stamped)


def assert_readable(stored: bytes) -> None:
    header = read_header(stored)
    ours = decode_batch(stored)
    found = [(each.offset, each.timestamp, each.key, each.value) for each in ours]
    theirs = read_by_another(stored)
    assert theirs is None or [each[2:] for each in theirs] == [each[2:] for each in found]
    assert [each[0] for each in theirs or found] == list(range(BASE, BASE + header.record_count))
    assert header.last_offset == BASE + header.record_count - 1
    if header.timestamp_type == 0:
        assert max(-1, *(each[1] for each in found)) == header.max_timestamp


@pytest.fixture(params=sorted(walkers()), autouse=True, scope="module")
def walker(request: pytest.FixtureRequest) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(walk, "WALKER", walkers()[request.param])
        yield


@given(records(), st.sampled_from(Codec), st.sampled_from(CONFIGS), st.data())
def test_mutated_batches_that_are_let_in_are_readable(
    made: list[Record], codec: Codec, config: dict[str, Any], data: st.DataObject
) -> None:
    """Bytes of the records are changed before they are packed or after, and fields of the header."""
    plain = encode_batch(made)
    body = bytearray(plain[HEADER_BYTES:])
    for _ in range(data.draw(st.integers(0, 2))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    packed = bytearray(compress(codec, bytes(body)))
    if data.draw(st.integers(0, 3)) == 0:
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    batch = bytearray(plain[:HEADER_BYTES]) + packed
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">h", batch, 21, codec)
    if data.draw(st.integers(0, 3)) == 0:
        place, form = data.draw(st.sampled_from([(23, ">i"), (27, ">q"), (35, ">q"), (57, ">i")]))
        (now,) = struct.unpack_from(form, batch, place)
        struct.pack_into(form, batch, place, now + data.draw(st.sampled_from([-2, -1, 1, 2, 1000])))
    stored = appended(bytes(with_right_crc(batch)), config)
    if stored is not None:
        assert_readable(stored)


@given(records(), st.sampled_from(Codec), st.sampled_from(CONFIGS))
def test_right_batches_are_let_in(made: list[Record], codec: Codec, config: dict[str, Any]) -> None:
    for record in made:
        record.key = record.key or b"k"
    stored = appended(bytes(encode_batch(made, codec=codec)), config)
    assert stored is not None
    assert_readable(stored)


def test_what_clients_wrote_to_apache_kafka_is_let_in() -> None:
    """Every batch of the recorded logs that a client may have sent, as it was sent."""
    seen, codecs = 0, set()
    for folder, text in golden.dumps():
        for log in golden.dumped_logs(text):
            data = golden.files()[f"{folder}/{log.path.partition('/')[2]}"]
            for position, header in iter_headers(data):
                whole = header.record_count == header.last_offset_delta + 1  # not compacted
                if header.magic != MAGIC_V2 or header.is_control or not whole or header.has_delete_horizon:
                    continue
                batch = bytearray(data[position : position + header.size_bytes])
                struct.pack_into(">q", batch, 0, 0)
                if header.timestamp_type:
                    continue  # a mark of the broker that stored it
                stored = appended(bytes(batch), {"max_message_bytes": 1 << 24})
                assert stored is not None, f"{folder}/{log.path} at {header.base_offset}"
                assert_readable(stored)
                seen += 1
                codecs.add(header.codec)
    assert seen > 100
    assert codecs == {0, 1, 2, 3, 4}
