"""Hypothesis strategies for records, and batches as a producer sends them."""

from __future__ import annotations

from typing import Any

from crc32c import crc32c
from hypothesis import strategies as st

from barnabas.records.batch import Record, encode_batch

NOW_MS = 1_800_000_000_000

payloads = st.none() | st.binary(max_size=200)
header_keys = st.text(max_size=20)
timestamps = st.integers(NOW_MS - 1_000_000, NOW_MS + 1_000_000)


@st.composite
def records(draw: st.DrawFn, count_max: int = 12, timestamps: st.SearchStrategy[int] = timestamps) -> list[Record]:
    """Draws the records of one batch, offsets from 0."""
    count = draw(st.integers(1, count_max))
    return [
        Record(
            offset,
            draw(timestamps),
            draw(payloads),
            draw(payloads),
            draw(st.lists(st.tuples(header_keys, payloads), max_size=4)),
        )
        for offset in range(count)
    ]


def simple_batch(count: int = 1, **options: Any) -> bytearray:
    """Returns a batch of `count` records with keys and values, as a producer sends it."""
    made = [Record(i, NOW_MS + i, b"key-%d" % i, b"value-%d" % i, [("h", b"x")]) for i in range(count)]
    return encode_batch(made, **options)


def with_right_crc(batch: bytearray) -> bytearray:
    """Returns the same bytes with a checksum that matches them, so that damage is not found by the checksum."""
    changed = bytearray(batch)
    changed[17:21] = crc32c(bytes(changed[21:])).to_bytes(4, "big")
    return changed
