"""Batches that no client sends: the broker's verdict on each, over the wire, is Apache Kafka's.

The table was recorded from Apache Kafka 4.1.0 and holds for it too (BARNABAS_TARGET=kafka).
"""

from __future__ import annotations

import struct
import time

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.clients import wire
from tests.clients.servers import Server
from tests.support.batches import simple_batch, with_right_crc

from barnabas.common.errors import ErrorCode
from barnabas.records.batch import ControlType, Record, control_key, encode_batch
from barnabas.records.compression import Codec

NOW_MS = time.time_ns() // 1_000_000
TOPICS = {
    "verdicts-plain": {},
    "verdicts-compact": {"cleanup.policy": "compact"},
    "verdicts-small": {"max.message.bytes": "200"},
    "verdicts-append": {"message.timestamp.type": "LogAppendTime"},
    "verdicts-before": {"message.timestamp.before.max.ms": "1000"},
    "verdicts-gzip": {"compression.type": "gzip"},
}


@pytest.fixture(scope="module")
def port(server: Server) -> int:
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    made = admin.create_topics([NewTopic(name, 1, 1, config=config) for name, config in TOPICS.items()])
    for future in made.values():
        future.result(120)
    return int(server.bootstrap.rpartition(":")[2])


def now_batch(*, shift_ms: int = 0, key: bytes | None = b"k", value: bytes = b"v", codec: int = 0) -> bytearray:
    return encode_batch([Record(0, NOW_MS, b"k", b"v"), Record(1, NOW_MS + shift_ms, key, value)], codec=codec)


def patched(offset: int, form: str, value: int, batch: bytearray | None = None) -> bytearray:
    changed = bytearray(now_batch() if batch is None else batch)
    struct.pack_into(form, changed, offset, value)
    return with_right_crc(changed)


def flipped(batch: bytearray, place: int) -> bytearray:
    batch[place] ^= 0x41
    return batch


MARKER = encode_batch([Record(0, NOW_MS, control_key(ControlType.COMMIT), bytes(6))], control=True)
HOUR_MS = 3_600_000
#: `NOW_MS` is when the tests were collected; a batch may be sent that much later.
RUN_MS_MAX = HOUR_MS
NONE, INVALID, CORRUPT = ErrorCode.NONE, ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE
UNKNOWN = ErrorCode.UNKNOWN_SERVER_ERROR

CASES = {
    "usual": ("plain", now_batch(), NONE),
    "no batch": ("plain", bytearray(), INVALID),
    "a few bytes": ("plain", bytearray(5), INVALID),
    "cut off": ("plain", now_batch()[:-1], INVALID),
    "two batches": ("plain", now_batch() + now_batch(), INVALID),
    "half a batch behind": ("plain", now_batch() + now_batch()[:-1], NONE),
    "zeros behind": ("plain", now_batch() + bytearray(30), CORRUPT),
    "three bytes behind": ("plain", now_batch() + bytearray(3), NONE),
    "flipped bit": ("plain", flipped(now_batch(), 65), CORRUPT),
    "magic 3": ("plain", patched(16, ">b", 3), CORRUPT),
    "magic 1": ("plain", patched(16, ">b", 1), INVALID),
    "tiny size": ("plain", patched(8, ">i", 1), CORRUPT),
    "negative size": ("plain", patched(8, ">i", -5), CORRUPT),
    "base offset 1": ("plain", patched(0, ">q", 1), INVALID),
    "negative last offset delta": ("plain", patched(23, ">i", -1), INVALID),
    "large last offset delta": ("plain", patched(23, ">i", 7), INVALID),
    "count too small": ("plain", patched(57, ">i", 1), INVALID),
    "count 0": ("plain", patched(57, ">i", 0), INVALID),
    "negative count": ("plain", patched(57, ">i", -1), INVALID),
    "producer without sequence": ("plain", patched(43, ">q", 5), INVALID),
    "control batch": ("plain", MARKER, INVALID),
    "unknown codec": ("plain", patched(21, ">h", 6), UNKNOWN),
    "an hour ahead": ("plain", now_batch(shift_ms=HOUR_MS - 60_000), NONE),
    "more than an hour ahead": ("plain", now_batch(shift_ms=HOUR_MS + RUN_MS_MAX), ErrorCode.INVALID_TIMESTAMP),
    "far in the past": ("plain", now_batch(shift_ms=-1_000_000_000_000), NONE),
    "log append time from a producer": ("plain", patched(21, ">h", 8), NONE),
    "too large": ("small", now_batch(value=bytes(300)), ErrorCode.MESSAGE_TOO_LARGE),
    "no key": ("compact", now_batch(key=None), INVALID),
    "empty key": ("compact", now_batch(key=b""), NONE),
    "no key, packed": ("compact", now_batch(key=None, codec=Codec.ZSTD), INVALID),
    "broken record": ("compact", with_right_crc(flipped(now_batch(), 61)), INVALID),
    "broken gzip": ("compact", with_right_crc(flipped(now_batch(codec=Codec.GZIP), 75)), UNKNOWN),
    "broken lz4": ("compact", with_right_crc(flipped(now_batch(codec=Codec.LZ4), 63)), UNKNOWN),
    "broken snappy": ("compact", with_right_crc(flipped(now_batch(codec=Codec.SNAPPY), 82)), UNKNOWN),
    "broken zstd": ("compact", with_right_crc(flipped(now_batch(codec=Codec.ZSTD), 63)), UNKNOWN),
    "log append time at its topic": ("append", patched(21, ">h", 8), ErrorCode.INVALID_TIMESTAMP),
    "future at log append time": ("append", now_batch(shift_ms=2 * HOUR_MS), NONE),
    "too old": ("before", now_batch(shift_ms=-HOUR_MS), ErrorCode.INVALID_TIMESTAMP),
    "packed anew": ("gzip", now_batch(value=bytes(1000)), NONE),
    "many packed anew": ("gzip", simple_batch(50, codec=Codec.LZ4), ErrorCode.INVALID_TIMESTAMP),
}


@pytest.mark.parametrize("name", CASES)
def test_verdict(port: int, name: str) -> None:
    topic, batch, expected = CASES[name]
    code, _ = wire.produce(port, f"verdicts-{topic}", 0, bytes(batch))
    assert ErrorCode(code) is expected
