"""The work of validating a batch is counted, so that the simulator can charge time for it."""

from __future__ import annotations

from collections import Counter

import pytest

from barnabas.common import effort
from barnabas.common.effort import Work
from barnabas.common.log_config import LogConfig
from barnabas.common.types import TopicPartition
from barnabas.records.append_rules import RecordLimits
from barnabas.records.batch import encode_batch
from barnabas.records.compression import Codec
from barnabas.records.record import Record
from barnabas.records.validate import AppendRules, validate_for_append

COUNT = 200
#: Few records are part of the cost of a request.
FEW = 10
RULES = AppendRules(LogConfig(), TopicPartition("orders", 0), RecordLimits())


class Meter:
    """Counts the work of each kind."""

    def __init__(self) -> None:
        self.counts: Counter[Work] = Counter()

    def add(self, work: Work, count: int) -> None:
        self.counts[work] += count


def counts_of(codec: Codec, count: int = COUNT) -> Counter[Work]:
    records = [Record(place, 1_700_000_000_000, b"k", b"v" * 1_000, []) for place in range(count)]
    batch = encode_batch(records, codec=codec)
    meter = Meter()
    before = effort.swap(meter)
    try:
        validate_for_append(memoryview(batch), RULES, wall_ms=1_700_000_000_000)
    finally:
        effort.swap(before)
    return meter.counts


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_decompressed_bytes_are_counted(codec: Codec) -> None:
    counts = counts_of(codec)
    assert counts[Work.RECORD] == COUNT
    assert 200_000 < counts[Work.UNPACKED_BYTE] < 210_000


def test_without_compression_records_are_counted() -> None:
    assert counts_of(Codec.NONE) == {Work.RECORD: COUNT}


def test_few_records_are_part_of_the_cost_of_a_request() -> None:
    assert counts_of(Codec.NONE, FEW) == {}
