"""The positions of the records of a batch, and the facts that compaction needs, without decoding them."""

from __future__ import annotations

import pytest

from barnabas.common.errors import RecordsRejected
from barnabas.records.batch import Record, decode_batch, encode_batch, read_header
from barnabas.records.header import HEADER_BYTES
from barnabas.records.record import write_record
from barnabas.storage.compaction.offset_map import OffsetMap, map_key
from barnabas.storage.compaction.record_filter import (
    BatchDecision,
    KeptBatch,
    Retention,
    filter_batch,
    outline,
    outline_batch,
)

#: Values next to those where a zigzag varint grows by a byte.
DELTAS = (0, 1, 63, 64, 65, 127, 128, 8191, 8192, 8193, 16383, 16384, 1 << 20, (1 << 20) + 1, 1 << 28, (1 << 31) - 1)


def records_at(deltas: tuple[int, ...]) -> bytes:
    body = bytearray()
    for delta in deltas:
        write_record(body, Record(0, 0, b"key-%d" % delta, b"v" * (delta % 300), []), delta, delta)
    return bytes(body)


@pytest.mark.parametrize("deltas", [DELTAS, tuple(-delta for delta in DELTAS)], ids=["positive", "negative"])
def test_deltas_of_every_length_are_read(deltas: tuple[int, ...]) -> None:
    data = records_at(deltas)
    found = outline(data, 0, len(data), len(deltas))
    assert [(each[3], each[4], each[5]) for each in found] == [(d, d, b"key-%d" % d) for d in deltas]
    assert [each[0] for each in found] == [0, *(each[2] for each in found[:-1])], "each begins where another ends"


@pytest.mark.parametrize("delta", DELTAS)
def test_records_that_end_too_early_are_refused(delta: int) -> None:
    data = records_at((delta,))
    for end in range(len(data)):
        with pytest.raises(RecordsRejected):
            outline(data[:end], 0, end, 1)


def test_the_outline_of_a_large_batch_is_what_decoding_it_says() -> None:
    records = [
        Record(0, 1_000 + 7 * n, None if n % 5 == 0 else b"k%d" % n, None if n % 3 == 0 else b"v" * (n % 90), [])
        for n in range(20_000)
    ]
    batch = bytes(encode_batch(records))
    data, found = outline_batch(batch, 0, read_header(batch))
    assert data == batch
    assert (found[0][0], found[-1][2]) == (HEADER_BYTES, len(batch))
    decoded = decode_batch(batch)
    assert [(1_000 + each[3], each[4], each[5], each[6]) for each in found] == [
        (record.timestamp, record.offset, record.key, record.value is not None) for record in decoded
    ]


def test_a_tombstone_stays_until_its_horizon_and_not_at_it() -> None:
    offsets = OffsetMap(1 << 20)
    offsets.add([map_key(b"a")], [0])
    keeps = BatchDecision(discard=False, keep_empty=False, is_idle_marker=False)

    def filtered(batch: bytes, wall_ms: int) -> KeptBatch | None:
        return filter_batch(batch, 0, read_header(batch), Retention(offsets, 0, wall_ms, 60_000), keeps)

    marked = filtered(bytes(encode_batch([Record(0, 500, b"a", None, [])])), 1_000)
    assert marked is not None
    batch = bytes(marked.data)
    assert read_header(batch).delete_horizon_ms == 61_000
    assert filtered(batch, 60_999) == KeptBatch(batch, 0, 500)
    assert filtered(batch, 61_000) is None
