"""A parser of records with numpy: one Python step per record for its length, all other fields in whole columns.

The lengths form a chain, so they are followed one by one. The varints after them are read for all records together, one
byte of the varint after another. Byte strings are cut out by one zero-copy BinaryArray whose offsets mark string, gap,
string, gap, ..., of which every second element is taken.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from barnabas.common.host import Buffer
from barnabas.records.header import invalid
from barnabas.records.record import read_varint
from barnabas.spark.parsed import Longs, Parsed

NAME = "numpy"

_VARINT_BYTES_MAX = 5
_VARLONG_BYTES_MAX = 10


def parse(data: Buffer, spans: list[tuple[int, int, int]]) -> Parsed:
    """Implements `parsed.Parser`."""
    view = memoryview(data)
    if not spans:
        return Parsed(*(np.empty(0, np.int64) for _ in Parsed._fields))
    bodies, ends = [], []
    for start, end, count in spans:
        body, body_ends = _bodies(view, start, end, count)
        bodies.append(body)
        ends.append(body_ends)
    return _fields(np.frombuffer(view, np.uint8), np.concatenate(bodies), np.concatenate(ends))


def _bodies(view: memoryview, start: int, end: int, count: int) -> tuple[Longs, Longs]:
    """Returns where the bodies of the `count` records begin and end; they fill [start, end) exactly."""
    # A record takes at least 7 bytes: an impossible count is refused before the loop.
    if not 0 <= count <= end - start:
        raise invalid(f"a record count of {count} in {end - start} bytes of records")
    data = bytes(view[start:end])
    size = len(data)
    places: list[int] = []
    zigzags: list[int] = []
    add_place, add_zigzag = places.append, zigzags.append
    position = 0
    try:
        for _ in range(count):
            first = data[position]
            if first < 0x80:
                position += 1
            else:
                second = data[position + 1]
                if second < 0x80:
                    first += (second - 1) << 7
                    position += 2
                else:
                    length, position = read_varint(data, position)
                    first = length << 1 if length >= 0 else 1
            add_place(position)
            add_zigzag(first)
            position += first >> 1
    except IndexError:
        raise invalid(f"the records end after {len(places)} of {count}") from None
    if position != size:
        raise invalid(f"{count} records end at byte {position} of {size}")
    starts = np.array(places, np.int64)
    lengths = np.array(zigzags, np.int64)
    if (lengths & 1).any():
        raise invalid("a record with a negative length")
    return starts + start, starts + (lengths >> 1) + start


def _fields(data: Any, starts: Longs, ends: Longs) -> Parsed:
    timestamps, places = read_varints(data, starts + 1, _VARLONG_BYTES_MAX)
    offsets, places = read_varints(data, places, _VARINT_BYTES_MAX)
    key_sizes, key_starts = read_varints(data, places, _VARINT_BYTES_MAX)
    value_sizes, value_starts = read_varints(data, key_starts + np.maximum(key_sizes, 0), _VARINT_BYTES_MAX)
    counts, places = read_varints(data, value_starts + np.maximum(value_sizes, 0), _VARINT_BYTES_MAX)
    # A header takes at least 2 bytes.
    if (counts < 0).any() or (places + 2 * counts > ends).any():
        raise invalid("a record's fields reach beyond its end")
    if ((places != ends) & (counts == 0)).any():
        raise invalid("a record does not end where its length says")
    return Parsed(timestamps, offsets, key_starts, key_sizes, value_starts, value_sizes, places, counts, ends)


def read_varints(data: Any, places: Longs, size_max: int) -> tuple[Longs, Longs]:
    """Returns the zigzag varint at each position, and the position after it."""
    _within(data, places)
    byte = data[places]
    values = (byte & 0x7F).astype(np.uint64)
    after = places + 1
    more = np.flatnonzero(byte >= 0x80)
    for shift in range(7, 7 * size_max, 7):
        if not more.size:
            break
        where = after[more]
        _within(data, where)
        byte = data[where]
        values[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        after[more] += 1
        more = more[byte >= 0x80]
    if more.size:
        raise invalid(f"a varint of more than {size_max} bytes")
    signed = (values >> np.uint64(1)).view(np.int64) ^ -(values & np.uint64(1)).view(np.int64)
    return signed, after


def _within(data: Any, places: Longs) -> None:
    if places.size and int(places.max()) >= data.size:
        raise invalid("the records end inside a record")


def binary(data: Buffer, starts: Longs, sizes: Longs) -> Any:
    """Implements `parsed.Parser`."""
    rows = len(starts)
    if not rows:
        return pa.array([], pa.binary())
    edges = np.empty(2 * rows, np.int32)
    edges[0::2] = starts
    edges[1::2] = starts + np.maximum(sizes, 0)
    cut = pa.Array.from_buffers(pa.binary(), 2 * rows - 1, [None, pa.py_buffer(edges), pa.py_buffer(data)])
    chosen = np.arange(0, 2 * rows, 2, dtype=np.int32)
    nulls = sizes < 0
    return cut.take(pa.array(chosen, mask=nulls) if nulls.any() else pa.array(chosen))
